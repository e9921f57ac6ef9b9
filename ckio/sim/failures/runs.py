"""Runs that fail at given times: a single run, many runs, and many runs for several intervals.

A run works until it fails, restarts, and continues. It is a process of simpy, which another process
interrupts. The actions between two failures are not simulated one by one, because the cumulative
sums of the costs give the number of completed actions.
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
"""Number of failures after which the simulation of a run is stopped with an error."""

_Process = Generator[simpy.Event, Any, None]


@dataclass(frozen=True, slots=True)
class Life:
    """One process of a run; all times are in seconds from the start of the run.

    Attributes
    ----------
    schedule : Schedule
        The plan of this process.
    begin : float
        The time at which the process before it failed.
    work : float
        The time of its first action; later than `end` if it failed before.
    end : float
        The time at which it failed or was done.
    done : int
        Number of complete actions at `end`.
    failure : Failure or None
        The failure that ended it; None if it reached the end of the run.
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
        """The number of failures."""
        return len(self.lives) - 1

    @property
    def restarting(self) -> float:
        """Seconds of restarts: until a process ran again and had verified all checkpoints."""
        return sum(min(life.work, life.end) - life.begin for life in self.lives)

    @property
    def redone(self) -> float:
        """Seconds of work in addition to the first plan; negative if the new plans are shorter."""
        return self.makespan - self.restarting - self.planned


def trajectory(book: Book, moments: Iterable[Moment], /) -> Trajectory:
    """Simulate a run with these plans that fails at these moments (which may be endless).

    A failure during a restart ends the new process, too; then the killed schedule is that of the
    last process that had begun its work. A failure exactly at the end of the run has no effect.

    Raises BadInput if the run is not done after 10,000 failures, or if the moments are not in
    order; raises the errors of the plans.
    """
    environment = simpy.Environment(0.0)
    lives: list[Life] = []
    run = environment.process(_run(environment, book, lives))
    environment.process(_failing(environment, run, moments))
    environment.run(until=run)
    return Trajectory(tuple(lives), book.first.seconds)


def _run(environment: simpy.Environment, book: Book, lives: list[Life]) -> _Process:
    """Simulate one process after the other, until one reaches the end of its plan."""
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
                f"after {MOST} failures, {end:.3g} s, the run is not done: the time between two"
                " failures does not suffice for a restart and further work; store the adjoint more"
                " often, or use levels that survive the failures"
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
"""Function that returns the failures of a run, given its number; equal for all compared plans."""


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
    """The outcomes of many runs of the same plans, with one value for each run.

    Attributes
    ----------
    makespan, restarting, redone : float64 arrays
        Seconds, as in `Trajectory`.
    failures : int64 array
        The number of failures of each run.
    planned : float
        Seconds of the first plan without failures.
    plans : int
        Number of plans that were made after failures, for all runs together.
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
        """The fraction of all time that is work in addition to the first plan."""
        total = float(self.makespan.sum())
        return float(self.redone.sum()) / total if total else 0.0

    def quantiles(self) -> tuple[float, ...]:
        """Return the quantiles of the makespan for the probabilities in `QUANTILES`."""
        return tuple(map(float, np.quantile(self.makespan, QUANTILES)))

    def less_than(self, other: "Outcomes", /) -> Mean:
        """Return the mean difference of the other makespan and this one.

        The difference is computed run by run, because both had the same failures.
        """
        return Mean.of(other.makespan - self.makespan)


def campaign(
    book: Book, moments: Moments, runs: int, /, *, watch: Callable[[int], object] | None = None
) -> Outcomes:
    """Simulate `runs` runs, each with its own failures; `watch` is called with 1 after each.

    Raises the errors of `trajectory`, and BadInput for less than one run.
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
    """One interval between adjoint checkpoints, with its outcomes.

    Attributes
    ----------
    every : float
        The interval: minimum seconds of work between two adjoint checkpoints.
    adjoints : int
        The number of adjoint checkpoints of the first plan.
    outcomes : Outcomes
        The outcomes of all runs; their failures are the same for all intervals.
    """

    every: float
    adjoints: int
    outcomes: Outcomes


def intervals(middle: float, /, *, ratio: float = 2.0, each_side: int = 2) -> tuple[float, ...]:
    """Return intervals to try, ascending: `middle`, and `each_side` more on each side of it.

    `ratio` is the factor from one interval to the next.

    >>> intervals(60.0)
    (15.0, 30.0, 60.0, 120.0, 240.0)
    """
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
    """Return the outcomes for each interval in `plans`, ascending, all with the same failures.

    `watch` is called with 1 after each run. Raises the errors of `campaign`.
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
    """Return the smallest mean makespan; of equal ones, that of the longest interval."""
    return min(tried, key=lambda one: (one.outcomes.expected.seconds, -one.every))
