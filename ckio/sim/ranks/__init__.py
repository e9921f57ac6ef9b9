"""Many ranks: how many, what they share, how their steps differ, and when they wait."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ckio.actions.checks import as_float, is_whole
from ckio.errors import BadInput
from ckio.platform import size
from ckio.platform.profile import FAR, Carried, Spread

_MOST_RANKS: Final = 10_000_000
"""Each takes some bytes in a few columns, also where all are alike."""


@dataclass(frozen=True, slots=True)
class Shared:
    """A channel that all ranks use together.

    Attributes
    ----------
    bandwidth : float
        Bytes per second, as they are stored, of all ranks' reads and writes together.
    collective : bool
        Whether a write begins only when all ranks have come to it; reads begin at any time.
    """

    bandwidth: float
    collective: bool = False

    def __post_init__(self) -> None:
        bandwidth = as_float(self.bandwidth)
        if bandwidth is None or not 1 / FAR <= bandwidth <= FAR:
            raise BadInput(
                f"Shared: bandwidth = {self.bandwidth!r}; it must be a number of bytes per second"
                f" from {1 / FAR:g} to {FAR:g}"
            )
        object.__setattr__(self, "bandwidth", bandwidth)

    @staticmethod
    def parse(text: str, /) -> tuple[str, "Shared"]:
        """The name of a channel and how it is shared, from words.

        >>> Shared.parse("archive=100GB,collective")
        ('archive', Shared(bandwidth=100000000000.0, collective=True))

        Raises BadInput.
        """
        name, _, rest = text.partition("=")
        amount, *words = rest.split(",")
        amount = amount.removesuffix("/s")
        if not name or not amount or words not in ([], ["collective"]):
            raise BadInput(f"{text!r} is not CHANNEL=BYTES_PER_SECOND[,collective]")
        return name, Shared(size(amount), bool(words))


class Barrier(Enum):
    """When all ranks wait for the slowest."""

    NONE = "none"
    """Only where a collective write begins."""
    STEP = "step"
    """After every step that is computed, forward or back."""
    STRETCH = "stretch"
    """Before every transfer on a shared channel, and at the end."""


@dataclass(frozen=True, kw_only=True)
class Ranks(Carried):
    """So many ranks, each with one and the same schedule and with levels of its own.

    Attributes
    ----------
    count : int
        How many.
    shared : mapping of str to Shared
        By name, the channels that all ranks use together; a level that says nothing else has a
        channel of its own name.
    spread : Lognormal or Quantiles, optional
        Of the factor of each rank: on all its seconds of computing, the same for the whole run.
    jitter : Lognormal or Quantiles, optional
        Of the factor of each step that a rank computes: one more draw for every step, also for
        one that it computed before. The factors of rank and step are multiplied.
    barrier : Barrier
        When all ranks wait for the slowest.
    seed : int
        Which factors are drawn. Those of a rank do not depend on how many others there are.
    """

    count: int
    shared: Mapping[str, Shared] = field(default_factory=dict, hash=False)
    spread: Spread | None = None
    jitter: Spread | None = None
    barrier: Barrier = Barrier.NONE
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least, most in (("count", 1, _MOST_RANKS), ("seed", 0, inf)):
            number = getattr(self, name)
            if not is_whole(number) or number < least:
                raise BadInput(
                    f"Ranks: {name} = {number!r}; it must be a whole number of at least {least}"
                )
            if number > most:
                raise BadInput(f"Ranks: {name} = {number}; it must be {most} at most")
        object.__setattr__(self, "shared", MappingProxyType(dict(self.shared)))

    def factors(self) -> NDArray[np.float64]:
        """The factor of every rank."""
        if self.spread is None:
            return np.ones(self.count)
        return self.spread.draw(np.random.default_rng((self.seed, 0)), self.count)

    def draws(self, rank: int, steps: int, /) -> NDArray[np.float64] | None:
        """The factors of the steps that a rank computes, in this order; None without jitter."""
        if self.jitter is None:
            return None
        return self.jitter.draw(np.random.default_rng((self.seed, 1 + rank)), steps)
