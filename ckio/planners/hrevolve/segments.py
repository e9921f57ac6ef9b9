"""H-Revolve for long chains: nearly all segments are alike, so short tables plan them all.

The first sweep cuts a chain into segments, one for each checkpoint. How many steps each slot begins
is a small integer program (`group`, where the theorem is), exact for any length with what `tails`
proves of segments longer than any table: H_K need be tabulated up to the length of a segment or
two, not up to that of the chain. "8733 segments of 101 steps and 1266 of 51" then is a plan of a
million steps; `tiles` writes its actions.

A chain is L + 1 steps long here, as in `ckio.planners.hrevolve`, and levels count from 1.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import comb
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ckio.planners import compiled
from ckio.planners.hrevolve.group import Ints, Price, Slots, optimum, price
from ckio.planners.hrevolve.short import ShortTable, ShortTables, solve_short
from ckio.planners.hrevolve.tails import longest_worthwhile

if TYPE_CHECKING:
    from ckio.planners.hrevolve.runs import LevelTable, Tables

_SHORTEST = 256
"""Length of the first table: a few milliseconds."""

_PART_OF_CHAIN = 2
"""Tables are tried that are together no longer than half of the chain: failure costs little."""

_MOST_CELLS = 1 << 26
"""Numbers in all tables together: half a gigabyte."""

_QUICK = 1000
"""Length of tables that take less in numpy than it takes to load what is compiled."""

_MOST_WITHOUT_NUMBA = 4096
"""Length of tables in numpy: a few seconds."""

_GROUPS = (1, 2, 4, 8, 16, 32)
"""Where no plan fits into the smallest group, larger ones are tried."""


class Part(NamedTuple):
    """Segments of `steps` each, one after the other; as many as `copies` says.

    Each begins with a checkpoint on `level` and is reversed with `free` slots of it, its own among
    them, and with all slots of the levels before it.
    """

    level: int
    free: int
    steps: int
    copies: int


@dataclass(frozen=True)
class Segments:
    """An optimal plan for a chain of `length` + 1 steps, with its proof.

    Attributes
    ----------
    length : int
        Steps before the last one, which is reversed first.
    parts : tuple of Part
        In the order of the chain: the last level's first, and of each level the longest first
        among those that need as many slots.
    least : int
        H_K(length), in the unit of the costs.
    price : Price
        kappa / g, at which the bound (2) of `ckio.planners.hrevolve.group` is this.
    worthwhile : int
        Steps of the longest segment that the bound has to consider.
    tables : Tables or ShortTables
        What each segment is reversed by.
    """

    length: int
    parts: tuple[Part, ...]
    least: int
    price: Price
    worthwhile: int
    tables: "Tables | ShortTables" = field(compare=False, repr=False)

    def __str__(self) -> str:
        levels = []
        for level, parts in groupby(self.parts, key=lambda part: part.level):
            alike = [f"{part.copies} of {part.steps}" for part in parts]
            shown = alike if len(alike) < 5 else [*alike[:3], "..."]
            levels.append(f"{', '.join(shown)} steps on level {level}")
        return "segments: " + "; ".join(levels)


def plan(
    length: int,
    slots: Sequence[int],
    write: Sequence[int],
    read: Sequence[int],
    advance: int,
    *,
    shortest: int = _SHORTEST,
) -> Segments | None:
    """An optimal plan; None where the general algorithm is as fast, or the only one.

    Parameters
    ----------
    length : int
        Of the chain, without the last step.
    slots, write, read : sequence of int
        By level, in their order. Costs, and `advance`, are whole multiples of one unit.
    shortest : int
        Length of the first table. It changes how soon a plan is found, and which of equally good
        ones, never what it costs.

    >>> print(plan(10**6, [50, 1000, 10**4], [1, 20, 100], [1, 20, 100], 20).parts[:3])
    (Part(level=3, free=1, steps=101, copies=8733), Part(level=3, free=1, steps=76, copies=1), \
Part(level=3, free=1, steps=51, copies=1266))
    """
    left = length // _PART_OF_CHAIN
    longest = max(shortest, _first_guess(length, sum(slots)))
    while longest <= left and (longest <= _MOST_WITHOUT_NUMBA or compiled.available()):
        tables = _solve(longest, slots, write, read, advance)
        if longest * sum(len(level.layers) for level in tables.levels) > _MOST_CELLS:
            return None
        found = extended(tables, length)
        if not isinstance(found, int):
            return found
        left -= longest
        longest = min(2 * longest, max(found, longest + longest // 2))
    return None


def _solve(
    length: int, slots: Sequence[int], write: Sequence[int], read: Sequence[int], advance: int
) -> "Tables | ShortTables":
    if length <= _QUICK or not compiled.available():
        return solve_short(length, slots, write, read, advance)
    compiled.prepare()
    from ckio.planners.hrevolve.runs import solve_runs

    return solve_runs(length, slots, write, read, advance)


def _first_guess(length: int, slots: int) -> int:
    """Of the length of tables that are needed: a quarter more than if levels cost nothing.

    Then segments of up to beta(s, r - 2) steps are worthwhile if the chain needs r repetitions; see
    `ckio.planners.binomial`.
    """
    r = 1
    while comb(slots + r, r) < length:
        r += 1
    return 5 * sum(comb(slots + q, q) for q in (r - 3, r - 2) if q >= 0) // 4


def extended(tables: "Tables | ShortTables", length: int, /) -> Segments | int | None:
    """A plan for a longer chain than the tables are for.

    Or, if longer tables may give one, their length; None if they would not.
    """
    kinds = list(_kinds(tables))
    slots = Slots([kind.copies for kind in kinds], _costs(tables, len(kinds)))
    start = price(slots, length)
    if start is None:
        return 2 * tables.length
    for factor in _GROUPS:
        priced = start.times(factor)
        worthwhile, needed = longest_worthwhile(slots, priced, tables.advance)
        if needed > slots.longest:
            return needed
        if taken := optimum(slots, length, priced, worthwhile):
            used = (
                kind._replace(free=_needed(slots, kinds, row, steps), steps=steps, copies=copies)
                for row, (kind, lengths) in enumerate(zip(kinds, taken, strict=True))
                for steps, copies in lengths.items()
                if steps and copies
            )
            parts = tuple(_in_order(used))
            return Segments(length, parts, slots.cost(taken), priced, worthwhile, tables)
    return None


def _kinds(tables: "Tables | ShortTables") -> Iterator[Part]:
    """The slots of each level, by how many are free; from the last layer on, all are alike."""
    levels: Sequence[LevelTable | ShortTable] = tables.levels
    for k, level in enumerate(levels, 1):
        layers = len(level.layers)
        for free in range(1, layers):
            yield Part(k, free, 0, 1)
        yield Part(k, layers, 0, level.slots - layers + 1)


def _costs(tables: "Tables | ShortTables", kinds: int) -> Ints:
    """phi, for each kind of slot and length."""
    costs = np.zeros((kinds, tables.length + 2), np.int64)
    moved = tables.advance * np.arange(1, tables.length + 2)
    rows = iter(costs[:, 1:])
    for level in tables.levels:
        for _, stored in level.windows(0, tables.length + 1):
            np.add(stored, moved + (level.write + level.read), out=next(rows))
    return costs


def _needed(slots: Slots, kinds: Sequence[Part], row: int, steps: int) -> int:
    """The fewest free slots with which a segment costs as much as with those of this kind."""
    first = row - kinds[row].free + 1
    costs = slots.costs[first : row + 1, steps]
    return int(np.argmax(costs == costs[-1])) + 1


def _in_order(parts: Iterator[Part]) -> Iterator[Part]:
    """Parts that need the same are one; what needs more slots comes first, while they are free."""

    def place(part: Part) -> tuple[int, int, int]:
        return -part.level, -part.free, -part.steps

    for _, alike in groupby(sorted(parts, key=place), key=place):
        first, *others = alike
        yield first._replace(copies=first.copies + sum(part.copies for part in others))
