"""A time below which no schedule on two levels is expected to come, as each write is in one piece.

Of all schedules with n far checkpoints and k near ones when the last step is reached, and q of the
far ones still on their way, p seconds of writing, as in `bound`: for any price λ, the program takes
no less than

    max(l u_f, n w_2 - p) + V,

where V is the least of its seconds from there on, with λ for each far checkpoint that is still to
be written, and less λ for each that is. With the matrices of `progress`, V is the least product of
those of n far segments, of k near ones, and of the first, whose own first state is x_0. That is no
less than

    g(first state) + sum_i a_i(x_i)

with the functions of `lengths`, whose least is found by merging the slopes of their lower convex
hulls.

It rests on what `bound` rests on, and on that order for what is written early, too: states of other
segments are computed from far checkpoints of theirs. It is for machines with few near slots, where
writes are long.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from math import ceil, floor, inf
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ckio.planners.overlapped.hulls import Merged
from ckio.planners.overlapped.lengths import Lengths, begun, lengths_of, worth_of
from ckio.planners.overlapped.programs import Seconds
from ckio.planners.overlapped.progress import HELD, Rules, Steps, tables
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
        back=begun(back / quantum),
        price=price,
        advance=costs.advance,
        quantum=quantum,
        back_seconds=back,
        near_write=costs.near_write,
        near_read=costs.near_read,
    )


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
    worth = worth_of(solved.read, rules, int(written))

    def before(q: int) -> Seconds:
        return _before(machine, rules, q, worth)

    return least_after(machine, lengths_of(solved, steps, rules, worth), before)


def least_after(machine: Machine, lengths: Lengths, before: Callable[[int], Seconds]) -> float:
    """The least for all n, k and q, with what the first sweep costs by q and n."""
    best = np.inf
    for k, behind in enumerate(_behind(machine, lengths)):
        for q in range(machine.near - k + 1):
            best = min(best, float(np.min(before(q) + behind)))
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


def _behind(machine: Machine, lengths: Lengths) -> Iterator[NDArray[np.float64]]:
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
