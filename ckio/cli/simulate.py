"""`ckio simulate`: a schedule's timeline before it costs anything."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from ckio.actions.columns import WRITE
from ckio.adapters.registry import lossy
from ckio.cli import console
from ckio.cli.files import (
    INPUT,
    blamed_on,
    out,
    platform_for,
    read_document,
    tell_written,
    write_text,
)
from ckio.cli.levels import say_lossy
from ckio.cli.options import (
    cost_options,
    effort_option,
    json_option,
    overlap_option,
    planner_options,
)
from ckio.cli.plan import by_variable_option, plan_by_variable
from ckio.cli.plans import plan_of
from ckio.cli.ranks import ranks_of, ranks_options, simulate_and_say
from ckio.errors import BadInput
from ckio.jobs.planning import Planning, overlap_figures, policy
from ckio.planners.compared import Planned
from ckio.platform import Platform, memory_level
from ckio.schedule import Schedule, makespan, seconds_of
from ckio.schedule.occupancy import accesses, waits
from ckio.schedule.policy import SYNCHRONOUS, Overlap, Policy
from ckio.schedule.text import Document, dumps
from ckio.schedule.timeline import Timeline
from ckio.sim.engine import Repeated, repeated, simulate


@click.command()
@click.argument("file", type=INPUT, required=False)
@planner_options
@cost_options
@overlap_option
@effort_option
@ranks_options
@click.option(
    "--repeat",
    type=click.IntRange(2),
    metavar="N",
    help="simulate so many runs, which vary by chance as calibration saw it",
)
@out("-o", "--output", help="write the timeline to this file; - is stdout")
@by_variable_option
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
    so many be read before they are needed (`all`: as many as memory has room for), none earlier
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
    planned, platform, plan = _planned(file, options, overlap, many=bool(ranks), quiet=as_json)
    schedule = planned.schedule
    overlap = policy(
        overlap, planned.overlap, f"of {file or 'the plan'}", console.display(quiet=as_json)
    )
    if ranks is not None:
        if output is not None:
            raise BadInput("--ranks has no timeline to write; leave out --output")
        with blamed_on(file):
            simulate_and_say(schedule, platform, ranks, overlap, as_json=as_json)
        return
    bar = console.progress("simulating", len(schedule), unit="actions", quiet=as_json)
    with bar as tick, blamed_on(file):
        timeline = simulate(schedule, platform, overlap=overlap, watch=tick)
    runs = None
    if repeat is not None:
        bar = console.progress("repeating", repeat * len(schedule), unit="actions", quiet=as_json)
        with bar as tick, blamed_on(file):
            runs = repeated(schedule, platform, repeat, overlap=overlap, seed=seed, watch=tick)
    if output is not None:
        text = dumps(schedule, platform, timeline, overlap=overlap, origin="predicted")
        write_text(output, text)
    found: dict[str, Any] = {"makespan": timeline.makespan, "busy": busy(timeline, platform)}
    if isinstance(planned, Planned) and plan is not None and plan.decides:
        decided = replace(planned, overlap=overlap, makespan=timeline.makespan)
        found |= overlap_figures(decided) | {"note": schedule.note}
    if overlap:
        found |= {"overlap": str(overlap), **hidden(schedule, platform, timeline)}
    if runs is not None:
        found["repeat"] = _interval(runs)
    found["lossy"] = lossy(platform)
    if as_json:
        console.print_json({"steps": schedule.chain.length, "actions": len(schedule), **found})
        return
    console.echo(
        f"{schedule.chain.length} steps, {len(schedule)} actions:"
        f" makespan {timeline.makespan:.6g} s"
    )
    if runs is not None:
        console.echo(_told(found["repeat"]))
    console.echo()
    if "note" in found:
        console.echo(f"{found['note']}\n")
    share = [
        [name, f"{seconds:.6g}", f"{seconds / timeline.makespan:.1%}" if timeline.makespan else ""]
        for name, seconds in found["busy"].items()
    ]
    console.print_table("", ["resource", "busy s", "of the makespan"], share)
    if overlap:
        console.echo(_said(overlap, found))
    console.say("" if plan is None else plan.not_considered)
    say_lossy(platform)
    if output is not None:
        tell_written(output)


def _seed(options: dict[str, Any], repeat: int | None) -> int:
    """The seed of the runs, which is taken out of the options where it is not of ranks.

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
    """Of many makespans, in seconds: the mean, and what 5, 50 and 95 % of them do not exceed."""
    parts = {"p05": 0.05, "p50": 0.5, "p95": 0.95}
    quantiles = {name: runs.quantile(part) for name, part in parts.items()}
    return {"runs": len(runs.makespans), "mean": runs.mean, **quantiles}


def _told(found: dict[str, float]) -> str:
    return (
        f"of {found['runs']} runs, nine of ten take {found['p05']:.6g} to {found['p95']:.6g} s;"
        f" half of them up to {found['p50']:.6g} s, the mean is {found['mean']:.6g} s"
    )


def busy(timeline: Timeline, platform: Platform, /) -> dict[str, float]:
    """Seconds for which each resource works: computing, and every channel."""
    seconds = timeline.stop - timeline.start
    found = {"compute": float(seconds[timeline.actions.op < WRITE].sum())}
    for number, level in enumerate(platform.levels):
        here = accesses(timeline, platform, number)
        found[level.channel] = found.get(level.channel, 0.0) + float((here.stop - here.start).sum())
    return found


def hidden(schedule: Schedule, platform: Platform, timeline: Timeline, /) -> dict[str, float]:
    """What overlap does for a schedule, in seconds.

    The synchronous makespan; how long the program copies to and waits for far levels; how long
    transfers go on after its end; and which part of the time that far levels take without overlap
    is hidden, 1 being all of it. The part is negative where copies cost more than they save.
    """
    synchronous = makespan(schedule, platform)
    waited = waits(timeline, platform)
    waiting = float((waited.stop - waited.start).sum())
    after = timeline.makespan - float(timeline.stop.max(initial=0.0))
    actions, memory = schedule.actions, memory_level(platform)
    far = (actions.op >= WRITE) & (actions.level != (-1 if memory is None else memory))
    storing = float(seconds_of(schedule, platform)[far].sum())
    return {
        "synchronous": synchronous,
        "waiting": waiting,
        "after": after,
        "hidden": (synchronous - timeline.makespan) / storing if storing else 0.0,
    }


def _said(policy: Overlap, found: dict[str, Any]) -> str:
    """What overlap does, in words."""
    saved = found["synchronous"] - found["makespan"]
    ends = f"; transfers go on for {found['after']:.6g} s after it" if found["after"] else ""
    hidden = f"{found['hidden']:.1%}" if saved >= 0 else "nothing"
    return (
        f"With {policy}: {abs(saved):.6g} s {'less' if saved >= 0 else 'more'} than the"
        f" {found['synchronous']:.6g} s without overlap; {hidden} of the time for far levels is"
        " hidden.\n"
        f"The program itself copies and waits for {found['waiting']:.6g} s{ends}.\n"
    )


def _planned(
    file: Path | None, options: dict[str, Any], overlap: Policy | None, *, many: bool, quiet: bool
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
        if overlap is None and (many or by_variable):
            overlap = SYNCHRONOUS
        plan = plan_of(**options, overlap=overlap, quiet=quiet)
        if by_variable:
            plan = plan_by_variable(plan, options)
        return plan.planned(console.display(quiet=quiet)), plan.platform, plan
    other = options.pop("platform")
    options["by_variable"] = by_variable or None
    given = [name for name, value in options.items() if value not in (None, {})]
    if given:
        name = "set" if given[0] == "settings" else given[0].replace("_", "-")
        raise BadInput(f"{file} is planned already; leave out --{name}, or leave out {file}")
    found = read_document(file)
    return found, platform_for(found, file, other), None
