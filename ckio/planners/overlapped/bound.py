"""A time below which no schedule on two levels is expected to come, however much overlaps. Numba.

Let the first sweep leave n far checkpoints and k near ones that are of use, and let the channel
have still p seconds to write when the last step is reached: q checkpoints are staged then, with
(q - 1) w_2 < p <= q w_2, and k + q is at most the near slots. From then on it takes T seconds, in
which the program computes and stands still, and the channel transfers. A transfer takes a near
slot, or the program stands still for it; so it cannot take place while the program computes and all
near slots hold checkpoints. Hence the channel's seconds and those together are no more than T
either. For any weight μ >= 0, then,

    seconds >= max(l u_f, n w_2 - p) + (V(n, k) + μ p)/(1 + μ),

where V(n, k) is the least of what the program takes, plus μ times what it computes with all slots
full and what the channel transfers, to take back a chain that has those checkpoints for nothing.
That is a synchronous problem: n segments on the far level, the i-th with c_2 - i + 1 slots, and k
on the near level; what they cost is in `windows`. Their lengths are any that add up, and as the
lower convex hull of each stands for it, V is found by merging slopes. Costs are rounded down to a
part of a step, and p is what gives the least.

It rests on three things that are not proved: that H-Revolve's recurrence is the least for
synchronous costs; that the order of far and near checkpoints stays the best where the first are
written for nothing, and with what transfers take of the near level; and that nothing is gained by a
checkpoint that is read while it is still being written, or kept near as well as far. Exhaustive
search of small cases has found nothing below it.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from ckio.planners.hrevolve.runs import Runs, solve_runs, values
from ckio.planners.overlapped.hulls import Merged
from ckio.planners.overlapped.segments import Machine
from ckio.planners.overlapped.tables import Table
from ckio.planners.overlapped.windows import Prices, segments

_PARTS = 1000
"""Costs are multiples of one part in so many of an advance."""

_WEIGHTS = (0.003, 0.02, 0.1, 0.4)
_ROUNDS = 6


def bound(machine: Machine) -> float:
    """The greatest of such bounds that was found: by all n, k and q, for a few λ, and for λ = 0."""
    advance, length = machine.costs.advance, machine.length
    back = (length + 1) * (machine.costs.record + machine.costs.reverse)
    access = ([0, 0], [0, 0])
    best = solve_runs(length, [machine.near, machine.far], *access, _PARTS).least * advance / _PARTS
    best += back
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


def _grid(machine: Machine, weight: float) -> Table:
    """The bound for every n, k and q: an array (far + 1, near + 1, near + 1)."""
    costs = machine.costs
    behind = _least(machine, weight) * costs.advance / _PARTS
    behind += (machine.length + 1) * (costs.record + costs.reverse)
    n = np.arange(machine.far + 1)[:, np.newaxis, np.newaxis]
    k = np.arange(machine.near + 1)[:, np.newaxis]
    q = np.arange(machine.near + 1)
    computed, write = machine.length * costs.advance, costs.far_write
    left = np.clip(n * write - computed, np.maximum(q - 1, 0) * write, q * write)
    sweep = np.maximum(computed, n * write - left)
    found = sweep + (behind[:, :, np.newaxis] + weight * left) / (1 + weight)
    return np.where(k + q <= machine.near, found, np.inf)


def _prices(machine: Machine, weight: float) -> Prices:
    """Near access costs no more than far access: the recurrence is for levels in their order."""
    costs = machine.costs
    unit = costs.advance / _PARTS
    write, read = int(weight * costs.far_write / unit), int(weight * costs.far_read / unit)
    back = (costs.record + costs.reverse) / unit
    return Prices(
        advance=_PARTS,
        back=int(back),
        near_write=min(int(costs.near_write / unit), write),
        near_read=min(int(costs.near_read / unit), read),
        far_write=write,
        far_read=read,
        full_advance=int((1 + weight) * _PARTS),
        full_back=int((1 + weight) * back),
        window=int(costs.far_read / unit),
    )


def _least(machine: Machine, weight: float) -> Table:
    """V(n, k), in parts of an advance and without Records and Reverses: (far + 1, near + 1)."""
    length, prices = machine.length, _prices(machine, weight)
    solved = segments(length, machine.near, machine.far, prices)
    found = np.full((machine.far + 1, machine.near + 1), np.inf)
    alone = _rows(length, _falling(solved.near, machine.near))
    before_far = _rows(length, _falling((*solved.near[:-1], solved.before_read), machine.near))
    far = _falling(solved.far, machine.far)
    row = Merged(length)
    for n in range(machine.far + 1):
        near = before_far if n else alone
        for k in range(machine.near + 1):
            steps = length - n - k
            if steps >= 0 and n + k:
                reads = n * prices.far_read + k * prices.near_read
                found[n, k] = reads + row.least(near[k], steps)
        if n < machine.far:
            segment = next(far)
            row = row.joined(segment if n else Merged.of(values(solved.last)))
    return found


def _rows(length: int, falling: Iterator[Merged]) -> list[Merged]:
    """None, the first, the first two ..., in one."""
    merged = [Merged(length)]
    for each in falling:
        merged.append(merged[-1].joined(each))
    return merged


def _falling(layers: Sequence[Runs], slots: int) -> Iterator[Merged]:
    """The hulls of layers for `slots` free slots, one less, and so on to 1."""
    hulls = [Merged.of(values(layer)) for layer in layers]
    for free in range(slots, 0, -1):
        yield hulls[min(free, len(hulls)) - 1]
