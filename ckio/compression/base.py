"""What a codec can do, and what several of ours share."""

import importlib
from typing import Any, Protocol, TypeAlias

import numpy as np
import xxhash
from numpy.typing import NDArray

from ckio.errors import BadInput, CorruptCheckpoint

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
        """Encode into the beginning of `into`, which has room for the bound; returns the bytes."""

    def decode(self, data: memoryview, into: Block, /) -> None:
        """Fill `into` from all of `data`; raises CorruptCheckpoint where it does not give that."""


def needed(package: str, extra: str, /) -> Any:
    """An optional library; raises BadInput, which says how to install it, where it is missing."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise BadInput(
            f"this codec needs {package}, which cannot be imported ({error});"
            f" install it: pip install 'ckio[{extra}]'"
        ) from error


def seal(data: bytes, into: memoryview, /, about: str = "") -> int:
    """Put data into the beginning of `into`, behind a digest; returns the bytes of both.

    The digest is also `about` what must be known to decode them.
    """
    end = SEAL + len(data)
    into[:SEAL] = _digest(data, about)
    into[SEAL:end] = data
    return end


def unseal(data: memoryview, /, about: str = "") -> memoryview:
    """What `seal` put in; raises CorruptCheckpoint where it is not that any more."""
    content = data[SEAL:]
    if _digest(content, about) != data[:SEAL]:
        raise CorruptCheckpoint("the block fails its checksum")
    return content


def _digest(data: bytes | memoryview, about: str) -> bytes:
    state = xxhash.xxh3_64(about.encode())
    state.update(data)
    return state.digest()


def as_bytes(block: Block, /) -> NDArray[np.uint8]:
    """The memory of a block as bytes."""
    return block.reshape(-1).view(np.uint8)
