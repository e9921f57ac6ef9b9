"""How often to store the adjoint: the same failures, with one interval after the other."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ckio.platform import Platform
from ckio.sim.failures.campaign import Moments, Outcomes, campaign
from ckio.sim.failures.plans import Book, Plans


@dataclass(frozen=True, slots=True)
class Tried:
    """One interval between adjoint checkpoints, and what came of it.

    Attributes
    ----------
    every : float
        Seconds of work; at least so many.
    adjoints : int
        How often the first plan stores its adjoint.
    outcomes : Outcomes
        Of all runs, which failed as those with other intervals did.
    """

    every: float
    adjoints: int
    outcomes: Outcomes


def intervals(middle: float, /, *, ratio: float = 2.0, each_side: int = 2) -> tuple[float, ...]:
    """Intervals to try, ascending: one in the middle, so many on each side, a factor apart."""
    return tuple(middle * ratio**power for power in range(-each_side, each_side + 1))


def compare(
    plans: Mapping[float, Plans],
    platform: Platform,
    moments: Moments,
    runs: int,
    /,
    *,
    watch: Callable[[int], object] | None = None,
) -> tuple[Tried, ...]:
    """What comes of the plans for each interval, ascending: all see the failures of `moments`.

    `watch` is called with 1 after each run. Raises as `campaign` does.
    """
    return tuple(
        Tried(
            every,
            plans[every].adjoints,
            campaign(Book(plans[every], platform), moments, runs, watch=watch),
        )
        for every in sorted(plans)
    )


def best(tried: Iterable[Tried], /) -> Tried:
    """The one with the least mean makespan; of equal ones, that of the longest interval."""
    return min(tried, key=lambda one: (one.outcomes.expected.seconds, -one.every))
