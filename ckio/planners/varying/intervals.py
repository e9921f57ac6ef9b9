"""The recurrence for a chain whose steps differ: the best schedule of every range of its steps.

What every schedule pays to record and reverse each step once is left out. S_j are the seconds of
going forward over all steps before j; F is the room that is free on the levels, of which x_p takes
a_p and the tape of step p takes b_p; k is a level and e_k a unit of room there:

    P(p, m, F)      x_p is in the register alone, and [p, m) is to be reversed
      = 0                                              where the register holds the tape of [p, m)
      = min over k of  w_k(p) + Q0(p, m, F - a_p e_k, k)               write x_p
                       u_k(p) + P(p + 1, m, F - b_p e_k)     write, and later read, the tape of p
    Q0(p, m, F, k)  x_p is on level k too, and the forward goes on from it
      = min_{p<j<m} S_j - S_p + P(j, m, F) + r_k(p) + Q(p, j, F, k)
    Q(p, m, F, k) = min(Q0(p, m, F, k), P(p, m, F + a_p e_k))          keep x_p there, or discard it

This is the recurrence of Herrmann and Pallez, "H-Revolve", ACM TOMS 2020, on intervals and with
room in place of slots, and with the choice of storing a tape from Maddison, "On the implementation
of checkpointing with high-level algorithmic differentiation", 2023, equation (1). Where all
checkpoints have one size, exhaustive search has found nothing better in many thousand small cases.
Where sizes differ it may pay to discard x_p before all of its range is reversed and to come back to
the rest from further left, which no schedule does here; searches found that rare, and worth a few
per cent.

What is free is counted in units, and its combinations are numbered (`FreeSpace`).

For example, three steps of 1, 2 and 4 s with one slot, free of cost: from x_0 advance over the
first two, reverse the third; read x_0, advance over the first, reverse the second; read x_0. That
takes 1 + 2 + 1 = 4 s besides recording and reversing each step.

A long chain is planned on several scales. The finest has a point before every step; each coarser
one keeps some of its points. Ranges that are short on a scale are planned there, and longer ones
are split at points of the next one only.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

_Seconds = NDArray[np.float64]
_Ints = NDArray[np.int64]

SHORT = 64
"""Intervals between points up to which a range is short on a scale; half where room is plenty."""

_PLENTY = 128
"""Ways and rooms together from which on it is."""

_PART = 16 * SHORT
"""Points of a scale whose short ranges are planned together."""

_SPLITS, _TILE = 32, 1 << 15
"""Splits, and numbers in all, that are compared at a time: what a nearby cache holds."""


@dataclass(frozen=True, kw_only=True)
class FreeSpace:
    """The R free rooms F that are told apart, and G ways to store a checkpoint in each.

    A room and a way lead to a level; R itself is the number of what is not possible.

    Attributes
    ----------
    total : int array (levels)
        All units of a level.
    level : int array (G, R)
        The level of a way.
    free : int array (G, R)
        The units that are free there.
    stride : int array (levels)
        By how much the number of the room falls for each unit that is taken of a level.
    down : tuple of (slice, int)
        A room of the slice may be given up for that one, in which only nearer levels are used.
    """

    total: _Ints
    level: _Ints
    free: _Ints
    stride: _Ints
    down: tuple[tuple[slice, int], ...] = ()

    @staticmethod
    def of_all_levels(total: _Ints) -> "FreeSpace":
        """Every combination of what may be free on the levels; G is the number of levels."""
        counts = total + 1
        room = np.arange(counts.prod())
        stride = np.append(np.cumprod(counts[:0:-1])[::-1], 1)
        free = room // stride[:, None] % counts[:, None]
        level = np.repeat(np.arange(len(total)), len(room)).reshape(free.shape)
        return FreeSpace(total=total, level=level, free=free, stride=stride)

    @staticmethod
    def of_one_level_at_a_time(total: _Ints) -> "FreeSpace":
        """Number what is free on one level: nearer ones are free, farther ones are not used."""
        counts = total + 1
        ends = np.cumsum(counts)
        level = np.repeat(np.arange(len(total)), counts)
        free = np.arange(ends[-1]) - (ends - counts)[level]
        return FreeSpace(
            total=total,
            level=level[None],
            free=free[None],
            stride=np.ones(len(total), np.int64),
            down=tuple((slice(begin, end), int(begin) - 1) for begin, end in pairwise(ends)),
        )

    @property
    def count(self) -> int:
        """R; room R - 1 has everything free."""
        return int(self.level.shape[1])

    def without(self, way: int, units: _Ints, /) -> _Ints:
        """(p, R) the room after something is stored that takes `units` (levels, p) of a level."""
        level, taken = self.level[way], units[self.level[way]].T
        room = np.arange(self.count) - taken * self.stride[level]
        return np.where(taken <= self.free[way], room, self.count)

    def back(self, way: int, units: _Ints, /) -> _Ints:
        """(p, R) the room after it is discarded again; R where it cannot have been there."""
        level, given = self.level[way], units[self.level[way]].T
        room = np.arange(self.count) + given * self.stride[level]
        return np.where(self.free[way] + given <= self.total[level], room, self.count)


def in_units(capacity: int, sizes: _Ints, most: int, /) -> tuple[int, _Ints, bool]:
    """A level's capacity and the bytes stored on it in units, and whether they are so exactly.

    There are at most `most` units. One is the greatest common divisor of the sizes, where that is
    large enough, or else a part of the capacity, to which sizes are rounded up: of all numbers of
    parts from a quarter of `most` on, the one with room for most checkpoints of the mean size. What
    does not fit takes a unit more than there are.
    """
    unit = int(np.gcd.reduce(sizes))
    if not unit:
        return 0, sizes, True
    if capacity // unit <= most:
        total = capacity // unit
        return total, np.minimum(sizes // unit, total + 1), True
    fit = sizes[sizes <= capacity]
    if not fit.size:
        return 0, np.minimum(sizes, 1), True
    counts = range(-(-most // 4), most + 1)
    total = max(counts, key=lambda count: count / _parts(fit, capacity, count).mean())
    return total, _parts(sizes, capacity, total), False


def _parts(sizes: _Ints, capacity: int, count: int) -> _Ints:
    """How many of `count` equal parts of the capacity each size takes, rounded up."""
    shift = max(0, capacity.bit_length() - 50)  # so that no product below overflows
    taken = -(-np.minimum(sizes, capacity) >> shift) * count
    parts: _Ints = -(-taken // (capacity >> shift))
    return np.where(sizes <= capacity, np.minimum(parts, count), count + 1)


@dataclass(frozen=True, kw_only=True)
class IntervalCosts:
    """The costs of a chain on a platform, in seconds and in units of space.

    Attributes
    ----------
    before : float array (n + 1)
        S.
    reach : int array (n)
        The greatest m such that the register holds the tape of [p, m).
    write, read : float arrays (levels, n)
        w, which includes discarding, and r.
    restart : int array (levels, n)
        a.
    tapes : bool
        Whether tapes are stored.
    keep : float array (levels, n + 1)
        The sums from the left of u: seconds to write, read and discard the tape of each step.
    tape : int array (levels, n + 1)
        The sums from the left of b.
    """

    before: _Seconds
    reach: _Ints
    write: _Seconds
    read: _Seconds
    restart: _Ints
    tapes: bool
    keep: _Seconds
    tape: _Ints


class RangeTables:
    """The recurrence for the ranges of at most `longest` intervals within a part of a scale.

    Attributes
    ----------
    begin : int
        The point of the scale with which the part begins.
    fresh : float array (length, end, room)
        S_p + P(p, m, F), by m - p and m.
    stored : list of float arrays (length, begin, room)
        r_k(p) + Q(p, m, F, k), by m - p and p; an array for each way to store x_p.
    """

    def __init__(self, begin: int, count: int, longest: int, room: FreeSpace) -> None:
        self.begin, self.count = begin, count
        shape = longest + 1, count + 1, room.count
        self.fresh = np.full(shape, np.inf)
        self.stored = [np.full(shape, np.inf) for _ in room.level]

    def splits(self, way: int, length: int) -> _Seconds:
        """S_p + Q0 of all ranges of one length, by begin; those of shorter ones are known."""
        fresh, stored = self.fresh, self.stored[way]
        best = np.full((self.count - length + 1, fresh.shape[2]), np.inf)
        width = max(1, _TILE // (min(_SPLITS, length) * fresh.shape[2]))
        for low in range(0, len(best), width):
            tile = best[low : low + width]
            high = low + len(tile)
            for first in range(1, length, _SPLITS):
                last = min(first + _SPLITS, length)
                right = fresh[length - first : length - last : -1, length + low : length + high]
                seconds = right + stored[first:last, low:high]
                np.minimum(tile, seconds.min(axis=0), out=tile)
        return best

    def split(self, way: int, room: int, begin: int, end: int) -> tuple[float, int]:
        """S_p + Q0 of one range, and the j of the best split; infinite where there is none."""
        if end - begin < 2:
            return np.inf, end
        length, first, last = end - begin, begin - self.begin, end - self.begin
        right = self.fresh[length - 1 : 0 : -1, last, room]
        seconds = right + self.stored[way][1:length, first, room]
        best = int(seconds.argmin())
        return float(seconds[best]), begin + 1 + best


def short(room: FreeSpace, /) -> int:
    """How many intervals a range has at most that is short; its tables grow with the square."""
    return SHORT if room.level.size < _PLENTY else SHORT // 2


class Scale:
    """Points of the chain, and the best schedules of the ranges between them.

    Attributes
    ----------
    at : int array
        The steps before which the points are, from 0 to n.
    finer : Scale or None
        The scale on which short ranges are planned; None where they have one step at least.
    place : int array
        Where the points are among those of the finer scale.
    short : int
        Intervals up to which a range of it is short.
    """

    def __init__(
        self, costs: IntervalCosts, room: FreeSpace, at: _Ints, finer: "Scale | None", place: _Ints
    ) -> None:
        self.costs, self.room = costs, room
        self.at, self.finer, self.place = at, finer, place
        self.short = short(room)
        self._short = self._short_ranges()
        self._part = -1, RangeTables(0, 0, 0, room)

    @staticmethod
    def finest(costs: IntervalCosts, room: FreeSpace) -> "Scale":
        """A point before every step, and one at the end."""
        steps = np.arange(len(costs.before))
        return Scale(costs, room, steps, None, steps)

    def coarser(self, count: int) -> "Scale":
        """About `count` of these points, and at least every `short`th.

        The chain is cut into windows of equal cost, and the point just after the dearest interval
        of each is taken: at the end of a range it is never advanced over again. Of equally dear
        ones it is that whose x takes least room.
        """
        before = self.costs.before[self.at]
        if not before[-1]:
            before = np.arange(len(self.at), dtype=np.float64)
        window = np.searchsorted(np.linspace(0, before[-1], count + 1)[1:-1], before[:-1], "right")
        size = np.append(self.costs.restart.sum(axis=0), 0)[self.at[1:]]
        order = np.lexsort((size, -np.diff(before), window))
        dearest = order[np.unique(window[order], return_index=True)[1]]
        points = np.unique(np.concatenate(([0], dearest + 1, [len(self.at) - 1])))
        pieces = -(-np.diff(points) // self.short)
        place = np.interp(
            np.arange(pieces.sum() + 1), np.append(0, np.cumsum(pieces)), points
        ).astype(np.int64)
        return Scale(self.costs, self.room, self.at[place], self, place)

    def whole(self) -> RangeTables:
        """The tables of all ranges of this scale."""
        return self._tables(0, len(self.at) - 1, len(self.at) - 1)

    def part(self, number: int) -> RangeTables:
        """The tables of the short ranges that begin in one part of this scale; the last is kept."""
        if number != self._part[0]:
            begin = number * _PART
            end = min(begin + _PART + self.short, len(self.at) - 1)
            self._part = number, self._tables(begin, end, min(self.short, end - begin))
        return self._part[1]

    def around(self, point: int) -> RangeTables:
        """The tables of the short ranges that begin at a point."""
        return self.part(point // _PART)

    def is_short(self, begin: int, end: int) -> bool:
        """Whether a range is planned on the finer scale."""
        return self.finer is not None and bool(self.place[end] - self.place[begin] <= self.short)

    def _tables(self, begin: int, end: int, longest: int) -> RangeTables:
        tables = RangeTables(begin, end - begin, longest, self.room)
        part = _RangePart(self, begin, end)
        for length in range(1, longest + 1):
            splits = [tables.splits(way, length) for way in range(len(tables.stored))]
            fresh = part.fresh(length, splits, tables.fresh[length - 1])
            tables.fresh[length, length:] = fresh
            for way, stored in enumerate(tables.stored):
                stored[length, : len(fresh)] = part.stored(way, splits[way], fresh)
            self._put_short(tables, length)
        return tables

    def _put_short(self, tables: RangeTables, length: int) -> None:
        """Ranges that are short here are better known on the finer scale."""
        if length > len(self._short):
            return
        short, fresh, stored = self._short[length - 1]
        first, last = np.searchsorted(
            short, (tables.begin, tables.begin + tables.count - length + 1)
        )
        begins = short[first:last] - tables.begin
        tables.fresh[length, begins + length] = fresh[first:last]
        for ours, theirs in zip(tables.stored, stored, strict=True):
            ours[length, begins] = theirs[first:last]

    def _short_ranges(self) -> list[tuple[_Ints, _Seconds, list[_Seconds]]]:
        """By length: where the ranges begin that are short on the finer scale, and their tables."""
        if self.finer is None:
            return []
        place, found = self.place, []
        for length in range(1, len(place)):
            short = np.flatnonzero(place[length:] - place[:-length] <= self.short)
            if not short.size:
                break
            empty = np.empty((len(short), self.room.count))
            found.append((short, empty, [empty.copy() for _ in self.room.level]))
        for number in range(-(-int(place[-1]) // _PART)):
            tables = self.finer.part(number)
            for length, (short, fresh, stored) in enumerate(found, 1):
                here = np.flatnonzero(place[short] // _PART == number)
                begin, end = place[short[here]], place[short[here] + length]
                fresh[here] = tables.fresh[end - begin, end - tables.begin]
                for ours, theirs in zip(stored, tables.stored, strict=True):
                    ours[here] = theirs[end - begin, begin - tables.begin]
        return found


class _RangePart:
    """The recurrence within a part of a scale, for all ranges of one length at a time."""

    def __init__(self, scale: Scale, begin: int, end: int) -> None:
        costs, room = scale.costs, scale.room
        self.at = scale.at[begin : end + 1]
        first = self.at[:-1]
        self.before = costs.before[self.at, None]
        self.reach = costs.reach[first]
        restart, tape = costs.restart[:, first], np.diff(costs.tape[:, self.at])
        write, read = costs.write[:, first], costs.read[:, first]
        keep = np.diff(costs.keep[:, self.at])
        self.tapes = costs.tapes
        self.down = room.down
        self.write, self.read = ([each[level].T for level in room.level] for each in (write, read))
        self.keep = [keep[level].T for level in room.level]
        ways = range(len(room.level))
        self.after_restart = [room.without(way, restart) for way in ways]
        self.after_tape = [room.without(way, tape) for way in ways]
        self.after_discard = [room.back(way, restart) for way in ways]

    def fresh(self, length: int, splits: list[_Seconds], shorter: _Seconds) -> _Seconds:
        """S_p + P, by begin; `shorter` is that of one interval less, by end."""
        count = len(self.at) - length
        best = np.full((count, shorter.shape[1]), np.inf)
        for way, seconds in enumerate(splits):
            written = self.write[way][:count] + _at(seconds, self.after_restart[way])
            np.minimum(best, written, out=best)
            if self.tapes and length > 1:
                rest = self.before[:count] - self.before[1 : count + 1] + shorter[length:]
                np.minimum(best, self.keep[way][:count] + _at(rest, self.after_tape[way]), out=best)
        for rooms, lower in self.down:
            np.minimum(best[:, rooms], best[:, lower, None], out=best[:, rooms])
        held = self.at[length:] <= self.reach[:count]
        best[held] = self.before[:count][held]
        return best

    def stored(self, way: int, splits: _Seconds, fresh: _Seconds) -> _Seconds:
        """Q and r, by begin."""
        count = len(fresh)
        best = np.minimum(splits, _at(fresh, self.after_discard[way]))
        seconds: _Seconds = best - self.before[:count] + self.read[way][:count]
        return seconds


def _at(seconds: _Seconds, rooms: _Ints) -> _Seconds:
    """The seconds of each range in the room it is to have; infinite where there is no such room."""
    padded = np.concatenate((seconds, np.full((len(seconds), 1), np.inf)), axis=1)
    return np.take_along_axis(padded, rooms[: len(seconds)], axis=1)
