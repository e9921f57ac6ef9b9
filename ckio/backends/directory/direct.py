"""Payloads past the page cache: between the caller's memory and the device, two blocks at a time.

Threads move the blocks, one lane each; the caller digests what is before or behind them. Pages
that lie in memory as the device wants them are not copied (`pages.py`).
"""

import errno
import mmap
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Final, NamedTuple, TypeAlias, TypeVar
from weakref import finalize

import numpy as np
import xxhash

from ckio.actions import Buffers
from ckio.backends.directory.pages import PAGE, Cut, Run
from ckio.backends.files import Files
from ckio.backends.payload import digest
from ckio.errors import StorageError

LANES: Final = 2
"""Blocks in flight."""

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

        Returns the xxh3_128 of its bytes, b"" without `checksum`. What the system refuses is
        raised as OSError; then no thread touches the file or the memory any more.
        """
        payload = _Payload(self._files, fd, offset, Run(data))
        return self._move(
            payload.write, payload.run.nbytes, lambda _: digest(data) if checksum else b""
        )

    def read(self, fd: int, into: Buffers, offset: int, expected: bytes, /) -> bool:
        """Fill `into` from `offset`; returns whether it has this digest (b"": not compared).

        Raises EOFError where the file ends within, otherwise as `write` does.
        """
        payload = _Payload(self._files, fd, offset, run := Run(into))

        def verify(transfer: _Transfer) -> bool:
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

    def _move(self, move: _Move, nbytes: int, beside: Callable[["_Transfer"], _Result]) -> _Result:
        """Move all blocks, and do `beside` meanwhile; returns what that does."""
        self._check_open()
        transfer = _Transfer(move, nbytes)
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


class _Payload(NamedTuple):
    """The bytes of a run, and where in a file they belong."""

    files: Files
    fd: int
    offset: int
    run: Run

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

    def _fill(self, cut: Cut, offset: int) -> int:
        done = self.files.preadv(self.fd, cut.vector, offset)
        if done < cut.nbytes and offset + done >= self.files.size(self.fd):
            raise EOFError
        return done


class _Transfer:
    """A payload on its way: lane i moves the blocks i, i + LANES, ..."""

    def __init__(self, move: _Move, nbytes: int) -> None:
        self._move, self._nbytes = move, nbytes
        self._busy = [Lock() for _ in range(LANES)]
        self._moved: list[SimpleQueue[None]] = [SimpleQueue() for _ in range(LANES)]
        self._ended: SimpleQueue[None] = SimpleQueue()
        self._error: BaseException | None = None
        self._halted = False

    def lane(self, number: int, staging: memoryview) -> None:
        """Move the blocks of a lane, one after the other; what fails is raised by `finish`."""
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
                self._moved[number].put(None)  # nobody waits for what will not come
                self._ended.put(None)

    def wait_for(self, begin: int) -> bool:
        """Wait until the block at `begin` is moved; False if a lane has failed.

        To be asked of all blocks in their order.
        """
        self._moved[begin // BLOCK % LANES].get()
        return not self._halted

    def finish(self) -> None:
        """Wait until all lanes have ended; raises what one has failed with."""
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
            with busy:  # a lane that has not begun finds that it is not to
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
    else. The reason, a full disk perhaps, is told when it is asked for once more.
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
