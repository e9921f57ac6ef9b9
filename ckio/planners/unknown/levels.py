"""The levels of a run that does not know its end: which are used, and for which checkpoints.

The near level is the one that is cheapest to write and read. A farther level is used from that
length of the chain at which a schedule with x_0 on the far level is faster, by half of w + r, than
a schedule with the slots of nearer levels only:

    T = min { n : 3/2 (w + r) + min_{1<=m<n} u_f (m + A(n - m) + A(m)) < u_f A(n) },

where A(n) is the number of steps that Revolve advances in the slots of all nearer levels, u_f is
the time to advance one step, w is the time to write and later discard a far checkpoint, and r is
the time to read it. For example, with one near slot A(n) = n (n - 1) / 2, so that for u_f = 1 s and
w + r = 2 s the condition is 3 + min_m (m + A(n - m) + A(m)) < A(n): T = 5, because with m = 2 the
left side is 3 + 2 + 3 + 1 = 9, and A(5) = 10. The checkpoints on the far level are then a period of

    m = m_X^rr      (Herrmann and Pallez, "H-Revolve", ACM TOMS 2020, Theorem 4; see `spacing`)

steps apart, for this number of nearer slots. In the long run this is the best period if each far
checkpoint is read once and nearer levels cost nothing, whether or not the end is known (Aupy and
Herrmann, "Periodicity in optimal hierarchical checkpointing schemes", 2017). But T is two to twelve
periods, and if far checkpoints were written from the start, chains shorter than T would take up to
three times the optimum.

With 1 instead of 3/2, T would be the length from which x_0 is best stored on the far level. But
other checkpoints move to the far level, too, without a gain if the end comes soon. Of 1, 5/4, 3/2
and 2, the factor 3/2 lost least beside hrevolve, in the mean over chains of 10 to 2000 steps.

The checkpoints on a level are a comb: the first one stays, and at most s - 1 more are between it
and the current state. x_t, t steps after the first, is a candidate only if t is a multiple of

    d(t) = b 2^j,   j the largest with d(t) <= t / 2s,  or 0,

so that the grid becomes coarser as the chain grows, and the number of writes grows only with the
logarithm of the length. If the level is full, one checkpoint (perhaps the candidate itself) is
discarded: the one without which the current chain is cheapest to reverse. With gaps g_0, g_1, ..
between the other checkpoints, in blocks of b steps, this cost is

    R = sum_i A(s - i, g_i),   A(c, g) = r g - beta(c + 1, r - 1),  r the least with beta(c, r) >= g

where A is the number of blocks that Revolve advances with c slots (Griewank and Walther, Algorithm
799, 2000). When gap i is reversed, s - i slots are free, including that of the first state of the
gap. This greedy rule is legal at every step and for every end. For example, with s = 2, b = 1,
x_0 and x_2 stored and the candidate x_6, x_2 is discarded, because R = A(2, 6) + A(1, 1) = 8 + 0
without x_2, and R = A(2, 2) + A(1, 5) = 1 + 10 without x_6. (The current state counts as one step
of the last gap.)

The unit b, in steps, balances the transfers of a checkpoint (w + r seconds) against advancing from
an earlier one (u_f seconds for each step, half a gap on average). (w + r) / b + u_f b / 2 is least
at

    b = sqrt(2 (w + r) / u_f);   for example, b = 2 steps for w + r = 2 s and u_f = 1 s.

With more than 64 slots the comb is the grid itself, as fine as the slots allow. Revolve then
advances over hardly any step more than twice, so that a better choice would take more time than it
saves.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise
from math import comb, sqrt

import numpy as np

from ckio.planners.base import ENDLESS, LevelSlots, cheapest_first, held_steps, level_slots
from ckio.planners.spacing import longest_chains, period_read_once, read_once
from ckio.platform import Platform
from ckio.platform.chain import Chain

_MANY = 64
"""With more slots than this, the comb is a plain grid."""


@dataclass(frozen=True, slots=True)
class Comb:
    """The rule for `slots` slots, including that of the first checkpoint; `unit` is in steps."""

    slots: int
    unit: int

    def grid(self, done: int, /) -> int:
        """Return the distance of candidates, `done` steps after the first checkpoint."""
        blocks = done // self.unit
        if self.slots > _MANY:
            # The smallest power of two for which the slots suffice.
            return self.unit << (blocks // self.slots).bit_length()
        return self.unit << max(0, (blocks // (2 * self.slots)).bit_length() - 1)

    def takes(self, done: int, /) -> bool:
        """Return whether the state `done` steps after the first checkpoint is a candidate."""
        return self.slots > 1 and done % self.grid(done) == 0

    def next(self, done: int, /) -> int:
        """Return the distance of the next possible candidate from the first checkpoint."""
        if self.slots == 1:
            return ENDLESS
        grid = self.grid(done)
        return (done // grid + 1) * grid

    def superfluous(self, steps: Sequence[int], /) -> int:
        """Return the step of the checkpoint to be discarded, one of `steps`.

        `steps` are in ascending order and one more than the slots. The last is the candidate's; the
        first is never discarded. Of several that are equally good, the smallest step is returned.
        """
        if self.slots > _MANY:
            first, grid = steps[0], self.grid(steps[-1] - steps[0])
            return next(step for step in steps if (step - first) % grid)
        # Without checkpoint i, gaps i - 1 and i are joined, and later gaps have one slot more.
        gaps = [end - begin for begin, end in pairwise((*steps, steps[-1] + 1))]
        free = range(self.slots, 0, -1)
        left = accumulate(map(self._advances, free, gaps), initial=0)
        middle = map(self._advances, free, map(sum, pairwise(gaps)))
        right = accumulate(map(self._advances, reversed(free), reversed(gaps)), initial=0)
        rights = list(right)[-2::-1]
        cost = [sum(parts) for parts in zip(left, middle, rights, strict=False)]
        return steps[1 + cost.index(min(cost))]

    def _advances(self, slots: int, steps: int) -> int:
        """Return A of a gap in steps, if Revolve advances one block at a time."""
        longest = _longest_chains(slots, 1 << (steps // self.unit).bit_length())
        r = bisect_left(longest, -(-steps // self.unit))
        return r * steps - self.unit * comb(slots + r, slots + 1)


_longest_chains = cache(longest_chains)


def unit(level: LevelSlots, advance: float, /) -> int:
    """Return the unit b for a level: a whole number of steps, at least 1."""
    trip = level.write + level.read
    if trip == 0:
        return 1
    if advance == 0 or trip / advance > ENDLESS:
        return ENDLESS
    return max(1, round(sqrt(2 * trip / advance)))


_LONGEST = 1 << 20
"""A far level whose T is at least this many steps is used in the reverse sweep only."""

_TRIPS = 1.5
"""The factor of w + r in the definition of T."""


@dataclass(frozen=True, slots=True)
class FarLevel:
    """A far level, the T from which it is used, and the period of its checkpoints, in steps."""

    level: LevelSlots
    first_step: int
    period: int


@dataclass(frozen=True, slots=True)
class OnlineLevels:
    """The near level, the unit of its comb, and the far levels that pay, the cheapest first."""

    near: LevelSlots
    unit: int
    far: tuple[FarLevel, ...]


def levels(chain: Chain, platform: Platform, /) -> OnlineLevels:
    """Return the levels for a chain of any length.

    Raises NoSchedule if no level can store a checkpoint, or the working memory cannot hold the tape
    of one step.
    """
    held_steps(chain.with_steps(1), platform)
    bytes_of_a_step = chain.restart + chain.tape + chain.adjoint + 1
    endless = chain.with_steps(ENDLESS // bytes_of_a_step)
    near, *others = cheapest_first(level_slots(endless, platform, planner="online"))
    nearer, far = near.slots, []
    for level in others:
        since = _pays_since(nearer, level.write + level.read, chain.advance)
        # While checkpoints move to the first far level, the current state occupies a slot, too.
        if since < _LONGEST and near.slots + level.slots > 2:
            period = period_read_once(
                nearer, write=level.write, read=level.read, advance=chain.advance, most=ENDLESS
            )
            far.append(FarLevel(level, since, period))
        nearer += level.slots
    return OnlineLevels(near, unit(near, chain.advance), tuple(far))


def _pays_since(slots: int, trip: float, advance: float) -> int:
    """Return T, at most _LONGEST; a far level cannot pay if advancing takes no time."""
    low, high = 1, 2
    while high < _LONGEST and not _pays(high, slots, trip, advance):
        low, high = high, 2 * high
    while high - low > 1 and high < _LONGEST:
        middle = (low + high) // 2
        low, high = (low, middle) if _pays(middle, slots, trip, advance) else (middle, high)
    return high


def _pays(steps: int, slots: int, trip: float, advance: float) -> bool:
    """Return whether the condition for T is true for `steps` steps."""
    if slots >= steps - 1:
        return False
    taken = read_once(np.arange(1, steps + 1), slots)
    split = np.arange(1, steps) + taken[-2::-1] + taken[:-1]
    return bool(_TRIPS * trip + advance * float(split.min()) < advance * float(taken[-1]))
