"""An HDF5 file as it is to become: what HDF5 writes is kept in memory, then applied in safe order.

HDF5 writes its metadata in pieces, and a kill between two of them can make the root group
unreadable. So it is let loose on a draft, which reaches the file in stages whose every prefix is a
readable file:

1. what lies beyond the old end of the file, where nothing points to yet;
2. the first page in one write: the superblock with the new end, the root group's names and tree;
3. the leaves of that tree which have left the first page; each takes one write.

This holds as long as the names of the root group's members lie in the first page: see `create` in
`hdf5_file`.
"""

import io
import os
from typing import Any, Final

PAGE: Final = 4096
"""Bytes that a kill cannot tear when they are written at once."""

Stage = dict[int, bytes]
"""What to write where: offset to bytes."""


def end(fd: int, /) -> int:
    """Where the file ends for HDF5 (a field of its superblock); what lies behind is reserved."""
    return int.from_bytes(os.pread(fd, 8, 40), "little")


class Draft(io.RawIOBase):
    """A file for h5py to open: reads fall through to `fd`, writes are kept."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._end = end(fd)
        self._size = os.fstat(fd).st_size
        self._at = 0
        self._written: Stage = {}

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}
        self._at = base[whence] + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def truncate(self, size: int | None = None) -> int:
        self._size = self._at if size is None else size
        return self._size

    def write(self, data: Any, /) -> int:
        self._written[self._at] = bytes(data)
        self._at += len(data)
        self._size = max(self._size, self._at)
        return len(data)

    def readinto(self, into: Any, /) -> int:
        view = memoryview(into).cast("B")
        got = os.preadv(self._fd, [view], self._at)
        view[got:] = bytes(len(view) - got)
        _lay(self._written, over=view, at=self._at)
        self._at += len(view)
        return len(view)

    @property
    def size(self) -> int:
        """Bytes of the file as it is to become."""
        return self._size

    def stages(self) -> tuple[Stage, ...]:
        """What to write, stage after stage."""
        page = bytearray(os.pread(self._fd, PAGE, 0))
        _lay(self._written, over=memoryview(page), at=0)
        new = {at: data for at, data in self._written.items() if at >= self._end}
        old = {at: data for at, data in self._written.items() if PAGE <= at < self._end}
        return new, {0: bytes(page)}, old


def _lay(pieces: Stage, *, over: memoryview, at: int) -> None:
    """Put the parts of `pieces` that fall into [at, at + len(over)) where they belong."""
    for begin, data in pieces.items():
        low, high = max(begin, at), min(begin + len(data), at + len(over))
        if low < high:
            over[low - at : high - at] = data[low - begin : high - begin]
