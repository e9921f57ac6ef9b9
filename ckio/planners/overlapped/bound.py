"""A time below which no schedule on two levels is expected to come, however much overlaps. Numba.

Let the first sweep leave n far checkpoints and k near ones that are of use, and let q of the far
writes still be staged when the last step is reached, so that k + q is at most the near slots. From
then on the program computes and the channel transfers, each for no longer than the whole takes. So,
for any part λ between 0 and 1,

    seconds >= max(l u_f, (n - q) w_2) + (1 - λ) V(n, k) + λ q w_2,

where V(n, k) is the least of what the program computes, plus λ/(1 - λ) times what the channel
transfers, to take back a chain that has those checkpoints for nothing. That is a synchronous
problem: n segments on the far level, the i-th with c_2 - i + 1 slots, and k on the near level.
Their lengths are any that add up, and as the lower convex hull of each stands for it, V is found
by merging slopes. Costs are rounded down to a part of a step.

It rests on two things that are not proved: that H-Revolve's recurrence is the least for synchronous
costs, and that the order of far and near checkpoints stays the best where the first are written for
nothing. Exhaustive search of small cases has found nothing below it.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from ckio.planners.compiled import kernel
from ckio.planners.hrevolve.runs import LevelTable, Tables, solve_runs
from ckio.planners.overlapped.programs import Ints, Seconds
from ckio.planners.overlapped.segments import Machine
from ckio.planners.overlapped.tables import Table

# mypy: disable-error-code="no-any-return"

_PARTS = 1000
"""Costs are multiples of one part in so many of an advance."""

_WEIGHTS = (0.003, 0.02, 0.1, 0.4)
_ROUNDS = 6


def bound(machine: Machine) -> float:
    """The greatest of such bounds that was found: by all n, k and q, for a few λ, and for λ = 0."""
    advance, length = machine.costs.advance, machine.length
    back = (length + 1) * (machine.costs.record + machine.costs.reverse)
    best = _solved(machine, 0.0).least * advance / _PARTS + back
    grids: dict[float, Table] = {}
    weights: Sequence[float] = _WEIGHTS
    for _ in range(_ROUNDS):
        for weight in weights:
            grids[weight] = _grid(machine, weight) if weight not in grids else grids[weight]
        worst = np.max(list(grids.values()), axis=0)
        place = np.unravel_index(int(np.argmin(worst)), worst.shape)
        known = sorted(grids)
        at = max(range(len(known)), key=lambda i: grids[known[i]][place])
        if worst[place] < best:
            break
        lower, upper = known[max(at - 1, 0)], known[min(at + 1, len(known) - 1)]
        weights = [float(np.sqrt(lower * known[at])), float(np.sqrt(upper * known[at]))]
    return max(best, float(worst[place]))


def _solved(machine: Machine, weight: float) -> Tables:
    """H-Revolve's tables where far access costs a part of its seconds, in parts of an advance.

    Near access costs no more than that: the recurrence is for levels in their order.
    """
    costs = machine.costs
    unit = costs.advance / _PARTS
    far = [int(weight * seconds / unit) for seconds in (costs.far_write, costs.far_read)]
    near = [int(seconds / unit) for seconds in (costs.near_write, costs.near_read)]
    write, read = ([min(pair), pair[1]] for pair in zip(near, far, strict=True))
    return solve_runs(machine.length, [machine.near, machine.far], write, read, _PARTS)


def _grid(machine: Machine, weight: float) -> Table:
    """The bound for every n, k and q: an array (far + 1, near + 1, near + 1)."""
    costs, tables = machine.costs, _solved(machine, weight)
    reverse = costs.record + costs.reverse
    unit = costs.advance / _PARTS
    least = _least(tables, machine) * unit + (machine.length + 1) * reverse
    n = np.arange(machine.far + 1)[:, np.newaxis, np.newaxis]
    k = np.arange(machine.near + 1)[:, np.newaxis]
    q = np.arange(machine.near + 1)
    sweep = np.maximum(machine.length * costs.advance, (n - q) * costs.far_write)
    behind = (least[:, :, np.newaxis] + weight * costs.far_write * q) / (1 + weight)
    return np.where(k + q <= machine.near, sweep + behind, np.inf)


def _least(tables: Tables, machine: Machine) -> Table:
    """V(n, k), in parts of an advance and without Records and Reverses: (far + 1, near + 1)."""
    length, (near, far) = machine.length, tables.levels
    found = np.full((machine.far + 1, machine.near + 1), np.inf)
    merged = [_Merged(length)]
    for slopes in _falling(near, machine.near):
        merged.append(merged[-1].joined(slopes))
    row = _Merged(length)
    more = _falling(far, machine.far)
    for n in range(machine.far + 1):
        for k in range(machine.near + 1):
            steps = length - n - k
            if steps >= 0 and n + k:
                reads = n * far.read + k * near.read
                found[n, k] = reads + row.least(merged[k], steps)
        if n < machine.far:
            row = row.joined(next(more))
    return found


class _Merged:
    """The slopes of some convex functions in one, the least first, and their sums."""

    def __init__(self, length: int, slopes: Seconds | None = None) -> None:
        self.length = length
        self.slopes = np.empty(0) if slopes is None else slopes[:length]
        self.sums = np.concatenate(([0.0], np.cumsum(self.slopes)))

    def joined(self, slopes: Seconds) -> "_Merged":
        """With one function more."""
        both = np.concatenate((self.slopes, slopes))
        both.sort(kind="stable")
        return _Merged(self.length, both)

    def least(self, other: "_Merged", steps: int) -> float:
        """The sum of the `steps` least slopes of both."""
        return _least_sum(self.slopes, self.sums, other.slopes, other.sums, steps)


def _falling(level: LevelTable, slots: int) -> Iterator[Seconds]:
    """The slopes of the hulls of Hbar for `slots` free slots, one less, and so on to 1."""
    length = int(level.below.x[-1])
    hulls = [_slopes(values) for _, values in level.windows(0, length + 1)]
    for free in range(slots, 0, -1):
        yield hulls[min(free, len(hulls)) - 1]


def _slopes(values: Ints) -> Seconds:
    """The slopes of the lower convex hull of values at 0, 1, 2, ..., from each to the next."""
    ends, slopes = np.zeros(len(values), np.int64), np.zeros(len(values) - 1)
    _hull(values, ends, slopes)
    return slopes


@kernel
def _hull(values: Ints, ends: Ints, slopes: Seconds) -> None:
    top = 0
    for x in range(1, len(values)):
        while top and (values[ends[top]] - values[ends[top - 1]]) * (x - ends[top]) >= (
            values[x] - values[ends[top]]
        ) * (ends[top] - ends[top - 1]):
            top -= 1
        top += 1
        ends[top] = x
    for piece in range(top):
        begin, end = ends[piece], ends[piece + 1]
        for x in range(begin, end):
            slopes[x] = (values[end] - values[begin]) / (end - begin)


@kernel
def _least_sum(a: Seconds, sum_a: Seconds, b: Seconds, sum_b: Seconds, count: int) -> float:
    """The sum of the `count` least of two sorted arrays; infinite where they are fewer."""
    low, high = max(0, count - len(b)), min(count, len(a))
    if low > high:
        return np.inf
    while low < high:
        middle = (low + high) >> 1
        if count > middle and a[middle] < b[count - middle - 1]:
            low = middle + 1
        else:
            high = middle
    return sum_a[low] + sum_b[count - low]
