"""Payloads past the page cache: between the caller's memory and the device, two blocks at a time.

Threads move the blocks, one lane each, while the caller digests. Direct I/O moves whole pages, from
and to memory that begins where a page begins. Pages that lie whole within one buffer, at such an
address, go as they are; the others, and a last page that is not full, pass through staging memory.
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
"""Bytes of a page; few devices and file systems want rounder addresses and offsets than this."""

_MOST: Final = 1024
"""Pieces of memory that one system call takes."""


class PageCut(NamedTuple):
    """Pages that one system call moves.

    Attributes
    ----------
    nbytes : int
        Bytes of the run; the pages may have more, where the run ends within one.
    vector : list of memoryview
        Whole pages.
    copies : list of (memoryview, list of memoryview)
        Those of them that are staging memory, and the parts of buffers whose bytes pass through.
    """

    nbytes: int
    vector: list[memoryview]
    copies: list[tuple[memoryview, list[memoryview]]]

    def gather(self) -> None:
        """Fill the staging memory: with bytes of the run, and behind its end with zeros."""
        for pages, parts in self.copies:
            gather(pages, parts)
            filled = sum(map(len, parts))
            if filled < len(pages):
                pages[filled:] = bytes(len(pages) - filled)

    def scatter(self) -> None:
        """Fill the buffers from the staging memory."""
        for pages, parts in self.copies:
            scatter(pages, parts)


class PageRun:
    """Buffers one behind the other, `nbytes` bytes together, of which the first begins a page."""

    def __init__(self, data: Buffers, /) -> None:
        self._views = [view for view in data if len(view)]
        self._begins = list(accumulate(map(len, self._views), initial=0))
        self.nbytes = self._begins[-1]
        self._straight = list(self._fitting())
        self._ends = [end for _, end in self._straight]

    def parts(self, begin: int, end: int, /) -> Iterator[memoryview]:
        """Yield the bytes from `begin` to `end`, or to where the run ends if that is sooner."""
        number = bisect_right(self._begins, begin) - 1
        while begin < min(end, self.nbytes):
            start = self._begins[number]
            part = self._views[number][begin - start : end - start]
            yield part
            begin += len(part)
            number += 1

    def cut(self, begin: int, end: int, staging: memoryview, /) -> PageCut:
        """Return the pages to move from `begin` towards `end`, as far as `staging` and one call go.

        `begin` begins a page; so does `end`, or the run ends there.
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
        """Return whether the page at `at` goes as it is, and where the pages end that do alike."""
        number = bisect_right(self._ends, at)
        if number == len(self._straight):
            return False, self.nbytes
        begin, end = self._straight[number]
        return (True, end) if begin <= at else (False, begin)

    def _fitting(self) -> Iterator[tuple[int, int]]:
        """Yield where the pages begin and end that go as they are, buffer by buffer."""
        for begin, view in zip(self._begins, self._views, strict=False):
            first, behind = _rounded_up(begin), (begin + len(view)) // PAGE * PAGE
            if first < behind and (_address(view) - begin) % PAGE == 0:
                yield first, behind


def _rounded_up(nbytes: int) -> int:
    return -(-nbytes // PAGE) * PAGE


def _address(view: memoryview) -> int:
    return int(np.frombuffer(view, np.uint8).__array_interface__["data"][0])


LANES: Final = 2
"""FieldBlocks in flight."""

BLOCK: Final = 16 << 20
"""Bytes of a block: the larger, the less the processor has to do for each of its pages."""

STAGING: Final = LANES * (4 << 20)
"""Bytes of memory that each `Direct` holds, for pages that have to be copied."""

_ALONE: Final = 1 << 20
"""Up to this many bytes the caller moves alone: waking a thread would cost more than it hides."""

_Result = TypeVar("_Result")

_Move: TypeAlias = Callable[[memoryview, int, int], None]
"""Moves a block, from its begin to its end, with the help of staging memory."""

_Tasks: TypeAlias = SimpleQueue[Callable[[], None] | None]


class Direct:
    """Writes and reads files that were opened with `Files.open_direct`; for one caller at a time.

    Memory for staging, `STAGING` bytes, is taken when it is made, and no more later. Raises
    StorageError where the system has none, or no threads.
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
        except (OSError, RuntimeError) as error:  # no memory, or no threads, are left
            self._stop()
            raise StorageError(
                f"direct I/O needs {STAGING} bytes of memory and {LANES} threads: {error};"
                ' choose durability="fdatasync"'
            ) from None

    def write(self, fd: int, data: Buffers, offset: int, /, *, checksum: bool) -> bytes:
        """Write `data` at `offset`, a multiple of 4096, and zeros to the end of its last page.

        Returns the xxh3_128 of its bytes, b"" without `checksum`. Raises OSError where the system
        refuses it; then no thread touches the file or the memory any more.
        """
        payload = _PagePayload(self._files, fd, offset, PageRun(data))
        return self._move(
            payload.write, payload.run.nbytes, lambda _: digest(data) if checksum else b""
        )

    def read(self, fd: int, into: Buffers, offset: int, expected: bytes, /) -> bool:
        """Fill `into` from `offset`; returns whether it has this digest (b"": not compared).

        Raises EOFError where the file ends within, otherwise as `write` does.
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
        """Stop the threads; may be called twice, and in a fork, which has none."""
        self._stop()
        if self._owner == os.getpid():
            for thread in self._threads:
                thread.join()
        self._owner = 0
        self._staging = []

    def _move(
        self, move: _Move, nbytes: int, beside: Callable[["_BlockTransfer"], _Result]
    ) -> _Result:
        """Move all blocks, and call `beside` meanwhile; returns its result."""
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
        except BaseException:  # an interrupt, too, must not leave a thread at the caller's memory
            transfer.halt()
            raise
        return result

    def _check_open(self) -> None:
        if self._owner == 0:
            raise StorageError("this direct I/O is closed; open its level again")
        if self._owner != os.getpid():
            raise StorageError("direct I/O belongs to the process that opened it, not to a fork")


class _PagePayload(NamedTuple):
    """The bytes of a run, and where in a file they belong."""

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
        """Read the block from `begin` to `end`; raises EOFError where the file ends within."""
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
    """A payload on its way: lane i moves the blocks i, i + LANES, ..."""

    def __init__(self, move: _Move, nbytes: int) -> None:
        self._move, self._nbytes = move, nbytes
        self._busy = [Lock() for _ in range(LANES)]
        self._moved: list[SimpleQueue[None]] = [SimpleQueue() for _ in range(LANES)]
        self._ended: SimpleQueue[None] = SimpleQueue()
        self._error: BaseException | None = None
        self._halted = False

    def lane(self, number: int, staging: memoryview) -> None:
        """Move the blocks of a lane, one after the other; `finish` raises what fails."""
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
                self._moved[number].put(None)  # or its waiter would wait for ever
                self._ended.put(None)

    def wait_for(self, begin: int) -> bool:
        """Wait until the block at `begin` is moved; False if a lane has failed.

        To be asked of all blocks in their order.
        """
        self._moved[begin // BLOCK % LANES].get()
        return not self._halted

    def finish(self) -> None:
        """Wait until all lanes have ended; raises the error of one that failed."""
        for _ in range(LANES):
            self._ended.get()
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
        finally:
            del error  # or the two would hold each other, and the caller's memory

    def halt(self) -> None:
        """Let no lane move another block, and wait for those that are being moved."""
        self._halted = True
        for busy in self._busy:
            with busy:  # a lane that has not begun will not
                pass


def _serve(tasks: _Tasks) -> None:
    """Do one task after the other, until there is a None among them."""
    while (task := tasks.get()) is not None:
        task()
        del task  # or it would hold the caller's memory until the next one comes


def _stop(tasks: _Tasks) -> None:
    for _ in range(LANES):
        tasks.put(None)


def _moved(call: Callable[[], int], nbytes: int) -> int:
    """Make a call that is to move `nbytes`; returns how many it did, in whole pages if not all.

    Where it stopped within a page it has to begin again from there, as direct I/O begins nowhere
    else. The second call tells the reason, for example a full disk.
    """
    for _ in range(2):
        done = call()
        if done >= nbytes:
            return nbytes
        if done >= PAGE:
            return done // PAGE * PAGE
    raise OSError(errno.EIO, "direct I/O stopped within a page, twice")


def _staging() -> list[memoryview]:
    """Staging memory, a part for each lane: in huge pages where there are, all of it touched."""
    memory = mmap.mmap(-1, STAGING, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a system without them
        memory.madvise(mmap.MADV_HUGEPAGE)
    np.frombuffer(memory, np.uint8).fill(0)
    view, size = memoryview(memory), STAGING // LANES
    return [view[begin : begin + size] for begin in range(0, STAGING, size)]


def direct_payload(files: Files, place: Path, /) -> Direct:
    """Return the way for payloads to files in a directory past the page cache.

    Raises BadInput where its file system has no direct I/O.
    """
    direct = Direct(files)
    try:
        _try(files, direct, place / TRIAL)
    except OSError as error:
        if error.errno in FULL:  # those who want to write are told
            return direct
        direct.close()
        if error.errno == errno.EINVAL:
            raise BadInput(
                f"directory {place}: its file system has no direct I/O (O_DIRECT);"
                ' choose durability="fdatasync", or a place on a local disk'
            ) from None
        raise failure(files, place, error, f"directory {place}: direct I/O") from error
    return direct


def _try(files: Files, direct: Direct, path: Path) -> None:
    """Write one page past the page cache, to a file that is removed again."""
    with ExitStack() as ends:
        ends.callback(files.close, files.open(path))
        ends.callback(files.unlink, path)
        fd = files.open_direct(path)
        ends.callback(files.close, fd)
        direct.write(fd, [memoryview(b"?")], 0, checksum=False)
