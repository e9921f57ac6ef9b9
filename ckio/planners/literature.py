r"""Planners of the literature, which look at some of the costs only: for comparison, and as bounds.

    multistage              Revolve in the slots of several levels (Stumm and Walther 2009)
    disk-revolve            the least makespan, if near slots cost nothing and the far level never
                            fills (Aupy, Herrmann, Hovland and Robert 2016)
    1d-revolve              the least with x_0 alone on the far level
    periodic-disk-revolve   every m_X-th state on the far level, read as often as it pays
    per-rev-revolve         every m_X^rr-th state on the far level, read once
    two-level               blocks of equal length (Pringle et al. 2016, Maddison 2023)
    wang-moin               a rule for a chain whose end is not known (Wang, Moin, Iaccarino 2009)

Each section begins with its scheme, its closed form or recurrence, and its source.

For example, let twelve steps take a second each, let two near slots cost nothing, and let a write
and a read on the far level take two seconds each. Then disk-revolve writes x_0 (2 s), advances over
six steps (6 s), takes back the other six in the near slots (8 s, A_0(6) of Revolve), reads x_0 (2
s) and takes back the first six (8 s), besides recording and reversing. Multistage, which looks at
no costs, uses all slots there are:

    >>> from ckio.schedule import makespan
    >>> chain = Chain(steps=12, advance=1, record=0, reverse=0, restart=1, tape=1, adjoint=1)
    >>> machine = Platform.from_hrevolve("2\n 2 0 0\n 12 2 2")
    >>> planners = disk_revolve, per_rev_revolve, two_level, wang_moin, multistage
    >>> [makespan(planner(chain, machine), machine) for planner in planners]
    [26.0, 26.0, 26.0, 36.0, 47.0]
"""

from math import inf

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Key, Kind
from ckio.actions.checks import is_whole
from ckio.actions.columns import DISCARD, WRITE, Actions
from ckio.errors import BadInput
from ckio.planners.base import alike, candidates, nearest, room_for_one, rooms, tapes
from ckio.planners.blocks import (
    NearAndFar,
    PeriodPlan,
    Periods,
    Segments,
    at_level,
    by_revolve,
    in_periods,
    revolved,
)
from ckio.planners.draft import Draft
from ckio.planners.resume import resume
from ckio.planners.spacing import (
    period_read_once,
    period_reread,
    read_once,
    reread,
    searched_period,
    segments,
)
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule

_Ints = NDArray[np.int64]


# Multistage: Revolve in the slots of several levels, those used most on the nearest.
#
# Revolve's checkpoints form a stack. For a chain of n steps and s slots in all, each place in the
# stack is written and read so many times; the places used least go to the farthest level, and so
# on. It takes the fewest forward steps that s slots allow, and looks at no costs (Stumm and
# Walther, "MultiStage approaches for optimal offline checkpointing", SISC 2009; for two levels in
# Maddison, "On the implementation of checkpointing with high-level algorithmic differentiation",
# 2023).


def multistage(chain: Chain, platform: Platform, /) -> Schedule:
    """The fewest forward steps in the slots of all levels together, the most used ones nearest.

    Raises NoSchedule where n > 1 and no level holds a checkpoint.
    """
    alike(chain, planner="multistage")
    tapes(chain, platform)
    if chain.length == 1:
        return Schedule(chain, revolved(1, 1, level=0))
    levels = rooms(chain, platform, planner="multistage")
    slots = np.repeat([room.number for room in levels], [room.slots for room in levels])
    slots = slots[: chain.length - 1]
    actions = revolved(chain.length, len(slots), level=0)
    places = _places_of(actions)
    return Schedule(chain, at_level(actions, _levels_of(actions, places, slots)[places]))


def _places_of(actions: Actions) -> _Ints:
    """The place in the stack, from 0, that each access is of: the highest that is in use."""
    change = (actions.op == WRITE).astype(np.int64) - (actions.op == DISCARD)
    in_use = np.cumsum(change) + (actions.op == DISCARD)
    places: _Ints = np.maximum(in_use - 1, 0)
    return places


def _levels_of(actions: Actions, places: _Ints, slots: _Ints) -> _Ints:
    """The level of each place: `slots` are those of all levels, nearest first."""
    used = (actions.op >= WRITE) & (actions.op != DISCARD)
    uses = np.bincount(places[used], minlength=len(slots))
    order = np.lexsort(
        (-np.arange(len(slots)), -uses)
    )  # of equal uses, the last in the stack first
    levels = np.empty(len(slots), np.int64)
    levels[order] = slots
    return levels


# Disk-Revolve and its relatives: few near slots that cost nothing, and a far level that does.
#
#     disk-revolve            the least makespan, if the far level never fills
#     1d-revolve              the least with x_0 alone on the far level
#     periodic-disk-revolve   every m_X-th state on the far level, read as often as it pays
#     per-rev-revolve         every m_X^rr-th state on the far level, read once
#
# For c near slots and u_f seconds a step, and with D(n), m_X and m_X^rr of `spacing`, disk-revolve
# takes
#
#     H(n) = min(A_0(n) u_f, min_{1<=m<=n-2} w + m u_f + H(n - m) + r + D(m))
#
# beside what every schedule pays for recording and reversing each step once: H has to be solved, in
# O(n M) with M the longest period that can pay, and the other three are closed forms. All are as
# Herrmann and Pallez, "H-Revolve", ACM TOMS 2020, sections 2.4.2, 3.2 and 4.3 have them (theirs
# of a chain of l = n - 1), after Aupy, Herrmann, Hovland and Robert, "Optimal multistage algorithm
# for adjoint computation", SISC 2016. In their Algorithm 3 the blocks must be Revolve(m - 1).
#
# What the near level costs plays no part in choosing: memory is free there. A plan that writes
# nothing to a far level, and any where there is none, is Revolve. The near level is the nearest
# that holds a checkpoint and the far one the nearest beyond with a slot for every period, unless
# `near` or `far` names them; where none has the slots, the planners raise NoSchedule, which says
# how many are needed.


def disk_revolve(
    chain: Chain, platform: Platform, /, *, near: str | None = None, far: str | None = None
) -> Schedule:
    """The least makespan on a near level that costs nothing and a far level that never fills."""

    def plan(place: NearAndFar) -> PeriodPlan:
        note = "the least makespan, if the near level costs nothing"
        return PeriodPlan(least(chain.length, place), by_1d_revolve(place), note)

    return in_periods(chain, platform, plan, planner="disk-revolve", near=near, far=far)


def revolve_1d(
    chain: Chain, platform: Platform, /, *, near: str | None = None, far: str | None = None
) -> Schedule:
    """The least makespan with x_0 alone on the far level and all others in near slots.

    1D-Revolve itself begins when x_0 has been written; here it is written if that pays.
    """

    def plan(place: NearAndFar) -> PeriodPlan:
        note = "the least makespan with one far checkpoint, x_0, if the near level costs nothing"
        return PeriodPlan(_first_alone(chain.length, place), by_1d_revolve(place), note)

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

    def plan(place: NearAndFar) -> PeriodPlan:
        steps = period or _best_period(chain.length, place, certify=certify, once=once)
        how = "by search" if certify else "in closed form"
        which = "as given" if period else f"the best in the long run, {how}"
        note = f"a far checkpoint every {steps} steps: {which}"
        return PeriodPlan(
            _equal(chain.length, steps), by_revolve if once else by_1d_revolve(place), note
        )

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


def _best_period(steps: int, place: NearAndFar, *, certify: bool, once: bool) -> int:
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


def by_1d_revolve(place: NearAndFar, /) -> Segments:
    """A period taken back in the segments of 1D-Revolve."""

    def cut(steps: int) -> list[int]:
        _, rereads = reread(
            np.array([steps]), place.slots, advance=place.advance, read=place.far.read
        )
        return segments(steps, place.slots, int(rereads[0]))

    return cut


def _first_alone(steps: int, place: NearAndFar) -> Periods:
    """1D-Revolve of the whole chain: all but its first segment, reversed last, is one period."""
    once = float(read_once(np.array([steps]), place.slots)[0] * place.advance)
    seconds, _ = reread(np.array([steps]), place.slots, advance=place.advance, read=place.far.read)
    if once <= place.far.write + seconds[0]:
        return Periods((), steps)
    turn = by_1d_revolve(place)(steps)[0]
    return Periods((steps - turn,), turn)


def least(steps: int, place: NearAndFar, /) -> Periods:
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


def _longest_that_pays(once: NDArray[np.int64], place: NearAndFar) -> int:
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


# Two-level: a far checkpoint every so many steps, and Revolve in near slots within each block.
#
# This is the scheme of Pringle et al., "Providing the ARCHER community with adjoint modelling
# tools", 2016, and of Maddison, "On the implementation of checkpointing with high-level
# algorithmic differentiation", 2023. For n steps in blocks of p, q of them before the last one,
# it takes
#
#     seconds = q (w + p u_f + k(p) r + A(p) u_f) + A_0(n - q p) u_f
#
# beside recording and reversing each step once, where w and r are the seconds on the far level
# and A_0(m) the advances of Revolve for m steps in the near slots. Where the first state of a
# block is read from the far level once and then kept in a near slot, k = 1 and A = A_0, as
# Pringle has it. To `reread` it there, until what is left of the block fits in the near slots,
# leaves that slot to others: A is then Revolve's with one slot more, and k is one more than the
# least q for which A_q = A in `spacing`. The last block needs no far checkpoint, as its first
# state is in the register.


def two_level(
    chain: Chain,
    platform: Platform,
    /,
    *,
    period: int | None = None,
    reread: bool = False,
    near: str | None = None,
    far: str | None = None,
) -> Schedule:
    """A far checkpoint every `period` steps; blocks by Revolve in the near slots.

    Without a period, the one of least makespan among those for which the far level has the slots,
    if the near level costs nothing. The levels are those of disk-revolve. Raises BadInput for a
    period that is no length of a block, and NoSchedule where a period that is given does not fit.
    """
    check_period(period, chain)

    def plan(place: NearAndFar) -> PeriodPlan:
        steps = period or _best_blocks(chain.length, place, again=reread)
        how = "as given" if period else "the best that fits"
        note = f"a far checkpoint every {steps} steps: {how}"
        return PeriodPlan(
            _in_blocks(chain.length, steps), _by_reads(place) if reread else by_revolve, note
        )

    return in_periods(
        chain,
        platform,
        plan,
        planner="two-level",
        near=near,
        far=far,
        needs_far=period is not None and period < chain.length,
    )


def _in_blocks(steps: int, period: int) -> Periods:
    """Blocks of `period` steps, the last of them shorter or as long."""
    count = (steps - 1) // period
    return Periods((period,) * count, steps - count * period)


def _best_blocks(steps: int, place: NearAndFar, *, again: bool) -> int:
    """The period of least makespan, the longest if there are several."""
    period, far, advance = np.arange(1, steps + 1), place.far, place.advance
    once = read_once(period, place.slots)
    advances, rereads = _most_often(period, place.slots) if again else (once, np.zeros_like(once))
    count = (steps - 1) // period
    seconds = count * (far.write + (1 + rereads) * far.read + (period + advances) * advance)
    seconds += once[steps - count * period - 1] * advance
    seconds[count > far.slots] = np.inf
    return steps - int(seconds[::-1].argmin())


def _by_reads(place: NearAndFar) -> Segments:
    """A block taken back with as few advances as can be, however many reads that takes."""

    def cut(steps: int) -> list[int]:
        _, rereads = _most_often(np.array([steps]), place.slots)
        return segments(steps, place.slots, int(rereads[0]))

    return cut


def _most_often(lengths: _Ints, slots: int) -> tuple[NDArray[np.float64], _Ints]:
    """The advances for blocks of these lengths, if reads cost nothing, and how many more reads."""
    return reread(lengths, slots, advance=1, read=0)


# Minimal repetition dynamic checkpointing: a rule for a chain whose end is not known.
#
# Every checkpoint has a height. x_0 has one without limit, and the others 0, when each state that
# is reached is stored. When the level is full, one that is dispensable makes room, which is one
# with a higher one after it; where there is none, the last one does, and the new one has its
# height and one more. With s slots, that of x_0 among them, height r first appears when x_t with
# t = beta(s - 1, r) is reached, beta(c, r) = C(c + r, c): it bounds how often a step has to be
# repeated on the way back, and the rule keeps that as low as can be (Wang, Moin and Iaccarino,
# "Minimal repetition dynamic checkpointing algorithm for unsteady adjoint calculation", SISC 31,
# 2009, Algorithm 1). Which of the dispensable ones goes is left open there: here it is the last.
#
# It keeps low neither the number of advances nor that of writes, of which there is one at every
# step. `online` is better on both counts; this one is for comparison.


def wang_moin(chain: Chain, platform: Platform, /, *, on: str | None = None) -> Schedule:
    """Minimal repetition dynamic checkpointing on one level, and the best way back on it.

    The level is the nearest that holds a checkpoint, or the one called `on`. Raises NoSchedule
    where n > 1 and no level serves, and BadInput for a chain whose steps differ.
    """
    alike(chain, planner="wang-moin")
    tapes(chain, platform)
    levels, draft = candidates(platform, on), Draft()
    if chain.length == 1:
        draft.step_back(0)
        return draft.schedule(chain)
    level = nearest(
        levels,
        lambda level: level.slots(chain.restart, 1) == 1,
        planner="wang-moin",
        needs=room_for_one(chain),
    )
    alone = Platform((level,), platform.working_memory)
    dynamic = _Dynamic(draft, level.slots(chain.restart, chain.length))
    for step in range(chain.length):
        dynamic.at(step)
        draft.advance(step, step + 1)
    kept = [Key(Kind.RESTART, step) for step in dynamic.heights]
    back = resume(chain, alone, [kept], state=chain.length)
    actions = draft.schedule(chain).actions + back.actions
    number = np.full(len(actions), platform.number(level.name))
    note = f"forward with minimal repetition; back: {back.note}"
    return Schedule(chain, at_level(actions, number), note=note)


class _Dynamic:
    """The heights of the checkpoints stored, in the order of their steps."""

    def __init__(self, draft: Draft, slots: int) -> None:
        self.draft, self.slots = draft, slots
        self.heights: dict[int, float] = {}
        self.dispensable: list[int] = []

    def at(self, step: int) -> None:
        """Store x_step, which has just been reached, and make room for it."""
        if not self.heights:
            self.put(step, inf)
        elif len(self.heights) < self.slots:
            self.put(step, 0)
        elif self.dispensable:
            self.drop(self.dispensable.pop())
            self.put(step, 0)
        elif self.slots > 1:
            last = next(reversed(self.heights))
            height = self.drop(last) + 1
            self.dispensable = [key for key, other in self.heights.items() if other < height]
            self.put(step, height)

    def put(self, step: int, height: float) -> None:
        self.draft.write(step, level=0)
        self.heights[step] = height

    def drop(self, step: int) -> float:
        self.draft.discard(step, level=0)
        return self.heights.pop(step)
