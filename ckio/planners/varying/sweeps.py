"""A long chain on levels that never fill: checkpoints there all along, close to one another.

A long range of `intervals` is split at points that are some steps apart, so that the steps between
them are repeated. Where a level always has room it may be better to leave a checkpoint there every
few steps in one sweep to the end. With all of the room F free, the same S, P, Q, w and r, and k
only for levels of which a checkpoint takes no units, the best of these is

    R(p) = min over k and j of  w_k(p) + S_j - S_p + R(j) + r_k(p) + Q(p, j, F, k)    p < j < n
                                P(p, n, F)

with no range of more than `short` steps: those that `intervals` splits anywhere.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ckio.planners.varying.freeroom import FreeRoom
from ckio.planners.varying.intervals import Costs, Scale


class Leg(NamedTuple):
    """From x_begin, which is stored in a way, to x_end; all of this room is free afterwards."""

    begin: int
    end: int
    way: int
    room: int


@dataclass(frozen=True)
class Sweep:
    """The best sweep.

    Attributes
    ----------
    scale : Scale
        The finest, to which it belongs.
    seconds : float
        R(0); infinite where there is no sweep.
    legs : tuple of Leg
        From x_0 on; the range after the last one is not stored, and is reversed first.
    """

    scale: Scale
    seconds: float
    legs: tuple[Leg, ...]


def sweep(finest: Scale, /) -> Sweep:
    """R(0) of a chain, whose finest scale this is."""
    costs, before = finest.costs, finest.costs.before
    homes, steps = _homes(costs, finest.room), len(before) - 1
    rest, legs = np.append(np.full(steps, np.inf), 0.0), [Leg(0, steps, 0, 0)] * steps
    for begin in reversed(range(steps if homes else 0)):
        tables, last = finest.around(begin), min(begin + finest.short, steps - 1)
        count, here = last - begin, begin - tables.begin
        if begin + finest.short >= steps:
            fresh = tables.fresh[steps - begin, steps - tables.begin, finest.room.count - 1]
            rest[begin] = fresh - before[begin]
        onward = before[begin + 1 : last + 1] - before[begin] + rest[begin + 1 : last + 1]
        for way, room in homes if count else ():
            seconds = onward + tables.stored[way][1 : count + 1, here, room]
            best = int(seconds.argmin())
            whole = seconds[best] + costs.write[finest.room.level[way, room], begin]
            if whole < rest[begin]:
                rest[begin], legs[begin] = whole, Leg(begin, begin + 1 + best, way, room)
    return Sweep(finest, float(rest[0]), _followed(legs))


def _homes(costs: Costs, room: FreeRoom) -> list[tuple[int, int]]:
    """The ways to store where no x takes room, each with the room that is all free."""
    never = costs.restart.max(axis=1) == 0
    return [
        (way, int(np.flatnonzero(levels == level)[-1]))
        for way, levels in enumerate(room.level)
        for level in np.unique(levels).tolist()
        if never[level]
    ]


def _followed(legs: list[Leg]) -> tuple[Leg, ...]:
    """Those that are met on the way from x_0."""
    found, begin = [], 0
    while legs[begin].end < len(legs):
        found.append(legs[begin])
        begin = legs[begin].end
    return tuple(found)
