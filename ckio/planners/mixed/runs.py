"""The recurrence of `mixed` on one level, for long chains: layers as their straight pieces.

Costs are whole numbers here, so that every comparison is exact, and l = n - 1 is the length, as in
`ckio.planners.hrevolve.runs`. For each number f of what is free on the level (`space`), f' for what
a tape leaves of it, f" for what a restart checkpoint leaves, and `lower` for P without the level,

    low_f(l) = min(lower(l), tape + P_f'(l - 1))
    Q_f(l) = min(low_f(l), min_{1<=j<=l} j u + P_f"(l - j) + r + Q_f(j - 1))
    P_f(l) = min(low_f(l), w + Q_f(l))

so that a layer, one f, is one of H-Revolve's with a `low` of its own. Needs numba.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ckio.actions import Kind
from ckio.planners.compiled import kernel
from ckio.planners.hrevolve import runs
from ckio.planners.hrevolve.hulls import Ints
from ckio.planners.hrevolve.runs import FAR, Runs
from ckio.planners.mixed.space import Numbers, Space
from ckio.planners.mixed.walk import LOWER, Choice


@dataclass(frozen=True)
class Level:
    """A level and its costs; `lower` is P without it for each length, FAR where there is none."""

    space: Space
    lower: Ints
    move: int
    write: int
    read: int
    tape: int


@dataclass(frozen=True)
class Layer:
    """P_f and Q_f; `splits` are i = j - 1 at the ends of Q_f's runs, -1 for low_f."""

    fresh: Runs
    stored: Runs
    splits: Ints


@dataclass(frozen=True)
class Layers:
    """The solved recurrence on a level; a stage of choices. The last layer is for all greater f."""

    level: Level
    layers: tuple[Layer, ...]

    @property
    def spaces(self) -> tuple[Space, ...]:
        return (self.level.space,)

    @property
    def empty(self) -> int:
        return self.level.space.empty

    @property
    def after_restart(self) -> tuple[Numbers, ...]:
        return (self.level.space.after_restart,)

    @property
    def after_tape(self) -> tuple[Numbers, ...]:
        return (self.level.space.after_tape,)

    @cached_property
    def finish(self) -> Ints:
        """P where nothing is stored, for each length."""
        return runs.values(self.layers[-1].fresh)

    def fresh(self, length: int, free: int, /) -> Choice:
        """What to do with x_0, in the register only: of equally good things, a tape first."""
        seconds = _at(self._layer(free).fresh, length - 1)
        if seconds == self.level.lower[length - 1]:
            return LOWER
        taped = seconds == self._taped(length - 1, free)
        return Choice(Kind.TAPE if taped else Kind.RESTART, 0)

    def stored(self, length: int, free: int, _: int, /) -> int:
        """How far to advance from x_0, stored; 0 to discard it."""
        layer, last = self._layer(free), length - 1
        seconds = _at(layer.stored, last)
        if seconds in (self.level.lower[last], self._taped(last, free)):
            return 0
        inner = self._layer(int(self.level.space.after_restart[free])).fresh
        rest = seconds - self.level.move - self.level.read
        for i in _hints(layer, last):
            if rest == i * self.level.move + _at(inner, last - 1 - i) + _at(layer.stored, i):
                return i + 1
        shorter = np.arange(last)
        sums = shorter * self.level.move + runs.values(layer.stored, 0, last)
        sums += runs.values(inner, 0, last)[::-1]
        return int(sums.argmin()) + 1

    def _layer(self, free: int) -> Layer:
        return self.layers[min(free, len(self.layers) - 1)]

    def _taped(self, last: int, free: int) -> int:
        after = int(self.level.space.after_tape[free])
        return FAR if after < 0 else self.level.tape + _at(self._layer(after).fresh, last - 1)


def _at(function: Runs, length: int) -> int:
    """The value at one length."""
    x, v = function
    right = int(x.searchsorted(length))
    if x[right] == length:
        return int(v[right])
    slope = (v[right] - v[right - 1]) // (x[right] - x[right - 1])
    return int(v[right] - slope * (x[right] - length))


def _hints(layer: Layer, length: int) -> Iterator[int]:
    """The i that the ends of the run at a length point to, kept or moving along with it."""
    right = int(layer.stored.x.searchsorted(length))
    for end in (right, max(0, right - 1)):
        split = int(layer.splits[end])
        for i in (split + length - int(layer.stored.x[end]), split):
            if split >= 0 and 0 <= i < length:
                yield i


def layers(level: Level, /) -> Layers:
    """Solve the recurrence up to the length of `lower`, of at least 1."""
    space = level.space
    if 0 in (space.after_restart[0], space.after_tape[0]):
        return Layers(level, tuple(_directly(level)))
    return Layers(level, tuple(_one_by_one(level)))


def _directly(level: Level) -> list[Layer]:
    """Layers that may refer to themselves, where storing something leaves all that was free."""
    size, fresh = len(level.lower), list[Ints]()
    solved: list[Layer] = []
    for taped, inner in zip(level.space.after_tape, level.space.after_restart, strict=True):
        values, stored, again = level.lower.copy(), level.lower.copy(), level.lower.copy()
        split, nowhere = np.empty(size, np.int64), np.full(size, FAR)
        known = [*fresh, values, nowhere]  # -1 is nowhere
        _solve_directly(
            _Direct(level.lower, known[taped], known[inner], values, stored, again, split),
            *(level.move, level.write, level.read, level.tape),
        )
        fresh.append(values)
        pieces = runs.runs_of(stored)
        solved.append(Layer(runs.runs_of(values), pieces, split[pieces.x]))
    return solved


class _Direct(NamedTuple):
    """What a layer is made of: `lower`, P_f' and P_f" (which may be `fresh` itself); and it."""

    lower: Ints
    taped: Ints
    inner: Ints
    fresh: Ints
    stored: Ints
    again: Ints
    split: Ints


@kernel
def _solve_directly(made: _Direct, move: int, write: int, read: int, tape: int) -> None:
    """Fill `fresh`, `stored` and `split`, by trying every i."""
    lower, taped, inner, fresh, stored, again, split = made
    split[0], again[0] = -1, stored[0] + move + read
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


def _one_by_one(level: Level) -> list[Layer]:
    """Layers from those with the least room, until more is of no use."""
    space, solving, useless = level.space, _Solving(level), 0
    reach = max(
        int((np.arange(len(after)) - after)[after >= 0].max(initial=0))
        for after in (space.after_restart, space.after_tape)
    )
    for free in range(space.empty + 1):
        useless = useless + 1 if solving.next(free) else 0
        if useless == reach:  # all that the next ones refer to is equal, and so are they
            break
    return solving.layers


class _Solving:
    """The layers so far, and P_f and low_f of the last one in full."""

    def __init__(self, level: Level) -> None:
        self.level = level
        self.layers: list[Layer] = []
        self.fresh = self.low = level.lower

    def next(self, free: int) -> bool:
        """Solve one more; whether its P is that of the layer before."""
        low, fresh = self._low(free), self.fresh
        if self.level.space.after_restart[free] < 0:
            self.fresh = low
            pieces = runs.runs_of(low)
            layer = Layer(pieces, pieces, np.full(len(pieces.x), -1))
        else:
            stored, splits = self._stored(free, low)
            self.fresh = np.minimum(low, self.level.write + runs.values(stored))
            layer = Layer(runs.runs_of(self.fresh), stored, splits)
        self.low = low
        self.layers.append(layer)
        return free > 0 and np.array_equal(fresh, self.fresh)

    def _low(self, free: int) -> Ints:
        level, after = self.level, int(self.level.space.after_tape[free])
        if after < 0:
            return level.lower
        low = level.lower.copy()
        np.minimum(low[1:], level.tape + runs.values(self.layers[after].fresh)[:-1], out=low[1:])
        return low

    def _stored(self, free: int, low: Ints) -> tuple[Runs, Ints]:
        """Q_f, of which as much as possible is taken from the layer before, and its splits."""
        level, after = self.level, self.level.space.after_restart.tolist()
        inner, before, equal = self.layers[after[free]].fresh, None, 0
        if free and after[free - 1] >= 0:
            before = self.layers[-1]
            shorter = runs.agree(inner, self.layers[after[free - 1]].fresh)
            equal = max(0, min(_agree(low, self.low), shorter + 1, len(low) - 1))
        layer = runs.layer(
            runs.runs_of(low),
            inner,
            advance=level.move,
            read=level.read,
            before=before.stored if before else None,
            equal=equal,
        )
        if before is None:
            return layer.stored, layer.splits
        kept = before.stored.x < layer.start
        splits = np.concatenate((before.splits[kept], layer.splits))
        return runs.joined(before.stored, layer), splits


def _agree(one: Ints, other: Ints) -> int:
    """The last length up to which both are equal."""
    differ = np.flatnonzero(one != other)
    return (int(differ[0]) if differ.size else len(one)) - 1


def warm_up() -> None:
    """Call each kernel once."""
    lower, made = np.array([0, FAR]), [np.zeros(2, np.int64) for _ in range(6)]
    _solve_directly(_Direct(lower, *made), 1, 1, 1, 1)
