"""ckio: checkpoint I/O for adjoint computation.

ckio measures storage levels and a model, plans a schedule of its steps and checkpoints, simulates
the schedule, runs it, and compares the simulation with the run.

The planners by name are in `ckio.planners`, the actions in `ckio.actions`, their rules in
`ckio.schedule`, and the analysis of variables in `ckio.analysis`.
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

from ckio.calibrate import calibrate  # now, because the package has the same name

if TYPE_CHECKING:
    from ckio.actions import Field, Key, Kind
    from ckio.actions.variables import Flow, Step
    from ckio.adapters.scratch import run
    from ckio.backends.compressed import Compressed
    from ckio.backends.directory import Directory
    from ckio.backends.hdf5 import Hdf5
    from ckio.backends.ram import Ram
    from ckio.compression import Zstd
    from ckio.jobs.job import Job
    from ckio.jobs.once import gradient
    from ckio.jobs.result import Result
    from ckio.jobs.second import hessian_product
    from ckio.jobs.stopping import Halted
    from ckio.model import ArrayModel, sizes_of
    from ckio.model.functions import functions
    from ckio.model.gradient import check_gradient
    from ckio.planners.fastest import plan
    from ckio.platform import Affine, Level, Platform
    from ckio.platform.chain import Chain
    from ckio.platform.leases import lease
    from ckio.programs.compiled import program
    from ckio.report import compare
    from ckio.report.render import render
    from ckio.runner.unknown import run_to_end
    from ckio.schedule import Schedule
    from ckio.schedule.policy import Overlap
    from ckio.schedule.timeline import Timeline
    from ckio.sim.engine import makespan, simulate

__version__ = "0.1.0"

__all__ = [
    "Affine",
    "ArrayModel",
    "Chain",
    "Compressed",
    "Directory",
    "Field",
    "Flow",
    "Halted",
    "Hdf5",
    "Job",
    "Key",
    "Kind",
    "Level",
    "Overlap",
    "Platform",
    "Ram",
    "Result",
    "Schedule",
    "Step",
    "Timeline",
    "Zstd",
    "calibrate",
    "check_gradient",
    "compare",
    "functions",
    "gradient",
    "hessian_product",
    "lease",
    "makespan",
    "plan",
    "program",
    "render",
    "run",
    "run_to_end",
    "simulate",
    "sizes_of",
]

_MODULES: Final = {
    "Affine": "platform",
    "ArrayModel": "model",
    "Chain": "platform.chain",
    "Compressed": "backends.compressed",
    "Directory": "backends.directory",
    "Field": "actions",
    "Flow": "actions.variables",
    "Halted": "jobs.stopping",
    "Hdf5": "backends.hdf5",
    "Job": "jobs.job",
    "Key": "actions",
    "Kind": "actions",
    "Level": "platform",
    "Overlap": "schedule.policy",
    "Platform": "platform",
    "Ram": "backends.ram",
    "Result": "jobs.result",
    "Schedule": "schedule",
    "Step": "actions.variables",
    "Timeline": "schedule.timeline",
    "Zstd": "compression",
    "check_gradient": "model.gradient",
    "compare": "report",
    "functions": "model.functions",
    "gradient": "jobs.once",
    "hessian_product": "jobs.second",
    "lease": "platform.leases",
    "makespan": "sim.engine",
    "plan": "planners.fastest",
    "program": "programs.compiled",
    "render": "report.render",
    "run": "adapters.scratch",
    "run_to_end": "runner.unknown",
    "simulate": "sim.engine",
    "sizes_of": "model",
}
"""The module of each name, imported when the name is first used: a command needs few of them."""


def __getattr__(name: str) -> Any:
    if name in ("actions", "analysis", "planners", "schedule"):
        return importlib.import_module(f"ckio.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module 'ckio' has no attribute {name!r}")
    return getattr(importlib.import_module(f"ckio.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
