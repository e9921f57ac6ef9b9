"""Words for what lies on levels, as `ckio inspect`, `ckio clean` and others print them."""

from pathlib import Path
from typing import Final

from ckio.actions import Kind
from ckio.jobs.leftovers import expected, is_run_directory
from ckio.platform.readable import shown

KINDS: Final = {Kind.RESTART: "restart data", Kind.TAPE: "tape", Kind.ADJOINT: "adjoint"}

_NAMED: Final = 4
"""As many places of a run as are named in a line; each rank may have its own."""


def age_text(seconds: float, /) -> str:
    """A time span in one unit.

    >>> age_text(0.2), age_text(90), age_text(7200), age_text(200000), age_text(1e6)
    ('0 s', '90 s', '120 min', '56 h', '12 days')
    """
    for unit, name, most in ((1, "s", 120), (60, "min", 180), (3600, "h", 96)):
        if seconds < most * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds / 86400:.0f} days"


def looked_for(place: Path, /) -> str:
    """Where a run has its levels, to be added to what is said of it; "" of other places."""
    found = expected(place) if is_run_directory(place) else []
    there = [shown(holding.path.absolute()) for holding in found]
    first = ", ".join(there[:_NAMED]) + ", ..." * (len(there) > _NAMED)
    return f" (looked for in {first})" if there else ""
