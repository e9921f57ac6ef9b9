"""Distributions of random factors on the times of ranks."""

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from ckio.actions.checks import as_float
from ckio.errors import BadInput

_MOST_SIGMA: Final = 10.0
"""Maximum sigma: with it, one rank in a thousand is slower by e^30, which is surely a mistake."""

NEVER: Final = 1e50
"""A time this many times longer never ends. Factors and bandwidths must be between 1/NEVER and
NEVER, so that no time overflows to infinity.
"""


@dataclass(frozen=True, slots=True)
class Lognormal:
    """A lognormal distribution of factors: exp(sigma z) with z standard normal; the median is 1."""

    sigma: float

    def __post_init__(self) -> None:
        sigma = as_float(self.sigma)
        if sigma is None or not 0 <= sigma <= _MOST_SIGMA:
            raise BadInput(
                f"Lognormal: sigma = {self.sigma!r}; it must be from 0 to {_MOST_SIGMA:g}"
            )
        object.__setattr__(self, "sigma", sigma)

    def draw(self, random: Generator, count: int, /) -> NDArray[np.float64]:
        """Return `count` factors, each from the next normal number of the generator."""
        factors = random.standard_normal(count)
        factors *= self.sigma
        return np.exp(factors, out=factors)


@dataclass(frozen=True, slots=True)
class Quantiles:
    """A distribution of factors, given by quantiles at equal distances from 0 to 1.

    The first quantile is the smallest factor and the last one the largest. Between two quantiles
    the factors are distributed uniformly. For example, with the quantiles (1, 1, 1, 1, 2) three
    quarters of the factors are 1, and the others are uniform between 1 and 2.
    """

    factors: tuple[float, ...]

    def __post_init__(self) -> None:
        factors = [as_float(factor) for factor in self.factors]
        known = [factor for factor in factors if factor and 1 / NEVER <= factor <= NEVER]
        if not known or len(known) < len(factors) or known != sorted(known):
            raise BadInput(
                f"Quantiles: factors = {self.factors!r}; they must be numbers from {1 / NEVER:g} to"
                f" {NEVER:g}, each at least as large as the one before it"
            )
        object.__setattr__(self, "factors", tuple(known))

    def draw(self, random: Generator, count: int, /) -> NDArray[np.float64]:
        """Return `count` factors, each from the generator's next uniform number in [0, 1)."""
        at = np.linspace(0.0, 1.0, len(self.factors))
        return np.interp(random.random(count), at, self.factors)


Spread: TypeAlias = Lognormal | Quantiles
"""The distribution of a random factor on a time."""


def parse_spread(text: str, /) -> Spread:
    """Return the distribution of a text `lognormal:SIGMA` or `quantiles:FACTOR,...`.

    >>> parse_spread("lognormal:0.05"), parse_spread("quantiles:1,1,1,1.5")
    (Lognormal(sigma=0.05), Quantiles(factors=(1.0, 1.0, 1.0, 1.5)))

    Raises BadInput if the text is neither.
    """
    kind, _, numbers = text.partition(":")
    try:
        factors = tuple(map(float, numbers.split(",")))
    except ValueError:
        factors = ()
    match kind, factors:
        case "lognormal", (sigma,):
            return Lognormal(sigma)
        case "quantiles", (_, *_):
            return Quantiles(factors)
        case _:
            raise BadInput(f"{text!r} is not lognormal:SIGMA or quantiles:FACTOR,...")
