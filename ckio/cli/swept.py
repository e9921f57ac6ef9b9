"""What a sweep has found, for people and for scripts: a table, CSV, or the figures of `--json`."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

from ckio.cli import console
from ckio.platform import Platform
from ckio.platform.readable import bytes_text, seconds_text
from ckio.report.curves import CurveAxis, CurvePoint
from ckio.sim.sweep import Answer, Axis, Point, Question, Use, Value, front, sentence

_TIMES: Final = ((86400, "d"), (3600, "h"), (60, "min"))


def value_text(axis: Axis, value: Value, /) -> str:
    """A value of an axis, with its unit."""
    if value is None or isinstance(value, str):
        return value or axis.endless
    match axis.knob.rpartition(".")[2]:
        case "capacity" | "working_memory" | "restart" | "tape" | "adjoint":
            return bytes_text(int(value))
        case "bandwidth":
            return _rate_text(int(value))
        case "latency" | "advance" | "record" | "reverse":
            return seconds_text(value)
        case "mtbf":
            return _time_text(value)
        case _:
            return str(value) if isinstance(value, int) else f"{value:.4g}"


def _rate_text(rate: int) -> str:
    """Bytes per second in the units in which drives are sold, powers of 1000."""
    power = min(4, (len(str(rate)) - 1) // 3)
    return f"{rate / 1000**power:.3g} {('B', 'kB', 'MB', 'GB', 'TB')[power]}/s"


def _time_text(seconds: float) -> str:
    """A long time in the unit in which it is easy to read, up to days."""
    for unit, sign in _TIMES:
        if seconds >= unit:
            return f"{seconds / unit:.4g} {sign}"
    return seconds_text(seconds)


def curve_axis(axis: Axis, /) -> CurveAxis:
    """The axis as it is drawn."""
    labels = tuple(value_text(axis, value) for value in axis.values)
    numbers = [None if isinstance(value, str) else value for value in axis.values]
    return CurveAxis(axis.name, labels, tuple(numbers) if axis.is_ordered else None)


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

    @property
    def fails(self) -> bool:
        """Whether any makespan is the mean of runs that fail."""
        asked = (point.question for point in self.points)
        return any(isinstance(question, Question) and question.fails for question in asked)

    def csv(self, platform: Platform) -> str:
        """A line for each point; what there is not is empty, and numbers keep all their digits."""
        names = [level.name for level in platform.levels]
        columns = [*_COLUMNS, *["error"] * self.fails]
        of_levels = [f"{name}.{what}" for name in names for what in ("written", "read", "peak")]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([axis.name for axis in self.axes] + [*columns, *of_levels, "reason"])
        for point, answer, best in zip(self.points, self.answers, self.front, strict=True):
            pairs = zip(self.axes, point.values, strict=True)
            values = [axis.endless if value is None else value for axis, value in pairs]
            if answer.reason:
                writer.writerow([*values, *[""] * (len(columns) + len(of_levels)), answer.reason])
                continue
            uses = [(answer.levels or {}).get(name, Use()) for name in names]
            levels = [number for use in uses for number in (use.written, use.read, use.peak)]
            memory = "" if answer.memory is None else answer.memory
            figures = [answer.makespan, answer.forward, answer.actions, memory, int(best)]
            errors = [_known(answer.error, "")] * self.fails
            writer.writerow([*values, *figures, *errors, *levels, ""])
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
            **({"error": _known(answer.error, None)} if self.fails else {}),
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

    def curves(self) -> list[CurvePoint | None]:
        """The points as they are drawn; None where there is no schedule."""
        return [
            None if answer.reason else CurvePoint(answer.makespan, answer.memory, best)
            for answer, best in zip(self.answers, self.front, strict=True)
        ]

    def show(self, *, all_points: bool) -> None:
        """The points, or only those on the front, as a person reads them; then the sentence."""
        shown = [at for at in range(len(self.points)) if all_points or self.front[at]]
        bold = [row for row, at in enumerate(shown) if self.front[at]]
        title = "" if all_points else "the Pareto front of memory against makespan"
        makespans = ["expected s", "±"] if self.fails else ["makespan s"]
        header = [*(axis.name for axis in self.axes), *makespans, "forward steps", "written"]
        rows = [self._row(at) for at in shown]
        console.print_table(title, [*header, "memory", "pareto"], rows, bold=bold)
        reasons = dict.fromkeys(answer.reason for answer in self.answers if answer.reason)
        for reason in list(reasons)[:_REASONS]:
            console.echo(f"no schedule: {reason}")
        if len(reasons) > _REASONS:
            console.echo(f"and {len(reasons) - _REASONS} other reasons")
        console.echo(self.said())

    def _row(self, at: int) -> list[str]:
        answer = self.answers[at]
        pairs = zip(self.axes, self.points[at].values, strict=True)
        values = [value_text(axis, value) for axis, value in pairs]
        if answer.reason:
            return [*values, "none", *[""] * (4 + self.fails)]
        return [
            *values,
            f"{answer.makespan:.6g}",
            *[_error_text(answer)] * self.fails,
            str(answer.forward),
            bytes_text(sum(use.written for use in (answer.levels or {}).values())),
            "unknown" if answer.memory is None else bytes_text(answer.memory),
            "*" if self.front[at] else "",
        ]


def _known(error: float, unknown: str | None) -> float | str | None:
    """A standard error; of a single run it is not known."""
    return error if isfinite(error) else unknown


def _error_text(answer: Answer) -> str:
    if not isfinite(answer.error):
        return ""
    return f"{answer.error:.2g}" if answer.error > _NOTHING * answer.makespan else "0"


_COLUMNS: Final = ("makespan", "forward_steps", "actions", "memory", "pareto")
"""What the CSV says of each point, before its levels; where runs fail, and the standard error."""

_NOTHING: Final = 1e-12
"""The part of a makespan below which an error is one of rounding alone."""

_REASONS: Final = 5
"""So many different reasons are told below the table."""
