"""H-Revolve's tables for chains of some thousand steps: one numpy row for each free slot.

The recurrence is that of `ckio.planners.hrevolve`. For one length, all layers of a level follow
from shorter lengths, so they are computed together; time is O(l^2) for each slot worth its cost.
Layers are kept, up to so many bytes: who asks about many machines asks for most of them again.
"""

import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from hashlib import blake2b
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ckio.planners.base import Room
from ckio.planners.draft import Draft

_Numbers = NDArray[Any]
"""Seconds, or whole units of them."""

_BLOCK = 16
"""Layers computed together: enough to hide numpy's cost per call, few enough to stop early."""

_FAR = 1 << 30
"""In place of infinity, for whole numbers."""

_MOST_BYTES: Final = 1 << 26
"""Of layers that are kept: those of some hundred levels for chains of 1000 steps."""


@dataclass(frozen=True)
class Table:
    """The decisions on one level, by the slots that are free and the length l.

    Row c - 1 is for c free slots; the last row is also for all greater c.

    Attributes
    ----------
    slots : int
        Of the level.
    writes : bool array (rows, l)
        Whether x_0, in the register only, is written here; if not, it goes to a nearer level.
    splits : int32 array (rows, l)
        The j up to which x_0, stored here, is advanced; 0 gives x_0 to a nearer level.
    fresh : array (l)
        H_k, with all slots free.
    """

    slots: int
    writes: NDArray[np.bool_]
    splits: NDArray[np.int32]
    fresh: _Numbers

    def row(self, free: int) -> int:
        """The row for `free` slots."""
        return min(free, len(self.writes)) - 1


@dataclass(frozen=True)
class Tables:
    """The levels of an order, nearest first, solved for all lengths up to `length`."""

    length: int
    levels: tuple[Table, ...]

    @property
    def least(self) -> float:
        """H_K(l), with all slots of all levels free; infinite if numbers were too large for it."""
        return float(self.levels[-1].fresh[-1])


def solve_layers(length: int, order: Sequence[Room], advance: float, *, repaired: bool) -> Tables:
    """The tables of an order of levels, up to a length of at least 1.

    If not `repaired`, j stops at l - 1 beyond the first level. Costs that are whole, with sums
    below `_FAR`, are added in 32 bits, which takes half the time of 64.
    """
    small = _are_whole(order, advance) and _sums(length, order, advance) < _FAR // 2
    below = np.full(length + 1, _FAR, np.int32) if small else np.full(length + 1, np.inf)
    below[0] = 0
    levels: list[Table] = []
    with np.errstate(over="ignore"):
        for room in order:
            # On the first level the print also takes j = l, then l - 1, and so on down to 0, as a
            # choice of its own; and nothing else that begins with j = l is cheaper there.
            recurrence = _Recurrence(room, below, advance, full_sweeps=repaired or not levels)
            levels.append(recurrence.table())
            below = levels[-1].fresh
    return Tables(length, tuple(levels))


def _are_whole(order: Sequence[Room], advance: float) -> bool:
    costs = [advance, *(cost for room in order for cost in (room.write, room.read))]
    return all(isinstance(cost, int) for cost in costs)


def _sums(length: int, order: Sequence[Room], advance: float) -> float:
    """More than any sum that the recurrence considers."""
    access = max(room.write + room.read for room in order)
    return (length + 2) * ((length + 2) * advance + 2 * access)


@dataclass(frozen=True)
class _Layers:
    """H_k,c for consecutive c, a row each, with the decisions that lead to it."""

    fresh: _Numbers
    writes: NDArray[np.bool_]
    splits: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.fresh)

    def first(self, count: int) -> "_Layers":
        """The first of them, without a copy."""
        return _Layers(self.fresh[:count], self.writes[:count], self.splits[:count])

    def held(self) -> int:
        """Their bytes; from here on nobody can change them."""
        arrays = [getattr(self, field.name) for field in fields(self)]
        for array in arrays:
            array.flags.writeable = False
        return sum(array.nbytes for array in arrays)


class Kept:
    """Layers by what they are a function of: those that were asked for last, in so many bytes."""

    def __init__(self, most: int, /) -> None:
        self._most, self.nbytes = most, 0
        self._layers: OrderedDict[Hashable, tuple[_Layers, int]] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, asked: Hashable, count: int, /) -> _Layers | None:
        """So many layers, if they are here."""
        with self._lock:
            found, _ = self._layers.get(asked, (None, 0))
            if found is None or len(found) < count:
                return None
            self._layers.move_to_end(asked)
            return found.first(count)

    def put(self, asked: Hashable, layers: _Layers, /) -> None:
        """Keep these, if there is room, instead of what was not asked for longest."""
        if (nbytes := layers.held()) > self._most:
            return
        with self._lock:
            _, less = self._layers.pop(asked, (None, 0))
            self._layers[asked] = layers, nbytes
            self.nbytes += nbytes - less
            while self.nbytes > self._most:
                _, (_, less) = self._layers.popitem(last=False)
                self.nbytes -= less


_KEPT: Final = Kept(_MOST_BYTES)


@dataclass(frozen=True)
class _Recurrence:
    """The recurrence on one level: `below` is H_{k-1}, for lengths 0 to l."""

    room: Room
    below: _Numbers
    advance: float
    full_sweeps: bool

    def table(self) -> Table:
        """The decisions for every number of free slots."""
        slots = self.room.slots
        if slots > _BLOCK:
            endless = self.known(None, None, 1)
            if _slots_taken(endless) <= slots:
                return Table(slots, endless.writes, endless.splits, endless.fresh[0])
        blocks: list[_Layers] = []
        outer, missing, settled = self.below, slots, False
        while missing and not settled:
            first = slots - missing
            block, settled = self.until_settled(first, outer, min(missing, _BLOCK))
            blocks.append(block)
            outer, missing = block.fresh[-1], missing - len(block)
        writes = np.concatenate([block.writes for block in blocks])
        splits = np.concatenate([block.splits for block in blocks])
        return Table(slots, writes, splits, outer)

    @cached_property
    def _function(self) -> Hashable:
        """All that its layers are a function of; `below`, which is long, by its digest."""
        costs = self.room.write, self.room.read, self.advance
        below = blake2b(self.below.tobytes(), digest_size=32).digest()
        return *costs, self.full_sweeps, self.below.dtype.char, below

    def known(self, first: int | None, outer: _Numbers | None, count: int) -> _Layers:
        """`layers`, after the `first` of them or without end, which are computed once."""
        asked = self._function, first
        if (found := _KEPT.find(asked, count)) is None:
            found = self.layers(outer, count)
            _KEPT.put(asked, found)
        return found

    def until_settled(self, first: int, outer: _Numbers, count: int) -> tuple[_Layers, bool]:
        """At most `count` layers, up to the first that equals the one before, if there is one.

        Each layer is a function of the one before alone, so equal ones repeat for ever.
        """
        block = self.known(first, outer, count)
        before = np.vstack((outer, block.fresh[:-1]))
        same = np.flatnonzero((block.fresh == before).all(axis=1))
        if not same.size:
            return block, False
        return block.first(int(same[0]) + 1), True

    def layers(self, outer: _Numbers | None, count: int) -> _Layers:
        """The `count` layers after `outer` = H_k,c-1; for None, the one for slots without end."""
        advance, write, read = self.advance, self.room.write, self.room.read
        below, longest, numbers = self.below, len(self.below) - 1, self.below.dtype
        fresh = np.zeros((count, longest + 1), numbers)  # H_k,c(l)
        stored = np.zeros((count, longest + 1), numbers)  # Hbar_k,c(l)
        splits = np.zeros((count, longest + 1), np.int32)
        # The two terms of the inner minimum, so that the candidates for l are a slice of each:
        inner = np.zeros((count, longest + 1), numbers)  # H_k,c-1(i) at column longest - i
        again = np.zeros((count, longest + 1), numbers)  # (i + 1) u_f + r_k + Hbar_k,c(i)
        again[:, 0] = advance + read
        if outer is None:
            waiting = inner  # the rows of `inner` that these layers feed: their own,
        else:
            waiting = inner[1:]  # or the next one's
            inner[0] = outer[::-1]
        rows, space = np.arange(count), np.empty(count * longest, numbers)
        for length in range(1, longest + 1):
            low = best = below[length]
            if most := length if self.full_sweeps else length - 1:
                begin = longest - length + 1
                candidates = space[: count * most].reshape(count, most)
                np.add(inner[:, begin : begin + most], again[:, :most], out=candidates)
                i = candidates.argmin(axis=1)
                found = candidates[rows, i]
                splits[:, length] = (i + 1) * (found < low)
                best = np.minimum(found, low)
            stored[:, length] = best
            again[:, length] = best + ((length + 1) * advance + read)
            fresh[:, length] = np.minimum(write + best, low)
            waiting[:, longest - length] = fresh[: len(waiting), length]
        return _Layers(fresh, write + stored < below, splits)


def _slots_taken(endless: _Layers) -> int:
    """The most slots in use at once, whatever the length, on a level with slots without end."""
    writes, splits = endless.writes[0].tolist(), endless.splits[0].tolist()
    fresh, stored = [0], [1]  # by length: for x_0 in the register only, and stored
    for length in range(1, len(writes)):
        j = splits[length]
        stored.append(max(1 + fresh[length - j], stored[j - 1]) if j else 1)
        fresh.append(stored[length] if writes[length] else 0)
    return max(fresh)


def draft_of(tables: Tables, numbers: Sequence[int], /) -> Draft:
    """The actions that the decisions describe; `numbers` are the levels' on the platform."""
    draft = Draft()
    levels, slots = tables.levels, [0, *(level.slots for level in tables.levels)]
    # What is left to do, next last: (k, free, length, at, stored) is H_k,free(length) for the chain
    # from x_at on; or, where x_at is `stored` on level k, to read it from there and Hbar_k,free.
    # As in the equation, k counts from 1.
    todo = [(len(levels), slots[-1], tables.length, 0, False)]
    while todo:
        k, free, length, at, stored = todo.pop()
        if stored:
            draft.read(at, level=numbers[k - 1])
        while k:
            table, number = levels[k - 1], numbers[k - 1]
            row = table.row(free)
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
