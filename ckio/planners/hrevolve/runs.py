"""H-Revolve's tables for long chains: a layer as its straight pieces. Needs numba.

Costs are whole numbers here (`ckio.planners.integers`), so that every comparison is exact. A layer
is Hbar_k,m for all lengths, m slots of level k being free; see `ckio.planners.hrevolve` for the
recurrence, and `ckio.planners.hrevolve.convolution` for how one layer comes from the one before.

Layers agree with the one before up to some length, ever longer with more slots: where H_k,m is
H_k,m-1 on [0, s], Hbar_k,m+1 is Hbar_k,m on [0, s + 1], because nothing longer than s is ever left
to the slots that remain. Only what is longer is computed and kept; where s is the whole length,
more slots are of no use. What is kept are the ends of straight pieces: memory is their number.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ckio.planners.compiled import kernel
from ckio.planners.hrevolve import convolution
from ckio.planners.hrevolve.convolution import Work
from ckio.planners.hrevolve.hulls import Ints, append

FAR = 1 << 60
"""For what cannot be chosen. Two of them can be added, and real values are less."""


class Runs(NamedTuple):
    """A whole function of the lengths x[0] to x[-1]: v there, and straight in between."""

    x: Ints
    v: Ints


@dataclass(frozen=True)
class Layer:
    """What one more slot changes.

    Attributes
    ----------
    start : int
        Up to here, it is equal to the layer before.
    stored : Runs
        Its values from `start` on.
    splits : int64 array
        The i = j - 1 taken at each of the runs' ends; -1 where x_0 goes to a nearer level. In
        between, it is a hint only.
    """

    start: int
    stored: Runs
    splits: Ints


@dataclass(frozen=True)
class LevelTable:
    """One level of an order: H_{k-1} `below` it, its layers for 1, 2, ... free slots, and H_k.

    The last layer is also for all greater numbers of slots.
    """

    slots: int
    write: int
    read: int
    below: Runs
    layers: tuple[Layer, ...]
    fresh: Runs

    def stored(self, free: int, begin: int, end: int) -> Ints:
        """Hbar_k,free at the lengths from `begin` to before `end`."""
        found = np.empty(end - begin, np.int64)
        for layer in reversed(self.layers[:free]):
            if layer.start < end:
                first = max(begin, layer.start)
                found[first - begin : end - begin] = values(layer.stored, first, end)
                end = first
        return found

    def windows(self, begin: int, end: int) -> Iterator[tuple[int, Ints]]:
        """(start, Hbar_k,m at the lengths from `begin` to before `end`), for m = 1, 2, ...

        The array is one and the same, overwritten from one layer to the next.
        """
        found = np.empty(end - begin, np.int64)
        for layer in self.layers:
            first = max(begin, layer.start)
            if first < end:
                found[first - begin :] = values(layer.stored, first, end)
            yield layer.start, found


@dataclass(frozen=True)
class Tables:
    """The levels of an order, nearest first, solved for all lengths up to `length`."""

    length: int
    advance: int
    levels: tuple[LevelTable, ...]

    @property
    def least(self) -> int:
        """H_K(length), with all slots of all levels free."""
        return self.value(self.length)

    def value(self, length: int) -> int:
        """H_K at another length."""
        return int(values(self.levels[-1].fresh, length, length + 1)[0])

    @cached_property
    def flat(self) -> "Flat":
        """All layers in a few arrays."""
        return _flat(self)


class Flat(NamedTuple):
    """All layers one after the other; `unroll` looks decisions up here.

    Layer n has its runs' ends at positions ends[n] to ends[n + 1]; level k has layers first[k - 1]
    to first[k]; and below[k - 1] to below[k] are the positions of H_{k-1} in `below_x`, `below_v`.
    `slots` has a 0 in front, for no level; `write` and `read` have not.
    """

    advance: int
    slots: Ints
    x: Ints
    v: Ints
    split: Ints
    start: Ints
    ends: Ints
    first: Ints
    below_x: Ints
    below_v: Ints
    below: Ints
    write: Ints
    read: Ints


def _flat(tables: Tables) -> Flat:
    levels = tables.levels
    layers = [layer for level in levels for layer in level.layers]
    return Flat(
        advance=tables.advance,
        slots=np.array([0, *(level.slots for level in levels)], np.int64),
        x=np.concatenate([layer.stored.x for layer in layers]),
        v=np.concatenate([layer.stored.v for layer in layers]),
        split=np.concatenate([layer.splits for layer in layers]),
        start=np.array([layer.start for layer in layers], np.int64),
        ends=_offsets([len(layer.splits) for layer in layers]),
        first=_offsets([len(level.layers) for level in levels]),
        below_x=np.concatenate([level.below.x for level in levels]),
        below_v=np.concatenate([level.below.v for level in levels]),
        below=_offsets([len(level.below.x) for level in levels]),
        write=np.array([level.write for level in levels], np.int64),
        read=np.array([level.read for level in levels], np.int64),
    )


def _offsets(counts: Sequence[int]) -> Ints:
    return np.cumsum([0, *counts], dtype=np.int64)


def solve_runs(
    length: int,
    slots: Sequence[int],
    write: Sequence[int],
    read: Sequence[int],
    advance: int,
    *,
    repaired: bool = True,
) -> Tables:
    """The tables of an order of levels, up to a length of at least 1.

    `slots`, `write` and `read` are by level. If not `repaired`, j stops at l - 1 beyond the first
    level. All sums must stay below FAR (`ckio.planners.integers` sees to it).
    """
    below = np.full(length + 1, FAR)
    below[0] = 0
    levels: list[LevelTable] = []
    for held, w, r in zip(slots, write, read, strict=True):
        work = convolution.work(below, advance=advance, read=r, sweeps=repaired or not levels)
        layers = tuple(_layers(work, held, w))
        levels.append(LevelTable(held, w, r, runs_of(below), layers, runs_of(work.inner.y)))
        below = work.inner.y
        del work  # it is large
    return Tables(length, advance, tuple(levels))


def _layers(work: Work, slots: int, write: int) -> Iterator[Layer]:
    """At most as many layers as there are slots; leaves H_k in `work.inner`."""
    equal, longest = 0, len(work.low) - 1
    for _ in range(slots):
        convolution.solve(work, equal + 1)
        yield _layer(work, equal)
        equal = _one_slot_more(work, write, equal)
        if equal > longest:
            break


@kernel
def _one_slot_more(work: Work, write: int, equal: int) -> int:
    """Make `inner` H_k,m of the layer m that was solved; the first length where that changes it.

    The layer is equal to the one before up to `equal`.
    """
    changed = len(work.low)
    for at in range(len(work.low) - 1, equal, -1):
        value = min(work.low[at], write + work.least[at])
        if value != work.inner.y[at]:
            work.inner.y[at] = value
            changed = at
    for at in range(max(1, changed), len(work.low)):
        append(work.inner, 1, at, work.inner.y[at])
    return changed


def _layer(work: Work, start: int) -> Layer:
    longest = len(work.low) - 1
    x = np.empty(_ends(work.again.since, start, longest, np.empty(0, np.int64)), np.int64)
    _ends(work.again.since, start, longest, x)
    return Layer(start, Runs(x, work.least[x]), work.split[x])


@kernel
def _ends(since: Ints, begin: int, end: int, found: Ints) -> int:
    """How many ends of straight pieces there are from `begin` to `end`, both of them included.

    They are put into `found`, from its end on, as far as there is room.
    """
    count, at = 0, end
    while True:
        count += 1
        if count <= len(found):
            found[len(found) - count] = at
        if at == begin:
            return count
        at = max(begin, since[at])


def layer(
    low: Runs,
    inner: Runs,
    /,
    *,
    advance: int,
    read: int,
    before: Runs | None = None,
    equal: int = 0,
) -> Layer:
    """One layer of a recurrence of any kind.

        F(0) = low(0)
        F(l) = min(low(l), min_{1<=j<=l} j u_f + inner(l - j) + r + F(j - 1))

    Parameters
    ----------
    low, inner : Runs
        Up to the same length; `low` from length 0 on. Where `inner` is from 1 on, j <= l - 1.
    advance, read : int
        u_f and r.
    before, equal
        F is known to be `before` on [0, equal]: where another layer has the same `low` up to
        there, and the same `inner` up to there but one.
    """
    known = values(low)
    sweeps = bool(inner.x[0] == 0)
    left = values(inner) if sweeps else np.concatenate(([FAR], values(inner)))
    work = convolution.work(known, left, advance=advance, read=read, sweeps=sweeps)
    if before is not None:
        work.least[: equal + 1] = values(before, 0, equal + 1)
        _settle(work, equal)
    convolution.solve(work, equal + 1)
    return _layer(work, equal)


@kernel
def _settle(work: Work, equal: int) -> None:
    for length in range(equal + 1):
        convolution.settle(work, length)


def joined(before: Runs | None, layer: Layer) -> Runs:
    """A whole layer, from the one before it and what it changes."""
    if before is None or layer.start == 0:
        return layer.stored
    kept = before.x < layer.start
    return Runs(
        np.concatenate((before.x[kept], layer.stored.x)),
        np.concatenate((before.v[kept], layer.stored.v)),
    )


def values(runs: Runs, begin: int | None = None, end: int | None = None, /) -> Ints:
    """The values at the lengths from `begin` to before `end`; everywhere if not given."""
    first = int(runs.x[0]) if begin is None else begin
    found = np.empty((int(runs.x[-1]) + 1 if end is None else end) - first, np.int64)
    _fill(runs, first, found)
    return found


@kernel
def _fill(runs: Runs, first: int, found: Ints) -> None:
    x, v = runs
    place, slope = 0, 0
    while place + 2 < len(x) and first > x[place + 1]:
        place += 1
    if place + 1 < len(x):
        slope = (v[place + 1] - v[place]) // (x[place + 1] - x[place])
    for length in range(first, first + len(found)):
        if place + 2 < len(x) and length > x[place + 1]:
            place += 1
            slope = (v[place + 1] - v[place]) // (x[place + 1] - x[place])
        found[length - first] = v[place] + slope * (length - x[place])


def runs_of(values: Ints, first: int = 0, /) -> Runs:
    """The runs of a function with these values at the lengths `first`, `first` + 1, and so on."""
    bends = np.flatnonzero(np.diff(values, 2)) + 1
    x = np.concatenate(([0], bends, [len(values) - 1])) if len(values) > 1 else np.zeros(1, int)
    return Runs(x + first, values[x])


def minimum(one: Runs, other: Runs, /) -> Runs:
    """The lesser of two functions, at the lengths that both have."""
    begin = int(max(one.x[0], other.x[0]))
    end = int(min(one.x[-1], other.x[-1])) + 1
    return runs_of(np.minimum(values(one, begin, end), values(other, begin, end)), begin)


def plus(runs: Runs, constant: int, /) -> Runs:
    """The function, greater by a constant."""
    return Runs(runs.x, runs.v + constant)


def shift(runs: Runs, by: int, /) -> Runs:
    """The function of l that has the value at l - `by`."""
    return Runs(runs.x + by, runs.v)


def part(runs: Runs, begin: int, end: int, /) -> Runs:
    """The function at the lengths from `begin` to before `end` only."""
    return runs_of(values(runs, begin, end), begin)


def agree(one: Runs, other: Runs, /) -> int:
    """Up to which length two functions are equal, from the first one that both have.

    One less than that where not even there.
    """
    begin = int(max(one.x[0], other.x[0]))
    end = int(min(one.x[-1], other.x[-1])) + 1
    differ = np.flatnonzero(values(one, begin, end) != values(other, begin, end))
    return (begin + int(differ[0]) if differ.size else end) - 1


def warm_up() -> None:
    """Call each kernel once."""
    tables = solve_runs(9, (1, 2), (1, 2), (1, 2), 1)
    fresh = tables.levels[0].fresh
    layer(fresh, fresh, advance=1, read=1, before=fresh, equal=1)
