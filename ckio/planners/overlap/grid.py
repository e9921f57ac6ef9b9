"""Plans for overlap on a grid of scaled platforms, in addition to those of the dual.

The dual determines how much to store on each level, but not when, and some plans are the best at no
multipliers. Therefore plans are also made for platforms on which each far transfer costs a fraction
of its time, because the computation continues during the rest.

Segments of a first sweep that need no memory are also distributed evenly among the others, so that
channels are busy all the time. Every plan is also made with the space of a few checkpoints left
free in memory, which staged writes and reads ahead use.
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
from ckio.planners.overlap.dual import DualPlan, Problem
from ckio.schedule import Schedule

_FRACTIONS: Final = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
"""Cost of a second of a channel in seconds of the program; with less, more is stored far."""

_RESERVES: Final = (0, 1, 2)
"""Checkpoints that memory leaves free."""


def grid(problem: Problem, simulate: Callable[[Schedule], float], /) -> Iterator[float]:
    """Simulate all plans, and yield the part of the work that is done several times, 0 first."""
    yield 0.0
    points = list(product(_FRACTIONS, _reserves(problem)))
    for number, (fraction, reserve) in enumerate(points, 1):
        multipliers = np.array([[1.0] + [fraction] * len(problem.channels)] * 2)
        if (plan := problem.plan(multipliers, reserve)) is not None:
            simulate(plan.schedule)
            if (segments := _spread(problem, plan)) is not None:
                simulate(problem.schedule(plan.unrolling, segments))
        yield number / len(points)


def _reserves(problem: Problem) -> list[int]:
    """Return the bytes of memory that are left free; a checkpoint fits in the rest of it."""
    largest = max(problem.kinds)
    return [it * largest for it in _RESERVES if not it or it * largest < (problem.memory or 0)]


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
