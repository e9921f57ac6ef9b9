"""Which checkpoints to keep on a level while it is not known where the chain ends.

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

from ckio.planners.base import Room

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
