"""What was measured of a level beside its prices: what takes longer when, and what varies."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from types import MappingProxyType
from typing import Final

from ckio.actions.checks import as_float, is_whole
from ckio.errors import BadInput
from ckio.platform.carried import Carried
from ckio.platform.prices import ACCESSES, FREE, Affine
from ckio.platform.spreads import Lognormal, Quantiles, Spread

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
        Writing and reading behind the computation, which goes on beside it.
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
