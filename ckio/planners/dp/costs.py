"""Costs as whole numbers, so that planners compare them exactly, whatever the unit of time."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

Rational = int | Fraction

_MOST_PARTS: Final = 10**4
"""Costs are exact if they are multiples of a step divided by a whole number up to this."""

_CLOSE: Final = Fraction(1, 10**12)
"""The relative error that a decimal number may have as such a multiple."""

SHORT: Final = 2_000
"""Up to this length, tables of the whole chain take some hundredths of a second, and costs are
rounded as finely as 64 bits allow. For a longer chain, a 1000th of a step lets more segments be
equally good, so that short tables prove the plan (`group`)."""

_ROUNDED: Final = (1000, 100)
"""For a longer chain, a step is divided by the first of these with small enough sums."""

_LONG: Final = 20_000
"""Up to this length, units may be larger than that: the loss is less than 0.02 % if no cost exceeds
twice that of a schedule with one checkpoint (`spaces.with_integer_costs`)."""

INFEASIBLE: Final = 1 << 60
"""The cost where there is no schedule: two of them can be added, and all costs are less."""

LIMIT: Final = 1 << 59
"""Sums stay below this, so that two of them, or one and `INFEASIBLE`, fit into 64 bits."""


@dataclass(frozen=True, slots=True)
class IntegerCosts:
    """Costs in multiples of a unit.

    Attributes
    ----------
    move : int
        The cost to go forward over one step.
    others : tuple of int
        The other costs, in the given order.
    unit : Fraction
        The unit in seconds.
    above : float
        A bound of the relative loss by rounding; 0 if costs are exact. Otherwise each cost may be
        wrong by half a unit.
    between : int
        The cost of each state between steps that are recorded together.
    """

    move: int
    others: tuple[int, ...]
    unit: Fraction
    above: float = 0.0
    between: int = 0

    def seconds(self, units: int, /) -> float:
        """Return a sum of costs in seconds, exact as long as the sum of the given costs would be.

        The result is infinite if it is too large for a float.
        """
        try:
            return float(units * self.unit)
        except OverflowError:
            return math.inf


def integer_costs(
    move: float, others: Sequence[float], /, *, steps: int, least: float = 0.0
) -> IntegerCosts | None:
    """Return the costs of a chain as whole numbers.

    The unit is `move` divided by a whole number; or, if `move` is 0, the smallest positive cost
    divided by one. If all costs are multiples of the unit for a number up to 10,000, they are
    exact. Otherwise they are rounded. For example, 0.05 s is a 20th of a step of 1 s:

    >>> costs = integer_costs(1.0, [0.05, 0.25], steps=100)
    >>> costs.move, costs.others, costs.seconds(1)
    (20, (1, 5), 0.05)

    A schedule that stores restart checkpoints for l + 1 steps advances at least l steps, reads at
    most l times, and needs at most as many writes as reads. Therefore, with the unit u, its
    makespan is wrong by at most l u, and the best schedule for the rounded costs is at most 2 l u
    above the best one, which takes at least l times `move`, and at least the cost `least` of one
    checkpoint. For example, with 1000 units in a step the loss is at most 0.002. If `move` is 0,
    each cost is wrong by at most a 2000th (or a 200th) of itself.

    Return None if sums are infinite, or if in a chain of more than 20,000 steps they would be too
    large for units of a 100th of a step: the worst schedule may cost about 5 * 10**15 steps.
    """
    if math.inf in (least, *others):
        return None
    advances = steps - 1
    step = Fraction(move) or min((Fraction(cost) for cost in others if cost), default=Fraction(1))
    ratios = [Fraction(cost) / step for cost in (move, *others)]
    near = [ratio.limit_denominator(_MOST_PARTS) for ratio in ratios]
    parts = math.lcm(*(ratio.denominator for ratio in near))
    exact = parts <= _MOST_PARTS and all(
        abs(a - b) <= _CLOSE * b for a, b in zip(near, ratios, strict=True)
    )
    units = [round(cost * parts) for cost in near]
    if exact and _sums(units, advances) < LIMIT:
        return IntegerCosts(units[0], tuple(units[1:]), step / parts)
    finest = Fraction(LIMIT, 2) / _sums(ratios, advances)
    counts = [Fraction(count) for count in _ROUNDED] if advances > SHORT else []
    for count in counts + [finest] * (advances <= _LONG):
        units = [round(cost * count) for cost in ratios]
        if _sums(units, advances) < LIMIT:
            above = 2 / (count * max(Fraction(1), Fraction(least) / (step * advances)))
            return IntegerCosts(units[0], tuple(units[1:]), step / count, float(above))
    return None


def _sums(costs: Sequence[Rational], advances: int) -> Rational:
    """Return more than the cost of any schedule, or part of one, in a recurrence."""
    largest: Rational = max(costs)
    return (advances + 2) * ((advances + 2) * costs[0] + 2 * largest) + sum(costs)
