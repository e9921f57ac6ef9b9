"""The recurrence of `mixed` for chains too long for it: solved for some lengths, read off between.

All lengths up to `short` are solved for exactly. Beyond, P and Q are known for lengths that grow by
a 32nd each, and are taken to be straight in between; so much is enough to choose between splits of
any length into two, and each choice is legal, whatever it was made by. What a schedule of such
choices takes is then known from its actions.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Kind
from ckio.planners.mixed.full import Table, table
from ckio.planners.mixed.space import Numbers, Space
from ckio.planners.mixed.walk import Choice

Seconds = NDArray[np.float64]

SHORT, _TRIED = 512, 96
"""Up to these lengths all are solved for, and all are tried as a part of a longer one."""
_FOREVER = 1e300
"""Instead of infinity, which cannot be interpolated."""


class Sketch:
    """P and Q at some lengths n, for every free room F."""

    def __init__(self, spaces: Sequence[Space], steps: int, *, move: float, held: int) -> None:
        short = min(steps, SHORT)
        lower = np.where(np.arange(short + 1) <= held, 0.0, np.inf)
        self._table: Table = table(spaces, lower, move=move)
        self._move, self._short = move, short
        self.lengths = _lengths(short, steps)
        known = self._table.seconds
        shape = len(self.lengths), known.shape[1]
        self._fresh = np.full(shape, _FOREVER)
        self._all_again = np.full((len(spaces), *shape), _FOREVER)
        self._again = list(self._all_again)
        rows, n = slice(1, short + 1), np.arange(1, short + 1)[:, None]
        self._fresh[rows] = np.minimum(known[1:], _FOREVER)
        for again, terms, space in zip(self._again, self._table.again, spaces, strict=True):
            again[rows] = np.minimum(terms[1:] - n * move - space.read, _FOREVER)
        self._tried = _lengths(_TRIED, steps)[1:]
        self._choices = [Choice(Kind.RESTART, place) for place in range(len(spaces))]
        self._choices += [Choice(Kind.TAPE, k) for k, s in enumerate(spaces) if s.tape < np.inf]
        self._sweep_of = cache(self._one_sweep)
        for row in range(short + 1, len(self.lengths)):
            self._solve(row)

    @property
    def spaces(self) -> Sequence[Space]:
        return self._table.spaces

    @property
    def empty(self) -> int:
        return self._table.empty

    @property
    def after_restart(self) -> Sequence[Numbers]:
        return self._table.after_restart

    @property
    def after_tape(self) -> Sequence[Numbers]:
        return self._table.after_tape

    def seconds(self, length: int, room: int, /) -> float:
        """About what a chain of this length takes, with x_0 in the register."""
        return float(self.fresh_seconds(length, np.array([room]))[0])

    def fresh_seconds(self, length: int, rooms: Numbers, /) -> Seconds:
        """The same for many rooms."""
        between: Seconds = self._between(self._fresh, np.array([length]))[0][rooms]
        return between

    def again(self, lengths: Numbers, rooms: Numbers, places: Numbers, /) -> Seconds:
        """About what chains take whose x_0 is in the register and on the level of a place.

        Each row of `rooms` is for the length and the place of the same number.
        """
        before, after, part = (one[:, None] for one in self._neighbours(lengths))
        low, high = (self._all_again[places[:, None], row, rooms] for row in (before, after))
        between: Seconds = high + part * (low - high)
        return between

    def fresh(self, length: int, free: int, /) -> Choice:
        """What to do with x_0, in the register only."""
        if length <= self._short:
            return self._table.fresh(length, free)
        return min(self._choices, key=lambda choice: self._value(choice, length, free))

    def stored(self, length: int, free: int, place: int, /) -> int:
        """How far to advance from x_0, in the register and on a level; 0 to discard it there."""
        if length <= self._short:
            return self._table.stored(length, free, place)
        seconds, j = self._sweep_of(length, place, free)
        dropped = min(self._value(choice, length, free) for choice in self._choices)
        return 0 if dropped < seconds else j

    def _value(self, choice: Choice, length: int, free: int) -> float:
        if choice.kind is Kind.TAPE:
            return self._taped(length, choice.place, free).item()
        return self.spaces[choice.place].write + self._sweep_of(length, choice.place, free)[0]

    def _one_sweep(self, length: int, place: int, free: int) -> tuple[float, int]:
        seconds, j = self._sweep(length, place, free)
        return seconds.item(), int(j)

    def _solve(self, row: int) -> None:
        length, rooms = int(self.lengths[row]), slice(0, self.empty + 1)
        places, fresh = range(len(self.spaces)), self._fresh[row, rooms]
        sweeps = [self._sweep(length, place, rooms)[0] for place in places]
        for place in places:
            np.minimum(fresh, self.spaces[place].write + sweeps[place], out=fresh)
            np.minimum(fresh, self._taped(length, place, rooms), out=fresh)
        for place in places:
            self._again[place][row, rooms] = np.minimum(sweeps[place], fresh)

    def _sweep(self, length: int, place: int, room: int | slice) -> tuple[Seconds, Numbers]:
        """Q0 for one room or all: the seconds, and how far to advance."""
        below = self._tried[: np.searchsorted(self._tried, length)]
        j = np.concatenate((below, length - below))
        inner = self._fresh[:, self.after_restart[place][room]]
        candidates = self._between(inner, length - j) + self._between(
            self._again[place][:, room], j
        )
        candidates = (candidates.T + j * self._move).T
        best = candidates.argmin(axis=0)
        least = np.take_along_axis(candidates, best[None], axis=0)[0]
        return np.minimum(self.spaces[place].read + least, _FOREVER), j[best]

    def _taped(self, length: int, place: int, room: int | slice) -> Seconds:
        """P where the tape of the first step is written, for one room or all."""
        rest = self._fresh[:, self.after_tape[place][room]]
        seconds = self.spaces[place].tape + self._between(rest, np.array([length - 1]))[0]
        taped: Seconds = np.minimum(seconds, _FOREVER)
        return taped

    def _between(self, values: Seconds, lengths: Numbers) -> Seconds:
        """The values at any lengths, from those at the lengths that are known."""
        before, after, part = self._neighbours(lengths)
        low, high = values[before], values[after]
        between: Seconds = high + part.reshape(-1, *[1] * (values.ndim - 1)) * (low - high)
        return between

    def _neighbours(self, lengths: Numbers) -> tuple[Numbers, Numbers, Seconds]:
        """The rows of the known lengths around these, and how far each is from the second."""
        after = np.searchsorted(self.lengths, lengths)
        before = np.maximum(after - 1, 0)
        gap = np.maximum(self.lengths[after] - self.lengths[before], 1)
        return before, after, (self.lengths[after] - lengths) / gap


def _lengths(short: int, steps: int) -> Numbers:
    """0 to `short`, and then ever fewer, up to the number of steps."""
    lengths = list(range(short + 1))
    while lengths[-1] < steps:
        lengths.append(min(steps, lengths[-1] + lengths[-1] // 32))
    return np.array(lengths, np.intp)
