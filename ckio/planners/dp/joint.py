"""The recurrence in tables of all numbers of steps and all free space, on one level or several.

The free space F is a single number here, the number of a row; the columns are the numbers of steps
n. There is a row for each combination of free space on the levels. The last row means that a
checkpoint does not fit; all its values are infinite. `nearer` is P without these levels. For
each F,

    Q0_k(n) = min_{1<=j<n} P(n - j, F - a e_k) + j u_f + r_k + Q_k(j)
    P(n) = min(low(n), min_k w_k + Q0_k(n))
    Q_k(n) = min(Q0_k(n), P(n))

where low stores as many tapes as the levels can, or none, and then uses `nearer` (`with_tapes`).
If the forward restarts from tapes,

    P(n) = min(nearer(n), min_k w'_k + r'_k + T_k(n - 1, F - b e_k), min_k w_k + Q0_k(n))
    T_k(n) = min(P(n), min_{1<=j<n} P(n - j) + j u_f + r'_k + T_k(j))

T_k is P if the tape of the step before x_0 is on level k, and contains x_0; the tape stays until
its own step is reversed (Zhang and Constantinescu, 2023, have both on one level without costs).

Costs are seconds, or whole units. The time is O(K n^2) for each row. Less free space has the
smaller number, so that the rows F - a e_k and F - b e_k are before row F; only if a checkpoint
takes no space they are row F itself. The tables are filled a block of rows at a time, n by n: the
right-hand sides have the columns n - 1, n - j and j, which are all less than n.

For example, one level of two slots that cost nothing, steps of 1 s, and memory for one tape:

    >>> from ckio.planners.dp.spaces import slots_of
    >>> level, nearer = slots_of("RAM", 0, 2, write=0, read=0), np.array([0, 0, inf, inf, inf, inf])
    >>> solve((level,), nearer, move=1).finish[1:].tolist()
    [0.0, 1.0, 2.0, 4.0, 6.0]
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Kind
from ckio.planners.dp.costs import INFEASIBLE
from ckio.planners.dp.spaces import (
    Numbers,
    Space,
    count_tapes,
    recorded_together,
    rows,
    with_tapes,
)
from ckio.planners.dp.unroll import StoreDecision

Costs = NDArray[Any]
"""Floats (seconds), or 64-bit integers (units)."""

_INFINITE: Final[dict[str, Any]] = {"f": inf, "i": INFEASIBLE}

_QUICK: Final = 1e8
"""The most comparisons: a quarter of a second. With more, compiled code solves one level after the
other in less time, with the second that it takes to be loaded. On 40 machines with up to five times
as many, the plans of 37 were as good, and that of one took 0.4 % longer."""

_BLOCK: Final = 1 << 16
"""Numbers in a block of rows: half a megabyte, which stays in the cache of a processor."""

_TOGETHER: Final = 512
"""Sums that are compared by one operation of NumPy: less than four kilobytes."""

_MOST_RESTARTING: Final = 5e8
"""The most comparisons if tapes restart, which compiled code does not solve: up to two seconds."""

_MOST_NUMBERS: Final = 1 << 26
"""The most numbers in the tables of all levels together: half a gigabyte."""


@dataclass(frozen=True)
class JointTable:
    """The solution of the recurrence on some levels; a stage of `unroll`.

    Attributes
    ----------
    spaces : tuple of Space
        The levels, with costs in seconds.
    nearer : array (n)
        P without these levels.
    unstored : array (F, n)
        P: x_0 is only in the register. The time to record and reverse each step once is left out.
    outer : array (levels, F, n)
        n u_f + r_k + Q, a term of the inner minimum.
    taped, outer_tape : arrays (levels, F, n)
        T, and n u_f + r'_k + T; empty if tapes do not restart.
    after_restart, after_tape : arrays of int (levels, F)
        The rows of F - a e_k and F - b e_k; -1, the last row, if the checkpoint does not fit.
        After a tape that does not restart, it is known only if a restart checkpoint is as large.
    tapes : array of int (levels, F)
        How many tapes that do not restart fit.
    """

    spaces: tuple[Space, ...]
    nearer: Costs
    unstored: Costs
    outer: Costs
    taped: Costs
    outer_tape: Costs
    after_restart: Numbers
    after_tape: Numbers
    tapes: Numbers

    @property
    def empty(self) -> int:
        """F if nothing is stored."""
        return len(self.unstored) - 2

    @property
    def last(self) -> int:
        return self.empty

    @property
    def finish(self) -> Costs:
        """P if nothing is stored, for each number of steps."""
        finish: Costs = self.unstored[-2]
        return finish

    def least_free(self, length: int, free: int, /) -> int:
        """Return `free`, because no smaller number is known to be as good."""
        return free

    def store(self, length: int, free: int, /) -> StoreDecision:
        """Return what to store if x_0 is in the register only; of equal costs, a tape.

        The tape may come before restart checkpoints if it takes the space of one, so that it leads
        to a row, too. The schedules that Maddison (2024) prints begin with tapes.
        """
        seconds, tapes = self._low(length, free)
        costs: dict[StoreDecision, Any] = {StoreDecision(tapes=tapes): seconds}
        for place, space in enumerate(self.spaces):
            following = self.taped[place] if space.restarting else self.unstored
            after = following[self.after_tape[place, free], length - 1]
            costs[StoreDecision(Kind.TAPE, place)] = space.tape + after
        for place, space in enumerate(self.spaces):
            costs[StoreDecision(Kind.RESTART, place)] = (
                space.write + self._sweep(length, free, place)[0]
            )
        return min(costs, key=costs.__getitem__)

    def _low(self, length: int, free: int) -> tuple[Any, tuple[int, ...]]:
        """Return the cost if only tapes are stored, and how many on each level."""
        low, counts = [self.nearer[: length + 1]], list[int]()
        levels = list(
            zip((it.tape for it in self.spaces), self.tapes[:, free].tolist(), strict=True)
        )
        for tape, most in levels:
            low.append(with_tapes(low[-1], tape, most))
        left = length
        for before, (tape, most) in zip(low[-2::-1], reversed(levels), strict=True):
            counts.append(count_tapes(before, tape, most, left))
            left -= counts[-1]
        return low[-1][length], tuple(reversed(counts))

    def advance(self, length: int, free: int, place: int, /) -> int:
        """Return how far to advance from x_0, which is stored; 0 to discard it."""
        seconds, j = self._sweep(length, free, place)
        return 0 if self.unstored[free, length] < seconds else j

    def restart(self, length: int, free: int, place: int, /) -> int:
        """Return how far to advance from x_0, which a stored tape contains; 0 if it is not read."""
        if length < 2 or not self.outer_tape.size:
            return 0
        outer_tape = self.outer_tape[place, free, 1:length]
        costs = self.unstored[free, length - 1 : 0 : -1] + outer_tape
        best = int(costs.argmin())
        return best + 1 if costs[best] < self.unstored[free, length] else 0

    def _sweep(self, length: int, free: int, place: int) -> tuple[Any, int]:
        """Return Q0, the cost if x_0 is stored and the next action is to advance, and its j."""
        end = length if self.spaces[place].to_the_last else length - 1
        if end < 2:
            return inf, 0
        inner = self.unstored[self.after_restart[place, free]]
        costs = inner[length - 1 : length - end : -1] + self.outer[place, free, 1:end]
        best = int(costs.argmin())  # of equal costs, the smallest j
        return costs[best], best + 1


def comparisons(spaces: Sequence[Space], steps: int, /) -> float:
    """Return how many sums the tables of these levels together compare."""
    return rows(spaces) * len(spaces) * steps**2 / 2


def are_quick(spaces: Sequence[Space], steps: int, /) -> bool:
    """Return whether each level is solved in a quarter of a second, or in two if tapes restart."""
    return all(
        comparisons([space], steps) <= (_MOST_RESTARTING if space.restarting else _QUICK)
        for space in spaces
    )


def is_quick_together(spaces: Sequence[Space], steps: int, /) -> bool:
    """Return whether there are time and memory for tables of all levels together."""
    numbers = steps * rows(spaces) * (1 + len(spaces))
    most = _MOST_RESTARTING if any(it.restarting for it in spaces) else _QUICK
    return comparisons(spaces, steps) <= most and numbers <= _MOST_NUMBERS


def solve(spaces: Sequence[Space], nearer: Costs, /, *, move: float) -> JointTable:
    """Solve the recurrence for all numbers of steps in `nearer`; a step forward costs `move`.

    Costs are whole numbers if those of `nearer` are.
    """
    infinite = _INFINITE[nearer.dtype.kind]
    unstored = np.full((len(nearer), rows(spaces)), infinite, nearer.dtype).T  # n by n in memory
    outer = np.full((len(spaces), *unstored.shape), infinite, nearer.dtype)
    taped = outer_tape = np.empty((0, *unstored.shape), nearer.dtype)
    if any(space.restarting for space in spaces):
        taped, outer_tape = np.full_like(outer, infinite), np.full_like(outer, infinite)
        taped[:, :-1, 0] = 0
    table = JointTable(tuple(spaces), nearer, unstored, outer, taped, outer_tape, *_after(spaces))
    costs = np.minimum([space.costs for space in spaces], infinite).astype(nearer.dtype)
    with np.errstate(over="ignore"):  # infinite sums are refused later
        unstored[:-1] = low(nearer, table.tapes, costs)
        fill(table, costs, move)
    return table


def low(nearer: Costs, tapes: Numbers, costs: Costs, /) -> Costs:
    """Return P if only tapes are stored, as an array (F, n); `tapes` and `costs` are by level."""
    least = np.tile(nearer, (tapes.shape[1], 1))
    for counts, (_, _, tape, _) in zip(tapes, costs, strict=True):
        for most in np.unique(counts):
            these = counts == most
            least[these] = with_tapes(least[these], tape, most)
    return least


def in_order(
    order: Sequence[Space], steps: int, /, *, move: int, held: int, between: int = 0
) -> tuple[JointTable, ...]:
    """Solve the levels one after the other, as `recurrence.in_order` does with compiled code."""
    nearer: Costs = recorded_together(steps, held, between)
    tables = list[JointTable]()
    for space in order:
        tables.append(solve([space], nearer, move=move))
        nearer = tables[-1].finish
    return tuple(tables)


def fill(table: JointTable, costs: Costs, move: float, /, *, first: int = 1) -> None:
    """Set P, and n u_f + r + Q, of all free space for the steps n from `first`.

    `table.unstored` already has P without restart checkpoints. `costs` are those of each level, as
    in `Space.costs`. A block of rows, which depend on no later ones, is filled at a time.
    """
    count, length = table.unstored.shape
    size = max(1, _BLOCK // length)
    for begin in range(0, count - 1, size):
        _fill_rows(table, slice(begin, min(begin + size, count - 1)), costs, move, first)


def _fill_rows(table: JointTable, here: slice, costs: Costs, move: float, first: int) -> None:
    """Fill a block of rows.

    Local arrays have a row for each n, so that the sums for one n are next to each other in memory.
    `inner` and `own`, which are P, are in descending order of n, as the sums need them.
    """
    infinite, longest = _INFINITE[table.unstored.dtype.kind], table.unstored.shape[1] - 1
    unstored, taped = table.unstored.T, table.taped.transpose(0, 2, 1)
    restarts, tapes = table.after_restart[:, here], table.after_tape[:, here]
    width = here.stop - here.start
    together = max(1, _TOGETHER // width)

    def columns(known: Costs) -> Costs:
        """Return a function of n, which is infinite where it is not known."""
        values = np.full((longest + 1 + together, width), infinite, unstored.dtype)
        values[: len(known)] = known
        return values

    inner = [columns(unstored[::-1, restart]) for restart in restarts]
    outer = [columns(each.T[:first, here]) for each in table.outer]
    own, outer_tape = (
        columns(unstored[::-1, here]),
        [columns(each.T[:first, here]) for each in table.outer_tape],
    )
    sums = np.empty_like(own)

    def least(inner: Costs, outer: Costs, n: int) -> Costs:
        """Return the least inner(n - j) + outer(j) for 0 < j < n."""
        begin, count = longest - n + 1, -(-n // together) * together  # outer is infinite from n
        np.add(inner[begin : begin + count], outer[1 : count + 1], out=sums[:count])
        some = np.minimum.reduce(sums[:count].reshape(-1, together * width))
        found: Costs = np.minimum.reduce(some.reshape(-1, width))
        return found

    for n in range(first, longest + 1):
        row, stored = unstored[n, here], list[Any]()
        for k in range(len(taped)):
            np.minimum(row, costs[k, 2] + taped[k, n - 1].take(tapes[k]), out=row)
        for k, (write, *_) in enumerate(costs):
            stored.append(least(inner[k], outer[k], n))
            np.minimum(row, write + stored[k], out=row)
        for k in range(len(taped)):
            taped[k, n, here] = np.minimum(row, least(own, outer_tape[k], n))
            outer_tape[k][n] = n * move + costs[k, 3] + taped[k, n, here]
            own[longest - n] = row
        for k, (_, read, _, _) in enumerate(costs):
            outer[k][n] = n * move + read + np.minimum(stored[k], row)
            # Without j = n - 1, one step is never left.
            reachable = n > 1 or table.spaces[k].to_the_last
            inner[k][longest - n] = unstored[n].take(restarts[k]) if reachable else infinite
    for whole, block in zip((*table.outer, *table.outer_tape), (*outer, *outer_tape), strict=True):
        whole.T[first:, here] = block[first : longest + 1]


def _after(spaces: Sequence[Space]) -> tuple[Numbers, Numbers, Numbers]:
    """Return the rows after a restart checkpoint, or a tape, is stored; and the tapes that fit.

    All are arrays (levels, F).
    """
    shape = [space.empty + 1 for space in spaces]
    numbers = np.indices(shape).reshape(len(shape), -1)
    here = np.arange(numbers.shape[1])

    def moved(k: int, after: Numbers) -> Numbers:
        to = after[numbers[k]]
        assert (to <= numbers[k]).all()
        return np.where(to < 0, -1, here + (to - numbers[k]) * prod(shape[k + 1 :]))

    return (
        np.array([moved(k, space.after_restart) for k, space in enumerate(spaces)]),
        np.array([moved(k, space.after_tape) for k, space in enumerate(spaces)]),
        np.array([space.tapes[numbers[k]] for k, space in enumerate(spaces)]),
    )
