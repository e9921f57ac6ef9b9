"""From the tables of `intervals` to the actions of a schedule."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

import numpy as np

from ckio.actions import Kind
from ckio.planners.draft import Draft
from ckio.planners.varying.intervals import Scale, Tables
from ckio.planners.varying.sweeps import Sweep
from ckio.platform.chain import Chain

_FRESH = -1
"""The way in which x_p is stored, where it is not."""


@dataclass(frozen=True, slots=True)
class _Range:
    """A range of a scale that is to be reversed in a room; x_p is stored in a way, or FRESH."""

    scale: Scale
    begin: int
    end: int
    room: int
    way: int = _FRESH

    @property
    def steps(self) -> tuple[int, int]:
        """Its first step, and that after its last."""
        return int(self.scale.at[self.begin]), int(self.scale.at[self.end])


@dataclass(frozen=True, slots=True)
class _Kept:
    """Steps [begin, end) whose tapes lie on a level."""

    begin: int
    end: int
    level: int


class _Choice(NamedTuple):
    """What may be done with x_p: in which way it is stored, and how far the forward goes then.

    A split of 0 stores the tape instead, and the way FRESH turns to a room of nearer levels only.
    """

    seconds: float
    room: int
    way: int = _FRESH
    split: int = 0


class Unfolding:
    """Follows the best choices from the whole chain down to its steps.

    Attributes
    ----------
    seconds : float
        What the tables promise, without what every schedule pays; infinite if there is no schedule.
    swept : bool
        Whether it is the sweep that was followed: one is taken where it promises less.
    draft : Draft
        The schedule.
    """

    def __init__(
        self, scale: Scale, chain: Chain, numbers: list[int], first: Sweep | None = None
    ) -> None:
        self.top, self.whole = scale, scale.whole()
        self.costs, self.room, self.numbers = scale.costs, scale.room, numbers
        self.records = self.costs.tapes & (chain.each("record") < chain.each("advance"))
        last, everything = len(scale.at) - 1, self.room.count - 1
        self.seconds = float(self.whole.fresh[last, last, everything])
        self.draft = Draft()
        self.todo: list[_Range | _Kept] = [_Range(scale, 0, last, everything)]  # the next one last
        self.swept = first is not None and first.seconds < self.seconds
        if first is not None and self.swept:
            self._sweep(first)
        while self.todo and np.isfinite(self.seconds):
            self._next()

    def _next(self) -> None:
        match self.todo.pop():
            case _Range() as left:
                while left.scale.finer is not None and left.scale.is_short(left.begin, left.end):
                    begin, end = left.scale.place[[left.begin, left.end]].tolist()
                    left = _Range(left.scale.finer, begin, end, left.room, left.way)
                if left.way == _FRESH:
                    self._fresh(left)
                else:
                    self._stored(left)
            case _Kept(begin, end, level):
                self._spend(begin, end, level)

    def _sweep(self, first: Sweep) -> None:
        """Store what is to be stored on the way to the last range, which is then the next."""
        self.seconds, self.todo, begin = first.seconds, [], 0
        for leg in first.legs:
            self.draft.write(leg.begin, level=self.numbers[self.room.level[leg.way, leg.room]])
            self._forward(leg.begin, leg.end)
            self.todo.append(_Range(first.scale, leg.begin, leg.end, leg.room, leg.way))
            begin = leg.end
        end, everything = len(first.scale.at) - 1, self.room.count - 1
        self.todo.append(_Range(first.scale, begin, end, everything))

    def _fresh(self, left: _Range) -> None:
        at, end = left.steps
        if end <= self.costs.reach[at]:
            self.draft.record(at, end)
            self.draft.reverse(at, end)
            return
        best = min(self._choices(left), key=lambda choice: choice.seconds)
        if best.way == _FRESH:
            self.todo.append(replace(left, room=best.room))
            return
        level = self.numbers[self.room.level[best.way, left.room]]
        if best.split:
            self.draft.write(at, level=level)
            self._go_on(replace(left, room=best.room, way=best.way), best.split)
        else:
            after = int(left.scale.at[left.begin + 1])
            for step in range(at, after):
                self.draft.record(step, step + 1)
                self.draft.write(step, level=level, kind=Kind.TAPE)
            self.todo.append(_Kept(at, after, level))
            self.todo.append(replace(left, begin=left.begin + 1, room=best.room))

    def _choices(self, left: _Range) -> Iterator[_Choice]:
        """What may be done with a fresh range that the register does not hold."""
        tables, costs = self._tables(left), self.costs
        at, after = left.scale.at[[left.begin, left.begin + 1]].tolist()
        length, last = left.end - left.begin, left.end - tables.begin
        for way in range(len(self.room.level)):
            level, free = self.room.level[way, left.room], self.room.free[way, left.room]
            if (units := costs.restart[level, at]) <= free:
                room = int(left.room - units * self.room.stride[level])
                seconds, split = tables.split(way, room, left.begin, left.end)
                yield _Choice(seconds + costs.write[level, at], room, way, split)
            units = costs.tape[level, after] - costs.tape[level, at]
            if costs.tapes and length > 1 and units <= free:
                room = int(left.room - units * self.room.stride[level])
                kept = costs.keep[level, after] - costs.keep[level, at]
                moved = costs.before[after] - costs.before[at]
                yield _Choice(kept - moved + tables.fresh[length - 1, last, room], room, way)
        for rooms, lower in self.room.down:
            if rooms.start <= left.room < rooms.stop:
                yield _Choice(tables.fresh[length, last, lower], lower)

    def _stored(self, left: _Range) -> None:
        at, end = left.steps
        level = self.room.level[left.way, left.room]
        self.draft.read(at, level=self.numbers[level])
        tables = self._tables(left)
        seconds, split = tables.split(left.way, left.room, left.begin, left.end)
        back = int(left.room + self.costs.restart[level, at] * self.room.stride[level])
        fresh = tables.fresh[left.end - left.begin, left.end - tables.begin, back]
        if end <= self.costs.reach[at] or fresh < seconds:
            self.draft.discard(at, level=self.numbers[level])
            self.todo.append(replace(left, room=back, way=_FRESH))
        else:
            self._go_on(left, split)

    def _go_on(self, left: _Range, split: int) -> None:
        """From x_p, which is stored, to the split; then the right part, and last the left one."""
        self._forward(*replace(left, end=split).steps)
        self.todo.append(replace(left, end=split))
        self.todo.append(replace(left, begin=split, way=_FRESH))

    def _forward(self, begin: int, end: int) -> None:
        """Advance, or record where tapes are stored and recording takes less time."""
        if not self.costs.tapes:
            self.draft.advance(begin, end)
            return
        for records, steps in groupby(range(begin, end), key=self.records.__getitem__):
            span = list(steps)
            if not records:
                self.draft.advance(span[0], span[-1] + 1)
            else:
                for step in span:
                    self.draft.record(step, step + 1)

    def _spend(self, begin: int, end: int, level: int) -> None:
        for step in reversed(range(begin, end)):
            self.draft.read(step, level=level, kind=Kind.TAPE)
            self.draft.discard(step, level=level, kind=Kind.TAPE)
            self.draft.reverse(step, step + 1)

    def _tables(self, left: _Range) -> Tables:
        return self.whole if left.scale is self.top else left.scale.around(left.begin)
