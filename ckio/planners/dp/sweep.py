"""The first sweep of a long chain if sizes differ, from tables of its segments.

The first sweep divides a chain into segments. A segment of d steps begins with a restart
checkpoint, or it is one step whose tape is stored. With Q from the tables of `mixed`, it costs

    phi_k,f(d) = d u_f + w_k + r_k + Q_k,f(d),     or w'_k + r'_k for the tape of one step,

where f restart checkpoints fit on level k at the begin of the segment, or t_f tapes instead. Let
each step be worth theta seconds. Then the best way to fill a level does not depend on the length of
the chain,

    W_k(f) = min(t_f min(0, w'_k + r'_k - theta),  min_d phi_k,f(d) - theta d + W_k(f - 1)),

and theta (n - h) + sum_k W_k(empty) is a lower bound of the seconds of all hierarchical plans of n
steps, because the last h steps cost nothing, and theta is a Lagrange multiplier of the length
(Everett, 1963). At the optimal multiplier two fillings have the same worth: one covers at least n
steps, the other fewer. The sweep follows the first one while more than some f is free, and then the
second one; each is optimal from any f. Of these f the greatest is taken with which the sweep covers
n steps. It covers at most about a segment more, and segments are made shorter to fit. The sweep is
at most `Sweep.cost` - `Sweep.bound` above the optimum.

For example, let a level store two states at no cost, let a step take 1 s, and h = 1. Segments cost
phi_2(d) = 1, 3, 5, 8 (the advance to their end and, for d = 2, one more step) and phi_1(d) = 1, 3,
6. At theta = 2 s, segments of 1, 2 and, with two free slots, 3 steps are equally good. Therefore
sweeps of 3, 4, 5 and 6 steps, the last step without a checkpoint, cost 2, 4, 6 and 8 s, and no
sweep can cost less.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import groupby
from math import inf
from typing import Final, NamedTuple

import numpy as np

from ckio.actions import Kind
from ckio.planners.base import Ints, Seconds
from ckio.planners.dp.costs import INFEASIBLE
from ckio.planners.dp.recurrence import Table
from ckio.planners.dp.segments import MOST_CELLS, LongPlan, Solve
from ckio.planners.dp.spaces import Space
from ckio.planners.dp.unroll import Segment

_ROUNDS: Final = 80
"""The most rounds of the search for theta; usually it ends after ten or twenty."""

_SHORTEST: Final = 512
"""The longest segment, in steps, of the first tables."""

_STOP: Final = -1
"""The choice to store nothing more on a level; 0 is as many tapes as fit, and d > 0 a segment of d
steps."""


class SweepCosts(NamedTuple):
    """Costs of the first sweep and of its checkpoints, in the unit of `SegmentTables.stored`.

    Attributes
    ----------
    restart, tape : float arrays, by stage
        To write, read and discard one checkpoint.
    move : float
        To go forward over one step.
    at_end : float
        For each of the last steps, which are recorded and reversed without a checkpoint.
    """

    restart: Seconds
    tape: Seconds
    move: float
    at_end: float


@dataclass(frozen=True)
class Sweep:
    """A first sweep of n steps; costs have the unit of `SweepCosts`.

    Attributes
    ----------
    segments : tuple of Segment
        The segments in the order of the chain, one by one.
    cost : float
        The cost, without recording and reversing each step once.
    bound : float
        A lower bound of the cost of all hierarchical plans.
    """

    segments: tuple[Segment, ...]
    cost: float
    bound: float


class _Fill(NamedTuple):
    """A way to fill all levels: choices by stage, the last steps, all steps, and seconds."""

    choices: tuple[Ints, ...]
    rest: int
    steps: int
    seconds: float


@dataclass(frozen=True)
class SegmentTables:
    """The stages of `mixed` for segments up to a length.

    `stored` has costs in whole units if `unit` is 1, and in seconds if it is the seconds of a unit.

    The working memory holds the tapes of `held` steps.
    """

    stages: tuple[Table, ...]
    held: int
    unit: float

    @property
    def longest(self) -> int:
        """The steps of the longest segment."""
        return self.stages[0].longest

    @cached_property
    def stored(self) -> tuple[Seconds, ...]:
        """Q by stage, as arrays (rows, steps); infinite if there is none."""
        return tuple(_stored(stage, self.unit) for stage in self.stages)


def _stored(stage: Table, unit: float) -> Seconds:
    q = np.full((len(stage.rows), len(stage.nearer)), inf)
    for row, (_, stored) in zip(q, stage.values(), strict=True):
        row[1:] = np.where(stored < INFEASIBLE >> 1, stored * unit, inf)[1:]
    return q


def sweep_of_segments(
    order: Sequence[Space], steps: int, solve: Solve, /, *, held: int, between: int = 0
) -> LongPlan | None:
    """Return the plan with the best first sweep.

    Access costs the same in the first sweep and later. `solve` computes the tables of segments up
    to a length, in the unit of the costs. The length is doubled until it is at least twice that of
    the longest segment. Each of the last steps, which are recorded together, costs `between`.
    Return None if the tables would be too large.
    """
    longest = _SHORTEST
    while True:
        stages = solve(order, min(longest, steps))
        tables = SegmentTables(stages, held, unit=1.0)
        costs = SweepCosts(
            restart=np.array([float(space.write + space.read) for space in order]),
            tape=np.array([float(space.tape) for space in order]),
            move=float(stages[0].move),
            at_end=float(between),
        )
        sweep = first_sweep(tables, costs, steps)
        longest *= 2
        if sweep is not None and 2 * max(it.steps for it in sweep.segments) <= tables.longest:
            alike = groupby(sweep.segments)
            first = tuple(segment._replace(copies=len(list(group))) for segment, group in alike)
            return LongPlan(first, sweep.cost, sweep.bound, stages)
        if longest > steps or sum(len(it.rows) for it in stages) * longest > MOST_CELLS:
            return None


def first_sweep(
    tables: SegmentTables, costs: SweepCosts, steps: int, /, longest: int | None = None
) -> Sweep | None:
    """Return the best first sweep of `steps` steps; None if the tables are too short for one.

    Segments have at most `longest` steps, if it is given.
    """
    return _Search(tables, costs, steps, longest or tables.longest).sweep()


class _Search:
    """The search for theta."""

    def __init__(self, tables: SegmentTables, costs: SweepCosts, steps: int, longest: int) -> None:
        self.held, self.costs, self.steps = tables.held, costs, steps
        self.spaces = [stage.space for stage in tables.stages]
        lengths = np.arange(min(longest, tables.longest) + 1)
        self.phi = [
            q[:, : len(lengths)] + (restart + costs.move * lengths)
            for q, restart in zip(tables.stored, costs.restart, strict=True)
        ]
        self.rows = [  # within a segment, space beyond the last row of the tables is of no use
            np.minimum(np.arange(it.empty + 1), len(phi) - 1)
            for it, phi in zip(self.spaces, self.phi, strict=True)
        ]

    def sweep(self) -> Sweep | None:
        top, unit = self._endless()
        none = tuple(np.full(len(it), _STOP) for it in self.rows)
        low = _Fill(none, 1, 1, self.costs.at_end)  # only the last step, without a checkpoint
        theta = top if unit else max(self.costs.move, 1e-9)
        high = self._fill(theta)
        for _ in range(_ROUNDS):
            if high.steps >= self.steps or unit:
                break
            theta *= 4
            high = self._fill(theta)
        if high.steps < self.steps:
            return self._with_endless(high, top, unit) if unit else None
        bound, low, high = self._narrow(low, high)
        first, last = 0, sum(len(it) for it in self.rows)
        while last - first > 1:
            middle = (first + last) // 2
            if _steps(self._path(low, high, middle)) >= self.steps:
                last = middle
            else:
                first = middle
        segments, rest = self._shorten(*self._path(low, high, last))
        return Sweep(tuple(segments), self._seconds(segments, rest), bound)

    def _endless(self) -> tuple[float, Segment | None]:
        """Return the least seconds for each step on levels that never fill, and its segment."""
        top, unit = inf, None
        for stage, (space, phi) in enumerate(zip(self.spaces, self.phi, strict=True)):
            free = int(self.rows[stage][-1])
            if space.endless:
                rate = phi[free, 1:] / np.arange(1, phi.shape[1])
                if rate.min() < top:
                    steps = int(rate.argmin()) + 1
                    top, unit = float(rate.min()), Segment(Kind.RESTART, stage, free, steps, 1)
            if space.tapes[0] >= self.steps - 1 and self.costs.tape[stage] < top:
                top, unit = float(self.costs.tape[stage]), Segment(Kind.TAPE, stage, free, 1, 1)
        return top, unit

    def _with_endless(self, high: _Fill, top: float, unit: Segment) -> Sweep:
        """Return the sweep with segments of a level that never fills for all missing steps."""
        segments, rest = self._path(high, high, 0)
        missing = self.steps - high.steps
        more = [unit] * (missing // unit.steps)
        if missing % unit.steps:
            more.append(unit._replace(steps=missing % unit.steps))
        at = sum(it.stage > unit.stage for it in segments)
        segments[at:at] = more
        bound = high.seconds + top * missing
        return Sweep(tuple(segments), self._seconds(segments, rest), bound)

    def _fill(self, theta: float) -> _Fill:
        """Return the best way to fill the levels if each step is worth theta seconds."""
        rest = self.held if self.costs.at_end < theta else 1
        choices, steps, worth = [], rest, rest * (self.costs.at_end - theta)
        for stage, (space, rows) in enumerate(zip(self.spaces, self.rows, strict=True)):
            least, length = _best(self.phi[stage], theta)
            stop = space.tapes * min(0.0, float(self.costs.tape[stage]) - theta)
            # W(f) is the least stop(g) + least(g + 1) + ... + least(f).
            sums = np.append(0.0, np.cumsum(least[rows[1:]]))
            ways = np.minimum.accumulate(stop - sums)
            choice = np.where(ways < stop - sums, length[rows], np.where(stop < 0, 0, _STOP))
            choices.append(choice)
            worth += float(sums[-1] + ways[-1])
            steps += sum(steps for *_, steps in _follow(choice, choice, -1, space))
        return _Fill(tuple(choices), rest, steps, worth + theta * steps)

    def _narrow(self, low: _Fill, high: _Fill) -> tuple[float, _Fill, _Fill]:
        """Return the greatest bound, and the two fillings that are equally good there."""
        bound = -inf
        for _ in range(_ROUNDS):
            if high.steps == low.steps:
                break
            theta = (high.seconds - low.seconds) / (high.steps - low.steps)
            middle = self._fill(theta)
            value = middle.seconds + theta * (self.steps - middle.steps)
            line = low.seconds + theta * (self.steps - low.steps)
            bound = max(bound, value)
            if value >= line - 1e-12 * abs(line):
                break
            if middle.steps >= self.steps:
                high = middle
            else:
                low = middle
        return bound, low, high

    def _path(self, low: _Fill, high: _Fill, cut: int) -> tuple[list[Segment], int]:
        """Return the segments of `high` for the first `cut` numbers of free space, then of `low`.

        Numbers are counted from the last stage and its empty level. Also return the last steps.
        """
        segments, rest = list[Segment](), high.rest if cut else low.rest
        for stage, space in reversed(list(enumerate(self.spaces))):
            size, rows = space.empty + 1, self.rows[stage].tolist()
            choices = low.choices[stage], high.choices[stage]
            for kind, number, steps in _follow(*choices, size - 1 - cut, space):
                segments.append(Segment(kind, stage, rows[number], steps, 1))
            cut = max(0, cut - size)
        return segments, rest

    def _shorten(self, segments: list[Segment], rest: int) -> tuple[list[Segment], int]:
        """Make segments shorter by a step, the cheapest change first, until the length is right.

        A segment of no steps is removed.
        """
        excess = _steps((segments, rest)) - self.steps
        heap = [(self._change(it), -number) for number, it in enumerate(segments)]
        heapify(heap)
        while excess and heap:
            _, number = heappop(heap)
            shorter = segments[-number]._replace(steps=segments[-number].steps - 1)
            segments[-number] = shorter
            if shorter.steps:
                heappush(heap, (self._change(shorter), number))
            excess -= 1
        return [it for it in segments if it.steps], rest - excess

    def _change(self, it: Segment) -> float:
        """Return the change of cost for one step less."""
        shorter = self._cost(it._replace(steps=it.steps - 1)) if it.steps > 1 else 0.0
        return shorter - self._cost(it)

    def _cost(self, it: Segment) -> float:
        if it.kind is Kind.TAPE:
            return float(self.costs.tape[it.stage])
        return float(self.phi[it.stage][it.free, it.steps])

    def _seconds(self, segments: Sequence[Segment], rest: int) -> float:
        return sum(self._cost(it) for it in segments) + rest * self.costs.at_end


def _steps(made: tuple[Sequence[Segment], int]) -> int:
    segments, rest = made
    return sum(it.steps for it in segments) + rest


def _best(phi: Seconds, theta: float) -> tuple[Seconds, Ints]:
    """Return the least phi(d) - theta d of each row, and its d."""
    reduced = phi[:, 1:] - theta * np.arange(1, phi.shape[1])
    best = reduced.argmin(axis=1)
    return reduced[np.arange(len(best)), best], best + 1


def _follow(low: Ints, high: Ints, cut: int, space: Space) -> Iterator[tuple[Kind, int, int]]:
    """Follow `high` while f > cut, then `low`; yield the kind, f and the steps of each segment."""
    choices = np.append(low[: max(0, cut + 1)], high[max(0, cut + 1) :])[::-1]
    stops = np.flatnonzero(choices <= 0)
    count = int(stops[0]) if len(stops) else len(choices)
    for at, steps in enumerate(choices[:count].tolist()):
        yield Kind.RESTART, space.empty - at, steps
    if len(stops) and choices[count] == 0:
        free = space.empty - count
        for _ in range(int(space.tapes[free])):
            yield Kind.TAPE, free, 1
