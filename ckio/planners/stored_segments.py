"""Finish a very long chain from stored restart keys: those that are kept finish a segment each.

With the keys in the order of their steps, V_i(u) is the least that is to be paid for all steps
before e, that of key i, where it is the last that is kept, and u counts the keys kept by level:

    V_j(u + 1_j) = d_j + min over i with e_i < e_j:  V_i(u) + r_i + Q(e_j - e_i, u - 1_i, k_i)

and the last of them finishes what is left; Q is the recurrence of `mixed`. Where stored keys are
few to the room that there is, this is within a percent of the best, mostly; it never drops a key
before its segment is finished. Time is O(q^2) for each u and q keys.
"""

from collections.abc import Iterator, Sequence
from math import inf, prod

import numpy as np
from numpy.typing import NDArray

from ckio.planners.stored_rooms import Rooms
from ckio.planners.stored_sketch import Sketch
from ckio.planners.stored_stack import Item, Use

_Seconds = NDArray[np.float64]
_Numbers = NDArray[np.intp]

_Ending = tuple[float, int, int, list[Use]]
"""The seconds of a way to finish, the last item kept and the u of its V, and the first uses."""


class Segments:
    """The recurrence over the items, which are in the order of their steps."""

    def __init__(self, items: Sequence[Item], rooms: Rooms, sketch: Sketch, steps: int) -> None:
        self.items, self.sketch, self.steps = items, sketch, steps
        counts = [sum(item.place == place for item in items) for place in range(rooms.places)]
        self.shape = [min(count, rooms.slots(place)) + 1 for place, count in enumerate(counts)]
        self.vectors = np.indices(self.shape).reshape(len(self.shape), -1)
        self.room = [rooms.after(u) for u in self.vectors.T.tolist()]
        self.before = np.full((len(items), len(self.room)), inf)
        self.origin = np.full((len(items), len(self.room), 2), -1)
        self.at = np.array([item.step for item in items], np.intp)
        for number, item in enumerate(items):
            if item.step == 0:
                self._reach(np.array([number]), 0, np.zeros(1), (-1, 0))
        for number in range(len(items)):
            self._go_on(number)

    def _stride(self, place: int) -> int:
        return 0 if self.shape[place] == 1 else prod(self.shape[place + 1 :])

    def _go_on(self, i: int) -> None:
        """From V_i to all V_j."""
        later = np.arange(np.searchsorted(self.at, self.at[i], side="right"), len(self.items))
        for u in np.flatnonzero(np.isfinite(self.before[i])).tolist():
            seconds = self.before[i, u] + self._segment(i, u, self.at[later])
            self._reach(later, u, seconds, (i, u))

    def _reach(self, later: _Numbers, u: int, seconds: _Seconds, origin: tuple[int, int]) -> None:
        """What it takes to come to these items, with those counted in u kept before them."""
        for j, paid in zip(later.tolist(), seconds.tolist(), strict=True):
            place, extra = self.items[j].place, self.items[j].extra
            stride = self._stride(place)
            if stride and self.vectors[place, u] == self.shape[place] - 1:
                continue
            if paid + extra < self.before[j, u + stride]:
                self.before[j, u + stride] = paid + extra
                self.origin[j, u + stride] = origin

    def _segment(self, i: int, u: int, ends: _Numbers) -> _Seconds:
        """r_i + Q from item i to each of these ends."""
        item = self.items[i]
        return item.read + self.sketch.seconds(ends - item.step, self._own(i, u), item.place)

    def _own(self, i: int, u: int) -> int:
        """The room that those kept before an item leave, its own counted as free."""
        return self.room[u - self._stride(self.items[i].place)]

    def best(self, state: int | None, /) -> list[Use]:
        """How to finish in the least seconds, with this state in the register, if possible."""
        ways = list(self._endings())
        if state is not None:
            ways += self._started(state)
        if not ways:
            return []
        _, i, u, first = min(ways, key=lambda way: way[0])
        return [*first, *self._uses(i, u, first[-1].begin)]

    def _endings(self) -> Iterator[_Ending]:
        """All ways in which an item may be the last that is kept."""
        for i, u in np.argwhere(np.isfinite(self.before)).tolist():
            seconds = self.before[i, u] + self._segment(i, u, np.array([self.steps])).item()
            yield seconds, i, u, [self._use(i, u, self.steps)]

    def _started(self, state: int) -> Iterator[_Ending]:
        """Those in which the state that the register holds is used at once."""
        length = np.array([self.steps - state])
        if state == 0:
            first = Use(None, 0, self.steps, self.room[0])
            yield self.sketch.seconds(length, self.room[0]).item(), -1, 0, [first]
        for i, u in np.argwhere(np.isfinite(self.before)).tolist():
            if self.at[i] == state:
                place, room = self.items[i].place, self._own(i, u)
                seconds = self.before[i, u] + self.sketch.seconds(length, room, place).item()
                yield seconds, i, u, [Use(None, state, self.steps, room, place)]
            elif self.at[i] < state:
                seconds = self.before[i, u] + self._segment(i, u, np.array([state])).item()
                seconds += self.sketch.seconds(length, self.room[u]).item()
                first = Use(None, state, self.steps, self.room[u])
                yield seconds, i, u, [first, self._use(i, u, state)]

    def _uses(self, i: int, u: int, end: int) -> Iterator[Use]:
        """What comes before item i has been used, from right to left."""
        while i >= 0 and end:
            i, u = self.origin[i, u].tolist()
            if i >= 0:
                yield self._use(i, u, end)
                end = self.items[i].step

    def _use(self, i: int, u: int, end: int) -> Use:
        item = self.items[i]
        return Use(item, item.step, end, self._own(i, u), item.place)
