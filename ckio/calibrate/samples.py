"""From many measurements of an access to one figure, and from figures to a price.

The limits of the operating system that explain a price are read here as well: how much may wait to
be written, and memory that has to be used once before it is as quick as it will be.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ckio.platform import Affine
from ckio.platform.memory import available
from ckio.platform.profile import Quantiles
from ckio.schedule.timeline import Timeline

Floats = NDArray[np.float64]

MARGIN: Final = 1.1
"""How much worse than measured a checkpoint may compress before its level counts as full."""

_STALL: Final = 16.0
"""Times the median: no measurement counts for more."""
_TICK: Final = 1e-9
"""Seconds: nothing that happens takes less."""
_FEW: Final = 5
"""Fewer measurements say nothing of how they vary."""
_POINTS: Final = 21
"""Of a distribution: every 5 %."""
_OWN_WEIGHT: Final = 100.0
"""Of a model's own checkpoints in a fit, where those made up weigh 1."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One access to one level at one size.

    Attributes
    ----------
    level, access : str
        Where, and what: the name of a price of `Level` or of `Profile`.
    nbytes : int
        Bytes of the checkpoint, before compression.
    seconds : float
        What it takes; see `typical`.
    ratio : float
        Bytes that reached the level per byte of the checkpoint.
    model : bool
        Whether it was a model's own checkpoint, and not made up.
    each : tuple of float
        What every single one took, in seconds.
    """

    level: str
    access: str
    nbytes: int
    seconds: float
    ratio: float
    model: bool
    each: tuple[float, ...] = ()


def took(timeline: Timeline, /) -> Floats:
    """Return the seconds of each action, from the end of the one before it."""
    seconds: Floats = np.diff(timeline.stop, prepend=0.0)
    return seconds


def seconds_of(timeline: Timeline, op: int) -> Floats:
    """Return the seconds of each action of a sort, from the end of the one before it."""
    chosen: Floats = took(timeline)[timeline.actions.op == op]
    return chosen


def later(seconds: Floats, /) -> Floats:
    """Return all but the first of a pass, if there are more: it has what is slow but once."""
    return seconds[1:] if len(seconds) > 1 else seconds


def typical(seconds: Floats, weights: Floats | None = None, /) -> float:
    """Return the mean in seconds, in which nothing counts for more than 16 times the median.

    A run adds up its slow moments too, so that the median would promise too little; but one long
    stall is not what an action takes.
    """
    most = _STALL * np.median(seconds)
    return max(float(np.average(np.minimum(seconds, most), weights=weights)), _TICK)


def spread_of(samples: Sequence[Sample], /) -> Quantiles | None:
    """Return how single accesses vary around their mean: those of models, where there are any.

    None where there are too few.
    """
    chosen = [sample for sample in samples if sample.model] or samples
    return quantiles([np.array(sample.each) for sample in chosen])


def quantiles(groups: Sequence[Floats], /) -> Quantiles | None:
    """Return factors on the mean of their group, at equal distances, without the last of each end.

    Their mean is 1, as times drawn from them have it. None for less than a handful, and for what
    takes no time.
    """
    factors = [
        np.minimum(each, _STALL * np.median(each)) / typical(each) for each in groups if len(each)
    ]
    together = np.concatenate(factors) if factors else np.array([])
    if len(together) < _FEW or not together.any():
        return None
    count = min(_POINTS, len(together))
    points = np.quantile(together, (np.arange(count) + 0.5) / count)
    points /= ((points[1:] + points[:-1]) / 2).mean()
    return Quantiles(tuple(max(1e-4, round(float(point), 4)) for point in np.sort(points)))


def fit(samples: Sequence[Sample], /) -> Affine:
    """Return latency and seconds per byte, both >= 0, with the least relative error.

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
    """Return the ratio to plan with where `ratio` was measured: with a margin, and 1 at the most.

    What does not compress is stored as it is, so that no margin is due above 1.
    """
    return ratio if ratio >= 1.0 else min(1.0, ratio * MARGIN)


_PAGE: Final = 4096
_ROOM: Final = 0.5
"""Of the memory that is available, the most that is touched."""


def dirty_limit(root: Path = Path("/")) -> int | None:
    """Return the bytes that may wait to be written before who writes has to wait; None: not known.

    `root` is where /proc is.
    """
    given, ratio = (_number(root / f"proc/sys/vm/dirty_{what}") for what in ("bytes", "ratio"))
    if given:
        return given
    free = available(root)
    return None if ratio is None or free is None else free * ratio // 100


def touch(nbytes: int, /) -> None:
    """Use so much memory once, as far as it is there.

    A virtual machine gets memory from its host when it is first used, and that takes far longer
    than to use it again: what is measured next is what it takes from then on.
    """
    free = available()
    if free is not None:
        nbytes = min(nbytes, int(_ROOM * free))
    np.empty(nbytes, np.uint8)[::_PAGE] = 1


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
