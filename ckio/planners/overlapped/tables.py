"""Segments with a limited number of far slots: the recurrence of H-Revolve, and its actions.

On two levels, with m far slots and writes that must not come too close to one another,

    near:  S_c(l) = min_{1<=j<=l} j u_f + F_c-1(l-j) + r_1 + S_c(j-1),    F_c(l) = w_1 + S_c(l)
    far:   D_m(l) = min(F(l), min_j ρ r_2 + D_m(j-1) + min(j u_f + F(l-j),
                                      max(j u_f, g) + ρ w_2 + D_m-1(l-j)))

is what a segment of l + 1 steps takes, its Records and Reverses left out, whose first state is in
the register and, for S and D, on the level too. Far access goes on behind the computation, so it
counts with a small part ρ of its cost only; what keeps it from being used without end is the number
of slots m, and the gap g between two writes of a sweep. The last `burst` writes of a sweep need no
gap: they are done while the near level is used. What a plan really takes, the engine says.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ckio.columns import ADVANCE, DISCARD, READ, RECORD, REVERSE, WRITE
from ckio.planners.compiled import kernel
from ckio.planners.overlapped.programs import Ints, Seconds

# mypy: disable-error-code="no-any-return"

Table = NDArray[np.float64]
Splits = NDArray[np.int32]

LOW = 0
"""In place of a split: the segment is left to the near level."""


class Near(NamedTuple):
    """S_c(l) in row c, for c = 0 (none) to the slots, and the j that gives it."""

    seconds: Table
    split: Splits


class Far(NamedTuple):
    """D_m(l) in row m, and its j: LOW, j where the near level goes on, -j where a write does."""

    seconds: Table
    split: Splits


class Rules(NamedTuple):
    """What far access costs the recurrence, and how close writes may come."""

    write: float
    read: float
    gap: float
    burst: int


def near_table(slots: int, length: int, advance: float, write: float, read: float) -> Near:
    """The near level, for all lengths up to `length`."""
    found = Near(
        np.full((slots + 1, length + 1), np.inf), np.zeros((slots + 1, length + 1), np.int32)
    )
    _near(found, advance, write, read)
    return found


@kernel
def _near(near: Near, advance: float, write: float, read: float) -> None:
    slots, lengths = near.seconds.shape
    for c in range(1, slots):
        near.seconds[c, 0] = 0.0
        for length in range(1, lengths):
            for j in range(1, length + 1):
                value = near.seconds[c, j - 1] + j * advance + read
                value += fresh(near, c - 1, length - j, write)
                if value < near.seconds[c, length]:
                    near.seconds[c, length], near.split[c, length] = value, j


@kernel
def fresh(near: Near, slots: int, length: int, write: float) -> float:
    """F: the first state is in the register only."""
    return 0.0 if length == 0 else write + near.seconds[slots, length]


def far_table(low: Seconds, slots: int, advance: float, rules: Rules) -> Far:
    """The far level, for all lengths that `low`, which is F, is for."""
    shape = slots + 1, len(low)
    found = Far(np.full(shape, np.inf), np.zeros(shape, np.int32))
    _far(found, low, advance, rules)
    return found


@kernel
def _far(far: Far, low: Seconds, advance: float, rules: Rules) -> None:
    slots, lengths = far.seconds.shape
    for m in range(1, slots):
        gap = rules.gap if m - 1 > rules.burst else 0.0
        far.seconds[m, 0] = 0.0
        for length in range(1, lengths):
            best, split = low[length], LOW
            for j in range(1, length + 1):
                back = rules.read + far.seconds[m, j - 1]
                value = j * advance + low[length - j] + back
                if value < best:
                    best, split = value, j
                if m > 1 and j < length:
                    value = max(j * advance, gap) + rules.write + far.seconds[m - 1, length - j]
                    if value + back < best:
                        best, split = value + back, -j
            far.seconds[m, length], far.split[m, length] = best, split


class Levels(NamedTuple):
    """The near level, how many of its slots are counted on, and the far level."""

    near: Near
    slots: int
    far: Far


class Rows(NamedTuple):
    """Columns of `ckio.columns.Actions` for restart checkpoints: near is level 0, far level 1.

    `todo` are tasks that are left to do.
    """

    op: Ints
    level: Ints
    begin: Ints
    end: Ints
    todo: Ints


FRESH, NEAR, FAR, READ_NEAR, READ_FAR = range(5)
"""A task: reverse from a state in the register, also near, also far; or read it first."""

_MARGIN = 8


def rows(count: int, slots: int, /) -> Rows:
    """Room for so many rows, and for the tasks of tables with so many slots on both levels."""
    op, level, begin, end = (np.zeros(count, np.int64) for _ in range(4))
    return Rows(op, level, begin, end, np.zeros((3 * slots + 8, 4), np.int64))


@kernel
def unroll(levels: Levels, task: tuple[int, int, int, int], rows: Rows, count: int) -> int:
    """Append the actions of a task (which, first step, length, free slots); how many rows are full.

    More than there are where they do not fit.
    """
    near, slots, far = levels
    todo = rows.todo
    left = push(todo, 0, task)
    while left:
        if count + _MARGIN > len(rows.op):
            return len(rows.op) + 1
        left -= 1
        what, at, length, free = todo[left, 0], todo[left, 1], todo[left, 2], todo[left, 3]
        if what >= READ_NEAR:
            what -= READ_NEAR - NEAR
            count = access(rows, count, READ, what - NEAR, at)
        if what == FRESH and length:
            count = access(rows, count, WRITE, 0, at)
            what = NEAR
        if what == FAR and (length == 0 or far.split[free, length] == LOW):
            count = access(rows, count, DISCARD, 1, at)
            left = push(todo, left, (FRESH, at, length, slots))
        elif what == FAR:
            j = far.split[free, length]
            count = move(rows, count, ADVANCE, at, at + abs(j))
            left = push(todo, left, (READ_FAR, at, abs(j) - 1, free))
            if j < 0:
                count = access(rows, count, WRITE, 1, at - j)
                left = push(todo, left, (FAR, at - j, length + j, free - 1))
            else:
                left = push(todo, left, (FRESH, at + j, length - j, slots))
        elif length:
            j = near.split[free, length]
            count = move(rows, count, ADVANCE, at, at + j)
            left = push(todo, left, (READ_NEAR, at, j - 1, free))
            left = push(todo, left, (FRESH, at + j, length - j, free - 1))
        else:
            if what == NEAR:
                count = access(rows, count, DISCARD, 0, at)
            count = move(rows, count, RECORD, at, at + 1)
            count = move(rows, count, REVERSE, at, at + 1)
    return count


@kernel
def push(todo: Ints, left: int, task: tuple[int, int, int, int]) -> int:
    """Put a task on the pile."""
    todo[left, 0], todo[left, 1], todo[left, 2], todo[left, 3] = task
    return left + 1


@kernel
def access(rows: Rows, count: int, op: int, level: int, at: int) -> int:
    """Append a write, read or discard."""
    rows.op[count], rows.level[count], rows.begin[count], rows.end[count] = op, level, at, 0
    return count + 1


@kernel
def move(rows: Rows, count: int, op: int, begin: int, end: int) -> int:
    """Append an advance, record or reverse."""
    rows.op[count], rows.level[count], rows.begin[count], rows.end[count] = op, 0, begin, end
    return count + 1
