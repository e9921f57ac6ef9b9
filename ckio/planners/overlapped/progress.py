"""What segments cost at the least where each write takes its time in one piece. Needs numba.

A write takes a near slot for w_2 seconds in a row; meanwhile the program has one less, or stands
still. And the channel needs something to write: what the program passes on its way through a
segment, or what it has computed before from a far checkpoint of another segment, for which it has
to read that first, and to advance a step; or what has waited in a slot of its own.

So the channel stands in a state (h, φ): φ from -v to w_2 is its progress, below 0 if it has nothing
to write, v = r_2 + u_f seconds before it can have something; and h checkpoints lie in slots because
of it, those that wait to be written and those read ahead, besides the one that it writes. With s
free slots, the own one of a segment among them, φ goes on while s - h > 1; all is lost while
s - h = 1 and the program computes, and s - h < 1 cannot be. At w_2 one is written, which brings a
price λ, and what waits comes next; with none, φ is -v. With a far checkpoint that the program
passes, φ is 0, if it was less, or else h one more; and that costs λ. With a far read φ is -v, or h
one less. To read ahead makes φ less and h one more. To stand still is always possible. Two that
wait stand for any number.

Costs are matrices A(x) of such states before and after: S_s and F_s, where the first of x + 1 steps
has a near slot or is in the register only, and D, where it is far, as in `windows`:

    S_s(x) = min_j  J_s(j) * F_s-1(x - j) * S_s(j - 1),        S_1(x) = x (x + 1)/2 u_f + x u_b ...,
    D(x) = min(F_c(x), min_j  J_c+1(j) * min(F_c(x - j), λ + P * D(x - j)) * R * D(j - 1)),

where * is the product in which sums are minimized, J_s(j) advances j steps with s slots, P passes a
far checkpoint and R reads one; each with all that standing still may bring. Far slots have no end.
Time is counted in quanta, of which actions take as many as they have begun, and w_2 as many as it
has in full.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ckio.planners.compiled import kernel
from ckio.planners.overlapped.programs import Ints, Seconds

Matrix = NDArray[np.float64]

HELD: int = 3
"""None, one, or any number of them."""

NEVER = 1e18
_SURELY = 1e17


class Rules(NamedTuple):
    """The channel and the program, in quanta and seconds.

    Attributes
    ----------
    slots : int
        Near ones.
    idle : int
        v.
    read : int
        r_2, in full quanta.
    whole : int
        v and w_2 together.
    back : int
        u_b.
    price : float
        λ.
    quantum : float
        Seconds of a quantum.
    advance, back_seconds, near_write, near_read : float
        Of an advance, of a Record and a Reverse, and of near access.
    """

    slots: int
    idle: int
    read: int
    whole: int
    back: int
    price: float
    quantum: float
    advance: float
    back_seconds: float
    near_write: float
    near_read: float

    @property
    def write(self) -> int:
        """w_2, in full quanta."""
        return self.whole - self.idle

    @property
    def states(self) -> int:
        """How many there are: (h, φ) is number h (v + w_2) + φ + v."""
        return HELD * self.whole


class Steps(NamedTuple):
    """So many advances: quanta with near access, and seconds without."""

    quanta: Ints
    seconds: Seconds


class Move(NamedTuple):
    """What the program does with so many free slots: quanta and seconds."""

    slots: int
    quanta: int
    seconds: float


class Tables(NamedTuple):
    """Matrices by s and x, or by x.

    Attributes
    ----------
    stored, fresh : (slots + 1, x, states, states)
        S_s(x) and F_s(x).
    far, passed, read : (x, states, states)
        D(x), P * D(x), R * D(x).
    onward : (x, states, states)
        min(F_c(x), λ + P * D(x)).
    scratch : (2, states)
    """

    stored: Matrix
    fresh: Matrix
    far: Matrix
    passed: Matrix
    read: Matrix
    onward: Matrix
    scratch: Matrix


def tables(slots: int, longest: int, steps: Steps, rules: Rules) -> Tables:
    """For x up to `longest`."""
    states = rules.states
    near, far = (slots + 1, longest + 1, states, states), (longest + 1, states, states)
    shapes = near, near, far, far, far, far, (2, states)
    made = Tables(*(np.full(shape, NEVER) for shape in shapes))
    _solve(made, steps, rules)
    return made


@kernel
def _solve(tables: Tables, steps: Steps, rules: Rules) -> None:
    stored, fresh, far, passed, read, onward, scratch = tables
    slots, longest = len(stored) - 1, len(far) - 1
    quanta, seconds = steps
    for s in range(slots + 1):
        _back(fresh[s, 0], rules, s + 1, s)
        if s:
            _back(stored[s, 0], rules, s + 1, s - 1)
    for x in range(longest + 1):
        for s in range(1, slots + 1 if x else 0):
            if s == 1:
                full = x * (x + 1) / 2 * rules.advance + x * (rules.back_seconds + rules.near_read)
                for a in range(rules.whole):
                    for b in range(scratch.shape[1]):
                        stored[1, x, a, b] = full + stored[1, 0, 0, b]
            else:
                for j in range(1, x + 1):
                    move = Move(s, quanta[j], seconds[j] + rules.near_read)
                    pair = fresh[s - 1, x - j], stored[s, j - 1]
                    _compose(stored[s, x], rules, move, pair, scratch)
                _stand_still(stored[s, x], rules, s + 1)
            _lower(fresh[s, x], stored[s, x], rules.near_write)
        _lower(far[x], fresh[slots, x], 0.0)
        for j in range(1, x + 1):
            move = Move(slots + 1, quanta[j], seconds[j])
            _compose(far[x], rules, move, (onward[x - j], read[j - 1]), scratch)
        _stand_still(far[x], rules, slots + 1)
        _pass(passed[x], far[x], rules)
        _read(read[x], far[x], rules)
        _lower(onward[x], fresh[slots, x], 0.0)
        _lower(onward[x], passed[x], rules.price)


@kernel
def _put(row: Seconds, state: int, seconds: float) -> None:
    row[state] = min(row[state], seconds)


@kernel
def _lower(found: Matrix, matrix: Matrix, seconds: float) -> None:
    """To the least of both, where the other takes so many seconds more."""
    for a in range(len(found)):
        for b in range(len(found)):
            found[a, b] = min(found[a, b], matrix[a, b] + seconds)


@kernel
def go_on(row: Seconds, rules: Rules, state: int, quanta: int, seconds: float) -> None:
    """Let time pass from a state, in which the channel can go on: all that may come of it."""
    whole, at = rules.whole, state % rules.whole
    held = state // whole
    while quanta >= whole - at:  # one is written
        quanta -= whole - at
        seconds -= rules.price
        if held == 2:  # any number: there may be as many left
            _put_later(row, rules, quanta, seconds)
            at = rules.idle
        else:
            at = rules.idle if held else 0
            held = 0
    _put(row, held * whole + at + quanta, seconds)


@kernel
def _put_later(row: Seconds, rules: Rules, quanta: int, seconds: float) -> None:
    """One of two waits no more, and what was to be written next is."""
    whole, held, at = rules.whole, 1, rules.idle
    while quanta >= whole - at:
        quanta -= whole - at
        seconds -= rules.price
        at = rules.idle if held else 0
        held = 0
    _put(row, held * whole + at + quanta, seconds)


@kernel
def spend(row: Seconds, rules: Rules, move: Move, state: int) -> None:
    """Compute from a state."""
    held = state // rules.whole
    if move.slots - held > 1:
        go_on(row, rules, state, move.quanta, move.seconds)
    elif move.slots - held == 1:
        _put(row, held * rules.whole, move.seconds)
        if held:
            _put(row, (held - 1) * rules.whole + rules.idle, move.seconds)


@kernel
def _stand_still(matrix: Matrix, rules: Rules, slots: int) -> None:
    for a in range(len(matrix)):
        stand_still(matrix[a], rules, slots)


@kernel
def stand_still(row: Seconds, rules: Rules, slots: int) -> None:
    """What may come of it, too, if the program stands still, or something is read ahead."""
    for _ in range(HELD):  # once around, for each number that is held
        for state in range(len(row)):
            held = state // rules.whole
            if row[state] < _SURELY and slots - held > 1:
                go_on(row, rules, state, 1, row[state] + rules.quantum)
                if held + 1 < HELD:
                    _put(row, (held + 1) * rules.whole + rules.idle - rules.read, row[state])


@kernel
def _back(matrix: Matrix, rules: Rules, slots: int, most: int) -> None:
    """Reverse the last step of a segment, if no more than `most` are held."""
    for a in range(len(matrix)):
        if a // rules.whole <= most:
            spend(matrix[a], rules, Move(slots, rules.back, rules.back_seconds), a)
            stand_still(matrix[a], rules, slots)


@kernel
def _times(row: Seconds, matrix: Matrix, found: Seconds) -> None:
    for a in range(len(row)):
        before = row[a]
        if before < _SURELY:
            for b in range(len(found)):
                found[b] = min(found[b], before + matrix[a, b])


@kernel
def _compose(
    found: Matrix, rules: Rules, move: Move, pair: tuple[Matrix, Matrix], scratch: Matrix
) -> None:
    """A move, and then a pair of matrices."""
    for a in range(len(found)):
        scratch[:] = NEVER
        spend(scratch[0], rules, move, a)
        _times(scratch[0], pair[0], scratch[1])
        _times(scratch[1], pair[1], found[a])


@kernel
def passed(rules: Rules, state: int) -> int:
    """The state once the program has passed a far checkpoint."""
    held, at = state // rules.whole, state % rules.whole
    if at > rules.idle:
        held = min(held + 1, HELD - 1)
    return held * rules.whole + max(at, rules.idle)


@kernel
def _pass(found: Matrix, matrix: Matrix, rules: Rules) -> None:
    """P * A."""
    for a in range(len(found)):
        for b in range(len(found)):
            found[a, b] = matrix[passed(rules, a), b]


@kernel
def _read(found: Matrix, matrix: Matrix, rules: Rules) -> None:
    """R * A: read just now, after which what waits may be written; or ahead."""
    for a in range(len(found)):
        held, at = a // rules.whole, a % rules.whole
        for b in range(len(found)):
            found[a, b] = matrix[held * rules.whole, b]
            if held:
                waiting = matrix[(held - 1) * rules.whole + rules.idle, b]
                ahead = matrix[(held - 1) * rules.whole + at, b]
                found[a, b] = min(found[a, b], waiting, ahead)
                if held == HELD - 1:
                    found[a, b] = min(found[a, b], matrix[a, b])


def after_read(worth: Seconds, rules: Rules) -> Seconds:
    """The least of numbers for the states that a far read may leave, by the state before."""
    held, at = np.divmod(np.arange(rules.states), rules.whole)
    less = np.maximum(held - 1, 0) * rules.whole
    least = np.minimum(worth[less + rules.idle], worth[less + at])
    least = np.where(held == HELD - 1, np.minimum(least, worth), least)
    least = np.where(held, np.minimum(least, worth[held * rules.whole]), worth[0])
    return np.asarray(least, np.float64)
