"""What segments cost as functions of their lengths, where each write takes its time in one piece.

The matrices of `progress` become functions by numbers g, one for each state of the channel:

    a(x) = min_{y, z} A(x)[y, z] + g(z) - g(y),

whose sum over segments, with g of the first state, is no more than what their product is. Those g
serve best which say what the states are worth. There are matrices of short segments only; what is
said of long ones is composed of functions of shorter ones, with other numbers g. Needs numba.
"""

from math import ceil
from typing import Final, NamedTuple, Protocol

import numpy as np

from ckio.planners.binomial import revolve_forward_steps
from ckio.planners.compiled import kernel
from ckio.planners.overlapped.hulls import slopes
from ckio.planners.overlapped.programs import Seconds
from ckio.planners.overlapped.progress import (
    HELD,
    NEVER,
    Matrix,
    Move,
    Rules,
    Steps,
    Tables,
    after_read,
    passed,
    spend,
    stand_still,
)

_ROUNDS: Final = 12
_PASSES: Final = 24
"""How often, and each way in turn, the numbers g are made better."""


def begun(quanta: float) -> int:
    """How many have begun."""
    return ceil(quanta - 1e-9)


def worth_of(matrices: Matrix, rules: Rules, typical: int) -> Seconds:
    """g: what is lost in the long run by beginning in a state, with segments about so long."""
    x = np.arange(len(matrices))
    worth = np.zeros(rules.states)
    at = min(typical, len(x) - 1)
    for _ in range(_PASSES // 8):
        slope = slopes(_valued(matrices, worth))[max(0, at - 1)] if at else 0.0
        each = np.min(matrices - (slope * x)[:, np.newaxis, np.newaxis], axis=0)
        for _ in range(_PASSES):
            worth = (worth + _limited(np.min(each + worth, axis=1), rules)) / 2
    return _settled(worth, rules)


def _limited(worth: Seconds, rules: Rules) -> Seconds:
    """From 0; what is worth less than all that can be lost is not looked at closely."""
    limited: Seconds = np.minimum(worth - worth.min(), HELD * (rules.price + rules.advance))
    return limited


def _settled(worth: Seconds, rules: Rules) -> Seconds:
    """Such that nothing is gained by standing still."""
    still = np.full((rules.states, rules.states), NEVER)
    np.fill_diagonal(still, 0.0)
    for row in still:
        stand_still(row, rules, HELD + 2)
    while True:
        before, worth = worth, np.min(still + worth, axis=1)
        if np.array_equal(before, worth):
            return worth


def _valued(matrices: Matrix, worth: Seconds) -> Seconds:
    """a(x), of all matrices."""
    cost: Seconds = np.min(matrices + worth - worth[:, np.newaxis], axis=(-2, -1))
    return cost


class Paced(Protocol):
    """What rules say of a program: see `progress.Rules`."""

    @property
    def price(self) -> float: ...
    @property
    def quantum(self) -> float: ...
    @property
    def back(self) -> int: ...
    @property
    def write(self) -> int: ...
    @property
    def advance(self) -> float: ...
    @property
    def back_seconds(self) -> float: ...


class Lengths(NamedTuple):
    """What segments cost by x, as functions.

    Attributes
    ----------
    stored : tuple of float64 arrays
        With s = 0, 1, 2, ... slots, the own one among them: their first state is near.
    far, read : float64 arrays
        They begin with a far checkpoint, in the register or read first.
    first : float64 array
        That of x_0, which nothing follows.
    """

    stored: tuple[Seconds, ...]
    far: Seconds
    read: Seconds
    first: Seconds


def lengths_of(tables: Tables, steps: Steps, rules: Rules, worth: Seconds) -> Lengths:
    """From the matrices of short segments."""
    short, length = len(tables.far), len(steps.seconds) - 1
    stored, far, read = (_valued(it, worth) for it in (tables.stored, tables.far, tables.read))
    first = np.min(np.minimum(tables.far, tables.read) - worth[:, np.newaxis], axis=(-2, -1))
    if length < short:
        return Lengths(tuple(stored), far, read, first)
    long = _long(tables, steps, rules)
    before, read_before = long.before - worth, after_read(long.before, rules) - worth
    behind = float(np.min(worth - long.behind))
    changes = (
        float(before.min()) + behind,
        float(read_before.min()) + behind,
        float(np.minimum(before, read_before).min() - long.behind.max()),
    )
    functions = zip((far, read, first), changes, strict=True)
    near = [least_near(s, steps, rules)[short:] - np.ptp(worth) for s in range(1, len(stored))]
    return Lengths(
        (stored[0], *map(np.append, stored[1:], near)),
        *(np.append(each, long.seconds[short:] + change) for each, change in functions),
    )


class _Long(NamedTuple):
    """What D(x) costs as functions, with other numbers g before it and behind.

    Attributes
    ----------
    before, behind : float64 arrays
    seconds : float64 array
        By x.
    """

    before: Seconds
    behind: Seconds
    seconds: Seconds


def _long(tables: Tables, steps: Steps, rules: Rules) -> _Long:
    """D(x) >= min(F_c(x), min_j of a passing J * P, λ, D(x - j), and R * D(j - 1))."""
    short, length = len(tables.far), len(steps.seconds) - 1
    row, sweeps = np.empty(rules.states), np.empty((short, rules.states))
    before, behind = _chains(tables, steps, rules)
    _sweeps(sweeps, row, steps, rules, before)
    # Of longer sweeps, as if each moment of them was good for a write.
    most = steps.quanta / (rules.whole - rules.idle)
    passing = steps.seconds - rules.price * most - np.ptp(before)
    passing[:short] = np.min(sweeps - before, axis=1) + rules.price
    left = np.full(length + 2, NEVER)
    left[1 : short + 1] = _valued(tables.read, behind)
    seconds = least_near(rules.slots, steps, rules) - np.ptp(np.append(before, behind))
    seconds[:short] = np.min(tables.far + behind - before[:, np.newaxis], axis=(-2, -1))
    _extend(seconds, passing, left, short, float(np.min(after_read(before, rules) - behind)))
    return _Long(before, behind, seconds)


def _chains(tables: Tables, steps: Steps, rules: Rules) -> tuple[Seconds, Seconds]:
    """The numbers g before D(x) and behind: those with which each step of it costs most.

    All far checkpoints of a long sweep are passed before the first of them is read. So there are
    two chains, of J * P and of R * D, with the same lengths j; each in turn is told what they cost
    the other.
    """
    read = tables.read[:-1]
    j = np.arange(1, len(read) + 1)
    before, behind, row = np.zeros((3, rules.states))
    sweeps = np.empty((len(j) + 1, rules.states))
    slope, most = 0.0, -np.inf
    for _ in range(_ROUNDS):
        left = _valued(read, behind) - slope * j
        for _ in range(_PASSES):
            _sweeps(sweeps, row, steps, rules, before)
            cost = np.min(sweeps[1:] + left[:, np.newaxis], axis=0)
            before = (before + _limited(cost, rules)) / 2
        _sweeps(sweeps, row, steps, rules, before)
        passing = np.min(sweeps[1:] - before, axis=1) + rules.price
        each = np.min(read + (passing - slope * j)[:, np.newaxis, np.newaxis], axis=0)
        for _ in range(_PASSES):
            behind = (behind + _limited(np.min(each + behind, axis=1), rules)) / 2
        behind = _settled(behind, rules)
        slope = float(np.min((passing + _valued(read, behind)) / j))
        if slope > most:
            most, best = slope, (before, behind)
    return best


def least_near(slots: int, steps: Steps, rules: Paced) -> Seconds:
    """S_s(x) as if all of its time was good for writes."""
    count = range(len(steps.seconds))
    advances = [revolve_forward_steps(x + 1, slots) - (x + 1) for x in count]
    taken = np.array(advances) * rules.advance + np.arange(1, len(count) + 1) * rules.back_seconds
    # Quanta that have begun count in full.
    counted = [steps.quanta[1] * rules.quantum / rules.advance]
    if rules.back_seconds:
        counted.append(rules.back * rules.quantum / rules.back_seconds)
    write = rules.write * rules.quantum
    lower: Seconds = taken * max(0.0, 1 - max(counted) * rules.price / write) - rules.price
    return lower


@kernel
def _sweeps(found: Matrix, row: Seconds, steps: Steps, rules: Rules, worth: Seconds) -> None:
    """J(j) * P for j = 0, 1, ..., with what the state behind is worth, by the state before."""
    found[:] = NEVER
    for j in range(len(found)):
        move = Move(rules.slots + 1, steps.quanta[j], steps.seconds[j])
        for before in range(len(row)):
            row[:] = NEVER
            spend(row, rules, move, before)
            for after in range(len(row)):
                value = row[after] + worth[passed(rules, after)]
                found[j, before] = min(found[j, before], value)


@kernel
def _extend(seconds: Seconds, passing: Seconds, left: Seconds, short: int, change: float) -> None:
    """The recurrence of `_long`, for x from `short`, where F_c(x) is; and what R * D costs."""
    for x in range(short, len(seconds)):
        for j in range(1, x + 1):
            seconds[x] = min(seconds[x], passing[j] + seconds[x - j] + left[j])
        left[x + 1] = seconds[x] + change
