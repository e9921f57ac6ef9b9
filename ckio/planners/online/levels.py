"""Levels of a run whose end is not known: which are used, and which checkpoints stay on them.

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

The checkpoints kept are a comb: the first stays, and up to s - 1 more lie between it and the state
that has been reached. x_t, t steps after the first, is a candidate only where t is a multiple of

    d(t) = u 2^j,   j the largest with d(t) <= t / 2s,  or 0,

so that the grid grows coarser with the chain, and the number of writes only with its logarithm. A
candidate that finds the level full takes the place of the checkpoint, itself included, without
which the chain as it is now would be cheapest to take back. With gaps g_0, g_1, .. between the
checkpoints that stay, in blocks of u steps, this is

    R = sum_i A(s - i, g_i),   A(c, g) = r g - beta(c + 1, r - 1),  r the least with beta(c, r) >= g

where A is the number of advances of Revolve with c slots (Griewank and Walther, Algorithm 799,
2000), those that are free when the chain has been taken back as far as gap i, that of the gap's
first state among them. The rule, known as the greedy one, is legal at every step and for every end.

The unit u weighs the transfers of a checkpoint, w + r seconds, against advancing u_f seconds a step
from one that lies further back, half a gap on average: (w + r) / u + u_f u / 2 is least at

    u = sqrt(2 (w + r) / u_f).

With more than 64 slots the comb is the grid itself, as fine as the slots allow: Revolve advances
over hardly any step more than twice then, and choosing well would take more time than it saves.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise
from math import comb, sqrt

import numpy as np

from ckio.planners.base import Room, rooms, tapes
from ckio.planners.spacing import period_read_once, read_once
from ckio.platform import Platform
from ckio.platform.chain import Chain

_MANY = 64
"""Slots beyond which the comb is a plain grid."""

ENDLESS = 2**62
"""More steps than any chain has."""


@dataclass(frozen=True, slots=True)
class Comb:
    """The rule for so many slots, that of the first checkpoint among them, and a unit in steps."""

    slots: int
    unit: int

    def grid(self, done: int, /) -> int:
        """The distance of candidates, `done` steps after the first checkpoint."""
        blocks = done // self.unit
        if self.slots > _MANY:
            # The smallest power of two with which no more than the slots are needed.
            return self.unit << (blocks // self.slots).bit_length()
        return self.unit << max(0, (blocks // (2 * self.slots)).bit_length() - 1)

    def takes(self, done: int, /) -> bool:
        """Whether the state `done` steps after the first checkpoint is a candidate."""
        return self.slots > 1 and done % self.grid(done) == 0

    def next(self, done: int, /) -> int:
        """How many steps after the first there may be a candidate again; there is none before."""
        if self.slots == 1:
            return ENDLESS
        grid = self.grid(done)
        return (done // grid + 1) * grid

    def superfluous(self, steps: Sequence[int], /) -> int:
        """Which of the checkpoints of these steps, one more than there are slots, is to go.

        The steps increase; the last is the candidate's, and the first never goes. Of several that
        are equally good it is the one of the smallest step.
        """
        if self.slots > _MANY:
            first, grid = steps[0], self.grid(steps[-1] - steps[0])
            return next(step for step in steps if (step - first) % grid)
        # Taking out checkpoint i joins gaps i - 1 and i, and leaves those after it one slot more.
        gaps = [end - begin for begin, end in pairwise((*steps, steps[-1] + 1))]
        free = range(self.slots, 0, -1)
        left = accumulate(map(self._advances, free, gaps), initial=0)
        middle = map(self._advances, free, map(sum, pairwise(gaps)))
        right = accumulate(map(self._advances, reversed(free), reversed(gaps)), initial=0)
        rights = list(right)[-2::-1]
        cost = [sum(parts) for parts in zip(left, middle, rights, strict=False)]
        return steps[1 + cost.index(min(cost))]

    def _advances(self, slots: int, steps: int) -> int:
        """A of a gap, in steps: Revolve goes through it a block at a time."""
        reach = _reach(slots, 1 << (steps // self.unit).bit_length())
        r = bisect_left(reach, -(-steps // self.unit))
        return r * steps - self.unit * comb(slots + r, slots + 1)


@cache
def _reach(slots: int, blocks: int) -> list[int]:
    """beta(c, r) for r = 0, 1, .. as far as so many blocks."""
    reach = [1]
    while reach[-1] < blocks:
        reach.append(comb(slots + len(reach), slots))
    return reach


def unit(room: Room, advance: float, /) -> int:
    """The u of the equation for a level, a whole number of steps and at least 1."""
    trip = room.write + room.read
    if trip == 0:
        return 1
    if advance == 0 or trip / advance > ENDLESS:
        return ENDLESS
    return max(1, round(sqrt(2 * trip / advance)))


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
class OnlineLevels:
    """The near level with the unit of its comb, and the far levels that pay, the cheapest first."""

    near: Room
    unit: int
    far: tuple[Far, ...]


def levels(chain: Chain, platform: Platform, /) -> OnlineLevels:
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
    return OnlineLevels(
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
