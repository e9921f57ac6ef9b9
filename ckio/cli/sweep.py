"""`ckio sweep`: what if the machine were another one? Plans for many, in a table and a picture."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from ckio.chain import COSTS, SECONDS, SIZES
from ckio.cli import console
from ckio.cli.files import out, read_text, write_text
from ckio.cli.levels import say_lossy
from ckio.cli.options import cost_options, json_option, overlap_option, planner_options
from ckio.cli.plans import plan_of, planner_call
from ckio.cli.ranks import ranks_of, ranks_options
from ckio.errors import BadInput
from ckio.overlap import Overlap
from ckio.pictures.whatif import check, draw, value_text
from ckio.pictures.words import bytes_text, seconds_text
from ckio.platforms import Platform
from ckio.registry import lossy
from ckio.sim.sweep import (
    Answer,
    Axis,
    Call,
    Point,
    Question,
    Use,
    front,
    parse,
    points,
    sentence,
    sweep,
)

_GIVEN: Final = ("planner", "steps", "platform", "model", "settings", "costs", *COSTS)
"""The options that are not a planner's own."""


@click.command()
@planner_options
@cost_options
@click.option(
    "--vary", "vary", multiple=True, metavar="AXIS", required=True,
    help="NAME=VALUE,... or NAME=LOW:HIGH:COUNT; may be repeated",
)  # fmt: skip
@overlap_option
@ranks_options
@click.option(
    "--processes", type=click.IntRange(1), help="that plan at a time  [default: one for each core]"
)
@out("-o", "--output", help="write a table of all points to this file, as CSV")
@out("--picture", help="draw makespans, and memory against makespan, into this file (.svg)")
@json_option
def command(
    *,
    vary: Sequence[str],
    overlap: Overlap | None,
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
    overlap=none,all             or a policy, with / instead of its commas
    ranks=1:4096:13              with --shared, as in `ckio simulate`

    A point where no schedule fits is a row with the reason. The Pareto front is of all points that
    no other beats both in makespan and in bytes of checkpoints on the first level.
    """  # noqa: D301  (the mark tells click to leave these lines as they are)
    if picture is not None and picture.suffix != ".svg":
        raise BadInput(f"--picture {picture}: pictures are written as .svg")
    base, planners, axes = _asked(vary, overlap, options, quiet=as_json)
    if picture is not None:
        check(axes)
    asked = list(points(axes, base, planners))
    table = Table.of(axes, asked, _answers(asked, processes, quiet=as_json))
    if picture is not None:
        drawn = draw(axes, table.answers, table.front, base.memory)
        write_text(picture, drawn)
    if output is not None:
        write_text(output, table.csv(base.platform))
    if as_json:
        console.print_json(table.figures() | {"lossy": lossy(base.platform)})
        return
    table.show(all_points=output is None)
    say_lossy(base.platform)
    for path in (output, picture):
        if path is not None:
            click.echo(f"written to {path}")


def _asked(
    vary: Sequence[str], overlap: Overlap | None, options: dict[str, Any], *, quiet: bool
) -> tuple[Question, dict[str, Call], list[Axis]]:
    """The question that the options ask, every planner by its name, and the axes."""
    path: Path | None = options["platform"]
    if path is None:
        raise BadInput("--platform is missing: a file from `ckio calibrate`, or paper 004's text")
    machine = Platform.loads(read_text(path), source=str(path))
    axes = [parse(text, machine) for text in vary]
    varied = {axis.name: axis.values for axis in axes}
    _fill_in(options, varied)
    ranks = ranks_of(options)
    if "ranks" in varied and overlap:
        raise BadInput("--ranks: transfers of many ranks are synchronous; say --overlap none")
    plan = plan_of(**options, quiet=quiet)
    own = {name: value for name, value in options.items() if name not in _GIVEN}
    names = {str(name) for name in varied.get("planner", ())}
    planners = {name: planner_call(name, **own) for name in sorted(names)}
    planners.setdefault(plan.planner, plan.call)
    memory = plan.platform.levels[0].name if plan.platform.levels else ""
    base = Question(
        plan.planner, planners[plan.planner], plan.chain, plan.platform, memory, overlap, ranks
    )
    return base, planners, axes


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


@dataclass(frozen=True)
class Table:
    """All points of a sweep with their answers, and whether each is on the Pareto front."""

    axes: Sequence[Axis]
    points: Sequence[Point]
    answers: Sequence[Answer]
    front: Sequence[bool]

    @staticmethod
    def of(axes: Sequence[Axis], asked: Sequence[Point], answers: Sequence[Answer]) -> "Table":
        return Table(axes, asked, answers, front(answers))

    def csv(self, platform: Platform) -> str:
        """A line for each point; what there is not is empty, and numbers keep all their digits."""
        names = [level.name for level in platform.levels]
        of_levels = [f"{name}.{what}" for name in names for what in ("written", "read", "peak")]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([axis.name for axis in self.axes] + [*_COLUMNS, *of_levels, "reason"])
        for point, answer, best in zip(self.points, self.answers, self.front, strict=True):
            values = ["unlimited" if value is None else value for value in point.values]
            if answer.reason:
                writer.writerow([*values, *[""] * (len(_COLUMNS) + len(of_levels)), answer.reason])
                continue
            uses = [(answer.levels or {}).get(name, Use()) for name in names]
            levels = [number for use in uses for number in (use.written, use.read, use.peak)]
            memory = "" if answer.memory is None else answer.memory
            figures = [answer.makespan, answer.forward, answer.actions, memory, int(best)]
            writer.writerow([*values, *figures, *levels, ""])
        return text.getvalue()

    def figures(self) -> dict[str, Any]:
        """What `--json` says."""
        return {
            "axes": {axis.name: list(axis.values) for axis in self.axes},
            "points": [
                self._figures(point, answer, best)
                for point, answer, best in zip(self.points, self.answers, self.front, strict=True)
            ],
            "answer": self.said(),
        }

    def _figures(self, point: Point, answer: Answer, best: bool) -> dict[str, Any]:
        values = dict(zip((axis.name for axis in self.axes), point.values, strict=True))
        if answer.reason:
            return {"values": values, "reason": answer.reason}
        levels = {
            name: {"written": use.written, "read": use.read, "peak": use.peak}
            for name, use in (answer.levels or {}).items()
        }
        return {
            "values": values,
            "makespan": answer.makespan,
            "forward_steps": answer.forward,
            "actions": answer.actions,
            "memory": answer.memory,
            "pareto": best,
            "levels": levels,
        }

    def said(self) -> str:
        """The answer in a sentence: of one axis what it does, of several the best point."""
        if len(self.axes) == 1:
            return sentence(self.axes[0], self.answers, value_text)
        planned = [at for at, answer in enumerate(self.answers) if not answer.reason]
        if not planned:
            return f"no point has a schedule: {self.answers[0].reason}"
        best = min(planned, key=lambda at: self.answers[at].makespan)
        where = ", ".join(
            f"{axis.name} = {value_text(axis, value)}"
            for axis, value in zip(self.axes, self.points[best].values, strict=True)
        )
        least = seconds_text(self.answers[best].makespan)
        return f"the least makespan of {len(planned)} points is {least}, at {where}"

    def show(self, *, all_points: bool) -> None:
        """The points, or only those on the front, as a person reads them; then the sentence."""
        shown = [at for at in range(len(self.points)) if all_points or self.front[at]]
        bold = [row for row, at in enumerate(shown) if self.front[at]]
        title = "" if all_points else "the Pareto front of memory against makespan"
        header = [*(axis.name for axis in self.axes), "makespan s", "forward steps", "written"]
        rows = [self._row(at) for at in shown]
        console.print_table(title, [*header, "memory", "pareto"], rows, bold=bold)
        reasons = dict.fromkeys(answer.reason for answer in self.answers if answer.reason)
        for reason in list(reasons)[:_REASONS]:
            click.echo(f"no schedule: {reason}")
        if len(reasons) > _REASONS:
            click.echo(f"and {len(reasons) - _REASONS} other reasons")
        click.echo(self.said())

    def _row(self, at: int) -> list[str]:
        answer = self.answers[at]
        pairs = zip(self.axes, self.points[at].values, strict=True)
        values = [value_text(axis, value) for axis, value in pairs]
        if answer.reason:
            return [*values, "none", "", "", "", ""]
        return [
            *values,
            f"{answer.makespan:.6g}",
            str(answer.forward),
            bytes_text(sum(use.written for use in (answer.levels or {}).values())),
            "unknown" if answer.memory is None else bytes_text(answer.memory),
            "*" if self.front[at] else "",
        ]


_COLUMNS: Final = ("makespan", "forward_steps", "actions", "memory", "pareto")
"""What the CSV says of each point, before its levels."""

_REASONS: Final = 5
"""So many different reasons are told below the table."""
