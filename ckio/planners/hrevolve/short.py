"""H-Revolve's tables for segments: every layer of every level, in numpy, up to a few hundred steps.

Plans of long chains (`segments`) come from these as long as they are short, and always where numba
is missing. Unlike those of `layers`, whose decisions are for a chain that has all slots of each
level, these keep Hbar_k,m itself, for every number m of free slots that makes a difference.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ckio.actions.columns import ADVANCE, DISCARD, READ, RECORD, REVERSE, WRITE, Actions, Row

_Ints = NDArray[np.int64]

_FAR = 1 << 60
"""For what cannot be chosen."""

_BLOCK = 16
"""Rows computed at first; twice as many, until one more slot makes no difference."""


@dataclass(frozen=True)
class ShortTable:
    """One level: H_{k-1} `below` it, and Hbar_k,m in row m - 1, the last also for all greater m."""

    slots: int
    write: int
    read: int
    below: _Ints
    layers: _Ints

    def windows(self, begin: int, end: int) -> Iterator[tuple[int, _Ints]]:
        """(0, Hbar_k,m at the lengths from `begin` to before `end`), for m = 1, 2, ..."""
        for layer in self.layers:
            yield 0, layer[begin:end]

    def stored(self, free: int) -> _Ints:
        """Hbar_k,free."""
        row: _Ints = self.layers[min(free, len(self.layers)) - 1]
        return row

    def fresh(self, free: int) -> _Ints:
        """H_k,free."""
        if free == 0:
            return self.below
        found = np.minimum(self.below, self.write + self.stored(free))
        found[0] = 0
        return found


@dataclass(frozen=True)
class ShortTables:
    """The levels of an order, nearest first, solved for all lengths up to `length`."""

    length: int
    advance: int
    levels: tuple[ShortTable, ...]


def solve_short(
    length: int, slots: Sequence[int], write: Sequence[int], read: Sequence[int], advance: int
) -> ShortTables:
    """The tables of an order of levels; time is O(length^2) for each slot worth its cost."""
    below = np.full(length + 1, _FAR)
    below[0] = 0
    levels: list[ShortTable] = []
    for held, w, r in zip(slots, write, read, strict=True):
        rows = min(held, _BLOCK)
        layers = _layers(below, rows, w, r, advance)
        while rows < held and not np.array_equal(layers[-2], layers[-1]):
            rows = min(held, 2 * rows)
            layers = _layers(below, rows, w, r, advance)
        levels.append(ShortTable(held, w, r, below, _distinct(layers)))
        below = levels[-1].fresh(held)
    return ShortTables(length, advance, tuple(levels))


def _layers(below: _Ints, rows: int, write: int, read: int, advance: int) -> _Ints:
    """Hbar_k,m for m = 1 to `rows`; for one length all rows are found together."""
    longest = len(below) - 1
    stored = np.zeros((rows, longest + 1), np.int64)
    inner = np.zeros((rows, longest + 1), np.int64)  # H_k,m-1
    inner[0] = below
    moved = np.arange(1, longest + 2) * advance + read
    for length in range(1, longest + 1):
        splits = inner[:, length - 1 :: -1][:, :length] + (moved[:length] + stored[:, :length])
        stored[:, length] = np.minimum(below[length], splits.min(axis=1))
        inner[1:, length] = np.minimum(below[length], write + stored[:-1, length])
    return stored


def _distinct(layers: _Ints) -> _Ints:
    """Without the last rows that are all the same, but one."""
    same = (layers[1:] == layers[:-1]).all(axis=1)
    return layers[: int(np.argmax(same)) + 1] if same.any() else layers


def short_actions(
    tables: ShortTables, level: int, free: int, length: int, numbers: Sequence[int], /
) -> Actions:
    """The actions that reverse a segment of `length` + 1 steps which is stored on `level` at 0.

    `free` slots of that level are free, its own among them, and all of the levels before it.
    """
    return Actions.of_rows(_rows(tables, (level, free, length, 0, True), numbers))


def _rows(
    tables: ShortTables, task: tuple[int, int, int, int, bool], numbers: Sequence[int]
) -> Iterator[Row]:
    todo = [task]
    while todo:
        k, free, length, at, stored = todo.pop()
        if stored:
            yield READ, 0, numbers[k - 1], at, 0, 0
        while k:
            table = tables.levels[k - 1]
            below = table.below[length]
            if not stored and free and table.fresh(free)[length] < below:
                yield WRITE, 0, numbers[k - 1], at, 0, 0
                stored = True
            elif stored and table.stored(free)[length] < below:
                j = _split(table, tables.advance, free, length)
                yield ADVANCE, 0, 0, at, at + j, 0
                todo.append((k, free, j - 1, at, True))
                free, length, at, stored = free - 1, length - j, at + j, False
            else:
                if stored:
                    yield DISCARD, 0, numbers[k - 1], at, 0, 0
                k, stored = k - 1, False
                free = tables.levels[k - 1].slots if k else 0
        yield RECORD, 0, 0, at, at + 1, 0
        yield REVERSE, 0, 0, at, at + 1, 0


def _split(table: ShortTable, advance: int, free: int, length: int) -> int:
    """The j of Hbar_k,free(length)."""
    j = np.arange(1, length + 1)
    inner, stored = table.fresh(free - 1), table.stored(free)
    return int(np.argmin(j * advance + inner[length - j] + stored[j - 1])) + 1
