"""Q of the recurrence on one level, for one row after another, by a min-plus convolution (kernels).

Here, and in `hulls` and `certificates`, a chain of n steps has the length l = n - 1, as in Herrmann
and Pallez (2020); `ell` in the code. Q(l) is the cost to reverse l + 1 steps whose x_0 is stored,
u_f the cost to advance over a step, and r the cost to read x_0:

    Q(0) = low(0)
    Q(l) = min(low(l), min_{a + i = l - 1} inner(a) + outer(i)),
    outer(i) = (i + 1) u_f + r + Q(i)

on whole numbers, for any functions `low` and `inner`. `low` is the cost if x_0 is discarded. In the
schedule, x_0 is stored, the run advances over i + 1 steps (j of the recurrence), reverses the
a + 1 other steps at the cost `inner`, and returns to x_0 for those i + 1 steps. For example, with
u_f = 1, r = 0, low = inner = (0, inf, inf): Q(1) = inner(0) + outer(0) = 0 + 1 = 1, and
Q(2) = inner(0) + outer(1) = 0 + 2 + 1 = 3.

As two loops, this takes O(n^2) time (`plain` in `ckio.planners.dp.recurrence`). Mostly no inner
loop is needed. The sum of the lower convex hulls of `inner` and `outer` is convex in i and is never
above a sum of the functions. Therefore, for each l, the code tries

1. the best i for l - 1 and the next one, and i = l - 1, as `inner` is in the hull from a = 1 only;
2. the i at which the sum of the hulls is least, which moves little from one l to the next. If a sum
   is as low as this least sum, rounded up, it is the optimum;
3. the best i a period earlier, and the same i plus the period. A period is the length of an edge of
   the hull of `inner`: the optimum often repeats with it;
4. all i in the window in which the sum of the hulls is less than the best sum found
   (`hulls.window`), without those that a comparison with an earlier period excludes
   (`certificates.open_part`).

No step assumes that `inner` or Q is convex or periodic, but they save time if these nearly are.
"""

from typing import Final, NamedTuple

import numpy as np

from ckio.planners.base import Ints
from ckio.planners.compiled import inner_kernel, kernel
from ckio.planners.dp.certificates import (
    PeriodDifferences,
    choose,
    forget,
    keep_up,
    no_periods,
    open_part,
)
from ckio.planners.dp.hulls import (
    Curve,
    Sums,
    curve,
    descend,
    enclose,
    least_sum,
    push,
    window,
)

LOW: Final = -1
"""Used instead of i if `low` is the least."""


class Work(NamedTuple):
    """Q and its functions, by length.

    Attributes
    ----------
    low, least, split : int64 arrays
        low; Q; the best i, or LOW.
    inner, outer : Curve
        The two functions; the hull of `inner` begins at length 1.
    past : PeriodDifferences
        For the comparison with an earlier period, when that saves time.
    near : int64 array of three elements
        The place where the sum of the hulls was least for the length before.
    move, read
        u_f and r.
    """

    low: Ints
    inner: Curve
    outer: Curve
    least: Ints
    split: Ints
    past: PeriodDifferences
    near: Ints
    move: int
    read: int


class MinPlus:
    """Q for one pair of functions after another; only lengths at which Q changes are solved."""

    def __init__(self, size: int, /, *, move: int, read: int) -> None:
        self._work = Work(
            low=np.full(size, -1),
            inner=curve(size, begin=1),
            outer=curve(size, begin=0),
            least=np.zeros(size, np.int64),
            split=np.full(size, LOW),
            past=no_periods(size),
            near=np.zeros(3, np.int64),
            move=move,
            read=read,
        )

    def solve(self, low: Ints, inner: Ints, /) -> tuple[int, Ints, Ints]:
        """Return the first length that was solved, and Q and the best i for all lengths.

        Before this length, Q equals that of the call before. The next call overwrites both arrays.
        """
        work = self._work
        lows, inners = (
            _first_difference(one, other) for one, other in ((low, work.low), (inner, work.inner.y))
        )
        first = min(lows, inners + 1, len(low))
        changed = max(0, first - 1)
        work.low[changed:], work.inner.y[changed:] = low[changed:], inner[changed:]
        if first == 0:
            work.least[0], work.outer.y[0] = low[0], low[0] + work.move + work.read
        _solve(work, max(1, first))
        return first, work.least, work.split


def _first_difference(one: Ints, other: Ints) -> int:
    different = one != other
    at = int(different.argmax())
    return at if different[at] else len(one)


@kernel
def _solve(work: Work, first: int) -> None:
    """Set Q for all lengths from `first` >= 1; Q of shorter lengths, and `inner`, are known."""
    inner, outer, longest = work.inner, work.outer, len(work.low) - 1
    if longest >= 1:
        enclose(inner, longest)
    enclose(outer, first - 1)
    forget(work.past)
    work.near[:] = 0
    tried = 0
    for ell in range(first, longest + 1):
        last = work.split[ell - 1]
        work.least[ell], work.split[ell] = work.low[ell], LOW
        for i in range(last, last + 2):
            if 0 <= i < ell - 1:
                _try(work, ell, i)
        _try(work, ell, ell - 1)
        if ell > 1:
            tried += _solve_one(work, ell)
        outer.y[ell] = work.least[ell] + (ell + 1) * work.move + work.read
        push(outer, ell)
        if tried > longest:
            choose(work.past, inner)
            tried = -longest * longest  # choose the periods only once


@inner_kernel
def _try(work: Work, ell: int, i: int) -> None:
    """Use i if it is better."""
    value = work.inner.y[ell - 1 - i] + work.outer.y[i]
    if value < work.least[ell]:
        work.least[ell], work.split[ell] = value, i


@inner_kernel
def _solve_one(work: Work, ell: int) -> int:
    """Use the best i; return how many were tried one by one."""
    sums, past = Sums(work.inner, work.outer, ell - 1), work.past
    place = descend(sums, work.near[0], work.near[1], work.near[2])
    work.near[0], work.near[1], work.near[2] = place
    _try(work, ell, place[0])
    reachable = least_sum(sums, place)
    if reachable >= work.least[ell]:
        return 0
    for number in range(past.state[0]):  # the best i a period ago, and its successor
        period = past.period[number]
        if period < ell - 1 and work.split[ell - period] >= 0:
            for i in (work.split[ell - period], work.split[ell - period] + period):
                if i < ell - 1:
                    _try(work, ell, i)
    if reachable >= work.least[ell]:
        return 0
    keep_up(past, work.outer, ell - 1)
    part = open_part(past, work.outer, work.least, ell)
    if part[0] >= part[1]:
        return 0
    begin, end = window(sums, place, work.least[ell], part)
    for i in range(begin, end):
        _try(work, ell, i)
    return max(0, end - begin)
