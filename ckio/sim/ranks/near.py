"""A rank's traffic, as it goes through what it does by itself in strides."""

from bisect import bisect_left
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass
from math import inf
from typing import Final, Self

import numpy as np

from ckio.actions.columns import DISCARD, WRITE, Actions
from ckio.overlap.rules import ChannelQueue, Traffic, Transfer, TransferColumns
from ckio.platform import Platform, memory_level
from ckio.schedule import Schedule
from ckio.schedule.policy import Overlap


@dataclass(frozen=True, eq=False)
class Near:
    """What the memory level holds, by the numbers of the schedule's actions.

    Attributes
    ----------
    before : int64
        Bytes before each action, and in the end.
    inside : int64
        While the action goes on.
    most : int64
        The most while this action, or any up to the next far access, goes on.
    spare : int64
        What the memory level will hold at the most up to the next far read, as a negative number:
        between two of them it rises.
    far : list of int
        The far accesses.
    """

    before: memoryview
    inside: memoryview
    most: memoryview
    spare: memoryview
    far: list[int]

    @staticmethod
    def of(schedule: Schedule, platform: Platform, there: TransferColumns) -> "Near":
        actions, memory = schedule.actions, memory_level(platform)
        access = actions.op >= WRITE
        near = access & (actions.level == (-1 if memory is None else memory))
        gives = near & (actions.op == DISCARD)
        change = np.asarray(there.nbytes) * (near & (actions.op == WRITE))
        change -= np.asarray(there.nbytes) * gives
        before = there.start + np.concatenate(([0], np.cumsum(change)))
        inside = np.maximum(before[:-1], before[1:])
        far = np.flatnonzero(access & ~near)
        most = inside.copy()
        for begin, end in zip([0, *(far + 1)], [*far, len(actions)], strict=True):
            most[begin:end] = np.maximum.accumulate(inside[begin:end][::-1])[::-1]
        spare = -np.asarray(there.peak)
        return Near(before.data, inside.data, most.data, spare.data, far.tolist())


class _Made(dict[tuple[int, bool], Transfer]):
    """Transfers that were made, by row and whether they are direct."""


class _Full(dict[tuple[int, ...], int]):
    """Up to which row reads do not fit; by the program's row, that of the read, and those ahead."""


_SHARED: Final = Actions, TransferColumns, Near, _Made, _Full

_MOST_FULL: Final = 1 << 16
_FEW: Final = 4
"""Reads ahead: with more of them ranks that differ hardly ever ask the same."""


class NearTraffic(Traffic):
    """The rules for a program that does many near actions in one go.

    Between two far accesses a program computes, and uses the memory level. To the channels that
    matters only by its place in the schedule and by the room in the pool: where nobody can see the
    difference, it is enough that both are right whenever a channel begins something.
    """

    def __init__(self, schedule: Schedule, platform: Platform, overlap: Overlap, /) -> None:
        super().__init__(schedule, platform, overlap)
        self.near = Near.of(schedule, platform, self._map)
        self._lies = self._map.start  # what of `used` is the memory level's own
        self._made, self._full = _Made(), _Full()

    def again(self) -> Self:
        """Another, for a rank that is where this one is; what never changes is shared."""
        fixed = (part for part in vars(self).values() if isinstance(part, _SHARED))
        return deepcopy(self, {id(part): part for part in fixed})

    def be_inside(self, row: int, /) -> None:
        """The program is at this action, which it has begun."""
        self._be(row, self.near.inside[row])

    def be_before(self, row: int, /) -> None:
        """The program is at this action, which it has not begun."""
        self._be(row, self.near.before[row])

    def enter_near(self) -> bool:
        """Begin the next near action, should there be room for it."""
        if self.enter() is None:
            return False
        self._lies = self.near.inside[self.row]
        return True

    def may_begin(self, number: int, /) -> bool:
        """Whether it is worth while to ask what an idle channel does now."""
        channel = self._channels[number]
        return channel.wanted is not None or bool(channel.queue) or self._has_a_read(number)

    def goes_to(self, stop: int, idle: Iterable[int], /) -> int:
        """Up to which action, `stop` at most, all can be done before anybody has to look.

        So far there is room in the pool for what they write; and no channel that is idle could
        begin something that it cannot begin now.
        """
        row, near, room = self.row, self.near, self._map.room
        others = self.used - self._lies
        if row < stop and near.most[row] + others > room:
            too_much = (at for at in range(row, stop) if near.inside[at] + others > room)
            stop = next(too_much, stop)
        for number in idle:
            if row + 1 < stop and self._has_a_read(number):
                stop = self._has_room(number, stop)
        return stop

    def _has_a_read(self, number: int) -> bool:
        """Whether a channel has a read to make ahead but for the program's place, and room."""
        channel = self._channels[number]
        return (
            (row := channel.next_read) is not None
            and self._map.source[row] < self.row
            and self._map.place[row] not in self._staged
            and len(self._ahead) < self._most_ahead
        )

    def _has_room(self, number: int, stop: int) -> int:
        """The first row from the next on where it may begin that read; `stop` if none before is."""
        there, channel = self._map, self._channels[number]
        assert channel.next_read is not None
        if self._horizon < inf:
            return self.row + 1
        room = there.room - there.nbytes[channel.next_read]
        lying = sum(there.nbytes[row] for row in self._ahead)
        first = max(self.row, channel.full) + 1
        if first >= stop or room == inf:
            return min(first, stop)
        # What the memory level will hold at the most falls, so the place where it fits is sought.
        first = bisect_left(self.near.spare, lying - room, first, stop)
        inside, others = self.near.inside, self.used - self._lies
        while first < stop and inside[first] + others > room:
            first += 1
        return first

    def _fits_up_to(self, row: int, channel: ChannelQueue) -> bool:
        """What one rank has found out holds for all others too."""
        if self.row <= channel.full:
            return False
        if len(self._ahead) > _FEW:
            return super()._fits_up_to(row, channel)
        asked = (self.row, row, *self._ahead)
        if (full := self._full.get(asked)) is None:
            if len(self._full) >= _MOST_FULL:
                self._full.clear()
            full = -1 if super()._fits_up_to(row, channel) else channel.full
            self._full[asked] = full
        elif full >= 0:
            channel.full = full
        return full < 0

    def _transfer(self, row: int, *, direct: bool = False) -> Transfer:
        """One for all ranks: it says nothing of who makes it."""
        if (made := self._made.get((row, direct))) is None:
            made = self._made[row, direct] = super()._transfer(row, direct=direct)
        return made

    def _be(self, row: int, lies: int) -> None:
        self.row = row
        self.used += lies - self._lies
        self._lies = lies
