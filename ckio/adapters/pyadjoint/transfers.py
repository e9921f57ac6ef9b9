"""Transfers of a tape's checkpoints, which may overlap with the steps.

A value of a tape does not change after its block has computed it, so a checkpoint is written from
the value itself, without a copy. Each level has a thread that performs its writes, reads and
discards in the order in which they are asked for. Therefore a level never stores more than the
schedule permits. Level 0, if it is plain memory, has no thread.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from math import inf
from typing import Any, TypeVar

from numpy.typing import NDArray

from ckio.actions import Key
from ckio.adapters.scratch import Scratch
from ckio.errors import BadInput
from ckio.platform import memory_level
from ckio.schedule.policy import Overlap

T = TypeVar("T")

Arrays = dict[str, NDArray[Any]]
Stored = Future[Key]
"""Arrays that are on a level, or will be: their key there."""


class Transfers:
    """The arrays on open levels, with transfers in the background of the program.

    The error of a transfer in the background is raised by a later call.

    Parameters
    ----------
    scratch : Scratch
        The open levels.
    overlap : Overlap
        `write_behind` is the number of writes for which `put` does not wait. `read_ahead` is for
        the caller of `fetch`.

    Raises
    ------
    BadInput
        The overlap has no numbers, or a horizon.
    """

    def __init__(self, scratch: Scratch, overlap: Overlap, /) -> None:
        if None in (overlap.write_behind, overlap.read_ahead) or overlap.horizon != inf:
            raise BadInput(
                f"overlap = {overlap}; give numbers of checkpoints, each of which takes memory, and"
                " no horizon"
            )
        self.scratch, self._overlap = scratch, overlap
        memory = memory_level(scratch.platform)
        self._threads = {
            number: ThreadPoolExecutor(1, thread_name_prefix=f"ckio-{level.name}")
            for number, level in enumerate(scratch.platform.levels)
            if overlap and number != memory
        }
        self._writes = list[Stored]()
        self._discards = list[Future[None]]()
        self._fetched: dict[Stored, Future[Arrays]] = {}

    def put(self, level: int, arrays: Mapping[str, NDArray[Any]], /) -> Stored:
        """Store arrays, which must not change any more; raises StorageErrors."""
        self._raise_errors()
        stored = self._do(level, partial(self.scratch.put, level, arrays))
        self._writes.append(stored)
        self._raise_errors()
        while len(self._writes) > (self._overlap.write_behind or 0):
            wait(self._writes, return_when=FIRST_COMPLETED)
            self._raise_errors()
        return stored

    def fetch(self, level: int, stored: Stored, /) -> None:
        """Begin to read arrays that `get` will return."""
        if level in self._threads and stored not in self._fetched:
            self._fetched[stored] = self._read(level, stored)

    def get(self, level: int, stored: Stored, /) -> Arrays:
        """Return arrays in memory of their own; raises StorageErrors."""
        self._raise_errors()
        return (self._fetched.pop(stored, None) or self._read(level, stored)).result()

    def drop(self, level: int, stored: Stored, /) -> None:
        """Discard arrays."""
        self._raise_errors()
        self._fetched.pop(stored, None)
        self._discards.append(self._do(level, lambda: self.scratch.drop(level, stored.result())))
        self._raise_errors()

    def close(self) -> None:
        """Close the levels after their current transfers, and remove their files."""
        for thread in self._threads.values():
            thread.shutdown(cancel_futures=True)
        self._writes.clear()
        self._discards.clear()
        self._fetched.clear()
        self.scratch.close()

    def _read(self, level: int, stored: Stored) -> Future[Arrays]:
        return self._do(level, lambda: self.scratch.get(level, stored.result()))

    def _do(self, level: int, work: Callable[[], T]) -> Future[T]:
        """Do the work of a level in its thread, or now."""
        if (thread := self._threads.get(level)) is not None:
            return thread.submit(work)
        done: Future[T] = Future()
        try:
            done.set_result(work())
        except Exception as error:
            done.set_exception(error)
        return done

    def _raise_errors(self) -> None:
        """Forget the writes and discards that have ended; raises the error of one that failed."""
        every: list[Future[Any]] = [*self._writes, *self._discards]
        ended = [it for it in every if it.done()]
        self._writes = [it for it in self._writes if it not in ended]
        self._discards = [it for it in self._discards if it not in ended]
        for each in ended:
            each.result()
