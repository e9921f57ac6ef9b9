"""The interface of codecs, functions for several codecs, and `Checked`, which enforces it."""

import importlib
from operator import index
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ckio.errors import BadInput, CkioError, StorageError

Block: TypeAlias = NDArray[Any]
"""Neighbouring elements of one field in C order, with their dtype and shape; at least one."""


class Codec(Protocol):
    """A codec for blocks; the caller provides all memory.

    Several threads may use one codec at the same time.

    Attributes
    ----------
    name : str
        The name that is stored with each checkpoint. Codecs with equal names must decode each
        other's bytes.
    lossless : bool
        Whether decoding returns bitwise the original block.
    """

    @property
    def name(self) -> str: ...
    @property
    def lossless(self) -> bool: ...

    def bound(self, nbytes: int, /) -> int:
        """Return the maximum number of bytes of an encoded block of `nbytes`."""

    def encode(self, block: Block, into: memoryview, /) -> int:
        """Encode a block into the beginning of `into`; return the number of encoded bytes.

        `into` has `bound(block.nbytes)` bytes.
        """

    def decode(self, data: memoryview, into: Block, /) -> None:
        """Decode all of `data` into a block; raises CorruptCheckpoint if they do not fill it.

        The level has verified the checksum of `data`, unless it has no checksums.
        """


def needed(package: str, extra: str, /) -> Any:
    """Return an optional library; raises BadInput, with the command to install it, if missing."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise BadInput(
            f"this codec needs {package}, which cannot be imported ({error});"
            f" install it: pip install 'ckio[{extra}]'"
        ) from error


def as_bytes(block: Block, /) -> NDArray[np.uint8]:
    """Return the memory of a block as bytes."""
    return block.reshape(-1).view(np.uint8)


# Byte shuffle, as in HDF5's filter 2: the first bytes of all elements, then the second bytes, ...
#
# Neighbouring numbers have similar signs and exponents, and different last digits. A codec finds
# the similar bytes only if they follow each other.

_SMALL: Final = 1 << 12
"""For fewer bytes, a call of numpy takes longer than its work."""


def shuffled_bytes(dtype: np.dtype[np.generic], /) -> int:
    """Return the bytes of one element for shuffling; 1 (no shuffle) for bytes, texts and records.

    A complex number is one element, as for HDF5, where it is a compound of two numbers. With this,
    spectra became 3 to 9 % smaller than with the real and imaginary part as separate elements.
    """
    return dtype.itemsize if dtype.kind in "iufcmM" else 1


def shuffle(block: Block, into: NDArray[np.uint8], /) -> None:
    """Fill `into` with the shuffled bytes of a block; both have the same number of bytes."""
    elements = as_bytes(block).reshape(-1, block.itemsize)
    into.reshape(block.itemsize, -1)[...] = elements.T


def unshuffle(data: NDArray[np.uint8], into: Block, /) -> None:
    """Fill a block from its shuffled bytes."""
    elements, planes = as_bytes(into).reshape(-1, into.itemsize), data.reshape(into.itemsize, -1)
    if data.size < _SMALL:
        elements[...] = planes.T
        return
    # One plane after the other, because numpy would copy element by element, which takes three
    # times as long.
    for place, plane in enumerate(planes):
        elements[:, place] = plane


class Checked:
    """A codec with checks: every invalid result and every foreign error becomes a StorageError.

    Codecs may come from plugins, and wrong sizes would damage memory. Raises BadInput if the codec
    has no name or no `lossless`.
    """

    def __init__(self, codec: Codec, /) -> None:
        name, lossless = getattr(codec, "name", None), getattr(codec, "lossless", None)
        if not (isinstance(name, str) and name and isinstance(lossless, bool)):
            raise BadInput(
                f"codec {type(codec).__name__}: name = {name!r}, lossless = {lossless!r};"
                " they must be a text, and True or False"
            )
        self.name, self.lossless, self._codec = name, lossless, codec

    def bound(self, nbytes: int, /) -> int:
        try:
            bound = index(self._codec.bound(nbytes))
        except Exception as error:
            raise self._failed(error) from error
        if bound < 1:
            raise StorageError(f"codec {self.name} needs {bound} bytes for a block of {nbytes}")
        return bound

    def encode(self, block: Block, into: memoryview, /) -> int:
        try:
            size = index(self._codec.encode(block, into))
        except Exception as error:
            raise self._failed(error) from error
        if not 0 < size <= into.nbytes:
            raise StorageError(
                f"codec {self.name} gave {size} bytes for a block; its bound is {into.nbytes}"
            )
        return size

    def decode(self, data: memoryview, into: Block, /) -> None:
        try:
            self._codec.decode(data, into)
        except Exception as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> Any:
        """Return the error if it is one of ckio's; otherwise a StorageError that describes it."""
        if isinstance(error, CkioError):
            return error
        return StorageError(f"codec {self.name} failed: {type(error).__name__}: {error}")
