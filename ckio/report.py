"""Predicted beside measured: which class of action explains the difference."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ckio.columns import ADVANCE, DISCARD, READ, RECORD, REVERSE, WRITE
from ckio.errors import BadInput
from ckio.timeline import Timeline

_COMPUTE = {ADVANCE: "advance", RECORD: "record", REVERSE: "reverse"}
_ACCESS = {WRITE: "write", READ: "read", DISCARD: "discard"}
BETWEEN = "between actions"
"""The row for the time in which no action ran: what the runner itself costs."""


@dataclass(frozen=True, slots=True)
class Row:
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
class Report:
    """Two timelines of one schedule by class of action; the rows add up to the makespans.

    `lossy` are the levels from which rounded checkpoints were read, each with what rounds them.
    """

    rows: tuple[Row, ...]
    predicted: float
    measured: float
    lossy: Mapping[str, str] = field(default_factory=dict)

    @property
    def error(self) -> float:
        """How far the prediction is off, as a part of what was measured: -0.1 is 10 % too low.

        0 where no time was measured.
        """
        return (self.predicted - self.measured) / self.measured if self.measured else 0.0

    @property
    def culprit(self) -> Row:
        """The row that explains most of the difference."""
        return max(self.rows, key=lambda row: abs(row.difference))

    @property
    def share(self) -> float:
        """The culprit's part of all differences, from 0 to 1."""
        total = sum(abs(row.difference) for row in self.rows)
        return abs(self.culprit.difference) / total if total else 0.0

    @property
    def rounding(self) -> str:
        """What lossy levels mean for the gradient, in one sentence; empty where there are none."""
        levels = " and ".join(f"level {name!r}, by {by}" for name, by in self.lossy.items())
        return levels and f"the gradient is that of rounded states: LOSSY is {levels}"


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
    ran = measured.stop - measured.start
    planned = predicted.stop - predicted.start
    rows = []

    def add(name: str, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
        if chosen.any():
            span = (actions.end - actions.begin)[chosen & (actions.op < WRITE)]
            rows.append(
                Row(
                    name,
                    int(chosen.sum()),
                    int(span.sum()),
                    float(planned[chosen].sum()),
                    float(ran[chosen].sum()),
                    int(measured.nbytes[chosen].sum()),
                )
            )

    for op, name in _COMPUTE.items():
        add(name, actions.op == op)
    for level in range(int(actions.level.max(initial=0)) + 1):
        place = names[level] if level < len(names) else f"level {level}"
        for op, name in _ACCESS.items():
            add(f"{name} {place}", (actions.op == op) & (actions.level == level))
    idle = (predicted.makespan - float(planned.sum()), measured.makespan - float(ran.sum()))
    rows.append(Row(BETWEEN, 0, 0, *idle, 0))
    read = set(actions.level[actions.op == READ].tolist())
    rounded = {
        name: by
        for number, name in enumerate(names)
        if number in read and (by := (lossy or {}).get(name))
    }
    return Report(tuple(rows), predicted.makespan, measured.makespan, rounded)


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
