"""A whole chain as a tree of pieces: by the tables, but for what is chosen otherwise. Needs numba.

A piece of some steps, whose first state is stored, is taken back by advancing j steps, taking back
what comes then, reading its first state, and taking back the j - 1 steps before. The tables of
`segments` say which j, and where the state after j steps goes; a choice says something else for one
piece. What the tables cannot say may be chosen too: a far checkpoint within a near piece, other
lengths, other variants for a part of a segment.
"""

from typing import NamedTuple

import numpy as np

from ckio.columns import ADVANCE, DISCARD, READ, RECORD, REVERSE, WRITE
from ckio.planners.compiled import kernel
from ckio.planners.overlapped import tables
from ckio.planners.overlapped.programs import Ints
from ckio.planners.overlapped.segments import Machine, Segments
from ckio.planners.overlapped.tables import (
    FAR,
    FRESH,
    LOW,
    NEAR,
    READ_NEAR,
    Near,
    Rows,
    access,
    move,
)

# mypy: disable-error-code="no-any-return"

STAY = 1 << 20
"""In place of a split: the far piece is left to the near level, whatever its table says."""

LONGEST = 1_500
"""Steps that a chain may have: there is a choice for each piece that it can have."""

_MARGIN = 12


class Splits(NamedTuple):
    """The splits of the tables: of the near level, and of the far one by variant.

    `slots` are the near slots that a variant counts on.
    """

    near: tables.Splits
    far: tables.Splits
    slots: Ints


class Choices(NamedTuple):
    """What is chosen, by a piece's first step and length; 0 where nothing is.

    `near` and `far` are a piece's split: j, or -j where the state after j steps is written far, or
    STAY. `variant` is 1 more than the number of the tables for the piece and all that it is made
    of, which are then planned for `slots` far slots at the most.
    """

    near: Ints
    far: Ints
    variant: Ints
    slots: Ints


class Tree(NamedTuple):
    """The pieces that were written down: first step, length, whether its state is far, split."""

    pieces: Ints
    todo: Ints


def splits(near: Near, segments: Segments) -> Splits:
    """Of all variants."""
    return Splits(
        near.split,
        np.stack([levels.far.split for levels in segments.variants]),
        np.array([levels.slots for levels in segments.variants]),
    )


def choices(length: int) -> Choices:
    """None, for a chain of so many steps."""
    shape = length + 1, length + 1
    return Choices(*(np.zeros(shape, np.int64) for _ in range(4)))


def tree(machine: Machine) -> Tree:
    """Room for all pieces of a chain."""
    slots = machine.near + machine.far
    return Tree(
        np.zeros((2 * machine.length + 2, 4), np.int64), np.zeros((3 * slots + 8, 7), np.int64)
    )


class Free(NamedTuple):
    """What a piece has: near and far slots, its own far one included; its variant, planned for."""

    near: int
    far: int
    variant: int
    planned: int


@kernel
def unroll(splits: Splits, chosen: Choices, free: Free, rows: Rows, tree: Tree) -> tuple[int, int]:
    """Write a chain down whose first state goes far: how many rows and pieces there are.

    More rows than there is room for where they do not fit, or where a piece is in no table.
    """
    todo, none = tree.todo, len(rows.op) + 1
    count, parts = access(rows, 0, WRITE, 1, 0), 0
    left = _push(todo, 0, (FAR, 0, len(chosen.near) - 1), free)
    while left:
        if count + _MARGIN > len(rows.op) or left + 2 > len(todo):
            return none, parts
        left -= 1
        what, at, length = todo[left, 0], todo[left, 1], todo[left, 2]
        free = Free(todo[left, 3], todo[left, 4], todo[left, 5], todo[left, 6])
        what, count = _taken(rows, count, (what, at, length))
        if length == 0:
            count = _step(rows, count, what, at)
            continue
        if what == FAR:
            free = _planned(splits, chosen, (at, length), free)
            j = _far_split(splits, chosen, (at, length), free)
        else:
            j = _near_split(splits, chosen, (at, length), free)
        if abs(j) > length:
            return none, parts
        pieces = tree.pieces
        pieces[parts, 0], pieces[parts, 1], pieces[parts, 2] = at, length, what == FAR
        pieces[parts, 3] = j
        parts += 1
        if j == LOW:
            count = access(rows, count, DISCARD, 1, at)
            left = _push(todo, left, (FRESH, at, length), free)
        else:
            count, left = _cut(rows, todo, (count, left), (what, at, length, j), free)
    return count, parts


@kernel
def _taken(rows: Rows, count: int, task: tuple[int, int, int]) -> tuple[int, int]:
    """Have a piece's first state in the register, and stored; where it is."""
    what, at, length = task
    if what >= READ_NEAR:
        what -= READ_NEAR - NEAR
        count = access(rows, count, READ, what - NEAR, at)
    if what == FRESH and length:
        return NEAR, access(rows, count, WRITE, 0, at)
    return what, count


@kernel
def _step(rows: Rows, count: int, what: int, at: int) -> int:
    """Take a single step back, whose state is of no more use."""
    if what != FRESH:
        count = access(rows, count, DISCARD, what - NEAR, at)
    count = move(rows, count, RECORD, at, at + 1)
    return move(rows, count, REVERSE, at, at + 1)


@kernel
def _cut(
    rows: Rows, todo: Ints, so_far: tuple[int, int], piece: tuple[int, int, int, int], free: Free
) -> tuple[int, int]:
    """Advance to where a piece is split; the rest is to be done, then what is before.

    `so_far` and what is returned are how many rows and tasks there are.
    """
    (count, left), (what, at, length, j) = so_far, piece
    middle, rest = at + abs(j), length - abs(j)
    count = move(rows, count, ADVANCE, at, middle)
    left = _push(todo, left, (what + READ_NEAR - NEAR, at, abs(j) - 1), free)
    near, far, variant, planned = free
    if what == FAR:
        far, planned = far - 1, planned - (j < 0)
    else:
        near -= 1
    after = Free(near, far, variant, planned)
    if j > 0:
        return count, _push(todo, left, (FRESH, middle, rest), after)
    return access(rows, count, WRITE, 1, middle), _push(todo, left, (FAR, middle, rest), after)


@kernel
def _planned(splits: Splits, chosen: Choices, piece: tuple[int, int], free: Free) -> Free:
    """With the tables that are chosen for a piece."""
    if chosen.variant[piece] == 0:
        return free
    variant = chosen.variant[piece] - 1
    near = min(free.near, splits.slots[variant])
    return Free(near, free.far, variant, chosen.slots[piece])


@kernel
def _far_split(splits: Splits, chosen: Choices, piece: tuple[int, int], free: Free) -> int:
    """A far piece's j, -j, or LOW; more than the length where there is none."""
    length = piece[1]
    if free.near < 1:
        return length  # there is no slot for what comes after a shorter advance
    j = chosen.far[piece]
    if j == 0:
        slots = min(free.planned, free.far, splits.far.shape[1] - 1)
        if length >= splits.far.shape[2] or slots < 1:
            return length + 1
        j = splits.far[free.variant, slots, length]
    elif j == STAY:
        return LOW
    return abs(j) if j <= -length or free.far < 2 else j


@kernel
def _near_split(splits: Splits, chosen: Choices, piece: tuple[int, int], free: Free) -> int:
    """The same for a near piece: j or -j; more than the length where there is none."""
    length = piece[1]
    j = chosen.near[piece]
    if j == 0:
        if length >= splits.near.shape[1]:
            return length + 1
        j = splits.near[free.near, length]
    if j < 0 and j > -length and free.far:
        return j
    return abs(j) if free.near > 1 else length


@kernel
def _push(todo: Ints, left: int, task: tuple[int, int, int], free: Free) -> int:
    """Put a task on the pile."""
    todo[left, 0], todo[left, 1], todo[left, 2] = task
    todo[left, 3], todo[left, 4], todo[left, 5], todo[left, 6] = free
    return left + 1
