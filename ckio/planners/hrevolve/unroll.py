"""From H-Revolve's tables to the actions: no recursion, straight into columns. Needs numba."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ckio.actions.columns import ADVANCE, DISCARD, READ, RECORD, REVERSE, WRITE, Actions
from ckio.planners.compiled import kernel
from ckio.planners.hrevolve.convolution import LOW
from ckio.planners.hrevolve.hulls import Ints
from ckio.planners.hrevolve.runs import Flat, Tables, solve_runs

# mypy: disable-error-code="no-any-return"

FRESH, STORED = 0, 1
"""Whether x_at is in the register only, or on its level only: the last column of a task."""

_CHUNK = 1 << 18
_MARGIN = 8
"""No task is more actions than this, until it is split."""


class Rows(NamedTuple):
    """Columns of `Actions`; no other is needed for restart checkpoints."""

    op: NDArray[np.uint8]
    level: NDArray[np.int16]
    begin: Ints
    end: Ints


def unroll(tables: Tables, tasks: Ints, numbers: Sequence[int], /) -> Iterator[Rows]:
    """The actions of some tasks, in chunks.

    Parameters
    ----------
    tasks : int64 array (tasks, 5)
        Rows (k, free, length, at, FRESH or STORED), the last one first: reverse the `length` + 1
        steps from x_at on. FRESH: x_at is in the register, and `free` slots of level k are free,
        with all of the levels before it. STORED: x_at is to be read from level k first, where it
        takes one of the `free` slots, and is discarded as soon as it is of no more use. k = 0, with
        length 0, is no level.
    numbers : sequence of int
        The number of each level on the platform.
    """
    depth = 2 * sum(len(level.layers) for level in tables.levels) + 2
    todo = np.zeros((len(tasks) + depth, 5), np.int64)
    todo[: len(tasks)] = tasks
    named = np.array([0, *numbers], np.int16)
    left = len(tasks)
    while left:
        rows = Rows(
            op=np.empty(_CHUNK, np.uint8),
            level=np.empty(_CHUNK, np.int16),
            begin=np.empty(_CHUNK, np.int64),
            end=np.empty(_CHUNK, np.int64),
        )
        count, left = _unroll(tables.flat, todo, left, rows)
        op, level, begin, end = rows
        yield Rows(op[:count], named[level[:count]], begin[:count], end[:count])


def actions(chunks: Iterator[Rows], /) -> Actions:
    """The chunks in one."""
    op, level, begin, end = (np.concatenate(column) for column in zip(*chunks, strict=True))
    return Actions(op=op, level=level, begin=begin, end=end)


def everything(tables: Tables) -> Ints:
    """The one task of the whole chain."""
    levels = tables.levels
    return np.array([[len(levels), levels[-1].slots, tables.length, 0, FRESH]])


@kernel
def _unroll(flat: Flat, todo: Ints, left: int, rows: Rows) -> tuple[int, int]:
    """Until the rows are full or nothing is left to do: how many rows, and how many tasks.

    Levels count from 1 here, as k does, and 0 is no level.
    """
    count = 0
    while left and count + _MARGIN <= len(rows.op):
        left -= 1
        k, free, length = todo[left, 0], todo[left, 1], todo[left, 2]
        at, stored = todo[left, 3], todo[left, 4]
        if stored:
            count = _access(rows, count, READ, k, at)
        while k:
            free = min(free, flat.first[k] - flat.first[k - 1])
            below = _below(flat, k, length)
            if not stored and free and flat.write[k - 1] + _stored(flat, k, free, length) < below:
                count = _access(rows, count, WRITE, k, at)
                stored = STORED
            elif stored and _stored(flat, k, free, length) < below:
                break
            else:
                if stored:
                    count = _access(rows, count, DISCARD, k, at)
                k, free, stored = k - 1, flat.slots[k - 1], FRESH
        if k:
            i = _split(flat, k, free, length)
            count = _move(rows, count, ADVANCE, at, at + i + 1)
            _put(todo, left, (k, free, i, at, STORED))
            _put(todo, left + 1, (k, free - 1, length - i - 1, at + i + 1, FRESH))
            left += 2
        else:
            count = _move(rows, count, RECORD, at, at + 1)
            count = _move(rows, count, REVERSE, at, at + 1)
    return count, left


@kernel
def _access(rows: Rows, count: int, op: int, k: int, at: int) -> int:
    rows.op[count], rows.level[count], rows.begin[count], rows.end[count] = op, k, at, 0
    return count + 1


@kernel
def _move(rows: Rows, count: int, op: int, begin: int, end: int) -> int:
    rows.op[count], rows.level[count], rows.begin[count], rows.end[count] = op, 0, begin, end
    return count + 1


@kernel
def _put(todo: Ints, row: int, task: tuple[int, int, int, int, int]) -> None:
    for column in range(len(task)):
        todo[row, column] = task[column]


@kernel
def _split(flat: Flat, k: int, free: int, length: int) -> int:
    """An i that gives Hbar_k,free(length): first those that the ends of its run point to."""
    value, layer = _stored(flat, k, free, length), _layer(flat, k, free, length)
    first, end = flat.ends[layer], flat.ends[layer + 1]
    right = max(first + 1, _at_least(flat.x, first, end, length))
    left = right - 1
    for i in (
        flat.split[right] - (flat.x[right] - length),
        flat.split[right],
        flat.split[left] + (length - flat.x[left]),
        flat.split[left],
    ):
        if 0 <= i < length and _sum(flat, k, free, length, i) == value:
            return i
    for away in range(length):
        for i in (flat.split[right] - away, flat.split[right] + away):
            if 0 <= i < length and _sum(flat, k, free, length, i) == value:
                return i
    return LOW


@kernel
def _sum(flat: Flat, k: int, free: int, length: int, i: int) -> int:
    """(i + 1) u_f + H_k,free-1(length - 1 - i) + r_k + Hbar_k,free(i)."""
    moved = (i + 1) * flat.advance + flat.read[k - 1]
    return moved + _fresh(flat, k, free - 1, length - 1 - i) + _stored(flat, k, free, i)


@kernel
def _fresh(flat: Flat, k: int, free: int, length: int) -> int:
    below = _below(flat, k, length)
    if free == 0:
        return below
    return min(below, flat.write[k - 1] + _stored(flat, k, free, length))


@kernel
def _below(flat: Flat, k: int, length: int) -> int:
    return _value(flat.below_x, flat.below_v, flat.below[k - 1], flat.below[k], length)


@kernel
def _stored(flat: Flat, k: int, free: int, length: int) -> int:
    layer = _layer(flat, k, free, length)
    return _value(flat.x, flat.v, flat.ends[layer], flat.ends[layer + 1], length)


@kernel
def _layer(flat: Flat, k: int, free: int, length: int) -> int:
    """The last layer, of those for `free` slots or less, that differs from the ones before."""
    low, high = flat.first[k - 1], flat.first[k - 1] + free - 1
    while low < high:
        middle = (low + high + 1) >> 1
        if flat.start[middle] < length:
            low = middle
        else:
            high = middle - 1
    return low


@kernel
def _value(x: Ints, v: Ints, begin: int, end: int, length: int) -> int:
    """The value at a length of the runs with their ends at positions `begin` to `end`."""
    right = _at_least(x, begin, end, length)
    if x[right] == length:
        return v[right]
    slope = (v[right] - v[right - 1]) // (x[right] - x[right - 1])
    return v[right] - slope * (x[right] - length)


@kernel
def _at_least(x: Ints, begin: int, end: int, length: int) -> int:
    """The first position with x >= length; there is one."""
    low, high = begin, end - 1
    while low < high:
        middle = (low + high) >> 1
        if x[middle] < length:
            low = middle + 1
        else:
            high = middle
    return low


def warm_up() -> None:
    """Call each kernel once."""
    tables = solve_runs(9, (1, 2), (1, 2), (1, 2), 1)
    for _ in unroll(tables, everything(tables), (0, 1)):
        pass
