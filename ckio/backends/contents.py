"""The checkpoints in the files of a level: list them without opening the level, or verify them.

Each durable backend can list its checkpoints without opening, creating, locking or changing a
level: `Directory.contents(path)`, `Hdf5.contents(path)`.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import xxhash

from ckio.actions import Key, Layout, field_nbytes
from ckio.backends.base import Backend
from ckio.errors import StorageError

_TILE: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A complete checkpoint in a file.

    Attributes
    ----------
    key : Key
    layout : Layout
        The layout of the stored bytes. For a compressed checkpoint these are the encoded bytes.
    path : Path
        The file that contains it.
    spans : tuple of (int, int)
        Offset and number of bytes of each part in the file, in the order of the parts.
    written : float
        Time of writing, in seconds since 1970 (UTC).
    digest : bytes
        The xxh3_128 checksum of its bytes; empty if it was written without a checksum.
    run : str or None
        The id of the run that stored it; "" for no particular run, None if the file has no such
        information.
    """

    key: Key
    layout: Layout
    path: Path
    spans: tuple[tuple[int, int], ...]
    written: float
    digest: bytes
    run: str | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of its payload, as stored (after compression, if any)."""
        return sum(nbytes for _, nbytes in self.spans)


@dataclass(frozen=True, slots=True, kw_only=True)
class Damaged:
    """A part of a file that was complete once and is damaged now; `what` gives the reason."""

    path: Path
    offset: int
    nbytes: int
    what: str


def sound(stored: Stored, /) -> bool | None:
    """Return whether the stored bytes agree with their checksum; None if there is no checksum.

    Raises OSError if they cannot be read.
    """
    if not stored.digest:
        return None
    state = xxhash.xxh3_128()
    for tile in _tiles(stored):
        state.update(tile)
    return state.digest() == stored.digest


def _tiles(stored: Stored) -> Iterator[bytes]:
    with stored.path.open("rb") as file:
        for begin, nbytes in stored.spans:
            for offset in range(begin, begin + nbytes, _TILE):
                yield os.pread(file.fileno(), min(_TILE, begin + nbytes - offset), offset)


def verified(backend: Backend, /) -> tuple[set[Key], list[str]]:
    """Read every checkpoint of a level once, for example after a process was killed.

    Returns the keys whose bytes are sound, and one message for each of the others. Those others are
    discarded. Raises StorageError if a damaged checkpoint cannot be discarded.
    """
    sound, corrupt = set[Key](), list[str]()
    buffers: dict[tuple[int, int], memoryview] = {}
    for key in list(backend.keys()):
        try:
            into = [
                buffers.setdefault((number, nbytes), memoryview(bytearray(nbytes)))
                for number, nbytes in enumerate(map(field_nbytes, backend.layout(key)))
            ]
            backend.read(key, into)
        except StorageError as error:
            corrupt.append(f"{error}; it was discarded")
            backend.discard(key)
        else:
            sound.add(key)
    return sound, corrupt
