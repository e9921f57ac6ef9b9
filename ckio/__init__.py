"""ckio: checkpoint I/O for adjoint computation. Measure, plan, simulate, run, compare."""

import importlib
from typing import TYPE_CHECKING, Any

from ckio.actions import Advance, Discard, Field, Key, Kind, Read, Record, Reverse, Write
from ckio.backends.directory import Directory
from ckio.backends.ram import Ram
from ckio.calibrate import calibrate
from ckio.chain import Chain
from ckio.gradient import check_gradient
from ckio.machine import Machine
from ckio.model import ArrayModel, Model, sizes_of
from ckio.planners.binomial import revolve
from ckio.planners.hrevolve import hrevolve, hrevolve_2020
from ckio.planners.trivial import periodic, recompute_all, store_all
from ckio.platforms import Affine, Level, Platform
from ckio.render import render
from ckio.replay import validate
from ckio.report import compare
from ckio.runner import run
from ckio.schedule import Schedule, counts, makespan
from ckio.timeline import Event, Timeline

if TYPE_CHECKING:
    from ckio.backends.compressed import Compressed
    from ckio.backends.hdf5 import Hdf5
    from ckio.compression import Zstd
    from ckio.sim.engine import simulate

__version__ = "0.1.0"

__all__ = [
    "Advance",
    "Affine",
    "ArrayModel",
    "Chain",
    "Compressed",
    "Directory",
    "Discard",
    "Event",
    "Field",
    "Hdf5",
    "Key",
    "Kind",
    "Level",
    "Machine",
    "Model",
    "Platform",
    "Ram",
    "Read",
    "Record",
    "Reverse",
    "Schedule",
    "Timeline",
    "Write",
    "Zstd",
    "calibrate",
    "check_gradient",
    "compare",
    "counts",
    "hrevolve",
    "hrevolve_2020",
    "makespan",
    "periodic",
    "recompute_all",
    "render",
    "revolve",
    "run",
    "simulate",
    "sizes_of",
    "store_all",
    "validate",
]

_HEAVY = {
    "Compressed": "ckio.backends.compressed",
    "Hdf5": "ckio.backends.hdf5",
    "Zstd": "ckio.compression",
    "simulate": "ckio.sim.engine",
}
"""What needs more than numpy is imported when it is first asked for."""


def __getattr__(name: str) -> Any:
    if name not in _HEAVY:
        raise AttributeError(f"module 'ckio' has no attribute {name!r}")
    return getattr(importlib.import_module(_HEAVY[name]), name)
