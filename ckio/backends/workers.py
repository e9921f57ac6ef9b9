"""A few threads that share out work on blocks; none is started before there is enough of it."""

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

from ckio.errors import BadInput

Work = Callable[[int], None]


class Workers:
    """The calling thread and its helpers.

    Parameters
    ----------
    threads
        How many in all; None: as many as the cores that this process may use.
    """

    def __init__(self, threads: int | None = None) -> None:
        if threads is None:
            threads = len(os.sched_getaffinity(0))
        if threads < 1:
            raise BadInput(f"threads = {threads}; it must be at least 1")
        self._helpers = threads - 1
        self._pool: ThreadPoolExecutor | None = None
        self._owner = 0

    def each(self, work: Work, count: int, /) -> None:
        """Do `work(0)` to `work(count - 1)`, each once, in no particular order.

        An error, or an interrupt, ends it, and is raised once no thread is at work any more.
        """
        todo = deque(range(count))
        futures: list[Future[None]] = []
        try:
            # One by one: what interrupts this must know of those that are at work already.
            for _ in range(min(self._helpers, count - 1)):
                try:
                    futures.append(self._ready().submit(_drain, todo, work))
                except RuntimeError:  # the system has no more threads: we do without
                    break
            _drain(todo, work)
        finally:
            _finish(futures, todo)
        for future in futures:
            future.result()

    def close(self) -> None:
        """End the threads; they are started again when they are needed."""
        if self._pool is not None and self._owner == os.getpid():
            self._pool.shutdown()
        self._pool = None

    def _ready(self) -> ThreadPoolExecutor:
        # A fork has our memory and not our threads.
        if self._pool is None or self._owner != os.getpid():
            self._pool = ThreadPoolExecutor(self._helpers, thread_name_prefix="ckio-codec")
            self._owner = os.getpid()
        return self._pool


def alone(work: Work, count: int, /) -> None:
    """Do `work(0)` to `work(count - 1)` in their order."""
    for number in range(count):
        work(number)


def _finish(futures: list[Future[None]], todo: deque[int]) -> None:
    """Wait until no thread is at work: what interrupts that is raised only then."""
    try:
        wait(futures)
    except BaseException:
        todo.clear()
        _finish(futures, todo)
        raise


def _drain(todo: deque[int], work: Work) -> None:
    while todo:
        try:
            number = todo.popleft()
        except IndexError:  # another thread was faster
            return
        try:
            work(number)
        except BaseException:
            todo.clear()
            raise
