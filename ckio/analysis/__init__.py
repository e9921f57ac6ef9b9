"""What goes into a checkpoint: which variables (dataflow), and which values of a tape (dag).

lower        a schedule of whole checkpoints, on single variables
ByVariable   any planner, on what checkpoints really take
analyze      what checkpoints of a model have to hold, found out by doing its first steps
observe      what the steps of a model do to its arrays, where nobody says it
Guarded      a model that finds out where what is said of it is wrong
partition    a step, split: what its tape stores, and what is computed again
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ckio.analysis.guarded import Guarded
    from ckio.analysis.lowering import ByVariable, lower
    from ckio.analysis.model_arrays import analyze
    from ckio.analysis.partitioned import partition
    from ckio.analysis.recorded import observe

__all__ = ["ByVariable", "Guarded", "analyze", "lower", "observe", "partition"]

_LATER = {
    "ByVariable": "ckio.analysis.reduced",
    "Guarded": "ckio.analysis.guarded",
    "analyze": "ckio.analysis.model_arrays",
    "lower": "ckio.analysis.lowering",
    "observe": "ckio.analysis.recorded",
    "partition": "ckio.analysis.partitioned",
}
"""Where each is found; some of it needs more than numpy."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'ckio.analysis' has no attribute {name!r}")
    return getattr(importlib.import_module(_LATER[name]), name)
