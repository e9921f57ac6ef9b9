"""Which levels a sweep of unknown length uses: the near one, and farther ones from some step on.

The near level is the cheapest to write and read. A farther one is used from the length on at which
a chain is taken back faster, by half of w + r, with its first state there than from the nearer
slots alone,

    T = min { n : 3/2 (w + r) + min_{1<=m<n} u_f (m + A(n - m) + A(m)) < u_f A(n) },

where A(n) is the number of advances of Revolve in the slots of all nearer levels, and w, r are the
seconds to write (and later discard) and to read a far checkpoint. Its checkpoints are then a period
of

    m = m_X^rr      (Herrmann and Pallez, "H-Revolve", ACM TOMS 2020, Theorem 4; see `spacing`)

steps apart, for as many slots, which is the best in the long run if each is read once and nearer
levels cost nothing, known end or not (Aupy and Herrmann, "Periodicity in optimal hierarchical
checkpointing schemes", 2017). But T is two to twelve periods, and to write far from the start on
would cost chains shorter than that up to three times the optimum.

With 1 for 3/2, T would be the length from which on x_0 is best kept on the far level. But others
move there too, in vain if the end comes soon: of 1, 5/4, 3/2 and 2 this loses least, in the mean of
the cases in bench/bench_online.py.
"""

from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from ckio.planners.base import Room, rooms, tapes
from ckio.planners.online.comb import ENDLESS, unit
from ckio.planners.spacing import period_read_once, read_once
from ckio.platform import Platform
from ckio.platform.chain import Chain

_LONGEST = 1 << 20
"""Steps: a far level that does not pay by then is left to the way back."""

_TRIPS = 1.5
"""How often w + r is counted before a far level is used."""


@dataclass(frozen=True, slots=True)
class Far:
    """A far level, the T from which it is used, and the period of its checkpoints."""

    room: Room
    since: int
    period: int


@dataclass(frozen=True, slots=True)
class Levels:
    """The near level with the unit of its comb, and the far levels that pay, the cheapest first."""

    near: Room
    unit: int
    far: tuple[Far, ...]


def levels(chain: Chain, platform: Platform, /) -> Levels:
    """The levels for a chain of any length.

    Raises NoSchedule where none holds a checkpoint, or the working memory no tape.
    """
    tapes(chain.with_steps(1), platform)
    bytes_of_a_step = chain.restart + chain.tape + chain.adjoint + 1
    endless = chain.with_steps(ENDLESS // bytes_of_a_step)
    near, *others = sorted(
        rooms(endless, platform, planner="online"), key=lambda room: room.write + room.read
    )
    nearer = accumulate((room.slots for room in others), initial=near.slots)
    # What moves on to the first far level has to pass by the state reached, which takes a slot.
    found = [
        _far(room, slots, chain.advance)
        for room, slots in zip(others, nearer, strict=False)
        if near.slots + room.slots > 2
    ]
    return Levels(
        near,
        unit(near, chain.advance),
        tuple(far for far in found if far.since < _LONGEST),
    )


def _far(room: Room, nearer: int, advance: float) -> Far:
    """A level, by the number of slots on all nearer ones."""
    period = period_read_once(
        nearer, write=room.write, read=room.read, advance=advance, most=ENDLESS
    )
    return Far(room, _pays_since(nearer, room.write + room.read, advance), period)


def _pays_since(slots: int, trip: float, advance: float) -> int:
    """T, or _LONGEST if that is less; a far level cannot pay where advancing takes no time."""
    low, high = 1, 2
    while high < _LONGEST and not _pays(high, slots, trip, advance):
        low, high = high, 2 * high
    while high - low > 1 and high < _LONGEST:
        middle = (low + high) // 2
        low, high = (low, middle) if _pays(middle, slots, trip, advance) else (middle, high)
    return high


def _pays(steps: int, slots: int, trip: float, advance: float) -> bool:
    """Whether a chain of so many steps is taken back so much faster with x_0 on the far level."""
    if slots >= steps - 1:
        return False
    taken = read_once(np.arange(1, steps + 1), slots)
    split = np.arange(1, steps) + taken[-2::-1] + taken[:-1]
    return bool(_TRIPS * trip + advance * float(split.min()) < advance * float(taken[-1]))
