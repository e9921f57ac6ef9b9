"""Hierarchical plans of `mixed` for long chains: nearly all segments are alike.

Where a restart checkpoint and a tape take the same room on each level, or a level never fills, the
first sweep cuts a chain into one segment for each slot, as that of H-Revolve does, and H_K(L) is
(1) of `ckio.planners.hrevolve.group`; only that a segment of one step may be a tape:

    phi_k,m(d) = d u + w_k + r_k + Q_k,m(d - 1),   phi_k,m(1) <= w'_k + r'_k,

with L = n - h, because P does not fall with n and the last h steps cost nothing. So tables up to
the length of a segment or two plan the whole chain, with a proof.

What `ckio.planners.hrevolve.tails` proves of long segments holds with one more case: Q and P of
length l may be a tape and P' of l - 1, with less room. With P among the functions that the tables
are looked through for, each claim for P' at l - 1 is part of the induction, and gives the same for
l: as both thresholds Y and X are at least g >= 1, l - 1 is beyond them where l is beyond 2 Y or X +
Y.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ckio.actions import Kind
from ckio.planners.hrevolve import runs
from ckio.planners.hrevolve.group import Ints, Slots, Taken, optimum, price
from ckio.planners.hrevolve.tails import longest_worthwhile
from ckio.planners.mixed.runs import Layers
from ckio.planners.mixed.space import Space
from ckio.planners.mixed.walk import Segment

_SHORTEST = 256
"""Length of the first tables: a few milliseconds."""

_PART_OF_CHAIN = 2
"""Tables are tried that are together no longer than half of the chain: failure costs little."""

_MOST_CELLS = 1 << 25
"""Numbers in all tables together: a quarter of a gigabyte."""

_GROUPS = (1, 2, 4, 8, 16, 32)
"""Where no plan fits into the smallest group, larger ones are tried."""

Solve = Callable[[Sequence[Space], int], tuple[Layers, ...]]
"""The stages of levels in an order, for lengths up to a greatest one."""


class Found(NamedTuple):
    """A plan for the whole chain: its first sweep, what it costs, and how segments are reversed."""

    first: tuple[Segment, ...]
    cost: int
    stages: tuple[Layers, ...]


class _Slot(NamedTuple):
    """Slots of a level that are alike: so many, with `free` of them free, their own included."""

    stage: int
    free: int
    copies: int


def plan(order: Sequence[Space], length: int, held: int, solve: Solve, /) -> Found | None:
    """An optimal hierarchical plan for n = `length` steps; None where layers have to find it.

    The working memory holds the tapes of `held` steps.
    """
    counts = [space.slots for space in order]
    if not all(counts):
        return None
    left, longest = length // _PART_OF_CHAIN, max(_SHORTEST, 2 * held)
    while longest <= left:
        used = [
            _in_slots(space, min(count, longest))
            for space, count in zip(order, counts, strict=True)
        ]
        stages = solve(used, longest)
        found = _extended(stages, counts, length - held)
        if not isinstance(found, int):
            return found
        left -= longest
        longest = min(2 * longest, max(found, longest + longest // 2))
    return None


def _in_turn(count: int) -> Ints:
    return np.arange(-1, count)


def _in_slots(space: Space, count: int) -> Space:
    return replace(space, after_restart=_in_turn(count), after_tape=_in_turn(count))


def _extended(stages: tuple[Layers, ...], counts: Sequence[int], steps: int) -> Found | int | None:
    """A plan of so many steps; or the length of tables that may give one; None if none would."""
    kinds = list(_kinds(stages, counts))
    longest = len(stages[0].level.lower) - 1
    if 2 * len(kinds) * longest > _MOST_CELLS:
        return None
    move = stages[0].level.move
    known = Slots([kind.copies for kind in kinds], _costs(stages, len(kinds)))
    everything = Slots((), np.concatenate((known.costs, _left_over(stages, len(kinds)))))
    start = price(known, steps)
    if start is None:
        return 2 * longest
    for factor in _GROUPS:
        priced = start.times(factor)
        worthwhile, needed = longest_worthwhile(everything, priced, move)
        if needed > known.longest:
            return needed
        if taken := optimum(known, steps, priced, worthwhile):
            return Found(tuple(_first(stages, kinds, taken)), known.cost(taken), stages)
    return None


def _kinds(stages: Sequence[Layers], counts: Sequence[int]) -> Iterator[_Slot]:
    """The slots of each level, by how many are free; from the last layer on, all are alike."""
    for stage, (solved, count) in enumerate(zip(stages, counts, strict=True)):
        last = len(solved.layers) - 1
        for free in range(1, last):
            yield _Slot(stage, free, 1)
        yield _Slot(stage, last, count - last + 1)


def _costs(stages: Sequence[Layers], kinds: int) -> Ints:
    """phi, for each kind of slot and length."""
    longest = len(stages[0].level.lower)
    costs = np.zeros((kinds, longest + 1), np.int64)
    rows = iter(costs)
    for stage in stages:
        level = stage.level
        moved = level.move * np.arange(1, longest + 1) + (level.write + level.read)
        for layer, row in zip(stage.layers[1:], rows, strict=False):
            row[1:] = moved + runs.values(layer.stored)
            row[1] = min(row[1], level.tape)
    return costs


def _left_over(stages: Sequence[Layers], kinds: int) -> Ints:
    """P in the place of Q, for `longest_worthwhile`."""
    longest = len(stages[0].level.lower)
    costs = np.zeros((kinds, longest + 1), np.int64)
    moved = stages[0].level.move * np.arange(1, longest + 1)
    layers = (layer for stage in stages for layer in stage.layers[1:])
    for layer, row in zip(layers, costs, strict=True):
        row[1:] = moved + runs.values(layer.fresh)
    return costs


def _first(stages: Sequence[Layers], kinds: Sequence[_Slot], taken: Taken) -> Iterator[Segment]:
    """The segments in the order of the chain: what counts on more free slots comes first."""
    pairs = zip(kinds, taken, strict=True)
    for kind, lengths in sorted(pairs, key=lambda pair: pair[0][:2], reverse=True):
        level = stages[kind.stage].level
        for steps, copies in sorted(lengths.items(), reverse=True):
            taped = steps == 1 and level.tape <= level.move + level.write + level.read
            if steps and copies:
                how = Kind.TAPE if taped else Kind.RESTART
                yield Segment(how, kind.stage, kind.free, steps, copies)
