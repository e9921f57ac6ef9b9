"""The comparison of two runs: the faster one, the causes of the difference, tables and pictures.

The difference of two makespans is the sum of its causes. The forward steps have two causes, and so
have the adjoint steps: a different number of steps, at the seconds per step of the first run, and
different seconds per step, for the number of steps of the second run. For example, A computes 400
forward steps in 2 ms each, and B computes 100 in 3 ms each. Then 300 fewer steps are -0.6 s, and
slower steps are +0.1 s. Each level is one more cause: the time in which the program reads, writes
or discards there, or waits for a transfer. The last cause is the time between actions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Final

from ckio.actions.columns import DISCARD, READ, VERBS
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.platform.readable import bytes_text, seconds_text
from ckio.report import BETWEEN, NOTICED, ReportRow, compare
from ckio.report.document import HELP, document, figure, table
from ckio.report.headline import peak_bytes
from ckio.report.pictures import (
    PlotAxis,
    resources,
    spacetime,
    storage,
    sweeps,
)
from ckio.schedule.timeline import Timeline

SAME: Final = 0.01
"""The verdict names no cause if the makespans differ by at most this part of the longer one."""
_EXPLAINED: Final = 0.8
"""The verdict names causes until they explain this part of the difference."""
_MOST_CAUSES: Final = 3
_AGAINST: Final = 0.25
"""The verdict names a cause in the other direction from this part of the difference."""
_COMPUTING: Final = {"forward": ("advance", "record"), "adjoint": ("reverse",)}


@dataclass(frozen=True)
class RunSide:
    """One of two runs.

    Attributes
    ----------
    name : str
        The name of the run in sentences and tables.
    timeline, chain, platform
        The measured timeline, the time steps and the machine.
    facts : mapping of str to str
        Further facts, such as planner and versions, in reading order.
    problem : mapping of str to str
        Model, settings and steps. If they differ, the two gradients are not comparable.
    predicted : float or None
        The predicted makespan in seconds.
    digest : str
        The digest of the gradient, or "" if it is unknown.
    """

    name: str
    timeline: Timeline
    chain: Chain
    platform: Platform
    facts: Mapping[str, str] = field(default_factory=dict)
    problem: Mapping[str, str] = field(default_factory=dict)
    predicted: float | None = None
    digest: str = ""

    @property
    def rows(self) -> dict[str, ReportRow]:
        """The measured seconds of each class of action, by its name."""
        names = [level.name for level in self.platform.levels]
        report = compare(self.timeline, self.timeline, names=names)
        return {row.name: row for row in report.rows}

    @property
    def is_whole(self) -> bool:
        """Whether the timeline reverses every step. The last process of a resumed run does not."""
        row = self.rows.get("reverse")
        return row is not None and row.steps >= self.chain.length


@dataclass(frozen=True, slots=True)
class Cause:
    """A part of the difference of two makespans: seconds more in the second run, and why."""

    seconds: float
    why: str


def causes(first: RunSide, second: RunSide, /) -> list[Cause]:
    """Return the causes of the difference of the makespans, the largest first.

    The sum of their seconds is the makespan of the second run less that of the first.
    """
    old, new = first.rows, second.rows
    parts: list[Cause] = []
    for direction, classes in _COMPUTING.items():
        parts += _computing(direction, _steps(old, classes), _steps(new, classes))
    for level in dict.fromkeys([*_levels(first), *_levels(second)]):
        seconds = _at_level(new, level) - _at_level(old, level)
        more = "more" if seconds > 0 else "less"
        why = f"it spends {seconds_text(abs(seconds))} {more} on level {level}"
        parts.append(Cause(seconds, why))
    between = new[BETWEEN].measured - old[BETWEEN].measured
    more = "more" if between > 0 else "less"
    parts.append(Cause(between, f"it spends {seconds_text(abs(between))} {more} {BETWEEN}"))
    return sorted(filter(lambda cause: cause.seconds, parts), key=lambda it: -abs(it.seconds))


def _computing(direction: str, old: tuple[int, float], new: tuple[int, float]) -> list[Cause]:
    """Return up to two causes: the number of steps, and the seconds per step."""
    (steps, seconds), (other_steps, other_seconds) = old, new
    pace = seconds / steps if steps else other_seconds / (other_steps or 1)
    other_pace = other_seconds / other_steps if other_steps else pace
    more = other_steps - steps
    parts = []
    if more:
        count, unit = abs(more), "step" if abs(more) == 1 else "steps"
        verb = "computes" if direction == "forward" else "reverses"
        fewer = "more" if more > 0 else "fewer"
        parts.append(Cause(more * pace, f"it {verb} {count:,} {fewer} {direction} {unit}"))
    if other_pace != pace:
        share = f"{abs(other_pace / pace - 1):.0%}" if pace else seconds_text(other_pace)
        longer = "longer" if other_pace > pace else "less time"
        why = f"each of its {direction} steps takes {share} {longer}"
        parts.append(Cause((other_pace - pace) * other_steps, why))
    return parts


def _steps(rows: Mapping[str, ReportRow], classes: Sequence[str]) -> tuple[int, float]:
    """Return the sum of the steps, and of the seconds, of some classes."""
    chosen = [rows[name] for name in classes if name in rows]
    return sum(row.steps for row in chosen), sum(row.measured for row in chosen)


def _levels(side: RunSide) -> list[str]:
    return [level.name for level in side.platform.levels]


def _at_level(rows: Mapping[str, ReportRow], level: str) -> float:
    names = {f"{verb} {level}" for verb in VERBS}
    return sum(row.measured for name, row in rows.items() if name in names)


def verdict(first: RunSide, second: RunSide, /) -> str:
    """Return a paragraph: which run took less time, why, and whether the gradients are equal."""
    before, after = first.timeline.makespan, second.timeline.makespan
    change = after - before
    both = f"({seconds_text(after)} instead of {seconds_text(before)})"
    if abs(change) <= SAME * max(before, after):
        sentences = [f"{first.name} and {second.name} took the same time within 1% {both}"]
    else:
        side = "less" if change < 0 else "more"
        share = f"{abs(change) / before:.0%}" if before else seconds_text(after)
        reasons = _reasons(causes(first, second), change)
        sentences = [f"{second.name} took {share} {side} time {both}{reasons}"]
    return " ".join([f"{sentences[0]}.", *_warnings(first, second)])


def _reasons(parts: Sequence[Cause], change: float) -> str:
    """Return the largest causes in the direction of a change, and the largest against it."""
    towards = [cause for cause in parts if cause.seconds * change > 0]
    against = [cause for cause in parts if cause.seconds * change < 0]
    named: list[Cause] = []
    while len(named) < min(_MOST_CAUSES, len(towards)):
        named.append(towards[len(named)])
        if sum(cause.seconds for cause in named) / change >= _EXPLAINED:
            break
    if not named:
        return ""
    words = [cause.why for cause in named]
    reason = words[0] if len(words) == 1 else f"{', '.join(words[:-1])}, and {words[-1]}"
    if against and -against[0].seconds / change >= _AGAINST:
        reason += f"; but {against[0].why}"
    return f": {reason}"


def _warnings(first: RunSide, second: RunSide) -> list[str]:
    """Return sentences about facts that make the runs less comparable, and about the gradients."""
    sentences = [
        f"The runs solve different problems: {name} is {first.problem.get(name, 'unknown')} in"
        f" {first.name} and {second.problem.get(name, 'unknown')} in {second.name}."
        for name in dict.fromkeys([*first.problem, *second.problem])
        if first.problem.get(name) != second.problem.get(name)
    ]
    sentences += [
        f"Only the last process of {side.name} is compared, because {side.name} was resumed."
        for side in (first, second)
        if not side.is_whole
    ]
    hosts = [side.facts.get("host") for side in (first, second)]
    if all(hosts) and hosts[0] != hosts[1]:
        sentences.append(f"They ran on different hosts, {hosts[0]} and {hosts[1]}.")
    if first.problem == second.problem and first.digest and second.digest:
        same = "equal bit for bit" if first.digest == second.digest else "NOT equal bit for bit"
        sentences.append(f"The gradients are {same}.")
    return sentences


def run_table(first: RunSide, second: RunSide, /) -> list[list[str]]:
    """Return the table of both runs. The first row is the heading."""
    rows = [["", first.name, second.name, "difference"]]
    for name in dict.fromkeys([*first.problem, *first.facts, *second.problem, *second.facts]):
        cells = [{**side.problem, **side.facts}.get(name, "") for side in (first, second)]
        if any(cells):
            rows.append([name, *cells, "" if cells[0] == cells[1] else "differs"])
    rows.append(["levels", _capacities(first), _capacities(second), ""])
    rows.append(_row("peak of checkpoints", *map(_peak, (first, second)), text=_bytes))
    if first.predicted is not None and second.predicted is not None:
        rows.append(_row("predicted", first.predicted, second.predicted))
    rows.append(_row("measured", first.timeline.makespan, second.timeline.makespan))
    for old, new in class_pairs(first, second):
        rows.append(_row(_named(old, new), old.measured, new.measured))
    return rows


def class_pairs(first: RunSide, second: RunSide, /) -> list[tuple[ReportRow, ReportRow]]:
    """Return each class of action as a pair, one row of each run, in the order of the tables.

    Discards that take less than 1 % of the time in both runs are added to the reads of their level.
    """
    old, new = dict(first.rows), dict(second.rows)
    limits = [NOTICED * side.timeline.makespan for side in (first, second)]
    names = dict.fromkeys([*old, *new])
    del names[BETWEEN]
    pairs: dict[str, tuple[ReportRow, ReportRow]] = {}
    for name in (*names, BETWEEN):
        pair = tuple(side.get(name, ReportRow(name, 0, 0, 0.0, 0.0, 0)) for side in (old, new))
        verb, _, level = name.partition(" ")
        read = f"{VERBS[READ]} {level}"
        few = all(row.measured <= limit for row, limit in zip(pair, limits, strict=True))
        if verb == VERBS[DISCARD] and read in pairs and few:
            pairs[read] = _together(pairs[read][0], pair[0]), _together(pairs[read][1], pair[1])
        else:
            pairs[name] = pair[0], pair[1]
    return list(pairs.values())


def _together(read: ReportRow, discard: ReportRow) -> ReportRow:
    """Return the sum of the reads and the discards of one level."""
    seconds = read.measured + discard.measured
    actions = read.actions + discard.actions
    name = f"{VERBS[READ]}, {discard.name}"
    return ReportRow(name, actions, 0, seconds, seconds, read.nbytes)


def _named(old: ReportRow, new: ReportRow) -> str:
    """Return the name of a class of action with its number of steps or actions in both runs."""
    has_steps = old.steps or new.steps
    first, second = (old.steps, new.steps) if has_steps else (old.actions, new.actions)
    if not first and not second:
        return old.name
    words = f"{first:,}" if first == second else f"{first:,} and {second:,}"
    return f"{old.name} ({words} {'steps' if has_steps else 'actions'})"


def _row(name: str, first: float, second: float, *, text: Any = seconds_text) -> list[str]:
    change = second - first
    signed = f"{'-' if change < 0 else '+'}{text(abs(change))}" if change else "0"
    return [name, text(first), text(second), signed]


def _bytes(nbytes: float) -> str:
    return bytes_text(int(nbytes))


def _peak(side: RunSide) -> int:
    return peak_bytes(side.timeline, side.chain, side.platform)


def _capacities(side: RunSide) -> str:
    return ", ".join(
        f"{level.name} {'without a limit' if level.capacity is None else _bytes(level.capacity)}"
        for level in side.platform.levels
    )


def comparison_figures(first: RunSide, second: RunSide, /) -> dict[str, Any]:
    """Return the comparison as plain data, which `--json` prints."""
    before, after = first.timeline.makespan, second.timeline.makespan
    return {
        "verdict": verdict(first, second),
        "difference": after - before,
        "share": (after - before) / before if before else None,
        "same_gradient": first.digest == second.digest if first.digest and second.digest else None,
        "causes": [{"seconds": part.seconds, "why": part.why} for part in causes(first, second)],
        "runs": [_figures(side) for side in (first, second)],
    }


def _figures(side: RunSide) -> dict[str, Any]:
    return {
        "name": side.name,
        "steps": side.chain.length,
        "problem": dict(side.problem),
        "facts": dict(side.facts),
        "predicted": side.predicted,
        "measured": side.timeline.makespan,
        "whole": side.is_whole,
        "peak_bytes": _peak(side),
        "levels": {level.name: level.capacity for level in side.platform.levels},
        "classes": {
            row.name: {"actions": row.actions, "steps": row.steps, "seconds": row.measured}
            for row in side.rows.values()
        },
    }


_PICTURES: Final = (
    (
        "The schedules",
        "Each row is one sweep: arrows to the right are forward steps, arrows to the left are"
        " adjoint steps. Both runs have the same axis of steps.",
    ),
    (
        "Activity over time",
        "Each lane is computing or one level, and each colour is one kind of action. Both runs have"
        " the same time axis.",
    ),
    (
        "Storage over time",
        "Each chart shows the bytes stored on one level. A dashed line is the capacity.",
    ),
    (
        "Steps over time",
        "The forward run climbs to the last step, and then the adjoint descends. Horizontal lines"
        " are checkpoints while they are stored.",
    ),
)


def comparison_page(first: RunSide, second: RunSide, /, *, origin: str = "") -> str:
    """Return the HTML page. It shows each picture for both runs, one above the other."""
    sides = (first, second)
    axis = PlotAxis(max(side.timeline.makespan for side in sides))
    drawn = [
        (
            spacetime(side.timeline, side.chain, side.platform),
            resources(side.timeline, side.platform, axis),
            storage(side.timeline, side.chain, side.platform, axis),
            sweeps(side.timeline, side.chain, side.platform, axis),
        )
        for side in sides
    ]
    title = f"{first.name} and {second.name}"
    figures = [
        figure(
            heading,
            caption,
            (
                f"<div><h3>{escape(side.name)}, {seconds_text(side.timeline.makespan)}</h3>\n"
                f"{pictures[place].element()}</div>"
                for side, pictures in zip(sides, drawn, strict=True)
            ),
        )
        for place, (heading, caption) in enumerate(_PICTURES)
    ]
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="verdict">{escape(verdict(first, second))}</p>',
        *figures[1:2],
        HELP,
        "<h2>Both runs</h2>",
        table(run_table(first, second)),
        *figures[:1],
        *figures[2:],
        f"<footer>{escape(origin)}</footer>",
    ]
    return document(title, body)
