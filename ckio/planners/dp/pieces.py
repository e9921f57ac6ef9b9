"""The recurrence on one level for long chains; each layer is stored as straight pieces.

The module needs numba. Costs are whole numbers here (`ckio.planners.dp.whole`), so that every
comparison is exact, and l = n - 1 is the length. f is the number of the free space on the level
(`spaces`), f' the number after a tape is stored, f" the number after a restart checkpoint is
stored, and `lower` is P without the level. For each f,

    low_f(l) = min(lower(l), tape + P_f'(l - 1))
    Q_f(l) = min(low_f(l), min_{1<=j<=l} j u + P_f"(l - j) + r + Q_f(j - 1))
    P_f(l) = min(low_f(l), w + Q_f(l))

and `ckio.planners.dp.convolution` solves the second line.

Each layer equals the one before up to some length, which grows with the free space. If P_f' and
P_f" equal those of the layer before on [0, s], so does Q_f on [0, s + 1], because the rest after a
checkpoint is never longer than s. Only the longer part is computed and stored. If s is the whole
length, more free space is of no use. Only the ends of straight pieces are stored, so that their
number determines the memory.

For example, with one slot that costs nothing and u = 1, the least cost of l + 1 steps is
l (l + 1) / 2, because each step is reached from x_0:

    >>> from ckio.planners.dp.spaces import slots_of
    >>> lower = np.array([0, FAR, FAR, FAR, FAR])
    >>> solve(slots_of("RAM", 0, 1, write=0, read=0), lower, move=1).finish.tolist()
    [0, 1, 3, 6, 10]
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ckio.actions import Kind
from ckio.planners.compiled import kernel
from ckio.planners.dp import convolution
from ckio.planners.dp.convolution import Work
from ckio.planners.dp.hulls import Ints, append
from ckio.planners.dp.spaces import Numbers, Space
from ckio.planners.dp.tables import FAR
from ckio.planners.dp.walk import LOWER, StoreDecision


class Pieces(NamedTuple):
    """A function of the lengths x[0] to x[-1], with values v at x, and straight in between."""

    x: Ints
    v: Ints

    def at(self, length: int) -> int:
        """Return the value at one length."""
        right = int(self.x.searchsorted(length))
        if self.x[right] == length:
            return int(self.v[right])
        rise, run = self.v[right] - self.v[right - 1], self.x[right] - self.x[right - 1]
        return int(self.v[right] - rise // run * (self.x[right] - length))

    def values(self, begin: int, end: int) -> Ints:
        """Return the values at the lengths from `begin` to before `end`."""
        values = np.empty(end - begin, np.int64)
        _fill(self, begin, values)
        return values


class Layer(NamedTuple):
    """P_f and Q_f for the lengths at which they differ from the layer before.

    Attributes
    ----------
    start : int
        Up to this length, both equal those of the layer before.
    fresh, stored : Pieces
        P_f and Q_f from `start`.
    splits : int array
        The best i = j - 1 at each end of Q_f's pieces, -1 for low_f. In between it is a hint.
    """

    start: int
    fresh: Pieces
    stored: Pieces
    splits: Ints


@dataclass(frozen=True)
class Layers:
    """The solution of the recurrence on a level; a stage of `walk`.

    Attributes
    ----------
    space : Space
        The level, with costs in whole units.
    lower : int64 array (l)
        P without the level for each length; FAR if there is no schedule.
    move : int
        The cost to go forward over one step.
    layers : tuple of Layer
        The layers by number of the free space; the last one is for all greater numbers.
    sweeps : bool
        Whether a sweep may go to the last step without storing another checkpoint.
    """

    space: Space
    lower: Ints
    move: int
    layers: tuple[Layer, ...]
    sweeps: bool = True

    @property
    def spaces(self) -> tuple[Space, ...]:
        return (self.space,)

    @property
    def empty(self) -> int:
        return self.space.empty

    @property
    def after_restart(self) -> tuple[Numbers, ...]:
        return (self.space.after_restart,)

    @property
    def after_tape(self) -> tuple[Numbers, ...]:
        return (self.space.after_tape,)

    @property
    def last(self) -> int:
        """The number f of the last layer."""
        return len(self.layers) - 1

    @cached_property
    def _starts(self) -> Ints:
        return np.array([layer.start for layer in self.layers])

    @cached_property
    def finish(self) -> Ints:
        """P if nothing is stored, for each length."""
        *_, (fresh, _) = self.values()
        return fresh

    def values(self) -> Iterator[tuple[Ints, Ints]]:
        """Yield P_f and Q_f of each layer for all lengths.

        The next values overwrite both arrays.
        """
        size = len(self.lower)
        fresh, stored = np.empty(size, np.int64), np.empty(size, np.int64)
        for layer in self.layers:
            begin = max(0, layer.start)
            fresh[begin:] = layer.fresh.values(begin, size)
            stored[begin:] = layer.stored.values(begin, size)
            yield fresh, stored

    def least_free(self, length: int, free: int, /) -> int:
        """Return the least f with which `length` steps take no longer."""
        return self._number(length - 1, free)

    def _number(self, last: int, free: int) -> int:
        """Return the number of the layer that stores P_f and Q_f at a length."""
        below = self._starts[: free + 1] < last
        return len(below) - 1 - int(below[::-1].argmax())

    def _layer(self, last: int, free: int) -> Layer:
        return self.layers[self._number(last, free)]

    def _fresh(self, last: int, free: int) -> int:
        return self._layer(last, free).fresh.at(last)

    def fresh(self, length: int, free: int, /) -> StoreDecision:
        """Return the decision about x_0 in the register only; of equal costs, a tape."""
        cost = self._fresh(length - 1, free)
        if cost == self.lower[length - 1]:
            return LOWER
        return StoreDecision(
            Kind.TAPE if cost == self._taped(length - 1, free) else Kind.RESTART, 0
        )

    def stored(self, length: int, free: int, _: int, /) -> int:
        """Return how far to advance from x_0, which is stored; 0 to discard it."""
        last = length - 1
        layer = self._layer(last, free)
        cost = layer.stored.at(last)
        if cost in (self.lower[last], self._taped(last, free)):
            return 0
        after, rest = int(self.space.after_restart[free]), cost - self.move - int(self.space.read)
        for i in _hints(layer, last):
            left = self._fresh(last - 1 - i, after) + self._layer(i, free).stored.at(i)
            if rest == i * self.move + left:
                return i + 1
        shorter = np.arange(last if self.sweeps else last - 1)
        sums = shorter * self.move + self._row(free, last, stored=True)[: len(shorter)]
        sums += self._row(after, last, stored=False)[::-1][: len(shorter)]
        return int(sums.argmin()) + 1

    def _row(self, free: int, end: int, *, stored: bool) -> Ints:
        """Return P_f or Q_f at the lengths before `end`."""
        values = np.empty(end, np.int64)
        for layer in reversed(self.layers[: free + 1]):
            begin = max(0, layer.start)
            if begin < end:
                pieces = layer.stored if stored else layer.fresh
                values[begin:end] = pieces.values(begin, end)
                end = begin
        return values

    def _taped(self, last: int, free: int) -> int:
        after = int(self.space.after_tape[free])
        return FAR if after < 0 or not last else int(self.space.tape) + self._fresh(last - 1, after)


def _hints(layer: Layer, length: int) -> Iterator[int]:
    """Yield the i of both ends of the piece at a length, unchanged or shifted with the length."""
    right = int(layer.stored.x.searchsorted(length))
    for end in (right, max(0, right - 1)):
        split = int(layer.splits[end])
        for i in (split + length - int(layer.stored.x[end]), split):
            if split >= 0 and 0 <= i < length:
                yield i


def solve(space: Space, lower: Ints, /, *, move: int, sweeps: bool = True) -> Layers:
    """Solve the recurrence up to the length of `lower`, which is at least 1.

    If not `sweeps`, j ends at l - 1. A level that never fills must have `sweeps`.
    """
    layers = _endless(space, lower, move) if space.endless else _layers(space, lower, move, sweeps)
    return Layers(space, lower, move, tuple(layers), sweeps)


def in_order(
    order: Sequence[Space], lower: Ints, /, *, move: int, repaired: bool = True
) -> tuple[Layers, ...]:
    """Solve the levels one after the other; if not `repaired`, only the first has `sweeps`."""
    stages: list[Layers] = []
    for space in order:
        stages.append(solve(space, lower, move=move, sweeps=repaired or not stages))
        lower = stages[-1].finish
    return tuple(stages)


def _layers(space: Space, lower: Ints, move: int, sweeps: bool) -> Iterator[Layer]:
    """Yield the layers in the order of free space, until more is of no use."""
    longest, write, tape_cost = len(lower) - 1, int(space.write), int(min(space.tape, FAR))
    work = convolution.work(lower.copy(), advance=move, read=int(space.read), sweeps=sweeps)
    reach = max(1, space.reach)
    before = deque[Ints](maxlen=reach)  # P_f of the last layers, latest first
    start, useless = -1, 0
    for free in range(space.empty + 1):
        restart, tape = int(space.after_restart[free]), int(space.after_tape[free])
        low = lower
        if tape >= 0:
            low = lower.copy()
            np.minimum(low[1:], tape_cost + before[free - 1 - tape][:-1], out=low[1:])
        if restart < 0:
            fresh, pieces = low, pieces_of(low)
            yield Layer(-1, pieces, pieces, np.full(len(pieces.x), -1))
        else:
            inner, is_first = before[free - 1 - restart], space.after_restart[free - 1] < 0
            # With slots of one size, lengths that were equal in the layer before stay equal.
            begin = max(0, start) if reach == 1 else 0
            equal = 0 if is_first else min(longest, _equal(work, inner, low, begin))
            start = -1 if is_first else equal
            work.inner.y[equal:], work.low[equal:] = inner[equal:], low[equal:]
            _follow(work, max(1, equal))
            convolution.solve(work, equal + 1)
            fresh = before[0].copy()
            np.minimum(low[equal:], write + work.least[equal:], out=fresh[equal:])
            fresh[0] = lower[0]
            yield _layer(work, start, fresh)
        same = bool(before) and np.array_equal(before[0][max(0, start) :], fresh[max(0, start) :])
        useless = useless + 1 if same else 0
        if useless == reach:  # all next layers depend on equal ones, and are equal, too
            return
        before.appendleft(fresh)


class _Endless(NamedTuple):
    """One layer of a level that some kind of checkpoint never fills, and its functions.

    `taped` and `inner`, which are P_f' and P_f", may be `fresh`, which is P_f.
    """

    lower: Ints
    taped: Ints
    inner: Ints
    fresh: Ints
    stored: Ints
    again: Ints
    split: Ints


def _endless(space: Space, lower: Ints, move: int) -> Iterator[Layer]:
    """Yield the layers, some of which depend on themselves, so that every split is tried."""
    nowhere, fresh = np.full(len(lower), FAR), list[Ints]()
    for taped, inner in zip(space.after_tape, space.after_restart, strict=True):
        fresh.append(lower.copy())
        known = [*fresh, nowhere]  # index -1 means that the checkpoint does not fit
        stored, again, split = lower.copy(), lower.copy(), np.full(len(lower), -1)
        layer = _Endless(lower, known[taped], known[inner], fresh[-1], stored, again, split)
        costs = int(space.write), int(space.read), int(min(space.tape, FAR))
        _solve_endless(layer, move, *costs)
        pieces = pieces_of(stored)
        yield Layer(-1, pieces_of(fresh[-1]), pieces, split[pieces.x])


@kernel
def _solve_endless(layer: _Endless, move: int, write: int, read: int, tape: int) -> None:
    lower, taped, inner, fresh, stored, again, split = layer
    again[0] = stored[0] + move + read
    for length in range(1, len(lower)):
        low = min(lower[length], tape + taped[length - 1])
        least, best = low, -1
        for i in range(length):
            value = inner[length - 1 - i] + again[i]
            if value < least:
                least, best = value, i
        stored[length], split[length] = least, best
        again[length] = least + (length + 1) * move + read
        fresh[length] = min(low, write + least)


def _equal(work: Work, inner: Ints, low: Ints, begin: int) -> int:
    """Return the length up to which F equals that of the layer before; it does up to `begin`."""
    inners = np.flatnonzero(inner[begin:] != work.inner.y[begin:])
    lows = np.flatnonzero(low[begin:] != work.low[begin:])
    first = begin + int(inners[0]) if inners.size else len(low)
    return min(first, begin + int(lows[0]) - 1 if lows.size else len(low))


@kernel
def _follow(work: Work, begin: int) -> None:
    """Find the straight pieces of `inner` again, from the length `begin`."""
    for at in range(begin, len(work.low)):
        append(work.inner, 1, at, work.inner.y[at])


def _layer(work: Work, start: int, fresh: Ints) -> Layer:
    begin, longest = max(0, start), len(work.low) - 1
    x = np.empty(_ends(work.again.since, begin, longest, np.empty(0, np.int64)), np.int64)
    _ends(work.again.since, begin, longest, x)
    return Layer(start, pieces_of(fresh, begin), Pieces(x, work.least[x]), work.split[x])


@kernel
def _ends(since: Ints, begin: int, end: int, x: Ints) -> int:
    """Return the number of ends of straight pieces from `begin` to `end`, inclusive.

    The ends are written to `x`, the last one at its end, as many as fit.
    """
    count, at = 0, end
    while True:
        count += 1
        if count <= len(x):
            x[len(x) - count] = at
        if at == begin:
            return count
        at = max(begin, since[at])


@kernel
def _fill(pieces: Pieces, first: int, values: Ints) -> None:
    x, v = pieces
    place, slope = 0, 0
    while place + 2 < len(x) and first > x[place + 1]:
        place += 1
    if place + 1 < len(x):
        slope = (v[place + 1] - v[place]) // (x[place + 1] - x[place])
    for length in range(first, first + len(values)):
        if place + 2 < len(x) and length > x[place + 1]:
            place += 1
            slope = (v[place + 1] - v[place]) // (x[place + 1] - x[place])
        values[length - first] = v[place] + slope * (length - x[place])


def pieces_of(values: Ints, begin: int = 0, /) -> Pieces:
    """Return the pieces of a function that is known at all lengths, from the length `begin`."""
    values = values[begin:]
    bends = np.flatnonzero(np.diff(values, 2)) + 1
    x = np.concatenate(([0], bends, [len(values) - 1])) if len(values) > 1 else np.zeros(1, int)
    return Pieces(x + begin, values[x])


def warm_up() -> None:
    """Call each kernel once."""
    lower = np.array([0, *[FAR] * 8])
    after = np.arange(-1, 3)
    space = Space("warm", 0, 1, 1, 9, after, after, exact=True, slots=3)
    list(solve(space, lower, move=1).values())
    solve(
        replace(space, after_restart=np.zeros(1, int), after_tape=np.zeros(1, int)), lower, move=1
    )
