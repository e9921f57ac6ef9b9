"""One level of a sketch: the recurrence of `mixed` on top of nearer levels, at some lengths."""

import numpy as np
from numpy.typing import NDArray

from ckio.planners.dp.spaces import Numbers, Space

Seconds = NDArray[np.float64]

Rooms = Numbers | slice
"""Some columns."""

FOREVER = 1e300
"""Instead of infinity, which cannot be interpolated."""


class Lengths:
    """The lengths n that are solved for: all up to `short`, then ever fewer up to the last.

    `tried` are the rows of those that are tried as a part of a longer chain: all up to `tried`, and
    then fewer.
    """

    def __init__(self, steps: int, *, short: int, tried: int) -> None:
        self.short = min(short, steps)
        self.all = _ever_fewer(self.short, steps, part=32)
        self._tried = np.unique(np.searchsorted(self.all, _ever_fewer(tried, steps, part=16)))[1:]

    def parts(self, length: int, /) -> Numbers:
        """The rows of those that are tried as parts of this length."""
        shorter = np.searchsorted(self.all[self._tried], length)
        return self._tried[:shorter]

    def between(self, values: Seconds, lengths: Numbers, /, *, last: int) -> Seconds:
        """The values at any lengths, in all columns, straight between those of known lengths."""
        before, after, part = self._around(lengths, last)
        high = values[after]
        between: Seconds = values[before] - high
        between *= part[:, None]
        between += high
        return between

    def read_off(
        self, values: Seconds, lengths: Numbers, columns: Numbers, /, *, last: int = -1
    ) -> Seconds:
        """The same for one column each, or a row of them for each length."""
        before, after, part = self._around(lengths, last)
        high = values[after, columns]
        between: Seconds = high + part * (values[before, columns] - high)
        return between

    def _around(self, lengths: Numbers, last: int) -> tuple[Numbers, Numbers, Seconds]:
        """The rows of the known lengths around these, and how far each is from the second."""
        after = np.minimum(np.searchsorted(self.all, lengths), last % len(self.all))
        before = np.maximum(after - 1, 0)
        gap = np.maximum(self.all[after] - self.all[before], 1)
        return before, after, (self.all[after] - lengths) / gap


def _ever_fewer(first: int, steps: int, *, part: int) -> Numbers:
    """0 to `first`, and then each by a part larger than the one before, up to the last."""
    lengths = list(range(min(first, steps) + 1))
    while lengths[-1] < steps:
        lengths.append(min(steps, lengths[-1] + max(1, lengths[-1] // part)))
    return np.array(lengths, np.intp)


class Stage:
    """P and Q on one level, for each n (rows) and, in columns, what is kept and then what is free.

    `lower` is P without this level, a column for each way to keep keys on nearer levels. The last
    column of all stands for room that there is not.

    Where a length is solved for, those just below it are between it and the last one known. So a
    part that is shorter than this gap is split off several times at once, and several tapes are.

    Attributes
    ----------
    rooms : int
        Columns, without the last.
    after_restart, after_tape : arrays of int
        For each column the one that a restart key or a tape leads to.
    fresh : float64 array
        P: x_0 in the register only.
    again : float64 array
        n u + r + Q: to come back for a first part of n steps.
    """

    def __init__(self, space: Space, lower: Seconds, lengths: Lengths, move: float) -> None:
        self.space, self.lengths, self._move = space, lengths, move
        each = len(space.after_restart)
        self.rooms = lower.shape[1] * each
        self.after_restart = self._after(space.after_restart)
        self.after_tape = self._after(space.after_tape)
        self._stored = [np.arange(self.rooms + 1), self.after_restart]
        shape = len(lengths.all), self.rooms + 1
        self.fresh, self._inner, self.again = (np.full(shape, FOREVER) for _ in range(3))
        self._last = 0  # the last row that is known
        for row in range(1, len(lengths.all)):
            self._solve(row, np.repeat(lower[row], each))
            self._last = row

    def _after(self, after: Numbers) -> Numbers:
        here = np.arange(self.rooms).reshape(-1, len(after))
        columns = np.where(after < 0, self.rooms, here + after - np.arange(len(after)))
        return np.append(columns.reshape(-1), self.rooms)

    def _solve(self, row: int, lower: Seconds) -> None:
        n, every = int(self.lengths.all[row]), slice(0, self.rooms)
        sweep, _ = self.sweep(n, every)
        least = np.minimum(lower, self.space.write + sweep)
        least = np.minimum(least, self.taped(n, every))
        self.fresh[row, :-1] = least
        self._inner[row, :-1] = self.fresh[row, self.after_restart[:-1]]
        again = n * self._move + self.space.read + np.minimum(sweep, least)
        self.again[row, :-1] = np.minimum(again, FOREVER)

    def sweep(self, length: int, rooms: Rooms, /) -> tuple[Seconds, Numbers]:
        """Q0: the seconds from x_0, stored and to be advanced from, and how far to advance."""
        if length < 2:
            columns = len(self._stored[0][rooms])
            return np.full(columns, FOREVER), np.zeros(columns, np.intp)
        if length <= self.lengths.short:
            ways = np.arange(1, length)
            candidates = self._inner[length - 1 : 0 : -1, rooms] + self.again[1:length, rooms]
        else:
            rows = self.lengths.parts(length)
            parts = self.lengths.all[rows]
            short = int(np.searchsorted(parts, length - self.lengths.all[self._last]))
            ways = np.concatenate((parts, length - parts))
            small = self._several(length, rows[:short], rooms)
            large = self._one(length, rows[short:], rooms)
            candidates = np.concatenate((small[0], large[0], small[1], large[1]))
        best = candidates.argmin(axis=0)
        least = np.take_along_axis(candidates, best[None], axis=0)[0]
        return np.minimum(least, FOREVER), ways[best]

    def _one(self, length: int, rows: Numbers, rooms: Rooms) -> tuple[Seconds, Seconds]:
        """Q0 where the first part is of these lengths, and where the second is."""
        inner, again = self._inner[:, rooms], self.again[:, rooms]
        rest = length - self.lengths.all[rows]
        first = self.lengths.between(inner, rest, last=self._last) + again[rows]
        return first, inner[rows] + self.lengths.between(again, rest, last=self._last)

    def _several(self, length: int, rows: Numbers, rooms: Rooms) -> tuple[Seconds, Seconds]:
        """The same with as many such parts as leave a length that is known.

        Each of several first parts is written anew; after each of several second ones, x_0 is
        gone on from. All first parts count as if there were only the room of the last of them.
        """
        parts = self.lengths.all[rows]
        many = -(-(length - self.lengths.all[self._last]) // np.maximum(parts, 1))
        rest, times = length - many * parts, many[:, None]
        room, after = self._after_several(many, rooms)
        first = times * self.again[rows[:, None], room] + (times - 1) * self.space.write
        first += self.lengths.read_off(self.fresh, rest[:, None], after, last=self._last)
        second = self.lengths.between(self.again[:, rooms], rest, last=self._last)
        second += times * self._inner[rows][:, rooms] + (times - 1) * self.space.read
        moves = (many - 1) * length - parts * (many * (many - 1) // 2)
        return first, second + moves[:, None] * self._move

    def _after_several(self, many: Numbers, rooms: Rooms) -> tuple[Numbers, Numbers]:
        """The columns that so many restart keys lead to, a row for each number: before and after.

        "Before" is without the last of them.
        """
        while len(self._stored) <= many.max(initial=0):
            self._stored.append(self.after_restart[self._stored[-1]])
        shape = len(many), len(self._stored[0][rooms])
        both = np.empty((2, *shape), np.intp)
        for row, count in enumerate(many.tolist()):
            both[0, row], both[1, row] = self._stored[count - 1][rooms], self._stored[count][rooms]
        return both[0], both[1]

    def taped(self, length: int, rooms: Rooms, /) -> Seconds:
        """P where the tape of the first step is written, and those of others up to a known P."""
        after = self.after_tape[rooms]
        if self.space.tape == np.inf or length < 2:
            return np.full(len(after), FOREVER)
        many = max(1, length - int(self.lengths.all[self._last]))
        for _ in range(many - 1):
            after = self.after_tape[after]
        rest = self.lengths.read_off(self.fresh, np.array([length - many]), after, last=self._last)
        taped: Seconds = np.minimum(many * self.space.tape + rest, FOREVER)
        return taped

    def finish(self, left: Numbers, /) -> Seconds:
        """P for each way to keep keys below, and then each of these numbers of what is free."""
        each = len(self.space.after_restart)
        columns = np.arange(0, self.rooms, each)[:, None] + left
        return self.fresh[:, columns.reshape(-1)]
