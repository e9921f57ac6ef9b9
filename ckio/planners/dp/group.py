"""A whole plan as one small integer program: the number of steps that begin at each slot.

If the recurrence (`ckio.planners.dp`) is unrolled in its first argument, the chain is divided into
segments, one for each checkpoint of the first sweep; those of the last level come first. Let

    phi_k,f(d) = d u_f + w_k + r_k + Q_k,f(d),   phi_k,f(0) = 0,

be the cost of a segment of d steps that begins on level k with f free slots (d = 0: the slot is not
used). Then the least cost of n steps, of which L = n - h are in segments, is

    P_K(n) = min sum phi_k,f(d_k,f),   sum d_k,f = L,   over all levels k and f = 1..c_k.       (1)

If each step has a multiplier of kappa / g, with whole numbers g > 0 and kappa, and if the equation
is replaced by a congruence modulo g, the result is a lower bound:

    g P_K(n) - kappa L >= min sum (g phi_k,f(d_k,f) - kappa d_k,f),   sum d_k,f = L (mod g).    (2)

This minimum is a shortest path through the residues of g, slot by slot: the group problem of
Gomory, "On the relation between integer and noninteger solutions to linear programs", PNAS 1965.
The multiplier is chosen so that the best lengths of all slots add up to about L, and g so that
equally good lengths differ by g. Then segments on a shortest path can be made longer by g steps at
a time, without a loss, until the sum of lengths is L. The plan then attains the bound, so that it
is proved optimal.

For example, let three slots have segments of 0, 1, 2 or 3 steps that cost 0, 2, 3 and 7, and one
more slot have segments that cost 0, 5, 5 and 6. Take L = 8. The multiplier is 6 / 3, that is 2 for
a step. The best length of the first kind is two steps (3 - 4 = -1). For the other kind 0 and 3 are
equally good (0), so that g = 3. The shortest best lengths are 2 + 2 + 2 + 0 = 6 steps. Two more
are needed, modulo 3. It costs least to make one 2 a 1 (2 - 2 = 0, which is 1 more). Therefore the
bound is 16 - 3 + 1 = 14. The plan 2 + 2 + 1 + 0 is made longer by g = 3, to 2 + 2 + 1 + 3, which
attains it:

    >>> slots = SlotKinds([3, 1], np.array([[0, 2, 3, 7], [0, 5, 5, 6]]))
    >>> taken = optimum(slots, 8, multiplier(slots, 8), 3)
    >>> taken == [Counter({2: 2, 1: 1}), Counter({3: 1})], slots.cost(taken)
    (True, 14)

The tables also prove how long a segment can be. At a multiplier of kappa / g for a step, a segment
is not worth its length, and can be replaced by one that is g steps shorter, if

    phi_k,f(d) - phi_k,f(d - g) >= kappa,   that is   Q_k,f(d) - Q_k,f(d - g) >= kappa - g u_f.

Tables up to some length prove this for all d > X of any size, and for all levels and slots. X is
the last d in the tables at which it is false, and Y the last one at which kappa - g u_f in place of
kappa is too much (`longest_worthwhile`). The tables have to reach up to 2 Y and X + Y:

    if phi(d) - phi(d - g) >= kappa - g u_f  in all tables for  Y < d <= 2 Y,  then for all d > Y;
    if phi(d) - phi(d - g) >= kappa          in all tables for  X < d <= X + Y,  then for all d > X.

Proof by induction on level, slots and length. Q(d) is P_{k-1}(d), which is 0 or w_i + Q_i(d) for a
nearer level i, so that it has the same property as that Q_i. Or j splits it,

    Q(d) = j u_f + r_k + Q(j) + P(d - j),   with P = P_k,f-1, which has one free slot less.

Second claim: d > X + Y implies j > Y or d - j > X. If j > Y, the first claim is true for Q(j), so
that Q(j) - Q(j - g) >= kappa - 2 g u_f; use the split j - g for Q(d - g), which also saves g u_f.
If d - j > X, then P(d - j) - P(d - j - g) >= kappa - g u_f by induction, because P is w_k + Q or
the value of a nearer level; use the same j, and d - j - g. In both cases Q(d) - Q(d - g) >=
kappa - g u_f. First claim: the same proof with kappa - g u_f instead of kappa, and d > 2 Y. The
proof assumes nothing about the shape of the functions.

With tapes, Q and P of d steps may also be a tape and P' of d - 1 steps, with less free space. If P
is among the functions whose tables are checked, each claim for P' at d - 1 is part of the
induction, and proves the same for d: both thresholds Y and X are at least g >= 1, so that d - 1 is
above them if d is above 2 Y or X + Y.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import NamedTuple

import numpy as np

from ckio.planners.base import Ints
from ckio.planners.dp.costs import INFEASIBLE

_MOST_WORK = 2048
"""The most sums in the shortest path for each step of the chain: at most a second for a million."""

Taken = list[Counter[int]]
"""For each kind of slot: {steps of a segment: number of slots with such a segment}."""


@dataclass(frozen=True)
class SlotKinds:
    """The slots of all levels; equal slots are one kind.

    Attributes
    ----------
    counts : sequence of int
        The number of slots of each kind.
    costs : int64 array (kinds, longest + 1)
        phi, by kind and length of the segment.
    """

    counts: Sequence[int]
    costs: Ints

    @property
    def longest(self) -> int:
        """The most steps of a segment in `costs`."""
        return len(self.costs[0]) - 1

    def total(self, lengths: Ints) -> tuple[int, int]:
        """Return the steps and the cost if each slot has a segment of its kind's length."""
        costs = self.costs[np.arange(len(lengths)), lengths]
        return _dot(self.counts, lengths), _dot(self.counts, costs)

    def cost(self, taken: Taken) -> int:
        """Return the cost of a whole plan."""
        return sum(
            int(costs[steps]) * number
            for costs, lengths in zip(self.costs, taken, strict=True)
            for steps, number in lengths.items()
        )


class Multiplier(NamedTuple):
    """The multiplier of a step, kappa / g, not always in lowest terms; g is also the group size."""

    g: int
    kappa: int

    def reduced(self, costs: Ints) -> Ints:
        """Return g phi(d) - kappa d for d = 0, 1, ... in the last axis: the reduced cost.

        If phi is too large for 64 bits it is reduced, so that a lower bound stays a lower bound.
        """
        worth = self.kappa * np.arange(costs.shape[-1])
        return self.g * np.minimum(costs, INFEASIBLE // self.g) - worth

    def fits(self, longest: int) -> bool:
        """Return whether 64 bits suffice for these numbers."""
        return self.g < INFEASIBLE >> 30 and abs(self.kappa) * (longest + 1) < INFEASIBLE


def multiplier(slots: SlotKinds, length: int, /) -> Multiplier | None:
    """Return the multiplier at which the best lengths of all slots add up to `length`, or None.

    Its group is the smallest one whose steps lead from one equally good length to the next, for all
    slots. The search has two plans, one with fewer steps and one with more. The slope of the line
    through them is the next multiplier. The best plan at this multiplier is on the line, or below
    it and between the two.
    """
    lower = (0, 0)
    upper = slots.total(np.full(len(slots.counts), slots.longest))
    while lower[0] < length <= upper[0]:
        found = _slope(upper[0] - lower[0], upper[1] - lower[1], slots.longest)
        reduced = found.reduced(slots.costs)
        first = reduced.argmin(axis=1)
        last = slots.longest - reduced[:, ::-1].argmin(axis=1)
        least, most = slots.total(first), slots.total(last)
        if least[0] <= length <= most[0]:
            factor = _distance(reduced, first, last) // found.g or 1
            return Multiplier(found.g * factor, found.kappa * factor)
        if lower[0] < most[0] < length:
            lower = most
        elif length < least[0] < upper[0]:
            upper = least
        else:
            return None
    return None


def _slope(steps: int, cost: int, longest: int) -> Multiplier:
    """Return the multiplier cost / steps in lowest terms; a whole number if these are too large."""
    common = gcd(steps, cost)
    found = Multiplier(steps // common, cost // common)
    return found if found.fits(longest) else Multiplier(1, cost // steps)


def _distance(reduced: Ints, first: Ints, last: Ints) -> int:
    """Return the greatest common divisor of the differences of equally good lengths, or 0."""
    distance = 0
    for kind in np.flatnonzero(first < last):
        best = np.flatnonzero(reduced[kind] == reduced[kind, first[kind]])
        distance = gcd(distance, int(np.gcd.reduce(np.diff(best))))
    return distance


def optimum(slots: SlotKinds, length: int, multiplier: Multiplier, longest: int, /) -> Taken | None:
    """Return a plan for (1) that attains (2), with segments of at most `longest` >= g steps in (2).

    Return None if the shortest paths cannot be extended to `length`, or need too much work.
    """
    if multiplier.g > longest or not multiplier.fits(slots.longest):
        return None
    residues = _Residues.of(slots, multiplier, longest)
    target = (length - residues.steps) % multiplier.g
    found = _shortest_path(residues, target, _MOST_WORK * length)
    if found is None:
        return None
    taken, extra = found
    if not _stretch(slots, multiplier, taken, length):
        return None
    bound = multiplier.kappa * length + residues.least + extra
    return taken if multiplier.g * slots.cost(taken) == bound else None


@dataclass(frozen=True)
class _Residues:
    """The right-hand side of (2): each slot has a segment of its best length, or of another length.

    Another length costs `extra` and leads from one residue to another. Of ways of equal cost the
    shortest is needed, because a plan can be made longer. Therefore the comparison uses
    cost * weight + steps, both relative to the best lengths.

    Attributes
    ----------
    counts : sequence of int
        The number of slots of each kind.
    best : int64 array (kinds)
        The best length of each kind of slot; of several, the shortest.
    least : int
        The reduced cost if every slot has its best length.
    lengths, extra : int64 arrays (kinds, g)
        For each difference from the best length modulo g: the length, and its additional cost.
    """

    counts: Sequence[int]
    best: Ints
    least: int
    lengths: Ints
    extra: Ints

    @staticmethod
    def of(slots: SlotKinds, multiplier: Multiplier, longest: int) -> "_Residues":
        reduced = multiplier.reduced(slots.costs[:, : longest + 1])
        best = reduced.argmin(axis=1)
        least = reduced.min(axis=1)
        reduced -= least[:, None]
        kinds, g = len(best), multiplier.g
        padded = np.full((kinds, -(-(longest + 1) // g) * g), 1 << 62)
        padded[:, : longest + 1] = reduced
        folded = padded.reshape(kinds, -1, g)
        again = (np.arange(g) + best[:, None]) % g
        lengths = np.take_along_axis(folded.argmin(axis=1) * g + np.arange(g), again, axis=1)
        return _Residues(
            counts=slots.counts,
            best=best,
            least=_dot(slots.counts, least),
            lengths=lengths,
            extra=np.take_along_axis(reduced, lengths, axis=1),
        )

    @property
    def steps(self) -> int:
        """The steps of the plan in which every slot has its best length."""
        return _dot(self.counts, self.best)

    def direct(self, target: int) -> int:
        """Return the least cost of a way that changes only one or two slots of one kind."""
        rest = (target - np.arange(self.extra.shape[1])) % self.extra.shape[1]
        return min(
            min(int(extra[target]), int((extra + extra[rest]).min()) if count > 1 else INFEASIBLE)
            for count, extra in zip(self.counts, self.extra, strict=True)
        )


class _OtherLengths(NamedTuple):
    """The other lengths that one slot of a kind may have: residues, lengths, and weighted costs."""

    kind: int
    residues: Ints
    lengths: Ints
    costs: Ints


def _shortest_path(residues: _Residues, target: int, most_work: int) -> tuple[Taken, int] | None:
    """Return the lengths of all slots on the cheapest way from residue 0 to another one.

    Also return its cost in addition to that of the best lengths. No change on it costs more than
    the best way that is known at once. Return None if the search is too much work.
    """
    counts, g, limit = residues.counts, residues.extra.shape[1], residues.direct(target)
    most_changed = sum(min(count, g) for count in counts)
    weight = 2 * most_changed * (int(residues.lengths.max()) + 1)
    if limit * weight >= INFEASIBLE:
        return None
    ways = np.full(g, INFEASIBLE)
    ways[0] = 0
    stages: list[tuple[_OtherLengths, Ints]] = []
    for kind in sorted(range(len(counts)), key=lambda kind: -counts[kind]):
        others = _other_lengths(residues, kind, limit, weight)
        for _ in range(min(counts[kind], g)):
            most_work -= g * len(others.residues)
            if most_work < 0:
                return None
            after = _one_slot(ways, others)
            if np.array_equal(after, ways):
                break
            stages.append((others, ways))
            ways = after
        limit = min(limit, _cost(int(ways[target]), weight))
    return _back(residues, stages, ways, target), _cost(int(ways[target]), weight)


def _back(
    residues: _Residues, stages: Sequence[tuple[_OtherLengths, Ints]], ways: Ints, target: int
) -> Taken:
    """Return the lengths of all slots on the cheapest way to a residue.

    `stages` are the slots that made a difference, and the ways without each of them.
    """
    taken = [Counter[int]() for _ in residues.counts]
    at, cost = target, ways[target]
    for others, before in reversed(stages):
        if before[at] == cost:
            continue
        come = before[at - others.residues]
        chosen = int(np.argmax(come + others.costs == cost))
        taken[others.kind][int(others.lengths[chosen])] += 1
        at, cost = (at - int(others.residues[chosen])) % len(before), come[chosen]
    for lengths, count, best in zip(taken, residues.counts, residues.best.tolist(), strict=True):
        lengths[best] += count - lengths.total()
    return taken


def _other_lengths(residues: _Residues, kind: int, limit: int, weight: int) -> _OtherLengths:
    extra, lengths = residues.extra[kind], residues.lengths[kind]
    allowed = np.flatnonzero(extra <= limit)[1:]  # without residue 0, which is the best length
    more = lengths[allowed] - residues.best[kind]
    return _OtherLengths(kind, allowed, lengths[allowed], extra[allowed] * weight + more)


def _one_slot(ways: Ints, others: _OtherLengths) -> Ints:
    """Return the cheapest ways if one more slot may have another length."""
    g, after, twice = len(ways), ways.copy(), np.concatenate((ways, ways))
    for residue, cost in zip(others.residues.tolist(), others.costs.tolist(), strict=True):
        np.minimum(after, twice[g - residue : 2 * g - residue] + cost, out=after)
    return after


def _cost(way: int, weight: int) -> int:
    return (way + weight // 2) // weight


def _stretch(slots: SlotKinds, multiplier: Multiplier, taken: Taken, length: int) -> bool:
    """Make segments longer by multiples of g, without a loss; return whether it suffices."""
    missing = length - sum(steps * count for kind in taken for steps, count in kind.items())
    for kind in sorted(range(len(taken)), key=lambda kind: -slots.counts[kind]):
        for steps in sorted(taken[kind]):
            more = _as_good(slots, multiplier, kind, steps)
            while taken[kind][steps] and len(more := more[more <= missing]):
                longer = int(more[-1])
                moved = min(taken[kind][steps], missing // longer)
                taken[kind][steps] -= moved
                taken[kind][steps + longer] += moved
                missing -= moved * longer
    return missing == 0


def _as_good(slots: SlotKinds, multiplier: Multiplier, kind: int, steps: int) -> Ints:
    """Return by how many steps a segment can be longer and equally good at this multiplier."""
    reduced = multiplier.reduced(slots.costs[kind])[steps :: multiplier.g]
    return np.flatnonzero(reduced == reduced[0])[1:] * multiplier.g


def _dot(counts: Sequence[int], values: Ints) -> int:
    numbers: list[int] = values.tolist()
    return sum(count * number for count, number in zip(counts, numbers, strict=True))


def longest_worthwhile(slots: SlotKinds, multiplier: Multiplier, move: int, /) -> tuple[int, int]:
    """Return X, and the length of the tables that prove it, which is the larger of 2 Y and X + Y.

    X is proved if `slots` has segments of that length. `move` is u_f.
    """
    x = _last_cheap(slots, multiplier.g, multiplier.kappa)
    y = _last_cheap(slots, multiplier.g, multiplier.kappa - multiplier.g * move)
    return x, max(2 * y, x + y)


def _last_cheap(slots: SlotKinds, g: int, kappa: int) -> int:
    """Return the last d in all tables whose last g steps cost less than kappa; at least g."""
    longer = slots.costs[:, g + 1 :]
    differences = longer - slots.costs[:, 1 : 1 + longer.shape[1]]
    cheap = np.flatnonzero((differences < kappa).any(axis=0))
    return g + 1 + int(cheap[-1]) if len(cheap) else g
