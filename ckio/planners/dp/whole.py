"""Costs as whole numbers, so that a planner compares exactly and does not depend on their unit."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

_MOST_PARTS: Final = 10**4
"""Costs are exact if they are multiples of one part in so many, at most, of a step."""

_CLOSE: Final = Fraction(1, 10**12)
"""How far from such a multiple a number may be that was written in decimals, relatively."""

_ROUNDED: Final = (1000, 100)
"""Else they are rounded to one part in so many: the first for which sums are not too large."""

_LIMIT: Final = 1 << 59
"""Sums stay below it: two of them, and a choice that is none (`runs.FAR`), fit into 64 bits."""


@dataclass(frozen=True, slots=True)
class Whole:
    """Costs in multiples of a unit.

    Attributes
    ----------
    advance : int
        One step forward.
    others : tuple of int
        The other costs, in the order given.
    unit : Fraction
        In seconds.
    rounded : int
        0 where costs are exact; else into how many units a step was divided, and any cost may be
        off by half a unit.
    """

    advance: int
    others: tuple[int, ...]
    unit: Fraction
    rounded: int

    @property
    def above(self) -> float:
        """How much the best makespan for these costs can be above the best one, as a part of it.

        A schedule that stores restart checkpoints for l + 1 steps advances at least l steps, reads
        at most l times, and needs no more writes than reads. So, for the unit u, its makespan is
        off by l u at most, and the best one for the rounded costs is at most 2 l u above the best
        one, which is at least l times `advance`. Where `advance` is 0, each cost is off by a
        2000th of itself (a 200th) at most.
        """
        return 2 / self.rounded if self.rounded else 0.0

    def seconds(self, units: int, /) -> float:
        """A sum of costs in seconds; exact as long as the sum of the given costs would be.

        Infinite where it is too large for a float.
        """
        try:
            return float(units * self.unit)
        except OverflowError:
            return math.inf


def whole(advance: float, others: Sequence[float], /, *, length: int) -> Whole | None:
    """The costs of a chain of `length` + 1 steps as whole numbers.

    The unit is a part of `advance`, or of the smallest positive cost where that is 0. If all costs
    are multiples of a 10,000th or more of it, the common one is found, and they are exact: 0.05
    is 1/20 of 1. If not, they are rounded to a 1000th, or, if sums get too large with that, to a
    100th. None where they are too large still, or infinite: a schedule of l + 1 steps may take some
    5 * 10**15 of the steps in all, were it the worst one.
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
    """More than any schedule or part of one costs that a recurrence considers."""
    return (length + 2) * ((length + 2) * costs[0] + 2 * max(costs)) + sum(costs)
