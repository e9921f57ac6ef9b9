"""`ckio plan`: a planner's schedule, its cost and its counts."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from ckio.cli import console
from ckio.cli.files import INPUT, out, tell_written, write_text
from ckio.cli.levels import say_lossy
from ckio.cli.models import maker
from ckio.cli.options import cost_options, json_option, planner_options
from ckio.cli.plans import OVERLAPPED, Plan, Planned, plan_of
from ckio.errors import BadInput
from ckio.pictures.words import bytes_text, seconds_text
from ckio.planners import compact
from ckio.platforms import Platform
from ckio.registry import lossy
from ckio.schedule import Schedule, counts, makespan

if TYPE_CHECKING:
    from ckio.planners.base import Planner

by_variable_option = click.option(
    "--by-variable", is_flag=True, help="store each variable of a state only where it is needed"
)


@click.command()
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
@click.option(
    "--overlap", is_flag=True, help="plan for storage that goes on behind the computation"
)
@by_variable_option
@json_option
def command(
    *,
    output: Path | None,
    form: str,
    concat: int | None,
    overlap: bool,
    by_variable: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Plan the adjoint of a chain of --steps on a --platform.

    With --overlap the plan is for storage that goes on behind the computation; `ckio simulate` and
    `ckio run` do what it was made for.

    Costs are seconds per step and bytes per checkpoint; `ckio calibrate --model` writes them into
    the platform. On paper 004's text they are 1, 0, 0 seconds and a byte, so capacity is slots.

    With --by-variable, for a --model that says what its steps use and overwrite (see `ckio
    analyze`), the schedule stores each array of a state only where it is needed: `ckio run` does so
    too.

    \b
    Planners: auto (the best of all), mixed, hrevolve, hrevolve-2020, revolve,
    overlapped (also by --overlap), multistage, two-level, disk-revolve,
    1d-revolve, periodic-disk-revolve, per-rev-revolve, bisection, store-all,
    periodic, recompute-all, online, wang-moin.
    """  # noqa: D301  (the mark tells click to leave these lines as they are)
    if overlap:
        options["planner"] = _for_overlap(options["planner"], options["sequence"])
    plan = plan_of(**options, quiet=as_json)
    if by_variable:
        plan = plan_by_variable(plan, options)
    planned = plan.planned(quiet=as_json)
    schedule = planned.schedule
    figures = describe(plan.planner, schedule, plan.platform) | _with_overlap(planned)
    figures["plan_seconds"] = planned.seconds
    figures["lossy"] = lossy(plan.platform)
    short = None if concat is None else compact.dumps(schedule, plan.platform, concat=concat)
    if short is not None:
        figures["sequence"] = short
    if output is not None:
        write_text(output, _text(planned, plan.platform, form) if short is None else short)
    if as_json:
        console.print_json(figures)
        return
    show(figures)
    say_lossy(plan.platform)
    if output is not None:
        unsaid = planned.overlap and (form == "paper" or short is not None)
        tell_written(output, ", which cannot say the policy" if unsaid else "")
    elif short is not None:
        click.echo(short, nl=False)


def plan_by_variable(plan: Plan, options: Mapping[str, Any], /) -> Plan:
    """The plan on single variables of the model; raises BadInput where there is none that has any.

    `options` are those that the plan came of.
    """
    if plan.planner == OVERLAPPED:
        raise BadInput(
            f"{OVERLAPPED!r} plans with whole checkpoints; leave out --by-variable, or see what"
            " overlap does for another plan by `ckio simulate --by-variable --overlap POLICY`"
        )
    model, settings = options["model"], options["settings"]
    if model is None:
        raise BadInput("--by-variable is about the arrays of a model: give --model as well")
    from ckio.analysis.reduced import ByVariable
    from ckio.cli.job import variables_of

    variables = variables_of(model, maker(model, settings)()).cut(plan.chain.length)
    planner = cast("Planner", plan.call)  # only `overlapped` makes more than a schedule
    return replace(plan, call=ByVariable(planner, variables))


def _for_overlap(planner: str | None, sequence: Path | None) -> str:
    if sequence is not None:
        raise BadInput(f"{sequence} is planned already; leave out --overlap or --sequence")
    if planner not in (None, OVERLAPPED):
        raise BadInput(
            f"--overlap plans with `overlapped`; leave out --planner {planner}, or see what overlap"
            " does for its plan by `ckio simulate --overlap POLICY`"
        )
    return OVERLAPPED


def _with_overlap(planned: Planned) -> dict[str, Any]:
    """What is to be said of a schedule that was made for overlap; nothing of another one."""
    made = planned.made
    if made is None:
        return {}
    return {
        "makespan": made.makespan,
        "overlap": str(made.overlap),
        "synchronous": made.synchronous,
        "bound": made.bound,
        "gap": made.gap,
    }


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
    click.echo(
        f"{figures['planner']}, {steps} steps: makespan {figures['makespan']:.6g} s,"
        f" {forward} forward steps ({forward / steps:.2f} per step), {figures['actions']} actions,"
        f" planned in {seconds_text(figures['plan_seconds'])}\n"
    )
    if figures["note"]:
        click.echo(f"{figures['note']}\n")
    header = ["level", "writes", "reads", "discards", "slots at most"]
    if figures.get("by_variable"):
        header[-1:] = ["arrays at most", "bytes at most"]
    rows = [
        [bytes_text(value) if name == "peak_bytes" else str(value) for name, value in level.items()]
        for level in figures["levels"]
    ]
    console.print_table("", header, rows)


def _text(planned: Planned, platform: Platform, form: str) -> str:
    if form == "paper":
        from ckio.papertext import dumps as paper

        return paper(planned.schedule)
    from ckio.texts import dumps

    return dumps(planned.schedule, platform, overlap=planned.overlap)
