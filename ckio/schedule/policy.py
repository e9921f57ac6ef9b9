"""The policy of overlap: how much I/O may be concurrent with the computation."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, isnan
from typing import Final, Literal, TypeAlias

from ckio.errors import BadInput

_COUNTS = ("write_behind", "read_ahead")


@dataclass(frozen=True, slots=True)
class Overlap:
    """One policy, handed to the simulator and to the runner alike; by default nothing overlaps.

    Attributes
    ----------
    write_behind : int or None
        Checkpoints that may wait in memory to be written; None: as many as fit.
    read_ahead : int or None
        Checkpoints that may be read before they are needed; None: as many as fit.
    horizon : float
        How long before its use a checkpoint may be read, in seconds of computing.
    """

    write_behind: int | None = 0
    read_ahead: int | None = 0
    horizon: float = inf

    def __post_init__(self) -> None:
        for name in _COUNTS:
            count = getattr(self, name)
            if count is not None and (type(count) is not int or count < 0):
                raise BadInput(
                    f"Overlap: {name} = {count!r}; it must be a whole number of at least 0, or None"
                )
        if isnan(self.horizon) or self.horizon < 0:
            raise BadInput(f"Overlap: horizon = {self.horizon!r}; it must be at least 0 seconds")

    def __bool__(self) -> bool:
        """Whether anything overlaps."""
        return self.write_behind != 0 or self.read_ahead != 0

    def __str__(self) -> str:
        counts = (f"{name}={_word(getattr(self, name))}" for name in _COUNTS)
        return ",".join([*counts, *([] if self.horizon == inf else [f"horizon={self.horizon!r}"])])

    @staticmethod
    def parse(text: str, /) -> "Overlap":
        """The policy in words; what is not named is not done, but for the horizon.

        >>> Overlap.parse("write_behind=2,read_ahead=all,horizon=0.5")
        Overlap(write_behind=2, read_ahead=None, horizon=0.5)

        Raises BadInput.
        """
        given: dict[str, int | float | None] = {}
        for part in filter(None, text.split(",")):
            name, _, value = part.partition("=")
            if name not in (*_COUNTS, "horizon") or name in given:
                raise BadInput(
                    f"overlap {text!r} is not write_behind=N,read_ahead=N[,horizon=SECONDS],"
                    " where N may be all"
                )
            try:
                given[name] = _number(name, value)
            except ValueError:
                raise BadInput(f"overlap: {name}={value} is no number") from None
        return Overlap(**given)  # type: ignore[arg-type]


SYNCHRONOUS: Final = Overlap()
"""The policy by which storage and computation take turns."""

AUTO: Final[Literal["auto"]] = "auto"
"""In place of a policy: the one with which a plan takes least."""

Policy: TypeAlias = Overlap | Literal["auto"]
"""A fixed policy, or "auto" for the policy with which a plan takes least."""

POLICIES: Final[Mapping[str, Policy]] = {
    AUTO: AUTO,
    "all": Overlap(None, None),
    "none": SYNCHRONOUS,
}
"""Policies in one word; `all` is as much as fits in memory."""


def policy_of(text: str, /) -> Policy:
    """Return the policy in words: auto, all, none, or what `Overlap.parse` reads.

    >>> policy_of("all"), policy_of("none") == SYNCHRONOUS
    (Overlap(write_behind=None, read_ahead=None, horizon=inf), True)

    Raises BadInput.
    """
    if text in POLICIES:
        return POLICIES[text]
    try:
        return Overlap.parse(text)
    except BadInput as error:
        raise BadInput(f"{error}; nor is it {AUTO}, all, or none") from None


def exactly(asked: Policy | None, /) -> Overlap | None:
    """The policy that was asked for; None where the plan decides."""
    return None if asked is None or asked == AUTO else asked


def _number(name: str, value: str) -> int | float | None:
    if name not in _COUNTS:
        return float(value)
    return None if value == "all" else int(value)


def _word(count: int | None) -> str:
    return "all" if count is None else str(count)
