"""What accesses took, as prices: from many measurements to one figure, from figures to a law."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ckio.platforms import Affine
from ckio.timeline import Timeline

Floats = NDArray[np.float64]

MARGIN: Final = 1.1
"""How much worse than measured a checkpoint may compress before its level counts as full."""

_STALL: Final = 16.0
"""Times the median: no measurement counts for more."""
_TICK: Final = 1e-9
"""Seconds: nothing that happens takes less."""
_OWN_WEIGHT: Final = 100.0
"""Of a model's own checkpoints in a fit, where those made up weigh 1."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One access to one level at one size.

    Attributes
    ----------
    level, access : str
        Where, and "write", "read", "read_cold" or "discard".
    nbytes : int
        Bytes of the checkpoint, before compression.
    seconds : float
        What it takes; see `typical`.
    ratio : float
        Bytes that reached the level per byte of the checkpoint.
    model : bool
        Whether it was a model's own checkpoint, and not made up.
    """

    level: str
    access: str
    nbytes: int
    seconds: float
    ratio: float
    model: bool


def seconds_of(timeline: Timeline, op: int) -> Floats:
    """Of each action of a sort, from the end of the one before it."""
    took: Floats = np.diff(timeline.stop, prepend=0.0)[timeline.actions.op == op]
    return took


def typical(seconds: Floats, weights: Floats | None = None, /) -> float:
    """The mean in seconds, in which nothing counts for more than 16 times the median.

    A run adds up its slow moments too, so that the median would promise too little; but one long
    stall is not what an action takes.
    """
    most = _STALL * np.median(seconds)
    return max(float(np.average(np.minimum(seconds, most), weights=weights)), _TICK)


def fit(samples: Sequence[Sample], /) -> Affine:
    """Latency and seconds per byte, both >= 0, with the least relative error.

    A model's own checkpoints weigh most: where a platform is for a model, its sizes come out right.
    """
    from scipy.optimize import nnls

    seconds = np.array([max(sample.seconds, _TICK) for sample in samples])
    weight = np.array([_OWN_WEIGHT if sample.model else 1.0 for sample in samples]) / seconds
    nbytes = np.array([sample.nbytes for sample in samples], float)
    # Bytes in units of the largest, so that both unknowns are of one magnitude.
    unit = max(nbytes.max(), 1.0)
    matrix = np.stack((np.ones_like(nbytes), nbytes / unit), axis=1)
    (latency, slope), _ = nnls(matrix * weight[:, None], seconds * weight)
    return Affine(float(latency), float(slope / unit))


def planned(ratio: float, /) -> float:
    """The ratio to plan with where `ratio` was measured: with a margin, and 1 at the most.

    What does not compress is stored as it is, so that no margin is due above 1.
    """
    return ratio if ratio >= 1.0 else min(1.0, ratio * MARGIN)
