"""Direct I/O: payloads bypass the page cache, two blocks at a time.

Two threads, each called a lane, transfer the blocks between the caller's memory and the device,
while the caller computes the checksum. Direct I/O transfers whole pages, and their memory must
begin at a multiple of the page size. Pages that are entirely in one buffer, at such an address, are
transferred without a copy. The other pages, and a last page that is not full, are copied through
staging memory.
"""

import errno
import mmap
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from itertools import accumulate
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Final, NamedTuple, TypeAlias, TypeVar
from weakref import finalize

import numpy as np
import xxhash

from ckio.actions import Buffers
from ckio.backends.directory.slotfiles import TRIAL
from ckio.backends.files import FULL, Files, failure
from ckio.backends.payload import digest, gather, scatter
from ckio.errors import BadInput, StorageError

PAGE: Final = 4096
"""Bytes of a page; only few devices and file systems need a coarser alignment than this."""

_MOST: Final = 1024
"""Maximum number of pieces of memory of one system call."""


class PageCut(NamedTuple):
    """The pages that one system call transfers.

    Attributes
    ----------
    nbytes : int
        Bytes of the payload; the pages may have more, because the payload may end within a page.
    vector : list of memoryview
        Whole pages.
    copies : list of (memoryview, list of memoryview)
        The pages in `vector` that are staging memory, each with the parts of buffers that are
        copied through it.
    """

    nbytes: int
    vector: list[memoryview]
    copies: list[tuple[memoryview, list[memoryview]]]

    def gather(self) -> None:
        """Copy the buffers into the staging memory, and fill the last page with zeros."""
        for pages, parts in self.copies:
            gather(pages, parts)
            filled = sum(map(len, parts))
            if filled < len(pages):
                pages[filled:] = bytes(len(pages) - filled)

    def scatter(self) -> None:
        """Copy the staging memory into the buffers."""
        for pages, parts in self.copies:
            scatter(pages, parts)


class PageRun:
    """A run of buffers that follow each other in a file, from the start of a page.

    Together they have `nbytes` bytes. Positions are in bytes from the beginning of the run.
    """

    def __init__(self, data: Buffers, /) -> None:
        self._views = [view for view in data if len(view)]
        self._begins = list(accumulate(map(len, self._views), initial=0))
        self.nbytes = self._begins[-1]
        self._straight = list(self._fitting())
        self._ends = [end for _, end in self._straight]

    def parts(self, begin: int, end: int, /) -> Iterator[memoryview]:
        """Yield the parts of buffers from `begin` to `end`, or to the end of the run if before."""
        number = bisect_right(self._begins, begin) - 1
        while begin < min(end, self.nbytes):
            start = self._begins[number]
            part = self._views[number][begin - start : end - start]
            yield part
            begin += len(part)
            number += 1

    def cut(self, begin: int, end: int, staging: memoryview, /) -> PageCut:
        """Return the pages to transfer with one system call, from `begin` up to at most `end`.

        They end before `end` if `staging` or the number of pieces does not suffice. `begin` is the
        start of a page; `end` is the start of a page or the end of the run.
        """
        vector: list[memoryview] = []
        copies: list[tuple[memoryview, list[memoryview]]] = []
        at = begin
        while at < end and len(vector) < _MOST:
            straight, stop = self._next(at)
            stop = min(stop, end)
            if straight:
                vector += self.parts(at, stop)
            else:
                pages = staging[: _rounded_up(stop - at)]
                if not pages:
                    break
                staging = staging[len(pages) :]
                stop = min(stop, at + len(pages))
                vector.append(pages)
                copies.append((pages, list(self.parts(at, stop))))
            at = stop
        return PageCut(at - begin, vector, copies)

    def _next(self, at: int) -> tuple[bool, int]:
        """Return whether the page at `at` needs no copy, and the end of the pages like it."""
        number = bisect_right(self._ends, at)
        if number == len(self._straight):
            return False, self.nbytes
        begin, end = self._straight[number]
        return (True, end) if begin <= at else (False, begin)

    def _fitting(self) -> Iterator[tuple[int, int]]:
        """Yield, for each buffer, the begin and end of its pages that need no copy."""
        for begin, view in zip(self._begins, self._views, strict=False):
            first, behind = _rounded_up(begin), (begin + len(view)) // PAGE * PAGE
            if first < behind and (_address(view) - begin) % PAGE == 0:
                yield first, behind


def _rounded_up(nbytes: int) -> int:
    return -(-nbytes // PAGE) * PAGE


def _address(view: memoryview) -> int:
    return int(np.frombuffer(view, np.uint8).__array_interface__["data"][0])


LANES: Final = 2
"""Number of blocks that are transferred concurrently."""

BLOCK: Final = 16 << 20
"""Bytes of a block: the larger a block, the less processor time each of its pages needs."""

STAGING: Final = LANES * (4 << 20)
"""Bytes of staging memory of each `Direct`, for pages that have to be copied."""

_ALONE: Final = 1 << 20
"""Up to this many bytes the caller transfers without threads: waking one would take longer than
the overlap saves."""

_Result = TypeVar("_Result")

_Move: TypeAlias = Callable[[memoryview, int, int], None]
"""Function that transfers a block; arguments are staging memory, begin and end of the block."""

_Tasks: TypeAlias = SimpleQueue[Callable[[], None] | None]


class Direct:
    """Direct I/O on files that were opened with `Files.open_direct`; for one caller at a time.

    All memory, `STAGING` bytes, is allocated at the beginning. Raises StorageError if the system
    has no memory or no threads for it.
    """

    def __init__(self, files: Files, /) -> None:
        self._files = files
        self._owner = os.getpid()
        self._tasks: _Tasks = SimpleQueue()
        self._stop = finalize(self, _stop, self._tasks)
        self._threads = [
            Thread(target=_serve, args=(self._tasks,), name="ckio-direct", daemon=True)
            for _ in range(LANES)
        ]
        try:
            self._staging = _staging()
            for thread in self._threads:
                thread.start()
        except (OSError, RuntimeError) as error:  # no free memory, or no more threads
            self._stop()
            raise StorageError(
                f"direct I/O needs {STAGING} bytes of memory and {LANES} threads: {error};"
                ' choose durability="fdatasync"'
            ) from None

    def write(self, fd: int, data: Buffers, offset: int, /, *, checksum: bool) -> bytes:
        """Write `data` at `offset`, a multiple of 4096, and fill its last page with zeros.

        Returns the xxh3_128 of its bytes, or b"" without `checksum`. Raises OSError if the system
        call fails; then no thread uses the file or the memory any more.
        """
        payload = _PagePayload(self._files, fd, offset, PageRun(data))
        return self._move(
            payload.write, payload.run.nbytes, lambda _: digest(data) if checksum else b""
        )

    def read(self, fd: int, into: Buffers, offset: int, expected: bytes, /) -> bool:
        """Fill `into` from `offset`; return whether its xxh3_128 is `expected` (True for b"").

        Raises EOFError if the file ends before `into` is full, OSError as `write` does.
        """
        payload = _PagePayload(self._files, fd, offset, run := PageRun(into))

        def verify(transfer: _BlockTransfer) -> bool:
            state = xxhash.xxh3_128()
            for begin in range(0, run.nbytes, BLOCK):
                if not transfer.wait_for(begin):
                    return False
                for part in run.parts(begin, begin + BLOCK):
                    state.update(part)
            return state.digest() == expected

        return self._move(payload.read, run.nbytes, verify if expected else lambda _: True)

    def close(self) -> None:
        """Stop the threads; it may be called twice, and also in a fork, which has no threads."""
        self._stop()
        if self._owner == os.getpid():
            for thread in self._threads:
                thread.join()
        self._owner = 0
        self._staging = []

    def _move(
        self, move: _Move, nbytes: int, beside: Callable[["_BlockTransfer"], _Result]
    ) -> _Result:
        """Transfer all blocks; call `beside` concurrently and return its result."""
        self._check_open()
        transfer = _BlockTransfer(move, nbytes)
        try:
            for number, staging in enumerate(self._staging):
                if nbytes <= _ALONE:
                    transfer.lane(number, staging)
                else:
                    self._tasks.put(partial(transfer.lane, number, staging))
            result = beside(transfer)
            transfer.finish()
        except BaseException:  # also after an interrupt no thread may use the caller's memory
            transfer.halt()
            raise
        return result

    def _check_open(self) -> None:
        if self._owner == 0:
            raise StorageError("this direct I/O is closed; open its level again")
        if self._owner != os.getpid():
            raise StorageError("direct I/O belongs to the process that opened it, not to a fork")


class _PagePayload(NamedTuple):
    """The bytes of a run of buffers, and their offset in a file."""

    files: Files
    fd: int
    offset: int
    run: PageRun

    def write(self, staging: memoryview, begin: int, end: int) -> None:
        """Write the block from `begin` to `end`."""
        while begin < end:
            cut = self.run.cut(begin, end, staging)
            cut.gather()
            call = partial(self.files.pwritev, self.fd, cut.vector, self.offset + begin)
            begin += _moved(call, sum(map(len, cut.vector)))

    def read(self, staging: memoryview, begin: int, end: int) -> None:
        """Read the block from `begin` to `end`; raises EOFError if the file ends before."""
        while begin < end:
            cut = self.run.cut(begin, end, staging)
            begin += _moved(partial(self._fill, cut, self.offset + begin), cut.nbytes)
            cut.scatter()

    def _fill(self, cut: PageCut, offset: int) -> int:
        done = self.files.preadv(self.fd, cut.vector, offset)
        if done < cut.nbytes and offset + done >= self.files.size(self.fd):
            raise EOFError
        return done


class _BlockTransfer:
    """The transfer of one payload: lane i transfers the blocks i, i + LANES, ..."""

    def __init__(self, move: _Move, nbytes: int) -> None:
        self._move, self._nbytes = move, nbytes
        self._busy = [Lock() for _ in range(LANES)]
        self._moved: list[SimpleQueue[None]] = [SimpleQueue() for _ in range(LANES)]
        self._ended: SimpleQueue[None] = SimpleQueue()
        self._error: BaseException | None = None
        self._halted = False

    def lane(self, number: int, staging: memoryview) -> None:
        """Transfer the blocks of a lane, one after the other; `finish` raises their errors."""
        with self._busy[number]:
            try:
                for begin in range(number * BLOCK, self._nbytes, LANES * BLOCK):
                    if self._halted:
                        break
                    self._move(staging, begin, min(begin + BLOCK, self._nbytes))
                    self._moved[number].put(None)
            except BaseException as error:
                self._error, self._halted = error, True
            finally:
                self._moved[number].put(None)  # so that `wait_for` returns after an error, too
                self._ended.put(None)

    def wait_for(self, begin: int) -> bool:
        """Wait until the block at `begin` is transferred; return False if a lane has failed.

        Call it for all blocks in their order.
        """
        self._moved[begin // BLOCK % LANES].get()
        return not self._halted

    def finish(self) -> None:
        """Wait until all lanes have ended; raise the error of a lane that failed."""
        for _ in range(LANES):
            self._ended.get()
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
        finally:
            del error  # breaks a reference cycle that would keep the caller's memory alive

    def halt(self) -> None:
        """Stop all lanes, and wait for the blocks whose transfer has begun."""
        self._halted = True
        for busy in self._busy:
            with busy:  # a lane that takes this lock later sees `_halted`
                pass


def _serve(tasks: _Tasks) -> None:
    """Execute the tasks of a queue in order, until one is None."""
    while (task := tasks.get()) is not None:
        task()
        del task  # otherwise it would keep the caller's memory alive until the next task


def _stop(tasks: _Tasks) -> None:
    for _ in range(LANES):
        tasks.put(None)


def _moved(call: Callable[[], int], nbytes: int) -> int:
    """Call a function that transfers up to `nbytes`; return how many it transferred.

    The result is `nbytes` or a number of whole pages, because direct I/O can continue only at the
    start of a page. A call that stopped within its first page is repeated once; the second call
    raises the reason, for example a full disk.
    """
    for _ in range(2):
        done = call()
        if done >= nbytes:
            return nbytes
        if done >= PAGE:
            return done // PAGE * PAGE
    raise OSError(errno.EIO, "direct I/O stopped within a page, twice")


def _staging() -> list[memoryview]:
    """Return the staging memory of each lane, in huge pages if possible; all pages are touched."""
    memory = mmap.mmap(-1, STAGING, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a system without huge pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    np.frombuffer(memory, np.uint8).fill(0)
    view, size = memoryview(memory), STAGING // LANES
    return [view[begin : begin + size] for begin in range(0, STAGING, size)]


def direct_payload(files: Files, place: Path, /) -> Direct:
    """Return a `Direct` for files in the directory `place`.

    Raises BadInput if its file system has no direct I/O.
    """
    direct = Direct(files)
    try:
        _try(files, direct, place / TRIAL)
    except OSError as error:
        if error.errno in FULL:  # later writes raise this error; reads are possible
            return direct
        direct.close()
        if error.errno == errno.EINVAL:
            raise BadInput(
                f"directory {place}: its file system has no direct I/O (O_DIRECT);"
                ' choose durability="fdatasync", or a directory on a local disk'
            ) from None
        raise failure(files, place, error, f"directory {place}: direct I/O") from error
    return direct


def _try(files: Files, direct: Direct, path: Path) -> None:
    """Write one page with direct I/O to a temporary file."""
    with ExitStack() as ends:
        ends.callback(files.close, files.open(path))
        ends.callback(files.unlink, path)
        fd = files.open_direct(path)
        ends.callback(files.close, fd)
        direct.write(fd, [memoryview(b"?")], 0, checksum=False)
