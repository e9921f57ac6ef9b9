"""Plans for overlap on a grid of scaled platforms, in addition to those of the dual.

The dual determines how much to store on each level, but not when, and some plans are the best at no
multipliers. Therefore plans are also made for platforms

* on which each far transfer costs a fraction of its time, because the computation continues during
  the rest;
* on which the first sweep writes no more to a channel than it can within a part of its own time.

Segments of a first sweep that need no memory are also distributed evenly among the others, so that
channels are busy all the time. The best plans are varied: with the space of a few checkpoints left
free in memory, which staged writes and reads ahead use; and with the segments of the first sweep
halved as long as the plan becomes better, because short segments use the channels more evenly.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from math import inf
from typing import Final, NamedTuple

import numpy as np

from ckio.actions.columns import DISCARD, REVERSE, WRITE
from ckio.planners.dp.sweep import Seconds, Stretch
from ckio.planners.overlap.dual import DualPlan, Limits, Problem
from ckio.schedule import Schedule

_FRACTIONS: Final = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
"""Program seconds for one second of a channel."""

_PARTS: Final = (inf, 1.4, 1.0, 0.7, 0.5)
"""Parts of the time of the first sweep during which each channel may write."""

_RESERVES: Final = (0, 1, 2)
"""Checkpoints that memory leaves free."""

_VARIED: Final = 6
"""The number of plans that are varied."""

Quotas = tuple[int | None, ...]


class _Point(NamedTuple):
    """A plan of the grid, its seconds, and the fraction and quotas for which it was made."""

    seconds: float
    plan: DualPlan
    fraction: float
    quotas: Quotas


def grid(problem: Problem, simulate: Callable[[Schedule], float], /) -> Iterator[float]:
    """Simulate all plans, and yield the part of the work that is done several times, 0 first."""
    yield 0.0
    points = dict[float, _Point]()
    quotas = dict.fromkeys(_quotas(problem, part) for part in _PARTS)
    for number, fraction in enumerate(_FRACTIONS, 1):
        for quota in quotas:
            plan = _plan(problem, fraction, Limits(quotas=quota))
            if plan is not None:
                seconds = _simulate(problem, plan, simulate)
                points.setdefault(seconds, _Point(seconds, plan, fraction, quota))
        yield 0.5 * number / len(_FRACTIONS)
    best = [points[seconds] for seconds in sorted(points)[:_VARIED]]
    for number, (point, reserve) in enumerate(product(best, _reserves(problem)), 1):
        _halve(problem, point, reserve, simulate)
        yield 0.5 + 0.5 * number / (len(best) * len(_reserves(problem)))


def _plan(problem: Problem, fraction: float, limits: Limits) -> DualPlan | None:
    return problem.plan(np.array([[1.0] + [fraction] * len(problem.channels)] * 2), limits)


def _simulate(problem: Problem, plan: DualPlan, simulate: Callable[[Schedule], float]) -> float:
    """Return the least seconds of a plan, with its segments as they are or spread."""
    segments = _spread(problem, plan)
    seconds = simulate(plan.schedule)
    return seconds if segments is None else min(seconds, simulate(plan.reordered(segments)))


def _halve(
    problem: Problem, point: _Point, reserve: int, simulate: Callable[[Schedule], float]
) -> None:
    """Simulate a plan of the grid with a reserve, and with shorter and shorter segments."""
    limits, least = Limits(reserve, point.quotas), inf
    while (plan := _plan(problem, point.fraction, limits)) is not None:
        seconds = _simulate(problem, plan, simulate)
        longest = max((it.steps for it in plan.segments), default=0) // 2
        if seconds >= least or not longest:
            return
        limits, least = Limits(reserve, point.quotas, longest), seconds


def _reserves(problem: Problem) -> list[int]:
    """Return the bytes of memory that are left free; a checkpoint fits in the rest of it."""
    largest = max(problem.kinds)
    return [it * largest for it in _RESERVES if not it or it * largest < (problem.room or 0)]


def _quotas(problem: Problem, part: float) -> Quotas:
    """Return the bytes that can be written to each far level in part of the first sweep's time.

    A channel's time is given to its nearest level first. The result is empty if there is no quota.

    For example, 100 steps of 1 s and a level that takes 2 s to write a state of 10 bytes: half of
    the time suffices for 25 states, 250 bytes.
    """
    if part == inf:
        return ()
    kinds, quotas = len(problem.kinds), list[int | None]()
    left = [part * problem.chain.length * problem.chain.advance] * len(problem.channels)
    for at, level in enumerate(problem.platform.levels):
        channel = int(problem.of_level[at])
        rate = float((problem.costs.moved[at, 0, :kinds] / np.maximum(problem.kinds, 1)).min())
        if channel < 0 or not rate:
            quotas.append(None)
            continue
        most = left[channel] / rate
        most = most if level.capacity is None else min(most, level.capacity)
        quotas.append(int(most) if most >= min(problem.kinds) else None)
        left[channel] -= most * rate
    return tuple(quotas)


@dataclass(frozen=True)
class _Use:
    """Bytes that a segment adds to each level in the first sweep, its peak, and its seconds."""

    added: Seconds
    peak: Seconds
    seconds: float


def _use(problem: Problem, plan: DualPlan, segment: Stretch) -> _Use:
    chain, levels = problem.chain, problem.platform.levels
    _, (op, kind, level, begin, end) = plan.tables.rows(segment)
    sizes = np.array([[it.stored(chain.restart), it.stored(chain.tape)] for it in levels])
    added, peak = np.zeros((2, len(levels)))
    own = plan.tables.level(segment)
    added[own] = sizes[own, int(segment.steps == 0)]
    is_tape = (kind != kind[0]) if segment.steps else np.ones(len(kind), bool)
    change = np.where(op == WRITE, 1, np.where(op == DISCARD, -1, 0))
    for at in range(len(levels)):
        here = (op >= WRITE) & (level == at)
        held = np.cumsum(np.where(here, change * sizes[at][is_tape.astype(int)], 0))
        peak[at] = added[at] + held.max(initial=0)
    each = np.array([chain.advance, chain.record, chain.reverse])
    spans = op <= REVERSE
    seconds = float(((end - begin)[spans] * each[op[spans]]).sum())
    first = max(1, segment.steps) * (chain.advance if segment.steps else chain.record)
    return _Use(added, peak, seconds + first)


def _spread(problem: Problem, plan: DualPlan) -> list[Stretch] | None:
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
    level = np.array([plan.tables.level(it) for it in segments])
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
