"""A time below which no schedule on two levels is expected to come, as each write is in one piece.

Of all schedules with n far checkpoints and k near ones when the last step is reached, and q of the
far ones still on their way, p seconds of writing, as in `bound`: for any price λ, the program takes
no less than

    max(l u_f, n w_2 - p) + V,

where V is the least of its seconds from there on, with λ for each far checkpoint that is still to
be written, and less λ for each that is. With the matrices of `progress`, V is the least product of
those of n far segments, of k near ones, and of the first, whose own first state is x_0. For any
numbers g, one for each state of the channel, it is no less than

    g(first state) + sum_i a_i(x_i),    a(x) = min_{y, z} A(x)[y, z] + g(z) - g(y),

so that what segments cost is again a function of their lengths, and V is found by merging the
slopes of their lower convex hulls. Those g serve best which say what the states are worth. Long
segments are composed of functions of shorter ones.

It rests on what `bound` rests on, and on that order for what is written early, too: states of other
segments are computed from far checkpoints of theirs. It is for machines with few near slots, where
writes are long.
"""

from collections.abc import Iterator
from itertools import pairwise
from math import ceil, floor, inf
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ckio.planners.binomial import revolve_forward_steps
from ckio.planners.compiled import kernel
from ckio.planners.overlapped.hulls import Merged, slopes
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
    tables,
)
from ckio.planners.overlapped.segments import Machine

MOST_SLOTS: Final = 6
"""With more near slots, one that is taken makes no difference that is worth the time."""
_MOST_STEPS: Final = 10_000
_LEAST_WRITE: Final = 8.0
"""Steps that a write takes, at least: parts of shorter ones gain little."""
_PARTS: Final = 24
_MOST_PARTS: Final = 36
"""Quanta of a write, at least and at most."""
_IDLE: Final = 0.25
"""Of a write: what the channel is idle before the next one, at most."""
_LONGER: Final = 2.2
_SHORTEST: Final = 24
_LONGEST: Final = 72
"""Times the steps that a write takes, the least and the most: segments solved with all states."""
_PRICES: Final = (0.1, 0.16, 0.24)
"""Of a write, in what it takes: where to look first."""
_NEAR: Final = 0.98
_LOOKS: Final = 3
_ROUNDS: Final = 12
_PASSES: Final = 24
"""How often, and each way in turn, the numbers g are made better."""


def bound_by_writes(machine: Machine, least: float = 0.0, enough: float = inf) -> float:
    """The greatest that was found; 0 where it is not looked for.

    Parameters
    ----------
    machine
    least
        What is known: seconds. If nothing is near it, no more is looked for.
    enough
        Seconds; from there on, no more is looked for.
    """
    costs = machine.costs
    write = costs.far_write
    if machine.near > MOST_SLOTS or machine.length > _MOST_STEPS:
        return 0.0
    if not _LEAST_WRITE * costs.advance <= write <= _MOST_PARTS * costs.advance:
        return 0.0
    quantum = costs.advance / ceil(_PARTS * costs.advance / write)
    found = {part: _bound(machine, quantum, part * write) for part in _PRICES}
    for _ in range(_LOOKS):
        known = sorted(found)
        at = known.index(max(known, key=lambda part: found[part]))
        if not least * _NEAR <= found[known[at]] < enough:
            break
        for lower, upper in pairwise(known[max(0, at - 1) : at + 2]):
            part = (lower + upper) / 2
            found[part] = _bound(machine, quantum, part * write)
    return max(found.values())


def _rules(machine: Machine, quantum: float, price: float) -> Rules:
    costs = machine.costs
    back = costs.record + costs.reverse
    idle = floor(min(costs.far_read + costs.advance, _IDLE * costs.far_write) / quantum)
    return Rules(
        slots=machine.near,
        idle=idle,
        read=min(idle, floor(costs.far_read / quantum)),
        whole=idle + floor(costs.far_write / quantum),
        back=_begun(back / quantum),
        price=price,
        advance=costs.advance,
        quantum=quantum,
        back_seconds=back,
        near_write=costs.near_write,
        near_read=costs.near_read,
    )


def _begun(quanta: float) -> int:
    return ceil(quanta - 1e-9)


def _bound(machine: Machine, quantum: float, price: float) -> float:
    """The bound for one λ."""
    costs, length = machine.costs, machine.length
    rules = _rules(machine, quantum, price)
    seconds: Seconds = np.arange(length + 1.0) * costs.advance
    taken = (seconds + costs.near_write + costs.near_read) / quantum
    steps = Steps(np.ceil(taken - 1e-9).astype(np.int64), seconds)
    written = costs.far_write / costs.advance
    longest = min(length, max(_SHORTEST, min(ceil(_LONGER * written), _LONGEST)))
    solved = tables(machine.near, longest, steps, rules)
    worth = _worth(solved.read, rules, int(written))
    return _least(machine, rules, _lengths(solved, steps, rules, worth), worth)


def _worth(matrices: Matrix, rules: Rules, typical: int) -> Seconds:
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


class _Lengths(NamedTuple):
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


def _lengths(tables: Tables, steps: Steps, rules: Rules, worth: Seconds) -> _Lengths:
    """From the matrices of short segments."""
    short, length = len(tables.far), len(steps.seconds) - 1
    stored, far, read = (_valued(it, worth) for it in (tables.stored, tables.far, tables.read))
    first = np.min(np.minimum(tables.far, tables.read) - worth[:, np.newaxis], axis=(-2, -1))
    if length < short:
        return _Lengths(tuple(stored), far, read, first)
    long = _long(tables, steps, rules)
    before, read_before = long.before - worth, after_read(long.before, rules) - worth
    behind = float(np.min(worth - long.behind))
    changes = (
        float(before.min()) + behind,
        float(read_before.min()) + behind,
        float(np.minimum(before, read_before).min() - long.behind.max()),
    )
    functions = zip((far, read, first), changes, strict=True)
    near = [_near(s, steps, rules)[short:] - np.ptp(worth) for s in range(1, len(stored))]
    return _Lengths(
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
    seconds = _near(rules.slots, steps, rules) - np.ptp(np.append(before, behind))
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


def _near(slots: int, steps: Steps, rules: Rules) -> Seconds:
    """S_s(x) as if all of its time was good for writes."""
    count = range(len(steps.seconds))
    advances = [revolve_forward_steps(x + 1, slots) - (x + 1) for x in count]
    taken = np.array(advances) * rules.advance + np.arange(1, len(count) + 1) * rules.back_seconds
    # Quanta that have begun count in full.
    counted = [steps.quanta[1] * rules.quantum / rules.advance]
    if rules.back_seconds:
        counted.append(rules.back * rules.quantum / rules.back_seconds)
    write = (rules.whole - rules.idle) * rules.quantum
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


def _least(machine: Machine, rules: Rules, lengths: _Lengths, worth: Seconds) -> float:
    """The least for all n, k and q."""
    best = np.inf
    for k, behind in enumerate(_behind(machine, lengths)):
        for q in range(machine.near - k + 1):
            best = min(best, float(np.min(_before(machine, rules, q, worth) + behind)))
    return best


def _before(machine: Machine, rules: Rules, q: int, worth: Seconds) -> Seconds:
    """What the first sweep costs for each n, with what is left of it to write."""
    costs, n = machine.costs, np.arange(machine.far + 1)
    swept, write = machine.length * costs.advance, costs.far_write
    left = np.clip(n * write - swept, max(q - 1, 0) * write, q * write)
    done = np.ceil((q * write - left) / rules.quantum - 1e-9).astype(np.int64)
    at = rules.idle + np.minimum(done, rules.whole - rules.idle - 1) if q else 0 * n
    state = min(max(q - 1, 0), HELD - 1) * rules.whole + at
    sweep = np.maximum(swept, n * write - left) + q * rules.price + worth[state]
    return np.where(q <= n, sweep, np.inf)


def _behind(machine: Machine, lengths: _Lengths) -> Iterator[NDArray[np.float64]]:
    """V without g(first state), for k = 0, 1, ..., each for all n."""
    length, first, far = machine.length, Merged.of(lengths.first), Merged.of(lengths.read)
    register = Merged.of(lengths.far)
    near = Merged(length)
    for k in range(machine.near + 1):
        if k:
            near = near.joined(Merged.of(lengths.stored[machine.near - k + 1]))
        behind = np.full(machine.far + 1, np.inf)
        for n in range(machine.far + 1):
            steps = length - n - k
            if steps < 0:
                break
            others = near.joined(first) if k or not n else near.joined(first).joined(register)
            behind[n] = far.times(n if k else max(0, n - 1)).least(others, steps)
        yield behind
