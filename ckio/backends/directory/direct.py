"""Direct I/O: payloads bypass the page cache.

Direct I/O transfers whole pages, and their memory must begin at a multiple of the page size.
Therefore payloads are copied through two buffers that do so, piece by piece: while a thread
transfers one piece, the caller copies another one and computes its checksum. The last page of a
payload is filled up with zeros. If the system transfers only a part of a piece, the page cache is
used for the rest of this payload.
"""

import mmap
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path
from typing import Final

import numpy as np
import xxhash

from ckio.actions import Buffers
from ckio.backends.files import Files
from ckio.backends.payload import Payload, Piece, gather, pieces, scatter
from ckio.errors import BadInput

PAGE: Final = 4096
"""Bytes of a page; only few devices and file systems need a coarser alignment than this."""

PIECE: Final = 4 << 20
"""Bytes of a piece, which one system call transfers; each call waits for the device once."""


class Direct(Payload):
    """Payloads with direct I/O, for files in the directory `place`.

    Raises BadInput if its file system has no direct I/O.
    """

    def __init__(self, files: Files, place: Path, /) -> None:
        if not files.has_direct(place):
            raise BadInput(
                f"directory {place}: its file system has no direct I/O (O_DIRECT);"
                ' choose durability="fdatasync", or a directory on a local disk'
            )
        super().__init__(files)
        memory = mmap.mmap(-1, 2 * PIECE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with suppress(OSError):  # a system without large pages
            memory.madvise(mmap.MADV_HUGEPAGE)  # the device then needs a tenth of the time
        np.frombuffer(memory, np.uint8).fill(0)  # the first touch of a page takes time
        view = memoryview(memory)
        self._buffers = view[:PIECE], view[PIECE:]

    def write(self, fd: int, data: Buffers, offset: int, /, *, checksum: bool) -> bytes:
        """Write `data` at `offset`, a multiple of 4096, and fill its last page with zeros.

        Returns the same as `Payload.write`; raises OSError.
        """
        state, last = xxhash.xxh3_128(), None
        with self._thread(fd) as thread:
            for (piece, at), buffer in zip(_pieces(data, offset), cycle(self._buffers)):
                nbytes = sum(map(len, piece))
                pages = buffer[: _whole_pages(nbytes)]
                gather(pages, piece)
                pages[nbytes:] = bytes(len(pages) - nbytes)
                if checksum:
                    state.update(pages[:nbytes])
                if last:
                    last.result()
                last = thread.submit(self._write, fd, pages, at)
            if last:
                last.result()
        return state.digest() if checksum else b""

    def read(self, fd: int, into: Buffers, offset: int, expected: bytes, /) -> bool:
        """Fill `into` from `offset`; return and raise the same as `Payload.read`, and OSError."""
        state, last = xxhash.xxh3_128(), None

        def take(piece: Buffers, pages: memoryview, moved: Future[None]) -> None:
            moved.result()
            if expected:
                state.update(pages)
            scatter(pages, piece)

        with self._thread(fd) as thread:
            for (piece, at), buffer in zip(_pieces(into, offset), cycle(self._buffers)):
                nbytes = sum(map(len, piece))
                moved = thread.submit(self._read, fd, buffer, nbytes, at)
                if last:
                    take(*last)
                last = piece, buffer[:nbytes], moved
            if last:
                take(*last)
        return not expected or state.digest() == expected

    @contextmanager
    def _thread(self, fd: int) -> Iterator[ThreadPoolExecutor]:
        """Switch direct I/O on for a file, and yield a thread, which has ended afterwards."""
        thread = ThreadPoolExecutor(1, "ckio-direct")
        try:
            self._files.set_direct(fd, True)
            yield thread
        finally:
            try:
                thread.shutdown(cancel_futures=True)
            except BaseException:  # an interrupt: the thread still uses the file
                thread.shutdown()
                raise
            finally:
                self._files.set_direct(fd, False)

    def _write(self, fd: int, pages: memoryview, at: int) -> None:
        if (done := self._files.pwritev(fd, (pages,), at)) < len(pages):
            self._files.set_direct(fd, False)  # it can continue only at the start of a page
            self._files.write(fd, (pages[done:],), at + done)

    def _read(self, fd: int, buffer: memoryview, nbytes: int, at: int) -> None:
        done = self._files.preadv(fd, (buffer[: _whole_pages(nbytes)],), at)
        if done < nbytes:
            self._files.set_direct(fd, False)
            self._files.read(fd, (buffer[done:nbytes],), at + done)


def _pieces(data: Buffers, offset: int) -> Iterator[Piece]:
    return pieces(data, offset, PIECE, buffers=sys.maxsize)


def _whole_pages(nbytes: int) -> int:
    return -(-nbytes // PAGE) * PAGE
