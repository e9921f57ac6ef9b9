"""`ckio simulate`: a schedule's timeline before it costs anything."""

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
    by_variable_option,
    cost_options,
    effort_option,
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
from ckio.jobs.history import Interval, expected
from ckio.jobs.planning import Planning, blamed_on, overlap_figures, plan_of, policy
from ckio.planners.compared import Planned
from ckio.platform import Platform
from ckio.platform.profile import parse_spread
from ckio.schedule import Schedule, makespan
from ckio.schedule.occupancy import busy_seconds, overlap_savings
from ckio.schedule.policy import SYNCHRONOUS, Overlap, Policy
from ckio.schedule.text import Document, dumps
from ckio.sim.engine import Repeated, repeated, simulate
from ckio.sim.ranks import Barrier, Ranks, Shared

if TYPE_CHECKING:
    from ckio.sim.ranks.sharing import RanksOutcome

RANKS_GROUP: Final = "Many ranks, or runs that vary by chance"

_NAMES: Final = ("shared", "spread", "jitter", "barrier", "seed")
"""The options that say something of ranks, beside their number."""


def _shared(_context: click.Context, _option: click.Parameter, values: Any) -> Any:
    """Return shared channels by name; none is named twice."""
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
        help="simulate so many ranks, all with this schedule",
    ),
    option(
        "--shared", multiple=True, metavar="CHANNEL=BANDWIDTH[,collective]", callback=_shared,
        group=RANKS_GROUP,
        help="bytes per second of all ranks together, e.g. archive=100GB; may be repeated;"
        " collective: writes begin when all ranks have come",
    ),
    option(
        "--spread", metavar="DRAWN", callback=read_by(parse_spread), group=RANKS_GROUP,
        help="a factor on the computing of each rank: lognormal:SIGMA or quantiles:FACTOR,...",
    ),
    option(
        "--jitter", metavar="DRAWN", callback=read_by(parse_spread), group=RANKS_GROUP,
        help="one on each step of each rank",
    ),
    option(
        "--barrier", type=click.Choice([barrier.value for barrier in Barrier]), group=RANKS_GROUP,
        help="when all ranks wait for the slowest: never, after each step, or before each transfer"
        " on a shared channel",
    ),
    option(
        "--seed", type=click.IntRange(0), group=RANKS_GROUP,
        help="which factors are drawn  [default: 0]",
    ),
)  # fmt: skip
"""The options of `--ranks`, which `ranks_of` takes up."""


def ranks_of(options: dict[str, Any], /) -> Ranks | None:
    """Return the ranks that the options ask for, which are taken out; None without `--ranks`.

    Raises BadInput where something is said of ranks, but not how many there are.
    """
    count = options.pop("ranks")
    given = {name: value for name in _NAMES if (value := options.pop(name)) not in (None, {})}
    if count is None:
        if given:
            raise BadInput(f"--{next(iter(given))} is for many ranks; say how many: --ranks")
        return None
    if "barrier" in given:
        given["barrier"] = Barrier(given["barrier"])
    return Ranks(count=count, **given)


@with_example("ckio simulate plan.txt --overlap all")
@click.argument("file", type=INPUT, required=False)
@planner_options
@cost_options
@overlap_option
@effort_option
@by_variable_option
@ranks_options
@option(
    "--repeat", type=click.IntRange(2), metavar="N", group=RANKS_GROUP,
    help="simulate so many runs, which vary by chance as calibration saw it",
)  # fmt: skip
@out("-o", "--output", help="write the timeline to this file; - is stdout")
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
    """Simulate the schedule in FILE, or the one that the planning options ask for.

    A schedule that `ckio plan -o` wrote knows its platform; --platform simulates it on another.

    With --overlap, I/O overlaps with computation: so many checkpoints may wait to be written, and
    so many be read before they are needed (`all`: as many as memory has space for), none earlier
    than so many seconds of computing before its use. With `auto` the plan is the best of all,
    synchronous and overlapped. A FILE is simulated with the policy that it was planned for.

    With --ranks, so many ranks have this schedule, each with levels of its own; those that are
    --shared have one bandwidth for all.

    With --repeat, times are drawn from the distributions that `ckio calibrate --model` found, as
    --seed says, and of so many runs the interval is told that holds nine of ten.

    With --by-variable the plan is on single variables of --model, as `ckio run` does it.
    """
    seed = _seed(options, repeat)
    ranks = ranks_of(options)
    display = console.display(quiet=as_json)
    planned, platform, plan = _planned(file, options, overlap, many=bool(ranks), display=display)
    schedule = planned.schedule
    overlap = policy(overlap, planned.overlap, f"of {file or 'the plan'}", display)
    if ranks is not None:
        if output is not None:
            raise BadInput("--ranks has no timeline to write; leave out --output")
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
    name = options.get("model") or next(iter(platform.models), "")
    interval = expected(timeline.makespan, name, platform, overlap=bool(overlap))
    if interval is not None:
        figures["interval"] = asdict(interval)
    if isinstance(planned, Planned) and plan is not None and plan.decides:
        decided = replace(planned, overlap=overlap, makespan=timeline.makespan)
        figures |= overlap_figures(decided) | {"note": schedule.note}
    if overlap:
        figures |= {"overlap": str(overlap), **overlap_savings(schedule, platform, timeline)}
    if runs is not None:
        figures["repeat"] = _interval(runs)
    figures["lossy"] = lossy(platform)
    if as_json:
        console.print_json({"steps": schedule.chain.length, "actions": len(schedule), **figures})
        return
    _print(schedule, figures, overlap, interval)
    console.say("" if plan is None else plan.not_considered)
    console.say_lossy(figures["lossy"])
    if output is not None:
        tell_written(output)


def _print(
    schedule: Schedule, figures: dict[str, Any], overlap: Overlap, interval: Interval | None
) -> None:
    """Print a timeline's makespan, how it varies, and who is busy how long."""
    makespan = figures["makespan"]
    steps, actions = schedule.chain.length, len(schedule)
    console.echo(f"{steps} steps, {actions} actions: makespan {makespan:.6g} s")
    if "repeat" in figures:
        console.echo(_told(figures["repeat"]))
    elif interval is not None:
        console.echo(interval.said())
    console.echo()
    if "note" in figures:
        console.echo(f"{figures['note']}\n")
    share = [
        [name, f"{seconds:.6g}", f"{seconds / makespan:.1%}" if makespan else ""]
        for name, seconds in figures["busy"].items()
    ]
    console.print_table("", ["resource", "busy s", "of the makespan"], share)
    if overlap:
        console.echo(_said(overlap, figures))


def _seed(options: dict[str, Any], repeat: int | None) -> int:
    """Return the seed of the runs, which is taken out of the options where it is not of ranks.

    Raises BadInput where nothing is drawn, or both.
    """
    seed = options["seed"]
    if options["ranks"] is not None:
        if repeat is not None:
            raise BadInput("--repeat is for one rank; leave out --ranks")
    elif seed is not None:
        if repeat is None:
            raise BadInput("--seed is for what is drawn: say how many, --ranks or --repeat")
        options["seed"] = None
    return seed or 0


def _interval(runs: Repeated) -> dict[str, float]:
    """Return the mean of many makespans, and what 5, 50 and 95 % of them do not exceed."""
    parts = {"p05": 0.05, "p50": 0.5, "p95": 0.95}
    quantiles = {name: runs.quantile(part) for name, part in parts.items()}
    return {"runs": len(runs.makespans), "mean": runs.mean, **quantiles}


def _told(figures: dict[str, float]) -> str:
    return (
        f"of {figures['runs']} runs, nine of ten take {figures['p05']:.6g} to"
        f" {figures['p95']:.6g} s; half of them up to {figures['p50']:.6g} s, the mean is"
        f" {figures['mean']:.6g} s"
    )


def _said(policy: Overlap, figures: dict[str, Any]) -> str:
    """Return what overlap does, in words."""
    saved = figures["synchronous"] - figures["makespan"]
    ends = f"; transfers go on for {figures['after']:.6g} s after it" if figures["after"] else ""
    hidden = f"{figures['hidden']:.1%}" if saved >= 0 else "nothing"
    return (
        f"With {policy}: {abs(saved):.6g} s {'less' if saved >= 0 else 'more'} than the"
        f" {figures['synchronous']:.6g} s without overlap; {hidden} of the time for far levels is"
        " hidden.\n"
        f"The program itself copies and waits for {figures['waiting']:.6g} s{ends}.\n"
    )


def _planned(
    file: Path | None,
    options: dict[str, Any],
    overlap: Policy | None,
    *,
    many: bool,
    display: Display,
) -> tuple[Planned | Document, Platform, Planning | None]:
    """Return the schedule, the platform, and what a planner said of it, if one was asked.

    Plans that overlap are compared for one rank and with whole checkpoints: they are no default for
    `many` ranks, nor by variable.
    """
    by_variable = options.pop("by_variable")
    if file is None:
        if options["steps"] is None and options["costs"] is None:
            raise BadInput(
                "there is nothing to simulate: give FILE, which `ckio plan -o` wrote, or --steps"
                " and what else a plan needs"
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
    return document, platform_for(document, file, other), None


def simulate_and_say(
    schedule: Schedule, platform: Platform, ranks: Ranks, overlap: Overlap, /, *, as_json: bool
) -> None:
    """Simulate many ranks, and print what comes of it as a table or as JSON.

    Raises BadInput as `simulate_ranks` does.
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
        f" makespan {outcome.makespan:.6g} s, {alone:.6g} s for one alone"
        + (f"; with {overlap}\n" if overlap else "\n")
    )
    _print_rank_tables(figures)
    console.say_lossy(lossy(platform))


def _rank_figures(outcome: "RanksOutcome", alone: float) -> dict[str, Any]:
    """Return what is said of an outcome, in seconds and bytes."""
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
    """Return the least, the median and the most of all ranks."""
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
        header = ["shared channel", "bytes/s", "achieved", "bytes", "busy s", "most ranks at once"]
        console.print_table("", header, uses)
