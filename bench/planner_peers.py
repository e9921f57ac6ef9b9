"""checkpoint_schedules, where it is installed: a peer of the planners, for benches alone.

Version 1.0.4 calls one of its functions with u_f and u_b in each other's place, so it is only ever
called with both equal to 1. What it calls DiskRevolve reads a disk checkpoint once, Revolve in the
place of 1D-Revolve, and what it calls PeriodicDiskRevolve is Per-Rev-Revolve.
"""

import contextlib
import importlib
import importlib.util
import io
from collections.abc import Callable
from importlib.metadata import version

NAME = "checkpoint_schedules"

Make = Callable[[int], int]
"""From the number of steps to the number of actions that were made and walked through."""


def installed() -> bool:
    return importlib.util.find_spec(NAME) is not None


def named() -> str:
    """The peer with its version, or that it is not there."""
    return f"{NAME} {version(NAME)}" if installed() else f"{NAME} not installed"


def table_7() -> dict[str, Make]:
    """What the peer has for the rows of HP's Table 7; its H-Revolve knows two levels only."""
    if not installed():
        return {}
    peer = importlib.import_module(NAME)
    disk = {"wd": 10, "rd": 2, "uf": 1, "ub": 1}
    return {
        "Revolve(l, 20)": lambda n: _walked(lambda: peer.Revolve(n, 20, uf=1, ub=1)),
        "Disk-Revolve(l, 20, 10, 2)": lambda n: _walked(lambda: peer.DiskRevolve(n, 20, **disk)),
        "Per-Rev-Revolve(l, 20, 10, 2)": lambda n: _walked(
            lambda: peer.PeriodicDiskRevolve(n, 20, **disk)
        ),
        "H-Revolve, 4 free slots, 20 of w = r = 20": lambda n: _walked(
            lambda: peer.HRevolve(n, 4, 20, wd=20, rd=20, uf=1, ub=1)
        ),
    }


def _walked(make: Callable[[], object]) -> int:
    with contextlib.redirect_stdout(io.StringIO()):  # one of its classes prints
        return sum(1 for _ in make())  # type: ignore[attr-defined,misc]
