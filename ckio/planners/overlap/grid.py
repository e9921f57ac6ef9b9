"""Plans for overlap on a grid of scaled platforms, in addition to those of the dual.

The dual determines how much to store on each level, but not when, and some plans are the best at no
multipliers. Therefore plans are also made for platforms on which each far transfer costs a fraction
of its time, because the computation continues during the rest. Of these platforms,

* memory has the space of a few checkpoints less, which staged writes and reads ahead use;
* far levels have no more space than their channel can fill while the first sweep computes.

Segments of a first sweep that need no memory are also distributed evenly among the others, so that
channels are busy all the time. If states are stored alone, for the same reason, plans are also made
whose segments have no more steps than are computed during one transfer.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from math import inf
from typing import Final

import numpy as np

from ckio.actions import Kind
from ckio.actions.columns import DISCARD, KIND_CODE, REVERSE, WRITE
from ckio.planners.base import Seconds
from ckio.planners.dp.unroll import Segment
from ckio.planners.overlap.dual import Capacities, DualPlan, Problem
from ckio.schedule import Schedule

_FRACTIONS: Final = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
"""Cost of a second of a channel in seconds of the program; with less, more is stored far."""

_PARTS: Final = (inf, 1.0, 1.3)
"""Space on far levels: what a channel writes in this part of the seconds of all forward steps, of
which some are recorded and take longer.
"""

_RESERVES: Final = (0, 1, 2)
"""Checkpoints that memory leaves free."""


def grid(problem: Problem, simulate: Callable[[Schedule], float], /) -> Iterator[float]:
    """Simulate all plans, and yield the part of the work that is done several times, 0 first."""
    yield 0.0
    points = list(product(_FRACTIONS, _capacities(problem), _longest(problem)))
    for number, (fraction, capacities, longest) in enumerate(points, 1):
        multipliers = np.array([[1.0] + [fraction] * len(problem.channels)] * 2)
        if (plan := problem.plan(multipliers, capacities, longest)) is not None:
            simulate(plan.schedule)
            if (segments := _spread(problem, plan)) is not None:
                simulate(problem.schedule(plan.unrolling, segments))
        yield number / len(points)


def _capacities(problem: Problem) -> list[Capacities]:
    """Return the capacities of the platforms of the grid, without those that are negative.

    For example, 100 steps of 1 s write 50 checkpoints to a level of 2 s for each.
    """
    chain, largest = problem.chain, max(problem.kinds)
    each = problem.costs.moved[:, 0, : len(problem.kinds)] / np.maximum(problem.kinds, 1)
    found = dict[Capacities, None]()
    for part, reserve in product(_PARTS, _RESERVES):
        left = [part * chain.length * chain.advance] * len(problem.channels)
        capacities = list[int | None]()
        for at, level in enumerate(problem.platform.levels):
            most = inf if level.capacity is None else level.capacity
            channel, seconds = problem.of_level[at], each[at].min()
            if at == problem.near:
                most -= reserve * largest
            elif part < inf and seconds:
                most = min(most, left[channel] // seconds)
                left[channel] -= most * seconds
            capacities.append(None if most == inf else int(most))
        if all(it is None or it >= 0 for it in capacities):
            found[tuple(capacities)] = None
    return list(found)


def _longest(problem: Problem) -> list[int | None]:
    """Return the most steps in a segment: any number, or as many as are computed in a transfer."""
    if problem.tapes or not problem.chain.advance:
        return [None]
    steps = problem.costs.moved[problem.of_level >= 0, 0, 0] / problem.chain.advance
    return [None, *sorted({max(1, round(it)) for it in steps if it < problem.chain.length})]


@dataclass(frozen=True)
class _Use:
    """Bytes that a segment adds to each level in the first sweep, its peak, and its seconds."""

    added: Seconds
    peak: Seconds
    seconds: float


def _use(problem: Problem, plan: DualPlan, segment: Segment) -> _Use:
    chain, levels = problem.chain, problem.platform.levels
    back, is_a_tape = plan.unrolling.reversal(segment), segment.kind is Kind.TAPE
    sizes = np.array([[it.stored(chain.restart), it.stored(chain.tape)] for it in levels])
    added, peak = np.zeros((2, len(levels)))
    own = plan.unrolling.level(segment)
    added[own] = sizes[own, int(is_a_tape)]
    kind = back.kind == KIND_CODE[Kind.TAPE]
    change = np.where(back.op == WRITE, 1, np.where(back.op == DISCARD, -1, 0))
    for at in range(len(levels)):
        here = (back.op >= WRITE) & (back.level == at)
        held = np.cumsum(np.where(here, change * sizes[at][kind.astype(int)], 0))
        peak[at] = added[at] + held.max(initial=0)
    each = np.array([chain.advance, chain.record, chain.reverse])
    spans = back.op <= REVERSE
    seconds = float(((back.end - back.begin)[spans] * each[back.op[spans]]).sum())
    first = segment.steps * (chain.record if is_a_tape else chain.advance)
    return _Use(added, peak, seconds + first)


def _spread(problem: Problem, plan: DualPlan) -> list[Segment] | None:
    """Return the segments with those that need no memory spread evenly; None if none can move.

    The others keep their order, and their seconds are the clock. For example, of the segments f f a
    b, where a and b use memory and take 10 s each, f and f come at 5 s and 15 s: a f b f.
    """
    segments, near = plan.segments, problem.near
    uses = {it: _use(problem, plan, it) for it in dict.fromkeys(segments)}
    free = np.array([near is None or uses[it].peak[near] == 0 for it in segments], bool)
    moving, fixed = np.flatnonzero(free), np.flatnonzero(~free)
    if not len(moving) or not len(fixed):
        return None
    clock = np.cumsum([uses[segments[at]].seconds for at in fixed])
    times = np.empty(len(segments))
    times[fixed] = np.append(0.0, clock[:-1])
    level = np.array([plan.unrolling.level(it) for it in segments])
    for number in np.unique(level[moving]):
        mine = moving[level[moving] == number]
        times[mine] = clock[-1] * (np.arange(len(mine)) + 0.5) / len(mine)
    order = np.lexsort((np.arange(len(segments)), times))
    if (order == np.arange(len(order))).all():
        return None
    spread = [segments[at] for at in order]
    held = np.cumsum([uses[it].added for it in spread], axis=0)
    peak = held - [uses[it].added for it in spread] + [uses[it].peak for it in spread]
    limits = [inf if it.capacity is None else it.capacity for it in problem.platform.levels]
    return spread if (peak <= limits).all() else None
