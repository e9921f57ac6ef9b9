"""What is known of the traffic of a schedule before it begins, by the numbers of its actions."""

from collections.abc import Iterator
from enum import Enum
from math import inf
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Key
from ckio.actions.columns import DISCARD, READ, REVERSE, WRITE, Actions
from ckio.platform import Platform, memory_level
from ckio.schedule import Schedule, seconds_of

_Ints = NDArray[np.int64]
_Bools = NDArray[np.bool_]


class Sort(Enum):
    """What an action means for the traffic."""

    NONE = "it computes, or reads from the memory level"
    TAKE = "it writes to the memory level"
    GIVE = "it discards from the memory level"
    WRITE = "it writes to a far level"
    READ = "it reads from a far level"
    DISCARD = "it discards from a far level"


_NEAR: Final = {WRITE: Sort.TAKE, READ: Sort.NONE, DISCARD: Sort.GIVE}
_FAR: Final = {WRITE: Sort.WRITE, READ: Sort.READ, DISCARD: Sort.DISCARD}


class Map:
    """The columns of a schedule that the rules ask for.

    Attributes
    ----------
    room : float
        The pool's capacity in bytes.
    channels : tuple of str
        The channels of the far levels, and in
    channel_of : list of int
        the number of each level's; -1 for the memory level.
    reads : list of list of int
        The rows of the far reads, by channel.
    sort : list of Sort
    nbytes : int64
        What a checkpoint takes of the pool.
    place : int64
        A number for each key on each level.
    clock : float64
        Seconds computed before each action, and in all.
    source : int64
        Of each read, the row of the write that it reads; -1 for what was there at the start.
    peak, highest : int64
        The most bytes on the memory level from each action to the next far read, and to the end.
    """

    def __init__(self, schedule: Schedule, platform: Platform) -> None:
        actions, levels, memory = schedule.actions, platform.levels, memory_level(platform)
        access = actions.op >= WRITE
        near = access & (actions.level == (-1 if memory is None else memory))
        nbytes = schedule.chain.nbytes_of(actions)
        self.start = 0
        self.room: float = inf
        if memory is not None:
            level = levels[memory]
            nbytes = np.where(near, level.stored_of(nbytes), nbytes)
            self.start = sum(level.stored(schedule.chain.nbytes(key)) for key in _there(schedule))
            self.room = inf if level.capacity is None else level.capacity

        names = [level.channel for number, level in enumerate(levels) if number != memory]
        self.channels = tuple(dict.fromkeys(names))
        self.channel_of = [
            -1 if number == memory else self.channels.index(level.channel)
            for number, level in enumerate(levels)
        ]
        self._far_reads = np.flatnonzero(access & ~near & (actions.op == READ))
        channel = np.array([*self.channel_of, -1])[actions.level[self._far_reads]]
        self.reads = [
            self._far_reads[channel == number].tolist() for number in range(len(self.channels))
        ]
        self.sort = _sorts(actions, near)
        # Memory views: an item of one is a plain number, and takes eight bytes.
        self.nbytes = nbytes.data
        self.clock = _clock(schedule, platform).data
        place, source = _places(actions)
        self.place, self.source = place.data, source.data
        peak, highest = self._peaks(actions, np.where(near, nbytes, 0))
        self.peak, self.highest = peak.data, highest.data

    def reads_between(self, first: int, last: int) -> Iterator[int]:
        """The rows of the far reads from `first` to `last`, both included."""
        low, high = np.searchsorted(self._far_reads, (first, last + 1)).tolist()
        return iter(self._far_reads[low:high].data)

    def _peaks(self, actions: Actions, nbytes: _Ints) -> tuple[_Ints, _Ints]:
        change = np.where(actions.op == WRITE, nbytes, -nbytes * (actions.op == DISCARD))
        after = self.start + np.cumsum(change)
        most = np.maximum(after - change, after)
        # A running maximum from behind, which begins anew at each far read: of ranks, each stretch
        # of actions above the one behind it.
        values, rank = np.unique(most, return_inverse=True)
        stretch = np.searchsorted(self._far_reads, np.arange(len(most)))
        lift = (len(self._far_reads) - stretch) * len(values)
        running = np.maximum.accumulate((rank + lift)[::-1])[::-1] - lift
        peak = values[running] if len(most) else most
        return peak, np.ascontiguousarray(np.maximum.accumulate(most[::-1])[::-1])


def _there(schedule: Schedule) -> frozenset[Key]:
    """What lies on the memory level, the first, at the start."""
    return schedule.stored[0] if schedule.stored else frozenset()


def _sorts(actions: Actions, near: _Bools) -> list[Sort]:
    here = [_NEAR.get(op, Sort.NONE) for op in range(DISCARD + 1)]
    there = [_FAR.get(op, Sort.NONE) for op in range(DISCARD + 1)]
    sorts = np.array([*there, *here], object)
    found: list[Sort] = sorts[actions.op + near * np.uint8(len(there))].tolist()
    return found


def _clock(schedule: Schedule, platform: Platform) -> NDArray[np.float64]:
    seconds = np.where(schedule.actions.op <= REVERSE, seconds_of(schedule, platform), 0.0)
    return np.concatenate(([0.0], np.cumsum(seconds)))


def _places(actions: Actions) -> tuple[_Ints, _Ints]:
    """The place of each access, and of each read its source."""
    place, source = np.full((2, len(actions)), -1, np.int64)
    rows = np.flatnonzero(actions.op >= WRITE)
    here = actions.take(rows)
    names = (here.begin, here.name, here.kind, here.level)
    order = np.lexsort(names)
    opens = np.zeros(len(order), np.int64)
    for column in names:
        opens[1:] |= column[order][1:] != column[order][:-1]
    group = np.cumsum(opens)
    place[rows[order]] = group
    # A running maximum of the rows of writes, which begins anew with each place.
    lift = group * (len(actions) + 1)
    written = np.where(here.op[order] == WRITE, rows[order], -1)
    source[rows[order]] = np.maximum.accumulate(written + lift) - lift
    return place, source
