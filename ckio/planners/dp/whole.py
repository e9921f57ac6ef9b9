"""Costs as whole numbers, so that planners compare them exactly, whatever the unit of time."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

_MOST_PARTS: Final = 10**4
"""Costs are exact if they are multiples of a step divided by a whole number up to this."""

_CLOSE: Final = Fraction(1, 10**12)
"""The relative error that a decimal number may have as such a multiple."""

_ROUNDED: Final = (1000, 100)
"""Otherwise costs are rounded to a step divided by the first of these with small enough sums."""

_LIMIT: Final = 1 << 59
"""Sums stay below this, so that two of them, or one and `tables.FAR`, fit into 64 bits."""


@dataclass(frozen=True, slots=True)
class Whole:
    """Costs in multiples of a unit.

    Attributes
    ----------
    advance : int
        The cost to advance one step.
    others : tuple of int
        The other costs, in the given order.
    unit : Fraction
        The unit in seconds.
    rounded : int
        0 if costs are exact. Otherwise the number of units in a step; each cost may be wrong by
        half a unit.
    """

    advance: int
    others: tuple[int, ...]
    unit: Fraction
    rounded: int

    @property
    def above(self) -> float:
        """A bound of the relative loss by rounding: the best schedule for these costs may be worse.

        A schedule that stores restart checkpoints for l + 1 steps advances at least l steps, reads
        at most l times, and needs at most as many writes as reads. Therefore, with the unit u, its
        makespan is wrong by at most l u, and the best schedule for the rounded costs is at most
        2 l u above the best one, which takes at least l times `advance`. For example, with 1000
        units in a step the loss is at most 0.002. If `advance` is 0, each cost is wrong by at most
        a 2000th (or a 200th) of itself.
        """
        return 2 / self.rounded if self.rounded else 0.0

    def seconds(self, units: int, /) -> float:
        """Return a sum of costs in seconds, exact as long as the sum of the given costs would be.

        The result is infinite if it is too large for a float.
        """
        try:
            return float(units * self.unit)
        except OverflowError:
            return math.inf


def whole(advance: float, others: Sequence[float], /, *, length: int) -> Whole | None:
    """Return the costs of a chain of `length` + 1 steps as whole numbers.

    The unit is `advance` divided by a whole number; or, if `advance` is 0, the smallest positive
    cost divided by one. If all costs are multiples of the unit for a number up to 10,000, they are
    exact: for example, 0.05 is 1/20 of 1. Otherwise they are rounded to a 1000th, or, if sums would
    be too large, to a 100th. Return None if sums are still too large or infinite: the worst
    schedule of l + 1 steps may cost about 5 * 10**15 steps in total.
    """
    if math.inf in others:
        return None
    part = Fraction(advance) or min(
        (Fraction(cost) for cost in others if cost), default=Fraction(1)
    )
    ratios = [Fraction(cost) / part for cost in (advance, *others)]
    near = [ratio.limit_denominator(_MOST_PARTS) for ratio in ratios]
    parts = math.lcm(*(ratio.denominator for ratio in near))
    exact = parts <= _MOST_PARTS and all(
        abs(a - b) <= _CLOSE * b for a, b in zip(near, ratios, strict=True)
    )
    ways = [(near, parts, 0)] if exact else []
    for costs, count, rounded in ways + [(ratios, count, count) for count in _ROUNDED]:
        units = [round(cost * count) for cost in costs]
        if _sums(units, length) < _LIMIT:
            return Whole(units[0], tuple(units[1:]), part / count, rounded)
    return None


def _sums(costs: Sequence[int], length: int) -> int:
    """Return more than the cost of any schedule, or part of one, in a recurrence."""
    return (length + 2) * ((length + 2) * costs[0] + 2 * max(costs)) + sum(costs)
