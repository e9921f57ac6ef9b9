"""The arrays that belong in a checkpoint, and the values that belong on a tape.

analyze             which arrays checkpoints of a model have to hold, by doing its first steps
compare_snapshots   lazy, eager and cheapest snapshots of its steps, and their costs
lower               a schedule of whole checkpoints, on single variables
ByVariable          any planner, on the reduced sizes of checkpoints
observe             the arrays that steps of a model use and overwrite, where nobody declares them
Guarded             a model that finds out where a declaration of it is wrong
ValueGraph, solve   the values of programs, and the least choice of those that are stored
partition           a step in two halves: its tape, and the values that are computed again
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
"""The module of each; some of them need more than numpy."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'ckio.analysis' has no attribute {name!r}")
    return getattr(importlib.import_module(f"ckio.analysis.{_MODULES[name]}"), name)
