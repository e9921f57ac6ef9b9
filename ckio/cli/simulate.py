"""The command `ckio simulate`: predict the timeline of a schedule without running the model."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click
import numpy as np

from ckio.adapters.registry import lossy
from ckio.cli import console
from ckio.cli.files import (
    INPUT,
    out,
    platform_for,
    print_written,
    read_document,
    write_file,
)
from ckio.cli.options import (
    cost_options,
    json_option,
    overlap_option,
    planner_options,
    read_by,
    with_example,
)
from ckio.errors import BadInput
from ckio.jobs.display import Display
from ckio.jobs.history import earlier
from ckio.jobs.planning import Planning, blamed_on, overlap_figures, plan_of, policy
from ckio.planners.compared import Plan
from ckio.platform import Platform
from ckio.platform.profile import parse_spread
from ckio.schedule import Schedule, makespan
from ckio.schedule.occupancy import busy_seconds, overlap_savings
from ckio.schedule.policy import SYNCHRONOUS, Overlap, Policy
from ckio.schedule.text import dumps
from ckio.sim.engine import Repeated, repeated, simulate
from ckio.sim.ranks import Barrier, Ranks, parse_shared

_OF_RANKS: Final[dict[str, Callable[[str], Any]]] = {
    "spread": parse_spread,
    "jitter": parse_spread,
    "barrier": Barrier,
    "seed": int,
}
"""The options of ranks, as `Ranks` has them, and the functions that read their values."""


def ranks_in(text: str, /) -> Ranks:
    """Return the ranks of a text N[,OPTION=VALUE]...; raises BadInput for any other text.

    >>> ranks_in("8,jitter=quantiles:1,1,3,barrier=step").jitter
    Quantiles(factors=(1.0, 1.0, 3.0))
    """
    count, *options = re.split(r",(?=[a-z]+=)", text)
    pairs = [option.partition("=") for option in options]
    try:
        given = {name: _OF_RANKS[name](value) for name, _, value in pairs}
        number = int(count)
    except BadInput:
        raise
    except (KeyError, ValueError):
        raise BadInput(
            f"{text!r} is not N[,spread=DIST][,jitter=DIST][,barrier=none|step|stretch][,seed=N]"
        ) from None
    return Ranks(count=number, **given)


def _shared(texts: tuple[str, ...]) -> dict[str, float]:
    """Return the shared channels by name; raises BadInput if a name occurs twice."""
    channels = dict(map(parse_shared, texts))
    if len(channels) < len(texts):
        raise BadInput("a channel is given twice")
    return channels


@with_example("ckio simulate plan.txt --overlap all")
@click.argument(
    "file", help="Schedule to simulate. Without it, one is planned.", type=INPUT, required=False
)
@planner_options
@cost_options
@overlap_option
@click.option(
    "--ranks", metavar="N[,...]", callback=read_by(ranks_in),
    help="Simulate N ranks that all execute this schedule. Options of their own:"
    " spread=DIST, a random factor on the computing time of each rank; jitter=DIST, one on each"
    " step of each rank; DIST is lognormal:SIGMA or quantiles:FACTOR,...; barrier=step or"
    " barrier=stretch, all ranks wait for each other after each step, or before each transfer on a"
    " shared channel; seed=N, of the random numbers.",
)  # fmt: skip
@click.option(
    "--shared", multiple=True, metavar="CHANNEL=BANDWIDTH", callback=read_by(_shared),
    help="Bandwidth of this channel for all ranks together, in bytes per second, e.g."
    " archive=100GB. May be repeated.",
)  # fmt: skip
@click.option(
    "--repeat", type=click.IntRange(2), metavar="N",
    help="Simulate N runs whose times vary randomly, as much as calibration measured.",
)  # fmt: skip
@out("-o", "--output", help="Write the timeline to this file; - is stdout.")
@json_option
def command(
    *,
    file: Path | None,
    overlap: Policy | None,
    ranks: Ranks | None,
    shared: dict[str, float],
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
    """
    _check(ranks, shared, {"output": output, "repeat": repeat})
    display = console.display(quiet=as_json)
    schedule, platform, plan = _planned(file, options, overlap, many=bool(ranks), display=display)
    overlap = policy(overlap, schedule.overlap, f"of {file or 'the plan'}", display)
    if ranks is not None:
        with blamed_on(file):
            show_ranks(schedule, platform, replace(ranks, shared=shared), overlap, as_json=as_json)
        return
    bar = display.progress("simulating", len(schedule), unit="actions")
    with bar as tick, blamed_on(file):
        timeline = simulate(schedule, platform, overlap=overlap, watch=tick)
    figures: dict[str, Any] = {
        "makespan": timeline.makespan,
        "busy": busy_seconds(timeline, platform),
    }
    past = earlier(options.get("model"), platform, overlap=bool(overlap))
    if past:
        figures["earlier"] = past
    if isinstance(schedule, Plan) and plan is not None and plan.decides:
        decided = replace(schedule, overlap=overlap, makespan=timeline.makespan)
        figures |= overlap_figures(decided) | {"note": schedule.note}
    if overlap:
        figures |= {"overlap": str(overlap), **overlap_savings(schedule, platform, timeline)}
    else:
        figures["sum_of_costs"] = makespan(schedule, platform)
    if repeat is not None:
        bar = display.progress("repeating", repeat * len(schedule), unit="actions")
        with bar as tick, blamed_on(file):
            figures["repeat"] = _interval(
                repeated(schedule, platform, repeat, overlap=overlap, watch=tick)
            )
    if output is not None:
        text = dumps(schedule, platform, timeline, overlap=overlap, origin="predicted")
        write_file(output, text)
    figures["lossy"] = lossy(platform)
    if as_json:
        console.print_json({"steps": schedule.chain.length, "actions": len(schedule), **figures})
        return
    _print(schedule, figures, overlap, past)
    if plan is not None and plan.not_considered:
        click.echo(plan.not_considered)
    console.print_lossy(figures["lossy"])
    if output is not None:
        print_written(output)


def _check(ranks: Ranks | None, shared: Any, of_one_rank: dict[str, Any]) -> None:
    """Raise BadInput if an option is for many ranks and there is one, or the other way round."""
    if ranks is None and shared:
        raise BadInput("--shared is for many ranks; give their number with --ranks")
    for name, given in of_one_rank.items():
        if ranks is not None and given is not None:
            raise BadInput(f"--{name} is for one rank; leave out --ranks")


def _print(schedule: Schedule, figures: dict[str, Any], overlap: Overlap, past: str) -> None:
    """Print the makespan of a timeline, its variation, and how long each resource is busy."""
    makespan = figures["makespan"]
    steps, actions = schedule.chain.length, len(schedule)
    click.echo(f"{steps} steps, {actions} actions: makespan {makespan:.6g} s")
    if "repeat" in figures:
        click.echo(_repeated_line(figures["repeat"]))
    elif past:
        click.echo(past)
    click.echo()
    if "note" in figures:
        click.echo(f"{figures['note']}\n")
    share = [
        [name, f"{seconds:.6g}", f"{seconds / makespan:.1%}" if makespan else ""]
        for name, seconds in figures["busy"].items()
    ]
    console.print_table("", ["resource", "busy s", "of the makespan"], share)
    click.echo(_overlap_lines(overlap, figures) if overlap else _agreement(figures))


def _agreement(figures: dict[str, Any]) -> str:
    """Return how the replayed makespan compares with the sum of the costs of all actions."""
    makespan, total = figures["makespan"], figures["sum_of_costs"]
    if makespan == total:
        return "The replayed makespan and the sum of the costs of all actions agree.\n"
    return (
        f"The costs of all actions are {total:.6g} s in all; the replay takes"
        f" {makespan - total:.3g} s more, in which writes wait for a device.\n"
    )


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

    Plans with overlap are compared for one rank. Therefore they are not the default for `many`.
    """
    if file is None:
        if options["steps"] is None and options["costs"] is None:
            raise BadInput(
                "there is nothing to simulate: give FILE, which `ckio plan -o` wrote, or --steps"
                " and the other options of `ckio plan`"
            )
        if overlap is None and many:
            overlap = SYNCHRONOUS
        plan = plan_of(**options, overlap=overlap, display=display)
        return plan.planned(display), plan.platform, plan
    other = options.pop("platform")
    given = [name for name, value in options.items() if value not in (None, {})]
    if given:
        name = "set" if given[0] == "settings" else given[0].replace("_", "-")
        raise BadInput(f"{file} is planned already; leave out --{name}, or leave out {file}")
    document = read_document(file)
    return document.schedule, platform_for(document, file, other), None


def show_ranks(
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
    channels: dict[str, dict[str, Any]] = {
        name: {
            "bandwidth": use.bandwidth,
            "achieved": use.achieved,
            "bytes": use.nbytes,
            "busy": use.busy,
            "most": use.most,
            "slowed": _over_ranks(use.slowed),
        }
        for name, use in outcome.channels.items()
    }
    finish, waited = _over_ranks(outcome.finish), _over_ranks(outcome.waited)
    if as_json:
        figures = {
            "steps": schedule.chain.length,
            "actions": len(schedule),
            "ranks": ranks.count,
            "makespan": outcome.makespan,
            "alone": alone,
            "slowest": outcome.slowest,
            "finish": finish,
            "waited": waited,
            "channels": channels,
            "lossy": lossy(platform),
        }
        console.print_json(figures | ({"overlap": str(overlap)} if overlap else {}))
        return
    click.echo(
        f"{ranks.count} ranks, {schedule.chain.length} steps, {len(schedule)} actions:"
        f" makespan {outcome.makespan:.6g} s, {alone:.6g} s for one rank alone"
        + (f"; with {overlap}\n" if overlap else "\n")
    )
    seconds = {"finish": finish, "waited for others": waited}
    seconds |= {f"slowed on {name}": use["slowed"] for name, use in channels.items()}
    console.print_table(
        "",
        ["seconds of a rank", "least", "median", "most"],
        [[name, *(f"{value:.6g}" for value in of.values())] for name, of in seconds.items()],
    )
    if channels:
        header = ["shared channel", "bytes/s", "achieved", "bytes", "busy s", "peak ranks"]
        uses = [
            [name, *(f"{value:.4g}" for value in list(use.values())[:-1])]
            for name, use in channels.items()
        ]
        console.print_table("", header, uses)
    console.print_lossy(lossy(platform))


def _over_ranks(seconds: Any) -> dict[str, float]:
    """Return the least, the median and the largest value of all ranks."""
    least, median, most = np.quantile(seconds, (0.0, 0.5, 1.0)).tolist()
    return {"least": least, "median": median, "most": most}
