"""Which variables a checkpoint must hold [Dauvergne & Hascoet 2006], for code and for schedules.

A piece of code is known by its `Flow`: what it uses, may overwrite, surely overwrites. From that

    Cut           one checkpoint [C]; D: equations (4) to (9), the family of all best snapshots
    plan          nested and successive checkpoints, each by a policy: lazy or eager
    cheapest      the same, jointly at the least seconds
    plan_schedule any schedule: each array is written once, read when it is needed, then discarded

A `Step` says it of one step of a chain, for the last of these.
"""

from ckio.actions.variables import Flow, Step
from ckio.analysis.dataflow.arrays import ArrayPlan, plan_schedule
from ckio.analysis.dataflow.cheapest import Prices, cheapest
from ckio.analysis.dataflow.code import Checkpointed, Code, Plain, plan, successive
from ckio.analysis.dataflow.placing import (
    Array,
    Copy,
    LeastSeconds,
    Placing,
    earliest,
    latest,
)
from ckio.analysis.dataflow.snapshots import Cut, Policy, Snapshot, eager, lazy

__all__ = [
    "Array",
    "ArrayPlan",
    "Checkpointed",
    "Code",
    "Copy",
    "Cut",
    "Flow",
    "LeastSeconds",
    "Placing",
    "Plain",
    "Policy",
    "Prices",
    "Snapshot",
    "Step",
    "cheapest",
    "eager",
    "earliest",
    "latest",
    "lazy",
    "plan",
    "plan_schedule",
    "successive",
]
