"""F(l), the cost to reverse l + 1 steps whose x_0 is stored, by a min-plus convolution (kernels).

    F(0) = low(0)
    F(l) = min(low(l), min_{a + i = l - 1} inner(a) + again(i)),
    again(i) = (i + 1) u + r + F(i)

on whole numbers, for any functions `low` and `inner`. In the schedule, x_0 is stored, i + 1 steps
are advanced, `inner` is the cost of the rest, and x_0 is read again for those i + 1 steps. For
example, with u = 1, r = 0, low = inner =
(0, inf, inf): F(1) = inner(0) + again(0) = 0 + 1 = 1, and F(2) = inner(0) + again(1) = 0 + 2 + 1 =
3.

As two loops, this takes O(n^2) time (`plain` in `ckio.planners.dp.recurrence`). Mostly no inner
loop is needed. The sum of the lower convex hulls of `inner` and `again` is convex in i and is never
above a sum of the functions. Its minimum moves little from one l to the next. First the best i for
l - 1 and for a period earlier are tried. If one of them attains the least sum of the hulls, rounded
up, it is the optimum. If not, any better i is in the window in which the sum of the hulls is less
(`hulls.window`), and in the part that a comparison with an earlier period does not exclude
(`certificates.open_part`). Neither assumes that `inner` or F is convex or periodic, but they save
time if these nearly are.
"""

from typing import Final, NamedTuple

import numpy as np

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
    Ints,
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
    """F and its functions, by length.

    Attributes
    ----------
    low, least, split : int64 arrays
        low; F; the best i, or LOW.
    inner, again : Curve
        The two functions; the hull of `inner` begins at length 1.
    past : PeriodDifferences
        For the comparison with an earlier period, when that saves time.
    near : int64 array of three elements
        The place where the sum of the hulls was least for the length before.
    move, read
        u and r.
    """

    low: Ints
    inner: Curve
    again: Curve
    least: Ints
    split: Ints
    past: PeriodDifferences
    near: Ints
    move: int
    read: int


class MinPlus:
    """F for one pair of functions after another; lengths at which F stays equal are not solved."""

    def __init__(self, size: int, /, *, move: int, read: int) -> None:
        self._work = Work(
            low=np.full(size, -1),
            inner=curve(size),
            again=curve(size),
            least=np.zeros(size, np.int64),
            split=np.full(size, LOW),
            past=no_periods(size),
            near=np.zeros(3, np.int64),
            move=move,
            read=read,
        )

    def solve(self, low: Ints, inner: Ints, /) -> tuple[int, Ints, Ints]:
        """Return the first length that was solved, and F and the best i for all lengths.

        Before this length, F equals that of the call before. The next call overwrites both arrays.
        """
        work = self._work
        lows, inners = (
            _first_difference(one, other) for one, other in ((low, work.low), (inner, work.inner.y))
        )
        first = min(lows, inners + 1, len(low))
        changed = max(0, first - 1)
        work.low[changed:], work.inner.y[changed:] = low[changed:], inner[changed:]
        if first == 0:
            work.least[0], work.again.y[0] = low[0], low[0] + work.move + work.read
        _solve(work, max(1, first))
        return first, work.least, work.split


def _first_difference(one: Ints, other: Ints) -> int:
    different = one != other
    at = int(different.argmax())
    return at if different[at] else len(one)


@kernel
def _solve(work: Work, first: int) -> None:
    """Set F for all lengths from `first` >= 1; F of shorter lengths, and `inner`, are known."""
    inner, again, longest = work.inner, work.again, len(work.low) - 1
    if longest >= 1:
        enclose(inner, 1, longest)
    enclose(again, 0, first - 1)
    forget(work.past)
    work.near[:] = 0
    tried = 0
    for length in range(first, longest + 1):
        last = work.split[length - 1]
        work.least[length], work.split[length] = work.low[length], LOW
        for i in range(last, last + 2):
            if 0 <= i < length - 1:
                _try(work, length, i)
        _try(work, length, length - 1)
        if length > 1:
            tried += _solve_one(work, length)
        again.y[length] = work.least[length] + (length + 1) * work.move + work.read
        push(again, length)
        if tried > longest:
            choose(work.past, inner)
            tried = -longest * longest  # choose the periods only once


@inner_kernel
def _try(work: Work, length: int, i: int) -> None:
    """Use i if it is better."""
    value = work.inner.y[length - 1 - i] + work.again.y[i]
    if value < work.least[length]:
        work.least[length], work.split[length] = value, i


@inner_kernel
def _solve_one(work: Work, length: int) -> int:
    """Use the best i; return how many were tried one by one."""
    sums, past = Sums(work.inner, work.again, length - 1), work.past
    place = descend(sums, work.near[0], work.near[1], work.near[2])
    work.near[0], work.near[1], work.near[2] = place
    _try(work, length, place[0])
    reachable = least_sum(sums, place)
    if reachable >= work.least[length]:
        return 0
    for number in range(past.state[0]):  # the best i a period ago, and its successor
        period = past.length[number]
        if period < length - 1 and work.split[length - period] >= 0:
            for i in (work.split[length - period], work.split[length - period] + period):
                if i < length - 1:
                    _try(work, length, i)
    if reachable >= work.least[length]:
        return 0
    keep_up(past, work.again, length - 1)
    part = open_part(past, work.again, work.least, length)
    if part[0] >= part[1]:
        return 0
    begin, end = window(sums, place, work.least[length], part)
    for i in range(begin, end):
        _try(work, length, i)
    return max(0, end - begin)
