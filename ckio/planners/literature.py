r"""Planners from the literature that ignore some costs: for comparison, and as bounds.

    multistage              Revolve in the slots of several levels (Stumm & Walther 2009)
    disk-revolve            the least makespan, if near slots cost nothing and the far level is
                            unlimited (Aupy, Herrmann, Hovland & Robert 2016)
    1d-revolve              the least makespan with x_0 alone on the far level
    periodic-disk-revolve   every m_X-th state on the far level, read as often as useful
    per-rev-revolve         every m_X^rr-th state on the far level, read once
    two-level               blocks of equal length (Pringle et al. 2016, Maddison 2024)

The docstring of each planner has its closed form or recurrence, and its source. A far checkpoint
is on the far level, the nearest level with a slot for every period beyond the near level, which is
the nearest that can store a checkpoint. A plan that writes nothing to the far level is Revolve, and
so is every plan if there is no far level. Let c be the number of near slots, u_f the seconds to
advance one step, w and r the seconds to write and read a far checkpoint, and D(n), A_0(n), m_X and
m_X^rr as in `spacing`. The seconds below leave out the time to record and reverse each step once,
which every schedule needs.

For example, let 12 steps take 1 s each, let two near slots cost nothing, and let a write and a read
on the far level take 2 s each. Then disk-revolve writes x_0 (2 s) and advances over six steps
(6 s). It reverses the last six steps with the near slots (8 s, A_0(6) of Revolve), reads x_0 (2
s), and reverses the first six steps (8 s). These 26 s do not include recording and reversing,
which take no time here. Multistage ignores all costs and uses all slots:

    >>> from ckio.schedule import makespan
    >>> chain = Chain(steps=12, advance=1, record=0, reverse=0, restart=1, tape=1, adjoint=1)
    >>> machine = Platform.loads("2\n 2 0 0\n 12 2 2")
    >>> planners = disk_revolve, per_rev_revolve, two_level, multistage
    >>> [makespan(planner(chain, machine), machine) for planner in planners]
    [26.0, 26.0, 26.0, 47.0]
"""

import numpy as np

from ckio.planners.base import (
    LevelSlots,
    alike,
    held_steps,
    level_slots,
    slot_levels,
)
from ckio.planners.blocks import (
    Periods,
    in_periods,
    revolved,
    share_out,
)
from ckio.planners.spacing import cut_1d, period_read_once, period_reread, read_once, reread
from ckio.planners.trivial import check_period
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule


def multistage(chain: Chain, platform: Platform, /) -> Schedule:
    r"""Return Revolve in the slots of all levels, with the most used slots on the nearest level.

    The checkpoints of Revolve form a stack. For n steps and s slots on all levels together, the
    planner counts how often each position in the stack is written and read. The positions used
    least are on the farthest level, the positions used most on the nearest. The schedule has the
    fewest forward steps that s slots allow. Sources: Stumm & Walther (2009), "MultiStage approaches
    for optimal offline checkpointing", SISC; for two levels, Maddison (2024), "Step-based
    checkpointing with high-level algorithmic differentiation".

    Assumptions: all steps are alike, the length of the chain is known, and only restart data is
    stored. The seconds of writes and reads are ignored; only the order of the levels counts.

    Raises BadInput if the steps differ. Raises NoSchedule if the chain has more than one step and
    no level can store a checkpoint, or if the working memory cannot hold the tape of one step.

    For example, let 12 steps take 1 s each to advance, with two slots in memory and 12 far slots
    that take 2 s to write and 2 s to read. All 11 states from x_0 to x_10 are stored, two of them
    in memory. This takes 11 advances and 9 (2 + 2) s = 36 s of far accesses:

    >>> from ckio.schedule import makespan
    >>> chain = Chain(steps=12, advance=1, record=0, reverse=0, restart=1, tape=1, adjoint=1)
    >>> platform = Platform.loads("2\n 2 0 0\n 12 2 2")
    >>> makespan(multistage(chain, platform), platform)
    47.0
    """
    alike(chain, planner="multistage")
    held_steps(chain, platform)
    if chain.length == 1:
        return Schedule(chain, revolved(1, 1, level=0))
    levels = level_slots(chain, platform, planner="multistage")
    slots = slot_levels(levels, most=chain.length - 1)
    actions = revolved(chain.length, len(slots), level=0)
    return Schedule(chain, share_out(actions, slots))


def disk_revolve(chain: Chain, platform: Platform, /) -> Schedule:
    r"""Return the fastest schedule for near accesses without cost and an unlimited far level.

    This is Disk-Revolve of Aupy, Herrmann, Hovland & Robert (2016), "Optimal multistage algorithm
    for adjoint computation", SISC, as described by Herrmann & Pallez (2020), sections 2.4.2 and
    4.3.1, for a chain of l = n - 1. With the letters of this module, n steps take

        H(n) = min(A_0(n) u_f, min_{1<=m<=n-2} w + m u_f + H(n - m) + r + D(m))

    seconds, which needs O(n^2) operations: 100,000 steps take about ten seconds to plan.

    Assumptions: all steps are alike, the length of the chain is known, only restart data is stored,
    near accesses cost nothing, and the far level has a slot for every period.

    Raises BadInput if the steps differ. Raises NoSchedule if the levels are too small (the message
    says how many slots are needed), or if the working memory cannot hold the tape of one step.

    For example, for c = 2, u_f = 1 s and w = r = 2 s, A_0(12) = 28 s, but with m = 6 the second
    term is 2 + 6 + H(6) + 2 + D(6) = 10 + 8 + 8 = 26 s, which is the minimum H(12):

    >>> from ckio.schedule import makespan
    >>> chain = Chain(steps=12, advance=1, record=0, reverse=0, restart=1, tape=1, adjoint=1)
    >>> platform = Platform.loads("2\n 2 0 0\n 12 2 2")
    >>> makespan(disk_revolve(chain, platform), platform)
    26.0
    """

    def choose(slots: int, far: LevelSlots) -> tuple[Periods, str]:
        periods = _least(chain, slots, far)
        return periods, "the least makespan, if the near level costs nothing"

    return in_periods(chain, platform, choose, planner="disk-revolve", once=False)


def revolve_1d(chain: Chain, platform: Platform, /) -> Schedule:
    r"""Return the fastest schedule with x_0 alone on the far level.

    This is 1D-Revolve of Aupy, Herrmann, Hovland & Robert (2016), as described by Herrmann & Pallez
    (2020), section 4.3. Their procedure begins after x_0 was written. Here x_0 is written only if
    this makes the schedule faster; otherwise the schedule is Revolve.

    The assumptions and the errors are those of `disk_revolve`.

    For example, for two near slots, 1 s to advance a step, and 2 s to write or read a far
    checkpoint, w + D(12) = 2 + 24 = 26 s. Revolve alone needs A_0(12) = 28 s:

    >>> from ckio.schedule import makespan
    >>> chain = Chain(steps=12, advance=1, record=0, reverse=0, restart=1, tape=1, adjoint=1)
    >>> platform = Platform.loads("2\n 2 0 0\n 12 2 2")
    >>> makespan(revolve_1d(chain, platform), platform)
    26.0
    """

    def choose(slots: int, far: LevelSlots) -> tuple[Periods, str]:
        note = "the least makespan with one far checkpoint, x_0, if the near level costs nothing"
        return _first_alone(chain, slots, far), note

    return in_periods(chain, platform, choose, planner="1d-revolve", once=False)


def periodic_disk_revolve(
    chain: Chain, platform: Platform, /, *, period: int | None = None
) -> Schedule:
    r"""Return the schedule with every `period`-th state on the far level, read several times.

    This is Per-Disk-Revolve of Aupy & Herrmann (2017), as described by Herrmann & Pallez (2020),
    sections 2.4.2 and 4.3.2. Each period is reversed by 1D-Revolve, which reads its first state as
    often as this makes the schedule faster. Without `period`, the period is m_X of
    `spacing.period_reread`, in closed form (Conjecture 1).

    The assumptions and the errors are those of `disk_revolve`. In addition,
    raises BadInput if the period is not from 1 to the number of steps.

    For example, for two near slots, 1 s to advance a step, and 2 s to write or read a far
    checkpoint, m_X = 6. Two periods of six steps need w + 6 + A_0(6) + r + D(6) s, which is
    2 + 6 + 8 + 2 + 8 = 26 s:

    >>> from ckio.schedule import makespan
    >>> chain = Chain(steps=12, advance=1, record=0, reverse=0, restart=1, tape=1, adjoint=1)
    >>> platform = Platform.loads("2\n 2 0 0\n 12 2 2")
    >>> schedule = periodic_disk_revolve(chain, platform)
    >>> makespan(schedule, platform), schedule.note
    (26.0, 'a far checkpoint every 6 steps: the best in the long run, in closed form')
    """
    return _periodic(chain, platform, period, once=False)


def per_rev_revolve(chain: Chain, platform: Platform, /, *, period: int | None = None) -> Schedule:
    r"""Return the schedule with every `period`-th state on the far level, read once.

    This is Per-Rev-Revolve of Herrmann & Pallez (2020), section 3.2 and Algorithm 3 (with blocks of
    Revolve(m - 1), which their Listing 7 needs), after Pringle et al. (2016). Each period is
    reversed by Revolve in the near slots. Without `period`, the period is m_X^rr of
    `spacing.period_read_once`, in closed form (Theorem 4).

    The assumptions and the errors are those of `disk_revolve`. In addition,
    raises BadInput if the period is not from 1 to the number of steps.

    For example, for two near slots, 1 s to advance a step, and 2 s to write or read a far
    checkpoint, beta(3, 1) = 4 <= 2 + 2 < beta(3, 2) = 10, so that m_X^rr = beta(2, 2) = 6. A period
    of four steps is slower:

    >>> from ckio.schedule import makespan
    >>> chain = Chain(steps=12, advance=1, record=0, reverse=0, restart=1, tape=1, adjoint=1)
    >>> platform = Platform.loads("2\n 2 0 0\n 12 2 2")
    >>> best, other = per_rev_revolve(chain, platform), per_rev_revolve(chain, platform, period=4)
    >>> makespan(best, platform), makespan(other, platform)
    (26.0, 28.0)
    """
    return _periodic(chain, platform, period, once=True)


def _periodic(chain: Chain, platform: Platform, period: int | None, *, once: bool) -> Schedule:
    check_period(period, chain)
    closed_form = period_read_once if once else period_reread

    def choose(slots: int, far: LevelSlots) -> tuple[Periods, str]:
        steps = period or closed_form(
            slots, write=far.write, read=far.read, advance=chain.advance, most=chain.length
        )
        which = "as given" if period else "the best in the long run, in closed form"
        return _equal(chain.length, steps), f"a far checkpoint every {steps} steps: {which}"

    planner = "per-rev-revolve" if once else "periodic-disk-revolve"
    return in_periods(chain, platform, choose, planner=planner, once=once)


def _equal(steps: int, period: int) -> Periods:
    """Return the periods of Algorithm 3 of Herrmann & Pallez (2020).

    The chain is cut into equal periods while more than `period` + 1 steps are left. These last
    steps are the turn.
    """
    count = max(0, steps - 2) // period
    return Periods((period,) * count, steps - count * period)


def _first_alone(chain: Chain, slots: int, far: LevelSlots) -> Periods:
    """Return the periods of 1D-Revolve: one, with all steps except those of its first segment."""
    steps = chain.length
    once = float(read_once(np.array([steps]), slots)[0] * chain.advance)
    seconds, _ = reread(np.array([steps]), slots, advance=chain.advance, read=far.read)
    if once <= far.write + seconds[0]:
        return Periods((), steps)
    turn = cut_1d(steps, slots, chain.advance, far.read)[0]
    return Periods((steps - turn,), turn)


def _least(chain: Chain, slots: int, far: LevelSlots) -> Periods:
    """Return the periods of Disk-Revolve. If several are equally good, the longest comes first."""
    steps, advance = chain.length, chain.advance
    lengths = np.arange(1, steps + 1)
    once = read_once(lengths, slots)
    seconds = np.concatenate(([0.0], once * advance))  # H(n), at first all in near slots
    taken, _ = reread(lengths, slots, advance=advance, read=far.read)
    # The seconds of a period, the longest first, so that the candidates for n are a slice.
    period = (far.write + lengths * advance + far.read + taken)[::-1]
    first = [0] * (steps + 1)
    for n in range(3, steps + 1):
        candidates = seconds[2:n] + period[2 - n :]
        best = int(candidates.argmin())
        if candidates[best] < seconds[n]:
            seconds[n] = candidates[best]
            first[n] = n - 2 - best
    periods = []
    while m := first[steps]:
        periods.append(m)
        steps -= m
    return Periods(tuple(periods), steps)


def two_level(chain: Chain, platform: Platform, /, *, period: int | None = None) -> Schedule:
    r"""Return the schedule with a far checkpoint every `period` steps, and Revolve in each block.

    This is the scheme of Pringle et al. (2016), "Providing the ARCHER community with adjoint
    modelling tools", and Maddison (2024), "Step-based checkpointing with high-level algorithmic
    differentiation". In the forward sweep, the first state of each block of p steps (`period`) is
    written to the far level. In the reverse sweep, this state is read once and stored in a near
    slot. The last block needs no far checkpoint, because its first state is in the register. With q
    blocks before the last one, n steps take

        q (w + p u_f + r + A_0(p) u_f) + A_0(n - q p) u_f    seconds.

    Assumptions: all steps are alike, the length of the chain is known, and only restart data is
    stored. Without `period`, the period is that of least makespan, if near accesses cost nothing,
    among the periods for which the far level has enough slots. The levels are those of
    `disk_revolve`.

    Raises BadInput if the steps differ, or if the period is not from 1 to the number of steps.
    Raises NoSchedule if the levels are too small for a given period or for one checkpoint, or if
    the working memory cannot hold the tape of one step.

    For example, for n = 12, c = 2, u_f = 1 s and w = r = 2 s, the best period is 6: q = 1,
    A_0(6) = 8, and the schedule takes 2 + 6 + 2 + 8 + 8 = 26 s:

    >>> from ckio.schedule import makespan
    >>> chain = Chain(steps=12, advance=1, record=0, reverse=0, restart=1, tape=1, adjoint=1)
    >>> platform = Platform.loads("2\n 2 0 0\n 12 2 2")
    >>> makespan(two_level(chain, platform), platform)
    26.0
    """
    check_period(period, chain)

    def choose(slots: int, far: LevelSlots) -> tuple[Periods, str]:
        steps = period or _best_blocks(chain, slots, far)
        count = (chain.length - 1) // steps
        how = "as given" if period else "the best that fits"
        periods = Periods((steps,) * count, chain.length - count * steps)
        return periods, f"a far checkpoint every {steps} steps: {how}"

    return in_periods(chain, platform, choose, planner="two-level", once=True)


def _best_blocks(chain: Chain, slots: int, far: LevelSlots) -> int:
    """Return the period of least makespan, the longest if there are several."""
    steps = chain.length
    period = np.arange(1, steps + 1)
    once, count = read_once(period, slots), (steps - 1) // period
    seconds = count * (far.write + far.read + (period + once) * chain.advance)
    seconds += once[steps - count * period - 1] * chain.advance
    seconds[count > far.slots] = np.inf
    return steps - int(seconds[::-1].argmin())
