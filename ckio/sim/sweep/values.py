"""How the values of an axis are read: numbers with their units, and words."""

import math
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from ckio.errors import BadInput
from ckio.platform import size
from ckio.platform.chain import SECONDS, SIZES
from ckio.schedule.policy import POLICIES, Overlap

Value: TypeAlias = int | float | str | None
"""A number, a word, or None for what has no end: a capacity, or a time without failures."""

NEVER_FILLS: Final = "unlimited"
NEVER_FAILS: Final = "never"
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _bytes(text: str) -> int:
    return size(text)


def _room(text: str) -> int | None:
    return None if text == NEVER_FILLS else size(text)


def _rate(text: str) -> int:
    """Bytes per second, above 0."""
    found = size(text.removesuffix("/s"))
    if not found:
        raise BadInput("a bandwidth is above 0")
    return found


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        raise BadInput(f"{text!r} is not a number") from None
    if not (math.isfinite(found) and found >= 0):
        raise BadInput(f"{text!r} is not a finite number of at least 0")
    return found


def _mean_time(text: str) -> float | None:
    """Seconds between failures, above 0, with a unit if it has one."""
    if text == NEVER_FAILS:
        return None
    unit = _UNITS.get(text[-1:], 0)
    try:
        found = _seconds(text[:-1] if unit else text) * (unit or 1)
    except BadInput:
        raise BadInput(f"{text!r} is not a time, such as 90, 30m, 6h, 1d, or never") from None
    if not found:
        raise BadInput("failures come after a time above 0")
    return found


def whole(text: str, /, *, least: int = 1) -> int:
    """A whole number, of at least 1 where nothing else is said; raises BadInput."""
    if not (text.isascii() and text.isdigit() and int(text[:19]) >= least):
        raise BadInput(f"{text!r} is not a whole number of at least {least}")
    return int(text)


def _slots(text: str) -> int:
    return whole(text, least=0)


def presence(text: str, /) -> str:
    """Whether a level is there; raises BadInput."""
    if text not in ("on", "off"):
        raise BadInput(f"{text!r} is neither on nor off")
    return text


def _policy(text: str) -> str:
    if text not in POLICIES:
        Overlap.parse(text.replace("/", ","))
    return text


Read: TypeAlias = Callable[[str], Value]

GLOBAL: Final[Mapping[str, Read]] = {
    "planner": str,
    "overlap": _policy,
    "ranks": whole,
    "mtbf": _mean_time,
    "steps": whole,
    "working_memory": _room,
    **dict.fromkeys(SECONDS, _seconds),
    **dict.fromkeys(SIZES, _bytes),
}
"""What is varied by its own name, and how its values are read."""

OF_LEVEL: Final[Mapping[str, Read]] = {
    "capacity": _room,
    "slots": _slots,
    "ratio": _seconds,
    **{f"{access}latency": _seconds for access in ("", "write.", "read.")},
    **{f"{access}bandwidth": _rate for access in ("", "write.", "read.")},
}
"""What is varied of a level, after its name and a dot."""
