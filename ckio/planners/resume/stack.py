"""Which restart keys to keep: a recurrence over a stack of keys.

The steps after the last kept key, x_e, are reversed in the free space that all kept keys leave.
This space depends only on the number of kept keys on each level, the vector u. Therefore it
suffices to know G_i(u, m), the least seconds to reverse [0, m) if the last kept key is number i,
and H_i(u, m), the least of G_0 .. G_i:

    G_i(u, e + x) = min over 0 < j < x:   r + j u_f + P(x - j, u) + G_i(u, e + j)
                             0 <= j < x:  r + j u_f + P(x - j, u - 1_i) + H_{i-1}(u - 1_i, e + j)
                                          r + Q(x, u - 1_i, k_i) + H_{i-1}(u - 1_i, e)
                                          H_{i-1}(u - 1_i, e + x)
    H_i(u, m)     = min(H_{i-1}(u, m), d_i + G_i(u, m)),  with H_{-1}(0, 0) = 0 and no other

where r is the time to read x_e, u_f the time to advance a step, P(l, u) and Q(l, u, k) the time to
reverse l steps in the space that u leaves (the recurrence of `mixed`), and 1_i is one key on the
level k_i of key i. The four lines mean:

1. Read x_e, reverse the last x - j steps, and keep x_e.
2. Read x_e, drop it, and reverse the last x - j steps. All other steps start from earlier keys.
3. Read x_e and reverse all x steps after it.
4. Drop x_e unread.

The state in the register counts as one more key on every level; its d is the time to write it
there. For stored keys d is 0. If tapes are stored, the tape of step m - 1 may be read instead:
G_i(u, m) <= r + G_i(u, m - 1) - record.

For example, let x_0 be the only key, on the only level, with r = u_f = 1 s, and let the working
memory hold one tape, so that P(1, u) = 0. Line 2 gives G_0(1, 1) = r + P(1, 0) + H_{-1}(0, 0) =
1 s, and line 1 gives G_0(1, 2) = r + u_f + P(1, 1) + G_0(1, 1) = 3 s: read x_0, advance one step,
reverse the second step, read x_0 again and reverse the first step.

If m is every step, this is exact, and the third line follows from the others. For a long chain only
some steps are used, including those of all keys. The recurrence takes O(q p^2) time for each vector
u, with q keys and p such points. If there are many keys, each is combined only with the next points
after it. On a level with many keys, all earlier ones count as kept.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from math import inf, prod
from typing import NamedTuple

import numpy as np

from ckio.planners.dp.spaces import Numbers
from ckio.planners.resume.tables import FOREVER, ResumeTables, Seconds

_MOST_SUMS, _MOST_ROUNDS, _MOST_NUMBERS = 3e8, 20_000, 1e7
"""The most sums that are compared and the most rounds of a loop, about 0.5 s each; the most numbers
of H in memory."""

_FEWEST_POINTS, _MOST_POINTS, _NARROWEST = 64, 384, 128
"""Numbers of points in addition to those of keys, if not all steps are points; and the number of
points after a key, if there are many keys."""


class Candidate(NamedTuple):
    """A restart key that may be kept, on one level.

    Attributes
    ----------
    at : int
        The position of x_e in steps of the tables.
    step, level : int
        The e of x_e, and the number of the level in the platform.
    place : int
        The index of the level among those of the tables.
    read : float
        Seconds to read it from there.
    write : float or None
        d, the seconds to write it if it is the state in the register; None for a key that is
        stored.
    """

    at: int
    step: int
    level: int
    place: int
    read: float
    write: float | None = None


class StackLeg(NamedTuple):
    """Read a key, advance to `begin`, and reverse [begin, end).

    With None for the key, the state is in the register.
    """

    key: Candidate | None
    begin: int
    end: int


class Stack:
    """The recurrence over keys in the order of their steps.

    `slots` is the number of slots of each place. `jumps` are the seconds to go from each m to m - 1
    by reading a tape; infinite if there is none.
    """

    def __init__(
        self, keys: Sequence[Candidate], tables: ResumeTables, slots: Sequence[int], jumps: Seconds
    ) -> None:
        self.tables, self.steps = tables, int(tables.lengths[-1])
        self.points = self._points(keys)
        self._gaps = len(self.points) <= self.steps  # else line 3 follows from the others
        self._count(keys, slots)
        self.keys = [key for key in keys if key.write is None or self._fits[key.place]]
        self.at = np.searchsorted(self.points, [key.at for key in self.keys])
        self.ahead = self.points * tables.move
        self.jumps = np.where(np.diff(self.points, prepend=-2) == 1, jumps[self.points], inf)
        self._set_rooms()
        self._solve()

    def _points(self, keys: Sequence[Candidate]) -> Numbers:
        count = max(_FEWEST_POINTS, _MOST_ROUNDS // max(1, len(keys)))
        every = self.tables.every and self.steps <= count
        count = self.steps if every else min(self.steps, count, _MOST_POINTS)
        some = np.linspace(0, self.steps, count + 1).astype(np.intp)
        return np.unique(np.concatenate((some, [key.at for key in keys]))).astype(np.intp)

    # The vectors u, and the free space that they leave

    def _count(self, keys: Sequence[Candidate], slots: Sequence[int]) -> None:
        """Choose the vectors u to distinguish, as many as there is time for."""
        places = range(len(slots))
        counts = [sum(key.place == place for key in keys) for place in places]
        endless = [space.empty == 0 for space in self.tables.spaces]
        shape = [1 + min(counts[k], slots[k]) * (not endless[k]) for k in places]
        self._fits = [slots[k] > 0 for k in places]
        across = min(len(self.points), max(_NARROWEST, _MOST_ROUNDS // max(1, len(keys))))
        work = len(keys) * max(across**2 / 2, _MOST_SUMS / _MOST_NUMBERS * len(self.points))
        while prod(shape) > 1 and work * prod(shape) > _MOST_SUMS:
            largest = shape.index(max(shape))
            shape[largest] = 1
            self._fits[largest] = counts[largest] <= slots[largest]
        self._shape, self._endless = shape, endless
        self._excess = [slots[k] - self.tables.slots(k) for k in places]
        self._vectors = np.indices(shape).reshape(len(shape), -1)

    def _set_rooms(self) -> None:
        """Set for each key the u with and without it, and the columns of the tables for both."""
        uncounted, self._rows, self._before = [0] * len(self._shape), [], []
        self._kept, self._own = list[Numbers](), list[Numbers]()
        rooms = cache(self._rooms)
        for key in self.keys:
            stride = prod(self._shape[key.place + 1 :]) * (self._shape[key.place] > 1)
            rows = np.flatnonzero((self._vectors[key.place] > 0) | (stride == 0))
            self._rows.append(rows)
            self._before.append(rows - stride)
            self._own.append(rooms(tuple(uncounted))[rows - stride])
            uncounted[key.place] += stride == 0
            self._kept.append(rooms(tuple(uncounted))[rows])
        self.left = rooms(tuple(uncounted))

    def _rooms(self, uncounted: tuple[int, ...]) -> Numbers:
        """Return the column of the tables for every u, with `uncounted` more keys on each level.

        If a level has more slots than the tables, the kept keys use these slots first.
        """
        tables, columns = self.tables, []
        for u in self._vectors.T.tolist():
            room = tables.empty
            for place, after in enumerate(tables.after_restart):
                kept = u[place] + uncounted[place] - self._excess[place]
                for _ in range(0 if self._endless[place] else kept):
                    room = int(after[room]) if room >= 0 else room
            columns.append(room)
        return np.array(columns, np.intp) % (tables.empty + 2)

    # The recurrence

    def _solve(self) -> None:
        count, points = len(self.keys), len(self.points)
        self._columns = np.unique(np.concatenate([self.left, *self._own, *self._kept]))
        self.least = np.full((count + 1, points, self._vectors.shape[1]), inf)
        self.least[0, :, 0] = np.cumsum(np.append(0.0, self.jumps[1:]))
        shapes = [(len(rows), points - at) for rows, at in zip(self._rows, self.at, strict=True)]
        self.seconds = [np.full(shape, inf) for shape in shapes]
        once, again = ([np.full(shape, inf) for shape in shapes] for _ in range(2))
        self._set_whole()
        rooms = list(zip(self._own, self._kept, strict=True))
        rows = [[np.searchsorted(self._columns, room) for room in pair] for pair in rooms]
        across = max(_NARROWEST, 2 * _MOST_ROUNDS // max(1, count))
        for y in range(points):
            first = int(np.searchsorted(self.at, y - across))
            last = int(np.searchsorted(self.at, y, side="right"))
            fresh = self._fresh(int(self.at[first]) if first < last else y, y)
            self.least[1 : first + 1, y] = self.least[0, y]
            for i in range(first, last):
                a, best = int(self.at[i]), self.least[i, y, self._before[i]]
                x, ahead = y - a, self.ahead[y] - self.ahead[a]
                once[i][:, x] = best + ahead
                if x:
                    drop, keep = (fresh[row, -x:] for row in rows[i])
                    ways = (drop + once[i][:, :x]).min(axis=1)
                    if x > 1:
                        keep = keep[:, 1:] + again[i][:, 1:x]
                        np.minimum(ways, keep.min(axis=1), out=ways)
                    best = np.minimum(best, ways + self.keys[i].read)
                    if self._gaps:
                        np.minimum(best, self._whole[i][:, x] + once[i][:, 0], out=best)
                    if self.jumps[y] < inf:
                        np.minimum(best, self.jumps[y] + self.seconds[i][:, x - 1], out=best)
                self.seconds[i][:, x] = best
                again[i][:, x] = best + ahead
                counted, extra = self._rows[i], self.keys[i].write or 0.0
                least = self.least[i + 1, y]
                least[:] = self.least[i, y]
                least[counted] = np.minimum(least[counted], best + extra)
            self.least[last + 1 :, y] = self.least[last, y]

    def _fresh(self, low: int, y: int) -> Seconds:
        """Return P from the points `low` and later to point y, a row for each column in use."""
        lengths = self.points[y] - self.points[low:y]
        columns = self._columns
        seconds = self.tables.between(self.tables.seconds, lengths[:, None], columns[None])
        return np.ascontiguousarray(seconds.T)

    def _set_whole(self) -> None:
        """Set r + Q for the steps after each key, up to each point."""
        self._whole = []
        for key, at, own in zip(self.keys, self.at, self._own, strict=True):
            lengths = self.points[at:, None] - key.at
            self._whole.append(self.tables.stored_seconds(key.place, lengths, own[None]).T)

    # The choices that lead to the least seconds

    def best(self, state: int | None, /) -> list[StackLeg]:
        """Return the legs of the fastest way to finish; none if there is no way.

        `state` is the step of the state in the register, in steps of the tables, or None.
        """
        last, least = len(self.points) - 1, self.least[-1]
        u = int(least[last].argmin())
        seconds, first = float(least[last, u]), None
        if state is not None:
            low = int(np.searchsorted(self.points, state))
            columns = np.searchsorted(self._columns, self.left)
            fresh = self._fresh(low, last)[columns] + least[low:last].T
            candidates = fresh + (self.ahead[low:last] - state * self.tables.move)
            if candidates.size and candidates.min() < seconds:
                u, x = divmod(int(candidates.argmin()), last - low)
                seconds, y = float(candidates[u, x]), low + x
                first = StackLeg(None, int(self.points[y]), self.steps)
                last = y
        if not seconds < FOREVER:
            return []
        return ([] if first is None else [first]) + [*self._legs(u, last)]

    def _legs(self, u: int, y: int) -> Iterator[StackLeg]:
        """Yield the legs of all keys for H(u, y)."""
        count = len(self.keys)
        while y:
            least = self.least[count, y, u]
            count = next(i for i in range(count + 1) if self.least[i, y, u] == least)
            if count == 0:  # the remaining steps have tapes
                return
            i = count - 1
            row, kept = int(np.searchsorted(self._rows[i], u)), True
            while kept:
                leg, y, kept = self._step(i, row, y)
                if leg is not None:
                    yield leg
            count, u = i, int(self._before[i][row])

    def _step(self, i: int, row: int, y: int) -> tuple[StackLeg | None, int, bool]:
        """Return the first leg of a key for G(u, y), the next y, and whether the key is kept."""
        key, a, seconds = self.keys[i], int(self.at[i]), self.seconds[i][row]
        below, end = self.least[i, :, self._before[i][row]], int(self.points[y])
        best, x = seconds[y - a], y - a
        if best == below[y]:
            return None, y, False
        if best == self.jumps[y] + seconds[x - 1]:
            return None, y - 1, True
        kept, own = int(self._kept[i][row]), int(self._own[i][row])
        columns = np.searchsorted(self._columns, (own, kept))
        drop, keep = self._fresh(a, y)[columns] + (self.ahead[a:y] - self.ahead[a])
        drop += below[a:y]
        keep += seconds[:x]
        keep[0] = inf
        if self._gaps and self._whole[i][row, x] + below[a] <= best:
            return StackLeg(key, key.at, end), a, False
        p = int((keep if keep.min() < drop.min() else drop).argmin())
        return StackLeg(key, int(self.points[a + p]), end), a + p, bool(keep.min() < drop.min())
