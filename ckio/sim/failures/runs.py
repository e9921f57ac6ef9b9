"""Runs that fail at given moments: one, many at random, and many for each of several intervals.

A run works until it fails, restarts, and continues. It is a process of simpy, which another process
interrupts. Between two failures nothing is simulated: the sums of the costs say which action is
done.
"""

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import simpy
from numpy.typing import NDArray

from ckio.errors import BadInput
from ckio.platform import Platform
from ckio.schedule import Schedule
from ckio.sim.failures.kinds import Failure, Moment
from ckio.sim.failures.plans import Book, Plans

MOST: Final = 10_000
"""Failures after which a run is given up: it would hardly come to its end."""

_Process = Generator[simpy.Event, Any, None]


@dataclass(frozen=True, slots=True)
class Life:
    """One process of a run; all seconds are from the start of the run.

    Attributes
    ----------
    schedule : Schedule
        What was planned for it.
    begin, work, end : float
        When the process before it failed; when it began its first action, had it come so far; when
        it failed itself or was done.
    done : int
        Actions that were complete then.
    failure : Failure or None
        What ended it; None where it came to the end of the run.
    """

    schedule: Schedule
    begin: float
    work: float
    end: float
    done: int
    failure: Failure | None


@dataclass(frozen=True, slots=True)
class Trajectory:
    """A run from its start to its end, over all its processes.

    Attributes
    ----------
    lives : tuple of Life
        The processes in their order.
    planned : float
        The makespan of the first plan, in seconds.
    """

    lives: tuple[Life, ...]
    planned: float

    @property
    def makespan(self) -> float:
        """Seconds from the start of the run to its end."""
        return self.lives[-1].end

    @property
    def failures(self) -> int:
        """How often it failed."""
        return len(self.lives) - 1

    @property
    def restarting(self) -> float:
        """Seconds in which no process worked: until one ran again, and read what survived."""
        return sum(min(life.work, life.end) - life.begin for life in self.lives)

    @property
    def redone(self) -> float:
        """Seconds of work beyond the first plan; what is planned anew may also take less."""
        return self.makespan - self.restarting - self.planned


def trajectory(book: Book, moments: Iterable[Moment], /) -> Trajectory:
    """The run of these plans that fails at these moments, which may go on for ever.

    A failure while a process starts again ends that one too, which has no plan then: what was
    killed is what was at work before it. One at the very end comes too late. Raises BadInput for a
    run that fails again and again and is not done, for moments that are not in order, and what a
    plan raises.
    """
    environment = simpy.Environment(0.0)
    lives: list[Life] = []
    run = environment.process(_run(environment, book, lives))
    environment.process(_failing(environment, run, moments))
    environment.run(until=run)
    return Trajectory(tuple(lives), book.first.seconds)


def _run(environment: simpy.Environment, book: Book, lives: list[Life]) -> _Process:
    """One process after the other, until one comes to the end of its plan."""
    plan = begun = book.first
    starting = 0.0
    while True:
        begin = environment.now
        work, failure = begin + starting, None
        try:
            if starting:
                yield environment.timeout(starting)
            yield environment.timeout(plan.seconds)
        except simpy.Interrupt as interrupt:
            failure = interrupt.cause
        end = environment.now
        at_work = end >= work
        done = plan.done(end - work) if at_work else 0
        if failure is None or (at_work and done == len(plan.until)):
            done, failure = len(plan.until), None
        lives.append(Life(plan.schedule, begin, work, end, done, failure))
        if failure is None:
            return
        if len(lives) > MOST:
            raise BadInput(
                f"after {MOST} failures, {end:.3g} s, the run is not done: what is between two of"
                " them does not suffice to restart and come further"
            )
        if at_work:
            begun = plan
        plan = book.after(plan, done, failure.survive, begun=begun)
        starting = failure.restart + plan.verifying


def _failing(
    environment: simpy.Environment, run: simpy.Process, moments: Iterable[Moment]
) -> _Process:
    """Interrupt the run at each of these moments."""
    before = 0.0
    for at, failure in moments:
        if not at >= before:
            raise BadInput(f"a failure at {at:g} s comes after one at {before:g} s; sort them")
        before = at
        yield environment.timeout(max(0.0, at - environment.now))
        if not run.is_alive:
            return
        run.interrupt(failure)


QUANTILES: Final = (0.1, 0.5, 0.9, 0.99)

Moments = Callable[[int], Iterable[Moment]]
"""The failures of a run, by its number: the same for all plans that are compared."""


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over runs, in seconds, and its standard error (infinite for a single run)."""

    seconds: float
    error: float

    @staticmethod
    def of(values: NDArray[np.float64], /) -> "Mean":
        """Return the mean of one value for each run."""
        error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.inf
        return Mean(float(values.mean()), float(error))


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The outcomes of many runs of the same plans: one value for each run.

    Attributes
    ----------
    makespan, restarting, redone : float64 arrays
        Seconds, as `Trajectory` has them.
    failures : int64 array
        How often each failed.
    planned : float
        Seconds of the first plan, without a failure.
    plans : int
        How many plans of a rest were made for them.
    """

    makespan: NDArray[np.float64]
    restarting: NDArray[np.float64]
    redone: NDArray[np.float64]
    failures: NDArray[np.int64]
    planned: float
    plans: int

    @property
    def expected(self) -> Mean:
        """The mean makespan."""
        return Mean.of(self.makespan)

    @property
    def share_redone(self) -> float:
        """Which part of all the time is work beyond the first plan."""
        total = float(self.makespan.sum())
        return float(self.redone.sum()) / total if total else 0.0

    def quantiles(self) -> tuple[float, ...]:
        """The makespans below which `QUANTILES` of the runs remain, as far as there were runs."""
        return tuple(map(float, np.quantile(self.makespan, QUANTILES)))

    def less_than(self, other: "Outcomes", /) -> Mean:
        """By how much the mean is less than another's: from run to run, as both failed alike."""
        return Mean.of(other.makespan - self.makespan)


def campaign(
    book: Book, moments: Moments, runs: int, /, *, watch: Callable[[int], object] | None = None
) -> Outcomes:
    """So many runs, each with its own failures; `watch` is called with 1 after each.

    Raises as `trajectory` does, and BadInput for less than one run.
    """
    if runs < 1:
        raise BadInput(f"{runs} runs; there must be one at least")
    table = np.empty((runs, 4))
    for number in range(runs):
        run = trajectory(book, moments(number))
        table[number] = run.makespan, run.restarting, run.redone, run.failures
        if watch is not None:
            watch(1)
    makespan, restarting, redone, failures = table.T
    return Outcomes(
        makespan, restarting, redone, failures.astype(np.int64), book.first.seconds, len(book)
    )


@dataclass(frozen=True, slots=True)
class Tried:
    """One interval between adjoint checkpoints, and what came of it.

    Attributes
    ----------
    every : float
        Seconds of work; at least so many.
    adjoints : int
        How often the first plan stores its adjoint.
    outcomes : Outcomes
        Of all runs, which failed as those with other intervals did.
    """

    every: float
    adjoints: int
    outcomes: Outcomes


def intervals(middle: float, /, *, ratio: float = 2.0, each_side: int = 2) -> tuple[float, ...]:
    """Intervals to try, ascending: one in the middle, so many on each side, a factor apart."""
    return tuple(middle * ratio**power for power in range(-each_side, each_side + 1))


def compare(
    plans: Mapping[float, Plans],
    platform: Platform,
    moments: Moments,
    runs: int,
    /,
    *,
    watch: Callable[[int], object] | None = None,
) -> tuple[Tried, ...]:
    """Return the outcomes for each interval, ascending: all see the failures of `moments`.

    `watch` is called with 1 after each run. Raises as `campaign` does.
    """
    return tuple(
        Tried(
            every,
            plans[every].adjoints,
            campaign(Book(plans[every], platform), moments, runs, watch=watch),
        )
        for every in sorted(plans)
    )


def best(tried: Iterable[Tried], /) -> Tried:
    """The one with the least mean makespan; of equal ones, that of the longest interval."""
    return min(tried, key=lambda one: (one.outcomes.expected.seconds, -one.every))
