"""From the tables of `intervals` to actions, with a first forward sweep if that is better.

`intervals` splits a long range only at points that are several steps apart, so that the steps
between them are recomputed. If a level never fills, it may be better to write a checkpoint to it
every few steps, in one forward sweep to the end. The best sweep of this kind is

    R(p) = min over k and j of  w_k(p) + S_j - S_p + R(j) + r_k(p) + Q(p, j, F, k)    p < j < n
                                P(p, n, F)

where S, P, Q, w and r are those of `intervals`, everything is free in F, and k is a level on which
a checkpoint occupies no units. No range has more than `short` steps, because `intervals` splits
such ranges at every step. For example, if a checkpoint costs 1 s to write and 1 s to read, if a
step takes 2 s to advance and the register holds the tape of one step, then R(n - 1) = 0 and
R(n - 2) = 1 + 2 + 0 + 1 + 0 = 4 s.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ckio.planners.draft import Draft
from ckio.planners.varying.intervals import FreeSpace, IntervalCosts, RangeTables, Scale


class Leg(NamedTuple):
    """The steps from x_begin, which is stored, to x_end.

    `way` is the way in which x_begin is stored; `value` is the free space afterwards.
    """

    begin: int
    end: int
    way: int
    value: int


def sweep(finest: Scale, /) -> tuple[float, list[Leg]]:
    """Return R(0) in seconds, infinite if there is no sweep, and the legs of this sweep in order.

    `finest` is the finest scale of the chain. After the last leg x is not stored, and the rest of
    the chain is reversed first.
    """
    costs, before = finest.costs, finest.costs.before
    endless, steps = _endless_ways(costs, finest.space), len(before) - 1
    rest, legs = np.append(np.full(steps, np.inf), 0.0), [Leg(0, steps, 0, 0)] * steps
    for begin in reversed(range(steps if endless else 0)):
        tables, last = finest.around(begin), min(begin + finest.short, steps - 1)
        count, here = last - begin, begin - tables.begin
        if begin + finest.short >= steps:
            fresh = tables.fresh[steps - begin, steps - tables.begin, finest.space.count - 1]
            rest[begin] = fresh - before[begin]
        onward = before[begin + 1 : last + 1] - before[begin] + rest[begin + 1 : last + 1]
        for way, value in endless if count else ():
            seconds = onward + tables.stored[way][1 : count + 1, here, value]
            best = int(seconds.argmin())
            whole = seconds[best] + costs.write[finest.space.level[way, value], begin]
            if whole < rest[begin]:
                rest[begin], legs[begin] = whole, Leg(begin, begin + 1 + best, way, value)
    found, begin = list[Leg](), 0
    while legs[begin].end < steps:
        found.append(legs[begin])
        begin = legs[begin].end
    return float(rest[0]), found


def _endless_ways(costs: IntervalCosts, space: FreeSpace) -> list[tuple[int, int]]:
    """Return the ways to store on levels where no x occupies a unit, each with all space free."""
    never = costs.restart.max(axis=1) == 0
    return [
        (way, int(np.flatnonzero(levels == level)[-1]))
        for way, levels in enumerate(space.level)
        for level in np.unique(levels).tolist()
        if never[level]
    ]


_FRESH = -1
"""The value of `way` if x_p is not stored."""


@dataclass(frozen=True, slots=True)
class _Range:
    """A range to be reversed with the free space `value`; `way` tells how x_p is stored."""

    scale: Scale
    begin: int
    end: int
    value: int
    way: int = _FRESH

    @property
    def steps(self) -> tuple[int, int]:
        """The first step of the range, and the step after its last one."""
        return int(self.scale.at[self.begin]), int(self.scale.at[self.end])


@dataclass(frozen=True, slots=True)
class _Kept:
    """Steps [begin, end) whose tapes are stored on a level."""

    begin: int
    end: int
    level: int


class _Choice(NamedTuple):
    """A choice for x_p: the way to store it, and the point to advance to afterwards.

    With a split of 0 the tape is stored instead. With the way FRESH nothing is stored, and `value`
    is free space on nearer levels only.
    """

    seconds: float
    value: int
    way: int = _FRESH
    split: int = 0


class Unfolding:
    """Follows the best choices from the whole chain down to single steps.

    Attributes
    ----------
    seconds : float
        The time from the tables, without recording and reversing each step once; infinite if there
        is no schedule.
    draft : Draft
        The schedule.
    """

    def __init__(self, scale: Scale, numbers: list[int]) -> None:
        self.top, self.whole = scale, scale.whole()
        self.costs, self.space, self.numbers = scale.costs, scale.space, numbers
        last, everything = len(scale.at) - 1, self.space.count - 1
        self.seconds = float(self.whole.fresh[last, last, everything])
        self.draft = Draft()
        self.todo: list[_Range | _Kept] = [_Range(scale, 0, last, everything)]  # a stack
        if scale.finer is not None:
            self._sweep(scale.finer)
        while self.todo and np.isfinite(self.seconds):
            self._next()

    def _next(self) -> None:
        match self.todo.pop():
            case _Range() as left:
                while left.scale.finer is not None and left.scale.is_short(left.begin, left.end):
                    begin, end = left.scale.place[[left.begin, left.end]].tolist()
                    left = _Range(left.scale.finer, begin, end, left.value, left.way)
                if left.way == _FRESH:
                    self._fresh(left)
                else:
                    self._stored(left)
            case _Kept(begin, end, level):
                for step in reversed(range(begin, end)):
                    self.draft.spend_tape(step, level=level)

    def _sweep(self, finest: Scale) -> None:
        """Write the checkpoints of a first sweep if it is better; the last range comes next."""
        while finest.finer is not None:
            finest = finest.finer
        seconds, legs = sweep(finest)
        if seconds >= self.seconds:
            return
        self.seconds, self.todo, begin = seconds, [], 0
        for leg in legs:
            self.draft.write(leg.begin, level=self.numbers[self.space.level[leg.way, leg.value]])
            self.draft.advance(leg.begin, leg.end)
            self.todo.append(_Range(finest, leg.begin, leg.end, leg.value, leg.way))
            begin = leg.end
        self.todo.append(_Range(finest, begin, len(finest.at) - 1, self.space.count - 1))

    def _fresh(self, left: _Range) -> None:
        at, end = left.steps
        if end <= self.costs.reach[at]:
            self.draft.record(at, end)
            self.draft.reverse(at, end)
            return
        best = min(self._choices(left), key=lambda choice: choice.seconds)
        if best.way == _FRESH:
            self.todo.append(replace(left, value=best.value))
            return
        level = self.numbers[self.space.level[best.way, left.value]]
        if best.split:
            self.draft.write(at, level=level)
            self._go_on(replace(left, value=best.value, way=best.way), best.split)
        else:
            after = int(left.scale.at[left.begin + 1])
            for step in range(at, after):
                self.draft.store_tape(step, level=level)
            self.todo.append(_Kept(at, after, level))
            self.todo.append(replace(left, begin=left.begin + 1, value=best.value))

    def _choices(self, left: _Range) -> Iterator[_Choice]:
        """Yield the choices for a fresh range whose tapes do not fit into the register."""
        tables, costs = self._tables(left), self.costs
        at, after = left.scale.at[[left.begin, left.begin + 1]].tolist()
        length, last = left.end - left.begin, left.end - tables.begin
        for way in range(len(self.space.level)):
            level, free = self.space.level[way, left.value], self.space.free[way, left.value]
            if (units := costs.restart[level, at]) <= free:
                value = int(left.value - units * self.space.stride[level])
                seconds, split = tables.split(way, value, left.begin, left.end)
                yield _Choice(seconds + costs.write[level, at], value, way, split)
            units = costs.tape[level, after] - costs.tape[level, at]
            if costs.tapes and length > 1 and units <= free:
                value = int(left.value - units * self.space.stride[level])
                kept = costs.keep[level, after] - costs.keep[level, at]
                moved = costs.before[after] - costs.before[at]
                yield _Choice(kept - moved + tables.fresh[length - 1, last, value], value, way)
        for values, lower in self.space.down:
            if values.start <= left.value < values.stop:
                yield _Choice(tables.fresh[length, last, lower], lower)

    def _stored(self, left: _Range) -> None:
        at, end = left.steps
        level = self.space.level[left.way, left.value]
        self.draft.read(at, level=self.numbers[level])
        tables = self._tables(left)
        seconds, split = tables.split(left.way, left.value, left.begin, left.end)
        back = int(left.value + self.costs.restart[level, at] * self.space.stride[level])
        fresh = tables.fresh[left.end - left.begin, left.end - tables.begin, back]
        if end <= self.costs.reach[at] or fresh < seconds:
            self.draft.discard(at, level=self.numbers[level])
            self.todo.append(replace(left, value=back, way=_FRESH))
        else:
            self._go_on(left, split)

    def _go_on(self, left: _Range, split: int) -> None:
        """Go forward from the stored x_p to the split; the right part is next, then the left."""
        self.draft.advance(*replace(left, end=split).steps)
        self.todo.append(replace(left, end=split))
        self.todo.append(replace(left, begin=split, way=_FRESH))

    def _tables(self, left: _Range) -> RangeTables:
        return self.whole if left.scale is self.top else left.scale.around(left.begin)
