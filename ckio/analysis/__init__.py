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
