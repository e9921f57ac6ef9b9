"""The recurrence of `mixed` over what is free on several levels at once, in tables.

F, the room that is free on each level, is one number here: that of a column of the tables, whose
rows are the lengths n. Every combination of sums (`space`) of the levels has a column, and one
more, the last, stands for room that there is not: everything takes infinitely many seconds there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Kind
from ckio.planners.mixed.space import Numbers, Space
from ckio.planners.mixed.walk import LOWER, Choice

Seconds = NDArray[np.float64]


@dataclass(frozen=True)
class Table:
    """The solved recurrence on some levels; a stage of choices.

    Attributes
    ----------
    spaces : tuple of Space
        The levels.
    lower : float64 array (n)
        The seconds of a chain of each length without these levels.
    seconds : float64 array (n, F)
        P(n, F): x_0 in the register only. What every schedule takes to record and reverse each
        step once is left out.
    inner, again : tuples of float64 arrays (n, F), one for each level
        The two terms of the inner minimum: P(n, F - a e_k), and n u + r_k + Q(n, F, k).
    after_restart, after_tape : tuples of arrays of int (F), one for each level
        The columns of F - a e_k and F - b e_k; -1, the last one, where there is no room.
    """

    spaces: tuple[Space, ...]
    lower: Seconds
    seconds: Seconds
    inner: tuple[Seconds, ...]
    again: tuple[Seconds, ...]
    after_restart: tuple[Numbers, ...]
    after_tape: tuple[Numbers, ...]

    @property
    def empty(self) -> int:
        """F where nothing is stored."""
        return int(self.seconds.shape[1]) - 2

    @property
    def finish(self) -> Seconds:
        """P where nothing is stored, for each length."""
        return self.seconds[:, self.empty]

    def fresh(self, length: int, free: int, /) -> Choice:
        """What to do with x_0, in the register only: of equally good things, a tape first."""
        choices = {LOWER: float(self.lower[length])}
        for place, space in enumerate(self.spaces):
            after = self.after_tape[place][free]
            choices[Choice(Kind.TAPE, place)] = space.tape + float(self.seconds[length - 1, after])
        for place, space in enumerate(self.spaces):
            choices[Choice(Kind.RESTART, place)] = space.write + self._sweep(length, free, place)[0]
        return min(choices, key=lambda choice: choices[choice])

    def stored(self, length: int, free: int, place: int, /) -> int:
        """How far to advance from x_0, stored, at most; 0 to discard it."""
        seconds, j = self._sweep(length, free, place)
        return 0 if self.seconds[length, free] < seconds else j

    def _sweep(self, length: int, free: int, place: int) -> tuple[float, int]:
        """Q0: the seconds from x_0, stored and to be advanced from, and how far to advance."""
        inner, again = self.inner[place][:, free], self.again[place][:, free]
        candidates = inner[1:length] + again[length - 1 : 0 : -1]
        best = int(candidates.argmin())
        return float(candidates[best]), length - 1 - best


def columns(spaces: Sequence[Space]) -> int:
    """How many columns a table of these levels has."""
    return 1 + prod(space.empty + 1 for space in spaces)


def table(spaces: Sequence[Space], lower: Seconds, *, move: float) -> Table:
    """Solve the recurrence up to the last length of `lower`; moving takes `move` a step."""
    rows, levels = len(lower), range(len(spaces))
    after_restart, after_tape = _after(spaces)
    seconds, *terms = (np.full((rows, columns(spaces)), np.inf) for _ in range(1 + 2 * len(spaces)))
    inner, again = terms[: len(spaces)], terms[len(spaces) :]
    sums = np.empty_like(seconds)
    for n in range(1, rows):
        row = seconds[n, :-1]
        row[:] = lower[n]
        for k in levels:
            np.minimum(row, spaces[k].tape + seconds[n - 1, after_tape[k]], out=row)
        sweeps = []
        for k in levels:
            candidates = np.add(inner[k][1:n], again[k][n - 1 : 0 : -1], out=sums[1:n])
            sweep = candidates.min(axis=0, initial=np.inf)[:-1]
            np.minimum(row, spaces[k].write + sweep, out=row)
            sweeps.append(sweep)
        for k in levels:
            inner[k][n, :-1] = seconds[n, after_restart[k]]
            again[k][n, :-1] = n * move + spaces[k].read + np.minimum(sweeps[k], row)
    return Table(
        tuple(spaces), lower, seconds, tuple(inner), tuple(again), after_restart, after_tape
    )


def _after(spaces: Sequence[Space]) -> tuple[tuple[Numbers, ...], tuple[Numbers, ...]]:
    """The columns that storing a restart checkpoint, or a tape, on each level leads to."""
    shape = [space.empty + 1 for space in spaces]
    numbers = np.indices(shape).reshape(len(shape), -1)
    here = np.arange(numbers.shape[1])

    def moved(k: int, after: Numbers) -> Numbers:
        to = after[numbers[k]]
        return np.where(to < 0, -1, here + (to - numbers[k]) * prod(shape[k + 1 :]))

    return (
        tuple(moved(k, space.after_restart) for k, space in enumerate(spaces)),
        tuple(moved(k, space.after_tape) for k, space in enumerate(spaces)),
    )
