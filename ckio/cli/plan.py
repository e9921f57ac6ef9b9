"""`ckio plan`: a planner's schedule, its cost and its counts."""

from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import click

from ckio.adapters.registry import lossy
from ckio.cli import console
from ckio.cli.files import INPUT, out, tell_written, write_text
from ckio.cli.options import (
    PAPERS_GROUP,
    by_variable_option,
    cost_options,
    effort_option,
    json_option,
    option,
    overlap_option,
    planner_options,
    with_example,
)
from ckio.jobs.planning import overlap_figures, plan_of, policy
from ckio.planners import compact
from ckio.planners.compiled import seconds_of_loading
from ckio.planners.table import PLANNERS
from ckio.platform import Platform
from ckio.platform.readable import bytes_text, seconds_text
from ckio.schedule import Schedule, counts, makespan
from ckio.schedule.policy import Overlap, Policy
from ckio.sim.engine import simulate


def _planners() -> dict[str, list[tuple[str, str]]]:
    """Return the planners, to be listed after the options."""
    return {"Planners (--planner)": [(each.name, each.what) for each in PLANNERS]}


@with_example("ckio plan --steps 200 --platform platform.toml -o plan.txt", sections=_planners)
@planner_options
@cost_options
@overlap_option
@effort_option
@by_variable_option
@out("-o", "--output", help="write the schedule to this file; - is stdout")
@option(
    "--format", "form", type=click.Choice(["native", "paper"]), default="native", show_default=True,
    group=PAPERS_GROUP, help="of the file: ckio's own, or the notation of Herrmann & Pallez (2020)",
)  # fmt: skip
@option(
    "--concat", type=click.IntRange(1, 3), metavar="1|2|3", group=PAPERS_GROUP,
    help="in their short form: 1, calls of Revolve; 2, of 1D-Revolve, too; 3, periods",
)  # fmt: skip
@option(
    "--sequence", type=INPUT, metavar="FILE", group=PAPERS_GROUP,
    help="a schedule in their notation, short or not, instead of a planner's",
)  # fmt: skip
@json_option
def command(
    *,
    output: Path | None,
    form: str,
    concat: int | None,
    overlap: Policy | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Plan the adjoint of a chain of --steps on a --platform.

    With --overlap the plan says what I/O overlaps with computation: it is the best of all plans,
    synchronous and overlapped, or, of a --planner, its schedule with the policy that takes least.
    `ckio simulate` and `ckio run` do what it was made for.

    Costs are seconds per step and bytes per checkpoint; `ckio calibrate --model` writes them into
    the platform. A --platform may also be in the text form of Herrmann & Pallez (2020): then they
    are 1, 0, 0 seconds and a byte, so that a capacity is a number of slots.

    With --by-variable, for a --model that says what its steps use and overwrite (see `ckio
    analyze`), the schedule stores each array of a state only where it is needed: `ckio run` does so
    too.
    """
    display = console.display(quiet=as_json)
    plan = plan_of(**options, overlap=overlap, display=display)
    plan.load(display)
    start, loading = perf_counter(), seconds_of_loading()
    planned = plan.planned(display)
    seconds = perf_counter() - start - (seconds_of_loading() - loading)
    schedule, machine = planned.schedule, plan.platform
    overlap = policy(overlap, planned.overlap, "of the plan", display)
    figures = describe(plan.planner, schedule, machine)
    if plan.decides or overlap:
        if overlap != planned.overlap or planned.makespan is None:
            seconds_with = simulate(schedule, machine, overlap=overlap).makespan
            planned = replace(planned, overlap=overlap, makespan=seconds_with)
        figures |= {"makespan": planned.makespan, **overlap_figures(planned)}
    figures["plan_seconds"] = seconds
    figures["lossy"] = lossy(machine)
    short = None if concat is None else compact.dumps(schedule, machine, concat=concat)
    if short is not None:
        figures["sequence"] = short
    if output is not None:
        write_text(output, _text(schedule, machine, overlap, form) if short is None else short)
    if as_json:
        console.print_json(figures)
        return
    show(figures)
    console.say(plan.not_considered)
    console.say_lossy(figures["lossy"])
    if output is not None:
        unsaid = overlap and (form == "paper" or short is not None)
        tell_written(output, ", which cannot say the policy" if unsaid else "")
    elif short is not None:
        console.echo(short, nl=False)


def describe(planner: str, schedule: Schedule, platform: Platform, /) -> dict[str, Any]:
    """Return what `--json` says of a schedule; by variable, it counts arrays and their bytes."""
    totals, by_variable = counts(schedule), schedule.chain.variables is not None
    levels: list[dict[str, Any]] = []
    for number, level in enumerate(platform.levels):
        here = totals.levels[number] if number < len(totals.levels) else None
        levels.append(
            {
                "name": level.name,
                "writes": here.writes if here else 0,
                "reads": here.reads if here else 0,
                "discards": here.discards if here else 0,
                "peak": here.peak if here else 0,
            }
        )
        if by_variable:
            levels[-1]["peak_bytes"] = here.peak_bytes if here else 0
    note, more = schedule.note, {"by_variable": True} if by_variable else {}
    if note and by_variable:
        note = f"of whole checkpoints, {note}; then variable by variable"
    return {
        "planner": planner,
        "steps": schedule.chain.length,
        "makespan": makespan(schedule, platform),
        "forward_steps": totals.forward,
        "actions": len(schedule.actions),
        "levels": levels,
        "note": note,
        **more,
    }


def show(figures: dict[str, Any], /) -> None:
    """Print the figures of a plan for a person."""
    forward, steps = figures["forward_steps"], figures["steps"]
    console.echo(
        f"{figures['planner']}, {steps} steps: makespan {figures['makespan']:.6g} s"
        f"{_how(figures)}, {forward} forward steps ({forward / steps:.2f} per step),"
        f" {figures['actions']} actions, planned in {seconds_text(figures['plan_seconds'])}\n"
    )
    if figures["note"]:
        console.echo(f"{figures['note']}\n")
    header = ["level", "writes", "reads", "discards", "slots at most"]
    if figures.get("by_variable"):
        header[-1:] = ["arrays at most", "bytes at most"]
    rows = [
        [bytes_text(value) if name == "peak_bytes" else str(value) for name, value in level.items()]
        for level in figures["levels"]
    ]
    console.print_table("", header, rows)


def _how(figures: dict[str, Any]) -> str:
    """Return with which policy that is, where it was decided or given."""
    if "overlap" not in figures:
        return ""
    return (
        f" with {figures['overlap']}" if Overlap.parse(figures["overlap"]) else " without overlap"
    )


def _text(schedule: Schedule, platform: Platform, overlap: Overlap, form: str) -> str:
    if form == "paper":
        from ckio.schedule.text.notation import dumps as paper

        return paper(schedule)
    from ckio.schedule.text import dumps

    return dumps(schedule, platform, overlap=overlap)
