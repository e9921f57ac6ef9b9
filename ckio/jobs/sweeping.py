"""Plans for many machines, chains and planners in one call, to compare their makespans.

asked = what_if(["ram.slots=2,4,8"], platform=Path("platform.toml"), steps=1000)
answered = asked.answered()         plans all points, on all cores
print(answered.said())              for example: from 2 to 4 of ram.slots: 20.1% less
answered.csv()                      a line for each point
"""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf, isfinite
from pathlib import Path
from typing import Any, Final

from ckio.errors import BadInput
from ckio.jobs.display import QUIET, Display
from ckio.jobs.failing import Expected
from ckio.jobs.planning import Planning, plan_of, planner_call
from ckio.planners.trivial import recompute_all, store_all
from ckio.platform import Platform
from ckio.platform.chain import COSTS, SECONDS, SIZES, Chain
from ckio.platform.readable import bytes_text, read_text, seconds_text
from ckio.report.curves import CurveAxis, CurvePoint
from ckio.report.headline import tape_bytes
from ckio.report.pictures import MemoryCurve
from ckio.schedule import makespan
from ckio.schedule.policy import SYNCHRONOUS, Policy
from ckio.sim.ranks import Ranks
from ckio.sim.sweep import (
    Answer,
    Axis,
    Point,
    Question,
    Use,
    Value,
    front,
    parse,
    points,
    sentence,
    sweep,
)

FAILING_RUNS: Final = 20
"""The number of runs with failures at each point, if none is given."""

_GIVEN: Final = ("planner", "steps", "platform", "model", "settings", "costs", *COSTS)
"""The options that do not belong to a planner."""

_COLUMNS: Final = ("makespan", "forward_steps", "actions", "memory", "pareto")
"""The columns of each point, before the columns of the levels."""

_MOST_DOUBLINGS: Final = 10
"""Plans are made for memories from 1/1024 of the present one to 1024 times the present one."""

_TIMES: Final = ((86400, "d"), (3600, "h"), (60, "min"))


_BYTES: Final = ("capacity", "working_memory", "restart", "tape", "adjoint")
"""The knobs whose values are bytes."""


def value_text(axis: Axis, value: Value, /) -> str:
    """Return a value of an axis, with its unit."""
    if value is None or isinstance(value, str):
        return value or axis.endless
    match axis.knob.rpartition(".")[2]:
        case knob if knob in _BYTES:
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
    """Return bytes per second with a decimal unit (powers of 1000), as for drives."""
    power = min(4, (len(str(rate)) - 1) // 3)
    return f"{rate / 1000**power:.3g} {('B', 'kB', 'MB', 'GB', 'TB')[power]}/s"


def _time_text(seconds: float) -> str:
    """Return a long time in minutes, hours or days."""
    for unit, sign in _TIMES:
        if seconds >= unit:
            return f"{seconds / unit:.4g} {sign}"
    return seconds_text(seconds)


def curve_axis(axis: Axis, /) -> CurveAxis:
    """Return an axis for drawing."""
    labels = tuple(value_text(axis, value) for value in axis.values)
    numbers = [None if isinstance(value, str) else value for value in axis.values]
    if not axis.is_ordered:
        return CurveAxis(axis.name, labels)
    base = 1024 if axis.knob.rpartition(".")[2] in _BYTES else 1000
    return CurveAxis(axis.name, labels, tuple(numbers), partial(value_text, axis), base)


@dataclass(frozen=True)
class WhatIf:
    """A question, the axes along which it varies, and all points of these axes.

    Attributes
    ----------
    base : Question
        The question with the present values.
    axes : sequence of Axis
        The quantities that vary, with their values.
    points : sequence of Point
        All combinations of the axes' values; the last axis varies fastest.
    about_memory : bool
        Whether no axis was named. The only axis is then the capacity of the first level.
    """

    base: Question
    axes: Sequence[Axis]
    points: Sequence[Point]
    about_memory: bool = False

    @property
    def fails(self) -> bool:
        """Return whether any makespan is the mean of runs with failures."""
        asked = (point.question for point in self.points)
        return any(isinstance(question, Question) and question.fails for question in asked)

    def answered(self, *, processes: int | None = None, display: Display = QUIET) -> "Answered":
        """Plan all points in parallel processes, by default one for each core."""
        questions = [
            point.question for point in self.points if isinstance(point.question, Question)
        ]
        with display.progress("planning", len(questions), unit="points") as tick:
            planned = iter(sweep(questions, processes=processes, watch=tick))
        answers = [
            next(planned) if isinstance(point.question, Question) else Answer(reason=point.question)
            for point in self.points
        ]
        return Answered(self, answers, front(answers))


def what_if(
    vary: Sequence[str],
    /,
    *,
    platform: Path | None,
    overlap: Policy | None = None,
    ranks: Ranks | None = None,
    mtbf: float | None = None,
    restart_time: float | None = None,
    trajectories: int | None = None,
    display: Display = QUIET,
    **options: Any,
) -> WhatIf:
    """Return the question of how a chain would be planned on other machines.

    Parameters
    ----------
    vary : sequence of str
        The axes, in the form of `ckio.sim.sweep.parse`: NAME=VALUE,... or NAME=LOW:HIGH:COUNT.
        Without axes, the capacity of the first level varies in powers of two, from one checkpoint
        to the bytes of all tapes.
    platform : path
        A file of `ckio calibrate`.
    overlap : Overlap, "auto" or None
        The policy for overlap. None is synchronous, except for the planner `overlapped`.
    ranks : Ranks, optional
        The ranks that perform the schedule together.
    mtbf, restart_time : float, optional
        The mean time between failures, and the time from a failure until another process runs, in
        seconds.
    trajectories : int, optional
        The number of runs with failures at each point.
    **options
        The options of `plan_of`. An option that an axis varies need not be given.

    Raises
    ------
    BadInput
        If an option is missing, or options do not fit together.
    """
    if platform is None:
        raise BadInput(
            "--platform is missing: a file that `ckio calibrate` writes; see ckio calibrate --help"
        )
    machine = Platform.loads(read_text(platform), source=str(platform))
    axes = [parse(text, machine) for text in vary]
    varied = {axis.name: axis.values for axis in axes}
    if "ranks" in varied and ranks is None:
        ranks = Ranks(count=1)
    options = _filled_in({"platform": platform, **options}, varied)
    plan = plan_of(**options, overlap=overlap or SYNCHRONOUS, display=display)
    if not vary:
        axes = [_memory_axis(plan)]
    own = {name: value for name, value in options.items() if name not in _GIVEN}
    names = {str(name) for name in varied.get("planner", ())}
    planners = {name: planner_call(name, **own) for name in sorted(names)}
    planners.setdefault(plan.planner, plan.call)
    memory = plan.platform.levels[0].name if plan.platform.levels else ""
    call = planners[plan.planner]
    base = Question(plan.planner, call, plan.chain, plan.platform, memory, overlap, ranks)
    base = _failing(base, varied, mtbf, restart_time, trajectories)
    return WhatIf(base, axes, list(points(axes, base, planners)), about_memory=not vary)


def _memory_axis(plan: Planning) -> Axis:
    """Return the axis of the first level's capacity: the present one times powers of two."""
    first = plan.platform.levels[0] if plan.platform.levels else None
    if first is None or first.capacity is None:
        raise BadInput(
            "sweep: the platform has no first level whose capacity is limited, so there is no"
            " memory to vary; name an axis, for example --vary planner=hrevolve,mixed"
        )
    least = first.stored(plan.chain.largest("restart"))
    most = max(_everything(plan.chain)[0], first.capacity)
    more = [first.capacity << power for power in range(_MOST_DOUBLINGS + 1)]
    less = [first.capacity >> power for power in range(1, _MOST_DOUBLINGS + 1)]
    known = [memory for memory in (*less[::-1], *more) if least <= memory < 2 * most]
    capacities = sorted({first.capacity, *known})
    return parse(f"{first.name}.capacity={','.join(map(str, capacities))}", plan.platform)


def _everything(chain: Chain) -> tuple[int, float]:
    """Return the bytes of all tapes, and the makespan if they are stored in memory."""
    endless = Platform((), working_memory=None)
    return tape_bytes(chain), makespan(store_all(chain, endless), endless)


def _filled_in(options: Mapping[str, Any], varied: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Return the options, with a value of each axis that varies one; none may be given twice."""
    filled = dict(options)
    for name in ("planner", "steps", *SECONDS, *SIZES):
        if name not in varied:
            continue
        if filled.get(name) is not None:
            raise BadInput(f"--{name} is also varied by --vary {name}=...; give one of them")
        filled[name] = max(varied[name]) if name == "steps" else varied[name][0]
    return filled


def _failing(
    question: Question,
    varied: Mapping[str, Sequence[Any]],
    mtbf: float | None,
    restart: float | None,
    runs: int | None,
) -> Question:
    """Return the question with failures; raises BadInput if the options do not fit together."""
    if mtbf is not None and "mtbf" in varied:
        raise BadInput("--mtbf is also varied by --vary mtbf=...; give one of them")
    if mtbf is None and "mtbf" not in varied:
        if (restart, runs) != (None, None):
            raise BadInput(
                "--restart-time and --trajectories are options of runs with failures; give the mean"
                " time between failures by --mtbf TIME or --vary mtbf=..."
            )
        return question
    if question.overlap or question.ranks is not None:
        raise BadInput(
            "--mtbf: runs with failures are simulated on one rank and without overlap; leave out"
            " --ranks and --overlap"
        )
    expect = Expected(restart or 0.0, runs or FAILING_RUNS)
    return replace(question, mtbf=mtbf or inf, expect=expect)


@dataclass(frozen=True)
class Answered:
    """All points with their answers, and whether each is on the Pareto front.

    Attributes
    ----------
    asked : WhatIf
        The question.
    answers : sequence of Answer
        The answers, in the order of the points.
    front : sequence of bool
        For each point, whether no other point has both less memory and a smaller makespan.
    """

    asked: WhatIf
    answers: Sequence[Answer]
    front: Sequence[bool]

    def rows(self) -> Sequence[tuple[Point, Answer, bool]]:
        """Return each point with its answer, and whether it is on the front."""
        return list(zip(self.asked.points, self.answers, self.front, strict=True))

    def curves(self) -> list[CurvePoint | None]:
        """Return the points for drawing; None for a point without a schedule."""
        return [
            None if answer.reason else CurvePoint(answer.makespan, answer.memory, best)
            for answer, best in zip(self.answers, self.front, strict=True)
        ]

    def over_memory(self) -> MemoryCurve | None:
        """Return the curve of makespan over memory; None for other axes, or without any plan."""
        if not self.asked.about_memory:
            return None
        (axis,), base = self.asked.axes, self.asked.base
        planned = [
            (int(value), answer.makespan)
            for value, answer in zip(axis.values, self.answers, strict=True)
            if value is not None and not answer.reason
        ]
        if not planned:
            return None
        present = base.platform.levels[0].capacity or 0
        nothing = makespan(recompute_all(base.chain, base.platform), base.platform)
        return MemoryCurve(sorted(planned), present, _everything(base.chain), nothing)

    def csv(self) -> str:
        """Return a line for each point, with all digits. Unknown values are empty."""
        names = [level.name for level in self.asked.base.platform.levels]
        columns = [*_COLUMNS, *["error"] * self.asked.fails]
        of_levels = [f"{name}.{what}" for name in names for what in ("written", "read", "peak")]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([axis.name for axis in self.asked.axes] + [*columns, *of_levels, "reason"])
        for point, answer, best in self.rows():
            pairs = zip(self.asked.axes, point.values, strict=True)
            values = [axis.endless if value is None else value for axis, value in pairs]
            if answer.reason:
                writer.writerow([*values, *[""] * (len(columns) + len(of_levels)), answer.reason])
                continue
            uses = [(answer.levels or {}).get(name, Use()) for name in names]
            levels = [number for use in uses for number in (use.written, use.read, use.peak)]
            memory = "" if answer.memory is None else answer.memory
            figures = [answer.makespan, answer.forward, answer.actions, memory, int(best)]
            errors = [_known(answer.error, "")] * self.asked.fails
            writer.writerow([*values, *figures, *errors, *levels, ""])
        return text.getvalue()

    def figures(self) -> dict[str, Any]:
        """Return the axes, the points and the sentence as plain data, as `--json` prints them."""
        return {
            "axes": {axis.name: list(axis.values) for axis in self.asked.axes},
            "points": [self._figures(point, answer, best) for point, answer, best in self.rows()],
            "answer": self.said(),
        }

    def _figures(self, point: Point, answer: Answer, best: bool) -> dict[str, Any]:
        values = dict(zip((axis.name for axis in self.asked.axes), point.values, strict=True))
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
            **({"error": _known(answer.error, None)} if self.asked.fails else {}),
        }

    def said(self) -> str:
        """Return the answer in a sentence: the effect of one axis, or the best point of several."""
        if curve := self.over_memory():
            return curve.said()
        if len(self.asked.axes) == 1:
            return sentence(self.asked.axes[0], self.answers, value_text)
        planned = [at for at, answer in enumerate(self.answers) if not answer.reason]
        if not planned:
            return f"no point has a schedule: {self.answers[0].reason}"
        best = min(planned, key=lambda at: self.answers[at].makespan)
        where = ", ".join(
            f"{axis.name} = {value_text(axis, value)}"
            for axis, value in zip(self.asked.axes, self.asked.points[best].values, strict=True)
        )
        least = seconds_text(self.answers[best].makespan)
        return f"the least makespan of {len(planned)} points is {least}, at {where}"


def _known(error: float, unknown: str | None) -> float | str | None:
    """Return a standard error, or `unknown` if it is not finite, as for a single run."""
    return error if isfinite(error) else unknown
