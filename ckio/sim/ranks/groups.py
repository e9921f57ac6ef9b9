"""Who goes together: ranks that do the same at the same time are one group."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ckio.sim.ranks.fold import Stretches
from ckio.sim.ranks.words import Barrier, Ranks

Seconds = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Groups:
    """The ranks in groups.

    Attributes
    ----------
    of_rank : int64 array
        The group of each rank.
    clients : int64 array
        How many ranks each group has.
    stretches : iterable of float64 arrays
        For each group in turn, the seconds of its private stretches; it can be walked once.
    waited : float64 array
        Seconds for which each rank waits at the barriers.
    """

    of_rank: NDArray[np.int64]
    clients: NDArray[np.int64]
    stretches: Iterable[Seconds]
    waited: Seconds


def divide(folded: Stretches, ranks: Ranks, /, *, one_by_one: bool = False) -> Groups:
    """Put ranks that are alike into one group; `one_by_one` leaves each in a group of its own.

    Where all wait for the slowest they are one group, which computes as long as the slowest: from
    each barrier to the next they do the same, and what they share serves them alike.
    """
    factors, waited = ranks.factors(), np.zeros(ranks.count)
    alike = np.arange(ranks.count)
    stretches: Iterable[Seconds]
    if ranks.barrier is not Barrier.NONE:
        slowest, waited = _abreast(folded, ranks, factors)
        alike = alike if one_by_one else np.zeros_like(alike)
        stretches = (slowest for _ in range(1 + int(alike[-1])))
    elif ranks.jitter is not None:
        computed = _computed(folded, ranks, factors)
        stretches = (folded.computing(steps) + folded.private for steps in computed)
    else:
        if not one_by_one:
            factors, alike = np.unique(factors, return_inverse=True)
        computing = folded.computing(folded.steps)
        stretches = (factor * computing + folded.private for factor in factors.tolist())
    return Groups(alike, np.bincount(alike), stretches, waited)


def _abreast(folded: Stretches, ranks: Ranks, factors: Seconds) -> tuple[Seconds, Seconds]:
    """The stretches of ranks that wait for each other, and how long each waits."""
    if ranks.jitter is None:
        computing = folded.computing(folded.steps)
        most = factors.max()
        return most * computing + folded.private, (most - factors) * computing.sum()
    own, slowest = np.zeros(ranks.count), np.zeros(())
    for rank, steps in enumerate(_computed(folded, ranks, factors)):
        seconds = steps if ranks.barrier is Barrier.STEP else folded.computing(steps)
        own[rank] = seconds.sum()
        slowest = np.maximum(slowest, seconds)
    if ranks.barrier is Barrier.STEP:
        slowest = folded.computing(slowest)
    return slowest + folded.private, np.maximum(slowest.sum() - own, 0.0)


def _computed(folded: Stretches, ranks: Ranks, factors: Seconds) -> Iterator[Seconds]:
    """For each rank in turn, what every step takes it."""
    for rank, factor in enumerate(factors.tolist()):
        draws = ranks.draws(rank, len(folded.steps))
        yield factor * folded.steps if draws is None else factor * (draws * folded.steps)
