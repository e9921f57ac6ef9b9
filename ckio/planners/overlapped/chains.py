"""Whole chains with overlap: where the first sweep leaves its far checkpoints. Needs numba.

    C_i(x) = min_p C_i-1(x - p) + T(p, c - i + 1),    C_0(0) = 0

is what i segments of x steps take, were they alone: T is what `segments` found for p steps, and the
i-th of them has c - i + 1 far slots of the c that there are, as i - 1 still hold the states before.
The steps after x are left to the near level. Some of the best such plans are simulated as a whole.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ckio.columns import ADVANCE, READ, WRITE
from ckio.planners.compiled import kernel
from ckio.planners.overlapped import tables
from ckio.planners.overlapped.programs import Ints
from ckio.planners.overlapped.segments import ROWS, Machine, Room, Segments, Terms, room, took
from ckio.planners.overlapped.tables import Rows, Table
from ckio.planners.overlapped.woven import (
    How,
    copied,
    far_slots,
    pairs_of,
    resume,
    resumed,
    weave,
)

# mypy: disable-error-code="no-any-return"

Splits = NDArray[np.int16]


class Cut(NamedTuple):
    """Where a chain is cut: the segments' places in the grid, first to last; what it may take."""

    places: tuple[int, ...]
    seconds: float


def cuts(machine: Machine, segments: Segments, shortest: int, most: int) -> list[Cut]:
    """The most promising cuts into segments of at least `shortest` steps, by what they take."""
    length, costs, grid = machine.length, machine.costs, segments.grid
    count = min(machine.far, length // shortest)
    low = segments.variants[0].near.seconds[machine.near]
    reach = min(length, len(low) - 1)
    table = _Table(
        np.empty((2, length + 1)),
        np.full((count + 1, reach + 1), np.inf),
        np.zeros((count + 1, length + 1), np.int16),
    )
    first = int(np.searchsorted(grid.lengths, shortest))
    _cut(table, grid.lengths, segments.seconds, _rows(machine, segments, count), first)
    near = costs.near_write + costs.near_discard + low[reach::-1]
    near[-1] = 0.0
    writing = (np.arange(count + 1) - machine.near) * costs.far_write
    sweep = np.maximum(length * costs.advance, writing)
    total = table.ends + near + sweep[:, np.newaxis]
    found = []
    for i in np.argsort(total.min(axis=1), kind="stable")[:most].tolist():
        at = int(total[i].argmin())
        if np.isfinite(total[i, at]):
            places = _walk(grid.lengths, table.split, i, length - reach + at)
            found.append(Cut(places, float(total[i, at])))
    return found


def _rows(machine: Machine, segments: Segments, count: int) -> Ints:
    """The row of the grid for the slots that are left to each of the first segments."""
    free = machine.far - np.arange(count)
    return np.searchsorted(segments.grid.slots, free, side="right") - 1


def _walk(lengths: Ints, split: Splits, i: int, x: int) -> tuple[int, ...]:
    places: list[int] = []
    for number in range(i, 0, -1):
        places.append(int(split[number, x]))
        x -= int(lengths[places[-1]])
    return tuple(reversed(places))


class _Table(NamedTuple):
    """C_i for i and i + 1; C_i for the last x, in row i; the segment that gives it, for all x."""

    seconds: Table
    ends: Table
    split: Splits


@kernel
def _cut(table: _Table, lengths: Ints, seconds: Table, row: Ints, first: int) -> None:
    count, length, reach = len(row), table.seconds.shape[1] - 1, table.ends.shape[1] - 1
    for x in range(length + 1):
        table.seconds[0, x] = np.inf
    table.seconds[0, 0] = 0.0
    for i in range(count + 1):
        here, after = i % 2, (i + 1) % 2
        for x in range(reach + 1):
            table.ends[i, x] = table.seconds[here, length - reach + x]
        for x in range(length + 1):
            table.seconds[after, x] = np.inf
        if i == count:
            break
        for x in range(length + 1):
            before = table.seconds[here, x]
            if before < np.inf:
                for place in range(first, len(lengths)):
                    end = x + lengths[place]
                    if end > length:
                        break
                    value = before + seconds[row[i], place]
                    if value < table.seconds[after, end]:
                        table.seconds[after, end], table.split[i + 1, end] = value, place


def planned(machine: Machine, segments: Segments, cut: Cut) -> list[list[int]]:
    """What `Segments.chosen` has for each segment of a cut."""
    rows = _rows(machine, segments, len(cut.places))
    chosen: list[list[int]] = segments.chosen[:, rows, list(cut.places)].T.tolist()
    return chosen


def written(machine: Machine, segments: Segments, cut: Cut) -> tuple[Room, int]:
    """The actions of a whole chain that is cut so, and how many there are."""
    most = ROWS * (machine.length + 2)
    place = room(most, machine.far + machine.near, machine.length)
    draft = tables.rows(most, machine.far + machine.near)
    rows, lengths = place.rows, segments.grid.lengths[list(cut.places)].tolist()
    count, at, begins = 0, 0, []
    for steps in lengths:
        begins.append(at)
        count = tables.access(rows, count, WRITE, 1, at)
        count = tables.move(rows, count, ADVANCE, at, at + steps)
        at += steps
    task = (tables.FRESH, at, machine.length - at, machine.near)
    tail = segments.variants[0]._replace(slots=machine.near)
    count = tables.unroll(tail, task, rows, count)
    plans = planned(machine, segments, cut)
    begin = end = slots = 0
    for number in reversed(range(len(begins))):
        variant, count_on, pairs, kind = plans[number]
        levels, other = segments.variants[variant], end
        end = tables.access(draft, end, READ, 1, begins[number])
        task = (tables.FAR, begins[number], lengths[number] - 1, count_on)
        end = tables.unroll(levels, task, draft, end)
        if slots == machine.near:
            kind &= 2  # no near slot is left for the frontier
        how = How(min(pairs, pairs_of(draft, other, end)) if other else 0, kind)
        count, begin = _woven(machine, draft, (begin, other), how, (rows, count))
        slots = levels.slots
    return place, copied(draft, begin, end, rows, count)


def _woven(
    machine: Machine, draft: Rows, begins: tuple[int, int], how: How, so_far: tuple[Rows, int]
) -> tuple[int, int]:
    """Append a segment, with as many pairs of the next as there are far slots for.

    How many rows are full, and where the next goes on.
    """
    begin, other = begins
    rows, count = so_far
    while how.pairs:
        used = weave(draft, (begin, other, other), how, rows, count)
        if far_slots(rows, used, machine.length + 2) <= machine.far:
            resume(draft, other, how)
            return used, resumed(other, how)
        how = How(how.pairs // 2, how.kind)
    return copied(draft, begin, other, rows, count), other


@dataclass(frozen=True)
class Found:
    """A plan of a whole chain, simulated: its actions, what it takes, and with which horizon."""

    rows: Rows
    count: int
    seconds: float
    horizon: float


def simulated(machine: Machine, place: Room, count: int, horizons: list[float]) -> Found:
    """The actions with the best of some horizons."""
    seconds = [
        took(place, count, Terms(machine.costs, machine.policy(horizon))) for horizon in horizons
    ]
    best = int(np.argmin(seconds))
    return Found(place.rows, count, seconds[best], horizons[best])
