"""Which sums can be less than the best known one, by comparison with an earlier period (kernels).

Let Q be the least sums: Q(l) <= inner(a) + outer(i) if a + i = l - 1. Then, for any period p,

    inner(a) + outer(i) >= Q(l - p) + max(inner(a) - inner(a - p), outer(i) - outer(i - p)),

because (a - p, i) and (a, i - p) are sums for the length l - p. Therefore a sum for l can be less
than `best` only if both differences are less than best - Q(l - p). If no difference to the right of
some a, or of some i, is less, these sums need not be tried. This is true for every p. The periods
are taken from the hull of `inner`, because the optima for consecutive lengths repeat with them.

For example, let Q(10) = 20, p = 3, best = 26 for l = 13: a sum with inner(a) - inner(a - 3) = 7
is at least 27, and need not be tried.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ckio.planners.base import Ints
from ckio.planners.compiled import inner_kernel
from ckio.planners.dp.hulls import Curve, rise, run

_MOST = 6
"""The most periods. With fewer, more sums are tried; each takes 12 bytes for each length."""


class PeriodDifferences(NamedTuple):
    """Differences over some periods: of `inner` for all lengths, of `outer` for the known ones.

    Attributes
    ----------
    period : int64 array
        The periods; only the first `state[0]` elements are used.
    rises : int64 array (periods, lengths + 1)
        The least inner(a') - inner(a' - p) for a' >= a.
    lows : int32 array (periods, lengths)
        The ascending i for which outer(i) - outer(i - p) is less than all differences to the right.
    counts : int64 array
        The number of `lows` of each period.
    covered : int64 array (lengths)
        Temporary storage for the choice of periods.
    state : int64 array of two elements
        The number of periods; and the i (exclusive) up to which `lows` is known.
    """

    period: Ints
    rises: Ints
    lows: NDArray[np.int32]
    counts: Ints
    covered: Ints
    state: Ints


def no_periods(lengths: int, /) -> PeriodDifferences:
    """Return arrays for the periods of functions of `lengths` lengths, without a period."""
    return PeriodDifferences(
        period=np.zeros(_MOST, np.int64),
        rises=np.empty((_MOST, lengths + 1), np.int64),
        lows=np.empty((_MOST, lengths), np.int32),
        counts=np.zeros(_MOST, np.int64),
        covered=np.empty(lengths + 1, np.int64),
        state=np.zeros(2, np.int64),
    )


@inner_kernel
def forget(periods: PeriodDifferences) -> None:
    """Remove all periods."""
    periods.state[0], periods.state[1] = 0, 0
    periods.counts[:] = 0


@inner_kernel
def choose(periods: PeriodDifferences, inner: Curve) -> None:
    """Choose the periods of a curve that begins at length 1: the most frequent edge lengths.

    Only edges of the hull along which the curve is not straight count, weighted by their length.
    """
    forget(periods)
    covered, longest = periods.covered, 0
    for p in range(inner.size[0] - 1):
        longest = max(longest, run(inner, p))
    covered[: longest + 1] = 0
    for p in range(inner.size[0] - 1):
        begin, length = inner.hull[p], run(inner, p)
        if inner.y[begin + 1] - inner.y[begin] > rise(inner, p) // length:
            covered[length] += length
    for number in range(len(periods.period)):
        period = longest
        for length in range(longest - 1, 0, -1):
            if covered[length] >= covered[period]:
                period = length
        if covered[period] == 0:
            break
        covered[period] = 0
        periods.period[number] = period
        periods.state[0] = number + 1
        _least_rises(inner.y, period, periods.rises[number])


@inner_kernel
def _least_rises(y: Ints, period: int, rises: Ints) -> None:
    rises[len(y)] = 1 << 62
    for a in range(len(y) - 1, period, -1):
        rises[a] = min(rises[a + 1], y[a] - y[a - period])


@inner_kernel
def keep_up(periods: PeriodDifferences, outer: Curve, until: int) -> None:
    """Add the differences of `outer` up to length `until` (exclusive)."""
    y = outer.y
    for number in range(periods.state[0]):
        period, lows, count = periods.period[number], periods.lows[number], periods.counts[number]
        for i in range(max(period, periods.state[1]), until):
            while (
                count > 0
                and y[lows[count - 1]] - y[lows[count - 1] - period] >= y[i] - y[i - period]
            ):
                count -= 1
            lows[count] = i
            count += 1
        periods.counts[number] = count
    periods.state[1] = max(periods.state[1], until)


@inner_kernel
def open_part(periods: PeriodDifferences, outer: Curve, least: Ints, ell: int) -> tuple[int, int]:
    """Return begin <= i < end in which a sum for `ell` may be less than `least[ell]`.

    `least` is Q for shorter lengths.
    """
    begin, end = 0, ell - 1
    for number in range(periods.state[0]):
        period = periods.period[number]
        if period <= ell - 2:
            gain = least[ell] - least[ell - period]
            begin = max(begin, ell - _closed_from(periods.rises[number], period + 1, gain))
            lows = periods.lows[number][: periods.counts[number]]
            end = min(end, _open_until(lows, outer.y, period, gain))
    return begin, end


@inner_kernel
def _closed_from(rises: Ints, low: int, gain: int) -> int:
    """Return the first a >= `low` such that no rise from a onwards is less than `gain`."""
    high = len(rises) - 1
    while low < high:
        middle = (low + high) >> 1
        if rises[middle] >= gain:
            high = middle
        else:
            low = middle + 1
    return low


@inner_kernel
def _open_until(lows: NDArray[np.int32], y: Ints, period: int, gain: int) -> int:
    """Return the last i whose difference is less than `gain`, plus one; at least `period`."""
    low, high = 0, len(lows)
    while low < high:
        middle = (low + high) >> 1
        if y[lows[middle]] - y[lows[middle] - period] < gain:
            low = middle + 1
        else:
            high = middle
    return int(lows[low - 1]) + 1 if low > 0 else period
