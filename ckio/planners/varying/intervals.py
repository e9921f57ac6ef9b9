"""The recurrence for a chain whose steps differ: the best schedule of every range of its steps.

The time to record and reverse each step once, which every schedule needs, is left out. S_j is the
time to go forward over all steps before j, in seconds. F is the free space on the levels; x_p
occupies a_p units of it and the tape of step p occupies b_p. k is a level and e_k one unit of its
space:

    P(p, m, F)      reverse [p, m) when x_p is only in the register
      = 0                                    if the register holds the tapes of [p, m)
      = min over k of  w_k(p) + Q0(p, m, F - a_p e_k, k)     write x_p
                       t_k(p) + P(p + 1, m, F - b_p e_k)     write the tape of p, read it later
    Q0(p, m, F, k)  reverse [p, m) when x_p is also on level k, and advance from x_p first
      = min_{p<j<m} S_j - S_p + P(j, m, F) + r_k(p) + Q(p, j, F, k)
    Q(p, m, F, k) = min(Q0(p, m, F, k), P(p, m, F + a_p e_k))        keep x_p on k, or discard it

w_k(p) is the time to write x_p to level k and to discard it later, r_k(p) the time to read it, and
t_k(p) the time to write, read and discard the tape of step p.

For example, three steps of 1, 2 and 4 s with one slot that costs nothing: from x_0 advance over the
first two steps, reverse the third; read x_0, advance over the first step, reverse the second; read
x_0, reverse the first. This takes 1 + 2 + 1 = 4 s in addition to recording and reversing each step.

This is the recurrence of Herrmann and Pallez, "H-Revolve", ACM TOMS 2020, for ranges of steps and
with free space instead of slots. The choice to store a tape is from Maddison, "Step-based
checkpointing with high-level algorithmic differentiation", 2024, equation (1). If all checkpoints
have one size, exhaustive search has found nothing better in many thousand small cases. If sizes
differ, it may be better to discard x_p before its whole range is reversed, and to recompute the
rest from an earlier checkpoint. No schedule here does so; searches found such cases rare, with a
gain of a few per cent.

Free space is counted in units. Its combinations are numbered: the number is a `value`, and the
index of a level on which x_p or its tape can be stored at this value is a `way` (`FreeSpace`).

A long chain is planned on several scales. The finest scale has a point before every step, and each
coarser scale has some of the points of the finer one. Ranges that are short on a scale are planned
on that scale. Longer ranges are split only at the points of the next scale. For example, 100,000
steps have scales of 100,001, about 6,250 and 240 points.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ckio.planners.base import Ints, Seconds

SHORT = 64
"""A range is short on a scale if it has at most this many intervals between points.

If there are many values of free space (`_PLENTY`), half of this.
"""

_PLENTY = 128
"""Values of free space times ways to store a checkpoint from which they are many."""

_PART = 16 * SHORT
"""Number of points of a scale whose short ranges are planned together."""

_SPLITS, _TILE = 32, 1 << 15
"""Splits, and numbers in total, that are compared at a time, so that they fit into a cache."""


@dataclass(frozen=True, kw_only=True)
class FreeSpace:
    """The R different values of the free space F, and G ways to store a checkpoint in each.

    A value and a way determine a level. The number R means that something is impossible.

    Attributes
    ----------
    total : int array (levels)
        The capacity of each level in units.
    level : int array (G, R)
        The level for each way and value.
    free : int array (G, R)
        The units that are free on that level.
    stride : int array (levels)
        The number of the value falls by this for each unit that is occupied on a level.
    down : tuple of (slice, int)
        A value of the slice may be replaced by this one, in which only nearer levels are used.
    """

    total: Ints
    level: Ints
    free: Ints
    stride: Ints
    down: tuple[tuple[slice, int], ...] = ()

    @staticmethod
    def of_all_levels(total: Ints) -> "FreeSpace":
        """Number every combination of free units on the levels; G is the number of levels.

        For example, levels of one and two units have six values:

        >>> FreeSpace.of_all_levels(np.array([1, 2])).free.tolist()
        [[0, 0, 0, 1, 1, 1], [0, 1, 2, 0, 1, 2]]
        """
        counts = total + 1
        value = np.arange(counts.prod())
        stride = np.append(np.cumprod(counts[:0:-1])[::-1], 1)
        free = value // stride[:, None] % counts[:, None]
        level = np.repeat(np.arange(len(total)), len(value)).reshape(free.shape)
        return FreeSpace(total=total, level=level, free=free, stride=stride)

    @staticmethod
    def of_one_level_at_a_time(total: Ints) -> "FreeSpace":
        """Number the free units on one level; nearer levels are free, farther ones are not used.

        For example, levels of one and two units have five values:

        >>> space = FreeSpace.of_one_level_at_a_time(np.array([1, 2]))
        >>> space.level.tolist(), space.free.tolist()
        ([[0, 0, 1, 1, 1]], [[0, 1, 0, 1, 2]])
        """
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
        """R; in the value R - 1 everything is free."""
        return int(self.level.shape[1])

    def without(self, way: int, units: Ints, /) -> Ints:
        """Return (p, R): the value after a checkpoint of `units` (levels, p) is stored."""
        level, taken = self.level[way], units[self.level[way]].T
        value = np.arange(self.count) - taken * self.stride[level]
        return np.where(taken <= self.free[way], value, self.count)

    def back(self, way: int, units: Ints, /) -> Ints:
        """Return (p, R): the value after the checkpoint is discarded; R if it cannot be stored."""
        level, given = self.level[way], units[self.level[way]].T
        value = np.arange(self.count) + given * self.stride[level]
        return np.where(self.free[way] + given <= self.total[level], value, self.count)


def in_units(capacity: int, sizes: Ints, most: int, /) -> tuple[int, Ints, bool]:
    """Return the capacity of a level and the sizes in units, and whether the sizes are exact.

    The capacity has at most `most` units. A unit is the greatest common divisor of the sizes if
    that is large enough. Otherwise the capacity is divided into equal parts, and sizes are rounded
    up to parts; of all numbers of parts from `most` / 4 to `most`, the function takes the one with
    which most checkpoints of the mean size fit. A size above the capacity is one unit more than the
    capacity.
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


def _parts(sizes: Ints, capacity: int, count: int) -> Ints:
    """Return how many of `count` equal parts of the capacity each size needs, rounded up."""
    shift = max(0, capacity.bit_length() - 50)  # so that no product below overflows
    taken = -(-np.minimum(sizes, capacity) >> shift) * count
    parts: Ints = -(-taken // (capacity >> shift))
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
        The sums of t_k over the steps before each: seconds to write, read and discard the tapes.
    tape : int array (levels, n + 1)
        The sums of b over the steps before each.
    """

    before: Seconds
    reach: Ints
    write: Seconds
    read: Seconds
    restart: Ints
    tapes: bool
    keep: Seconds
    tape: Ints


class RangeTables:
    """The solution for the ranges of at most `longest` intervals within a part of a scale.

    Attributes
    ----------
    begin : int
        The first point of the part.
    fresh : float array (length, end, value)
        S_p + P(p, m, F), by m - p, m and F.
    stored : list of float arrays (length, begin, value)
        r_k(p) + Q(p, m, F, k), by m - p, p and F; one array for each way to store x_p.
    """

    def __init__(self, begin: int, count: int, longest: int, space: FreeSpace) -> None:
        self.begin, self.count = begin, count
        shape = longest + 1, count + 1, space.count
        self.fresh = np.full(shape, np.inf)
        self.stored = [np.full(shape, np.inf) for _ in space.level]

    def splits(self, way: int, length: int) -> Seconds:
        """Return S_p + Q0 of all ranges of one length, by begin, from those of shorter ranges."""
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

    def split(self, way: int, value: int, begin: int, end: int) -> tuple[float, int]:
        """Return S_p + Q0 of one range, and the j of the best split; infinite if there is none."""
        if end - begin < 2:
            return np.inf, end
        length, first, last = end - begin, begin - self.begin, end - self.begin
        right = self.fresh[length - 1 : 0 : -1, last, value]
        seconds = right + self.stored[way][1:length, first, value]
        best = int(seconds.argmin())
        return float(seconds[best]), begin + 1 + best


def short(values: float, /) -> int:
    """Return the most intervals of a short range, for values of free space times ways to store.

    The tables grow with its square.
    """
    return SHORT if values < _PLENTY else SHORT // 2


class Scale:
    """Points of the chain, and the best schedules of the ranges between them.

    Attributes
    ----------
    at : int array
        The step after each point, from 0 to n.
    finer : Scale or None
        The scale on which short ranges are planned; None for the finest scale.
    place : int array
        The index of each point among the points of the finer scale.
    short : int
        The most intervals of a short range.
    """

    def __init__(
        self, costs: IntervalCosts, space: FreeSpace, at: Ints, finer: "Scale | None", place: Ints
    ) -> None:
        self.costs, self.space = costs, space
        self.at, self.finer, self.place = at, finer, place
        self.short = short(space.level.size)
        self._short = self._short_ranges()
        self._part = -1, RangeTables(0, 0, 0, space)

    @staticmethod
    def finest(costs: IntervalCosts, space: FreeSpace) -> "Scale":
        """Return the scale with a point before every step, and one at the end."""
        steps = np.arange(len(costs.before))
        return Scale(costs, space, steps, None, steps)

    def coarser(self, count: int) -> "Scale":
        """Return a scale with about `count` of these points, and at least every `short`th.

        The chain is divided into windows of equal cost, and the point just after the most costly
        interval of each is taken, because the last interval of a range is never advanced over
        again. Of equally costly intervals, it is the one whose x is smallest.
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
        return Scale(self.costs, self.space, self.at[place], self, place)

    def whole(self) -> RangeTables:
        """Return the tables of all ranges of this scale."""
        return self._tables(0, len(self.at) - 1, len(self.at) - 1)

    def part(self, number: int) -> RangeTables:
        """Return the tables of the short ranges that begin in one part; the last are cached."""
        if number != self._part[0]:
            begin = number * _PART
            end = min(begin + _PART + self.short, len(self.at) - 1)
            self._part = number, self._tables(begin, end, min(self.short, end - begin))
        return self._part[1]

    def around(self, point: int) -> RangeTables:
        """Return the tables that contain the short ranges that begin at a point."""
        return self.part(point // _PART)

    def is_short(self, begin: int, end: int) -> bool:
        """Whether a range is planned on the finer scale."""
        return self.finer is not None and bool(self.place[end] - self.place[begin] <= self.short)

    def _tables(self, begin: int, end: int, longest: int) -> RangeTables:
        tables = RangeTables(begin, end - begin, longest, self.space)
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
        """Replace the values of short ranges by those of the finer scale, which are better."""
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

    def _short_ranges(self) -> list[tuple[Ints, Seconds, list[Seconds]]]:
        """Return by length: the begins of ranges that are short on the finer scale, and values."""
        if self.finer is None:
            return []
        place, found = self.place, []
        for length in range(1, len(place)):
            short = np.flatnonzero(place[length:] - place[:-length] <= self.short)
            if not short.size:
                break
            empty = np.empty((len(short), self.space.count))
            found.append((short, empty, [empty.copy() for _ in self.space.level]))
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
        costs, space = scale.costs, scale.space
        self.at = scale.at[begin : end + 1]
        first = self.at[:-1]
        self.before = costs.before[self.at, None]
        self.reach = costs.reach[first]
        restart, tape = costs.restart[:, first], np.diff(costs.tape[:, self.at])
        write, read = costs.write[:, first], costs.read[:, first]
        keep = np.diff(costs.keep[:, self.at])
        self.tapes = costs.tapes
        self.down = space.down
        self.write, self.read = ([each[level].T for level in space.level] for each in (write, read))
        self.keep = [keep[level].T for level in space.level]
        ways = range(len(space.level))
        self.after_restart = [space.without(way, restart) for way in ways]
        self.after_tape = [space.without(way, tape) for way in ways]
        self.after_discard = [space.back(way, restart) for way in ways]

    def fresh(self, length: int, splits: list[Seconds], shorter: Seconds) -> Seconds:
        """Return S_p + P, by begin; `shorter` is that of one interval less, by end."""
        count = len(self.at) - length
        best = np.full((count, shorter.shape[1]), np.inf)
        for way, seconds in enumerate(splits):
            written = self.write[way][:count] + _at(seconds, self.after_restart[way])
            np.minimum(best, written, out=best)
            if self.tapes and length > 1:
                rest = self.before[:count] - self.before[1 : count + 1] + shorter[length:]
                np.minimum(best, self.keep[way][:count] + _at(rest, self.after_tape[way]), out=best)
        for values, lower in self.down:
            np.minimum(best[:, values], best[:, lower, None], out=best[:, values])
        held = self.at[length:] <= self.reach[:count]
        best[held] = self.before[:count][held]
        return best

    def stored(self, way: int, splits: Seconds, fresh: Seconds) -> Seconds:
        """Return Q + r, by begin."""
        count = len(fresh)
        best = np.minimum(splits, _at(fresh, self.after_discard[way]))
        seconds: Seconds = best - self.before[:count] + self.read[way][:count]
        return seconds


def _at(seconds: Seconds, values: Ints) -> Seconds:
    """Return the seconds of each range for these values of free space; infinite if impossible."""
    padded = np.concatenate((seconds, np.full((len(seconds), 1), np.inf)), axis=1)
    return np.take_along_axis(padded, values[: len(seconds)], axis=1)
