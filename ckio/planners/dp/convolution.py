"""One layer of a recurrence over lengths, exactly, and mostly without its inner loop; kernels.

    F(0) = low(0)
    F(l) = min(low(l), min_{a + i = l - 1} inner(a) + again(i)),
    again(i) = (i + 1) u_f + r + F(i)

on whole numbers, for any functions `low` and `inner`: from x_0, which is stored, i + 1 steps are
advanced, the rest is left to `inner`, and x_0 is read again for those i + 1 steps. The choice
i = l - 1, a = 0 is there only if `sweeps`.

The sum of the lower convex hulls of `inner` and `again` is convex in i, never above a sum, and its
minimiser moves little from one l to the next. What is tried first is what was best for l - 1, and
a period ago. If that is the hulls' least sum, rounded up, it is the optimum; if not, whatever
beats it is within the window in which the hulls' sum is less (`hulls.window`), and within the part
that comparison with a period ago leaves open (`periods.open_part`). Neither assumes that `inner`
or F is convex or periodic; they save time where they nearly are. Where both hulls are attained,
F goes on along the flatter one as long as that is straight, and all of it is filled in at once.
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
"""In place of an i: `low` was taken."""


class Work(NamedTuple):
    """One layer and what it is made of, by length.

    Attributes
    ----------
    low, least, split : int64 arrays
        low; F; the i that was taken, or LOW.
    inner, again : Curve
        Their values; `inner` is a curve from length 1 on, whatever it is at 0.
    past : PeriodDifferences
        For comparison with a period ago, once that pays.
    near : int64 array of three elements
        The place where the sum of the hulls was least the last time.
    advance, read, sweeps
        u_f, r, and whether i = l - 1 may be taken.
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
    """A layer of which nothing is known as yet but F(0); `inner` is `low` if not given.

    `inner` is kept and may be changed, `low` is not.
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
    """Go on from F(length), which is in `least`."""
    value = work.least[length] + (length + 1) * work.advance + work.read
    append(work.again, 0, length, value)


@kernel
def solve(work: Work, first: int) -> None:
    """F from length `first` on, at least 1; all that is shorter, and `inner`, is known."""
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
            tried = -longest * longest  # choose them once only


@kernel
def _try(work: Work, length: int, i: int) -> None:
    """Take i, if that is better."""
    value = work.inner.y[length - 1 - i] + work.again.y[i]
    if value < work.least[length]:
        work.least[length], work.split[length] = value, i


@kernel
def _try_the_last(work: Work, length: int) -> None:
    """Try `low`, to go on as for the length before, and i = l - 1 where it is allowed."""
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
    """Take the best i; how many had to be tried."""
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
    """Try every i that may be better; how many."""
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
    """Whether the i taken has the least sum of the hulls; then `near` is brought there."""
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
    """Go on from where both hulls are attained, along the flatter edge; by how many lengths.

    As long as the curve is straight there, and the hull of `again` only grows at its end, the
    hulls' least sum is attained further on, with only a or only i increasing.
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
    """Let F rise by `slope` and i by `step`, at most `far`, while nothing else is less."""
    for done in range(far):
        at = length + done + 1
        value = work.least[at - 1] + slope
        if work.low[at] < value or (work.sweeps and work.inner.y[0] + work.again.y[at - 1] < value):
            return done
        work.least[at], work.split[at] = value, work.split[at - 1] + step
        settle(work, at)
    return far
