"""Two runs next to each other: which took less time, why, and both as tables and pictures.

The difference of two makespans is split into causes that add up to it. Of the classes of action
that compute, a cause is the number of steps, at the seconds per step of the first run, and another
is the seconds per step, for the number of steps of the second. For example, 400 forward steps of
2 ms in A and 100 of 3 ms in B are -0.6 s for 300 steps fewer, and +0.1 s for slower steps. Of the
accesses, a cause is all that the program does, or waits for, at one level.
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
"""The part of the longer makespan below which two differ by nothing worth a reason."""
_TOLD: Final = 0.8
"""Causes are told until they explain this part of the difference."""
_MOST_CAUSES: Final = 3
_AGAINST: Final = 0.25
"""A cause in the other direction is told from this part of the difference on."""
_COMPUTING: Final = {"forward": ("advance", "record"), "adjoint": ("reverse",)}


@dataclass(frozen=True)
class RunSide:
    """One of two runs.

    Attributes
    ----------
    name : str
        How it is called.
    timeline, chain, platform
        What was measured, of what, and where.
    facts : mapping of str to str
        What else is known of it, such as its planner and versions, in reading order.
    problem : mapping of str to str
        What was computed: runs that differ in it are not of one gradient.
    predicted : float or None
        The seconds that were predicted.
    digest : str
        Of its gradient.
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
        """The measured seconds of each class of action."""
        names = [level.name for level in self.platform.levels]
        report = compare(self.timeline, self.timeline, names=names)
        return {row.name: row for row in report.rows}

    @property
    def is_whole(self) -> bool:
        """Whether the timeline reverses every step: the last process of a resumed run does not."""
        row = self.rows.get("reverse")
        return row is not None and row.steps >= self.chain.length


@dataclass(frozen=True, slots=True)
class Cause:
    """A part of the difference of two makespans: seconds more in the second run, and why."""

    seconds: float
    why: str


def causes(first: RunSide, second: RunSide, /) -> list[Cause]:
    """Return what makes the second run longer or shorter; the sum is the difference."""
    old, new = first.rows, second.rows
    parts: list[Cause] = []
    for direction, classes in _COMPUTING.items():
        parts += _computing(direction, _steps(old, classes), _steps(new, classes))
    for level in dict.fromkeys([*_levels(first), *_levels(second)]):
        seconds = _at_level(new, level) - _at_level(old, level)
        more = "more" if seconds > 0 else "less"
        why = f"it spends {seconds_text(abs(seconds))} {more} at level {level}"
        parts.append(Cause(seconds, why))
    between = new[BETWEEN].measured - old[BETWEEN].measured
    more = "more" if between > 0 else "less"
    parts.append(Cause(between, f"{seconds_text(abs(between))} {more} pass {BETWEEN}"))
    return sorted(filter(lambda cause: cause.seconds, parts), key=lambda it: -abs(it.seconds))


def _computing(direction: str, old: tuple[int, float], new: tuple[int, float]) -> list[Cause]:
    """Return the causes of the number of steps and of the seconds per step."""
    (steps, seconds), (other_steps, other_seconds) = old, new
    pace = seconds / steps if steps else other_seconds / (other_steps or 1)
    other_pace = other_seconds / other_steps if other_steps else pace
    more = other_steps - steps
    parts = []
    if more:
        count, unit = abs(more), "step" if abs(more) == 1 else "steps"
        verb = "computes" if direction == "forward" else "reverses"
        fewer = "more" if more > 0 else "fewer"
        parts.append(Cause(more * pace, f"it {verb} {count:,} {direction} {unit} {fewer}"))
    if other_pace != pace:
        share = f"{abs(other_pace / pace - 1):.0%}" if pace else seconds_text(other_pace)
        longer = "longer" if other_pace > pace else "less time"
        why = f"each of its {direction} steps takes {share} {longer}"
        parts.append(Cause((other_pace - pace) * other_steps, why))
    return parts


def _steps(rows: Mapping[str, ReportRow], classes: Sequence[str]) -> tuple[int, float]:
    """Return the steps and the seconds of some classes together."""
    chosen = [rows[name] for name in classes if name in rows]
    return sum(row.steps for row in chosen), sum(row.measured for row in chosen)


def _levels(side: RunSide) -> list[str]:
    return [level.name for level in side.platform.levels]


def _at_level(rows: Mapping[str, ReportRow], level: str) -> float:
    names = {f"{verb} {level}" for verb in VERBS}
    return sum(row.measured for name, row in rows.items() if name in names)


def verdict(first: RunSide, second: RunSide, /) -> str:
    """Return a paragraph: which run took less time, why, and whether they are of one gradient."""
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
    told: list[Cause] = []
    while len(told) < min(_MOST_CAUSES, len(towards)):
        told.append(towards[len(told)])
        if sum(cause.seconds for cause in told) / change >= _TOLD:
            break
    if not told:
        return ""
    words = [cause.why for cause in told]
    reason = words[0] if len(words) == 1 else f"{', '.join(words[:-1])}, and {words[-1]}"
    if against and -against[0].seconds / change >= _AGAINST:
        reason += f"; but {against[0].why}"
    return f": {reason}"


def _warnings(first: RunSide, second: RunSide) -> list[str]:
    """Return sentences on what makes the two less comparable, and on their gradients."""
    sentences = [
        f"They are not of the same problem: {name} is {first.problem.get(name, 'unknown')} in"
        f" {first.name} and {second.problem.get(name, 'unknown')} in {second.name}."
        for name in dict.fromkeys([*first.problem, *second.problem])
        if first.problem.get(name) != second.problem.get(name)
    ]
    sentences += [
        f"Of {side.name} only the last process is compared, because it resumed the run."
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
    """Return the table of both, its heading first."""
    rows = [["", first.name, second.name, "difference"]]
    for name in dict.fromkeys([*first.problem, *first.facts, *second.problem, *second.facts]):
        cells = [{**side.problem, **side.facts}.get(name, "") for side in (first, second)]
        if any(cells):
            rows.append([name, *cells, "" if cells[0] == cells[1] else "differs"])
    rows.append(["levels", _capacities(first), _capacities(second), ""])
    rows.append(_row("checkpoints, at most", *map(_peak, (first, second)), text=_bytes))
    if first.predicted is not None and second.predicted is not None:
        rows.append(_row("predicted", first.predicted, second.predicted))
    rows.append(_row("measured", first.timeline.makespan, second.timeline.makespan))
    for old, new in class_pairs(first, second):
        rows.append(_row(_named(old, new), old.measured, new.measured))
    return rows


def class_pairs(first: RunSide, second: RunSide, /) -> list[tuple[ReportRow, ReportRow]]:
    """Return each class of action of both runs, in the order of the tables.

    Discards that take next to no time in both are with the reads of their level.
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
    """Return reads and discards of one level as one row."""
    seconds = read.measured + discard.measured
    actions = read.actions + discard.actions
    name = f"{VERBS[READ]}, {discard.name}"
    return ReportRow(name, actions, 0, seconds, seconds, read.nbytes)


def _named(old: ReportRow, new: ReportRow) -> str:
    """Return the name of a class of action, with what it amounts to in both."""
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
    """Return the comparison as plain data: what `--json` prints."""
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
    ("The schedules", "The same steps across in both; lines are sweeps."),
    ("Who works when", "Both runs on one time axis. A lane is a level, a colour a kind of action."),
    ("What is stored", "How full each level is, against its capacity (dashed)."),
    ("The adjoint moving back", "Step number over time; level lines are checkpoints."),
)


def comparison_page(first: RunSide, second: RunSide, /, *, origin: str = "") -> str:
    """Return the whole page, with the pictures of both one above the other."""
    sides = (first, second)
    axis = PlotAxis(max(side.timeline.makespan for side in sides))
    drawn = [
        (
            spacetime(side.timeline, side.chain, side.platform),
            resources(
                side.timeline,
                side.platform,
                axis,
            ),
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
