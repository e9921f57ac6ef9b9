"""How times vary: distributions of a factor on them."""

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from ckio.actions.checks import as_float
from ckio.errors import BadInput

_MOST_SIGMA: Final = 10.0
"""Where three ranks in a thousand are slower by e^30, something else was meant."""

FAR: Final = 1e50
"""Factors and bandwidths are between this and one over it: no time is infinite, and no share 0."""


@dataclass(frozen=True, slots=True)
class Lognormal:
    """Factors exp(sigma z), where z is normal: half of them are above 1."""

    sigma: float

    def __post_init__(self) -> None:
        sigma = as_float(self.sigma)
        if sigma is None or not 0 <= sigma <= _MOST_SIGMA:
            raise BadInput(
                f"Lognormal: sigma = {self.sigma!r}; it must be from 0 to {_MOST_SIGMA:g}"
            )
        object.__setattr__(self, "sigma", sigma)

    def draw(self, random: Generator, count: int, /) -> NDArray[np.float64]:
        """So many factors, each from the generator's next normal number."""
        factors = random.standard_normal(count)
        factors *= self.sigma
        return np.exp(factors, out=factors)


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Factors by their quantiles, from the least to the largest, at equal distances.

    Between two of them factors are spread evenly; where they are equal, so are the factors:
    (1, 1, 1, 1, 2) leaves three quarters of the ranks as they are.
    """

    factors: tuple[float, ...]

    def __post_init__(self) -> None:
        factors = [as_float(factor) for factor in self.factors]
        known = [factor for factor in factors if factor and 1 / FAR <= factor <= FAR]
        if not known or len(known) < len(factors) or known != sorted(known):
            raise BadInput(
                f"Quantiles: factors = {self.factors!r}; they must be numbers from {1 / FAR:g} to"
                f" {FAR:g}, each at least as large as the one before it"
            )
        object.__setattr__(self, "factors", tuple(known))

    def draw(self, random: Generator, count: int, /) -> NDArray[np.float64]:
        """So many factors, each from the generator's next number between 0 and 1."""
        at = np.linspace(0.0, 1.0, len(self.factors))
        return np.interp(random.random(count), at, self.factors)


Spread: TypeAlias = Lognormal | Quantiles
"""How factors on seconds of computing are distributed."""


def spread_text(spread: Spread, /) -> str:
    """The words of a distribution, which `parse_spread` reads."""
    match spread:
        case Lognormal(sigma):
            return f"lognormal:{sigma!r}"
        case Quantiles(factors):
            return f"quantiles:{','.join(map(repr, factors))}"


def parse_spread(text: str, /) -> Spread:
    """A distribution from words: `lognormal:SIGMA` or `quantiles:FACTOR,...`.

    >>> parse_spread("lognormal:0.05"), parse_spread("quantiles:1,1,1,1.5")
    (Lognormal(sigma=0.05), Quantiles(factors=(1.0, 1.0, 1.0, 1.5)))

    Raises BadInput.
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
