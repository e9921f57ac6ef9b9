"""The command `ckio sweep`: the makespan over the capacity of a level, as a table and a picture."""

from pathlib import Path
from typing import Any

from ckio.adapters.registry import lossy
from ckio.cli import console
from ckio.cli.files import out, tell_written, write_text
from ckio.cli.options import (
    cost_options,
    json_option,
    option,
    overlap_option,
    planner_options,
    read_by,
    with_example,
)
from ckio.jobs.planning import plan_of
from ckio.jobs.sweeping import Row, Sweep, sweep
from ckio.platform import size
from ckio.platform.readable import bytes_text, seconds_text
from ckio.report.pictures import over_memory
from ckio.schedule.policy import SYNCHRONOUS, Policy


def _sizes(text: str) -> list[int]:
    return [size(word) for word in text.split(",")]


@with_example("ckio sweep --steps 200 --platform platform.toml --picture memory.svg")
@option(
    "--level", metavar="NAME", default="",
    help="Level whose capacity varies.  [default: the first level, which is memory]",
)  # fmt: skip
@option(
    "--capacity", "capacities", metavar="SIZE,...", callback=read_by(_sizes),
    help="Capacities, for example 4GB,16GB; 0 is a platform without the level.  [default: the"
    " present one, and this times powers of two]",
)  # fmt: skip
@planner_options
@cost_options
@overlap_option
@out(
    "--picture",
    help="Draw the makespan over the capacity to this SVG file.",
)
@json_option
def command(
    *,
    level: str,
    capacities: list[int] | None,
    overlap: Policy | None,
    picture: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Predict the makespan (run time) with more memory and with less.

    Use it to decide how much memory to request, or how large another level must be. A schedule for
    --steps time steps is planned for each capacity. The result is a table, and a sentence: what
    twice and half the capacity would change, or which of the --capacity values is enough.

    Without --overlap, no transfers overlap with computation, except for the planner `overlapped`.
    """
    display = console.display(quiet=as_json)
    plan = plan_of(**options, overlap=overlap or SYNCHRONOUS, display=display)
    swept = sweep(plan, level=level, capacities=capacities or (), display=display)
    if picture is not None:
        write_text(picture, over_memory(swept.curve()).file())
    rounds = lossy(plan.platform)
    if as_json:
        console.print_json(swept.figures() | {"lossy": rounds})
        return
    _show(swept)
    console.say_lossy(rounds)
    if picture is not None:
        tell_written(picture)


def _show(swept: Sweep, /) -> None:
    """Print a table of all capacities, the two extremes, and the result as a sentence."""
    header = [f"capacity of {swept.level}", "makespan s", "forward steps", "written"]
    least = min((row.makespan for row in swept.planned), default=0.0)
    bold = [at for at, row in enumerate(swept.rows) if not row.reason and row.makespan == least]
    console.print_table("", header, [_words(row) for row in swept.rows], bold=bold)
    for reason in dict.fromkeys(row.reason for row in swept.rows if row.reason):
        console.echo(f"no schedule: {reason}")
    nbytes, seconds = swept.everything
    console.echo(f"store everything: {bytes_text(nbytes)}, {seconds_text(seconds)}")
    console.echo(f"recompute everything: {seconds_text(swept.nothing)}")
    console.echo(swept.text())


def _words(row: Row, /) -> list[str]:
    capacity = bytes_text(row.capacity)
    if row.reason:
        return [capacity, "none", "", ""]
    return [capacity, f"{row.makespan:.6g}", str(row.forward_steps), bytes_text(row.written)]
