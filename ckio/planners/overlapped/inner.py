"""What segments cost at the least whose first state is near, by what the channel does. Needs numba.

Costs are matrices of the channel's states (`transfers`) before and after a segment of x + 1 steps:
S_s(x) and F_s(x), where its first state has a near slot, the own one among s, or is in the register
only, as in `windows`:

    S_s(x) = min_j  J_s(j) * F_s-1(x - j) * S_s(j - 1),        S_1(x) = x (x + 1)/2 u_f + x u_b ...,

where * is the product in which sums are minimized, and J_s(j) advances j steps while the channel
has s - 1 slots; each with all that standing still may bring. Time is counted in quanta, of which
actions take as many as they have begun, and transfers as many as they have in full.
"""

from typing import NamedTuple

import numpy as np

from ckio.planners.compiled import kernel
from ckio.planners.overlapped.programs import Ints, Seconds
from ckio.planners.overlapped.progress import Steps
from ckio.planners.overlapped.transfers import NEVER, SURELY, Channel, Matrix, follow, stand_still


class Rules(NamedTuple):
    """The channel and the program.

    Attributes
    ----------
    channel : Channel
    price : float
        λ.
    quantum : float
        Seconds of a quantum.
    back, write : int
        u_b and w_2, in quanta.
    advance, back_seconds, near_write, near_read : float
        Seconds of an advance, of a Record and a Reverse, and of near access.
    """

    channel: Channel
    price: float
    quantum: float
    back: int
    write: int
    advance: float
    back_seconds: float
    near_write: float
    near_read: float


class Inner(NamedTuple):
    """Matrices by s and x.

    Attributes
    ----------
    jumps : (slots + 1, x, states, states)
        J_s(x).
    stored : (slots + 1, x, states, states)
        S_s(x).
    fresh : (slots + 1, states, states)
        F_s(0); F_s(x) is w_1 more than S_s(x).
    """

    jumps: Matrix
    stored: Matrix
    fresh: Matrix

    @property
    def slots(self) -> int:
        return len(self.fresh) - 1

    @property
    def longest(self) -> int:
        return int(self.stored.shape[1]) - 1


def inner(slots: int, longest: int, steps: Steps, rules: Rules) -> Inner:
    """For x up to `longest`."""
    states = len(rules.channel.slots)
    shapes = (slots + 1, longest + 1, states, states), (slots + 1, states, states)
    made = Inner(*(np.full(shape, NEVER) for shape in (shapes[0], *shapes)))
    within = np.array([rules.channel.within(s) for s in range(slots + 1)])
    scratch = np.full((2, states), NEVER)
    _jump(made.jumps, steps, rules, within, scratch)
    _begin(made, rules, within, scratch)
    for x in range(1, longest + 1):
        _solve(made, x, rules, within, scratch)
    return made


@kernel
def _passing(row: Seconds, rules: Rules, slots: int, quanta: int, then: Seconds) -> None:
    """So many quanta pass."""
    for _ in range(quanta):
        follow(row, rules.channel.ticks, slots, then)
        for state in range(len(row)):
            row[state] = then[state]


@kernel
def _jump(jumps: Matrix, steps: Steps, rules: Rules, within: Ints, scratch: Matrix) -> None:
    """J_s(j)."""
    row, then = scratch[0], scratch[1]
    for s in range(1, len(jumps)):
        for a in range(within[s - 1]):
            row[:] = NEVER
            row[a] = 0.0
            for j in range(1, jumps.shape[1]):
                quanta = steps.quanta[j] - steps.quanta[j - 1]
                _passing(row, rules, s - 1, quanta, then)
                found = jumps[s, j, a]
                for b in range(len(row)):
                    found[b] = row[b] + steps.seconds[j] if row[b] < SURELY else NEVER
                stand_still(found, rules.channel.ticks, s - 1, rules.quantum)


@kernel
def _begin(tables: Inner, rules: Rules, within: Ints, scratch: Matrix) -> None:
    """S_s(0) and F_s(0): the last step of a segment is reversed."""
    for s in range(len(tables.stored)):
        if s:
            _back(tables.stored[s, 0], rules, s, within[s - 1], scratch)
        _back(tables.fresh[s], rules, s, within[s], scratch)


@kernel
def _back(found: Matrix, rules: Rules, slots: int, entered: int, scratch: Matrix) -> None:
    row, then = scratch[0], scratch[1]
    for a in range(entered):
        row[:] = NEVER
        row[a] = rules.back_seconds
        _passing(row, rules, slots, rules.back, then)
        stand_still(row, rules.channel.ticks, slots, rules.quantum)
        for b in range(len(row)):
            found[a, b] = row[b]


@kernel
def _solve(tables: Inner, x: int, rules: Rules, within: Ints, scratch: Matrix) -> None:
    """S_s(x) from shorter ones."""
    jumps, stored, fresh = tables
    middle, later = scratch[0], scratch[1]
    full = x * (x + 1) / 2 * rules.advance + x * (rules.back_seconds + rules.near_read)
    for b in range(stored.shape[2]):  # nothing is on its way while there is no slot for it
        stored[1, x, 0, b] = full + stored[1, 0, 0, b]
    for s in range(2, len(stored)):
        for a in range(within[s - 1]):
            row = stored[s, x, a]
            for j in range(1, x + 1):
                middle[:] = NEVER
                if j < x:
                    more = rules.near_write + rules.near_read
                    _times(jumps[s, j, a], stored[s - 1, x - j], more, middle, within[s - 1])
                else:
                    _times(jumps[s, j, a], fresh[s - 1], rules.near_read, middle, within[s - 1])
                later[:] = NEVER
                _times(middle, stored[s, j - 1], 0.0, later, within[s])
                for b in range(within[s]):
                    row[b] = min(row[b], later[b])
            stand_still(row, rules.channel.ticks, s, rules.quantum)


@kernel
def _times(row: Seconds, matrix: Matrix, more: float, found: Seconds, within: int) -> None:
    """The product of a row and a matrix, and some seconds more, for the first states behind."""
    for a in range(len(row)):
        first = row[a] + more
        if first < SURELY:
            for b in range(within):
                value = first + matrix[a, b]
                found[b] = min(found[b], value)
