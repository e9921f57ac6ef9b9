"""The command `ckio simulate`: predict the timeline of a schedule without running the model."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import numpy as np

from ckio.adapters.registry import lossy
from ckio.cli import console
from ckio.cli.files import (
    INPUT,
    out,
    platform_for,
    read_document,
    tell_written,
    write_text,
)
from ckio.cli.options import (
    argument,
    by_variable_option,
    cost_options,
    json_option,
    option,
    overlap_option,
    planner_options,
    read_by,
    together,
    with_example,
)
from ckio.errors import BadInput
from ckio.jobs.display import Display
from ckio.jobs.history import EarlierRuns, earlier
from ckio.jobs.planning import Planning, blamed_on, overlap_figures, plan_of, policy
from ckio.planners.compared import Plan
from ckio.platform import Platform
from ckio.platform.profile import parse_spread
from ckio.schedule import Schedule, makespan
from ckio.schedule.occupancy import busy_seconds, overlap_savings
from ckio.schedule.policy import SYNCHRONOUS, Overlap, Policy
from ckio.schedule.text import dumps
from ckio.sim.engine import Repeated, repeated, simulate
from ckio.sim.ranks import Barrier, Ranks, Shared

if TYPE_CHECKING:
    from ckio.sim.ranks.sharing import RanksOutcome

RANKS_GROUP: Final = "Many ranks, or runs that vary by chance"

_NAMES: Final = ("shared", "spread", "jitter", "barrier", "seed")
"""The options that describe the ranks, except their number."""


def _shared(_context: click.Context, _option: click.Parameter, values: Any) -> Any:
    """Return the shared channels by name; raises BadParameter if a name occurs twice."""
    channels: dict[str, Shared] = {}
    for value in values:
        try:
            name, shared = Shared.parse(value)
        except BadInput as error:
            raise click.BadParameter(str(error)) from None
        if name in channels:
            raise click.BadParameter(f"{name} is given twice")
        channels[name] = shared
    return channels


ranks_options = together(
    option(
        "--ranks", type=click.IntRange(1), metavar="N", group=RANKS_GROUP,
        help="Simulate N ranks that all execute this schedule.",
    ),
    option(
        "--shared", multiple=True, metavar="CHANNEL=BANDWIDTH[,collective]", callback=_shared,
        group=RANKS_GROUP,
        help="Bandwidth of this channel for all ranks together, in bytes per second, e.g."
        " archive=100GB. With collective, a write begins when all ranks have reached it. May be"
        " repeated.",
    ),
    option(
        "--spread", metavar="DIST", callback=read_by(parse_spread), group=RANKS_GROUP,
        help="Distribution of a random factor on the computing time of each rank:"
        " lognormal:SIGMA or quantiles:FACTOR,...  [default: no variation]",
    ),
    option(
        "--jitter", metavar="DIST", callback=read_by(parse_spread), group=RANKS_GROUP,
        help="Distribution of a random factor on the time of each step of each rank, in the"
        " same form.  [default: no variation]",
    ),
    option(
        "--barrier", type=click.Choice([barrier.value for barrier in Barrier]), group=RANKS_GROUP,
        help="When all ranks wait for the slowest: none, never; step, after each step; stretch,"
        " before each transfer on a shared channel.  [default: none]",
    ),
    option(
        "--seed", type=click.IntRange(0), metavar="N", group=RANKS_GROUP,
        help="Seed of the random numbers.  [default: 0]",
    ),
)  # fmt: skip
"""The options about ranks, which `ranks_of` reads."""


def ranks_of(options: dict[str, Any], /) -> Ranks | None:
    """Remove the options about ranks from `options`, and return the ranks; None without `--ranks`.

    Raises BadInput if an option describes the ranks, but `--ranks` does not give their number.
    """
    count = options.pop("ranks")
    given = {name: value for name in _NAMES if (value := options.pop(name)) not in (None, {})}
    if count is None:
        if given:
            raise BadInput(
                f"--{next(iter(given))} is for many ranks; give their number with --ranks"
            )
        return None
    if "barrier" in given:
        given["barrier"] = Barrier(given["barrier"])
    return Ranks(count=count, **given)


@with_example("ckio simulate plan.txt --overlap all")
@argument("file", "Schedule to simulate. Without it, one is planned.", type=INPUT, required=False)
@planner_options
@cost_options
@overlap_option
@by_variable_option
@ranks_options
@option(
    "--repeat", type=click.IntRange(2), metavar="N", group=RANKS_GROUP,
    help="Simulate N runs whose times vary randomly, as much as calibration measured.",
)  # fmt: skip
@out("-o", "--output", help="Write the timeline to this file; - is stdout.")
@json_option
def command(
    *,
    file: Path | None,
    overlap: Policy | None,
    repeat: int | None,
    output: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Predict when each action of a schedule begins and ends, and how long each level is busy.

    Use it after `ckio plan`, to see whether computing or storage limits the run time, and what
    overlap, slower storage or many ranks would change. The schedule is read from FILE, which `ckio
    plan -o` wrote; without FILE, it is planned with the options of `ckio plan`. A FILE contains its
    platform; --platform simulates the schedule on another one.

    With --overlap, checkpoints are transferred while the model computes. write_behind is the number
    of checkpoints that may wait in memory to be written, and read_ahead the number that may be read
    before they are needed; `all` means as many as fit into memory. No checkpoint is read earlier
    than horizon seconds of computing before its use. `auto` means the fastest policy for a new
    plan; a FILE keeps its own policy then, as it does without --overlap.

    With --ranks, N ranks execute the same schedule, each with its own storage levels. The ranks
    divide the bandwidth of the levels that are named by --shared.

    With --repeat, the times of N runs are drawn from the distributions that `ckio calibrate
    --model` measured. The interval that contains nine of ten run times is printed.

    With --by-variable, each array of the state of --model is stored separately, and only when it is
    needed, as `ckio run --by-variable` does.
    """
    seed = _seed(options, repeat)
    ranks = ranks_of(options)
    display = console.display(quiet=as_json)
    schedule, platform, plan = _planned(file, options, overlap, many=bool(ranks), display=display)
    overlap = policy(overlap, schedule.overlap, f"of {file or 'the plan'}", display)
    if ranks is not None:
        if output is not None:
            raise BadInput(
                "--output writes the timeline of one rank; leave out --output or --ranks"
            )
        with blamed_on(file):
            simulate_and_say(schedule, platform, ranks, overlap, as_json=as_json)
        return
    bar = display.progress("simulating", len(schedule), unit="actions")
    with bar as tick, blamed_on(file):
        timeline = simulate(schedule, platform, overlap=overlap, watch=tick)
    runs = None
    if repeat is not None:
        bar = display.progress("repeating", repeat * len(schedule), unit="actions")
        with bar as tick, blamed_on(file):
            runs = repeated(schedule, platform, repeat, overlap=overlap, seed=seed, watch=tick)
    if output is not None:
        text = dumps(schedule, platform, timeline, overlap=overlap, origin="predicted")
        write_text(output, text)
    figures: dict[str, Any] = {
        "makespan": timeline.makespan,
        "busy": busy_seconds(timeline, platform),
    }
    name = options.get("model")
    past = earlier(name, platform, overlap=bool(overlap))
    if past is not None:
        figures["earlier"] = asdict(past)
    if isinstance(schedule, Plan) and plan is not None and plan.decides:
        decided = replace(schedule, overlap=overlap, makespan=timeline.makespan)
        figures |= overlap_figures(decided) | {"note": schedule.note}
    if overlap:
        figures |= {"overlap": str(overlap), **overlap_savings(schedule, platform, timeline)}
    else:
        figures["sum_of_costs"] = makespan(schedule, platform)
    if runs is not None:
        figures["repeat"] = _interval(runs)
    figures["lossy"] = lossy(platform)
    if as_json:
        console.print_json({"steps": schedule.chain.length, "actions": len(schedule), **figures})
        return
    _print(schedule, figures, overlap, past)
    console.say("" if plan is None else plan.not_considered)
    console.say_lossy(figures["lossy"])
    if output is not None:
        tell_written(output)


def _print(
    schedule: Schedule, figures: dict[str, Any], overlap: Overlap, past: EarlierRuns | None
) -> None:
    """Print the makespan of a timeline, its variation, and how long each resource is busy."""
    makespan = figures["makespan"]
    steps, actions = schedule.chain.length, len(schedule)
    console.echo(f"{steps} steps, {actions} actions: makespan {makespan:.6g} s")
    if "repeat" in figures:
        console.echo(_repeated_line(figures["repeat"]))
    elif past is not None:
        console.echo(past.text())
    console.echo()
    if "note" in figures:
        console.echo(f"{figures['note']}\n")
    share = [
        [name, f"{seconds:.6g}", f"{seconds / makespan:.1%}" if makespan else ""]
        for name, seconds in figures["busy"].items()
    ]
    console.print_table("", ["resource", "busy s", "of the makespan"], share)
    console.echo(_overlap_lines(overlap, figures) if overlap else _agreement(figures))


def _agreement(figures: dict[str, Any]) -> str:
    """Return how the replayed makespan compares with the sum of the costs of all actions."""
    makespan, total = figures["makespan"], figures["sum_of_costs"]
    if makespan == total:
        return "The replayed makespan and the sum of the costs of all actions agree.\n"
    return (
        f"The costs of all actions are {total:.6g} s in all; the replay takes"
        f" {makespan - total:.3g} s more, in which writes wait for a device.\n"
    )


def _seed(options: dict[str, Any], repeat: int | None) -> int:
    """Return the seed of repeated runs; remove it from `options` unless it is for ranks.

    Raises BadInput if both `--ranks` and `--repeat` are given, or a seed and neither of them.
    """
    seed = options["seed"]
    if options["ranks"] is not None:
        if repeat is not None:
            raise BadInput("--repeat is for one rank; leave out --ranks")
    elif seed is not None:
        if repeat is None:
            raise BadInput("--seed is for random numbers; give --ranks or --repeat as well")
        options["seed"] = None
    return seed or 0


def _interval(runs: Repeated) -> dict[str, float]:
    """Return the number of runs, the mean of their makespans, and the 5, 50 and 95 % quantiles."""
    parts = {"p05": 0.05, "p50": 0.5, "p95": 0.95}
    quantiles = {name: runs.quantile(part) for name, part in parts.items()}
    return {"runs": len(runs.makespans), "mean": runs.mean, **quantiles}


def _repeated_line(figures: dict[str, float]) -> str:
    return (
        f"of {figures['runs']} runs, nine of ten take {figures['p05']:.6g} to"
        f" {figures['p95']:.6g} s; half of them up to {figures['p50']:.6g} s, the mean is"
        f" {figures['mean']:.6g} s"
    )


def _overlap_lines(policy: Overlap, figures: dict[str, Any]) -> str:
    """Return the effect of overlap as text."""
    saved = figures["synchronous"] - figures["makespan"]
    last = f"; transfers end {figures['after']:.6g} s after its last action"
    ends = last if figures["after"] else ""
    hidden = f"{figures['hidden']:.1%}" if saved >= 0 else "nothing"
    return (
        f"With {policy}: {abs(saved):.6g} s {'less' if saved >= 0 else 'more'} than the"
        f" {figures['synchronous']:.6g} s without overlap; {hidden} of the transfer time"
        " of far levels is hidden.\n"
        f"The model waits {figures['waiting']:.6g} s for copies and transfers{ends}.\n"
    )


def _planned(
    file: Path | None,
    options: dict[str, Any],
    overlap: Policy | None,
    *,
    many: bool,
    display: Display,
) -> tuple[Schedule, Platform, Planning | None]:
    """Return the schedule and its platform; and the planning, if the schedule is not from a file.

    Plans with overlap are compared for one rank and with whole checkpoints. Therefore they are not
    the default for `many` ranks, nor if variables are stored separately.
    """
    by_variable = options.pop("by_variable")
    if file is None:
        if options["steps"] is None and options["costs"] is None:
            raise BadInput(
                "there is nothing to simulate: give FILE, which `ckio plan -o` wrote, or --steps"
                " and the other options of `ckio plan`"
            )
        if overlap is None and many:
            overlap = SYNCHRONOUS
        plan = plan_of(**options, overlap=overlap, by_variable=by_variable, display=display)
        return plan.planned(display), plan.platform, plan
    other = options.pop("platform")
    options["by_variable"] = by_variable or None
    given = [name for name, value in options.items() if value not in (None, {})]
    if given:
        name = "set" if given[0] == "settings" else given[0].replace("_", "-")
        raise BadInput(f"{file} is planned already; leave out --{name}, or leave out {file}")
    document = read_document(file)
    return document.schedule, platform_for(document, file, other), None


def simulate_and_say(
    schedule: Schedule, platform: Platform, ranks: Ranks, overlap: Overlap, /, *, as_json: bool
) -> None:
    """Simulate many ranks, and print their times as tables or as JSON.

    Raises BadInput in the same cases as `simulate_ranks`.
    """
    from ckio.sim.ranks.sharing import simulate_ranks
    from ckio.sim.ranks.stretches import is_shared

    transfers = ranks.count * int(is_shared(schedule, platform, ranks).sum())
    display = console.display(quiet=as_json)
    with display.progress("simulating", transfers, unit="transfers") as tick:
        outcome = simulate_ranks(schedule, platform, ranks, overlap=overlap, watch=tick)
    alone = (
        simulate(schedule, platform, overlap=overlap).makespan
        if overlap
        else makespan(schedule, platform)
    )
    figures = _rank_figures(outcome, alone)
    if overlap:
        figures["overlap"] = str(overlap)
    if as_json:
        size = {"steps": schedule.chain.length, "actions": len(schedule), "ranks": ranks.count}
        console.print_json({**size, **figures, "lossy": lossy(platform)})
        return
    console.echo(
        f"{ranks.count} ranks, {schedule.chain.length} steps, {len(schedule)} actions:"
        f" makespan {outcome.makespan:.6g} s, {alone:.6g} s for one rank alone"
        + (f"; with {overlap}\n" if overlap else "\n")
    )
    _print_rank_tables(figures)
    console.say_lossy(lossy(platform))


def _rank_figures(outcome: "RanksOutcome", alone: float) -> dict[str, Any]:
    """Return the figures of an outcome, in seconds and bytes."""
    return {
        "makespan": outcome.makespan,
        "alone": alone,
        "slowest": outcome.slowest,
        "finish": _over_ranks(outcome.finish),
        "waited": _over_ranks(outcome.waited),
        "channels": {
            name: {
                "bandwidth": use.bandwidth,
                "achieved": use.achieved,
                "bytes": use.nbytes,
                "busy": use.busy,
                "most": use.most,
                "slowed": _over_ranks(use.slowed),
            }
            for name, use in outcome.channels.items()
        },
    }


def _over_ranks(seconds: Any) -> dict[str, float]:
    """Return the least, the median and the largest value of all ranks."""
    least, median, most = np.quantile(seconds, (0.0, 0.5, 1.0)).tolist()
    return {"least": least, "median": median, "most": most}


def _print_rank_tables(figures: dict[str, Any]) -> None:
    rows = {"finish": figures["finish"], "waited for others": figures["waited"]}
    rows |= {f"slowed on {name}": use["slowed"] for name, use in figures["channels"].items()}
    console.print_table(
        "",
        ["seconds of a rank", "least", "median", "most"],
        [[name, *(f"{value:.6g}" for value in of.values())] for name, of in rows.items()],
    )
    uses = [
        [
            name,
            *(f"{use[entry]:.4g}" for entry in ("bandwidth", "achieved", "bytes", "busy")),
            str(use["most"]),
        ]
        for name, use in figures["channels"].items()
    ]
    if uses:
        header = ["shared channel", "bytes/s", "achieved", "bytes", "busy s", "peak ranks"]
        console.print_table("", header, uses)
