"""The best overlapped plan for a chain on two levels, near and far. Needs numba.

All parameters are in proportion to the machine: lengths of segments to how many steps there are for
each far checkpoint, gaps between writes to what one takes, slots held back to the near ones.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, inf
from typing import Final

import numpy as np

from ckio.planners.overlapped import chains, segments
from ckio.planners.overlapped.anneal import annealed
from ckio.planners.overlapped.chains import Cut, Found
from ckio.planners.overlapped.climb import climbed
from ckio.planners.overlapped.programs import Ints
from ckio.planners.overlapped.segments import Grid, Machine, Segments
from ckio.planners.overlapped.tables import Rules, near_table
from ckio.planners.overlapped.woven import improved

_FREE: Final = 0.005
"""The part ρ of its cost with which far access counts where it is as good as free: it decides ties.

In steps for a write, so that it does not outweigh an advance.
"""

_PRICES: Final = (0.05, 0.15, 0.3, 0.6, 1.0)
"""Other parts: where few near slots are left for what is on its way, access is not free."""

_GAPS: Final = ((0, 0), (0.5, 0), (0.75, 0), (0.75, 0.2), (0.75, 0.4), (0.9, 0), (1, 0))
"""Gaps in writes, and bursts in near slots."""

_CUTS: Final = 12
"""Chains that are simulated, for each least length: what the sum of segments says is not exact."""

_CLIMBED: Final = 3
"""Chains that are changed piece by piece."""

_WELL: Final = 1.02
"""A plan that takes no more than so many times what is enough is not annealed: it takes longest."""

_LONGEST: Final = 1200
"""Steps of a segment that are planned for at the most."""

_MOST_WORK: Final = 6 * 10**9
"""Sums that are compared to cut a chain: some ten seconds."""


def search(machine: Machine, horizons: list[float], enough: float = 0.0) -> Found | None:
    """The best plan found with one of some horizons, in seconds.

    The search ends with a plan that takes no longer than `enough`, or, before chains are annealed,
    little longer. None for a chain that is too long for its far slots to be searched.
    """
    scale = _Scale.of(machine)
    if scale is None:
        return None
    costs = machine.costs
    near = near_table(
        machine.near,
        scale.tail,
        costs.advance,
        costs.near_write + costs.near_discard,
        costs.near_read,
    )
    solved = segments.solve(machine, near, scale.grid, _ways(machine))
    best: Found | None = None
    for plans in _ever_better(machine, solved, scale.shortest, horizons):
        best = min(plans if best is None else [best, *plans], key=_seconds, default=None)
        if best is not None and best.seconds <= enough:
            return best
    if best is None or best.seconds <= enough * _WELL:
        return best
    return annealed(machine, best)


def _ever_better(
    machine: Machine, solved: Segments, shortest: tuple[int, ...], horizons: list[float]
) -> Iterator[list[Found]]:
    """Chains of segments as they are, then woven, then the best of the first changed."""
    plain = _cut(machine, solved, shortest, horizons)
    yield [found for _, found in plain]
    yield [found for _, found in _cut(machine, improved(machine, solved), shortest, horizons)]
    plain.sort(key=lambda one: one[1].seconds)
    starts = [(cut, found.horizon) for cut, found in plain[:_CLIMBED]]
    changed = climbed(machine, solved, starts)
    yield [] if changed is None else [changed]


def _seconds(found: Found) -> float:
    return found.seconds


def _cut(
    machine: Machine, solved: Segments, shortest: tuple[int, ...], horizons: list[float]
) -> list[tuple[Cut, Found]]:
    """The chains of which the sums are the least, simulated."""
    return [
        (cut, chains.simulated(machine, *chains.written(machine, solved, cut), horizons))
        for steps in shortest
        for cut in chains.cuts(machine, solved, steps, _CUTS)
    ]


@dataclass(frozen=True)
class _Scale:
    """The grid of segments, how many steps the near level may be left with, and least lengths."""

    grid: Grid
    tail: int
    shortest: tuple[int, ...]

    @staticmethod
    def of(machine: Machine) -> "_Scale | None":
        length, near, far = machine.length, machine.near, machine.far
        steps = machine.written / machine.costs.advance  # that are advanced while one is written
        count = min(far, near + length / steps if steps else inf)
        longest = min(length, ceil(max(2.5 * length / count, 3 * near, 60)))
        if length / count > _LONGEST:
            return None
        lengths = _grid(min(longest, _LONGEST), 40, 1.04)
        if length * count * len(lengths) > _MOST_WORK:
            return None
        slots = min(far, longest, ceil(1.5 * longest / steps) + near if steps else far)
        tail = min(length, max(longest, (near + 1) * (near + 2) * 11 // 20))
        apart = {1, min(ceil(steps) or 1, longest)}
        return _Scale(Grid(lengths, _grid(slots, 12, 1.08)), tail, tuple(sorted(apart)))


def _grid(last: int, dense: int, ratio: float) -> Ints:
    """1, 2, ... up to `dense`, and on by a ratio to `last`."""
    values = list(range(1, min(last, dense) + 1))
    while values[-1] < last:
        values.append(min(last, max(values[-1] + 1, int(values[-1] * ratio))))
    return np.array(values)


def _ways(machine: Machine) -> list[tuple[int, Rules]]:
    """How segments are planned: near slots that they may count on, and rules of far access."""
    write, read, near = machine.written, machine.costs.far_read, machine.near
    held_back = ceil(near / 20)
    free = _FREE * machine.costs.advance / machine.slowest if machine.slowest else 0.0
    rules = [
        Rules(free * write, free * read, gap * write, int(burst * near)) for gap, burst in _GAPS
    ]
    rules += [
        Rules(price * write, price * read, gap * write, 0)
        for price in _PRICES
        for gap in (0.0, 0.5, 1.0)
    ]
    counts = sorted({max(1, near - times * held_back) for times in range(3)}, reverse=True)
    return [(slots, rule) for slots in counts for rule in rules]
