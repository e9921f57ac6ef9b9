"""The command `ckio failures`: estimate the expected makespan of a run that is killed at times."""

import math
from dataclasses import asdict
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
from ckio.jobs import history
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
@duration_option("--mtbf", help="Mean time between failures of the process, e.g. 6h or 1d.")
@duration_option(
    "--node-mtbf", help="Mean time between failures of the node on which the process runs."
)
@option(
    "--node-level", "node_levels", multiple=True, metavar="LEVEL",
    help="Level whose checkpoints are lost if the node fails. May be repeated.",
)  # fmt: skip
@option(
    "--failures", "trace", type=INPUT, metavar="FILE",
    help="Read the times of failures from this file instead: one per line, TIME [process|node].",
)  # fmt: skip
@duration_option(
    "--restart-time",
    help="Time from a failure until the run continues in a new process.  [default: 0]",
)
@option(
    "--trajectories", type=click.IntRange(1, 1_000_000), metavar="N",
    help=f"Number of simulated runs.  [default: {RUNS}; with --failures, one from the start of its"
    " file]",
)  # fmt: skip
@option(
    "--seed",
    type=click.IntRange(0),
    metavar="N",
    help="Seed of the random times of failures.  [default: 0]",
)
@duration_option(
    "--every",
    help="Time of work between two adjoint checkpoints.  [default: several around Daly's interval]",
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
    """Estimate the expected run time under failures, and the best checkpoint interval.

    Use it before a long run, to choose `ckio run --every`: the time of work between two adjoint
    checkpoints, from which a run is resumed after a failure. N runs (--trajectories) are simulated.
    After each failure a run continues as with `ckio run --resume`: it restarts, reads the
    checkpoints that survived, plans the remaining steps, and executes them. Without --every,
    several intervals are compared; all of them see the same failures.

    If the process fails, the checkpoints on all durable levels survive. If its node fails, those on
    each --node-level are lost; without --node-level, both failures have the same effect. The times
    between two failures are drawn from exponential distributions with the means --mtbf and
    --node-mtbf, or read from the file --failures. In the latter case, one run is simulated, which
    begins at the first line of the file; with --trajectories, N runs begin at random points of it
    and read it repeatedly.

    Planning takes no time in the simulated runs, and an interrupted action is repeated from its
    start. The command itself plans the remaining steps once for each state in which a run fails;
    therefore begin with a few --trajectories if there are many steps.
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
    past = history.earlier(options.get("model"), plan.platform, overlap=False)
    if as_json:
        chain = {"planner": plan.planner, "steps": plan.chain.length}
        spread = {} if past is None else {"earlier": asdict(past)}
        console.print_json({**chain, **figures(expected), **spread, "lossy": rounds})
        return
    console.echo(f"{plan.planner}, {plan.chain.length} steps; ", nl=False)
    show(expected)
    if past is not None:
        console.echo(f"without failures, {past.text()}")
    console.say_lossy(rounds)


def figures(prediction: Forecast, /) -> dict[str, Any]:
    """Return the figures for `--json`: times in seconds, counts, and the share of redone work."""
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
    """Print tables of the intervals that were compared, then the best one and the estimates."""
    runs = len(prediction.tried[0].outcomes.makespan)
    often = f"one failure in {seconds_text(prediction.mean)} on average"
    console.echo(
        f"{often if prediction.mean < math.inf else 'no failures'};"
        f" {runs} simulated run{'s' * (runs > 1)}; makespans in seconds\n"
    )
    header = ["interval", "adjoint stored", "no failure", "expected", *["±"] * (runs > 1)]
    rows = [_row(one) for one in prediction.tried]
    bold = [prediction.tried.index(best(prediction.tried))]
    console.print_table("", [*header, "failures", "redone"], rows, bold=bold)
    if runs > 1:
        title = "makespans that a share of the runs does not exceed"
        shares = [f"{share:.0%}" for share in QUANTILES]
        rows = [_quantile_row(one) for one in prediction.tried]
        console.print_table(title, ["interval", *shares], rows, bold=bold)
    if prediction.level is None:
        console.echo(
            "the adjoint is not stored: no durable level has space for two adjoint checkpoints"
        )
    elif len(prediction.tried) > 1:
        console.echo(_best_line(prediction, prediction.level))


def _row(one: Tried) -> list[str]:
    outcomes, expected = one.outcomes, one.outcomes.expected
    return [
        _interval(one),
        f"{one.adjoints} times",
        f"{outcomes.planned:.6g}",
        f"{expected.seconds:.6g}",
        *[f"{expected.error:.3g}"] * (len(outcomes.makespan) > 1),
        f"{outcomes.failures.mean():.3g}",
        f"{outcomes.share_redone:.1%}",
    ]


def _quantile_row(one: Tried) -> list[str]:
    return [_interval(one), *(f"{seconds:.6g}" for seconds in one.outcomes.quantiles())]


def _interval(one: Tried) -> str:
    return seconds_text(one.every) if one.adjoints else "never"


def _best_line(prediction: Forecast, level: str) -> str:
    """Return the best interval as text, and the time that it saves compared with Daly's."""
    least = best(prediction.tried)
    stored = f"stored every {seconds_text(least.every)} on {level}"
    words = f"best of these: the adjoint is {stored if least.adjoints else 'not stored'}"
    nearest = min(prediction.tried, key=lambda one: abs(one.every - prediction.daly))
    if nearest is not least:
        saved = least.outcomes.less_than(nearest.outcomes)
        error = f" ± {saved.error:.2g}" if math.isfinite(saved.error) else ""
        words += f", which takes {saved.seconds:.3g}{error} s less than Daly's interval"
    daly, young = seconds_text(prediction.daly), seconds_text(prediction.young)
    return f"{words}; Daly's interval is {daly}, Young's is {young}"
