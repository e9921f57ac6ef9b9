"""Two-level: a far checkpoint every so many steps, and Revolve in near slots within each block.

This is the scheme of Pringle et al., "Providing the ARCHER community with adjoint modelling tools",
2016, and of Maddison, "On the implementation of checkpointing with high-level algorithmic
differentiation", 2023. For n steps in blocks of p, q of them before the last one, it takes

    seconds = q (w + p u_f + k(p) r + A(p) u_f) + A_0(n - q p) u_f

beside recording and reversing each step once, where w and r are the seconds on the far level and
A_0(m) the advances of Revolve for m steps in the near slots. Where the first state of a block is
read from the far level once and then kept in a near slot, k = 1 and A = A_0, as Pringle has it. To
`reread` it there, until what is left of the block fits in the near slots, leaves that slot to
others: A is then Revolve's with one slot more, and k is one more than the least q for which A_q = A
in `spacing`. The last block needs no far checkpoint, as its first state is in the register.
"""

import numpy as np
from numpy.typing import NDArray

from ckio.chain import Chain
from ckio.planners.blocks import Periods, Place, Plan, Segments, by_revolve, in_periods
from ckio.planners.disk import check_period
from ckio.planners.spacing import read_once, reread, segments
from ckio.platforms import Platform
from ckio.schedule import Schedule

_Ints = NDArray[np.int64]


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

    def plan(place: Place) -> Plan:
        steps = period or _best(chain.length, place, again=reread)
        how = "as given" if period else "the best that fits"
        note = f"a far checkpoint every {steps} steps: {how}"
        return Plan(_equal(chain.length, steps), _by_reads(place) if reread else by_revolve, note)

    return in_periods(
        chain,
        platform,
        plan,
        planner="two-level",
        near=near,
        far=far,
        needs_far=period is not None and period < chain.length,
    )


def _equal(steps: int, period: int) -> Periods:
    """Blocks of `period` steps, the last of them shorter or as long."""
    count = (steps - 1) // period
    return Periods((period,) * count, steps - count * period)


def _best(steps: int, place: Place, *, again: bool) -> int:
    """The period of least makespan, the longest if there are several."""
    period, far, advance = np.arange(1, steps + 1), place.far, place.advance
    once = read_once(period, place.slots)
    advances, rereads = _most_often(period, place.slots) if again else (once, np.zeros_like(once))
    count = (steps - 1) // period
    seconds = count * (far.write + (1 + rereads) * far.read + (period + advances) * advance)
    seconds += once[steps - count * period - 1] * advance
    seconds[count > far.slots] = np.inf
    return steps - int(seconds[::-1].argmin())


def _by_reads(place: Place) -> Segments:
    """A block taken back with as few advances as can be, however many reads that takes."""

    def cut(steps: int) -> list[int]:
        _, rereads = _most_often(np.array([steps]), place.slots)
        return segments(steps, place.slots, int(rereads[0]))

    return cut


def _most_often(lengths: _Ints, slots: int) -> tuple[NDArray[np.float64], _Ints]:
    """The advances for blocks of these lengths, if reads cost nothing, and how many more reads."""
    return reread(lengths, slots, advance=1, read=0)
