"""`ckio simulate`: a schedule's timeline before it costs anything."""

from pathlib import Path
from typing import Any

import click

from ckio.cli import console
from ckio.cli.options import (
    FILE,
    cost_options,
    plan_of,
    planner_options,
    read_platform,
    read_text,
    write_text,
)
from ckio.cli.plan import timed
from ckio.columns import WRITE
from ckio.errors import BadInput
from ckio.platforms import Platform
from ckio.schedule import Schedule
from ckio.sim.engine import simulate
from ckio.texts import dumps, loads
from ckio.timeline import Timeline


@click.command(short_help="Predict when every action of a schedule begins and ends.")
@click.argument("file", type=FILE, required=False)
@planner_options
@cost_options
@click.option("-o", "--output", type=FILE, help="write the timeline to this file")
@click.option("--json", "as_json", is_flag=True, help="print one JSON object")
def command(*, file: Path | None, output: Path | None, as_json: bool, **options: Any) -> None:
    """Simulate the schedule in FILE, or the one that the planning options ask for.

    A schedule that `ckio plan -o` wrote knows its platform; --platform simulates it on another.
    """
    schedule, platform = _schedule(file, options)
    with console.progress(f"simulating {len(schedule)} actions", quiet=as_json):
        timeline = simulate(schedule, platform)
    if output is not None:
        write_text(output, dumps(schedule, platform, timeline))
    found = {"makespan": timeline.makespan, "busy": busy(timeline, platform)}
    if as_json:
        console.print_json({"steps": schedule.chain.length, "actions": len(schedule), **found})
        return
    click.echo(f"makespan {timeline.makespan:.6g} s, {len(schedule)} actions")
    share = [
        [name, f"{seconds:.6g}", f"{seconds / timeline.makespan:.1%}" if timeline.makespan else ""]
        for name, seconds in busy(timeline, platform).items()
    ]
    console.print_table("busy", ["resource", "seconds", "of the makespan"], share)
    if output is not None:
        click.echo(f"written to {output}")


def busy(timeline: Timeline, platform: Platform, /) -> dict[str, float]:
    """Seconds for which each resource works: computing, and every channel."""
    actions, seconds = timeline.actions, timeline.stop - timeline.start
    found = {"compute": float(seconds[actions.op < WRITE].sum())}
    for number, level in enumerate(platform.levels):
        here = float(seconds[(actions.op >= WRITE) & (actions.level == number)].sum())
        found[level.channel] = found.get(level.channel, 0.0) + here
    return found


def _schedule(file: Path | None, options: dict[str, Any]) -> tuple[Schedule, Platform]:
    if file is None:
        plan = plan_of(**options)
        return timed(plan)[0], plan.platform
    found = loads(read_text(file), source=str(file))
    platform = found.platform
    if options["platform"] is not None:
        platform = read_platform(options["platform"])
    if platform is None:
        raise BadInput(f"{file}: it does not say for which platform it is; give --platform")
    return found.schedule, platform
