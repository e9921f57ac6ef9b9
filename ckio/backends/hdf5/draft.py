"""An HDF5 file as it is to become: what HDF5 writes is kept in memory, and reaches the file later.

HDF5 writes its metadata in pieces, and a kill between two of them would leave a file that nothing
can open. So it is given a draft. What it wrote there is all behind the old end of the file, where
nothing points to yet, but for two pages (see `start`). And it reads nothing there that was not
verified: it may crash on damaged metadata.
"""

import io
import os
from collections.abc import Iterator
from typing import Any

from ckio.backends.hdf5.start import EOF, PAGE
from ckio.errors import StorageError


def whole_pages(nbytes: int, /) -> int:
    """`nbytes` rounded up to pages."""
    return -(-nbytes // PAGE) * PAGE


class Draft(io.RawIOBase):
    """A file for h5py to open, which begins with what is `known` of it and ends at `end`.

    Attributes
    ----------
    size : int
        Bytes of the file as it is to become.
    """

    def __init__(self, known: bytes, end: int) -> None:
        self._known, self._end = known, end
        self._pages: dict[int, bytearray] = {}
        self._changed: set[int] = set()
        self._at = 0
        self.finish(end)

    def finish(self, end: int) -> None:
        """Let the file end here, for HDF5 too: what it says of itself can then be checked."""
        self.size = end
        self.seek(EOF)
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
            at = number * PAGE
            if len(self._known) <= at < self._end:
                raise StorageError(f"HDF5 wants to read page {number}, which was not verified")
            self._pages[number] = bytearray(self._known[at : at + PAGE].ljust(PAGE, b"\0"))
        return self._pages[number]
