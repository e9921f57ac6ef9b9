"""The recurrence, solved on one level after the other, for all numbers of steps.

Costs are whole numbers here (`ckio.planners.dp.costs`), so that every comparison is exact. n is the
number of steps and f the number of restart checkpoints that fit on the level, or t_f tapes instead
(`spaces`). f' = f - 1 is the number after a restart checkpoint is stored. `nearer` is P of the
levels before this one in their order, with all their space free; on the first level, of none. For
P, x_0 is in the register only; for Q, it is also stored on the level. w and r are the costs to
write and read x_0, `tape` is w' + r', and u_f is the cost to advance over a step
(`ckio.planners.dp`). For each f,

    low_f(n) = min_{0<=m<=t_f} m tape + nearer(n - m)
    Q_f(n) = min(low_f(n), min_{1<=j<n} j u_f + P_f'(n - j) + r + Q_f(j))
    P_f(n) = min(low_f(n), w + Q_f(n))              (w >= 0, so that w + low changes nothing)

and `ckio.planners.dp.min_plus` solves the second line.

For example, with one slot that costs nothing and u_f = 1, the least cost of n steps is
n (n - 1) / 2, because each step is reached from x_0:

    >>> from ckio.planners.dp.spaces import slots_of
    >>> (table,) = in_order([slots_of("RAM", 0, 1, write=0, read=0)], 5, move=1, held=1)
    >>> table.finish.tolist()
    [0, 0, 1, 3, 6, 10]

With two slots, four steps take 4: advance two steps from x_0, store x_2, advance one step, and
reverse the last two steps from x_3 and x_2; then advance one step from x_0, and reverse the first
two. Revolve needs the same (Griewank and Walther, 2000):

    >>> (table,) = in_order([slots_of("RAM", 0, 2, write=0, read=0)], 5, move=1, held=1)
    >>> table.finish.tolist()
    [0, 0, 1, 2, 4, 6]

Each row, which is P_f and Q_f for all n, equals the row before up to some n, which grows with the
free space, because the rest after a checkpoint is never longer than n - 1. Only the longer part is
solved and stored. If rows no longer change, more free space is of no use.

`min_plus` counts lengths l = n - 1 from 0: its l is n - 1 here, and the i that it returns is j - 1.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Kind
from ckio.planners.base import Ints
from ckio.planners.dp.costs import INFEASIBLE
from ckio.planners.dp.min_plus import MinPlus
from ckio.planners.dp.spaces import Numbers, Space, count_tapes, recorded_together, with_tapes
from ckio.planners.dp.unroll import StoreDecision


class Row(NamedTuple):
    """P_f and Q_f for the numbers of steps at which they differ from the row before.

    Attributes
    ----------
    first : int
        The least number of steps in this row.
    unstored, stored : int64 arrays
        P_f and Q_f from `first`.
    split : int32 array
        The best j of Q_f; 0 if it is better to discard x_0.
    """

    first: int
    unstored: Ints
    stored: Ints
    split: NDArray[np.int32]


@dataclass(frozen=True)
class Table:
    """The solution of the recurrence on a level; a stage of `unroll`.

    Attributes
    ----------
    space : Space
        The level, with costs in whole units.
    nearer : int64 array (n)
        P without the level for each number of steps from 0; INFEASIBLE if there is no schedule.
    move : int
        The cost to go forward over one step.
    rows : tuple of Row
        The rows by number of the free space; the last one is for all greater numbers.
    """

    space: Space
    nearer: Ints
    move: int
    rows: tuple[Row, ...]

    @property
    def spaces(self) -> tuple[Space, ...]:
        return (self.space,)

    @property
    def empty(self) -> int:
        return self.space.empty

    @property
    def after_restart(self) -> tuple[Numbers, ...]:
        return (self.space.after_restart,)

    @property
    def after_tape(self) -> tuple[Numbers, ...]:
        return ()

    @property
    def longest(self) -> int:
        """The most steps."""
        return len(self.nearer) - 1

    @property
    def last(self) -> int:
        """The number f of the last row."""
        return len(self.rows) - 1

    @cached_property
    def finish(self) -> Ints:
        """P if nothing is stored, for each number of steps."""
        *_, (unstored, _) = self.values()
        return unstored

    def values(self) -> Iterator[tuple[Ints, Ints]]:
        """Yield P and Q of each row for all numbers of steps.

        The next values overwrite both arrays.
        """
        unstored, stored = np.empty((2, len(self.nearer)), np.int64)
        for row in self.rows:
            unstored[row.first :], stored[row.first :] = row.unstored, row.stored
            yield unstored, stored

    def least_free(self, length: int, free: int, /) -> int:
        """Return the least f with which `length` steps take no longer."""
        begun = self._firsts[: free + 1] <= length
        return len(begun) - 1 - int(begun[::-1].argmax())

    @cached_property
    def _firsts(self) -> Ints:
        return np.array([row.first for row in self.rows])

    def _row(self, length: int, free: int) -> tuple[Row, int]:
        """Return the row that stores P_f and Q_f of `length` steps, and their index."""
        row = self.rows[self.least_free(length, free)]
        return row, length - row.first

    def store(self, length: int, free: int, /) -> StoreDecision:
        """Return what to store if x_0 is in the register only; of equal costs, a tape."""
        row, at = self._row(length, free)
        tape, tapes = min(self.space.tape, INFEASIBLE), int(self.space.tapes[free])
        m = count_tapes(self.nearer, tape, tapes, length)
        taped = row.unstored[at] == m * tape + self.nearer[length - m]
        return StoreDecision(tapes=(m,)) if taped else StoreDecision(Kind.RESTART)

    def advance(self, length: int, free: int, _: int, /) -> int:
        """Return how far to advance from x_0, which is stored; 0 to discard it."""
        row, at = self._row(length, free)
        return int(row.split[at])

    def restart(self, length: int, free: int, _: int, /) -> int:
        """Return 0: here no tape is read before its step is reversed."""
        return 0


def in_order(
    order: Sequence[Space], steps: int, /, *, move: int, held: int, between: int = 0
) -> tuple[Table, ...]:
    """Solve the levels one after the other, for up to `steps` steps.

    The working memory holds the tapes of `held` steps, at a cost of `between` for each but the
    last.
    """
    nearer = recorded_together(steps, held, between)
    tables = list[Table]()
    for space in order:
        rows = _endless_rows if space.endless else _rows
        tables.append(Table(space, nearer, move, tuple(rows(space, nearer, move))))
        nearer = tables[-1].finish
    return tuple(tables)


def _rows(space: Space, nearer: Ints, move: int) -> Iterator[Row]:
    """Yield the rows in the order of free space, until more is of no use."""
    write, tape = int(space.write), int(min(space.tape, INFEASIBLE))
    min_plus = MinPlus(len(nearer) - 1, move=move, read=int(space.read))
    before, most = (with_tapes(nearer, tape, int(space.tapes[at])) for at in (0, -1))
    yield Row(0, before, before, np.zeros(len(nearer), np.int32))
    for free in range(1, space.empty + 1):
        low, inner = with_tapes(nearer, tape, int(space.tapes[free])), before[1:]
        if not space.to_the_last:
            inner = np.append(INFEASIBLE, inner[1:])  # P_f'(1), which j = n - 1 needs
        start, least, split = min_plus.solve(low[1:], inner)
        # `least` is new from n = start + 1. The first row has no Q.
        first = start + 1 if start and free > 1 else 0
        begin = max(1, first)
        unstored = before.copy()
        np.minimum(low[begin:], write + least[begin - 1 :], out=unstored[begin:])
        none = np.zeros(begin - first, np.int64)  # of no step, in the first row
        stored = np.concatenate((none, least[begin - 1 :]))
        best = np.concatenate((none, split[begin - 1 :] + 1), dtype=np.int32)
        yield Row(first, unstored[first:], stored, best)
        if np.array_equal(before, unstored) and np.array_equal(low, most):
            return  # all next rows depend on equal ones, and are equal, too
        before = unstored


def _endless_rows(space: Space, nearer: Ints, move: int) -> Iterator[Row]:
    """Yield the row of a level that restart checkpoints never fill.

    It depends on itself, so that every j is tried.
    """
    low = with_tapes(nearer, int(min(space.tape, INFEASIBLE)), int(space.tapes[0]))
    unstored, stored, outer = np.zeros((3, len(nearer)), np.int64)
    split = np.zeros(len(nearer), np.int32)
    for n in range(1, len(nearer)):
        ways = np.append(low[n], unstored[n - 1 : 0 : -1] + outer[1:n])
        split[n] = ways.argmin()
        stored[n] = ways[split[n]]
        outer[n] = stored[n] + n * move + int(space.read)
        unstored[n] = min(low[n], int(space.write) + stored[n])
    yield Row(0, unstored, stored, split)


def warm_up() -> None:
    """Call each kernel once."""
    from ckio.planners.dp.spaces import slots_of

    in_order([slots_of("RAM", 0, 3, write=1, read=1)], 9, move=1, held=1)
