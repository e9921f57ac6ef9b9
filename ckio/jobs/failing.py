"""Runs with failures: their expected makespan, and the best interval of adjoint checkpoints."""

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
from ckio.planners.recover import adjoint_seconds
from ckio.planners.recover import every as daly
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.platform.readable import duration, read_text
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
    """The expected course of a run with failures.

    Attributes
    ----------
    mean : float
        The mean time between failures, in seconds; infinite if there are none.
    level : str or None
        The level of the adjoint checkpoints; None if no level can store them.
    young, daly : float
        The intervals of Young and of Daly, in seconds; infinite if the adjoint is not stored.
    tried : tuple of Tried
        The results for each interval, in ascending order, including the interval of the run.
    """

    mean: float
    level: str | None
    young: float
    daly: float
    tried: tuple[Tried, ...]


@dataclass(frozen=True, kw_only=True)
class Failing:
    """The failures of a run. Raises BadInput if the options do not fit together.

    Attributes
    ----------
    process, node : float or None
        The mean time between failures of the process, and between losses of its node, in seconds.
    node_levels : tuple of str
        The levels that are lost with the node.
    restart : float
        Seconds from a failure until another process runs.
    trace : Path or None
        A file with the times of failures, instead of mean times.
    runs : int or None
        The number of simulated runs. With None, it is one run from the start of the trace, or 200
        random runs.
    seed : int or None
        The seed of the failures; None is 0.
    every : float or None
        Seconds of work between two adjoint checkpoints; None to try several intervals.
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
            raise BadInput(
                "the failures of the run are not given; give --mtbf TIME, --node-mtbf TIME, or"
                " --failures FILE"
            )
        if self.trace is not None and random:
            raise BadInput(
                "--failures gives the times of all failures; leave out --mtbf and --node-mtbf"
            )
        if self.node_levels and (self.trace, self.node) == (None, None):
            raise BadInput(
                "--node-level names a level that is lost with its node; give the mean time between"
                " such losses by --node-mtbf"
            )
        if self.trace is not None and self.seed is not None and self.runs is None:
            raise BadInput(
                "--seed is only for random runs, and a run from the start of FILE is not random;"
                " give --trajectories, or leave out --seed"
            )

    def kinds(self, platform: Platform, /) -> dict[str, Failure]:
        """Return the kinds of failures by name; raises BadInput for an unknown level."""
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
    """Return the plans of a run that `ckio run` makes: the first, and those with `--resume`.

    Raises NoSchedule if the levels have no space for the plan and its adjoint checkpoints.
    """
    chain, platform = plan.chain, plan.platform

    def first(chain: Chain, smaller: Platform) -> Schedule:
        return replace(plan, chain=chain, platform=smaller).planned(display)

    schedule, kept = first_plan(chain, platform, None, first, every=every, mtbf=mtbf)

    def rest(_killed: Schedule, survivors: Stored) -> Schedule:
        tapes = plan.planner in WITH_TAPES or any(
            key.kind is Kind.TAPE for keys in survivors for key in keys
        )
        return next_plan(chain, platform, survivors, None, kept, tapes=tapes)[0]

    return Plans(schedule, rest), kept


def forecast(plan: Planning, asked: Failing, /, display: Display = QUIET) -> Forecast:
    """Simulate runs with failures, with several intervals of adjoint checkpoints.

    Raises BadInput if the options do not fit together, or if a run would never end.
    """
    if plan.planner == OVERLAPPED:
        raise BadInput(
            f"--planner {OVERLAPPED} plans with overlap, and runs with failures are simulated"
            " without it; choose another planner"
        )
    moments, mean, runs = _moments(asked, plan.platform)
    # The schedule without adjoint checkpoints is the same for all intervals, and is planned once.
    plan = replace(plan, call=functools.cache(plan.call))
    first, kept = planned(plan, every=asked.every, mtbf=mean, display=display)
    plans = {kept.every: first}
    if asked.every is None and kept.every < math.inf:
        for every in intervals(kept.every):
            with suppress(NoSchedule):
                more = planned(plan, every=every, display=display)[0]
                if more.adjoints or all(one.adjoints for one in plans.values()):
                    plans.setdefault(every, more)  # only one plan without adjoint checkpoints
    with display.progress("failing", runs * len(plans), unit="runs") as tick:
        tried = compare(plans, plan.platform, moments, runs, watch=tick)
    return Forecast(mean, kept.level, *_estimates(plan, kept, mean), tried)


def _moments(
    asked: Failing, platform: Platform
) -> tuple[Callable[[int], Iterator[Moment]], float, int]:
    """Return the failures of each run, the mean time between them, and the number of runs."""
    kinds, seed = asked.kinds(platform), asked.seed or 0
    if asked.trace is None:
        ways = tuple(kinds.values())
        return lambda run: exponential(ways, (seed, run)), mtbf(ways), asked.runs or RUNS
    text = read_text(asked.trace)
    try:
        trace = parse_trace(text, kinds, _moment)
        if asked.runs is not None:
            from_somewhere(trace, (seed,))  # raises BadInput if no random start is possible
    except BadInput as error:
        raise BadInput(f"{asked.trace}: {error}") from None
    last = trace[-1][0] if trace else 0.0
    mean = last / len(trace) if last else math.inf  # a failure at 0 has no time before it
    if asked.runs is None:
        return lambda _run: iter(trace), mean, 1
    return lambda run: from_somewhere(trace, (seed, run)), mean, asked.runs


def _moment(text: str) -> float:
    """Return the seconds from the start of a trace; 0 and numbers such as 3.6e+03 are allowed."""
    try:
        seconds = float(text)
    except ValueError:
        return duration(text)
    if not 0 <= seconds < math.inf:
        raise BadInput(f"{text!r} is not a time from the start; it must be finite and at least 0")
    return seconds


def _estimates(plan: Planning, kept: Kept, mean: float) -> tuple[float, float]:
    """Return Young's interval and Daly's, for adjoint checkpoints on the level of this run.

    Young's interval is the square root of 2 c m for a checkpoint of c seconds and a mean time of m
    seconds between failures. For example, c = 2 s and m = 86400 s give about 588 s.
    """
    if kept.level is None:
        return math.inf, math.inf
    cost = adjoint_seconds(plan.chain, plan.platform, plan.platform.number(kept.level))
    return math.sqrt(2 * cost * mean), daly(cost, mean)


@dataclass(frozen=True)
class Expected:
    """A function that answers questions of a sweep about runs with failures.

    All questions have the same failures. The object is pickled to other processes.

    Attributes
    ----------
    restart : float
        Seconds from a failure until another process runs.
    runs : int
        The number of runs whose mean is returned.
    """

    restart: float
    runs: int

    def __call__(self, question: Question, /) -> tuple[Schedule, Mean]:
        """Return the first schedule, with adjoint checkpoints at Daly's interval, and the mean.

        Raises BadInput for plans with overlap, and for runs that would never end.
        """
        if question.planner == OVERLAPPED:
            raise BadInput(
                f"mtbf: planner {OVERLAPPED} plans with overlap, and runs with failures are"
                " simulated without it; choose another planner"
            )
        plan = Planning(question.planner, question.chain, question.platform, question.call)
        plans, _ = planned(plan, mtbf=question.mtbf)
        failing = Failing(process=question.mtbf, restart=self.restart)
        ways = tuple(failing.kinds(question.platform).values())
        book = Book(plans, question.platform)
        result = campaign(book, lambda run: exponential(ways, (0, run)), self.runs)
        return plans.first, result.expected
