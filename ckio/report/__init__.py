"""Predicted beside measured: which class of action explains the difference."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Final

from ckio.actions.columns import DISCARD, READ, VERBS, WRITE
from ckio.errors import BadInput
from ckio.platform.readable import Printed, Sheet, bytes_text
from ckio.schedule.timeline import Timeline

NOTICED: Final = 0.01
"""The part of the time from which on the discards of a level are shown by themselves."""

BETWEEN = "between actions"
"""The row for the time in which no action ran: what the runner itself costs."""


@dataclass(frozen=True, slots=True)
class ReportRow:
    """One class of action.

    Attributes
    ----------
    name : str
        "advance", "write nvme", ...
    actions, steps : int
        How many there are; how many steps they compute (0 for accesses).
    predicted, measured : float
        Seconds in total.
    nbytes : int
        Bytes measured to reach or leave the level.
    """

    name: str
    actions: int
    steps: int
    predicted: float
    measured: float
    nbytes: int

    @property
    def difference(self) -> float:
        """Measured less predicted, in seconds."""
        return self.measured - self.predicted


@dataclass(frozen=True)
class Report(Printed):
    """Two timelines of one schedule by class of action; the rows add up to the makespans.

    `lossy` are the levels from which rounded checkpoints were read, each with what rounds them.
    `transfers` is what channels did beside the program, by level; there may be more or fewer of
    them in one timeline than in the other, and `actions` counts those that were measured.
    """

    rows: tuple[ReportRow, ...]
    predicted: float
    measured: float
    lossy: Mapping[str, str] = field(default_factory=dict)
    transfers: tuple[ReportRow, ...] = ()

    @property
    def waiting(self) -> tuple[float, float]:
        """Seconds that the program itself spends on storage, predicted and measured."""
        rows = [row for row in self.rows if row.actions and not row.steps]
        return sum(row.predicted for row in rows), sum(row.measured for row in rows)

    @property
    def error(self) -> float:
        """How far the prediction is off, as a part of what was measured: -0.1 is 10 % too low.

        0 where no time was measured.
        """
        return (self.predicted - self.measured) / self.measured if self.measured else 0.0

    @property
    def culprit(self) -> ReportRow:
        """The row that explains most of the difference."""
        return max(self.rows, key=lambda row: abs(row.difference))

    @property
    def share(self) -> float:
        """The culprit's part of all differences, from 0 to 1."""
        total = sum(abs(row.difference) for row in self.rows)
        return abs(self.culprit.difference) / total if total else 0.0

    @property
    def rounding(self) -> str:
        """The effect of lossy levels on the gradient, in one sentence; empty without them."""
        levels = " and ".join(f"level {name!r}, by {by}" for name, by in self.lossy.items())
        return levels and f"the gradient is that of rounded states: LOSSY is {levels}"

    def _sheet(self) -> Sheet:
        notes = [verdict(self), *([self.rounding] if self.rounding else [])]
        rows = [*table(self), *(["behind: " + row[0], *row[1:]] for row in behind(self))]
        return Sheet("predicted and measured", HEADER, rows, notes)


def compare(
    predicted: Timeline,
    measured: Timeline,
    /,
    *,
    names: Sequence[str] = (),
    lossy: Mapping[str, str] | None = None,
) -> Report:
    """Line up two timelines of the same actions by position and sum them by class.

    Parameters
    ----------
    predicted, measured
        The timelines; raises BadInput where their actions differ.
    names
        Of the levels; a level without one goes by its number.
    lossy
        The levels that round what they store, by name, each with what does it.
    """
    _check_same_actions(predicted, measured)
    actions = predicted.actions
    rows = list(_rows(predicted, measured, names))
    planned, ran = (float((each.stop - each.start).sum()) for each in (predicted, measured))
    rows.append(ReportRow(BETWEEN, 0, 0, predicted.makespan - planned, measured.makespan - ran, 0))
    read = set(actions.level[actions.op == READ].tolist())
    rounded = {
        name: by
        for number, name in enumerate(names)
        if number in read and (by := (lossy or {}).get(name))
    }
    behind = tuple(_rows(predicted.transfers, measured.transfers, names))
    return Report(tuple(rows), predicted.makespan, measured.makespan, rounded, behind)


def _rows(predicted: Timeline, measured: Timeline, names: Sequence[str]) -> Iterator[ReportRow]:
    """Yield a row for each class of action that is in one of the timelines."""
    both = (predicted, measured)
    levels = range(max(int(each.actions.level.max(initial=0)) for each in both) + 1)
    classes = [*product((None,), range(WRITE)), *product(levels, range(WRITE, len(VERBS)))]
    for level, op in classes:
        chosen = [
            (each.actions.op == op) & (level is None or each.actions.level == level)
            for each in both
        ]
        if not any(rows.any() for rows in chosen):
            continue
        plan, real = (
            float((each.stop - each.start)[rows].sum())
            for each, rows in zip(both, chosen, strict=True)
        )
        actions = measured.actions.take(chosen[1])
        steps = int((actions.end - actions.begin).sum()) if level is None else 0
        name = VERBS[op]
        if level is not None:
            name += f" {names[level] if level < len(names) else f'level {level}'}"
        nbytes = int(measured.nbytes[chosen[1]].sum())
        yield ReportRow(name, len(actions), steps, plan, real, nbytes)


def _check_same_actions(predicted: Timeline, measured: Timeline) -> None:
    if predicted.actions == measured.actions:
        return
    if len(predicted) != len(measured):
        raise BadInput(
            f"the timelines do not belong together: {len(predicted)} events predicted,"
            f" {len(measured)} measured"
        )
    pairs = zip(predicted.actions, measured.actions, strict=True)
    number, (plan, real) = next((n, pair) for n, pair in enumerate(pairs) if pair[0] != pair[1])
    raise BadInput(
        f"the timelines do not belong together: event #{number} is {plan} in one,"
        f" {real} in the other"
    )


HEADER: Final = [
    "class of action",
    "actions",
    "steps",
    "predicted s",
    "measured s",
    "difference s",
    "bytes",
]


def table(report: Report, /) -> list[list[str]]:
    """The rows of a comparison as text, the total last; seconds with four digits of the total."""
    actions = sum(row.actions for row in report.rows)
    total = ReportRow("total", actions, 0, report.predicted, report.measured, 0)
    return _cells(report, (*shown_rows(report), total))


def shown_rows(report: Report, /) -> list[ReportRow]:
    """Return the rows that are shown: discards that take next to no time are with the reads."""
    rows = list(report.rows)
    for row in report.rows:
        verb, _, level = row.name.partition(" ")
        seconds, limit = max(row.predicted, row.measured), NOTICED * max(_totals(report))
        names = [other.name for other in rows]
        if verb != VERBS[DISCARD] or seconds > limit or f"{VERBS[READ]} {level}" not in names:
            continue
        rows.remove(row)
        place = names.index(f"{VERBS[READ]} {level}")
        read = rows[place]
        rows[place] = ReportRow(
            name=f"{VERBS[READ]}, {row.name}",
            actions=read.actions + row.actions,
            steps=0,
            predicted=read.predicted + row.predicted,
            measured=read.measured + row.measured,
            nbytes=read.nbytes,
        )
    return rows


def _totals(report: Report) -> tuple[float, float]:
    return report.predicted, report.measured


def behind(report: Report, /) -> list[list[str]]:
    """The transfers of channels, as text in the same columns; often empty."""
    return _cells(report, report.transfers)


def _cells(report: Report, rows: Sequence[ReportRow]) -> list[list[str]]:
    longest = max(report.predicted, report.measured)
    places = min(9, max(1, 3 - math.floor(math.log10(longest)))) if longest else 1
    return [
        [
            row.name,
            f"{row.actions or ''}",
            f"{row.steps or ''}",
            f"{row.predicted:.{places}f}",
            f"{row.measured:.{places}f}",
            f"{row.difference:+.{places}f}",
            bytes_text(row.nbytes) if row.nbytes else "",
        ]
        for row in rows
    ]


def verdict(report: Report, /) -> str:
    """One sentence: how far off, and why."""
    if not report.measured:
        return "nothing was measured"
    off, side = f"{abs(report.error):.1%}", "above" if report.error > 0 else "below"
    text = f"the prediction is {f'{off} {side}' if float(off[:-1]) else 'as long as'}"
    text += " the measured makespan"
    if report.share:
        text += f"; {report.culprit.name!r} explains {report.share:.0%} of the differences"
    return text
