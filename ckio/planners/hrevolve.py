"""H-Revolve: the schedule of least makespan on K storage levels, by dynamic programming.

The chain has n = l + 1 steps (l is `length` below). What every schedule pays for its n Records and
n Reverses is left out, so that it cannot influence the plan. u_f is `Chain.advance`; w_k and r_k
are the seconds to write (and later discard) and to read x_0 on level k, c of whose slots are free:

    H_0(0) = 0,  H_0(l) = inf              x_0 in the register, and no level to put it on
    H_k,c(l) = min(H_{k-1}(l), w_k + Hbar_k,c(l))             x_0 in the register only
    Hbar_k,c(l) = min(H_{k-1}(l),                             x_0 also in one of c slots of level k
                      min_{1<=j<=l} j u_f + H_k,c-1(l-j) + r_k + Hbar_k,c(j-1))
    H_k,0 = H_{k-1},  H_k = H_k,c_k        with all c_k slots of level k

Levels count from 1 here. This is Theorem 2 of Herrmann and Pallez, "H-Revolve", ACM TOMS 2020, with
one repair: beyond the first level they let j run to l - 1 only, and j = l, to go to the end with
nothing stored on the way and come back to level k, is needed where reading x_0 from k costs less
than first moving it nearer. With it, exhaustive search has found nothing better in many thousand
small cases: strong evidence, not a proof. Time is O(l^2) for each slot worth its cost.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from ckio.chain import Chain
from ckio.errors import BadInput
from ckio.planners.base import Room, log, rooms, tapes
from ckio.planners.draft import Draft
from ckio.platforms import Platform
from ckio.schedule import Schedule

_Seconds = NDArray[np.float64]

_BLOCK = 16
"""Layers computed together: enough to hide numpy's cost per call, few enough to stop early."""

_MOST_ORDERS = 24
"""Orders of the levels that are tried: all those of four levels."""


def hrevolve(chain: Chain, platform: Platform, /) -> Schedule:
    """The least-makespan schedule of restart checkpoints on all levels of a platform.

    Where the levels' costs cross (one is quicker to write and slower to read than another), the
    recurrence is solved for every order that puts a level before those it beats in both (24 orders
    at most), and the cheapest is taken; the log says which. Raises NoSchedule where n > 1 and no
    level holds a checkpoint.
    """
    return _schedule(chain, platform, "hrevolve", repaired=True)


def hrevolve_2020(chain: Chain, platform: Platform, /) -> Schedule:
    """Theorem 2 as it is printed: beyond the first level, j stops at l - 1.

    Kept to show the difference from `hrevolve`, which is never slower.
    """
    return _schedule(chain, platform, "hrevolve-2020", repaired=False)


def _schedule(chain: Chain, platform: Platform, planner: str, *, repaired: bool) -> Schedule:
    tapes(chain, platform)
    plan = solve(chain, platform, planner=planner, repaired=repaired)
    return _draft(plan.tables, steps=chain.length).schedule(chain)


@dataclass(frozen=True)
class Table:
    """The decisions on one level, by the slots that are free and the length l.

    Row c - 1 is for c free slots; the last row is also for all greater c.

    Attributes
    ----------
    room : Room
        The level.
    writes : bool array (rows, l)
        Whether x_0, in the register only, is written here; if not, it goes to a nearer level.
    splits : int32 array (rows, l)
        The j up to which x_0, stored here, is advanced; 0 gives x_0 to a nearer level.
    seconds : float64 array (l)
        H_k, with all slots free.
    """

    room: Room
    writes: NDArray[np.bool_]
    splits: NDArray[np.int32]
    seconds: _Seconds

    def row(self, free: int) -> int:
        """The row for `free` slots."""
        return min(free, len(self.writes)) - 1


@dataclass(frozen=True)
class Plan:
    """Solved tables, nearest level first, and the makespan that they promise, in seconds."""

    tables: tuple[Table, ...]
    seconds: float


def solve(chain: Chain, platform: Platform, /, *, planner: str, repaired: bool) -> Plan:
    """The cheapest plan over the orders of the levels."""
    given = rooms(chain, platform, planner=planner) if chain.length > 1 else []
    fixed = chain.length * (chain.record + chain.reverse)
    if not given:
        return Plan((), fixed)
    with np.errstate(over="ignore"):
        solved = [
            _tables(order, length=chain.length - 1, advance=chain.advance, repaired=repaired)
            for order in islice(orders(given), _MOST_ORDERS)
        ]
    best = min(solved, key=lambda tables: tables[-1].seconds[-1])
    if not np.isfinite(best[-1].seconds[-1]):
        raise BadInput(f"{planner}: the costs are too large to be added up; give them in seconds")
    names = [platform.levels[table.room.number].name for table in best]
    log.info("%s: levels in the order %s, of %d tried", planner, ", ".join(names), len(solved))
    return Plan(best, float(best[-1].seconds[-1]) + fixed)


def orders(given: Sequence[Room], /) -> Iterator[tuple[Room, ...]]:
    """Every order in which no level comes after one that it equals or beats in both costs."""
    # A level that beats another in both has the smaller sum, so it can only stand before it here.
    by_sum = sorted(given, key=lambda room: (room.write + room.read, room.write))
    if not by_sum:
        yield ()
    for place, first in enumerate(by_sum):
        if not any(
            earlier.write <= first.write and earlier.read <= first.read
            for earlier in by_sum[:place]
        ):
            for others in orders(by_sum[:place] + by_sum[place + 1 :]):
                yield first, *others


def _tables(
    order: Sequence[Room], *, length: int, advance: float, repaired: bool
) -> tuple[Table, ...]:
    below = np.full(length + 1, np.inf)
    below[0] = 0.0
    tables: list[Table] = []
    for room in order:
        # On the first level the print also takes j = l, then l - 1, and so on down to 0, as a
        # choice of its own; and nothing else that begins with j = l is cheaper there.
        recurrence = _Recurrence(room, below, advance, full_sweeps=repaired or not tables)
        tables.append(recurrence.table())
        below = tables[-1].seconds
    return tuple(tables)


@dataclass(frozen=True)
class _Layers:
    """H_k,c for consecutive c, a row each, with the decisions that lead to it."""

    seconds: _Seconds
    writes: NDArray[np.bool_]
    splits: NDArray[np.int32]


@dataclass(frozen=True)
class _Recurrence:
    """The recurrence on one level: `below` is H_{k-1}, for lengths 0 to l."""

    room: Room
    below: _Seconds
    advance: float
    full_sweeps: bool

    def table(self) -> Table:
        """The decisions for every number of free slots."""
        if self.room.slots > _BLOCK:
            endless = self.layers(None, 1)
            if _slots_taken(endless) <= self.room.slots:
                return Table(self.room, endless.writes, endless.splits, endless.seconds[0])
        blocks: list[_Layers] = []
        outer, missing, settled = self.below, self.room.slots, False
        while missing and not settled:
            block, settled = self.until_settled(outer, min(missing, _BLOCK))
            blocks.append(block)
            outer, missing = block.seconds[-1], missing - len(block.seconds)
        writes = np.concatenate([block.writes for block in blocks])
        splits = np.concatenate([block.splits for block in blocks])
        return Table(self.room, writes, splits, outer)

    def until_settled(self, outer: _Seconds, count: int) -> tuple[_Layers, bool]:
        """At most `count` layers, up to the first that equals the one before, if there is one.

        Each layer is a function of the one before alone, so equal ones repeat for ever.
        """
        block = self.layers(outer, count)
        before = np.vstack((outer, block.seconds[:-1]))
        same = np.flatnonzero((block.seconds == before).all(axis=1))
        if not same.size:
            return block, False
        kept = slice(same[0] + 1)
        return _Layers(block.seconds[kept], block.writes[kept], block.splits[kept]), True

    def layers(self, outer: _Seconds | None, count: int) -> _Layers:
        """The `count` layers after `outer` = H_k,c-1; for None, the one for slots without end."""
        advance, write, read = self.advance, self.room.write, self.room.read
        below, longest = self.below, len(self.below) - 1
        seconds = np.zeros((count, longest + 1))  # H_k,c(l)
        stored = np.zeros((count, longest + 1))  # Hbar_k,c(l)
        splits = np.zeros((count, longest + 1), np.int32)
        # The two terms of the inner minimum, so that the candidates for l are a slice of each:
        inner = np.zeros((count, longest + 1))  # H_k,c-1(i) at column longest - i
        again = np.zeros((count, longest + 1))  # (i + 1) u_f + r_k + Hbar_k,c(i), i = j - 1
        again[:, 0] = advance + read
        if outer is None:
            waiting = inner  # the rows of `inner` that these layers feed: their own,
        else:
            waiting = inner[1:]  # or the next one's
            inner[0] = outer[::-1]
        rows = np.arange(count)
        for length in range(1, longest + 1):
            low, best = below[length], np.full(count, below[length])
            if most := length if self.full_sweeps else length - 1:
                begin = longest - length + 1
                candidates = inner[:, begin : begin + most] + again[:, :most]
                j = candidates.argmin(axis=1)
                best = candidates[rows, j]
                splits[:, length] = np.where(best < low, j + 1, 0)
            stored[:, length] = best = np.minimum(best, low)
            again[:, length] = best + ((length + 1) * advance + read)
            seconds[:, length] = best = np.minimum(write + best, low)
            waiting[:, longest - length] = best[: len(waiting)]
        return _Layers(seconds, write + stored < below, splits)


def _slots_taken(endless: _Layers) -> int:
    """The most slots in use at once, whatever the length, on a level with slots without end."""
    writes, splits = endless.writes[0].tolist(), endless.splits[0].tolist()
    fresh, stored = [0], [1]  # by length: for x_0 in the register only, and stored
    for length in range(1, len(writes)):
        j = splits[length]
        stored.append(max(1 + fresh[length - j], stored[j - 1]) if j else 1)
        fresh.append(stored[length] if writes[length] else 0)
    return max(fresh)


def _draft(tables: Sequence[Table], *, steps: int) -> Draft:
    """The schedule that the decisions describe; k counts from 1, as in the equation."""
    draft = Draft()
    slots = [0, *(table.room.slots for table in tables)]
    # What is left to do, next last: (k, free, length, at, stored) is H_k,free(length) for the chain
    # from x_at on; or, where x_at is `stored` on level k, to read it from there and Hbar_k,free.
    todo = [(len(tables), slots[-1], steps - 1, 0, False)]
    while todo:
        k, free, length, at, stored = todo.pop()
        if stored:
            draft.read(at, level=tables[k - 1].room.number)
        while k:
            table = tables[k - 1]
            row, number = table.row(free), table.room.number
            if not stored and free and table.writes[row, length]:
                draft.write(at, level=number)
                stored = True
            elif stored and (j := int(table.splits[row, length])):
                draft.advance(at, at + j)
                todo.append((k, free, j - 1, at, True))
                free, length, at, stored = free - 1, length - j, at + j, False
            else:
                if stored:
                    draft.discard(at, level=number)
                k, free, stored = k - 1, slots[k - 1], False
        draft.step_back(at)
    return draft
