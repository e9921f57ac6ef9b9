"""Runs that fail: their expected makespan, and the best interval of adjoint checkpoints."""

import functools
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ckio.actions import Kind
from ckio.errors import BadInput, NoSchedule
from ckio.jobs.adjoints import Kept, durable, first_plan, next_plan
from ckio.jobs.display import QUIET, Display
from ckio.jobs.planning import OVERLAPPED, Planning
from ckio.jobs.process import WITH_TAPES
from ckio.jobs.request import DAY
from ckio.platform import Platform
from ckio.platform.readable import duration
from ckio.recover import Killed, adjoint_seconds
from ckio.recover import every as daly
from ckio.schedule import Schedule
from ckio.sim.failures import (
    Book,
    Failure,
    Mean,
    Moment,
    Plans,
    Stored,
    Tried,
    campaign,
    compare,
    exponential,
    from_somewhere,
    intervals,
    mtbf,
    parse_trace,
)
from ckio.sim.sweep import Question

RUNS: Final = 200


@dataclass(frozen=True)
class Forecast:
    """The expected course of a run that fails.

    Attributes
    ----------
    mean : float
        Seconds between two failures, on the average; infinite where there is none.
    level : str or None
        Where the adjoint is stored; None where no level keeps it.
    young, daly : float
        Their intervals, in seconds; infinite where the adjoint is not stored.
    tried : tuple of Tried
        Ascending intervals, the run's own among them.
    """

    mean: float
    level: str | None
    young: float
    daly: float
    tried: tuple[Tried, ...]


@dataclass(frozen=True, kw_only=True)
class Failing:
    """How often a run fails, and what is lost; raises BadInput where that does not fit together.

    Attributes
    ----------
    process, node : float or None
        Seconds between two failures of the process, and two losses of its node, on the average.
    node_levels : tuple of str
        The levels that are lost with the node.
    restart : float
        Seconds until another process runs.
    trace : Path or None
        The file that says when something fails, instead of mean times.
    runs : int or None
        How many runs; None for what fits: one that begins with a trace, else some hundred.
    seed : int or None
        Of the failures; None is 0.
    every : float or None
        Seconds of work between two adjoint checkpoints; None to try several.
    """

    process: float | None = None
    node: float | None = None
    node_levels: tuple[str, ...] = ()
    restart: float = 0.0
    trace: Path | None = None
    runs: int | None = None
    seed: int | None = None
    every: float | None = None

    def __post_init__(self) -> None:
        random = (self.process, self.node) != (None, None)
        if self.trace is None and not random:
            raise BadInput("say how often it fails: --mtbf TIME, --node-mtbf TIME, --failures FILE")
        if self.trace is not None and random:
            raise BadInput("--failures says when something fails: leave out --mtbf and --node-mtbf")
        if self.node_levels and (self.trace, self.node) == (None, None):
            raise BadInput("--node-level is lost with its node: say how often, by --node-mtbf")
        if self.trace is not None and self.seed is not None and self.runs is None:
            raise BadInput(
                "--seed: a run from the start of FILE is not random; give --trajectories"
            )

    def kinds(self, platform: Platform, /) -> dict[str, Failure]:
        """The ways to fail; raises BadInput for a level that there is not."""
        kept = frozenset(durable(platform))
        survive = {"process": kept, "node": kept.difference(map(platform.number, self.node_levels))}
        means = {"process": self.process, "node": self.node}
        return {
            name: Failure(survive=survive[name], mtbf=mean or math.inf, restart=self.restart)
            for name, mean in means.items()
        }


def planned(
    plan: Planning,
    /,
    *,
    every: float | None = None,
    mtbf: float = DAY,
    display: Display = QUIET,
) -> tuple[Plans, Kept]:
    """Return the plans of a run as `ckio run` makes them, at first and with `--resume`.

    Raises NoSchedule where there is no room for what is wished.
    """
    chain, platform = plan.chain, plan.platform

    def first(smaller: Platform) -> Schedule:
        return replace(plan, platform=smaller).planned(display).schedule

    schedule, kept = first_plan(chain, platform, None, first, every=every, mtbf=mtbf)
    survives = durable(platform)

    def rest(killed: Schedule, survivors: Stored) -> Schedule:
        tapes = plan.planner in WITH_TAPES or any(
            key.kind is Kind.TAPE for keys in survivors for key in keys
        )
        last = Killed(killed, survives)
        return next_plan(chain, platform, survivors, None, kept, tapes=tapes, killed=last)[0]

    return Plans(schedule, rest), kept


def forecast(plan: Planning, asked: Failing, /, display: Display = QUIET) -> Forecast:
    """Let the run fail, with adjoint checkpoints at one interval after the other.

    Raises BadInput for what does not fit together, and for a run that never comes to its end.
    """
    if plan.planner == OVERLAPPED:
        raise BadInput(
            f"--planner {OVERLAPPED}: runs that fail are simulated without overlap; choose another"
        )
    moments, mean, runs = _moments(asked, plan.platform)
    # The intervals differ; what they are put into is planned once.
    plan = replace(plan, call=functools.cache(plan.call))
    first, kept = planned(plan, every=asked.every, mtbf=mean, display=display)
    plans = {kept.every: first}
    if asked.every is None and kept.every < math.inf:
        for every in intervals(kept.every):
            with suppress(NoSchedule):
                more = planned(plan, every=every, display=display)[0]
                if more.adjoints or all(one.adjoints for one in plans.values()):
                    plans.setdefault(every, more)  # of those that store none, one is enough
    with display.progress("failing", runs * len(plans), unit="runs") as tick:
        tried = compare(plans, plan.platform, moments, runs, watch=tick)
    return Forecast(mean, kept.level, *_estimates(plan, kept, mean), tried)


def _moments(
    asked: Failing, platform: Platform
) -> tuple[Callable[[int], Iterator[Moment]], float, int]:
    """The failures of each run, the mean time between them, and how many runs."""
    kinds, seed = asked.kinds(platform), asked.seed or 0
    if asked.trace is None:
        ways = tuple(kinds.values())
        return lambda run: exponential(ways, (seed, run)), mtbf(ways), asked.runs or RUNS
    try:
        trace = parse_trace(_text(asked.trace), kinds, _moment)
        if asked.runs is not None:
            from_somewhere(trace, (seed,))  # raises where there is nothing to see
    except BadInput as error:
        raise BadInput(f"{asked.trace}: {error}") from None
    mean = trace[-1][0] / len(trace) if trace else math.inf
    if asked.runs is None:
        return lambda _run: iter(trace), mean, 1
    return lambda run: from_somewhere(trace, (seed, run)), mean, asked.runs


def _moment(text: str) -> float:
    """Seconds from the start of a trace: also 0, and as programs write them, such as 3.6e+03."""
    try:
        seconds = float(text)
    except ValueError:
        return duration(text)
    if not 0 <= seconds < math.inf:
        raise BadInput(f"{text!r} is not a time from the start")
    return seconds


def _estimates(plan: Planning, kept: Kept, mean: float) -> tuple[float, float]:
    """Young's interval and Daly's, for an adjoint checkpoint where this run keeps its own."""
    if kept.level is None:
        return math.inf, math.inf
    cost = adjoint_seconds(plan.chain, plan.platform, plan.platform.number(kept.level))
    return math.sqrt(2 * cost * mean), daly(cost, mean)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput("not text") from None
    except OSError as error:
        raise BadInput(f"{error.strerror}") from None


@dataclass(frozen=True)
class Expected:
    """Answers for questions of a sweep about runs that fail, all by the same failures.

    It goes to other processes.

    Attributes
    ----------
    restart : float
        Seconds from a failure until another process runs.
    runs : int
        Whose mean is taken.
    """

    restart: float
    runs: int

    def __call__(self, question: Question, /) -> tuple[Schedule, Mean]:
        """Return the first schedule, with adjoint checkpoints at Daly's interval, and the mean.

        Raises BadInput for plans that do not fail here, and for runs that never come to their end.
        """
        if question.planner == OVERLAPPED:
            raise BadInput(f"mtbf: a run by {OVERLAPPED} overlaps, and none that fails does")
        plan = Planning(question.planner, question.chain, question.platform, question.call)
        plans, _ = planned(plan, mtbf=question.mtbf)
        failing = Failing(process=question.mtbf, restart=self.restart)
        ways = tuple(failing.kinds(question.platform).values())
        book = Book(plans, question.platform)
        found = campaign(book, lambda run: exponential(ways, (0, run)), self.runs)
        return plans.first, found.expected
