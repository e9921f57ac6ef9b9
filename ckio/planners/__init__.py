"""Planners: pure functions that make a schedule for a chain on a platform.

Each planner of the table `ckio.planners.table` is a name of this package, and so are

Bisection, Online           the rules of planners that decide during the run
recover                     the schedule for the rest of a killed run
with_adjoint_checkpoints    a schedule that can be resumed in its reverse sweep
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

from ckio.planners.table import PLANNERS

if TYPE_CHECKING:
    from ckio.planners.binomial import revolve
    from ckio.planners.dp import hrevolve, hrevolve_2020, mixed
    from ckio.planners.fastest import auto
    from ckio.planners.literature import (
        disk_revolve,
        multistage,
        per_rev_revolve,
        periodic_disk_revolve,
        revolve_1d,
        two_level,
    )
    from ckio.planners.midpoint import Bisection, bisection
    from ckio.planners.overlap import overlapped
    from ckio.planners.recovery import recover, with_adjoint_checkpoints
    from ckio.planners.trivial import periodic, recompute_all, store_all
    from ckio.planners.unknown import Online, online

__all__ = [
    "Bisection",
    "Online",
    "auto",
    "bisection",
    "disk_revolve",
    "hrevolve",
    "hrevolve_2020",
    "mixed",
    "multistage",
    "online",
    "overlapped",
    "per_rev_revolve",
    "periodic",
    "periodic_disk_revolve",
    "recompute_all",
    "recover",
    "revolve",
    "revolve_1d",
    "store_all",
    "two_level",
    "with_adjoint_checkpoints",
]

_MODULES: Final = {each.function: each.module for each in PLANNERS} | {
    "Bisection": "ckio.planners.midpoint",
    "Online": "ckio.planners.unknown",
    "recover": "ckio.planners.recovery",
    "with_adjoint_checkpoints": "ckio.planners.recovery",
}
"""The module of each name, imported when the name is first used."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'ckio.planners' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
