"""The command `ckio sweep`: predict makespans for many machines, as a table and a picture."""

from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import Any, Final

import click

from ckio.adapters.registry import lossy
from ckio.cli import console
from ckio.cli.files import STDOUT, out, tell_written, write_bytes, write_text
from ckio.cli.options import (
    cost_options,
    duration_option,
    json_option,
    option,
    overlap_option,
    planner_options,
    with_example,
)
from ckio.cli.simulate import ranks_of, ranks_options
from ckio.errors import BadInput
from ckio.jobs.sweeping import FAILING_RUNS, Answered, curve_axis, value_text, what_if
from ckio.platform.readable import bytes_text, seconds_text
from ckio.report.curves import check_axes, check_curves, draw_curves
from ckio.report.pictures import over_memory
from ckio.report.pictures.svg import check_png, png
from ckio.schedule.policy import Policy
from ckio.sim.sweep import Answer

FAILURES_GROUP: Final = "Runs that fail"

_NOTHING: Final = 1e-12
"""The share of a makespan below which a statistical error is only a rounding error."""

_REASONS: Final = 5
"""The largest number of different reasons that are printed below the table."""


@with_example("ckio sweep --steps 200 --platform platform.toml --vary ram.slots=2,4,8 -o table.csv")
@option(
    "--vary", "vary", multiple=True, metavar="AXIS",
    help="Quantity to vary, with its values: NAME=VALUE,... or NAME=LOW:HIGH:COUNT. May be"
    " repeated.  [default: the capacity of the first level, by factors of 2]",
)  # fmt: skip
@planner_options
@cost_options
@overlap_option
@ranks_options
@duration_option(
    "--mtbf",
    group=FAILURES_GROUP,
    help="Mean time between failures of the process, e.g. 6h.  [default: no failures]",
)
@duration_option(
    "--restart-time", group=FAILURES_GROUP,
    help="Time from a failure until the run continues in a new process.  [default: 0]",
)  # fmt: skip
@option(
    "--trajectories", type=click.IntRange(1, 1_000_000), metavar="N", group=FAILURES_GROUP,
    help=f"Number of simulated runs at each point.  [default: {FAILING_RUNS}]",
)  # fmt: skip
@option(
    "--processes",
    type=click.IntRange(1),
    metavar="N",
    help="Number of processes that plan concurrently.  [default: one for each core]",
)
@out("-o", "--output", help="Write a table of all points to this CSV file; - is stdout.")
@out(
    "--picture",
    help="Draw the makespans to this .svg or .png file: over memory, or with --vary over its"
    " quantities.  [with --vary: needs ckio[plot]; else a .png needs ckio[png]]",
)
@json_option
def command(
    *,
    vary: Sequence[str],
    overlap: Policy | None,
    mtbf: float | None,
    restart_time: float | None,
    trajectories: int | None,
    processes: int | None,
    output: Path | None,
    picture: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Predict the makespan (run time) on other machines, for example with more memory.

    Use it to decide how much memory to request, which level to add, or which planner to use.
    Without --vary, the capacity of the first level of the --platform is varied by factors of 2,
    which shows what more memory would save and what less memory would cost.

    Each --vary names a quantity and its values. A schedule for --steps time steps is planned for
    each combination of the values:

    \b
    ram.capacity=1GiB:64GiB:13   13 capacities, from 1 to 64 GiB in equal factors
    ram.slots=1,2,4,8            capacity in number of restart checkpoints
    nvme.bandwidth=1GB,4GB       bytes/s; or .write.bandwidth, .read.bandwidth
    nvme.latency=0,1e-3          seconds; or .write.latency, .read.latency
    nvme.ratio=1,0.5             stored bytes per byte (compression)
    nvme=on,off                  with and without the level
    planner=hrevolve,mixed       planners
    steps=100,200                time steps; also working_memory, and each
                                 cost and size: advance, restart, ...
    overlap=none,all,auto        or a policy, with / instead of its commas
    ranks=1:4096:13              ranks, with --shared as in `ckio simulate`
    mtbf=1h,6h,1d,never          mean time between failures

    Without --overlap, no transfers overlap with computation, except for the planner `overlapped`.

    With failures (--mtbf), the makespan is the mean of N runs (--trajectories), as in `ckio
    failures`. The adjoint is then stored at Daly's interval, and all points see the same failures.

    The table gives the reason for each point that has no schedule. The Pareto front contains each
    point for which no other is better both in makespan and in bytes of checkpoints on the first
    level.
    """  # noqa: D301  (the mark tells click to leave these lines as they are)
    if picture is not None:
        if picture == STDOUT:
            raise BadInput(
                "--picture -: the suffix of a file gives the format; name a file, e.g. sweep.svg"
            )
        _check_suffix(picture.suffix, by_matplotlib=bool(vary))
    display = console.display(quiet=as_json)
    if any(text.startswith("ranks=") for text in vary):
        if options["ranks"] is not None:
            raise BadInput("--ranks and --vary ranks=... set the same quantity; give one of them")
        options["ranks"] = 1
    asked = what_if(
        vary,
        overlap=overlap,
        ranks=ranks_of(options),
        mtbf=mtbf,
        restart_time=restart_time,
        trajectories=trajectories,
        display=display,
        **options,
    )
    curves = list(map(curve_axis, asked.axes))
    if picture is not None and vary:
        check_axes(curves)
    answered = asked.answered(processes=processes, display=display)
    if picture is not None and not vary:
        _draw_memory(picture, answered)
    elif picture is not None:
        mean = "expected " if any(answer.error for answer in answered.answers) else ""
        data = draw_curves(
            *(curves, answered.curves()),
            memory=asked.base.memory, makespan=f"{mean}makespan", suffix=picture.suffix,
        )  # fmt: skip
        write_bytes(picture, data)
    if output is not None:
        write_text(output, answered.csv())
    rounds = lossy(asked.base.platform)
    if as_json:
        console.print_json(answered.figures() | {"lossy": rounds})
        return
    _show(answered, all_points=output is None)
    console.say_lossy(rounds)
    for path in (output, picture):
        if path is not None:
            tell_written(path)


def _check_suffix(suffix: str, *, by_matplotlib: bool) -> None:
    """Raise BadInput if no picture with this suffix can be drawn here."""
    if by_matplotlib or suffix not in (".svg", ".png"):
        check_curves(suffix)
    elif suffix == ".png":
        check_png()


def _draw_memory(path: Path, answered: Answered) -> None:
    curve = answered.over_memory()
    if curve is None:
        raise BadInput(f"{path.name}: there is nothing to draw, because {answered.said()}")
    text = over_memory(curve).file()
    if path.suffix == ".png":
        write_bytes(path, png(text))
    else:
        write_text(path, text)


def _show(answered: Answered, *, all_points: bool) -> None:
    """Print a table of all points, or of the Pareto front, and the result as a sentence."""
    shown = [at for at in range(len(answered.answers)) if all_points or answered.front[at]]
    bold = [row for row, at in enumerate(shown) if answered.front[at]]
    title = "" if all_points else "the Pareto front of memory against makespan"
    makespans = ["expected s", "±"] if answered.asked.fails else ["makespan s"]
    header = [*(axis.name for axis in answered.asked.axes), *makespans, "forward steps", "written"]
    rows = [_row(answered, at) for at in shown]
    console.print_table(title, [*header, "memory", "pareto"], rows, bold=bold)
    reasons = dict.fromkeys(answer.reason for answer in answered.answers if answer.reason)
    for reason in list(reasons)[:_REASONS]:
        console.echo(f"no schedule: {reason}")
    if len(reasons) > _REASONS:
        console.echo(f"no schedule: {len(reasons) - _REASONS} other reasons")
    if curve := answered.over_memory():
        nbytes, seconds = curve.everything
        console.echo(f"store everything: {bytes_text(nbytes)}, {seconds_text(seconds)}")
        console.echo(f"recompute everything: {seconds_text(curve.nothing)}")
    console.echo(answered.said())


def _row(answered: Answered, at: int) -> list[str]:
    answer = answered.answers[at]
    pairs = zip(answered.asked.axes, answered.asked.points[at].values, strict=True)
    values = [value_text(axis, value) for axis, value in pairs]
    if answer.reason:
        return [*values, "none", *[""] * (4 + answered.asked.fails)]
    return [
        *values,
        f"{answer.makespan:.6g}",
        *[_error_text(answer)] * answered.asked.fails,
        str(answer.forward),
        bytes_text(sum(use.written for use in (answer.levels or {}).values())),
        "unknown" if answer.memory is None else bytes_text(answer.memory),
        "*" if answered.front[at] else "",
    ]


def _error_text(answer: Answer) -> str:
    if not isfinite(answer.error):
        return ""
    return f"{answer.error:.2g}" if answer.error > _NOTHING * answer.makespan else "0"
