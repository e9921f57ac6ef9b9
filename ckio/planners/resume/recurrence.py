"""Which restart keys to keep: a recurrence over a stack of keys.

The steps after the last kept key, x_e, are reversed in the free space that all kept keys leave.
This space depends only on the number of kept keys on each level, the vector v. Therefore it
suffices to know G_i(v, m), the least seconds to reverse [0, m) if the last kept key is number i,
and H_i(v, m), the least of G_0 .. G_i:

    G_i(v, e + x) = min over 0 < j < x:   r + j u_f + P(x - j, v) + G_i(v, e + j)
                             0 <= j < x:  r + j u_f + P(x - j, v - 1_i) + H_{i-1}(v - 1_i, e + j)
                                          H_{i-1}(v - 1_i, e + x)
    H_i(v, m)     = min(H_{i-1}(v, m), d_i + G_i(v, m)),  with H_{-1}(0, 0) = 0 and no other

where r is the time to read x_e, u_f the time to advance a step, P(l, v) the time to reverse l steps
in the space that v leaves (the recurrence of `mixed`), and 1_i is one key on the level of key i.
The three lines mean:

1. Read x_e, reverse the last x - j steps, and keep x_e.
2. Read x_e, drop it, and reverse the last x - j steps. All other steps start from earlier keys.
3. Drop x_e unread.

The state in the register counts as one more key on every level; its d is the time to write it
there. For stored keys d is 0. If tapes are stored, the tape of step m - 1 may be read instead:
G_i(v, m) <= r + G_i(v, m - 1) - record.

For example, let x_0 be the only key, on the only level, with r = u_f = 1 s, and let the working
memory hold one tape, so that P(1, v) = 0. Line 2 gives G_0(1, 1) = r + P(1, 0) + H_{-1}(0, 0) =
1 s, and line 1 gives G_0(1, 2) = r + u_f + P(1, 1) + G_0(1, 1) = 3 s: read x_0, advance one step,
reverse the second step, read x_0 again and reverse the first step.

This is exact if m is every step. Of a long chain, m is the end of every block of 2^k steps. P for
blocks is solved by the recurrence of `mixed` in blocks: of 2^k steps from half as many blocks of
2^(k-1), and so on, so that no part shorter than a block is split off. The recurrence takes
O(q p^2) time for each vector v, with q keys and p blocks.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from math import inf, prod
from typing import NamedTuple

import numpy as np

from ckio.errors import NoSchedule
from ckio.planners.base import Seconds, without_notes
from ckio.planners.dp import joint
from ckio.planners.dp.spaces import Numbers, Space, slots_of
from ckio.planners.dp.spaces import spaces as usable
from ckio.platform import Platform
from ckio.platform.chain import Chain

_MOST_BLOCKS = 512
"""Of a longer chain, several steps are one block. Of 100,000 steps, a block is 256."""

_MOST_COLUMNS = 768
"""The most combinations of free space that are distinguished."""

_FEWEST = 14
"""Levels that are slower to read are reduced to this many slots before nearer ones are. If all are
reduced alike, plans for 60 near slots beside 40 far ones take 3 % longer."""

_MOST_COMPARED = 3e8
"""The most sums that are compared, in half a second. With more, all earlier keys of the level with
the most keys count as kept."""


def spaces(chain: Chain, platform: Platform, /, *, held: int, new_tapes: bool) -> list[Space]:
    """Return the free space of each level that can store a checkpoint, new or kept.

    Only some slots of a level with very many slots are counted. A write to a read-only level takes
    infinitely long, and kept checkpoints do not fill it.
    """
    read_only = [
        slots_of(level.name, number, 0, write=inf, read=level.read(chain.restart), endless=True)
        for number, level in enumerate(platform.levels)
        if level.read_only
    ]
    counted = chain if new_tapes else replace(chain, tape=chain.restart)
    counted = replace(counted, tape_restarts=False)  # blocks of steps do not know such tapes
    given = list[Space]()
    with without_notes(), suppress(NoSchedule):
        given = usable(counted.with_steps(chain.length + 1), platform, held=held)
    if not new_tapes:
        given = [space.without_tapes() for space in given]
    while prod(space.empty + 1 for space in given) > _MOST_COLUMNS:
        largest = max(given, key=lambda it: (it.empty > _FEWEST and it.read, it.empty))
        size = largest.empty - largest.empty // 16
        fewer = replace(
            largest,
            after_restart=largest.after_restart[:size],
            tapes=largest.tapes[:size],
        )
        given[given.index(largest)] = fewer
    return given + read_only


@dataclass(frozen=True)
class Blocks:
    """P for up to 512 blocks of steps.

    Attributes
    ----------
    spaces : tuple of Space
        The levels.
    move : float
        The seconds to advance one block.
    exact : bool
        Whether a block is one step.
    seconds : array (F, n)
        P by free space and blocks; the last row, for space that is not there, is infinite.
    after_restart : array of int (levels, F)
        The free space after a restart checkpoint is stored on a level; -1 if it does not fit.
    """

    spaces: tuple[Space, ...]
    move: float
    exact: bool
    seconds: Seconds
    after_restart: Numbers

    @property
    def count(self) -> int:
        """The number of blocks."""
        return int(self.seconds.shape[1]) - 1

    @property
    def empty(self) -> int:
        """The free space if nothing is stored."""
        return len(self.seconds) - 2

    def slots(self, place: int, /) -> int:
        """Return how many restart checkpoints fit on a level."""
        free, count = self.empty, 0
        while free > 0 and (after := int(self.after_restart[place, free])) not in (-1, free):
            free, count = after, count + 1
        return count


def solve(given: Sequence[Space], steps: int, /, *, move: float, held: int) -> Blocks:
    """Return P for the blocks of a chain, if the register holds `held` tapes."""
    size = min(steps, _MOST_BLOCKS)
    blocks = np.arange(size + 1)
    nearer = np.where(blocks <= held, 0.0, inf)
    table, block = joint.solve(given, nearer, move=move), 1
    seconds, outer, half = table.unstored, table.outer, size // 2
    costs = np.array([space.costs for space in given])
    while block * size < steps:
        block, move = 2 * block, 2 * move
        costs[:, 2] *= 2  # of a tape for each step
        table = replace(table, tapes=table.tapes // 2)
        seconds[:, : half + 1] = seconds[:, ::2]
        outer[:, :, : half + 1] = outer[:, :, ::2]
        nearer = np.where(blocks * block <= held, 0.0, inf)
        seconds[:-1, half + 1 :] = joint.low(nearer, table.tapes, costs)[:, half + 1 :]
        joint.fill(table, costs, move, first=half + 1)
    count = -(-steps // block)
    return Blocks(tuple(given), move, block == 1, seconds[:, : count + 1], table.after_restart)


class Candidate(NamedTuple):
    """A restart key that may be kept, on one level.

    Attributes
    ----------
    at : int
        The number of blocks before x_e.
    step, level : int
        The e of x_e, and the number of the level in the platform.
    place : int
        The index of the level among those of the blocks.
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


class Leg(NamedTuple):
    """Read a key, advance to `begin`, and reverse all steps from there that remain.

    With None for the key, the state is in the register.
    """

    key: Candidate | None
    begin: int


class Stack:
    """The recurrence over keys in the order of their steps.

    `slots` is the number of slots of each place. `jumps` are the seconds to go from each m to m - 1
    by reading a tape; infinite if there is none.
    """

    def __init__(
        self, keys: Sequence[Candidate], blocks: Blocks, slots: Sequence[int], jumps: Seconds
    ) -> None:
        self.blocks, self.jumps = blocks, jumps
        self._count(keys, slots)
        self.keys = [key for key in keys if key.write is None or self._fits[key.place]]
        self._set_columns()
        self._solve()

    # The vectors v, and the free space that they leave

    def _count(self, keys: Sequence[Candidate], slots: Sequence[int]) -> None:
        """Choose the vectors v to distinguish, as many as there is time for."""
        counts = [sum(key.place == place for key in keys) for place in range(len(slots))]
        self._endless = [space.empty == 0 for space in self.blocks.spaces]
        shape = [
            1 if endless else 1 + min(count, most)
            for count, most, endless in zip(counts, slots, self._endless, strict=True)
        ]
        work = len(keys) * self.blocks.count**2 / 2
        while max(shape) > 1 and work * prod(shape) > _MOST_COMPARED:
            shape[shape.index(max(shape))] = 1
        self._fits = [
            size > 1 or 0 < most >= count
            for size, most, count in zip(shape, slots, counts, strict=True)
        ]
        self._shape = shape
        self._excess = [most - self.blocks.slots(place) for place, most in enumerate(slots)]
        self._vectors = np.indices(shape).reshape(len(shape), -1)

    def _set_columns(self) -> None:
        """Set for each key the v with and without it, and the free space for both."""
        uncounted, self._rows, self._before = [0] * len(self._shape), [], []
        self._kept, self._own = list[Numbers](), list[Numbers]()
        free = cache(self._free)
        for key in self.keys:
            stride = prod(self._shape[key.place + 1 :]) * (self._shape[key.place] > 1)
            rows = np.flatnonzero((self._vectors[key.place] > 0) | (stride == 0))
            self._rows.append(rows)
            self._before.append(rows - stride)
            self._own.append(free(tuple(uncounted))[rows - stride])
            uncounted[key.place] += stride == 0
            self._kept.append(free(tuple(uncounted))[rows])
        self.left = free(tuple(uncounted))

    def _free(self, uncounted: tuple[int, ...]) -> Numbers:
        """Return the free space for every v, with `uncounted` more keys on each level.

        If a level has more slots than the blocks know, the kept keys use these slots first.
        """
        columns = list[int]()
        for v in self._vectors.T.tolist():
            free = self.blocks.empty
            for place, after in enumerate(self.blocks.after_restart):
                kept = v[place] + uncounted[place] - self._excess[place]
                for _ in range(0 if self._endless[place] else kept):
                    free = int(after[free]) if free >= 0 else free
            columns.append(free)
        return np.array(columns, np.intp)

    # The recurrence

    def _solve(self) -> None:
        last, move = self.blocks.count, self.blocks.move
        self.least = np.full((len(self.keys) + 1, last + 1, self._vectors.shape[1]), inf)
        self.least[0, :, 0] = np.cumsum(np.append(0.0, self.jumps[1:]))
        shapes = [
            (len(row), last + 1 - key.at) for row, key in zip(self._rows, self.keys, strict=True)
        ]
        self.seconds = [np.full(shape, inf) for shape in shapes]
        if_dropped, if_kept = ([np.full(shape, inf) for shape in shapes] for _ in range(2))
        falling = self.blocks.seconds[:, :0:-1]  # P of `last` blocks, ..., of one
        drops = [falling[own] for own in self._own]
        keeps = [falling[kept] for kept in self._kept]
        for y in range(last + 1):
            number = 0
            for i, key in enumerate(self.keys):
                if key.at > y:
                    break
                number = i + 1
                x = y - key.at
                best = self.least[i, y, self._before[i]]
                if_dropped[i][:, x] = best + x * move
                if x:
                    ways = (drops[i][:, last - x :] + if_dropped[i][:, :x]).min(axis=1)
                    if x > 1:
                        keep = keeps[i][:, last - x + 1 :] + if_kept[i][:, 1:x]
                        np.minimum(ways, keep.min(axis=1), out=ways)
                    best = np.minimum(best, ways + key.read)
                    if self.jumps[y] < inf:
                        np.minimum(best, self.jumps[y] + self.seconds[i][:, x - 1], out=best)
                self.seconds[i][:, x] = best
                if_kept[i][:, x] = best + x * move
                counted, least = self._rows[i], self.least[i + 1, y]
                least[:] = self.least[i, y]
                least[counted] = np.minimum(least[counted], best + (key.write or 0.0))
            self.least[number + 1 :, y] = self.least[number, y]

    # The choices that lead to the least seconds

    def best(self, state: int | None, /) -> list[Leg]:
        """Return the legs of the fastest way to finish; none if there is no way.

        `state` is the number of blocks before the state in the register, or None.
        """
        last, least = self.blocks.count, self.least[-1]
        v = int(least[last].argmin())
        seconds, y, legs = float(least[last, v]), last, list[Leg]()
        if state is not None and state < last:
            ahead = np.arange(last - state) * self.blocks.move
            candidates = self._falling(state, last, self.left) + ahead + least[state:last].T
            if candidates.min() < seconds:
                v, x = divmod(int(candidates.argmin()), last - state)
                seconds, y = float(candidates[v, x]), state + x
                legs = [Leg(None, y)]
        return [] if seconds == inf else [*legs, *self._legs(v, y)]

    def _falling(self, low: int, y: int, columns: Numbers) -> Seconds:
        """Return P from `low` to y, from the next block to y, and so on, for some free space."""
        falling: Seconds = self.blocks.seconds[columns, y - low : 0 : -1]
        return falling

    def _legs(self, v: int, y: int) -> Iterator[Leg]:
        """Yield the legs of all keys for H(v, y)."""
        count = len(self.keys)
        while y:
            least = self.least[count, y, v]
            count = next(i for i in range(count + 1) if self.least[i, y, v] == least)
            if count == 0:  # the remaining steps have tapes
                return
            i = count - 1
            row, kept = int(np.searchsorted(self._rows[i], v)), True
            while kept:
                leg, y, kept = self._step(i, row, y)
                if leg is not None:
                    yield leg
            count, v = i, int(self._before[i][row])

    def _step(self, i: int, row: int, y: int) -> tuple[Leg | None, int, bool]:
        """Return the first leg of a key for G(v, y), the next y, and whether the key is kept."""
        key, seconds = self.keys[i], self.seconds[i][row]
        below, x = self.least[i, :, self._before[i][row]], y - self.keys[i].at
        if seconds[x] == below[y]:
            return None, y, False
        if seconds[x] == self.jumps[y] + seconds[x - 1]:
            return None, y - 1, True
        columns = np.array([self._own[i][row], self._kept[i][row]])
        drop, keep = self._falling(key.at, y, columns) + np.arange(x) * self.blocks.move
        drop += below[key.at : y]
        keep += seconds[:x]
        keep[0] = inf
        kept = bool(keep.min() < drop.min())
        begin = key.at + int((keep if kept else drop).argmin())
        return Leg(key, begin), begin, kept
