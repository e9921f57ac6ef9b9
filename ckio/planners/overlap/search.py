"""The search for the best plan with overlap: plans of the dual, small changes, and simulation.

The dual determines how much to store on each level, but not when. Therefore the search also tries
plans that

* keep some bytes of memory free for staged checkpoints;
* limit the bytes on a level by quotas, because some plans are the best at no prices;
* distribute the far segments of the first sweep among the others, so that channels are evenly busy.

All of them are simulated with several policies.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Final, TypeAlias

import numpy as np

from ckio.actions.columns import DISCARD, REVERSE, WRITE
from ckio.planners.dp.sweep import Seconds, Stretch
from ckio.planners.overlap.dual import Choice, Dual, DualPlan, Problem
from ckio.planners.overlap.race import Race

_CLOSE: Final = 1.002
"""The search ends if the best plan is within this factor of the lower bound."""

_POWERS: Final = (1.0, 1.5)
"""Exponents for the positions of segments in the first sweep: evenly, or more of them early."""

_QUOTAS: Final = (1.0, 0.8)
"""Fractions of a phase's seconds in which channels may be busy."""

_RESERVES: Final = (0.1, 0.25, 0.5)
"""Fractions of memory that are kept free of checkpoints."""

_BACK: Final = (0.02, 0.1)
"""Prices in phase b, in addition to those of the dual: program seconds for a channel second."""

_AHEAD, _LEAST = 0.005, 0.01
"""The price in phase f, where quotas limit the writes; the least price taken from the dual."""

_LONGEST: Final = (None, 2, 6, 20)
"""Upper limits for the steps of a segment; None is no limit."""

_FACTORS: Final = (4.0, 1.6, 1.2)
"""Factors by which a price is changed in one step of the search."""


Asked: TypeAlias = tuple[Seconds, Choice]
"""The prices of a plan, and its limits."""

Change: TypeAlias = Callable[[DualPlan], Asked | None]


class OverlapSearch:
    """The search over plans of the dual and their neighbours; a race simulates all of them."""

    def __init__(
        self,
        problem: Problem,
        race: Race,
        turns: int,
        watch: Callable[[float], None] | None = None,
    ) -> None:
        self.problem, self.race, self.turns = problem, race, turns
        self._watch, self._bound = watch, 0.0
        self._known: dict[tuple[object, ...], tuple[float, Asked]] = {}
        self._seconds: dict[tuple[object, ...], float] = {}
        near = problem.platform.levels[problem.near] if problem.near is not None else None
        room, largest = (near and near.capacity) or 0, max(problem.kinds)
        reserves = {min(problem.kinds), largest, 2 * largest}
        reserves |= {int(room * part) // max(largest, 1) * largest for part in _RESERVES}
        self.reserves = [0, *sorted(it for it in reserves if 0 < it < room)]

    def run(self, dual: Dual) -> None:
        """Try plans until one is close to the lower bound, or the number of turns is reached."""
        self._bound, count = dual.bound, len(self.problem.channels)
        phases = dual.load.max(axis=1)
        ahead = np.array([1.0] + [_AHEAD] * count)
        backs = [np.array([1.0] + [mu] * count) for mu in _BACK]
        backs.insert(0, np.maximum(dual.prices[1] / dual.prices[1, 0], _LEAST))
        for longest in _LONGEST:
            for back in backs:
                for part in _QUOTAS:
                    choice = Choice(quotas=_quotas(self.problem, phases, part), longest=longest)
                    self._attempt(np.array([ahead, back]), choice)
        starts = [asked for _, asked in sorted(self._known.values(), key=lambda it: it[0])[:2]]
        starts.append((dual.cuts[int(np.argmax(dual.weights))].prices, Choice()))
        for number, start in enumerate(starts):
            if self._done:
                return
            plan = self.problem.plan(*start)
            if plan is not None:
                left = self.turns - len(self._known)
                self._descend(plan, len(self._known) + left // (len(starts) - number))

    def look(self, plan: DualPlan) -> float:
        """Return the least seconds of a plan, with its segments unchanged or spread."""
        key = plan.sweep.segments, plan.tables.costs
        if key not in self._seconds:
            self._seconds[key] = self._seconds_of(plan)
        return self._seconds[key]

    @property
    def _done(self) -> bool:
        close = self.race.seconds <= self._bound * _CLOSE
        return close or len(self._known) >= self.turns

    def _seconds_of(self, plan: DualPlan) -> float:
        seconds = self.race.enter(plan.schedule, "a plan made for overlap")
        if plan.least < self.race.seconds:
            for power in _POWERS:
                segments = _spread(self.problem, plan, power)
                if segments is not None:
                    sweep = replace(plan.sweep, segments=segments)
                    schedule = self.problem.schedule(plan.tables, sweep)
                    seconds = min(seconds, self.race.enter(schedule, "a plan made for overlap"))
        return seconds

    def _attempt(self, prices: Seconds, choice: Choice) -> tuple[float, DualPlan | None]:
        prices = prices / prices.sum(axis=1, keepdims=True)
        key = np.round(prices, 4).tobytes(), choice
        if key in self._known or self._done:
            return inf, None
        if self._watch is not None:
            self._watch(0.4 + 0.6 * len(self._known) / self.turns)
        plan = self.problem.plan(prices, choice)
        seconds = self.look(plan) if plan is not None else inf
        self._known[key] = seconds, (prices, choice)
        return seconds, plan

    def _descend(self, start: DualPlan, limit: int) -> None:
        """Repeat each kind of change while the plan improves, with smaller and smaller factors."""
        now, seconds = start, self.look(start)
        for factor in _FACTORS:
            moved = True
            while moved:
                moved = False
                for change in self._changes(now, factor):
                    while (asked := change(now)) is not None:
                        if self._done or len(self._known) >= limit:
                            return
                        taken, plan = self._attempt(*asked)
                        if plan is None or taken >= seconds * (1 - 1e-6):
                            break
                        now, seconds, moved = plan, taken, True

    def _changes(self, plan: DualPlan, factor: float) -> list[Change]:
        """Return the changes to try: to the longest segment, a quota, the reserve or a price."""
        left = _left(self.problem, plan)
        far = [at for at, channel in enumerate(self.problem.of_level) if channel >= 0 and left[at]]
        changes: list[Change] = []
        for by in (factor**-0.5, factor**0.5):
            changes += [partial(self._longest, by), *(partial(self._quota, at, by) for at in far)]
        changes += [partial(self._reserve, 1), partial(self._reserve, -1)]
        used = np.flatnonzero(plan.cut.load[:, 1:].sum(axis=0)) + 1
        for channel in used.tolist():
            for rows in ([1], [0]):
                changes += [partial(_price, rows, channel, by) for by in (factor, 1 / factor)]
        return changes

    def _longest(self, by: float, plan: DualPlan) -> Asked | None:
        taken = max((it.steps for it in plan.sweep.segments), default=0)
        longest = int((plan.choice.longest or taken) * by)
        if longest < 2 or (by > 1 and plan.choice.longest is None):
            return None
        return plan.cut.prices, replace(plan.choice, longest=longest)

    def _quota(self, at: int, by: float, plan: DualPlan) -> Asked | None:
        quotas = plan.choice.quotas or (None,) * len(self.problem.platform.levels)
        quota = quotas[at]
        nbytes = int((_left(self.problem, plan)[at] if quota is None else quota) * by)
        if not nbytes or (by > 1 and quota is None):
            return None
        quotas = (*quotas[:at], nbytes, *quotas[at + 1 :])
        return plan.cut.prices, replace(plan.choice, quotas=quotas)

    def _reserve(self, by: int, plan: DualPlan) -> Asked | None:
        place = self.reserves.index(plan.choice.reserve) + by
        if not 0 <= place < len(self.reserves):
            return None
        return plan.cut.prices, replace(plan.choice, reserve=self.reserves[place])


def _price(rows: list[int], channel: int, by: float, plan: DualPlan) -> Asked | None:
    prices = plan.cut.prices.copy()
    prices[rows, channel] *= by
    return (prices, plan.choice) if 1e-6 < prices[rows, channel].max() < 20 else None


def _quotas(problem: Problem, phases: Seconds, part: float) -> tuple[int | None, ...]:
    """Return the bytes that can be written to and read from each far level in part of the phases.

    `phases` are the seconds of both phases; `part` is the fraction of them in which channels may be
    busy. A channel's time is given to its nearest level first.
    """
    kinds, quotas = len(problem.kinds), list[int | None]()
    left = {channel: np.array(part * phases) for channel in range(len(problem.channels))}
    for at, level in enumerate(problem.platform.levels):
        channel = int(problem.of_level[at])
        moved = problem.costs.moved[at, :2, :kinds] / np.maximum(problem.kinds, 1)
        rates = moved.min(axis=1)
        if channel < 0 or not rates.all():
            quotas.append(None)
            continue
        most = float((left[channel] / rates).min())
        most = most if level.capacity is None else min(most, level.capacity)
        quotas.append(int(most) if most >= min(problem.kinds) else None)
        left[channel] = np.maximum(left[channel] - most * rates, 0.0)
    return tuple(quotas)


def _left(problem: Problem, plan: DualPlan) -> list[int]:
    """Return the bytes stored on each level at the end of the first sweep."""
    left = [0] * len(problem.platform.levels)
    for it in plan.sweep.segments:
        at = plan.tables.level(it)
        nbytes = problem.chain.restart if it.steps else problem.chain.tape
        left[at] += problem.platform.levels[at].stored(nbytes)
    return left


@dataclass(frozen=True)
class _Use:
    """Bytes on each level that a segment adds in the first sweep, its peak, and its seconds."""

    left: Seconds
    peak: Seconds
    seconds: float


def _use(problem: Problem, plan: DualPlan, segment: Stretch) -> _Use:
    chain, levels = problem.chain, problem.platform.levels
    _, (op, kind, level, begin, end) = plan.tables.rows(segment)
    sizes = np.array([[it.stored(chain.restart), it.stored(chain.tape)] for it in levels])
    left, peak = np.zeros((2, len(levels)))
    left[plan.tables.level(segment)] = sizes[plan.tables.level(segment), int(segment.steps == 0)]
    taped = (kind != kind[0]) if segment.steps else np.ones(len(kind), bool)
    change = np.where(op == WRITE, 1, np.where(op == DISCARD, -1, 0))
    for at in range(len(levels)):
        here = (op >= WRITE) & (level == at)
        held = np.cumsum(np.where(here, change * sizes[at][taped.astype(int)], 0))
        peak[at] = left[at] + held.max(initial=0)
    each = np.array([chain.advance, chain.record, chain.reverse])
    spans = op <= REVERSE
    seconds = float(((end - begin)[spans] * each[op[spans]]).sum())
    first = max(1, segment.steps) * (chain.advance if segment.steps else chain.record)
    return _Use(left, peak, seconds + first)


def _spread(problem: Problem, plan: DualPlan, power: float) -> tuple[Stretch, ...] | None:
    """Return the segments with those that need no memory spread evenly; None if none can move."""
    segments, near = plan.sweep.segments, problem.near
    uses = {it: _use(problem, plan, it) for it in dict.fromkeys(segments)}
    light = np.array([near is None or uses[it].peak[near] == 0 for it in segments], bool)
    floating, fixed = np.flatnonzero(light), np.flatnonzero(~light)
    if not len(floating) or not len(fixed):
        return None
    clock = np.cumsum([uses[segments[at]].seconds for at in fixed])
    keys = np.empty(len(segments))
    keys[fixed] = np.append(0.0, clock[:-1])
    level = np.array([plan.tables.level(it) for it in segments])
    for number in np.unique(level[floating]):
        mine = floating[level[floating] == number]
        keys[mine] = clock[-1] * ((np.arange(len(mine)) + 0.5) / len(mine)) ** power
    order = np.lexsort((np.arange(len(segments)), keys))
    if (order == np.arange(len(order))).all():
        return None
    ordered = tuple(segments[at] for at in order)
    held = np.cumsum([uses[it].left for it in ordered], axis=0)
    peak = held - [uses[it].left for it in ordered] + [uses[it].peak for it in ordered]
    limits = [inf if it.capacity is None else it.capacity for it in problem.platform.levels]
    return ordered if (peak <= limits).all() else None
