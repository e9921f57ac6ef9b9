"""Disk-Revolve and its relatives: few near slots that cost nothing, and a far level that does.

    disk-revolve            the least makespan, if the far level never fills
    1d-revolve              the least with x_0 alone on the far level
    periodic-disk-revolve   every m_X-th state on the far level, read as often as it pays
    per-rev-revolve         every m_X^rr-th state on the far level, read once

For c near slots and u_f seconds a step, and with D(n), m_X and m_X^rr of `spacing`, disk-revolve
takes

    H(n) = min(A_0(n) u_f, min_{1<=m<=n-2} w + m u_f + H(n - m) + r + D(m))

beside what every schedule pays for recording and reversing each step once: H has to be solved, in
O(n M) with M the longest period that can pay, and the other three are closed forms. All are as
Herrmann and Pallez, "H-Revolve", ACM TOMS 2020, sections 2.4.2, 3.2 and 4.3 have them (theirs
of a chain of l = n - 1), after Aupy, Herrmann, Hovland and Robert, "Optimal multistage algorithm
for adjoint computation", SISC 2016. In their Algorithm 3 the blocks must be Revolve(m - 1).

What the near level costs plays no part in choosing: memory is free there. A plan that writes
nothing to a far level, and any where there is none, is Revolve. The near level is the nearest that
holds a checkpoint and the far one the nearest beyond with a slot for every period, unless `near`
or `far` names them; where none has the slots, the planners raise NoSchedule, which says how many
are needed.
"""

import numpy as np
from numpy.typing import NDArray

from ckio.chain import Chain
from ckio.checks import is_whole
from ckio.errors import BadInput
from ckio.planners.blocks import Periods, Place, Plan, Segments, by_revolve, in_periods
from ckio.planners.spacing import (
    period_read_once,
    period_reread,
    read_once,
    reread,
    searched_period,
    segments,
)
from ckio.platforms import Platform
from ckio.schedule import Schedule


def disk_revolve(
    chain: Chain, platform: Platform, /, *, near: str | None = None, far: str | None = None
) -> Schedule:
    """The least makespan on a near level that costs nothing and a far level that never fills."""

    def plan(place: Place) -> Plan:
        note = "the least makespan, if the near level costs nothing"
        return Plan(least(chain.length, place), by_1d_revolve(place), note)

    return in_periods(chain, platform, plan, planner="disk-revolve", near=near, far=far)


def revolve_1d(
    chain: Chain, platform: Platform, /, *, near: str | None = None, far: str | None = None
) -> Schedule:
    """The least makespan with x_0 alone on the far level and all others in near slots.

    1D-Revolve itself begins when x_0 has been written; here it is written if that pays.
    """

    def plan(place: Place) -> Plan:
        note = "the least makespan with one far checkpoint, x_0, if the near level costs nothing"
        return Plan(_first_alone(chain.length, place), by_1d_revolve(place), note)

    return in_periods(chain, platform, plan, planner="1d-revolve", near=near, far=far)


def periodic_disk_revolve(
    chain: Chain,
    platform: Platform,
    /,
    *,
    period: int | None = None,
    certify: bool = False,
    near: str | None = None,
    far: str | None = None,
) -> Schedule:
    """Every `period`-th state on the far level, and each period taken back by 1D-Revolve.

    Without a period it is m_X, in closed form or, to `certify` it, by search. Raises BadInput for a
    period that is no length of a block.
    """
    return _periodic(chain, platform, period, certify=certify, once=False, near=near, far=far)


def per_rev_revolve(
    chain: Chain,
    platform: Platform,
    /,
    *,
    period: int | None = None,
    certify: bool = False,
    near: str | None = None,
    far: str | None = None,
) -> Schedule:
    """Every `period`-th state on the far level, read once, and each period taken back by Revolve.

    Without a period it is m_X^rr, in closed form or, to `certify` it, by search. Raises BadInput
    for a period that is no length of a block.
    """
    return _periodic(chain, platform, period, certify=certify, once=True, near=near, far=far)


def _periodic(
    chain: Chain,
    platform: Platform,
    period: int | None,
    *,
    certify: bool,
    once: bool,
    near: str | None,
    far: str | None,
) -> Schedule:
    check_period(period, chain)

    def plan(place: Place) -> Plan:
        steps = period or _best_period(chain.length, place, certify=certify, once=once)
        how = "by search" if certify else "in closed form"
        which = "as given" if period else f"the best in the long run, {how}"
        note = f"a far checkpoint every {steps} steps: {which}"
        return Plan(_equal(chain.length, steps), by_revolve if once else by_1d_revolve(place), note)

    return in_periods(
        chain,
        platform,
        plan,
        planner="per-rev-revolve" if once else "periodic-disk-revolve",
        near=near,
        far=far,
        needs_far=period is not None and bool(_equal(chain.length, period).lengths),
    )


def check_period(period: int | None, chain: Chain, /) -> None:
    """Raise BadInput for a period that is no number of the chain's steps; None is none."""
    if period is not None and not (is_whole(period) and 1 <= period <= chain.length):
        raise BadInput(
            f"period = {period!r}; it must be between 1 and the chain's {chain.length} steps"
        )


def _best_period(steps: int, place: Place, *, certify: bool, once: bool) -> int:
    far, advance = place.far, place.advance
    if certify:
        return searched_period(
            place.slots, write=far.write, read=far.read, advance=advance, most=steps, once=once
        )
    closed_form = period_read_once if once else period_reread
    return closed_form(place.slots, write=far.write, read=far.read, advance=advance, most=steps)


def _equal(steps: int, period: int) -> Periods:
    """Algorithm 3: equal periods while more than `period` + 1 steps are left, and the turn."""
    count = max(0, steps - 2) // period
    return Periods((period,) * count, steps - count * period)


def by_1d_revolve(place: Place, /) -> Segments:
    """A period taken back in the segments of 1D-Revolve."""

    def cut(steps: int) -> list[int]:
        _, rereads = reread(
            np.array([steps]), place.slots, advance=place.advance, read=place.far.read
        )
        return segments(steps, place.slots, int(rereads[0]))

    return cut


def _first_alone(steps: int, place: Place) -> Periods:
    """1D-Revolve of the whole chain: all but its first segment, reversed last, is one period."""
    once = float(read_once(np.array([steps]), place.slots)[0] * place.advance)
    seconds, _ = reread(np.array([steps]), place.slots, advance=place.advance, read=place.far.read)
    if once <= place.far.write + seconds[0]:
        return Periods((), steps)
    turn = by_1d_revolve(place)(steps)[0]
    return Periods((steps - turn,), turn)


def least(steps: int, place: Place, /) -> Periods:
    """The periods of Disk-Revolve: the longest first, where several are as good."""
    advance, far = place.advance, place.far
    lengths = np.arange(1, steps + 1)
    once = read_once(lengths, place.slots)
    seconds = np.concatenate(([0.0], once * advance))  # H(n), at first all in near slots
    longest = min(steps - 2, _longest_that_pays(once, place))
    if longest < 1:
        return Periods((), steps)
    taken, _ = reread(lengths[:longest], place.slots, advance=advance, read=far.read)
    # What a period takes, the longest first, so that the candidates for n are a slice of each.
    period = (far.write + lengths[:longest] * advance + far.read + taken)[::-1]
    first = [0] * (steps + 1)
    for n in range(3, steps + 1):
        begin = max(2, n - longest)  # what is left after the longest period
        candidates = seconds[begin:n] + period[begin - n :]
        best = int(candidates.argmin())
        if candidates[best] < seconds[n]:
            seconds[n] = candidates[best]
            first[n] = n - begin - best
    periods = []
    while m := first[steps]:
        periods.append(m)
        steps -= m
    return Periods(tuple(periods), steps)


def _longest_that_pays(once: NDArray[np.int64], place: Place) -> int:
    """No period is longer: cutting it in two would make it cheaper.

    It may be cut before its last segment, which saves an advance over all that is before it for
    one write; or within the last segment, in halves, for a write and a read. By the first, what is
    before the last segment is at most w / u_f steps; by the second, the last segment is at most so
    long that halves save no more than w + r, and they save the more, the longer it is.
    """
    advance, far = place.advance, place.far
    before = int(far.write // advance) + 1 if far.write < advance * len(once) else len(once)
    lengths = np.arange(2, len(once) + 1)
    saved = (once[1:] - once[lengths // 2 - 1] - once[lengths - lengths // 2 - 1]) * advance
    return before + 1 + int(np.count_nonzero(saved <= far.write + far.read))
