"""One layer of a recurrence over lengths, solved exactly, mostly without an inner loop (kernels).

    F(0) = low(0)
    F(l) = min(low(l), min_{a + i = l - 1} inner(a) + again(i)),
    again(i) = (i + 1) u_f + r + F(i)

on whole numbers, for any functions `low` and `inner`. In the schedule, x_0 is stored, i + 1 steps
are advanced, `inner` is the cost of the rest, and x_0 is read again for those i + 1 steps. The
choice i = l - 1, a = 0 is allowed only if `sweeps`. For example, with u_f = 1, r = 0, low = inner =
(0, inf, inf): F(1) = inner(0) + again(0) = 0 + 1 = 1, and F(2) = inner(0) + again(1) = 0 + 2 + 1 =
3.

The sum of the lower convex hulls of `inner` and `again` is convex in i and is never above a sum of
the functions. Its minimum moves little from one l to the next. First the best i for l - 1 and for a
period earlier are tried. If one of them attains the least sum of the hulls, rounded up, it is the
optimum. If not, any better i is in the window in which the sum of the hulls is less
(`hulls.window`), and in the part that a comparison with an earlier period does not exclude
(`certificates.open_part`). Neither assumes that `inner` or F is convex or periodic, but they save
time if these nearly are. If both hulls are attained, F follows the flatter one as long as that is
straight, and all these lengths are set together.
"""

from typing import NamedTuple

import numpy as np

from ckio.planners.compiled import kernel
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
    Place,
    Sums,
    append,
    curve,
    descend,
    edge,
    enclose,
    least_sum,
    push,
    rise,
    run,
    steeper,
    straight,
    to_the_right,
    window,
)

LOW = -1
"""Used instead of i if `low` is the least."""


class Work(NamedTuple):
    """One layer and its functions, by length.

    Attributes
    ----------
    low, least, split : int64 arrays
        low; F; the best i, or LOW.
    inner, again : Curve
        The two functions; `inner` is a curve from length 1, without its value at 0.
    past : PeriodDifferences
        For the comparison with an earlier period, when that saves time.
    near : int64 array of three elements
        The place where the sum of the hulls was least for the length before.
    advance, read, sweeps
        u_f, r, and whether i = l - 1 is allowed.
    """

    low: Ints
    inner: Curve
    again: Curve
    least: Ints
    split: Ints
    past: PeriodDifferences
    near: Ints
    advance: int
    read: int
    sweeps: bool


def work(low: Ints, inner: Ints | None = None, /, *, advance: int, read: int, sweeps: bool) -> Work:
    """Return a layer for which only F(0) is known; `inner` is `low` if not given.

    The layer stores `inner` itself and may change it; it does not change `low`.
    """
    made = Work(
        low=low,
        inner=curve(low.copy() if inner is None else inner),
        again=curve(low.copy()),
        least=low.copy(),
        split=np.full(len(low), LOW),
        past=no_periods(len(low)),
        near=np.zeros(3, np.int64),
        advance=advance,
        read=read,
        sweeps=sweeps,
    )
    _begin(made)
    return made


@kernel
def _begin(work: Work) -> None:
    for at in range(1, len(work.low)):
        append(work.inner, 1, at, work.inner.y[at])
    settle(work, 0)


@kernel
def settle(work: Work, length: int) -> None:
    """Append the value of `again` that follows from F(length) in `least`."""
    value = work.least[length] + (length + 1) * work.advance + work.read
    append(work.again, 0, length, value)


@kernel
def solve(work: Work, first: int) -> None:
    """Set F for all lengths from `first` >= 1; F of shorter lengths, and `inner`, are known."""
    inner, again, longest = work.inner, work.again, len(work.low) - 1
    if longest >= 1:
        enclose(inner, 1, longest)
    enclose(again, 0, first - 1)
    forget(work.past)
    work.near[:] = 0
    tried, length = 0, first
    while length <= longest:
        _try_the_last(work, length)
        if length > 1:
            tried += _solve_one(work, length)
        attained = _attained(work, length)
        settle(work, length)
        push(again, length)
        if attained:
            length += _jump(work, length)
        length += 1
        if tried > longest:
            choose(work.past, inner)
            tried = -longest * longest  # choose the periods only once


@kernel
def _try(work: Work, length: int, i: int) -> None:
    """Use i if it is better."""
    value = work.inner.y[length - 1 - i] + work.again.y[i]
    if value < work.least[length]:
        work.least[length], work.split[length] = value, i


@kernel
def _try_the_last(work: Work, length: int) -> None:
    """Try `low`, the i of the length before, the next one, and i = l - 1 if it is allowed."""
    last = work.split[length - 1]
    work.least[length], work.split[length] = work.low[length], LOW
    for i in range(last, last + 2):
        if 0 <= i < length - 1:
            _try(work, length, i)
    if work.sweeps:
        _try(work, length, length - 1)


@kernel
def _sums(work: Work, length: int) -> Sums:
    return Sums(work.inner, work.again, length - 1)


@kernel
def _near(work: Work) -> Place:
    return work.near[0], work.near[1], work.near[2]


@kernel
def _solve_one(work: Work, length: int) -> int:
    """Use the best i; return how many were tried one by one."""
    sums = _sums(work, length)
    i, p, q = descend(sums, work.near[0], work.near[1], work.near[2])
    work.near[0], work.near[1], work.near[2] = i, p, q
    _try(work, length, i)
    reachable, _ = least_sum(sums, (i, p, q))
    if reachable < work.least[length]:
        _try_a_period_ago(work, length)
    if reachable < work.least[length]:
        return _try_all(work, length)
    return 0


@kernel
def _try_a_period_ago(work: Work, length: int) -> None:
    for number in range(work.past.state[0]):
        period = work.past.length[number]
        if period < length - 1:
            i = work.split[length - period]
            if i >= 0:
                _try(work, length, i)
                if i + period < length - 1:
                    _try(work, length, i + period)


@kernel
def _try_all(work: Work, length: int) -> int:
    """Try every i that may be better; return how many."""
    keep_up(work.past, work.again, length - 1)
    part = open_part(work.past, work.again, work.least, length)
    if part[0] >= part[1]:
        return 0
    best = work.least[length]
    begin, end = window(_sums(work, length), _near(work), best, part)
    for i in range(begin, end):
        _try(work, length, i)
    return max(0, end - begin)


@kernel
def _attained(work: Work, length: int) -> bool:
    """Return whether the best i attains the least sum of the hulls; if so, move `near` there."""
    i = work.split[length]
    if not 0 <= i < length - 1:
        return False
    reached, whole = least_sum(_sums(work, length), _near(work))
    if reached != work.least[length] or not whole:
        return False
    work.near[0] = i
    return True


@kernel
def _jump(work: Work, length: int) -> int:
    """Set F for the next lengths if both hulls are attained; return the number of these lengths.

    F follows the flatter edge. As long as the curve is straight there, and the hull of `again` only
    grows at its end, the least sum of the hulls is attained for the next lengths, too, if only a or
    only i increases.
    """
    inner, again, near, i = work.inner, work.again, work.near, work.near[0]
    a = length - 1 - i
    p = to_the_right(inner, edge(inner, near[1], a), a)
    q = to_the_right(again, edge(again, near[2], i), i)
    if steeper(rise(inner, p), run(inner, p), rise(again, q), run(again, q)):
        along, flatter, here, step = again, q, i, 1
    else:
        along, flatter, here, step = inner, p, a, 0
    slope, last = rise(along, flatter) // run(along, flatter), again.size[0] - 2
    if not straight(along, flatter) or steeper(
        rise(again, last), run(again, last), slope + work.advance, 1
    ):
        return 0
    far = min(along.hull[flatter + 1] - here, len(work.low) - 1 - length)
    done = _go_on(work, length, slope, step, far)
    if done:
        push(again, length + done)
        near[0] = i + step * done
    return done


@kernel
def _go_on(work: Work, length: int, slope: int, step: int, far: int) -> int:
    """Set F for at most `far` lengths, with increments `slope` and `step`; return their number.

    Stop at a length at which `low` or the choice i = l - 1 is less.
    """
    for done in range(far):
        at = length + done + 1
        value = work.least[at - 1] + slope
        if work.low[at] < value or (work.sweeps and work.inner.y[0] + work.again.y[at - 1] < value):
            return done
        work.least[at], work.split[at] = value, work.split[at - 1] + step
        settle(work, at)
    return far
