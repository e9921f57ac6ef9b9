"""One run that fails at given moments: it works until one of them, restarts, and goes on.

The run is a process of simpy, which another process interrupts. Between two failures nothing is
simulated: the sums of the costs say which action is done.
"""

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Any, Final

import simpy

from ckio.errors import BadInput
from ckio.schedule import Schedule
from ckio.sim.failures.kinds import Failure, Moment
from ckio.sim.failures.plans import Book

MOST: Final = 10_000
"""Failures after which a run is given up: it would hardly come to its end."""

_Process = Generator[simpy.Event, Any, None]


@dataclass(frozen=True, slots=True)
class Life:
    """What one process of a run did; all seconds are from the start of the run.

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
