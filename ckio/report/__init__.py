"""Predicted and measured seconds, compared by class of action."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Final

from ckio.actions.columns import DISCARD, READ, VERBS, WRITE
from ckio.errors import BadInput
from ckio.platform.readable import bytes_text, sheet_text
from ckio.schedule.timeline import Timeline

NOTICED: Final = 0.01
"""Discards of a level have a row of their own if they take more than this part of the time."""

BETWEEN = "between actions"
"""The row for the time in which no action ran, which is the overhead of the runner."""


@dataclass(frozen=True, slots=True)
class ReportRow:
    """The actions, steps, seconds and bytes of one class of action.

    Attributes
    ----------
    name : str
        For example "advance" or "write nvme".
    actions, steps : int
        The number of actions, and of the steps that they compute (0 for accesses).
    predicted, measured : float
        The sum of their seconds.
    nbytes : int
        The measured bytes that were written to the level, or read from it.
    """

    name: str
    actions: int
    steps: int
    predicted: float
    measured: float
    nbytes: int

    @property
    def difference(self) -> float:
        """Measured minus predicted, in seconds."""
        return self.measured - self.predicted


@dataclass(frozen=True)
class Report:
    """Two timelines of one schedule by class of action. The rows add up to the makespans.

    `lossy` maps each level from which rounded checkpoints were read to the codec that rounds them.
    `transfers` has the transfers in the background, by level. Their number may differ between the
    timelines; `actions` counts the measured ones.
    """

    rows: tuple[ReportRow, ...]
    predicted: float
    measured: float
    lossy: Mapping[str, str] = field(default_factory=dict)
    transfers: tuple[ReportRow, ...] = ()

    @property
    def waiting(self) -> tuple[float, float]:
        """The seconds that the program itself spends on storage, predicted and measured."""
        rows = [row for row in self.rows if row.actions and not row.steps]
        return sum(row.predicted for row in rows), sum(row.measured for row in rows)

    @property
    def error(self) -> float:
        """The relative error of the prediction: -0.1 means 10 % below the measured makespan.

        It is 0 if no time was measured.
        """
        return (self.predicted - self.measured) / self.measured if self.measured else 0.0

    @property
    def culprit(self) -> ReportRow:
        """The row with the largest difference, of either sign."""
        return max(self.rows, key=lambda row: abs(row.difference))

    @property
    def share(self) -> float:
        """The share of the culprit in the sum of all absolute differences, from 0 to 1."""
        total = sum(abs(row.difference) for row in self.rows)
        return abs(self.culprit.difference) / total if total else 0.0

    @property
    def rounding(self) -> str:
        """One sentence on the lossy levels that affect the gradient; empty without such levels."""
        levels = " and ".join(f"level {name!r}, by {by}" for name, by in self.lossy.items())
        return levels and f"the gradient is that of rounded states: LOSSY is {levels}"

    def __str__(self) -> str:
        notes = [verdict(self), *([self.rounding] if self.rounding else [])]
        rows = [*table(self), *(["behind: " + row[0], *row[1:]] for row in behind(self))]
        return sheet_text("predicted and measured", HEADER, rows, notes)


def compare(
    predicted: Timeline,
    measured: Timeline,
    /,
    *,
    names: Sequence[str] = (),
    lossy: Mapping[str, str] | None = None,
) -> Report:
    """Return the seconds of each class of action in two timelines of the same actions.

    Parameters
    ----------
    predicted, measured
        The timelines. Raises BadInput if their actions differ.
    names
        The names of the levels. A level without a name is called by its number.
    lossy
        The levels that round checkpoints: the name of each level, and the codec that rounds.
    """
    _check_same_actions(predicted, measured)
    actions = predicted.actions
    rows = list(_rows(predicted, measured, names))
    planned, ran = (float((each.stop - each.start).sum()) for each in (predicted, measured))
    idle = (max(0.0, predicted.makespan - planned), max(0.0, measured.makespan - ran))  # no -0.0
    rows.append(ReportRow(BETWEEN, 0, 0, *idle, 0))
    read = set(actions.level[actions.op == READ].tolist())
    rounded = {
        name: by
        for number, name in enumerate(names)
        if number in read and (by := (lossy or {}).get(name))
    }
    behind = tuple(_rows(predicted.transfers, measured.transfers, names))
    return Report(tuple(rows), predicted.makespan, measured.makespan, rounded, behind)


def _rows(predicted: Timeline, measured: Timeline, names: Sequence[str]) -> Iterator[ReportRow]:
    """Yield a row for each class of action that occurs in one of the timelines."""
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
            f" {len(measured)} measured; give two timelines of one schedule"
        )
    pairs = zip(predicted.actions, measured.actions, strict=True)
    number, (plan, real) = next((n, pair) for n, pair in enumerate(pairs) if pair[0] != pair[1])
    raise BadInput(
        f"the timelines do not belong together: event #{number} is {plan} in one,"
        f" {real} in the other; give two timelines of one schedule"
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
    """Return the rows as text, the total last. Seconds have four digits of the total."""
    actions = sum(row.actions for row in report.rows)
    total = ReportRow("total", actions, 0, report.predicted, report.measured, 0)
    return _cells(report, (*shown_rows(report), total))


def shown_rows(report: Report, /) -> list[ReportRow]:
    """Return the rows to show. Discards that take less than 1 % are added to the reads."""
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
    """Return the transfers in the background as text, in the columns of `table`."""
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
    """Return one sentence: the error of the prediction, and the class that explains most of it."""
    if not report.measured:
        return "nothing was measured"
    off, side = f"{abs(report.error):.1%}", "above" if report.error > 0 else "below"
    text = f"the prediction is {f'{off} {side}' if float(off[:-1]) else 'as long as'}"
    text += " the measured makespan"
    if report.share:
        text += f"; {report.culprit.name!r} explains {report.share:.0%} of the differences"
    return text
