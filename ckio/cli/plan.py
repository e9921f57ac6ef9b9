"""The command `ckio plan`: compute a schedule, and print its makespan and its counts."""

from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

from ckio.adapters.registry import lossy
from ckio.cli import console
from ckio.cli.files import out, tell_written, write_text
from ckio.cli.options import (
    by_variable_option,
    cost_options,
    duration_option,
    json_option,
    overlap_option,
    planner_options,
    with_example,
)
from ckio.jobs.adjoints import cost_of_a_kill, expected_makespan, first_plan
from ckio.jobs.planning import Planning, overlap_figures, plan_of, policy
from ckio.planners.compiled import seconds_of_loading
from ckio.planners.table import PLANNERS
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.platform.readable import bytes_text, seconds_text
from ckio.schedule import Schedule, counts, makespan
from ckio.schedule.policy import Overlap, Policy
from ckio.schedule.text import dumps
from ckio.sim.engine import simulate


def _planners() -> dict[str, list[tuple[str, str]]]:
    """Return the list of planners for the end of the help text."""
    return {"Planners (--planner)": [(each.name, each.what) for each in PLANNERS]}


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
@out("-o", "--output", help="Write the schedule to this file; - is stdout.")
@json_option
def command(
    *,
    output: Path | None,
    overlap: Policy | None,
    mtbf: float | None,
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

    With --by-variable, each array of the state is stored separately, and only when it is needed.
    For this, the --model must declare which arrays its steps use and overwrite; see `ckio analyze`.

    With --mtbf, it is also predicted how long a run takes that fails at random and is resumed each
    time: `ckio run` stores the adjoint on a durable level at Daly's interval.

    The --platform may also be in the text form of Herrmann & Pallez (2020). Then a forward step
    takes 1 second, a forward step that records its tape and an adjoint step take 0 seconds, and a
    checkpoint has 1 byte, so that a capacity is a number of slots. The options for costs replace
    these values.
    """
    display = console.display(quiet=as_json)
    plan = plan_of(**options, overlap=overlap, display=display)
    plan.load(display)
    start, loading = perf_counter(), seconds_of_loading()
    schedule, machine = plan.planned(display), plan.platform
    seconds = perf_counter() - start - (seconds_of_loading() - loading)
    overlap = policy(overlap, schedule.overlap, "of the plan", display)
    figures = describe(plan.planner, schedule, machine)
    if plan.decides or overlap:
        if overlap != schedule.overlap or schedule.makespan is None:
            seconds_with = simulate(schedule, machine, overlap=overlap).makespan
            schedule = replace(schedule, overlap=overlap, makespan=seconds_with)
        figures |= {"makespan": schedule.makespan, **overlap_figures(schedule)}
    figures["plan_seconds"] = seconds
    figures["lossy"] = lossy(machine)
    if output is not None:
        write_text(output, dumps(schedule, machine, overlap=overlap))
    if mtbf is not None:
        figures["failures"] = _with_failures(plan, overlap, mtbf)
    if as_json:
        console.print_json(figures)
        return
    show(figures)
    console.say(plan.not_considered)
    console.say_lossy(figures["lossy"])
    if output is not None:
        tell_written(output)


def _with_failures(plan: Planning, overlap: Overlap, mtbf: float) -> dict[str, Any]:
    """Return the level and interval of adjoint checkpoints, and the expected makespan."""

    def planned(chain: Chain, platform: Platform) -> Schedule:
        return replace(plan, chain=chain, platform=platform).planned()

    schedule, kept = first_plan(plan.chain, plan.platform, None, planned, mtbf=mtbf)
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
    console.echo(
        f"{figures['planner']}, {steps} steps: makespan {figures['makespan']:.6g} s"
        f"{_how(figures)}, {forward} forward steps ({forward / steps:.2f} per step),"
        f" {figures['actions']} actions, planned in {seconds_text(figures['plan_seconds'])}\n"
    )
    if figures["note"]:
        console.echo(f"{figures['note']}\n")
    header = ["level", "writes", "reads", "discards", "peak slots"]
    if figures.get("by_variable"):
        header[-1:] = ["peak arrays", "peak bytes"]
    rows = [
        [bytes_text(value) if name == "peak_bytes" else str(value) for name, value in level.items()]
        for level in figures["levels"]
    ]
    console.print_table("", header, rows)
    if "failures" in figures:
        console.echo(f"\n{figures['failures']['text']}")


def _how(figures: dict[str, Any]) -> str:
    """Return " with POLICY" or " without overlap", or "" if overlap was not considered."""
    if "overlap" not in figures:
        return ""
    return (
        f" with {figures['overlap']}" if Overlap.parse(figures["overlap"]) else " without overlap"
    )
