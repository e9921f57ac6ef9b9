"""The costs of accesses to a level, further measurements (its profile), and random factors."""

from dataclasses import dataclass
from math import isfinite
from typing import Final, TypeAlias

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from ckio.actions.checks import as_float, check_cost, is_whole
from ckio.errors import BadInput


@dataclass(frozen=True, slots=True)
class Affine:
    """Seconds to transfer or discard a checkpoint: `latency + per_byte * nbytes`.

    `latency` is in seconds, `per_byte` in seconds per byte. For example, 1 ms and 1 GB/s for a
    checkpoint of 5 MB:

    >>> Affine(latency=0.001, per_byte=1e-9)(5_000_000)
    0.006
    """

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


PROFILE_COSTS: Final = (
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
"""The names of the attributes of a profile that are costs, in the order of files."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Further measurements of a level, which describe it better than its costs alone.

    An Affine gives seconds as a function of the bytes of a checkpoint. If a value is None, the
    costs of the level apply.

    Attributes
    ----------
    first : Affine or None
        Writing to a slot for the first time in a run.
    write_beside, read_beside : Affine or None
        Writing and reading concurrently with the computation.
    write_own, read_own : Affine or None
        The part of a concurrent write or read that the program itself does: a copy to or from a
        buffer.
    write_hinders, read_hinders, discard_hinders : Affine
        Seconds that the computation loses because of one such concurrent transfer.
    handoff : Affine
        Additional seconds of the program if it waits for a transfer of another thread.
    cached : int or None
        Bytes of files that the page cache holds. A checkpoint is read cold if more bytes than this
        were transferred since it was last written or read.
    dirty : int or None
        Bytes of written data that the operating system accepts before they are on the device. If
        more bytes wait, a write waits, too.
    drained : float or None
        Bytes per second that the operating system writes to the device in the background. It is
        given together with `dirty`.
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

    def __post_init__(self) -> None:
        for name in PROFILE_COSTS:
            cost = getattr(self, name)
            optional = getattr(type(self), name) is None
            if not isinstance(cost, Affine) and not (optional and cost is None):
                raise BadInput(f"profile: {name} = {cost!r} is not an Affine")
        for name in ("cached", "dirty"):
            nbytes = getattr(self, name)
            if nbytes is not None and not (is_whole(nbytes) and nbytes >= 0):
                raise BadInput(
                    f"profile: {name} = {nbytes!r}; it must be a whole number of bytes >= 0"
                )
        drained = None if self.drained is None else as_float(self.drained)
        if (self.dirty is None) != (self.drained is None):
            raise BadInput("profile: dirty and drained must be given together; give both or none")
        if self.drained is not None and not (drained and drained > 0 and isfinite(drained)):
            raise BadInput(
                f"profile: drained = {self.drained!r}; it must be a number of bytes per second > 0"
            )
        object.__setattr__(self, "drained", drained)
