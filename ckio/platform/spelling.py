"""The words that people type: names that nobody knows, and spans of time."""

import difflib
import re
from collections.abc import Iterable
from typing import Final

from ckio.errors import BadInput

_SECONDS: Final = {"d": 86400, "h": 3600, "m": 60, "s": 1}
"""Seconds in a unit of time."""


def meant(name: str, known: Iterable[str], /, *, rule: str = "", cutoff: float = 0.5) -> str:
    """The name that is most like this one, as a question; without any, the rule, or all names.

    `cutoff` says how much alike they have to be, from 0 to 1.
    """
    if near := difflib.get_close_matches(name, known := sorted(known), n=1, cutoff=cutoff):
        return f"did you mean {near[0]}?"
    return rule or f"known: {', '.join(known) or 'none'}"


def duration(text: str, /) -> float:
    """Return the seconds that a person writes; raises BadInput.

    >>> duration("90"), duration("30m"), duration("3h55m"), duration("1d"), duration("2.5s")
    (90.0, 1800.0, 14100.0, 86400.0, 2.5)

    The forms of SLURM with a colon or a hyphen are understood as SLURM does: minutes:seconds,
    hours:minutes:seconds, days-hours, days-hours:minutes and days-hours:minutes:seconds.

    >>> duration("10:00"), duration("00:10:00"), duration("1-12"), duration("1-12:00:00")
    (600.0, 600.0, 129600.0, 129600.0)

    A number alone is of seconds here, and not of minutes, which it is in SLURM.
    """
    seconds = _in_units(text) or _in_fields(text)
    if not seconds:
        raise BadInput(
            f"{text[:80]!r} is not a time; write seconds, or e.g. 30m, 3h55m, 1d, 00:30:00,"
            " 1-12:00:00"
        )
    return seconds


def _in_units(text: str) -> float:
    """Seconds of numbers with units, or of a number alone; 0 where it is something else."""
    number = r"([0-9]{1,9}(?:\.[0-9]{1,9})?)"
    units = "".join(rf"(?:{number}\s*{unit}\s*)?" for unit in _SECONDS)
    match = re.fullmatch(rf"\s*(?:{number}|{units})\s*", text)
    parts = zip(match.groups() if match else (), (1, *_SECONDS.values()), strict=False)
    return sum(float(part) * unit for part, unit in parts if part)


def _in_fields(text: str) -> float:
    """Seconds of a span in a form of SLURM; 0 where it is something else."""
    first, hours, sixty = "([0-9]{1,9})", "([01]?[0-9]|2[0-3])", "([0-5]?[0-9])"
    days = rf"{first}-{hours}(?::{sixty}(?::{sixty})?)?"
    match = re.fullmatch(rf"\s*(?:{days}|{first}:{sixty}(?::{sixty})?)\s*", text)
    if match is None:
        return 0.0
    if match[1] is not None:
        parts = match.groups(default="0")[:4]
    else:
        clock = [part for part in match.groups()[4:] if part is not None]
        parts = ("0",) * (4 - len(clock)) + tuple(clock)
    return float(sum(int(part) * unit for part, unit in zip(parts, _SECONDS.values(), strict=True)))
