"""An HDF5 file as it is to become: what HDF5 writes is kept in memory, and reaches the file later.

HDF5 writes its metadata in pieces, and a kill between two of them would leave a file that nothing
can open. So it is given a draft. What it wrote there is all behind the old end of the file, where
nothing points to yet, but for two pages (see `hdf5_file`), and each of those is replaced at once.
"""

import io
import os
from collections.abc import Iterator
from typing import Any, Final

from ckio.errors import StorageError

PAGE: Final = 4096
"""Bytes that a kill cannot tear when they are written at once."""

EOF: Final = 40
"""Where the superblock says, in eight bytes, where the file ends for HDF5."""


def whole_pages(nbytes: int, /) -> int:
    """`nbytes` rounded up to pages."""
    return -(-nbytes // PAGE) * PAGE


def eof(fd: int, /) -> int:
    """Where the file ends for HDF5; what lies behind it is no concern of HDF5."""
    return int.from_bytes(os.pread(fd, 8, EOF), "little")


class Draft(io.RawIOBase):
    """A file for h5py to open, which ends at `end`: reads fall through to `fd`, writes are kept.

    Attributes
    ----------
    size : int
        Bytes of the file as it is to become.
    """

    def __init__(self, fd: int, end: int) -> None:
        self._fd, self._end = fd, end
        self._pages: dict[int, bytearray] = {}
        self._changed: set[int] = set()
        self._at = EOF
        self.size = end
        self.write(end.to_bytes(8, "little"))

    def pages(self) -> tuple[dict[int, bytes], bytes, bytes]:
        """The pages that changed: those behind the end by offset, page 0, and page 1."""
        new = {number * PAGE for number in self._changed if number * PAGE >= self._end}
        if others := self._changed - {at // PAGE for at in new} - {0, 1}:
            raise StorageError(f"HDF5 wants to change pages {sorted(others)}, which may not change")
        page, leaf = (bytes(self._page(number)) for number in (0, 1))
        return {at: bytes(self._page(at // PAGE)) for at in sorted(new)}, page, leaf

    # What h5py asks of a file

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}
        self._at = base[whence] + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def truncate(self, size: int | None = None) -> int:
        self.size = self._at if size is None else size
        return self.size

    def write(self, data: Any, /) -> int:
        view = memoryview(data).cast("B")
        for number, inside, part in self._parts(len(view)):
            self._page(number)[inside] = view[part]
            self._changed.add(number)
        self.size = max(self.size, self._at)
        return len(view)

    def readinto(self, into: Any, /) -> int:
        view = memoryview(into).cast("B")
        for number, inside, part in self._parts(len(view)):
            view[part] = self._page(number)[inside]
        return len(view)

    def _parts(self, nbytes: int) -> Iterator[tuple[int, slice, slice]]:
        """The next `nbytes`, cut at pages: number of the page, part of it, part of the bytes."""
        done = 0
        while done < nbytes:
            number, begin = divmod(self._at, PAGE)
            count = min(PAGE - begin, nbytes - done)
            yield number, slice(begin, begin + count), slice(done, done + count)
            done += count
            self._at += count

    def _page(self, number: int) -> bytearray:
        if number not in self._pages:
            page = self._pages[number] = bytearray(PAGE)
            if number * PAGE < self._end:
                os.preadv(self._fd, [page], number * PAGE)
        return self._pages[number]
