"""Prices: what it takes to move a checkpoint, as a law of its bytes."""

from dataclasses import dataclass
from typing import Final

from ckio.actions.checks import check_cost


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
