"""Questions of a sweep and their answers: a plan for a chain on a platform, and its costs.

Each plan is made once, on every core.
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
"""What comes of a run that fails: the schedule of its first process, and its mean makespan."""

_MOST_STEPS: Final = 2**31 - 1
"""The schedule of more would take some 100 GB."""

_TOO_MANY: Final = "{} steps take more memory than there is"


@dataclass(frozen=True)
class Question:
    """A chain, a platform and a planner, and how the plan is to be carried out.

    Attributes
    ----------
    planner : str
        Its name; several questions that differ in nothing else are planned once.
    call : Planner
        With its own options.
    chain : Chain
    platform : Platform
    memory : str
        The level whose bytes are the memory of the answer; where it is left out, that is 0.
    overlap : Overlap, "auto" or None
        What I/O overlaps with computation; None: nothing, but for the planner named `overlapped`,
        which is `auto` with overlap "auto".
    ranks : Ranks or None
        So many ranks carry it out together; None is one, alone.
    mtbf : float
        Seconds between two failures of the process, on the average, one over their rate; infinite
        where none is thought of.
    expect : Expect or None
        Who knows what comes of a run that fails; needed where it does.
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
        """Whether the plan says what overlaps."""
        return self.overlap == AUTO or self.planner == "overlapped"

    def seen(self) -> "Question":
        """Return the question as the planner sees it: equal where the same plan is the answer.

        Our own planners ask only how many checkpoints a level holds together, and how many steps'
        tape the working memory. Those of others, and what decides what overlaps, may ask for bytes.
        A run that fails is planned for its failures, again and again.
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
    """A level with as many bytes as checkpoints can take of it, and no more than all of them."""
    sizes = [level.stored(chain.largest(size)) for size in ("restart", "tape")]
    unit = math.gcd(*sizes)
    if level.capacity is None or not unit:
        return level
    everything = (chain.length + 1) * sum(sizes)
    return replace(level, capacity=min(level.capacity // unit * unit, everything))


@dataclass(frozen=True, slots=True)
class Use:
    """The use of one level by a schedule: bytes as they are stored, of all its accesses."""

    written: int = 0
    read: int = 0
    peak: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """The costs of the plan of a question.

    Attributes
    ----------
    makespan : float
        Seconds; of many ranks, until the slowest is done; of runs that fail, their mean.
    forward, actions : int
        Forward steps, advanced and recorded, and actions; where runs fail, of the first plan.
    memory : int or None
        The most bytes of checkpoints at one time on the level that is the question's memory. With
        overlap, where what is on its way shares this level, all of its capacity; None without one.
    levels : mapping of str to Use
        By name; those that are left out are not here.
    reason : str
        Why there is no plan; then all numbers are 0.
    error : float
        The standard error of the makespan, in seconds, where it is a mean.
    """

    makespan: float = 0.0
    forward: int = 0
    actions: int = 0
    memory: int | None = 0
    levels: Mapping[str, Use] | None = None
    reason: str = ""
    error: float = 0.0


def answers(questions: Sequence[Question], /) -> Iterator[Answer]:
    """The answers to questions for which the same plan is `seen`; it is made once."""
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
    """Why a question has no plan, in the words that go with its own numbers."""
    planned = _planned(question)
    assert isinstance(planned, str), f"{question} has a plan, and one like it has none"
    return planned


def _planned(question: Question) -> tuple[Schedule, Overlap] | str:
    """The schedule and the policy that it is made for; or why there is none."""
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
    return planned.schedule, planned.overlap


def _answer(question: Question, schedule: Schedule, own: Overlap) -> Answer:
    overlap = own if (asked := exactly(question.overlap)) is None else asked
    try:
        seconds = _seconds(question, schedule, overlap)
    except BadInput as error:
        return Answer(reason=str(error))
    except MemoryError:
        return Answer(reason="its simulation takes more memory than there is")
    return _answer_of(question, schedule, Mean(seconds, 0.0), overlap)


def _expected(question: Question) -> Answer:
    """Return the answer for a run that fails."""
    assert question.expect is not None, "nobody is there who knows what comes of it"
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
        return Answer(reason="it takes more seconds than a number holds")
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
    """The makespan; it is simulated where costs alone do not say it."""
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
