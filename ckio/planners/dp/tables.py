"""The recurrence in numpy tables: on several levels together, or on one level after nearer ones.

The free space F is a single number here, the number of a row; the columns are the lengths n. One
level has a row for each sum of sizes that is distinguished (`Space`); several levels together have
a row for each combination. The last row means that a checkpoint does not fit; all its values are
infinite. The time is O(K n^2) for each row.

The rows of one level depend only on rows with less free space. Therefore they are solved in blocks.
A checkpoint skips at most `reach` rows. If `reach` consecutive rows are equal, all further rows are
equal to them, too, and are left out: more free space is then of no use.

For example, one level of two slots that cost nothing, steps of 1 s, and memory for one tape:

    >>> import numpy as np
    >>> from ckio.planners.dp.spaces import slots_of
    >>> lower = np.array([0, 0, FAR, FAR, FAR, FAR])
    >>> level = slots_of("RAM", 0, 2, write=0, read=0)
    >>> solve((level,), lower, move=1).seconds[2, 1:].tolist()
    [0, 1, 2, 4, 6]

Four steps take 4 s in addition to recording and reversing each once: advance two steps from x_0,
store x_2, advance one step, and reverse the last two steps from x_3 and x_2; then advance one step
from x_0, and reverse the first two. Revolve needs the same time (Griewank and Walther, 2000).
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Kind
from ckio.planners.dp.spaces import Numbers, Space
from ckio.planners.dp.walk import LOWER, StoreDecision

Costs = NDArray[Any]
"""Seconds, or whole units of them."""

FAR: Final = 1 << 60
"""Used instead of infinity for whole numbers: two of them can be added, and all costs are less."""

_FAR_OF: Final = {"i": FAR, "f": np.inf}

_BLOCK: Final = 16
"""Rows in the first block: enough to hide numpy's cost per call, few enough to stop early."""

_MOST_BYTES: Final = 1 << 26
"""The most bytes of cached tables: those of about 100 levels for chains of 1000 steps."""


@dataclass(frozen=True)
class Table:
    """The solution of the recurrence on some levels, in addition to nearer ones.

    Attributes
    ----------
    spaces : tuple of Space
        The levels.
    lower : array (n)
        The cost of a chain of each length without these levels.
    move : float or int
        The cost u to go forward over one step.
    seconds : array (F, n)
        P(n, F): x_0 is only in the register. The cost to record and reverse each step once is left
        out. Rows that would follow the last but one are equal to it.
    again : tuple of arrays (F, n), one for each level
        n u + r_k + Q(n, F, k), a term of the inner minimum.
    after_restart, after_tape : tuples of arrays of int (F), one for each level
        The rows of F - a e_k and F - b e_k; -1, the last row, if the checkpoint does not fit.
    sweeps : bool
        Whether a sweep may go to the last step without storing another checkpoint.
    """

    spaces: tuple[Space, ...]
    lower: Costs
    move: float
    seconds: Costs
    again: tuple[Costs, ...]
    after_restart: tuple[Numbers, ...]
    after_tape: tuple[Numbers, ...]
    sweeps: bool = True

    @property
    def empty(self) -> int:
        """F if nothing is stored."""
        return len(self.after_restart[0]) - 1

    @property
    def finish(self) -> Costs:
        """P if nothing is stored, for each length."""
        row: Costs = self.seconds[self._row(self.empty)]
        return row

    def values(self) -> Iterator[tuple[Costs, Costs]]:
        """Yield P and Q of one level for each F, by l = n - 1."""
        (space,) = self.spaces
        ahead = np.arange(1, len(self.lower)) * self.move + space.read
        for fresh, again in zip(self.seconds[:-1, 1:], self.again[0][:-1, 1:], strict=True):
            yield fresh, again - ahead

    @property
    def last(self) -> int:
        """The last row of one level that differs from the row before."""
        return len(self.seconds) - 2

    def rows(self) -> Numbers:
        """Return the row for each F."""
        return np.minimum(np.arange(self.empty + 1), self.last)

    def _row(self, free: int) -> int:
        return min(free, self.last)

    def least_free(self, length: int, free: int, /) -> int:
        """Return the least F of one level with which `length` steps take no longer."""
        if len(self.spaces) > 1:
            return free
        row = self._row(free)
        fresh, again = self.seconds[: row + 1, length], self.again[0][: row + 1, length]
        return int(((fresh == fresh[row]) & (again == again[row])).argmax())

    def fresh(self, length: int, free: int, /) -> StoreDecision:
        """Return the decision about x_0 in the register only; of equal costs, a tape."""
        row = self._row(free)
        costs = {LOWER: self.lower[length]}
        for place, space in enumerate(self.spaces):
            after = self._after(self.after_tape, place, row)
            costs[StoreDecision(Kind.TAPE, place)] = space.tape + self.seconds[after, length - 1]
        for place, space in enumerate(self.spaces):
            costs[StoreDecision(Kind.RESTART, place)] = (
                space.write + self._sweep(length, row, place)[0]
            )
        return min(costs, key=costs.__getitem__)

    def stored(self, length: int, free: int, place: int, /) -> int:
        """Return how far to advance from x_0, which is stored; 0 to discard it."""
        row = self._row(free)
        seconds, j = self._sweep(length, row, place)
        return 0 if self.seconds[row, length] < seconds else j

    def _after(self, after: tuple[Numbers, ...], place: int, row: int) -> int:
        to = int(after[place][row])
        return to if to < 0 else self._row(to)

    def _sweep(self, length: int, row: int, place: int) -> tuple[Any, int]:
        """Return Q0, the cost if x_0 is stored and the next action is to advance, and its j."""
        end = length if self.sweeps else length - 1
        if end < 2:
            return _FAR_OF[self.seconds.dtype.kind], 0
        inner = self.seconds[self._after(self.after_restart, place, row)]
        costs = inner[length - 1 : length - end : -1] + self.again[place][row, 1:end]
        best = int(costs.argmin())  # of equal costs, the smallest j
        return costs[best], best + 1


def rows(spaces: Sequence[Space]) -> int:
    """Return the most rows that a table of these levels can have."""
    return 1 + prod(space.empty + 1 for space in spaces)


def solve(spaces: Sequence[Space], lower: Costs, /, *, move: float, sweeps: bool = True) -> Table:
    """Solve the recurrence up to the last length of `lower`; going forward a step costs `move`.

    Costs are whole numbers if those of `lower` are. If not `sweeps`, no sweep goes to the last step
    without storing another checkpoint.
    """
    solving = _Solving(tuple(spaces), lower, move, sweeps)
    if len(spaces) > 1:
        solving.block(rows(spaces) - 1)
        return solving.table()
    key, known = solving.key(), None
    if key is not None and (known := _REMEMBERED.find(key)) is not None:
        seconds, again, settled = known
        if settled or len(seconds) > spaces[0].empty + 1:
            return solving.with_rows(seconds, again)
    solving.by_blocks()
    if key is not None:
        _REMEMBERED.put(key, (solving.seconds, solving.again[0], solving.settled))
    return solving.table()


class _Solving:
    """The rows of a table solved so far, and the last row, for checkpoints that do not fit."""

    def __init__(self, spaces: tuple[Space, ...], lower: Costs, move: float, sweeps: bool) -> None:
        self.spaces, self.lower, self.move, self.sweeps = spaces, lower, move, sweeps
        self.after_restart, self.after_tape = _after(spaces)
        self.far = _FAR_OF[lower.dtype.kind]
        self.seconds = np.full((1, len(lower)), self.far, lower.dtype)
        self.again = [self.seconds.copy() for _ in spaces]
        self.settled = False

    def key(self) -> tuple[object, ...] | None:
        """Return a key of all inputs but the number of slots; None if sizes differ."""
        (space,) = self.spaces
        if not space.slots:
            return None
        lower = blake2b(self.lower.tobytes(), digest_size=32).digest()
        costs = space.write, space.read, space.tape if space.tapes else None, self.move
        endless = space.after_restart[-1] == space.empty
        return *costs, endless, self.sweeps, self.lower.dtype.char, lower

    def table(self) -> Table:
        return self.with_rows(self.seconds, *self.again)

    def with_rows(self, seconds: Costs, *again: Costs) -> Table:
        """Return the table of these rows, up to the free space of the levels."""
        most = len(self.after_restart[0])
        if len(seconds) > most + 1:
            seconds, again = (
                np.vstack((seconds[:most], seconds[-1:])),
                tuple(np.vstack((each[:most], each[-1:])) for each in again),
            )
        return Table(
            self.spaces, self.lower, self.move, seconds, again,
            tuple(self.after_restart), tuple(self.after_tape), self.sweeps,
        )  # fmt: skip

    def by_blocks(self) -> None:
        """Solve rows with more and more free space, until more is of no use."""
        (space,) = self.spaces
        reach, equal, count = max(1, space.reach), 0, 0
        while count <= space.empty and not self.settled:
            self.block(min(space.empty + 1 - count, max(_BLOCK, count // 4)))
            for row in range(max(1, count), len(self.seconds) - 1):
                same = np.array_equal(self.seconds[row - 1], self.seconds[row])
                equal = equal + 1 if same else 0
                if equal == reach:
                    self.settled = True
                    self.seconds, self.again[0] = (
                        np.vstack((each[: row + 1], each[-1:]))
                        for each in (self.seconds, self.again[0])
                    )
                    return
            count = len(self.seconds) - 1

    def block(self, count: int) -> None:
        """Solve `count` more rows."""
        begin, longest = len(self.seconds) - 1, len(self.lower) - 1
        # Numbers that are added and compared together are adjacent in memory.
        by_row = count <= 2 * longest
        self.seconds, *self.again = (
            self._longer(each, count, by_row) for each in (self.seconds, *self.again)
        )
        seconds, move, places = self.seconds, self.move, range(len(self.spaces))
        here = slice(begin, begin + count)
        restarts = [after[here] for after in self.after_restart]
        tapes = [after[here] for after in self.after_tape]
        taped = [bool((after >= 0).any()) for after in tapes]
        rows, agains = seconds[here], [again[here] for again in self.again]
        # P of the rest of the space, in descending order of length, so that the two terms of a
        # minimum have the same order in memory.
        inner = [np.array(seconds[after, ::-1], order="C" if by_row else "F") for after in restarts]
        space = np.empty(count * longest, seconds.dtype)
        for n in range(1, longest + 1):
            row = np.full(count, self.lower[n])
            for k in places:
                if taped[k]:
                    np.minimum(row, self.spaces[k].tape + seconds[tapes[k], n - 1], out=row)
            sweeps, most = [], n - 1 if self.sweeps else n - 2
            for k in places:
                if most > 0:
                    sums = space[: count * most]
                    sums = sums.reshape(count, most) if by_row else sums.reshape(most, count).T
                    first = longest - n + 1
                    np.add(inner[k][:, first : first + most], agains[k][:, 1 : most + 1], out=sums)
                    sweeps.append(sums.min(axis=1))
                    np.minimum(row, self.spaces[k].write + sweeps[k], out=row)
                else:
                    sweeps.append(row)
            rows[:, n] = row
            for k in places:
                ahead = n * move + self.spaces[k].read
                agains[k][:, n] = np.minimum(sweeps[k], row) + ahead
                inner[k][:, longest - n] = seconds[restarts[k], n]

    def _longer(self, known: Costs, count: int, by_row: bool) -> Costs:
        """Return the rows, with `count` unsolved rows inserted before the last one."""
        shape = len(known) + count, known.shape[1]
        longer = np.full(shape, self.far, known.dtype, order="C" if by_row else "F")
        longer[: len(known) - 1] = known[:-1]
        return longer


def _after(spaces: Sequence[Space]) -> tuple[list[Numbers], list[Numbers]]:
    """Return the rows after a restart checkpoint, and after a tape, is stored on each level."""
    shape = [space.empty + 1 for space in spaces]
    numbers = np.indices(shape).reshape(len(shape), -1)
    here = np.arange(numbers.shape[1])

    def moved(k: int, after: Numbers) -> Numbers:
        to = after[numbers[k]]
        return np.where(to < 0, -1, here + (to - numbers[k]) * prod(shape[k + 1 :]))

    return (
        [moved(k, space.after_restart) for k, space in enumerate(spaces)],
        [moved(k, space.after_tape) for k, space in enumerate(spaces)],
    )


class Remembered:
    """A cache of the rows of levels, with at most `most` bytes.

    A parameter sweep over many platforms needs most of their levels again.
    """

    def __init__(self, most: int, /) -> None:
        self._most, self.nbytes = most, 0
        self._known: OrderedDict[object, tuple[Costs, Costs, bool]] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, key: object, /) -> tuple[Costs, Costs, bool] | None:
        """Return P, n u + r + Q, and whether more rows are of no use; None if not cached."""
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
            return self._known.get(key)

    def put(self, key: object, rows: tuple[Costs, Costs, bool], /) -> None:
        """Cache these rows; remove those that were not used for the longest time."""
        size = rows[0].nbytes + rows[1].nbytes
        if size > self._most:
            return
        for each in rows[:2]:
            each.flags.writeable = False
        with self._lock:
            if key in self._known:
                self.nbytes -= 2 * self._known.pop(key)[0].nbytes
            self._known[key] = rows
            self.nbytes += size
            while self.nbytes > self._most:
                self.nbytes -= 2 * self._known.popitem(last=False)[1][0].nbytes


_REMEMBERED: Final = Remembered(_MOST_BYTES)
