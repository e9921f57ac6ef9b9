"""What failures do to a run: `failures_options` for a command, and `tell` what comes of them."""

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
from ckio.cli.adjoints import Kept, Wish, first_plan, is_durable, next_plan
from ckio.cli.files import FILE, read_text
from ckio.cli.job import WITH_TAPES
from ckio.cli.plans import Plan
from ckio.cli.stopping import duration, duration_option
from ckio.errors import BadInput, NoSchedule
from ckio.pictures.words import seconds_text
from ckio.platforms import Platform
from ckio.recover import adjoint_seconds
from ckio.recover import every as daly
from ckio.schedule import Schedule
from ckio.sim.failures import (
    QUANTILES,
    Failure,
    Moment,
    Plans,
    Stored,
    Tried,
    best,
    compare,
    exponential,
    from_somewhere,
    intervals,
    mtbf,
    parse_trace,
)
from ckio.testing import CountingModel

_RUNS: Final = 200


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a command line says of failures.

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
    seed : int
        Of the failures.
    every : float or None
        Seconds of work between two adjoint checkpoints; None to try several.
    """

    process: float | None
    node: float | None
    node_levels: tuple[str, ...]
    restart: float | None
    trace: Path | None
    runs: int | None
    seed: int
    every: float | None

    def kinds(self, platform: Platform, /) -> dict[str, Failure]:
        """The ways to fail; raises BadInput for a level that there is not."""
        durable = frozenset(k for k, level in enumerate(platform.levels) if is_durable(level))
        shared = durable.difference(map(platform.number, self.node_levels))
        means, again = {"process": self.process, "node": self.node}, self.restart or 0.0
        survive = {"process": durable, "node": shared}
        return {
            name: Failure(survive=survive[name], mtbf=mean or math.inf, restart=again)
            for name, mean in means.items()
        }


_OPTIONS: Final = (
    duration_option("--mtbf", "process", help="mean time between failures of the process"),
    duration_option("--node-mtbf", "node", help="mean time between losses of its node"),
    click.option(
        "--node-level", "node_levels", multiple=True, metavar="LEVEL",
        help="a level that is lost with the node; may be repeated",
    ),
    duration_option("--restart-time", "again", help="from a failure until another process runs"),
    click.option(
        "--failures", "trace", type=FILE, metavar="FILE",
        help="when something fails, a line each: TIME [process|node]",
    ),
    click.option(
        "--trajectories", "runs", type=click.IntRange(1), metavar="N",
        help=f"runs that fail at random  [default: {_RUNS}; one from the start of FILE]",
    ),
    click.option("--seed", type=click.IntRange(0), help="of the random failures  [default: 0]"),
    duration_option(
        "--every", help="work between two adjoint checkpoints  [default: around Daly's interval]"
    ),
)  # fmt: skip
_NAMES: Final = ("process", "node", "node_levels", "again", "trace", "runs", "seed", "every")


def failures_options(function: Callable[..., Any], /) -> Callable[..., Any]:
    """Give a command all options of failures, as one argument `failures`.

    It is an `Asked`, or None where no failure is asked for.
    """

    @functools.wraps(function)
    def collected(**options: Any) -> Any:
        given = {name: options.pop(name) for name in _NAMES}
        return function(failures=_asked(**given), **options)

    return functools.reduce(lambda made, add: add(made), _OPTIONS[::-1], collected)


def _asked(*, again: float | None, seed: int | None, **given: Any) -> Asked | None:
    asked = Asked(restart=again, seed=seed or 0, **given)
    if (asked.process, asked.node, asked.trace) != (None, None, None):
        if asked.trace is not None and (asked.process, asked.node) != (None, None):
            raise BadInput("--failures says when something fails: leave out --mtbf and --node-mtbf")
        return asked
    if (again, seed, asked.runs, asked.every) != (None,) * 4 or asked.node_levels:
        raise BadInput("nothing fails: give --mtbf, --node-mtbf or --failures as well")
    return None


@dataclass(frozen=True)
class Found:
    """What failures do to a run.

    Attributes
    ----------
    mean : float
        Seconds between two failures.
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


def planned(plan: Plan, wish: Wish, /, *, quiet: bool) -> tuple[Plans, Kept]:
    """The plans of a run as `ckio run` makes them, at first and with `--resume`.

    Raises NoSchedule where there is no room for what is wished.
    """
    chain, platform, model = plan.chain, plan.platform, CountingModel(plan.chain)

    def first(smaller: Platform) -> Schedule:
        return replace(plan, platform=smaller).schedule(quiet=quiet)[0]

    schedule, kept = first_plan(chain, platform, model, first, wish)

    def rest(survivors: Stored) -> Schedule:
        tapes = plan.planner in WITH_TAPES or any(
            key.kind is Kind.TAPE for keys in survivors for key in keys
        )
        return next_plan(chain, platform, survivors, model, kept, tapes=tapes)[0]

    return Plans(schedule, rest), kept


def tell(plan: Plan, asked: Asked, /, *, as_json: bool) -> None:
    """Print what `find` finds: a table, or one JSON object."""
    found = find(plan, asked, quiet=as_json)
    if as_json:
        told = {"planner": plan.planner, "steps": plan.chain.length, **figures(found)}
        console.print_json(told)
    else:
        show(found)


def find(plan: Plan, asked: Asked, /, *, quiet: bool) -> Found:
    """Let the run fail, with adjoint checkpoints at one interval after the other.

    Raises BadInput for what does not fit together, and for a run that never comes to its end.
    """
    moments, mean, runs = _moments(asked, plan.platform)
    first, kept = planned(plan, Wish(asked.every, mean), quiet=quiet)
    plans = {kept.every: first}
    if asked.every is None and kept.level is not None:
        for every in intervals(kept.every):
            with suppress(NoSchedule):
                plans.setdefault(every, planned(plan, Wish(every), quiet=quiet)[0])
    with console.progress("failing", runs * len(plans), unit="runs", quiet=quiet) as tick:
        tried = compare(plans, plan.platform, moments, runs, watch=tick)
    return Found(mean, kept.level, *_estimates(plan, kept, mean), tried)


def _moments(
    asked: Asked, platform: Platform
) -> tuple[Callable[[int], Iterator[Moment]], float, int]:
    """The failures of each run, the mean time between them, and how many runs."""
    kinds = asked.kinds(platform)
    if asked.trace is None:
        ways = tuple(kinds.values())
        return lambda run: exponential(ways, (asked.seed, run)), mtbf(ways), asked.runs or _RUNS
    try:
        trace = parse_trace(read_text(asked.trace), kinds, duration)
    except BadInput as error:
        raise BadInput(f"{asked.trace}: {error}") from None
    mean = trace[-1][0] / len(trace) if trace else math.inf
    if asked.runs is None:
        return lambda _run: iter(trace), mean, 1
    return lambda run: from_somewhere(trace, (asked.seed, run)), mean, asked.runs


def _estimates(plan: Plan, kept: Kept, mean: float) -> tuple[float, float]:
    """Young's interval and Daly's, for an adjoint checkpoint where this run keeps its own."""
    if kept.level is None:
        return math.inf, math.inf
    cost = adjoint_seconds(plan.chain, plan.platform, plan.platform.number(kept.level))
    return math.sqrt(2 * cost * mean), daly(cost, mean)


def figures(found: Found, /) -> dict[str, Any]:
    """What `--json` says of failures."""
    return {
        "mtbf": found.mean,
        "young": found.young,
        "daly": found.daly,
        "best": best(found.tried).every,
        "level": found.level,
        "intervals": [_figures(one) for one in found.tried],
    }


def _figures(one: Tried) -> dict[str, Any]:
    outcomes, expected = one.outcomes, one.outcomes.expected
    return {
        "every": one.every,
        "adjoints": one.adjoints,
        "planned": outcomes.planned,
        "expected": expected.seconds,
        "error": expected.error,
        "quantiles": {
            f"{share:.0%}": seconds
            for share, seconds in zip(QUANTILES, outcomes.quantiles(), strict=True)
        },
        "trajectories": len(outcomes.makespan),
        "failures": float(outcomes.failures.mean()),
        "restarting": float(outcomes.restarting.mean()),
        "redone": outcomes.share_redone,
        "plans": outcomes.plans,
    }


def show(found: Found, /) -> None:
    """The table of the intervals that were tried, and the best beside the estimates."""
    runs = len(found.tried[0].outcomes.makespan)
    times = "run" if runs == 1 else "runs"
    mean = seconds_text(found.mean) if found.mean < math.inf else "for ever"
    click.echo(f"{runs} {times}, {mean} between two failures; makespans in s\n")
    header = ["adjoint stored every", "times", "no failure", "expected", "±"]
    header += [f"{share:.0%}" for share in QUANTILES]
    rows = [_row(one) for one in found.tried]
    bold = [found.tried.index(best(found.tried))]
    console.print_table("", [*header, "failures", "redone"], rows, bold=bold)
    if len(found.tried) > 1:
        click.echo(_said(found))


def _row(one: Tried) -> list[str]:
    outcomes, expected = one.outcomes, one.outcomes.expected
    return [
        seconds_text(one.every) if one.adjoints else "never",
        f"{one.adjoints}",
        f"{outcomes.planned:.6g}",
        f"{expected.seconds:.6g}",
        f"{expected.error:.2g}" if math.isfinite(expected.error) else "",
        *(f"{seconds:.6g}" for seconds in outcomes.quantiles()),
        f"{outcomes.failures.mean():.3g}",
        f"{outcomes.share_redone:.1%}",
    ]


def _said(found: Found) -> str:
    least = best(found.tried)
    words = f"best of these: every {seconds_text(least.every)}"
    nearest = min(found.tried, key=lambda one: abs(one.every - found.daly))
    if nearest is not least:
        saved = least.outcomes.less_than(nearest.outcomes)
        words += f", {saved.seconds:.3g} ± {saved.error:.2g} s less than at Daly's"
    estimates = f"Daly's is {seconds_text(found.daly)}, Young's {seconds_text(found.young)}"
    return f"{words}; {estimates}"
