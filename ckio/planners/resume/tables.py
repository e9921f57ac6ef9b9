"""The seconds to reverse equal steps, by their number and by the free space on the levels.

P(n, F) and n u + r_k + Q(n, F, k) of `mixed` are solved once, on all levels together, for every
combination F of free space that kept checkpoints may leave. For a long chain they are solved for
each length up to 256 steps, and then for lengths that increase by a 32nd each. Lengths in between
are interpolated linearly, which is precise enough to choose the checkpoints to keep. When the next
length is solved, the lengths just below it are not known, so that no part shorter than the gap
between two lengths is split off.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from ckio.errors import NoSchedule
from ckio.planners.base import without_notes
from ckio.planners.dp import joint
from ckio.planners.dp.spaces import Numbers, Space, slots_of
from ckio.planners.dp.spaces import spaces as usable
from ckio.platform import Platform
from ckio.platform.chain import Chain

Seconds = NDArray[np.float64]

_MOST_COMPARED, _MOST_NUMBERS = 2e7, 1 << 26
"""The most sums that are compared for the tables (about 0.1 s), and the most numbers in them."""

_SHORT, _TRIED = 256, 64
"""For a longer chain, all lengths up to the first number are solved, and all parts up to the
second are tried."""

_MOST_COLUMNS, _MOST_SUMS = 768, (1 << 14, 128)
"""The most combinations of free space; the most values on one level, without and with tapes."""

_FEWEST = 14
"""The levels that are slower to read are reduced to this many slots before nearer ones are."""

FOREVER = 1e300
"""A number of seconds used instead of infinity, which cannot be interpolated."""


def spaces(chain: Chain, platform: Platform, /, *, held: int, new_tapes: bool) -> list[Space]:
    """Return the free space of each level that can store a checkpoint, new or kept.

    Only some slots of a level with very many slots are counted. A write to a read-only level takes
    infinitely long, and kept checkpoints do not fill it.
    """
    read_only = [
        slots_of(level.name, number, 0, write=FOREVER, read=level.read(chain.restart), endless=True)
        for number, level in enumerate(platform.levels)
        if level.read_only
    ]
    counted = chain if new_tapes else replace(chain, tape=chain.restart)
    with without_notes(), suppress(NoSchedule):
        given = usable(
            counted.with_steps(chain.length + 1), platform, held=held, most=_MOST_SUMS[new_tapes]
        )
        if not new_tapes:
            never = [np.full_like(space.after_tape, -1) for space in given]
            given = [
                replace(s, tape=np.inf, after_tape=a) for s, a in zip(given, never, strict=True)
            ]
        while prod(space.empty + 1 for space in given) > _MOST_COLUMNS:
            largest = max(given, key=lambda it: (it.empty > _FEWEST and it.read, it.empty))
            size = largest.empty - largest.empty // 16
            restarts, tapes = largest.after_restart[:size], largest.after_tape[:size]
            fewer = replace(largest, after_restart=restarts, after_tape=tapes)
            given[given.index(largest)] = fewer
        return given + read_only
    return read_only


class ResumeTables:
    """P and Q by length (rows) and free space (columns; the last means "does not fit").

    Attributes
    ----------
    move, held : float, int
        u, and the steps whose tapes the register holds at a time.
    seconds : float64 array
        P.
    again : list of float64 arrays
        n u + r_k + Q by level.
    after_restart : tuple of arrays of int
        By level, the column after a restart checkpoint is stored there.
    every : bool
        Whether the tables have every length.
    """

    def __init__(
        self,
        given: Sequence[Space],
        steps: int,
        /,
        *,
        move: float,
        held: int,
    ) -> None:
        self.spaces, self.move, self.held = tuple(given), move, held
        columns = len(given) * max(8, prod(space.empty + 1 for space in given))
        quick = steps**2 * columns / 2 <= _MOST_COMPARED and steps * 3 * columns <= _MOST_NUMBERS
        short = steps if quick else min(steps, max(_SHORT, 2 * held))
        self.every = short == steps
        self.lengths = _growing(short, steps, part=32)
        tried = np.searchsorted(self.lengths, _growing(min(_TRIED, steps), steps, part=16))
        self._tried = np.unique(tried)[1:]
        nearer = np.where(np.arange(short + 1) <= held, 0.0, np.inf)
        solved = joint.solve(given, nearer, move=move)
        self.after_restart, self._after_tape = solved.after_restart, solved.after_tape
        self.seconds = self._longer(solved.unstored.T)
        self._inner = [self._longer(self._left(solved, after)) for after in self.after_restart]
        self.again = [self._longer(each.T) for each in solved.again]
        self.empty = solved.empty
        for row in range(short + 1, len(self.lengths)):
            self._last = row - 1  # the last row that is known
            self._solve(row)
        self._last = len(self.lengths) - 1

    @staticmethod
    def _left(solved: joint.JointTable, after: Numbers) -> Seconds:
        """Return P if one more checkpoint is stored."""
        rows = np.append(after, -1)
        left: Seconds = solved.unstored[rows].T
        return left

    def _longer(self, known: Seconds) -> Seconds:
        rows = np.full((len(self.lengths) - len(known), known.shape[1]), FOREVER)
        return np.vstack((np.minimum(known, FOREVER), rows))

    def slots(self, place: int, /) -> int:
        """Return how many restart checkpoints fit on a level in these tables."""
        if not (room := self.empty):
            return 0
        after, count = self.after_restart[place], 0
        while (then := int(after[room])) not in (-1, room):
            room, count = then, count + 1
        return count

    # The values for lengths between the rows

    def between(self, values: Seconds, lengths: Numbers, columns: Numbers, /) -> Seconds:
        """Return the values at any lengths, for one column each, or a row of columns for each."""
        if self._last == self.lengths[-1]:
            exact: Seconds = values[lengths, columns]
            return exact
        after = np.minimum(np.searchsorted(self.lengths, lengths), self._last)
        before = np.maximum(after - 1, 0)
        gap = np.maximum(self.lengths[after] - self.lengths[before], 1)
        high = values[after, columns]
        between: Seconds = high + (self.lengths[after] - lengths) / gap * (
            values[before, columns] - high
        )
        return between

    def stored_seconds(self, place: int, lengths: Numbers, columns: Numbers, /) -> Seconds:
        """Return r + Q for lengths and columns."""
        again = self.between(self.again[place], lengths, columns)
        seconds: Seconds = again - lengths * self.move
        return seconds

    # The recurrence for one length

    def _solve(self, row: int) -> None:
        n, every = int(self.lengths[row]), np.arange(self.empty + 1)
        places = range(len(self.spaces))
        sweeps = [self._sweep(place, n, every) for place in places]
        least = np.full(len(every), FOREVER)
        for place, space in enumerate(self.spaces):
            np.minimum(least, space.write + sweeps[place], out=least)
            np.minimum(least, self._taped(place, n, every), out=least)
        self.seconds[row, :-1] = least
        for place, space in enumerate(self.spaces):
            self._inner[place][row, :-1] = self.seconds[row, self.after_restart[place]]
            again = n * self.move + space.read + np.minimum(sweeps[place], least)
            self.again[place][row, :-1] = np.minimum(again, FOREVER)

    def _sweep(self, place: int, n: int, columns: Numbers) -> Seconds:
        """Return Q0: the seconds if x_0 is stored and the next action is to advance from it."""
        rows = self._tried[: np.searchsorted(self.lengths[self._tried], n)]
        parts, inner, again = self.lengths[rows], self._inner[place], self.again[place]
        short = int(np.searchsorted(parts, n - self.lengths[self._last]))
        large, rest = rows[short:, None], n - parts[short:, None]
        ways = (
            self.between(inner, rest, columns) + again[large, columns],
            inner[large, columns] + self.between(again, rest, columns),
        )
        least: Seconds = np.vstack(ways).min(axis=0, initial=FOREVER)
        return least

    def _taped(self, place: int, n: int, columns: Numbers) -> Seconds:
        """Return P if the tape of the first step is written, and of more up to a known length."""
        cost, after = self.spaces[place].tape, columns
        if cost == np.inf:
            return np.full(len(columns), FOREVER)
        many = max(1, n - int(self.lengths[self._last]))
        for _ in range(many):
            after = np.append(self._after_tape[place], -1)[after]
        rest = self.between(self.seconds, np.array([n - many]), after)
        return np.minimum(many * cost + rest, FOREVER)


def _growing(first: int, steps: int, *, part: int) -> Numbers:
    """Return lengths 0 to `first`, then each larger than the one before by 1 / `part`."""
    lengths = list(range(min(first, steps) + 1))
    while lengths[-1] < steps:
        lengths.append(min(steps, lengths[-1] + max(1, lengths[-1] // part)))
    return np.array(lengths, np.intp)
