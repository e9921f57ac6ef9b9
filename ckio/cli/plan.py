"""The command `ckio plan`: compute a schedule, and print its makespan and its counts."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from ckio.adapters.registry import lossy
from ckio.cli import console
from ckio.cli.files import out, print_written, write_file
from ckio.cli.options import (
    by_variable_option,
    cost_options,
    duration_option,
    json_option,
    overlap_option,
    planner_options,
    read_by,
    with_example,
)
from ckio.errors import BadInput
from ckio.jobs.adjoints import cost_of_a_kill, expected_makespan, first_plan
from ckio.jobs.memory import space_of
from ckio.jobs.planning import Planning, overlap_figures, plan_of, policy
from ckio.jobs.sweeping import Row, Sweep, sweep
from ckio.planners.table import PLANNERS
from ckio.platform import Platform, size
from ckio.platform.chain import Chain
from ckio.platform.readable import bytes_text, seconds_text
from ckio.schedule import Schedule, counts, makespan
from ckio.schedule.policy import SYNCHRONOUS, Overlap, Policy
from ckio.schedule.text import dumps
from ckio.sim.engine import simulate

Capacities = tuple[str, list[int]]
"""The name of a level, or "" for the first one, and capacities in bytes, if any are given."""


def _planners() -> dict[str, list[tuple[str, str]]]:
    """Return the list of planners for the end of the help text."""
    return {"Planners (--planner)": [(each.name, each.what) for each in PLANNERS]}


def _capacities(text: str) -> Capacities:
    level, _, sizes = text.rpartition("=")
    return level, [size(word) for word in sizes.split(",") if word]


@with_example("ckio plan --steps 200 --platform platform.toml -o plan.txt", sections=_planners)
@planner_options
@cost_options
@overlap_option
@by_variable_option
@duration_option(
    "--mtbf",
    help="Mean time between failures, e.g. 6h: also print the interval of adjoint checkpoints and"
    " the expected makespan.",
)
@click.option(
    "--capacity", metavar="[[LEVEL=]SIZE,...]", is_flag=False, flag_value="",
    callback=read_by(_capacities),
    help="Plan with several capacities of a level, e.g. 4GB,16GB or nvme=0,1TB; 0 is a platform"
    " without the level. Without LEVEL it is the first level, which is memory; without SIZE, the"
    " present capacity times powers of two.",
)  # fmt: skip
@out(
    "-o", "--output",
    help="Write the schedule to this file; - is stdout. With --capacity, write a picture (SVG) of"
    " the makespans.",
)  # fmt: skip
@json_option
def command(
    *,
    output: Path | None,
    overlap: Policy | None,
    mtbf: float | None,
    capacity: Capacities | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Find the checkpoint schedule with the shortest makespan (run time) for an adjoint.

    Use it after `ckio calibrate`, to see how long the gradient over --steps time steps will take,
    and how many checkpoints each storage level stores. The schedule depends on the platform (the
    capacity and the speed of each level) and on the model (seconds per time step, bytes per
    checkpoint); `ckio calibrate --model` writes both into the --platform file. `ckio run` with the
    same options executes the same schedule. `ckio simulate` and `ckio show` read its file.

    With --overlap, checkpoints are transferred while the model computes. Then the plan is the
    fastest of all schedules, with and without overlap; or, for one given planner, its schedule
    with the fastest policy. The file of the schedule contains the policy.

    With --capacity, a schedule is planned for each capacity, to decide how much memory to request,
    or how large another level must be. The result is a table, and a sentence: what twice and half
    the capacity would change, or which capacity is enough. Without --overlap, no transfers overlap
    with computation then.

    With --mtbf, it is also predicted how long a run takes that fails at random and is resumed each
    time: `ckio run` stores the adjoint on a durable level at Daly's interval.

    The --platform may also be in the text form of Herrmann & Pallez (2020). Then a forward step
    takes 1 second, a forward step that records its tape and an adjoint step take 0 seconds, and a
    checkpoint has 1 byte, so that a capacity is a number of slots. The options for costs replace
    these values.
    """
    if capacity is not None:
        for name, given in (("mtbf", mtbf), ("by-variable", options["by_variable"])):
            if given:
                raise BadInput(f"--capacity compares makespans; leave out --{name}")
        plan = plan_of(
            **options, overlap=overlap or SYNCHRONOUS, display=console.display(quiet=as_json)
        )
        _sweep(plan, capacity, output, as_json=as_json)
        return
    display = console.display(quiet=as_json)
    plan = plan_of(**options, overlap=overlap, display=display)
    schedule, machine = plan.planned(display), plan.platform
    overlap = policy(overlap, schedule.overlap, "of the plan", display)
    figures = describe(plan.planner, schedule, machine)
    if plan.decides or overlap:
        if overlap != schedule.overlap or schedule.makespan is None:
            seconds_with = simulate(schedule, machine, overlap=overlap).makespan
            schedule = replace(schedule, overlap=overlap, makespan=seconds_with)
        figures |= {"makespan": schedule.makespan, **overlap_figures(schedule)}
    predicted = simulate(schedule, machine, overlap=overlap) if overlap else None
    space = space_of(schedule, machine, predicted)
    figures |= {"lossy": lossy(machine), "needs": space._asdict()}
    if output is not None:
        write_file(output, dumps(schedule, machine, overlap=overlap))
    if mtbf is not None:
        figures["failures"] = _with_failures(plan, overlap, mtbf)
    if as_json:
        console.print_json(figures)
        return
    show(figures)
    if plan.not_considered:
        click.echo(plan.not_considered)
    console.print_lossy(figures["lossy"])
    if output is not None:
        print_written(output)


def _sweep(plan: Planning, capacity: Capacities, output: Path | None, /, *, as_json: bool) -> None:
    """Plan for each capacity; print the makespans, and draw them."""
    from ckio.report.pictures import over_memory

    level, sizes = capacity
    swept = sweep(plan, level=level, capacities=sizes, display=console.display(quiet=as_json))
    if output is not None:
        write_file(output, over_memory(swept.curve()).file())
    rounds = lossy(plan.platform)
    if as_json:
        console.print_json(swept.figures() | {"lossy": rounds})
        return
    _show_sweep(swept)
    console.print_lossy(rounds)
    if output is not None:
        print_written(output)


def _show_sweep(swept: Sweep, /) -> None:
    """Print a table of all capacities, the two extremes, and the result as a sentence."""
    header = [f"capacity of {swept.level}", "makespan s", "forward steps", "written"]
    least = min((row.makespan for row in swept.planned), default=0.0)
    bold = [at for at, row in enumerate(swept.rows) if not row.reason and row.makespan == least]
    console.print_table("", header, [_words(row) for row in swept.rows], bold=bold)
    for reason in dict.fromkeys(row.reason for row in swept.rows if row.reason):
        click.echo(f"no schedule: {reason}")
    nbytes, seconds = swept.everything
    click.echo(f"store everything: {bytes_text(nbytes)}, {seconds_text(seconds)}")
    click.echo(f"recompute everything: {seconds_text(swept.nothing)}")
    click.echo(swept.text())


def _words(row: Row, /) -> list[str]:
    capacity = bytes_text(row.capacity)
    if row.reason:
        return [capacity, "none", "", ""]
    return [capacity, f"{row.makespan:.6g}", str(row.forward_steps), bytes_text(row.written)]


def _with_failures(plan: Planning, overlap: Overlap, mtbf: float) -> dict[str, Any]:
    """Return the level and interval of adjoint checkpoints, and the expected makespan."""

    def planned(chain: Chain, platform: Platform) -> Schedule:
        return replace(plan, chain=chain, platform=platform).planned()

    schedule, (kept, _) = first_plan(plan.chain, plan.platform, None, planned, mtbf=mtbf)
    schedule = replace(schedule, overlap=overlap) if overlap else schedule
    seconds = expected_makespan(schedule, plan.platform, kept, mtbf)
    text = cost_of_a_kill(schedule, plan.platform, kept, mtbf) or (
        f"with a failure in {seconds_text(mtbf)} on average, expect {seconds_text(seconds)}; no"
        " adjoint is stored"
    )
    return {
        "mtbf": mtbf,
        "level": kept.level,
        "every": kept.every,
        "expected": seconds,
        "text": text,
    }


def describe(planner: str, schedule: Schedule, platform: Platform, /) -> dict[str, Any]:
    """Return the figures of a schedule for `--json`.

    If each variable is stored separately, the counts are numbers of arrays, with their bytes.
    """
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
        note = f"planned with whole checkpoints: {note}; then converted to single variables"
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
    """Print the figures of a plan as text and a table."""
    forward, steps = figures["forward_steps"], figures["steps"]
    click.echo(
        f"{figures['planner']}, {steps} steps: makespan {figures['makespan']:.6g} s"
        f"{_how(figures)}, {forward} forward steps ({forward / steps:.2f} per step),"
        f" {figures['actions']} actions\n"
    )
    if figures["note"]:
        click.echo(f"{figures['note']}\n")
    header = ["level", "writes", "reads", "discards", "peak slots"]
    if figures.get("by_variable"):
        header[-1:] = ["peak arrays", "peak bytes"]
    rows = [
        [bytes_text(value) if name == "peak_bytes" else str(value) for name, value in level.items()]
        for level in figures["levels"]
    ]
    console.print_table("", header, rows)
    memory, files = (bytes_text(nbytes) for nbytes in figures["needs"].values())
    more = f", and {files} of files" if figures["needs"]["files"] else ""
    click.echo(f"needs {memory} of memory in addition to a forward run{more}")
    if "failures" in figures:
        click.echo(figures["failures"]["text"])


def _how(figures: dict[str, Any]) -> str:
    """Return " with POLICY" or " without overlap", or "" if overlap was not considered."""
    if "overlap" not in figures:
        return ""
    overlap = Overlap.parse(figures["overlap"])
    return f" with {overlap.text()}" if overlap else " without overlap"
