"""From many measurements of an access to one number, and from such numbers to a cost function.

This module also reads the operating system's limit for cached writes, and uses memory once, because
the first use of memory is slow.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ckio.platform import Affine
from ckio.platform.memory import available
from ckio.schedule.timeline import Timeline

Floats = NDArray[np.float64]

MARGIN: Final = 1.1
"""Factor on a measured compression ratio for plans, because checkpoints may compress worse."""

_STALL: Final = 16.0
"""A measurement larger than this multiple of the median is replaced by this multiple."""
_TICK: Final = 1e-9
"""Minimum seconds of any measurement."""
_OWN_WEIGHT: Final = 100.0
"""Weight of a model's own checkpoints in a fit; artificial checkpoints have weight 1."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The measurements of one kind of access to one level at one size.

    Attributes
    ----------
    level, access : str
        The name of the level, and the name of a cost of `Level` or of `Profile`.
    nbytes : int
        Bytes of the checkpoint, before compression.
    seconds : float
        The mean seconds of an access; see `typical`.
    ratio : float
        Stored bytes per byte of the checkpoint.
    model : bool
        Whether it was a model's own checkpoint, not an artificial one.
    """

    level: str
    access: str
    nbytes: int
    seconds: float
    ratio: float
    model: bool


def durations(timeline: Timeline, /) -> Floats:
    """Return the seconds of each action, from the end of the action before."""
    seconds: Floats = np.diff(timeline.stop, prepend=0.0)
    return seconds


def seconds_of(timeline: Timeline, op: int) -> Floats:
    """Return the seconds of each action with this operation, from the end of the one before."""
    chosen: Floats = durations(timeline)[timeline.actions.op == op]
    return chosen


def later(seconds: Floats, /) -> Floats:
    """Return all times of a pass except the first, which is slower; a single time is returned."""
    return seconds[1:] if len(seconds) > 1 else seconds


def typical(seconds: Floats, weights: Floats | None = None, /) -> float:
    """Return the mean in seconds, in which a value counts as at most 16 times the median.

    The median would be too small, because the time of a run also contains its slow accesses. The
    limit prevents a single long interruption from dominating the mean. For example, the median of
    1, 1 and 100 s is 1 s, so that the third value counts as 16 s:

    >>> typical(np.array([1.0, 1.0, 100.0]))
    6.0
    """
    most = _STALL * np.median(seconds)
    return max(float(np.average(np.minimum(seconds, most), weights=weights)), _TICK)


def fit(samples: Sequence[Sample], /) -> Affine:
    """Return latency and seconds per byte, both >= 0, that minimise the squared relative errors.

    A model's own checkpoints have a large weight, so that the cost is accurate for their sizes. For
    example, two exact measurements of 1 s + 2 s per byte:

    >>> one, ten = (Sample("l", "write", n, 1.0 + 2.0 * n, 1.0, False) for n in (1, 10))
    >>> cost = fit([one, ten])
    >>> round(cost.latency, 6), round(cost.per_byte, 6)
    (1.0, 2.0)
    """
    from scipy.optimize import nnls

    seconds = np.array([max(sample.seconds, _TICK) for sample in samples])
    weight = np.array([_OWN_WEIGHT if sample.model else 1.0 for sample in samples]) / seconds
    nbytes = np.array([sample.nbytes for sample in samples], float)
    # Bytes in units of the largest size, so that both unknowns have the same magnitude.
    unit = max(nbytes.max(), 1.0)
    matrix = np.stack((np.ones_like(nbytes), nbytes / unit), axis=1)
    (latency, slope), _ = nnls(matrix * weight[:, None], seconds * weight)
    return Affine(float(latency), float(slope / unit))


def with_margin(ratio: float, /) -> float:
    """Return the ratio for plans from a measured ratio: 1.1 times as large, but at most 1.

    There is no margin at 1 or above, because a checkpoint that does not compress is stored without
    compression.

    >>> with_margin(0.5), with_margin(0.95), with_margin(1.2)
    (0.55, 1.0, 1.2)
    """
    return ratio if ratio >= 1.0 else min(1.0, ratio * MARGIN)


_PAGE: Final = 4096
_MOST_OF_MEMORY: Final = 0.5
"""Maximum fraction of the available memory that is touched."""


def dirty_limit(root: Path = Path("/")) -> int | None:
    """Return the limit of written bytes in the page cache, above which a write waits.

    Return None if it is not known. `root` is the directory with /proc.
    """
    given, ratio = (_number(root / f"proc/sys/vm/dirty_{what}") for what in ("bytes", "ratio"))
    if given:
        return given
    free = available(root)
    return None if ratio is None or free is None else free * ratio // 100


def touch(nbytes: int, /) -> None:
    """Use `nbytes` of memory once, but at most half of the available memory.

    A virtual machine gets memory from its host at the first use, which is much slower than later
    uses. After this call, measurements do not contain the first use.
    """
    free = available()
    if free is not None:
        nbytes = min(nbytes, int(_MOST_OF_MEMORY * free))
    np.empty(nbytes, np.uint8)[::_PAGE] = 1


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
