"""`ckio plan`: a planner's schedule, its cost and its counts."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import click

from ckio.adapters.registry import lossy
from ckio.cli import console
from ckio.cli.files import INPUT, out, tell_written, write_text
from ckio.cli.levels import say_lossy
from ckio.cli.options import (
    cost_options,
    effort_option,
    json_option,
    overlap_option,
    planner_options,
)
from ckio.cli.plans import plan_of
from ckio.errors import BadInput
from ckio.jobs.models import maker
from ckio.jobs.planning import OVERLAPPED, Planning, overlap_figures, policy
from ckio.jobs.process import variables_of
from ckio.planners import compact
from ckio.planners.compiled import seconds_of_loading
from ckio.planners.table import PLANNERS
from ckio.platform import Platform
from ckio.platform.readable import bytes_text, seconds_text
from ckio.schedule import Schedule, counts, makespan
from ckio.schedule.policy import SYNCHRONOUS, Overlap, Policy
from ckio.sim.engine import simulate

by_variable_option = click.option(
    "--by-variable", is_flag=True, help="store each variable of a state only where it is needed"
)


class _Planners(click.Command):
    """A command that lists the planners after its options."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Planners (--planner)"):
            formatter.write_dl([(each.name, each.what) for each in PLANNERS])


@click.command(cls=_Planners)
@planner_options
@cost_options
@out("-o", "--output", help="write the schedule to this file; - is stdout")
@click.option(
    "--format", "form", type=click.Choice(["native", "paper"]), default="native", show_default=True,
    help="of the file: ckio's own, or paper 004's notation",
)  # fmt: skip
@click.option(
    "--concat", type=click.IntRange(1, 3), metavar="1|2|3",
    help="give it in paper 004's short form: 1, calls of Revolve; 2, of 1D-Revolve too; 3, periods",
)  # fmt: skip
@click.option(
    "--sequence", type=INPUT, metavar="FILE",
    help="a schedule in paper 004's notation, short or not, instead of a planner's",
)  # fmt: skip
@overlap_option
@effort_option
@by_variable_option
@json_option
def command(
    *,
    output: Path | None,
    form: str,
    concat: int | None,
    overlap: Policy | None,
    by_variable: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Plan the adjoint of a chain of --steps on a --platform.

    With --overlap the plan says what I/O overlaps with computation: it is the best of all plans,
    synchronous and overlapped, or, of a --planner, its schedule with the policy that takes least.
    `ckio simulate` and `ckio run` do what it was made for.

    Costs are seconds per step and bytes per checkpoint; `ckio calibrate --model` writes them into
    the platform. On paper 004's text they are 1, 0, 0 seconds and a byte, so capacity is slots.

    With --by-variable, for a --model that says what its steps use and overwrite (see `ckio
    analyze`), the schedule stores each array of a state only where it is needed: `ckio run` does so
    too.
    """
    if by_variable and overlap is None:
        overlap = SYNCHRONOUS
    plan = plan_of(**options, overlap=overlap, quiet=as_json)
    if by_variable:
        plan = plan_by_variable(plan, options)
    display = console.display(quiet=as_json)
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
    say_lossy(machine)
    if output is not None:
        unsaid = overlap and (form == "paper" or short is not None)
        tell_written(output, ", which cannot say the policy" if unsaid else "")
    elif short is not None:
        console.echo(short, nl=False)


def plan_by_variable(plan: Planning, options: Mapping[str, Any], /) -> Planning:
    """The plan on single variables of the model; raises BadInput where there is none that has any.

    `options` are those that the plan came of.
    """
    if plan.decides:
        how = f"--planner {OVERLAPPED}" if plan.planner == OVERLAPPED else "--overlap auto"
        raise BadInput(
            f"{how} plans with whole checkpoints; leave out --by-variable, or say a policy:"
            " --overlap POLICY"
        )
    model, settings = options["model"], options["settings"]
    if model is None:
        raise BadInput("--by-variable is about the arrays of a model: give --model as well")
    from ckio.analysis.reduced import ByVariable

    variables = variables_of(model, maker(model, settings)()).cut(plan.chain.length)
    return replace(plan, call=ByVariable(plan.call, variables))


def describe(planner: str, schedule: Schedule, platform: Platform, /) -> dict[str, Any]:
    """What `--json` says of a schedule; by variable, it counts arrays and tells their bytes."""
    found, by_variable = counts(schedule), schedule.chain.variables is not None
    levels: list[dict[str, Any]] = []
    for number, level in enumerate(platform.levels):
        here = found.levels[number] if number < len(found.levels) else None
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
    note, said = schedule.note, {"by_variable": True} if by_variable else {}
    if note and by_variable:
        note = f"of whole checkpoints, {note}; then variable by variable"
    return {
        "planner": planner,
        "steps": schedule.chain.length,
        "makespan": makespan(schedule, platform),
        "forward_steps": found.forward,
        "actions": len(schedule.actions),
        "levels": levels,
        "note": note,
        **said,
    }


def show(figures: dict[str, Any], /) -> None:
    """The figures of a plan as a person reads them."""
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
    """With which policy that is, where it was decided or given."""
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
