"""Runs that fail: their time with all repeated work, and the best interval of checkpoints.

A `Failure` describes which levels survive; `exponential` and `from_somewhere` give the times of
failures. `recovering` makes the plans of a run, and a `Book` stores them. `trajectory` simulates
one run, and `campaign` many runs. `compare` simulates runs with the same failures for several
`intervals` between adjoint checkpoints, and `best` selects the best interval.
"""

from ckio.sim.failures.kinds import (
    Failure,
    Moment,
    checked,
    exponential,
    from_somewhere,
    mtbf,
    parse_trace,
)
from ckio.sim.failures.plans import Book, Plans, Stored, recovering
from ckio.sim.failures.runs import (
    QUANTILES,
    Life,
    Mean,
    Outcomes,
    Trajectory,
    Tried,
    best,
    campaign,
    compare,
    intervals,
    trajectory,
)

__all__ = [
    "QUANTILES",
    "Book",
    "Failure",
    "Life",
    "Mean",
    "Moment",
    "Outcomes",
    "Plans",
    "Stored",
    "Trajectory",
    "Tried",
    "best",
    "campaign",
    "checked",
    "compare",
    "exponential",
    "from_somewhere",
    "intervals",
    "mtbf",
    "parse_trace",
    "recovering",
    "trajectory",
]
