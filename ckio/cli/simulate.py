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
from ckio.jobs.planning import naming_file, plan_of, policy
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule
from ckio.schedule import makespan as sum_of_costs
from ckio.schedule.occupancy import busy_seconds, overlap_savings
from ckio.schedule.policy import SYNCHRONOUS, Overlap, Policy
from ckio.schedule.text import dumps
from ckio.sim.engine import makespan, simulate
from ckio.sim.ranks import Barrier, Ranks, parse_shared
from ckio.sim.ranks.spread import parse_spread

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
    "file", help="Schedule to simulate; - is stdin. Without it, one is planned.", type=INPUT,
    required=False,
)  # fmt: skip
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
@out("-o", "--output", help="Write the timeline to this file; - is stdout.")
@json_option
def command(
    *,
    file: Path | None,
    overlap: Policy | None,
    ranks: Ranks | None,
    shared: dict[str, float],
    output: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Predict when each action of a schedule begins and ends, and how long each level is busy.

    Use it after `ckio plan -o FILE`, to see whether computing or storage limits the run time, and
    what overlap, slower storage or many ranks would change. Without FILE, the schedule is planned
    as by `ckio plan` with these options; for many ranks without overlap, unless --overlap is given.
    FILE contains its platform; --platform simulates the schedule on another one.

    With --overlap, checkpoints are transferred while the model computes. write_behind is the number
    of checkpoints that may wait in memory to be written, and read_ahead the number that may be read
    before they are needed; `all` means as many as fit into memory. No checkpoint is read earlier
    than horizon seconds of computing before its use. Without --overlap, and with `auto`, the policy
    is that for which the schedule was planned.

    With --ranks, N ranks execute the same schedule, each with its own storage levels. The ranks
    divide the bandwidth of the levels that are named by --shared.
    """
    if ranks is None and shared:
        raise BadInput("--shared is for many ranks; give their number with --ranks")
    if ranks is not None and output is not None:
        raise BadInput("--output is for one rank; leave out --ranks")
    display = console.display(quiet=as_json)
    if overlap is None and ranks is not None and file is None:
        overlap = SYNCHRONOUS  # plans with overlap are compared for one rank
    planned, machine = _schedule(file, options, overlap, display)
    used = policy(overlap, planned.overlap, f"of {file or 'the plan'}", display)
    schedule = replace(planned, overlap=used)
    with naming_file(file):
        if ranks is not None:
            show_ranks(schedule, machine, replace(ranks, shared=shared), as_json=as_json)
            return
        with display.progress("simulating", len(schedule), unit="actions") as tick:
            timeline = simulate(schedule, machine, watch=tick)
    figures: dict[str, Any] = {
        "makespan": timeline.makespan,
        "busy": busy_seconds(timeline, machine),
    }
    past = earlier(_model_of(schedule.chain, machine), overlap=bool(used))
    if past:
        figures["earlier"] = past
    if used:
        figures |= {"overlap": str(used), **overlap_savings(schedule, machine, timeline)}
    else:
        figures["sum_of_costs"] = sum_of_costs(schedule, machine)
    if output is not None:
        write_file(output, dumps(schedule, machine, timeline, origin="predicted"))
    figures["lossy"] = lossy(machine)
    if as_json:
        console.print_json({"steps": schedule.chain.length, "actions": len(schedule), **figures})
        return
    _print(schedule, figures, past)
    console.print_lossy(figures["lossy"])
    if output is not None:
        print_written(output)


def _schedule(
    file: Path | None, options: dict[str, Any], overlap: Policy | None, display: Display
) -> tuple[Schedule, Platform]:
    """Return the schedule in a file, or one that is planned, and its platform."""
    if file is not None:
        platform = options.pop("platform")
        for name, value in options.items():
            if value not in (None, {}):
                option = "set" if name == "settings" else name.replace("_", "-")
                raise BadInput(f"{file} is planned already; leave out --{option}, or {file}")
        document = read_document(file)
        return document.schedule, platform_for(document, file, platform)
    if options["steps"] is None and options["costs"] is None:
        raise BadInput(
            "there is nothing to simulate: give FILE, which `ckio plan -o` wrote, or --steps and"
            " the other options of `ckio plan`"
        )
    plan = plan_of(**options, overlap=overlap, display=display)
    return plan.planned(display), plan.platform


def _model_of(chain: Chain, platform: Platform) -> str:
    """Return the model of the platform that has the costs of this chain; "" if there is none."""
    models = platform.models.items()
    return next((name for name, it in models if it == replace(chain, steps=it.steps)), "")


def _print(schedule: Schedule, figures: dict[str, Any], past: str) -> None:
    """Print the makespan of a timeline, and how long each resource is busy."""
    makespan = figures["makespan"]
    steps, actions = schedule.chain.length, len(schedule)
    click.echo(f"{steps} steps, {actions} actions: makespan {makespan:.6g} s")
    if past:
        click.echo(past)
    click.echo()
    share = [
        [name, f"{seconds:.6g}", f"{seconds / makespan:.1%}" if makespan else ""]
        for name, seconds in figures["busy"].items()
    ]
    console.print_table("", ["resource", "busy s", "of the makespan"], share)
    if schedule.overlap:
        click.echo(_overlap_lines(schedule.overlap, figures))
    else:
        click.echo(_agreement(figures))


def _agreement(figures: dict[str, Any]) -> str:
    """Return how the replayed makespan compares with the sum of the costs of all actions."""
    makespan, total = figures["makespan"], figures["sum_of_costs"]
    if makespan == total:
        return "The replayed makespan and the sum of the costs of all actions agree.\n"
    return (
        f"The costs of all actions are {total:.6g} s in all; the replay takes"
        f" {makespan - total:.3g} s more, in which writes wait for a device.\n"
    )


def _overlap_lines(policy: Overlap, figures: dict[str, Any]) -> str:
    """Return the effect of overlap as text."""
    saved = figures["synchronous"] - figures["makespan"]
    last = f"; transfers end {figures['after']:.6g} s after its last action"
    ends = last if figures["after"] else ""
    hidden = f"{figures['hidden']:.1%}" if saved >= 0 else "nothing"
    return (
        f"With {policy.text()}: {abs(saved):.6g} s {'less' if saved >= 0 else 'more'} than the"
        f" {figures['synchronous']:.6g} s without overlap; {hidden} of the transfer time"
        " of far levels is hidden.\n"
        f"The model waits {figures['waiting']:.6g} s for copies and transfers{ends}.\n"
    )


def show_ranks(schedule: Schedule, platform: Platform, ranks: Ranks, /, *, as_json: bool) -> None:
    """Simulate many ranks, and print their times as tables or as JSON.

    Raises BadInput in the same cases as `simulate_ranks`.
    """
    from ckio.sim.ranks.sharing import simulate_ranks
    from ckio.sim.ranks.stretches import is_shared

    transfers = ranks.count * int(is_shared(schedule, platform, ranks).sum())
    display = console.display(quiet=as_json)
    with display.progress("simulating", transfers, unit="transfers") as tick:
        outcome = simulate_ranks(schedule, platform, ranks, watch=tick)
    alone, overlap = makespan(schedule, platform), schedule.overlap
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
        + (f"; with {overlap.text()}\n" if overlap else "\n")
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
