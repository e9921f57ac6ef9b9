"""Many runs that fail at random: what is to be expected of them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ckio.errors import BadInput
from ckio.sim.failures.kinds import Moment
from ckio.sim.failures.plans import Book
from ckio.sim.failures.trajectory import trajectory

QUANTILES: Final = (0.1, 0.5, 0.9, 0.99)

Moments = Callable[[int], Iterable[Moment]]
"""The failures of a run, by its number: the same for all plans that are compared."""


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over runs, in seconds, and its standard error (infinite for a single run)."""

    seconds: float
    error: float

    @staticmethod
    def of(values: NDArray[np.float64], /) -> "Mean":
        """That of one value for each run."""
        error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.inf
        return Mean(float(values.mean()), float(error))


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What came of many runs of the same plans: one value for each run.

    Attributes
    ----------
    makespan, restarting, redone : float64 arrays
        Seconds, as `Trajectory` has them.
    failures : int64 array
        How often each failed.
    planned : float
        Seconds of the first plan, without a failure.
    plans : int
        How many plans of a rest were made for them.
    """

    makespan: NDArray[np.float64]
    restarting: NDArray[np.float64]
    redone: NDArray[np.float64]
    failures: NDArray[np.int64]
    planned: float
    plans: int

    @property
    def expected(self) -> Mean:
        """The mean makespan."""
        return Mean.of(self.makespan)

    @property
    def share_redone(self) -> float:
        """Which part of all the time is work beyond the first plan."""
        total = float(self.makespan.sum())
        return float(self.redone.sum()) / total if total else 0.0

    def quantiles(self) -> tuple[float, ...]:
        """The makespans below which `QUANTILES` of the runs remain, as far as there were runs."""
        return tuple(map(float, np.quantile(self.makespan, QUANTILES)))

    def less_than(self, other: "Outcomes", /) -> Mean:
        """By how much the mean is less than another's: from run to run, as both failed alike."""
        return Mean.of(other.makespan - self.makespan)


def campaign(
    book: Book, moments: Moments, runs: int, /, *, watch: Callable[[int], object] | None = None
) -> Outcomes:
    """So many runs, each with its own failures; `watch` is called with 1 after each.

    Raises as `trajectory` does, and BadInput for less than one run.
    """
    if runs < 1:
        raise BadInput(f"{runs} runs; there must be one at least")
    table = np.empty((runs, 4))
    for number in range(runs):
        found = trajectory(book, moments(number))
        table[number] = found.makespan, found.restarting, found.redone, found.failures
        if watch is not None:
            watch(1)
    makespan, restarting, redone, failures = table.T
    return Outcomes(
        makespan, restarting, redone, failures.astype(np.int64), book.first.seconds, len(book)
    )
