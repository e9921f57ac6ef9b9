"""Many ranks: their number, shared channels, differences of their speed, and barriers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ckio.actions.checks import as_float, is_whole
from ckio.errors import BadInput
from ckio.platform import size
from ckio.sim.ranks.spread import NEVER, Spread

_MOST_RANKS: Final = 10_000_000
"""Maximum number of ranks; each needs some bytes in a few arrays, even if all are equal."""


def parse_shared(text: str, /) -> tuple[str, float]:
    """Return the name of a shared channel and its bandwidth from CHANNEL=BYTES_PER_SECOND.

    Raises BadInput for any other text.

    >>> parse_shared("archive=100GB/s")
    ('archive', 100000000000.0)
    """
    name, _, amount = text.partition("=")
    amount = amount.removesuffix("/s")
    if not name or not amount:
        raise BadInput(f"{text!r} is not CHANNEL=BYTES_PER_SECOND")
    return name, _bandwidth(name, size(amount))


class Barrier(Enum):
    """The points at which all ranks wait for the slowest one."""

    NONE = "none"
    """No barriers."""
    STEP = "step"
    """A barrier after every computed step, forward or adjoint."""
    STRETCH = "stretch"
    """A barrier before every transfer on a shared channel, and at the end."""


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """The ranks of a parallel run; all have the same schedule, and each has its own levels.

    Attributes
    ----------
    count : int
        Number of ranks.
    shared : mapping of str to float
        The channels that all ranks share, by name, with the stored bytes per second of the reads
        and writes of all ranks together. The default channel of a level has the name of the level.
    spread : Lognormal or Quantiles, optional
        Distribution of a factor for each rank, on all its seconds of computation in the run.
    jitter : Lognormal or Quantiles, optional
        Distribution of a factor for each step that a rank computes. A step that is computed again
        gets another factor. The factors of rank and step are multiplied.
    barrier : Barrier
        The points at which all ranks wait for the slowest one.
    seed : int
        Seed of the random factors. The factors of a rank do not depend on the number of ranks.
    """

    count: int
    shared: Mapping[str, float] = field(default_factory=dict, hash=False)
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
        shared = {name: _bandwidth(name, value) for name, value in self.shared.items()}
        object.__setattr__(self, "shared", shared)

    def factors(self) -> NDArray[np.float64]:
        """Return the factor of each rank."""
        if self.spread is None:
            return np.ones(self.count)
        return self.spread.draw(np.random.default_rng((self.seed, 0)), self.count)

    def draws(self, rank: int, steps: int, /) -> NDArray[np.float64] | None:
        """Return factors for the steps that a rank computes, in order; None without jitter."""
        if self.jitter is None:
            return None
        return self.jitter.draw(np.random.default_rng((self.seed, 1 + rank)), steps)


def _bandwidth(channel: str, value: object) -> float:
    bandwidth = as_float(value)
    if bandwidth is None or not 1 / NEVER <= bandwidth <= NEVER:
        raise BadInput(
            f"Ranks: the bandwidth of {channel!r} is {value!r}; it must be a number of bytes per"
            f" second from {1 / NEVER:g} to {NEVER:g}"
        )
    return bandwidth
