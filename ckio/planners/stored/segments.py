"""Finish a very long chain from stored restart keys: those that are kept finish a segment each.

With the keys in the order of their steps, V_i(u) is the least that is to be paid for all steps
before e, that of key i, where it is the last that is kept, and u counts the keys kept by level:

    V_j(u + 1_j) = d_j + min over i with e_i < e_j:  V_i(u) + r_i + Q(e_j - e_i, u - 1_i, k_i)

and the last of them finishes what is left; Q is the recurrence of `mixed`. Where stored keys are
few to the room that there is, this is within a percent of the best, mostly; it never drops a key
before its segment is finished.

Of the keys before another, the nearest are tried, and ever fewer of the others; and where there are
too many u, all that lie on the largest levels count as kept. Time is O(q log q) for q keys.
"""

from collections.abc import Iterator, Sequence
from math import inf, prod

import numpy as np
from numpy.typing import NDArray

from ckio.planners.stored.rooms import Rooms
from ckio.planners.stored.sketch import Sketch
from ckio.planners.stored.stack import Item, Use

_Seconds = NDArray[np.float64]
_Numbers = NDArray[np.intp]

_Ending = tuple[float, int, int, list[Use]]
"""The seconds of a way to finish, the last item kept and the u of its V, and the first uses."""

_NEAREST = 32
"""So many keys before another are all tried; the others grow apart by an eighth."""

_MOST_VECTORS = 1024
"""So many u are told apart."""


class Segments:
    """The recurrence over the items, which are in the order of their steps."""

    def __init__(self, items: Sequence[Item], rooms: Rooms, sketch: Sketch, steps: int) -> None:
        self.sketch, self.steps = sketch, steps
        self.shape, self.items = _counted(items, rooms)
        self.vectors = np.indices(self.shape).reshape(len(self.shape), -1)
        self.at = np.array([item.step for item in self.items], np.intp)
        self.place = np.array([item.place for item in self.items], np.intp)
        self.reading = np.array([item.read for item in self.items])
        self._empty = rooms.after([0] * rooms.places)
        self._set_rooms(rooms)
        self.before = np.full((len(self.items), self.vectors.shape[1]), inf)
        self._offsets = _ever_fewer(len(self.items))
        for number in range(len(self.items)):
            self._reach(number)

    def _set_rooms(self, rooms: Rooms) -> None:
        """The room that those kept up to each item leave, and what it is without its own."""
        uncounted, known = [0] * len(self.shape), dict[tuple[int, ...], _Numbers]()
        shape = len(self.items), self.vectors.shape[1]
        self.left, self.own = np.empty(shape, np.intp), np.empty(shape, np.intp)

        def left() -> _Numbers:
            key = tuple(rooms.scarce(uncounted))
            if key not in known:
                kept = self.vectors.T + np.array(uncounted)
                known[key] = np.array([rooms.after(u) for u in kept.tolist()], np.intp)
            return known[key]

        for number, item in enumerate(self.items):
            stride = self._stride(item.place)
            self.own[number] = np.roll(left(), stride)
            uncounted[item.place] += stride == 0
            self.left[number] = left()

    def _stride(self, place: int) -> int:
        return 0 if self.shape[place] == 1 else prod(self.shape[place + 1 :])

    def _earlier(self, j: int) -> _Numbers:
        """The items from which an item is reached."""
        count = int(np.searchsorted(self.at, self.at[j]))
        return count - self._offsets[: np.searchsorted(self._offsets, count, side="right")]

    def _reach(self, j: int) -> None:
        """V_j, from all V_i."""
        item, earlier = self.items[j], self._earlier(j)
        stride = self._stride(item.place)
        if item.step == 0:
            self.before[j, stride] = item.extra
        elif len(earlier):
            least = item.extra + self._coming(earlier, item.step).min(axis=0)
            if stride:
                least = np.where(self.vectors[item.place] > 0, np.roll(least, stride), inf)
            self.before[j] = least

    def _coming(self, i: _Numbers, end: int) -> _Seconds:
        """V_i + r_i + Q up to this end, for every u; a row for each of these items."""
        again = self.sketch.again(end - self.at[i], self.own[i], self.place[i])
        coming: _Seconds = self.before[i] + self.reading[i, None] + again
        return coming

    def best(self, state: int | None, /) -> list[Use]:
        """How to finish in the least seconds, with this state in the register, if possible."""
        ways = [way for way in self._ways(state) if way[0] < inf]
        if not ways:
            return []
        _, i, u, first = min(ways, key=lambda way: way[0])
        return [*first, *self._uses(i, u, first[-1].begin)]

    def _ways(self, state: int | None) -> Iterator[_Ending]:
        items = np.arange(len(self.items))
        if len(items):
            seconds, i, u = _least(self._coming(items, self.steps))
            yield seconds, i, u, [self._use(i, u, self.steps)]
        if state == 0:
            first = Use(None, 0, self.steps, self._empty)
            yield self.sketch.seconds(self.steps, self._empty), -1, 0, [first]
        if state is not None:
            yield from self._started(state, self.steps - state)

    def _started(self, state: int, length: int) -> Iterator[_Ending]:
        """Those in which the state that the register holds is used at once, with items kept."""
        here = np.flatnonzero(self.at == state)
        if len(here):
            lengths = np.full(len(here), length)
            again = self.sketch.again(lengths, self.own[here], self.place[here])
            seconds, row, u = _least(self.before[here] + again)
            i = int(here[row])
            own = int(self.own[i, u])
            yield seconds, i, u, [Use(None, state, self.steps, own, self.items[i].place)]
        below = np.flatnonzero(self.at < state)
        if len(below):
            fresh = self.sketch.fresh_seconds(length, self.left[below])
            seconds, i, u = _least(self._coming(below, state) + fresh)
            first = Use(None, state, self.steps, int(self.left[i, u]))
            yield seconds, i, u, [first, self._use(i, u, state)]

    def _uses(self, i: int, u: int, end: int) -> Iterator[Use]:
        """What comes before item i has been used, from right to left."""
        while i >= 0 and (end := min(end, self.items[i].step)):
            earlier = self._earlier(i)
            u -= self._stride(self.items[i].place)
            i = int(earlier[self._coming(earlier, end)[:, u].argmin()])
            yield self._use(i, u, end)

    def _use(self, i: int, u: int, end: int) -> Use:
        item = self.items[i]
        return Use(item, item.step, end, int(self.own[i, u]), item.place)


def _counted(items: Sequence[Item], rooms: Rooms) -> tuple[list[int], list[Item]]:
    """How many numbers of kept items are told apart on each level, and the items that may be kept.

    Where all on a level count as kept, none are brought there that may not fit.
    """
    slots = [rooms.slots(place) for place in range(rooms.places)]
    counts = [sum(item.place == place for item in items) for place in range(rooms.places)]
    shape = [1 + min(pair) for pair in zip(counts, slots, strict=True)]
    full = set[int]()
    while prod(shape) > _MOST_VECTORS:
        largest = shape.index(max(shape))
        shape[largest] = 1
        full |= {largest} if counts[largest] > slots[largest] else set()
    return shape, [item for item in items if item.place not in full or item.source == item.level]


def _ever_fewer(most: int) -> _Numbers:
    """1, 2, 3 and so on, and then numbers that are ever further apart."""
    numbers = [1]
    while numbers[-1] < most:
        numbers.append(numbers[-1] + 1 + max(0, numbers[-1] - _NEAREST) // 8)
    return np.array(numbers, np.intp)


def _least(seconds: _Seconds) -> tuple[float, int, int]:
    """The least, its row and its column."""
    row, column = divmod(int(seconds.argmin()), seconds.shape[1])
    return float(seconds[row, column]), row, column
