"""All questions of a sweep, on every core; each plan is made once."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import count
from typing import Final

from ckio.errors import RunFailed
from ckio.sim.sweep.answers import Answer, Question, answers

Watch = Callable[[int], object]

_QUICK: Final = 1.0
"""Seconds of work that are done here before other processes are started, which take as long."""


def sweep(
    questions: Sequence[Question],
    /,
    *,
    processes: int | None = None,
    watch: Watch | None = None,
    alone: float = _QUICK,
) -> list[Answer]:
    """The answers, in the order of the questions.

    Questions for which a planner sees the same are planned once. What takes more than `alone`
    seconds is shared out among so many processes (one for each core if not given), which end with
    this call, however it ends. `watch` is called with how many more are answered. What a planner
    raises beside BadInput is raised here. Raises RunFailed where a process is killed.
    """
    todo = _alike(questions)
    found: dict[int, Answer] = {}

    def take(places: Sequence[int], answered: Sequence[Answer]) -> None:
        found.update(zip(places, answered, strict=True))
        if watch is not None:
            watch(len(places))

    workers = (os.cpu_count() or 1) if processes is None else processes
    until = time.monotonic() + alone
    while todo and (workers < 2 or time.monotonic() < until):
        places = todo.pop(0)
        take(places, [*answers([questions[place] for place in places])])
    if todo:
        _share(questions, todo, min(workers, len(todo)), take)
    return [found[place] for place in range(len(questions))]


def _alike(questions: Sequence[Question]) -> list[list[int]]:
    """The places of the questions, those together for which a planner sees the same."""
    groups: dict[Question, list[int]] = {}
    for place, question in enumerate(questions):
        groups.setdefault(question.seen(), []).append(place)
    return list(groups.values())


def _share(
    questions: Sequence[Question],
    todo: Sequence[list[int]],
    workers: int,
    take: Callable[[Sequence[int], Sequence[Answer]], None],
) -> None:
    """Have other processes answer; each gets its next group as soon as it has answered one."""
    coming, waiting = count(), {}
    with _pool(workers) as pool:

        def submit() -> None:
            if (at := next(coming)) < len(todo):
                asked = [questions[place] for place in todo[at]]
                waiting[pool.submit(_answers, asked)] = todo[at]

        # A group more than there are workers, so that none has to wait for the next.
        for _ in range(workers + 1):
            submit()
        while waiting:
            for done in _first(waiting):
                take(waiting.pop(done), done.result())
                submit()


def _first(waiting: dict[Future[list[Answer]], list[int]]) -> set[Future[list[Answer]]]:
    return wait(waiting, return_when=FIRST_COMPLETED).done


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that are gone in the end: after an error, at once."""
    others = set(multiprocessing.active_children())
    # Not forked: there may be threads here, which a fork would leave behind with their locks.
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _begin)
    try:
        yield pool
    except BaseException as error:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        if isinstance(error, BrokenProcessPool):
            raise RunFailed(
                "a process that was planning ended early; if memory ran out, take fewer processes"
            ) from None
        raise
    finally:
        pool.shutdown()


def _begin() -> None:
    """In a new process: what to do when it is to stop is decided by the one that started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_follow, daemon=True).start()


def _follow() -> None:
    """Do not outlive the process that waits for the answers."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _answers(questions: Sequence[Question]) -> list[Answer]:
    return list(answers(questions))
