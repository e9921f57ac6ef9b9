"""The contents of the files of a level, listed from outside or verified through the open level.

Each durable backend lists them without opening, making, locking or changing anything:
`Directory.contents(path)`, `Hdf5.contents(path)`.
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
    """A committed checkpoint.

    Attributes
    ----------
    key : Key
    layout : Layout
        What its level holds: encoded bytes, where it was compressed on the way.
    path : Path
        The file that it lies in.
    spans : tuple of (int, int)
        Offset and bytes of each of its parts in the file, in their order.
    written : float
        When, in seconds since 1970 (UTC).
    digest : bytes
        xxh3_128 of its bytes, or nothing.
    run : str or None
        The id of the run that stored it; "" for no run in particular, None where it does not say.
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
        """Bytes of its payload, as stored."""
        return sum(nbytes for _, nbytes in self.spans)


@dataclass(frozen=True, slots=True, kw_only=True)
class Damaged:
    """A part of a file that had been committed and is no longer sound; `what` says why."""

    path: Path
    offset: int
    nbytes: int
    what: str


def sound(stored: Stored, /) -> bool | None:
    """Return whether its bytes are those that were written; None if it has no checksum.

    Raises OSError where they cannot be read.
    """
    if not stored.digest:
        return None
    state = xxhash.xxh3_128()
    for tile in _tiles(stored):
        state.update(tile)
    return state.digest() == stored.digest


def _tiles(stored: Stored) -> Iterator[bytes]:
    # It may have been replaced since it was listed: no link is followed, and no pipe waited for.
    careful = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    fd = os.open(stored.path, os.O_RDONLY | careful)
    try:
        for begin, nbytes in stored.spans:
            for offset in range(begin, begin + nbytes, _TILE):
                yield os.pread(fd, min(_TILE, begin + nbytes - offset), offset)
    finally:
        os.close(fd)


def verified(backend: Backend, /) -> tuple[set[Key], list[str]]:
    """Read a level once in whole, for example after a process was killed.

    Returns the keys whose bytes are sound, and what was wrong with the others, which are discarded.
    Raises StorageError where one cannot be discarded.
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
