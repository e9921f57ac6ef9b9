"""Long chains: nearly all segments are alike, so that short tables suffice to plan all of them.

The first sweep divides a chain into segments, one for each checkpoint. If a restart checkpoint and
a tape have the same size on each level, or a level never fills, each slot begins one segment. The
lengths of the segments are then the solution of a small integer program (see
`ckio.planners.dp.group`, which also proves how long a segment can be). A segment of d steps that
begins on level k with f free slots costs

    phi_k,f(d) = d u_f + w_k + r_k + Q_k,f(d),   phi_k,f(1) <= w'_k + r'_k,

where the second relation holds because a segment of one step may be a tape. For example, with
u_f = 1, w_k = r_k = 0 and Q_k,f(2) = 1, phi_k,f(2) = 3. The segments have L = n - h steps in total,
because P does not decrease with n and the last h steps cost nothing.

Therefore the tables of the recurrence need only the length of one or two segments, and not that of
the chain. For example, "8733 segments of 101 steps and 1266 of 51" is a plan of nearly a million
steps. `ckio.planners.dp.unroll` repeats the actions of each kind of segment.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final

import numpy as np

from ckio.actions import Kind
from ckio.planners.base import Ints
from ckio.planners.dp.group import SlotKinds, Taken, longest_worthwhile, multiplier, optimum
from ckio.planners.dp.spaces import Space
from ckio.planners.dp.unroll import Segment

if TYPE_CHECKING:
    from ckio.planners.dp.recurrence import Table

_SHORTEST: Final = 256
"""Length of the first tables, which take a few milliseconds. It influences how soon a plan is
found, and which of several plans of equal cost, but never the cost."""

MOST_CELLS: Final = 1 << 25
"""The most numbers in all tables together: a quarter of a gigabyte."""

Solved = tuple["Table", ...]
"""The tables of the levels, in their order."""

Solve = Callable[[Sequence[Space], int], Solved]
"""A function that solves the stages of these levels for all lengths up to the given one."""


@dataclass(frozen=True)
class LongPlan:
    """A hierarchical plan of a long chain.

    Attributes
    ----------
    first : tuple of Segment
        The segments of the first sweep. Those of the last level come first; of each level, those
        with more free slots come first, and with equal slots the longest.
    cost, bound : float
        Its cost, and a lower bound of all such plans, in units, without recording and reversing
        each step once.
    stages : tuple of Table
        The solution that reverses each segment.
    """

    first: tuple[Segment, ...]
    cost: float
    bound: float
    stages: Solved


@dataclass(frozen=True)
class _SlotKind:
    """`copies` equal slots of a level: `free` slots are free, including the slot itself."""

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
) -> LongPlan | None:
    """Return an optimal hierarchical plan of a long chain.

    Return None if no such plan was proved optimal, or if tables of the whole chain are as fast.

    Parameters
    ----------
    order : sequence of Space
        The levels, with costs in whole units. All have slots.
    length : int
        n, the steps of the chain; the working memory holds the tapes of `held` of them.
    solve : callable
        Computes the tables.
    move : int
        The cost to go forward over a step, in whole units.
    """
    counts = [space.slots for space in order]
    left = (length - held) // 2  # of all tables together, so that a failure costs little
    longest = max(_SHORTEST, 2 * held)
    while longest <= left:
        stages = solve([space.in_slots() for space in order], longest)
        extended = extend(stages, counts, length - held, move)
        if not isinstance(extended, int):
            return extended
        left -= longest
        longest = min(2 * longest, max(extended, longest + longest // 2))
    return None


def extend(
    stages: Solved, counts: Sequence[int], steps: int, move: int, /
) -> LongPlan | int | None:
    """Return an optimal plan for a chain that is longer than the tables.

    The segments have `steps` steps in total; `counts` are the slots of each level. Return instead
    the length of longer tables if these may give a plan, and None if they would not.
    """
    costs, left_over = _costs(stages, move)
    kinds = list(_kinds(stages, counts))
    if len(kinds) * costs.shape[1] > MOST_CELLS:
        return None
    known = SlotKinds([kind.copies for kind in kinds], costs)
    each = multiplier(known, steps)
    if each is None:
        return 2 * known.longest
    everything = known if left_over is None else SlotKinds((), np.concatenate((costs, left_over)))
    worthwhile, needed = longest_worthwhile(everything, each, move)
    if needed > known.longest:
        return needed
    taken = optimum(known, steps, each, worthwhile)
    if taken is None:
        return None
    first = _first(stages, kinds, known, taken, move)
    cost = known.cost(taken)
    return LongPlan(tuple(first), cost, cost, stages)


def _kinds(stages: Solved, counts: Sequence[int]) -> Iterator[_SlotKind]:
    """Yield the slots of each level by the number of free ones; the last row has all others."""
    for number, (stage, count) in enumerate(zip(stages, counts, strict=True)):
        last = stage.last
        for free in range(1, last):
            yield _SlotKind(number, free, 1)
        yield _SlotKind(number, last, count - last + 1)


def _costs(stages: Solved, move: int) -> tuple[Ints, Ints | None]:
    """Return phi for each kind of slot and length; with tapes also the same with P instead of Q."""
    longest, count = stages[0].longest, sum(stage.last for stage in stages)
    costs = np.zeros((count, longest + 1), np.int64)
    tapes = any(stage.space.takes_tapes for stage in stages)
    left_over = np.zeros_like(costs) if tapes else None
    moved, kind = move * np.arange(1, longest + 1), 0
    for stage in stages:
        space = stage.space
        for free, (unstored, stored) in enumerate(stage.values()):
            if free == 0:
                continue
            costs[kind, 1:] = moved + int(space.write + space.read) + stored[1:]
            if space.takes_tapes:
                costs[kind, 1] = min(costs[kind, 1], int(space.tape))
            if left_over is not None:
                left_over[kind, 1:] = moved + unstored[1:]
            kind += 1
    return costs, left_over


def _first(
    stages: Solved, kinds: Sequence[_SlotKind], slots: SlotKinds, taken: Taken, move: int
) -> Iterator[Segment]:
    """Yield the segments in the order of the chain: those that need more free slots come first."""
    segments = list[Segment]()
    for row, (kind, lengths) in enumerate(zip(kinds, taken, strict=True)):
        space = stages[kind.stage].space
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
