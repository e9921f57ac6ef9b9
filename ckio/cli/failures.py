"""`ckio failures`: the makespan of a run that is killed now and then, before anything is run."""

import functools
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import click

from ckio.actions import Kind
from ckio.cli import console
from ckio.cli.adjoints import Kept, Wish, durable, first_plan, next_plan
from ckio.cli.expected import Found, figures, show
from ckio.cli.files import INPUT, read_text
from ckio.cli.job import WITH_TAPES
from ckio.cli.levels import say_lossy
from ckio.cli.options import cost_options, json_option, planner_options
from ckio.cli.plans import OVERLAPPED, Plan, plan_of
from ckio.cli.stopping import duration, duration_option
from ckio.errors import BadInput, NoSchedule
from ckio.platforms import Platform
from ckio.recover import Killed, adjoint_seconds
from ckio.recover import every as daly
from ckio.registry import lossy
from ckio.schedule import Schedule
from ckio.sim.failures import (
    Failure,
    Moment,
    Plans,
    Stored,
    compare,
    exponential,
    from_somewhere,
    intervals,
    mtbf,
    parse_trace,
)
from ckio.testing import CountingModel

_RUNS: Final = 200


@click.command()
@planner_options
@cost_options
@duration_option("--mtbf", help="mean time between failures of the process")
@duration_option("--node-mtbf", help="mean time between losses of its node")
@click.option(
    "--node-level",
    "node_levels",
    multiple=True,
    metavar="LEVEL",
    help="a level that is lost with the node; may be repeated",
)
@click.option(
    "--failures",
    "trace",
    type=INPUT,
    metavar="FILE",
    help="when something fails, a line each: TIME [process|node]",
)
@duration_option("--restart-time", help="from a failure until another process runs  [default: 0]")
@click.option(
    "--trajectories",
    type=click.IntRange(1, 1_000_000),
    metavar="N",
    help=f"runs that fail at random  [default: {_RUNS}; one from the start of FILE]",
)
@click.option("--seed", type=click.IntRange(0), help="of the random failures  [default: 0]")
@duration_option(
    "--every", help="work between two adjoint checkpoints  [default: around Daly's interval]"
)
@json_option
def command(
    *,
    mtbf: float | None,
    node_mtbf: float | None,
    node_levels: tuple[str, ...],
    trace: Path | None,
    restart_time: float | None,
    trajectories: int | None,
    seed: int | None,
    every: float | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Expect a makespan where a run is killed now and then, and the best interval of adjoint
    checkpoints.

    Many runs are simulated, each as `ckio run` would do it, and `ckio run --resume` after each
    failure: it restarts, reads what survives, plans the rest, and goes on. Several intervals
    between adjoint checkpoints are tried, and all of them see the same failures.

    A process that is killed leaves all durable levels. One whose node is lost leaves them without
    each --node-level; without any, both are the same. The times between two failures are drawn from
    an exponential distribution, or read from FILE: then one run begins with its first line, or
    --trajectories so many begin somewhere in it, and see it again and again.

    Planning takes no time in these runs, and an action that was cut short is done again from its
    start. What is left is really planned, once for each state in which a run was killed: for long
    chains a few --trajectories are a good beginning.
    """
    asked = Asked(
        process=mtbf,
        node=node_mtbf,
        node_levels=node_levels,
        restart=restart_time or 0.0,
        trace=trace,
        runs=trajectories,
        seed=seed,
        every=every,
    )
    plan = plan_of(**options, quiet=as_json)
    found = find(plan, asked, quiet=as_json)
    if as_json:
        told = {"planner": plan.planner, "steps": plan.chain.length, **figures(found)}
        console.print_json({**told, "lossy": lossy(plan.platform)})
        return
    console.echo(f"{plan.planner}, {plan.chain.length} steps: ", nl=False)
    show(found)
    say_lossy(plan.platform)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a command line says of failures; raises BadInput where it does not fit together.

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


def planned(plan: Plan, wish: Wish, /, *, quiet: bool) -> tuple[Plans, Kept]:
    """The plans of a run as `ckio run` makes them, at first and with `--resume`.

    Raises NoSchedule where there is no room for what is wished.
    """
    chain, platform, model = plan.chain, plan.platform, CountingModel(plan.chain)

    def first(smaller: Platform) -> Schedule:
        return replace(plan, platform=smaller).planned(quiet=quiet).schedule

    schedule, kept = first_plan(chain, platform, model, first, wish)
    survives = durable(platform)

    def rest(killed: Schedule, survivors: Stored) -> Schedule:
        tapes = plan.planner in WITH_TAPES or any(
            key.kind is Kind.TAPE for keys in survivors for key in keys
        )
        last = Killed(killed, survives)
        return next_plan(chain, platform, survivors, model, kept, tapes=tapes, killed=last)[0]

    return Plans(schedule, rest), kept


def find(plan: Plan, asked: Asked, /, *, quiet: bool) -> Found:
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
    first, kept = planned(plan, Wish(asked.every, mean), quiet=quiet)
    plans = {kept.every: first}
    if asked.every is None and kept.every < math.inf:
        for every in intervals(kept.every):
            with suppress(NoSchedule):
                more = planned(plan, Wish(every), quiet=quiet)[0]
                if more.adjoints or all(one.adjoints for one in plans.values()):
                    plans.setdefault(every, more)  # of those that store none, one is enough
    with console.progress("failing", runs * len(plans), unit="runs", quiet=quiet) as tick:
        tried = compare(plans, plan.platform, moments, runs, watch=tick)
    return Found(mean, kept.level, *_estimates(plan, kept, mean), tried)


def _moments(
    asked: Asked, platform: Platform
) -> tuple[Callable[[int], Iterator[Moment]], float, int]:
    """The failures of each run, the mean time between them, and how many runs."""
    kinds, seed = asked.kinds(platform), asked.seed or 0
    if asked.trace is None:
        ways = tuple(kinds.values())
        return lambda run: exponential(ways, (seed, run)), mtbf(ways), asked.runs or _RUNS
    try:
        trace = parse_trace(read_text(asked.trace), kinds, _moment)
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


def _estimates(plan: Plan, kept: Kept, mean: float) -> tuple[float, float]:
    """Young's interval and Daly's, for an adjoint checkpoint where this run keeps its own."""
    if kept.level is None:
        return math.inf, math.inf
    cost = adjoint_seconds(plan.chain, plan.platform, plan.platform.number(kept.level))
    return math.sqrt(2 * cost * mean), daly(cost, mean)
