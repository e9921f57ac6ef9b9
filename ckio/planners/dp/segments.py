"""Long chains: nearly all segments are alike, so that short tables plan them all.

The first sweep cuts a chain into segments, one for each checkpoint. Where a restart checkpoint and
a tape take the same space on each level, or a level never fills, each slot begins one segment, and
how many steps it has is a small integer program (`ckio.planners.dp.group`, with the proof of how
long a segment need be):

    phi_k,m(d) = d u + w_k + r_k + Q_k,m(d),   phi_k,m(1) <= w'_k + r'_k,

where a segment of one step may be a tape, and L = n - h, because P does not fall with n and the
last h steps cost nothing. So the recurrence need be tabulated up to the length of a segment or two,
not up to that of the chain. "8733 segments of 101 steps and 1266 of 51" then is a plan of a million
steps; `ckio.planners.dp.walk` repeats the actions of each kind of segment.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import comb
from typing import TYPE_CHECKING, Final

import numpy as np

from ckio.actions import Kind
from ckio.planners.compiled import available
from ckio.planners.dp.group import Ints, SlotKinds, Taken, longest_worthwhile, optimum, price
from ckio.planners.dp.spaces import Space
from ckio.planners.dp.tables import Table
from ckio.planners.dp.walk import Segment

if TYPE_CHECKING:
    from ckio.planners.dp.pieces import Layers

_SHORTEST: Final = 256
"""Length of the first tables: a few milliseconds."""

_PART_OF_CHAIN: Final = 2
"""Tables are tried that are together no longer than half of the chain: failure costs little."""

_MOST_CELLS: Final = 1 << 25
"""Numbers in all tables together: a quarter of a gigabyte."""

_MOST_WITHOUT_NUMBA: Final = 4096
"""Length of tables in numpy: a few seconds."""

_GROUPS: Final = (1, 2, 4, 8, 16, 32)
"""Where no plan fits into the smallest group, larger ones are tried."""

Solved = Sequence["Table | Layers"]
"""The stages of levels in an order."""

Solve = Callable[[Sequence[Space], int], Solved]
"""Solves the stages for lengths up to a greatest one."""


@dataclass(frozen=True)
class LongPlan:
    """An optimal hierarchical plan of a long chain.

    Attributes
    ----------
    first : tuple of Segment
        The first sweep: the last level's first, and of each level the longest first among those
        that need as many slots.
    cost : int
        In the unit of the costs, without what every schedule takes.
    stages : tuple of Table or Layers
        How each segment is reversed.
    """

    first: tuple[Segment, ...]
    cost: int
    stages: Solved


@dataclass(frozen=True)
class _SlotKind:
    """Slots of a level that are alike: so many, with `free` of them free, their own included."""

    stage: int
    free: int
    copies: int


def plan(
    order: Sequence[Space],
    length: int,
    solve: Solve,
    /,
    *,
    move: int,
    held: int = 1,
    shortest: int = _SHORTEST,
) -> LongPlan | None:
    """Return an optimal hierarchical plan; None where the recurrence itself is as fast, or has to.

    Parameters
    ----------
    order : sequence of Space
        The levels, with costs in whole units, as `move` is: to go forward over a step.
    length : int
        n, the steps of the chain; the working memory holds the tapes of `held` of them.
    solve : callable
        Makes the tables.
    shortest : int
        Length of the first tables. It changes how soon a plan is found, and which of equally good
        ones, never what it costs.
    """
    counts = [space.slots for space in order]
    if not all(counts):
        return None
    left = (length - held) // _PART_OF_CHAIN
    longest = max(shortest, 2 * held, _first_guess(length - held, sum(counts)))
    while longest <= left and (longest <= _MOST_WITHOUT_NUMBA or available()):
        stages = solve([space.in_slots(longest) for space in order], longest)
        extended = extend(stages, counts, length - held, move)
        if not isinstance(extended, int):
            return extended
        left -= longest
        longest = min(2 * longest, max(extended, longest + longest // 2))
    return None


def _first_guess(length: int, slots: int) -> int:
    """Of the length of tables that are needed: a quarter more than if levels cost nothing.

    Then segments of up to beta(s, r - 2) steps are worthwhile if the chain needs r repetitions; see
    `ckio.planners.binomial`.
    """
    r = 1
    while comb(slots + r, r) < length:
        r += 1
    return 5 * sum(comb(slots + q, q) for q in (r - 3, r - 2) if q >= 0) // 4


def extend(
    stages: Solved, counts: Sequence[int], steps: int, move: int, /
) -> LongPlan | int | None:
    """Return a plan of a longer chain than the tables are for, of so many steps and the last ones.

    If longer tables may give one, their length; None if they would not. `counts` are the slots.
    """
    costs, left_over = _costs(stages, move)
    kinds = list(_kinds(stages, counts))
    if len(kinds) * costs.shape[1] > _MOST_CELLS:
        return None
    known = SlotKinds([kind.copies for kind in kinds], costs)
    start = price(known, steps)
    if start is None:
        return 2 * known.longest
    everything = known if left_over is None else SlotKinds((), np.concatenate((costs, left_over)))
    for factor in _GROUPS:
        priced = start.times(factor)
        worthwhile, needed = longest_worthwhile(everything, priced, move)
        if needed > known.longest:
            return needed
        if taken := optimum(known, steps, priced, worthwhile):
            first = _first(stages, kinds, known, taken, move)
            return LongPlan(tuple(first), known.cost(taken), stages)
    return None


def _kinds(stages: Solved, counts: Sequence[int]) -> Iterator[_SlotKind]:
    """The slots of each level, by how many are free; from the last layer on, all are alike."""
    for number, (stage, count) in enumerate(zip(stages, counts, strict=True)):
        last = stage.last
        for free in range(1, last):
            yield _SlotKind(number, free, 1)
        yield _SlotKind(number, last, count - last + 1)


def _costs(stages: Solved, move: int) -> tuple[Ints, Ints | None]:
    """phi, for each kind of slot and length; with tapes, the same of P in the place of Q."""
    longest, count = len(stages[0].lower), sum(stage.last for stage in stages)
    longest -= isinstance(stages[0], Table)  # which begins with the length 0
    costs = np.zeros((count, longest + 1), np.int64)
    tapes = any(stage.spaces[0].tapes for stage in stages)
    left_over = np.zeros_like(costs) if tapes else None
    moved, row = move * np.arange(1, longest + 1), 0
    for stage in stages:
        (space,) = stage.spaces
        for free, (fresh, stored) in enumerate(stage.values()):
            if free == 0:
                continue
            costs[row, 1:] = moved + int(space.write + space.read) + stored
            if space.tapes:
                costs[row, 1] = min(costs[row, 1], int(space.tape))
            if left_over is not None:
                left_over[row, 1:] = moved + fresh
            row += 1
    return costs, left_over


def _first(
    stages: Solved, kinds: Sequence[_SlotKind], slots: SlotKinds, taken: Taken, move: int
) -> Iterator[Segment]:
    """The segments in the order of the chain: what needs more free slots comes first."""
    segments = list[Segment]()
    for row, (kind, lengths) in enumerate(zip(kinds, taken, strict=True)):
        (space,) = stages[kind.stage].spaces
        for steps, copies in lengths.items():
            if steps and copies:
                whole = move + int(space.write + space.read)
                how = Kind.TAPE if steps == 1 and space.tape <= whole else Kind.RESTART
                same = slots.costs[row - kind.free + 1 : row + 1, steps]
                free = int(np.argmax(same == same[-1])) + 1
                segments.append(Segment(how, kind.stage, free, steps, copies))
    segments.sort(key=lambda it: (it.stage, it.free, it.steps), reverse=True)
    for _, alike in groupby(segments, key=lambda it: it[:4]):
        one, *others = alike
        yield one._replace(copies=one.copies + sum(it.copies for it in others))
