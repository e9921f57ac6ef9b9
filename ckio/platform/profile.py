"""The costs of accesses to a level, and further measurements (its profile)."""

from dataclasses import dataclass
from math import isfinite
from typing import Final

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
