"""`ckio sweep`: what if the machine were another one? Plans for many, in a table and a picture."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any, Final

import click

from ckio.adapters.registry import lossy
from ckio.cli import console
from ckio.cli.files import STDOUT, out, read_text, tell_written, write_bytes, write_text
from ckio.cli.levels import say_lossy
from ckio.cli.options import (
    cost_options,
    duration_option,
    json_option,
    overlap_option,
    planner_options,
)
from ckio.cli.plans import plan_of
from ckio.cli.ranks import ranks_of, ranks_options
from ckio.cli.swept import Table, curve_axis
from ckio.errors import BadInput
from ckio.jobs.failing import Expected
from ckio.jobs.planning import planner_call
from ckio.planners.base import Planner
from ckio.platform import Platform
from ckio.platform.chain import COSTS, SECONDS, SIZES
from ckio.report.curves import check_axes, check_curves, draw_curves
from ckio.schedule.policy import SYNCHRONOUS, Policy
from ckio.sim.sweep import (
    Answer,
    Axis,
    Point,
    Question,
    parse,
    points,
    sweep,
)

_GIVEN: Final = ("planner", "steps", "platform", "model", "settings", "costs", *COSTS)
"""The options that are not a planner's own."""

_RUNS: Final = 20
"""That fail, at each point, if it is not said how many."""


@click.command()
@planner_options
@cost_options
@click.option(
    "--vary", "vary", multiple=True, metavar="AXIS", required=True,
    help="NAME=VALUE,... or NAME=LOW:HIGH:COUNT; may be repeated",
)  # fmt: skip
@overlap_option
@ranks_options
@duration_option("--mtbf", help="mean time between failures  [default: never]")
@duration_option("--restart-time", help="from a failure until another process runs  [default: 0]")
@click.option(
    "--trajectories", type=click.IntRange(1, 1_000_000), metavar="N",
    help=f"runs that fail, at each point  [default: {_RUNS}]",
)  # fmt: skip
@click.option(
    "--processes", type=click.IntRange(1), help="that plan at a time  [default: one for each core]"
)
@out("-o", "--output", help="write a table of all points to this file, as CSV; - is stdout")
@out(
    "--picture",
    help="draw makespans, and memory against makespan: .svg, .png  [needs ckio[plot]]",
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
    """Ask what a chain of --steps would take on other machines than the --platform.

    Every --vary is an axis, and all combinations of their values are planned and priced:

    \b
    ram.capacity=1GiB:64GiB:13   13 capacities that grow by equal factors
    ram.slots=1,2,4,8            room for so many restart checkpoints
    nvme.bandwidth=1GB,4GB       bytes a second; .write.bandwidth and .read.bandwidth
    nvme.latency=0,1e-3          seconds; .write.latency and .read.latency
    nvme.ratio=1,0.5             stored bytes per byte of a checkpoint: it takes less room
    nvme=on,off                  with the level, and without it
    planner=hrevolve,mixed       steps=..., working_memory=..., and all costs and sizes
    overlap=none,all,auto        or a policy, with / instead of its commas
    ranks=1:4096:13              with --shared, as in `ckio simulate`
    mtbf=1h,6h,1d,never          mean time between failures, one over their rate

    Without --overlap a plan is synchronous, but for that of the planner `overlapped`.

    Where runs fail, the makespan is the mean of --trajectories, as `ckio failures` finds it where
    the adjoint is stored at Daly's interval; all points see the same failures.

    A point where no schedule fits is a row with the reason. The Pareto front is of all points that
    no other beats both in makespan and in bytes of checkpoints on the first level.
    """  # noqa: D301  (the mark tells click to leave these lines as they are)
    if picture is not None:
        if picture == STDOUT:
            raise BadInput("a picture on stdout has no name that says what it is; name a file")
        check_curves(picture.suffix)
    failing = Failing(mtbf, restart_time, trajectories)
    base, planners, axes = _asked(vary, overlap, failing, options, quiet=as_json)
    curves = list(map(curve_axis, axes))
    if picture is not None:
        check_axes(curves)
    asked = list(points(axes, base, planners))
    table = Table.of(axes, asked, _answers(asked, processes, quiet=as_json))
    if picture is not None:
        mean = "expected " if any(answer.error for answer in table.answers) else ""
        data = draw_curves(
            *(curves, table.curves()),
            memory=base.memory, makespan=f"{mean}makespan", suffix=picture.suffix,
        )  # fmt: skip
        write_bytes(picture, data)
    if output is not None:
        write_text(output, table.csv(base.platform))
    if as_json:
        console.print_json(table.figures() | {"lossy": lossy(base.platform)})
        return
    table.show(all_points=output is None)
    say_lossy(base.platform)
    for path in (output, picture):
        if path is not None:
            tell_written(path)


@dataclass(frozen=True)
class Failing:
    """What the options say of failures: how often, and what comes then; None where nothing."""

    mtbf: float | None
    restart: float | None
    runs: int | None

    def fill_in(self, question: Question, varied: Mapping[str, Sequence[Any]]) -> Question:
        """The question of a run that fails so often; raises BadInput where that does not fit."""
        if self.mtbf is not None and "mtbf" in varied:
            raise BadInput("--mtbf is what --vary mtbf=... varies; give one of them")
        if self.mtbf is None and "mtbf" not in varied:
            if (self.restart, self.runs) != (None, None):
                raise BadInput(
                    "--restart-time and --trajectories are about failures: say how often, by"
                    " --mtbf TIME or --vary mtbf=..."
                )
            return question
        if question.overlap or question.ranks is not None:
            raise BadInput(
                "--mtbf: a run that fails is simulated alone, and without overlap; leave out"
                " --ranks and --overlap"
            )
        expect = Expected(self.restart or 0.0, self.runs or _RUNS)
        return replace(question, mtbf=self.mtbf or inf, expect=expect)


def _asked(
    vary: Sequence[str],
    overlap: Policy | None,
    failing: Failing,
    options: dict[str, Any],
    *,
    quiet: bool,
) -> tuple[Question, dict[str, Planner], list[Axis]]:
    """The question that the options ask, every planner by its name, and the axes."""
    path: Path | None = options["platform"]
    if path is None:
        raise BadInput("--platform is missing: a file from `ckio calibrate`, or paper 004's text")
    machine = Platform.loads(read_text(path), source=str(path))
    axes = [parse(text, machine) for text in vary]
    varied = {axis.name: axis.values for axis in axes}
    _fill_in(options, varied)
    ranks = ranks_of(options)
    plan = plan_of(**options, overlap=overlap or SYNCHRONOUS, quiet=quiet)
    own = {name: value for name, value in options.items() if name not in _GIVEN}
    names = {str(name) for name in varied.get("planner", ())}
    planners = {name: planner_call(name, **own) for name in sorted(names)}
    planners.setdefault(plan.planner, plan.call)
    memory = plan.platform.levels[0].name if plan.platform.levels else ""
    base = Question(
        plan.planner, planners[plan.planner], plan.chain, plan.platform, memory, overlap, ranks
    )
    return failing.fill_in(base, varied), planners, axes


def _fill_in(options: dict[str, Any], varied: Mapping[str, Sequence[Any]]) -> None:
    """An option that an axis stands for need not be given; if it is, nothing would come of it."""
    for name in ("planner", "steps", "ranks", *SECONDS, *SIZES):
        if name not in varied:
            continue
        if options[name] is not None:
            raise BadInput(f"--{name} is what --vary {name}=... varies; give one of them")
        options[name] = max(varied[name]) if name == "steps" else varied[name][0]


def _answers(asked: Sequence[Point], processes: int | None, *, quiet: bool) -> list[Answer]:
    """The answers of all points, in their order."""
    questions = [point.question for point in asked if isinstance(point.question, Question)]
    with console.progress("planning", len(questions), unit="points", quiet=quiet) as tick:
        found = iter(sweep(questions, processes=processes, watch=tick))
    return [
        next(found) if isinstance(point.question, Question) else Answer(reason=point.question)
        for point in asked
    ]
