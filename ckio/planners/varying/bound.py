"""A lower bound for chains whose steps differ; what moving takes, and how many tapes are held."""

from math import comb, inf
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ckio.platform import Platform
from ckio.platform.chain import Chain

_Number = TypeVar("_Number", bound=np.number)


def sorted_bound(chain: Chain, platform: Platform, /, *, slots: int, tapes: bool) -> float:
    """No schedule with so many slots on all levels together takes less time than this.

    At most C(s + t, s) steps are advanced over no more than t times with s slots; with tapes, of
    which the register holds h, at most C(s + t + 1, s) + (h - 1) C(s + t, s) are. So the least is
    reached where the dearest steps are repeated least, and access costs nothing. It holds for any
    sizes if the slots are those of the smallest.
    """
    seconds_forward = forward(chain, tapes)
    held = int((reach(chain, platform, tapes) - np.arange(chain.length)).max())
    seconds = float((chain.each("record") + chain.each("reverse")).sum())
    dearest = np.sort(seconds_forward)[::-1]
    first, t = 0, 0
    if not slots and held < chain.length:
        return inf  # there is no way back to a step
    while first < chain.length:
        most = comb(slots + t, slots)
        if tapes:
            most = comb(slots + t + 1, slots) + (held - 1) * most
        last = min(most, chain.length)
        seconds += t * float(dearest[first:last].sum())
        first, t = last, t + 1
    return seconds


def forward(chain: Chain, tapes: bool, /) -> NDArray[np.float64]:
    """Seconds to go forward over each step: recording may be the quicker way."""
    advance = chain.each("advance")
    return np.minimum(advance, chain.each("record")) if tapes else advance


def reach(chain: Chain, platform: Platform, tapes: bool, /) -> NDArray[np.int64]:
    """Up to where the register holds the tape from each step on; of one step without `tapes`."""
    first = np.arange(chain.length)
    if not tapes:
        return first + 1
    if platform.working_memory is None:
        return np.full(chain.length, chain.length)
    before = sums(chain.each("tape"))
    room = min(platform.working_memory, int(before[-1]))
    return np.searchsorted(before, before[:-1] + room, side="right") - 1


def sums(values: NDArray[_Number], /) -> NDArray[_Number]:
    """The sums of all values before each, and before the end."""
    return np.insert(np.cumsum(values, axis=-1), 0, 0, axis=-1)
