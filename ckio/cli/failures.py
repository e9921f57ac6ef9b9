"""`ckio failures`: the makespan of a run that is killed now and then, before anything is run."""

import math
from pathlib import Path
from typing import Any

import click

from ckio.adapters.registry import lossy
from ckio.cli import console
from ckio.cli.files import INPUT
from ckio.cli.options import (
    cost_options,
    duration_option,
    json_option,
    option,
    planner_options,
    with_example,
)
from ckio.jobs.failing import RUNS, Failing, Forecast, forecast
from ckio.jobs.planning import plan_of
from ckio.platform.readable import seconds_text
from ckio.sim.failures import QUANTILES, Tried, best


@with_example(
    "ckio failures --steps 40 --platform platform.toml --mtbf 1h --every 10m \\\n"
    "    --trajectories 10 --advance 60 --record 60 --reverse 120"
)
@planner_options
@cost_options
@duration_option("--mtbf", help="mean time between failures of the process")
@duration_option("--node-mtbf", help="mean time between losses of its node")
@option(
    "--node-level", "node_levels", multiple=True, metavar="LEVEL",
    help="a level that is lost with the node; may be repeated",
)  # fmt: skip
@option(
    "--failures", "trace", type=INPUT, metavar="FILE",
    help="when something fails, a line each: TIME [process|node]",
)  # fmt: skip
@duration_option("--restart-time", help="from a failure until another process runs  [default: 0]")
@option(
    "--trajectories", type=click.IntRange(1, 1_000_000), metavar="N",
    help=f"runs that fail at random  [default: {RUNS}; one from the start of FILE]",
)  # fmt: skip
@option("--seed", type=click.IntRange(0), help="of the random failures  [default: 0]")
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
    asked = Failing(
        process=mtbf,
        node=node_mtbf,
        node_levels=node_levels,
        restart=restart_time or 0.0,
        trace=trace,
        runs=trajectories,
        seed=seed,
        every=every,
    )
    display = console.display(quiet=as_json)
    plan = plan_of(**options, display=display)
    expected, rounds = forecast(plan, asked, display), lossy(plan.platform)
    if as_json:
        chain = {"planner": plan.planner, "steps": plan.chain.length}
        console.print_json({**chain, **figures(expected), "lossy": rounds})
        return
    console.echo(f"{plan.planner}, {plan.chain.length} steps: ", nl=False)
    show(expected)
    console.say_lossy(rounds)


def figures(prediction: Forecast, /) -> dict[str, Any]:
    """Return what `--json` prints of failures: seconds, counts, and the part that is redone."""
    return {
        "mtbf": prediction.mean,
        "young": prediction.young,
        "daly": prediction.daly,
        "best": best(prediction.tried).every,
        "level": prediction.level,
        "intervals": [_figures(one) for one in prediction.tried],
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


def show(prediction: Forecast, /) -> None:
    """Print the table of the intervals that were tried, and the best beside the estimates."""
    runs = len(prediction.tried[0].outcomes.makespan)
    often = f"one in {seconds_text(prediction.mean)} on the average"
    console.echo(
        f"failures: {often if prediction.mean < math.inf else 'none'};"
        f" {runs} run{'s' * (runs > 1)}, makespans in seconds\n"
    )
    spread = QUANTILES if runs > 1 else ()
    header = ["adjoint stored every", "times", "no failure", "expected"]
    header += ["±"] * bool(spread) + [f"{share:.0%}" for share in spread]
    rows = [_row(one) for one in prediction.tried]
    bold = [prediction.tried.index(best(prediction.tried))]
    console.print_table("", [*header, "failures", "redone"], rows, bold=bold)
    if prediction.level is None:
        console.echo("the adjoint is not stored: no durable level has space for two of them")
    elif len(prediction.tried) > 1:
        console.echo(_said(prediction, prediction.level))


def _row(one: Tried) -> list[str]:
    outcomes, expected = one.outcomes, one.outcomes.expected
    row = [
        seconds_text(one.every) if one.adjoints else "never",
        f"{one.adjoints}",
        f"{outcomes.planned:.6g}",
        f"{expected.seconds:.6g}",
    ]
    if len(outcomes.makespan) > 1:
        row += [f"{expected.error:.3g}", *(f"{seconds:.6g}" for seconds in outcomes.quantiles())]
    return [*row, f"{outcomes.failures.mean():.3g}", f"{outcomes.share_redone:.1%}"]


def _said(prediction: Forecast, level: str) -> str:
    """Return the best interval in words, and by how much it is better than Daly's."""
    least = best(prediction.tried)
    often = f"every {seconds_text(least.every)}" if least.adjoints else "never"
    words = f"best of these: stored {often} on {level}"
    nearest = min(prediction.tried, key=lambda one: abs(one.every - prediction.daly))
    if nearest is not least:
        saved = least.outcomes.less_than(nearest.outcomes)
        error = f" ± {saved.error:.2g}" if math.isfinite(saved.error) else ""
        words += f", {saved.seconds:.3g}{error} s less than at Daly's interval"
    daly, young = seconds_text(prediction.daly), seconds_text(prediction.young)
    return f"{words}; Daly's is {daly}, Young's {young}"
