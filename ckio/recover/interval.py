"""How long to go on between two adjoint checkpoints: what they cost against what a failure costs.

With C the seconds of one checkpoint and M the mean seconds between failures, Young takes

    sqrt(2 C M)

which is the first term of an expansion for C much smaller than M. Daly's higher order estimate
(2006, eq. 37) holds further out:

    sqrt(2 C M) [1 + sqrt(C / 2M) / 3 + (C / 2M) / 9] - C    where C < 2M, else M

Here it is Daly's.
"""

from math import inf, sqrt

from ckio.actions.checks import as_float
from ckio.errors import BadInput
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.recover.room import numbered


def every(write_seconds: float, mtbf: float, /) -> float:
    """Seconds of work between two checkpoints of `write_seconds`, by Daly's estimate.

    `mtbf` is the mean time between failures, in seconds: infinite where there are none, and then
    so is the interval. What costs nothing is to be written all the time. Raises BadInput for
    seconds below 0 or without end, and for a mean time that is not above 0.
    """
    cost, mean = as_float(write_seconds), as_float(mtbf)
    if cost is None or not 0 <= cost < inf:
        raise BadInput(f"write_seconds = {write_seconds!r}; it must be finite and >= 0")
    if mean is None or not mean > 0:
        raise BadInput(f"mtbf = {mtbf!r}; it must be a number of seconds above 0")
    if cost == 0:
        return 0.0
    part = cost / mean / 2
    if part >= 1:
        return mean
    return sqrt(2 * cost) * sqrt(mean) * (1 + sqrt(part) / 3 + part / 9) - cost


def adjoint_seconds(chain: Chain, platform: Platform, level: int, /) -> float:
    """What one adjoint checkpoint costs on a level: to write the largest, and to discard it."""
    here, nbytes = numbered(platform, level), chain.largest("adjoint")
    return here.write(nbytes) + here.discard(nbytes)
