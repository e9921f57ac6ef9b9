"""`ckio simulate`: a schedule's timeline before it costs anything."""

from pathlib import Path
from typing import Any

import click

from ckio.cli import console
from ckio.cli.files import blamed_on, out, platform_for, read_document, write_text
from ckio.cli.levels import say_lossy
from ckio.cli.options import cost_options, json_option, planner_options
from ckio.cli.plans import plan_of
from ckio.columns import WRITE
from ckio.errors import BadInput
from ckio.platforms import Platform
from ckio.registry import lossy
from ckio.schedule import Schedule
from ckio.sim.engine import simulate
from ckio.texts import dumps
from ckio.timeline import Timeline


@click.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@planner_options
@cost_options
@out("-o", "--output", help="write the timeline to this file")
@json_option
def command(*, file: Path | None, output: Path | None, as_json: bool, **options: Any) -> None:
    """Simulate the schedule in FILE, or the one that the planning options ask for.

    A schedule that `ckio plan -o` wrote knows its platform; --platform simulates it on another.
    """
    schedule, platform = _schedule(file, options, quiet=as_json)
    bar = console.progress("simulating", len(schedule), unit="actions", quiet=as_json)
    with bar as tick, blamed_on(file):
        timeline = simulate(schedule, platform, watch=tick)
    if output is not None:
        write_text(output, dumps(schedule, platform, timeline))
    found = {"makespan": timeline.makespan, "busy": busy(timeline, platform)}
    found["lossy"] = lossy(platform)
    if as_json:
        console.print_json({"steps": schedule.chain.length, "actions": len(schedule), **found})
        return
    click.echo(
        f"{schedule.chain.length} steps, {len(schedule)} actions:"
        f" makespan {timeline.makespan:.6g} s\n"
    )
    share = [
        [name, f"{seconds:.6g}", f"{seconds / timeline.makespan:.1%}" if timeline.makespan else ""]
        for name, seconds in busy(timeline, platform).items()
    ]
    console.print_table("", ["resource", "busy s", "of the makespan"], share)
    say_lossy(platform)
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


def _schedule(
    file: Path | None, options: dict[str, Any], *, quiet: bool
) -> tuple[Schedule, Platform]:
    if file is None:
        plan = plan_of(**options, quiet=quiet)
        return plan.schedule(quiet=quiet)[0], plan.platform
    other = options.pop("platform")
    given = [name for name, value in options.items() if value not in (None, {})]
    if given:
        name = "set" if given[0] == "settings" else given[0]
        raise BadInput(f"{file} is planned already; leave out --{name}, or leave out {file}")
    found = read_document(file)
    return found.schedule, platform_for(found, file, other)
