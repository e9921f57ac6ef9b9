"""The free room on the levels as the recurrence of `intervals` counts it: in units, numbered."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

_Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class FreeRoom:
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
    def of_all_levels(total: _Ints) -> "FreeRoom":
        """Every combination of what may be free on the levels; G is the number of levels."""
        counts = total + 1
        room = np.arange(counts.prod())
        stride = np.append(np.cumprod(counts[:0:-1])[::-1], 1)
        free = room // stride[:, None] % counts[:, None]
        level = np.repeat(np.arange(len(total)), len(room)).reshape(free.shape)
        return FreeRoom(total=total, level=level, free=free, stride=stride)

    @staticmethod
    def of_one_level_at_a_time(total: _Ints) -> "FreeRoom":
        """What is free on one level, where all nearer ones are free and no farther one is used."""
        counts = total + 1
        ends = np.cumsum(counts)
        level = np.repeat(np.arange(len(total)), counts)
        free = np.arange(ends[-1]) - (ends - counts)[level]
        return FreeRoom(
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
