"""The arrays that belong in a checkpoint, and the values that belong on a tape.

analyze             find the arrays that checkpoints need, by running the first steps of a model
observe             find the arrays that steps use and overwrite, if they are not declared
Guarded             find errors in the declaration of a model
lower               convert a schedule of whole checkpoints to one of single variables
ByVariable          make any planner plan with the reduced sizes of checkpoints
compare_snapshots   compare lazy and eager snapshots of steps
ValueGraph, solve   find the cheapest set of values to store
partition           divide a step into its tape and the values that are computed again
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ckio.analysis.dag import ValueGraph, solve
    from ckio.analysis.guarded import Guarded
    from ckio.analysis.lowering import ByVariable, lower
    from ckio.analysis.model_arrays import analyze
    from ckio.analysis.partitioned import partition
    from ckio.analysis.recorded import observe
    from ckio.analysis.snapshots import compare_snapshots

__all__ = [
    "ByVariable",
    "Guarded",
    "ValueGraph",
    "analyze",
    "compare_snapshots",
    "lower",
    "observe",
    "partition",
    "solve",
]

_MODULES = {
    "ByVariable": "lowering",
    "Guarded": "guarded",
    "ValueGraph": "dag",
    "analyze": "model_arrays",
    "compare_snapshots": "snapshots",
    "lower": "lowering",
    "observe": "recorded",
    "partition": "partitioned",
    "solve": "dag",
}
"""The module of each name. It is imported at the first use, because some need more than numpy."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'ckio.analysis' has no attribute {name!r}")
    return getattr(importlib.import_module(f"ckio.analysis.{_MODULES[name]}"), name)
