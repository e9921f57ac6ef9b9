"""Prices of accesses to a level, how they vary, and its measured profile."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from math import isfinite
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from ckio.actions.checks import as_float, check_cost, is_whole
from ckio.errors import BadInput


class Carried:
    """A frozen dataclass with mappings that do not change, as pickle and copy can carry it.

    On arrival it is made anew, so that it is checked, and its mappings still do not change.
    """

    def __getstate__(self) -> dict[str, Any]:
        return {each.name: _plain(getattr(self, each.name)) for each in fields(self)}  # type: ignore[arg-type]

    def __setstate__(self, state: dict[str, Any], /) -> None:
        self.__init__(**state)  # type: ignore[misc]


def _plain(value: object) -> object:
    """Return a value with dicts in place of mappings that pickle cannot store."""
    if not isinstance(value, MappingProxyType):
        return value
    return {name: _plain(inner) for name, inner in value.items()}


@dataclass(frozen=True, slots=True)
class Affine:
    """Seconds to move or drop a checkpoint: `latency + per_byte * nbytes`."""

    latency: float = 0.0
    per_byte: float = 0.0

    def __post_init__(self) -> None:
        latency = check_cost("Affine: latency (seconds)", self.latency)
        per_byte = check_cost("Affine: per_byte (seconds per byte)", self.per_byte)
        object.__setattr__(self, "latency", latency)
        object.__setattr__(self, "per_byte", per_byte)

    def __call__(self, nbytes: int, /) -> float:
        return self.latency + self.per_byte * nbytes


FREE: Final = Affine()

ACCESSES: Final = ("write", "read", "read_cold", "discard")
"""The names of a level's costs, in the order in which files list them."""


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


PRICES: Final = (
    "first",
    "write_beside",
    "read_beside",
    "write_own",
    "read_own",
    "write_hinders",
    "read_hinders",
    "discard_hinders",
    "handoff",
)
"""The names of what is a price, in the order in which files list them."""


@dataclass(frozen=True, kw_only=True)
class Profile(Carried):
    """How a level behaves where its prices alone say too little; what is None is as they say.

    Attributes
    ----------
    first : Affine or None
        Writing to a slot for the first time in a run.
    write_beside, read_beside : Affine or None
        Writing and reading concurrently with the computation.
    write_own, read_own : Affine or None
        What the program itself does of these: a copy to the memory between, and from it.
    write_hinders, read_hinders, discard_hinders : Affine
        Seconds that the computation loses by such a transfer beside it.
    handoff : Affine
        Seconds that the program takes in addition where it waits for a transfer of another thread.
    cached : int or None
        Bytes that the operating system keeps of files: a checkpoint is read cold where more were
        moved since it was last written or read.
    dirty, drained : int and float, or None
        Bytes that the operating system takes before they must be on the device, and how many it
        brings there in a second: where more wait, a write waits too.
    spread : mapping of str to Lognormal or Quantiles
        By access, the factor of a single one on what it takes.
    """

    first: Affine | None = None
    write_beside: Affine | None = None
    read_beside: Affine | None = None
    write_own: Affine | None = None
    read_own: Affine | None = None
    write_hinders: Affine = FREE
    read_hinders: Affine = FREE
    discard_hinders: Affine = FREE
    handoff: Affine = FREE
    cached: int | None = None
    dirty: int | None = None
    drained: float | None = None
    spread: Mapping[str, Spread] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for name in PRICES:
            price = getattr(self, name)
            optional = getattr(type(self), name) is None
            if not isinstance(price, Affine) and not (optional and price is None):
                raise BadInput(f"profile: {name} = {price!r} is not an Affine")
        for name in ("cached", "dirty"):
            nbytes = getattr(self, name)
            if nbytes is not None and not (is_whole(nbytes) and nbytes >= 0):
                raise BadInput(
                    f"profile: {name} = {nbytes!r}; it must be a whole number of bytes >= 0"
                )
        drained = None if self.drained is None else as_float(self.drained)
        if (self.dirty is None) != (self.drained is None):
            raise BadInput("profile: dirty and drained are given together, or not at all")
        if self.drained is not None and not (drained and drained > 0 and isfinite(drained)):
            raise BadInput(
                f"profile: drained = {self.drained!r}; it must be a number of bytes per second > 0"
            )
        object.__setattr__(self, "drained", drained)
        object.__setattr__(self, "spread", checked_spread(self.spread, ACCESSES, "profile"))


def checked_spread(
    spread: Mapping[str, Spread], known: tuple[str, ...], where: str, /
) -> Mapping[str, Spread]:
    """A copy that does not change; raises BadInput for other names and other values."""
    for name, factors in spread.items():
        if name not in known or not isinstance(factors, Lognormal | Quantiles):
            raise BadInput(
                f"{where}: spread {name!r} = {factors!r}; it must be Lognormal or Quantiles,"
                f" of one of {', '.join(known)}"
            )
    return MappingProxyType(dict(spread))
