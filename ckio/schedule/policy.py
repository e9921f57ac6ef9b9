"""The policy of overlap: how much I/O may be concurrent with the computation."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Final, Literal, TypeAlias

from ckio.actions.checks import as_float, is_whole
from ckio.errors import BadInput

_COUNTS = ("write_behind", "read_ahead")


@dataclass(frozen=True, slots=True)
class Overlap:
    """A policy of overlap, for the simulator and the runner. By default nothing overlaps.

    Attributes
    ----------
    write_behind : int or None
        The number of checkpoints that may wait in memory to be written. None means as many as fit.
    read_ahead : int or None
        The number of checkpoints that may be read before they are needed. None means as many as
        fit.
    horizon : float
        How long before its use a checkpoint may be read, in seconds of computing.
    """

    write_behind: int | None = 0
    read_ahead: int | None = 0
    horizon: float = inf

    def __post_init__(self) -> None:
        for name in _COUNTS:
            count = getattr(self, name)
            if count is not None and not (is_whole(count) and count >= 0):
                raise BadInput(
                    f"Overlap: {name} = {count!r}; it must be a whole number of at least 0, or None"
                )
            object.__setattr__(self, name, None if count is None else int(count))
        horizon = as_float(self.horizon)
        if horizon is None or not horizon >= 0:
            raise BadInput(f"Overlap: horizon = {self.horizon!r}; it must be at least 0 seconds")
        object.__setattr__(self, "horizon", horizon)

    def __bool__(self) -> bool:
        """Return whether anything overlaps."""
        return self.write_behind != 0 or self.read_ahead != 0

    def __str__(self) -> str:
        return self._with(f"horizon={self.horizon!r}")

    def text(self) -> str:
        """Return the policy for people: the horizon has four digits.

        >>> Overlap(1, None, horizon=1 / 3).text()
        'write_behind=1,read_ahead=all,horizon=0.3333'
        """
        return self._with(f"horizon={self.horizon:.4g}")

    def _with(self, horizon: str) -> str:
        counts = [f"{name}={_word(getattr(self, name))}" for name in _COUNTS]
        return ",".join([*counts, *([] if self.horizon == inf else [horizon])])

    @staticmethod
    def parse(text: str, /) -> "Overlap":
        """Return the policy that `text` describes; a number that is not named keeps its default.

        >>> Overlap.parse("write_behind=2,read_ahead=all,horizon=0.5")
        Overlap(write_behind=2, read_ahead=None, horizon=0.5)

        Raises BadInput if the text is not such a description.
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
                raise BadInput(f"overlap: {name}={value} is not a number") from None
        return Overlap(**given)  # type: ignore[arg-type]


SYNCHRONOUS: Final = Overlap()
"""The policy without overlap: storage and computation take turns."""

AUTO: Final[Literal["auto"]] = "auto"
"""Used instead of a policy: the planner chooses the policy of least makespan."""

Policy: TypeAlias = Overlap | Literal["auto"]
"""A fixed policy, or "auto" for the policy of least makespan."""

POLICIES: Final[Mapping[str, Policy]] = {
    AUTO: AUTO,
    "all": Overlap(None, None),
    "none": SYNCHRONOUS,
}
"""Policies in one word; `all` means as much as fits in memory."""


def policy_of(text: str, /) -> Policy:
    """Return the policy that `text` describes: auto, all, none, or a text for `Overlap.parse`.

    >>> policy_of("all"), policy_of("none") == SYNCHRONOUS
    (Overlap(write_behind=None, read_ahead=None, horizon=inf), True)

    Raises BadInput if the text is not such a description.
    """
    if text in POLICIES:
        return POLICIES[text]
    try:
        return Overlap.parse(text)
    except BadInput as error:
        raise BadInput(f"{error}; it is not {AUTO}, all or none, either") from None


def exactly(asked: Policy | None, /) -> Overlap | None:
    """Return the policy that the caller asked for, or None if the plan chooses the policy."""
    return None if asked is None or asked == AUTO else asked


def _number(name: str, value: str) -> int | float | None:
    if name not in _COUNTS:
        return float(value)
    return None if value == "all" else int(value)


def _word(count: int | None) -> str:
    return "all" if count is None else str(count)
