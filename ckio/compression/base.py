"""The interface of codecs, what several of ours share, and `Checked`, which holds any to it."""

import importlib
from operator import index
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import xxhash
from numpy.typing import NDArray

from ckio.errors import BadInput, CkioError, CorruptCheckpoint, StorageError

Block: TypeAlias = NDArray[Any]
"""Neighbouring elements of one field: in C order, with their dtype and shape, and at least one."""

SEAL = 8
"""Bytes of a digest before what a library has encoded that adds none of its own."""


class Codec(Protocol):
    """One way to compress blocks, into and from memory that the caller owns.

    Several threads may use one codec at a time.

    Attributes
    ----------
    name : str
        What a checkpoint says it was encoded with: equal names decode each other's bytes.
    lossless : bool
        Whether what is decoded is bitwise what was encoded.
    """

    @property
    def name(self) -> str: ...
    @property
    def lossless(self) -> bool: ...

    def bound(self, nbytes: int, /) -> int:
        """The most bytes that encoding a block of `nbytes` can give."""

    def encode(self, block: Block, into: memoryview, /) -> int:
        """Encode into the beginning of `into`, of as many bytes as the bound; returns how many."""

    def decode(self, data: memoryview, into: Block, /) -> None:
        """Fill `into` from all of `data`; raises CorruptCheckpoint where that does not fill it."""


def needed(package: str, extra: str, /) -> Any:
    """Return an optional library; raises BadInput, which says how to install a missing one."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise BadInput(
            f"this codec needs {package}, which cannot be imported ({error});"
            f" install it: pip install 'ckio[{extra}]'"
        ) from error


def seal(data: bytes, into: memoryview, /, about: str = "") -> int:
    """Put data into the beginning of `into`, behind a digest; returns the bytes of both.

    The digest covers also `about`, a text of what must be known to decode them.
    """
    end = SEAL + len(data)
    into[:SEAL] = _digest(data, about)
    into[SEAL:end] = data
    return end


def unseal(data: memoryview, /, about: str = "") -> memoryview:
    """Return the data that `seal` put in; raises CorruptCheckpoint where they are others."""
    content = data[SEAL:]
    if _digest(content, about) != data[:SEAL]:
        raise CorruptCheckpoint("the block fails its checksum")
    return content


def _digest(data: bytes | memoryview, about: str) -> bytes:
    state = xxhash.xxh3_64(about.encode())
    state.update(data)
    return state.digest()


def as_bytes(block: Block, /) -> NDArray[np.uint8]:
    """Return the memory of a block as bytes."""
    return block.reshape(-1).view(np.uint8)


# Byte shuffle, as HDF5's filter 2 does it to a chunk: first bytes first, then second bytes, ...
#
# The bytes of neighbouring numbers are alike in sign and exponent and noise further back: a codec
# finds what is alike only once it lies side by side.

_SMALL: Final = 1 << 12
"""Bytes below which a call of numpy takes longer than what it does."""


def shuffled_bytes(dtype: np.dtype[np.generic], /) -> int:
    """Return the bytes of one element where shuffling helps, and 1 for bytes, texts and records.

    A complex number is one element, as for HDF5, where it is a compound of two; spectra became 3 to
    9 % smaller so than with their parts as numbers of their own.
    """
    return dtype.itemsize if dtype.kind in "iufcmM" else 1


def shuffle(block: Block, into: NDArray[np.uint8], /) -> None:
    """Fill `into`, of as many bytes as the block, with its bytes, shuffled."""
    elements = as_bytes(block).reshape(-1, block.itemsize)
    into.reshape(block.itemsize, -1)[...] = elements.T


def unshuffle(data: NDArray[np.uint8], into: Block, /) -> None:
    """Fill a block from its shuffled bytes."""
    elements, planes = as_bytes(into).reshape(-1, into.itemsize), data.reshape(into.itemsize, -1)
    if data.size < _SMALL:
        elements[...] = planes.T
        return
    # One plane after the other: numpy would go element by element, which takes three times as long.
    for place, plane in enumerate(planes):
        elements[:, place] = plane


class Checked:
    """A codec held to its protocol: what else it returns or raises becomes a StorageError.

    It may be anybody's, and its sizes decide over memory. Raises BadInput where it has no name.
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
        """Return an error of ckio's own: this one, or one that describes it."""
        if isinstance(error, CkioError):
            return error
        return StorageError(f"codec {self.name} failed: {type(error).__name__}: {error}")
