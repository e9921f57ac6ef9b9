"""Runs that fail: how long they take, with all that is done again, and how often to store.

A `Failure` says what survives; `exponential` and `from_somewhere` say when. `recovering` has the
plans of a run, a `Book` keeps them, `trajectory` is one run, and a `campaign` many. `compare` has
them fail alike with one of the `intervals` after the other, and `best` is the best of these.
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
