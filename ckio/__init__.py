"""ckio: checkpoint I/O for adjoint computation.

ckio measures storage levels and a model, plans a schedule of its steps and checkpoints, simulates
the schedule, runs it, and compares the simulation with the run.
"""

import importlib
from typing import TYPE_CHECKING, Any

from ckio.actions import Advance, Discard, Field, Key, Kind, Read, Record, Reverse, Write
from ckio.actions.variables import Flow, Step, Variables
from ckio.backends.directory import Directory
from ckio.backends.ram import Ram
from ckio.calibrate import calibrate
from ckio.model import ArrayModel, Handing, Model, sizes_of
from ckio.model.gradient import check_gradient
from ckio.planners.binomial import revolve
from ckio.planners.dp import hrevolve, hrevolve_2020
from ckio.planners.recover import recover, with_adjoint_checkpoints
from ckio.planners.table import PLANNERS
from ckio.planners.trivial import periodic, recompute_all, store_all
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.report import compare
from ckio.report.render import render
from ckio.runner import perform, run
from ckio.schedule import Schedule, counts
from ckio.schedule.machine import Machine
from ckio.schedule.policy import Overlap
from ckio.schedule.replay import validate
from ckio.schedule.timeline import Event, Timeline

if TYPE_CHECKING:
    from ckio.analysis.lowering import lower
    from ckio.backends.compressed import Compressed
    from ckio.backends.hdf5 import Hdf5
    from ckio.compression import Zstd
    from ckio.jobs.job import Job
    from ckio.jobs.result import Result
    from ckio.jobs.stopping import Halted
    from ckio.planners.auto import auto, plan
    from ckio.planners.bisection import Bisection, bisection
    from ckio.planners.dp import mixed
    from ckio.planners.literature import (
        disk_revolve,
        multistage,
        per_rev_revolve,
        periodic_disk_revolve,
        revolve_1d,
        two_level,
    )
    from ckio.planners.online import Online, online
    from ckio.planners.overlap import overlapped
    from ckio.programs.compiled import program
    from ckio.runner.failover import failover
    from ckio.runner.unknown import run_to_end
    from ckio.sim.engine import makespan, simulate

__version__ = "0.1.0"

__all__ = [
    "Advance",
    "Affine",
    "ArrayModel",
    "Bisection",
    "Chain",
    "Compressed",
    "Directory",
    "Discard",
    "Event",
    "Field",
    "Flow",
    "Halted",
    "Handing",
    "Hdf5",
    "Job",
    "Key",
    "Kind",
    "Level",
    "Machine",
    "Model",
    "Online",
    "Overlap",
    "Platform",
    "Ram",
    "Read",
    "Record",
    "Result",
    "Reverse",
    "Schedule",
    "Step",
    "Timeline",
    "Variables",
    "Write",
    "Zstd",
    "auto",
    "bisection",
    "calibrate",
    "check_gradient",
    "compare",
    "counts",
    "disk_revolve",
    "failover",
    "hrevolve",
    "hrevolve_2020",
    "lower",
    "makespan",
    "mixed",
    "multistage",
    "online",
    "overlapped",
    "per_rev_revolve",
    "perform",
    "periodic",
    "periodic_disk_revolve",
    "plan",
    "program",
    "recompute_all",
    "recover",
    "render",
    "revolve",
    "revolve_1d",
    "run",
    "run_to_end",
    "simulate",
    "sizes_of",
    "store_all",
    "two_level",
    "validate",
    "with_adjoint_checkpoints",
]

_LATER = {each.function: each.module for each in PLANNERS} | {
    "Bisection": "ckio.planners.bisection",
    "Compressed": "ckio.backends.compressed",
    "Halted": "ckio.jobs.stopping",
    "Hdf5": "ckio.backends.hdf5",
    "Job": "ckio.jobs.job",
    "Online": "ckio.planners.online",
    "Result": "ckio.jobs.result",
    "Zstd": "ckio.compression",
    "lower": "ckio.analysis.lowering",
    "makespan": "ckio.sim.engine",
    "failover": "ckio.runner.failover",
    "plan": "ckio.planners.auto",
    "program": "ckio.programs.compiled",
    "run_to_end": "ckio.runner.unknown",
    "simulate": "ckio.sim.engine",
}
"""Names that are imported when they are first used.

These are the names whose modules need more than NumPy, and the many planners.
"""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'ckio' has no attribute {name!r}")
    return getattr(importlib.import_module(_LATER[name]), name)
