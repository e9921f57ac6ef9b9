"""Which sums can still be less than the best one, by comparison with a period ago; kernels.

Let F be the least sums, F(l) <= inner(a) + again(i) wherever a + i = l - 1. Then for any period p

    inner(a) + again(i) >= F(l - p) + max(inner(a) - inner(a - p), again(i) - again(i - p)),

because (a - p, i) and (a, i - p) are sums for the length l - p. A sum for l that is less than
`best` therefore needs both differences to be less than best - F(l - p); where all those to the
right of some a, or of some i, are not, nothing is left to be tried there. This holds for every p;
p is taken from the hull of `inner`, where the optima for consecutive lengths repeat themselves.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ckio.planners.compiled import kernel
from ckio.planners.dp.hulls import Curve, Ints, run, straight

_MOST = 6
"""With fewer, more sums have to be tried; each costs memory."""


class PeriodDifferences(NamedTuple):
    """The differences over some periods: of `inner` for all lengths, of `again` for those so far.

    Attributes
    ----------
    length : int64 array
        The periods, the first `count` of them.
    rises : int64 array (periods, lengths + 1)
        The least inner(a') - inner(a' - p) for a' >= a.
    lows : int32 array (periods, lengths)
        The i, increasing, whose again(i) - again(i - p) is less than all those to the right.
    held : int64 array
        How many `lows` there are for each period.
    covered : int64 array (lengths)
        Room to choose the periods in.
    state : int64 array of two elements
        How many periods there are; and up to which i, not included, `lows` has been kept.
    """

    length: Ints
    rises: Ints
    lows: NDArray[np.int32]
    held: Ints
    covered: Ints
    state: Ints


def no_periods(lengths: int, /) -> PeriodDifferences:
    """Room for the periods of functions of so many lengths."""
    return PeriodDifferences(
        length=np.zeros(_MOST, np.int64),
        rises=np.empty((_MOST, lengths + 1), np.int64),
        lows=np.empty((_MOST, lengths), np.int32),
        held=np.zeros(_MOST, np.int64),
        covered=np.empty(lengths + 1, np.int64),
        state=np.zeros(2, np.int64),
    )


@kernel
def forget(periods: PeriodDifferences) -> None:
    """Have no period."""
    periods.state[0], periods.state[1] = 0, 0
    periods.held[:] = 0


@kernel
def choose(periods: PeriodDifferences, inner: Curve) -> None:
    """Take the periods of a curve that begins at length 1: how long most of its hull's edges are.

    Only edges along which the curve is not straight count, by their length.
    """
    forget(periods)
    covered, longest = periods.covered, 0
    for p in range(inner.size[0] - 1):
        if not straight(inner, p):
            longest = max(longest, run(inner, p))
    covered[: longest + 1] = 0
    for p in range(inner.size[0] - 1):
        if not straight(inner, p):
            covered[run(inner, p)] += run(inner, p)
    for number in range(len(periods.length)):
        period = int(covered[: longest + 1].argmax())
        if covered[period] == 0:
            break
        covered[period] = 0
        periods.length[number] = period
        periods.state[0] = number + 1
        _least_rises(inner.y, period, periods.rises[number])


@kernel
def _least_rises(y: Ints, period: int, rises: Ints) -> None:
    rises[len(y)] = 1 << 62
    for a in range(len(y) - 1, period, -1):
        rises[a] = min(rises[a + 1], y[a] - y[a - period])


@kernel
def keep_up(periods: PeriodDifferences, again: Curve, until: int) -> None:
    """Take in the differences of `again` up to length `until`, not included."""
    y = again.y
    for number in range(periods.state[0]):
        period, lows, count = periods.length[number], periods.lows[number], periods.held[number]
        for i in range(max(period, periods.state[1]), until):
            while (
                count > 0
                and y[lows[count - 1]] - y[lows[count - 1] - period] >= y[i] - y[i - period]
            ):
                count -= 1
            lows[count] = i
            count += 1
        periods.held[number] = count
    periods.state[1] = max(periods.state[1], until)


@kernel
def open_part(
    periods: PeriodDifferences, again: Curve, least: Ints, length: int
) -> tuple[int, int]:
    """The part begin <= i < end where a sum for `length` may be less than `least[length]`.

    `least` is F for shorter lengths.
    """
    begin, end = 0, length - 1
    for number in range(periods.state[0]):
        period = periods.length[number]
        if period <= length - 2:
            gain = least[length] - least[length - period]
            begin = max(begin, length - _closed_from(periods.rises[number], period + 1, gain))
            lows = periods.lows[number][: periods.held[number]]
            end = min(end, _open_until(lows, again.y, period, gain))
    return begin, end


@kernel
def _closed_from(rises: Ints, low: int, gain: int) -> int:
    """The first a from `low` on with no rise less than `gain` to the right of it."""
    high = len(rises) - 1
    while low < high:
        middle = (low + high) >> 1
        if rises[middle] >= gain:
            high = middle
        else:
            low = middle + 1
    return low


@kernel
def _open_until(lows: NDArray[np.int32], y: Ints, period: int, gain: int) -> int:
    """One more than the last i, but at least `period`, with a difference less than `gain`."""
    low, high = 0, len(lows)
    while low < high:
        middle = (low + high) >> 1
        if y[lows[middle]] - y[lows[middle] - period] < gain:
            low = middle + 1
        else:
            high = middle
    return int(lows[low - 1]) + 1 if low > 0 else period
