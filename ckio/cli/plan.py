"""`ckio plan`: a planner's schedule, its cost and its counts."""

import time
from pathlib import Path
from typing import Any

import click

from ckio.cli import console
from ckio.cli.options import FILE, Plan, cost_options, plan_of, planner_options, write_text
from ckio.platforms import Platform
from ckio.schedule import Schedule, counts, makespan


@click.command(short_help="Make the schedule that is best for a chain on a platform.")
@planner_options
@cost_options
@click.option("-o", "--output", type=FILE, help="write the schedule to this file")
@click.option(
    "--format", "form", type=click.Choice(["native", "paper"]), default="native", show_default=True,
    help="of the file: ckio's own, or paper 004's notation",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="print one JSON object")
def command(*, output: Path | None, form: str, as_json: bool, **options: Any) -> None:
    """Plan the adjoint of a chain of --steps on a --platform.

    Costs are seconds per step and bytes per checkpoint; `ckio calibrate --model` writes them into
    the platform. On paper 004's text they are 1, 0, 0 seconds and a byte, so capacity is slots.
    """
    plan = plan_of(**options)
    with console.progress(f"planning {plan.chain.length} steps with {plan.planner}", quiet=as_json):
        schedule, seconds = timed(plan)
    if output is not None:
        write_text(output, _text(schedule, plan.platform, form))
    figures = describe(plan.planner, schedule, plan.platform) | {"plan_seconds": seconds}
    if as_json:
        console.print_json(figures)
    else:
        show(figures)
        if output is not None:
            click.echo(f"written to {output}")


def timed(plan: Plan, /) -> tuple[Schedule, float]:
    """The schedule of a plan, and the seconds it took to make."""
    start = time.perf_counter()
    schedule = plan.call(plan.chain, plan.platform)
    return schedule, time.perf_counter() - start


def describe(planner: str, schedule: Schedule, platform: Platform, /) -> dict[str, Any]:
    """What `--json` says of a schedule."""
    found = counts(schedule)
    levels = []
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
    return {
        "planner": planner,
        "steps": schedule.chain.length,
        "makespan": makespan(schedule, platform),
        "forward_steps": found.forward,
        "actions": len(schedule.actions),
        "levels": levels,
    }


def show(figures: dict[str, Any], /) -> None:
    """The figures of a plan as a person reads them."""
    forward, steps = figures["forward_steps"], figures["steps"]
    click.echo(
        f"{figures['planner']}, {steps} steps: makespan {figures['makespan']:.6g} s,"
        f" {forward} forward steps ({forward / steps:.2f} per step), {figures['actions']} actions,"
        f" planned in {console.seconds(figures['plan_seconds'])}"
    )
    header = ["level", "writes", "reads", "discards", "peak slots"]
    rows = [[str(value) for value in level.values()] for level in figures["levels"]]
    console.print_table("", header, rows)


def _text(schedule: Schedule, platform: Platform, form: str) -> str:
    if form == "paper":
        from ckio.papertext import dumps as paper

        return paper(schedule)
    from ckio.texts import dumps

    return dumps(schedule, platform)
