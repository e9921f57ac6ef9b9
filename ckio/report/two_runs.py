"""The comparison of two runs: the faster one, the largest difference, a table and pictures."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any, Final

from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.platform.readable import bytes_text, seconds_text
from ckio.report import BETWEEN, ReportRow, compare
from ckio.report.document import HELP, document, table
from ckio.report.headline import peak_bytes
from ckio.report.page import Shown, figures_over_time, schedule_figure
from ckio.schedule.timeline import Timeline

SAME: Final = 0.01
"""Two runs took the same time if their makespans differ by at most 1 % of the longer one."""


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


def class_pairs(first: RunSide, second: RunSide, /) -> list[tuple[ReportRow, ReportRow]]:
    """Return each class of action as a pair, one row of each run.

    The sum of the differences of all pairs is the difference of the makespans.
    """
    old, new = first.rows, second.rows
    names = [name for name in dict.fromkeys([*old, *new]) if name != BETWEEN]
    none = {name: ReportRow(name, 0, 0, 0.0, 0.0, 0) for name in names}
    return [((none | old)[name], (none | new)[name]) for name in (*names, BETWEEN)]


def verdict(first: RunSide, second: RunSide, /) -> str:
    """Return a paragraph: which run took less time, where, and whether the gradients are equal."""
    before, after = first.timeline.makespan, second.timeline.makespan
    change = after - before
    both = f"({seconds_text(after)} instead of {seconds_text(before)})"
    if abs(change) <= SAME * max(before, after):
        sentence = f"{first.name} and {second.name} took the same time within 1% {both}."
    else:
        side = "less" if change < 0 else "more"
        share = f"{abs(change) / before:.0%}" if before else seconds_text(after)
        old, new = max(
            class_pairs(first, second),
            key=lambda pair: (pair[1].measured - pair[0].measured) / change,
        )
        most = seconds_text(abs(new.measured - old.measured))
        sentence = (
            f"{second.name} took {share} {side} time {both}. The largest part is {most} {side} for"
            f" {_named(old, new)}."
        )
    return " ".join([sentence, *_warnings(first, second)])


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


def comparison_page(first: RunSide, second: RunSide, /, *, origin: str = "") -> str:
    """Return the HTML page. It shows each picture for both runs, one above the other."""
    parts = [
        Shown(
            f"{side.name}, {seconds_text(side.timeline.makespan)}",
            side.timeline,
            side.chain,
            side.platform,
        )
        for side in (first, second)
    ]
    title = f"{first.name} and {second.name}"
    activity, *others = figures_over_time(parts)
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="verdict">{escape(verdict(first, second))}</p>',
        activity,
        HELP,
        "<h2>Both runs</h2>",
        table(run_table(first, second)),
        schedule_figure(parts),
        *others,
        f"<footer>{escape(origin)}</footer>",
    ]
    return document(title, body)
