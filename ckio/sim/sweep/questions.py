"""Questions of a sweep and their answers: a plan for a chain on a platform, and its costs.

Equal plans are made only once; different plans are made in parallel on all cores.
"""

import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from math import inf
from typing import Final, TypeAlias

import numpy as np

from ckio.actions.columns import DISCARD, READ, WRITE
from ckio.errors import BadInput, RunFailed
from ckio.planners.auto import plan
from ckio.planners.base import Planner, without_notes
from ckio.platform import Level, Platform, memory_level
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, counts, makespan
from ckio.schedule.policy import AUTO, SYNCHRONOUS, Overlap, Policy, exactly
from ckio.sim.engine import simulate
from ckio.sim.failures import Mean
from ckio.sim.ranks import Ranks
from ckio.sim.ranks.sharing import simulate_ranks

Expect: TypeAlias = "Callable[[Question], tuple[Schedule, Mean]]"
"""Function that returns the first schedule of a run that fails, and its mean makespan."""

_MOST_STEPS: Final = 2**31 - 1
"""Maximum number of steps; a schedule of more steps would need more than about 100 GB."""

_TOO_MANY: Final = "the plan of {} steps needs more memory than there is; plan fewer steps"


@dataclass(frozen=True)
class Question:
    """A chain, a platform and a planner, and the conditions of the run.

    Attributes
    ----------
    planner : str
        The name of the planner.
    call : Planner
        The planner with its options.
    chain : Chain
    platform : Platform
    memory : str
        The name of the level whose bytes are the memory of the answer. If the platform does not
        have it, the memory is 0.
    overlap : Overlap, "auto" or None
        The overlap of I/O with computation. None means no overlap, except for the planner named
        `overlapped`, which is `auto` with overlap "auto".
    ranks : Ranks or None
        The ranks that perform the plan together; None for a single process.
    mtbf : float
        Mean seconds between two failures of the process; infinite without failures.
    expect : Expect or None
        Function that simulates a run with failures; it is needed if `mtbf` is finite.
    """

    planner: str
    call: Planner
    chain: Chain
    platform: Platform
    memory: str
    overlap: Policy | None = None
    ranks: Ranks | None = None
    mtbf: float = inf
    expect: "Expect | None" = None

    @property
    def fails(self) -> bool:
        """Whether the makespan is the mean of runs that fail."""
        return self.mtbf < inf

    @property
    def decides(self) -> bool:
        """Whether the planner itself decides the overlap."""
        return self.overlap == AUTO or self.planner == "overlapped"

    def seen(self) -> "Question":
        """Return the part of the question that the planner uses; equal parts have equal plans.

        ckio's own planners use only the number of checkpoints that fit a level, and the number of
        steps whose tape fits the working memory. Therefore capacities are rounded down to these
        numbers. Other planners, and planners that decide the overlap, may use the exact bytes; then
        nothing is rounded. A question with failures is returned unchanged.
        """
        if self.fails:
            return self
        overlap = AUTO if self.decides else SYNCHRONOUS
        plain = replace(self, overlap=overlap, ranks=None, expect=None)
        module = getattr(getattr(self.call, "func", self.call), "__module__", "")
        if self.chain.varies or not module.startswith("ckio.planners.") or self.decides:
            return plain
        memory, tape = self.platform.working_memory, self.chain.largest("tape")
        if memory is not None and tape:
            memory = min(self.chain.length, memory // tape) * tape
        levels = tuple(_rounded(level, self.chain) for level in self.platform.levels)
        return replace(plain, platform=replace(self.platform, levels=levels, working_memory=memory))


def _rounded(level: Level, chain: Chain) -> Level:
    """Return a level whose capacity is rounded down to the bytes that checkpoints can occupy.

    It is also limited to the bytes of all checkpoints together.
    """
    sizes = [level.stored(chain.largest(size)) for size in ("restart", "tape")]
    unit = math.gcd(*sizes)
    if level.capacity is None or not unit:
        return level
    everything = (chain.length + 1) * sum(sizes)
    return replace(level, capacity=min(level.capacity // unit * unit, everything))


@dataclass(frozen=True, slots=True)
class Use:
    """The use of one level by a schedule, in stored bytes: all writes, all reads, and the peak."""

    written: int = 0
    read: int = 0
    peak: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """The costs of the plan of a question.

    Attributes
    ----------
    makespan : float
        Seconds. With many ranks, until the slowest one is done; with failures, the mean.
    forward, actions : int
        Number of forward steps (advanced and recorded), and of actions. With failures, those of the
        first plan.
    memory : int or None
        Peak bytes of checkpoints on the level `Question.memory`. With overlap, if staged
        checkpoints share this level, its capacity; None if it has no capacity.
    levels : mapping of str to Use
        The use of each level of the platform, by name.
    reason : str
        The reason why there is no plan; then all numbers are 0. Empty if there is one.
    error : float
        The standard error of the makespan in seconds, if the makespan is a mean.
    """

    makespan: float = 0.0
    forward: int = 0
    actions: int = 0
    memory: int | None = 0
    levels: Mapping[str, Use] | None = None
    reason: str = ""
    error: float = 0.0


def answers(questions: Sequence[Question], /) -> Iterator[Answer]:
    """Yield the answers to questions with equal `seen()`; their plan is made only once."""
    first = questions[0]
    if first.fails:
        yield from map(_expected, questions)
        return
    planned = _planned(first)
    for question in questions:
        if isinstance(planned, str) and question != first:
            yield Answer(reason=_refusal(question))
        elif isinstance(planned, str):
            yield Answer(reason=planned)
        else:
            yield _answer(question, *planned)


def _refusal(question: Question) -> str:
    """Return the reason why a question has no plan, with the numbers of this question."""
    planned = _planned(question)
    assert isinstance(planned, str), f"{question} has a plan, but an equal question has none"
    return planned


def _planned(question: Question) -> tuple[Schedule, Overlap] | str:
    """Return the schedule and its overlap policy, or the reason why there is no schedule."""
    steps = _TOO_MANY.format(question.chain.length)
    if question.chain.length > _MOST_STEPS:
        return steps
    try:
        with without_notes():
            planned = plan(
                question.chain,
                question.platform,
                planner=question.call,
                overlap=AUTO if question.decides else SYNCHRONOUS,
            )
    except BadInput as error:
        return str(error)
    except (MemoryError, OverflowError):
        return steps
    return planned, planned.overlap


def _answer(question: Question, schedule: Schedule, own: Overlap) -> Answer:
    overlap = own if (asked := exactly(question.overlap)) is None else asked
    try:
        seconds = _seconds(question, schedule, overlap)
    except BadInput as error:
        return Answer(reason=str(error))
    except MemoryError:
        return Answer(reason="its simulation needs more memory than there is; simulate fewer ranks")
    return _answer_of(question, schedule, Mean(seconds, 0.0), overlap)


def _expected(question: Question) -> Answer:
    """Return the answer for a run that fails."""
    assert question.expect is not None, "a question with failures needs `expect`"
    if question.ranks is not None or question.overlap:
        return Answer(reason="mtbf: a run that fails is simulated alone, and without overlap")
    try:
        with without_notes():
            schedule, mean = question.expect(question)
    except BadInput as error:
        return Answer(reason=str(error))
    except (MemoryError, OverflowError):
        return Answer(reason=_TOO_MANY.format(question.chain.length))
    return _answer_of(question, schedule, mean, SYNCHRONOUS)


def _answer_of(question: Question, schedule: Schedule, mean: Mean, overlap: Overlap) -> Answer:
    if not math.isfinite(mean.seconds):
        return Answer(reason="its seconds are too many for a floating-point number")
    levels = {
        level.name: _use(schedule, level, number)
        for number, level in enumerate(question.platform.levels)
    }
    return Answer(
        makespan=mean.seconds,
        error=mean.error,
        forward=counts(schedule).forward,
        actions=len(schedule),
        memory=_memory(question, levels, overlap),
        levels=levels,
    )


def _seconds(question: Question, schedule: Schedule, overlap: Overlap) -> float:
    """Return the makespan; it is simulated if there are ranks or overlap."""
    platform, ranks = question.platform, question.ranks
    if ranks is not None:
        return simulate_ranks(schedule, platform, ranks, overlap=overlap).makespan
    if overlap:
        return simulate(schedule, platform, overlap=overlap).makespan
    return makespan(schedule, platform)


def _use(schedule: Schedule, level: Level, number: int) -> Use:
    actions = schedule.actions.take(
        (schedule.actions.op >= WRITE) & (schedule.actions.level == number)
    )
    stored = level.stored_of(schedule.chain.nbytes_of(actions))
    written, read = (int(stored[actions.op == op].sum()) for op in (WRITE, READ))
    change = np.where(actions.op == WRITE, stored, np.where(actions.op == DISCARD, -stored, 0))
    return Use(written, read, int(change.cumsum().max(initial=0)))


def _memory(question: Question, levels: Mapping[str, Use], overlap: Overlap) -> int | None:
    platform = question.platform
    if question.memory not in levels:
        return 0
    number = platform.number(question.memory)
    if overlap and number == memory_level(platform):
        return platform.levels[number].capacity
    return levels[question.memory].peak


Watch = Callable[[int], object]

_QUICK: Final = 1.0
"""Seconds of work in this process before others are started; starting them takes as long."""


def sweep(
    questions: Sequence[Question],
    /,
    *,
    processes: int | None = None,
    watch: Watch | None = None,
    alone: float = _QUICK,
) -> list[Answer]:
    """Return the answers to all questions, in their order.

    Questions with equal `seen()` are planned only once. After `alone` seconds the remaining
    questions are distributed to `processes` processes (by default one for each core). These
    processes end with this call, also after an error. `watch` is called with the number of further
    answers. Raises RunFailed if a process is killed; an error of a planner other than BadInput is
    raised here.
    """
    todo = _alike(questions)
    results: dict[int, Answer] = {}

    def take(places: Sequence[int], answered: Sequence[Answer]) -> None:
        results.update(zip(places, answered, strict=True))
        if watch is not None:
            watch(len(places))

    workers = (os.cpu_count() or 1) if processes is None else processes
    until = time.monotonic() + alone
    while todo and (workers < 2 or time.monotonic() < until):
        places = todo.pop(0)
        take(places, [*answers([questions[place] for place in places])])
    if todo:
        _share(questions, todo, min(workers, len(todo)), take)
    return [results[place] for place in range(len(questions))]


def _alike(questions: Sequence[Question]) -> list[list[int]]:
    """Return the indices of the questions in groups with equal `seen()`."""
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
    """Let other processes answer; each gets its next group as soon as it has answered one."""
    coming, waiting = count(), {}
    with _pool(workers) as pool:

        def submit() -> None:
            if (at := next(coming)) < len(todo):
                asked = [questions[place] for place in todo[at]]
                waiting[pool.submit(_answers, asked)] = todo[at]

        # One more group than there are workers, so that no worker waits for its next group.
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
    """Provide a pool of processes that end with this context; after an error, immediately."""
    others = set(multiprocessing.active_children())
    # Not forked, because a fork has copies of the locks of other threads but not the threads.
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _begin)
    try:
        yield pool
    except BaseException as error:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        if isinstance(error, BrokenProcessPool):
            raise RunFailed(
                "a process that was planning ended early; if memory ran out, use fewer processes"
            ) from None
        raise
    finally:
        pool.shutdown()


def _begin() -> None:
    """Initialise a new process: its parent handles interrupts and ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_follow, daemon=True).start()


def _follow() -> None:
    """End this process when its parent ends."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _answers(questions: Sequence[Question]) -> list[Answer]:
    return list(answers(questions))
