"""The recurrence of `mixed` for chains too long for it: level by level, at some lengths only.

The levels are taken in an order, each on top of those before it: level k is used with all nearer
levels free but for what is kept there, and no farther one. With u for the numbers of keys that are
kept on the nearer levels, f for what is free on level k and f_k(u) for what u leaves there,

    P_k(n, f, u) = min(P_{k-1}(n, f_{k-1}(u), u), tape_k + P_k(n - 1, f - b, u), w_k + Q_k)

and so on, as in `mixed`, so that there is a column for every f and u of each level instead of one
for every f on all levels together. Where u has many values, fewer are told apart, and what lies
between counts as the next larger one.

All lengths up to `_SHORT` are solved for. Beyond, P and Q are known for lengths that grow by a 32nd
each, and are taken to be straight in between; so much is enough to choose between splits of any
length into two, and each choice is legal, whatever it was made by. What a schedule of such choices
takes is then known from its actions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import accumulate
from operator import mul

import numpy as np

from ckio.actions import Kind
from ckio.planners.dp.spaces import Numbers, Space, orders
from ckio.planners.dp.walk import Decision as Choice
from ckio.planners.stored.rooms import excess, left_by, slots
from ckio.planners.stored.stage import FOREVER, Lengths, Seconds, Stage

_SHORT, _TRIED = 256, 64
"""Up to these lengths all are solved for, and all are tried as a part of a longer one."""

_MOST_COLUMNS = 768
"""Of a sketch; beyond, fewer numbers of kept keys are told apart, and then slots."""

_TOLD, _FEWEST_TOLD = 6, 3
"""So many numbers of keys that are kept on a level are told apart."""

_ONE_SLOT = 1
"""What a level keeps of its room, at least."""


class Sketch:
    """P and Q at some lengths, for what may be free.

    `order` has the places of the levels, nearest first. `kept` is how many keys at most are kept on
    each, and `told` how many numbers of them are told apart. A room is the number of a column.
    """

    def __init__(
        self,
        spaces: Sequence[Space],
        steps: int,
        *,
        order: Sequence[int],
        kept: Sequence[int],
        told: int,
        move: float,
        held: int,
    ) -> None:
        self.spaces, self._order = spaces, order
        self._kept = [_grid(most, told) for most in kept]
        left = [
            np.array([left_by(space, count) for count in counts.tolist()], np.intp)
            for space, counts in zip(spaces, self._kept, strict=True)
        ]
        self._lengths, self._move = Lengths(steps, short=_SHORT, tried=_TRIED), move
        lower = np.where(self._lengths.all <= held, 0.0, FOREVER)[:, None]
        self._stages: list[Stage] = []
        for place in order:
            self._stages.append(Stage(spaces[place], lower, self._lengths, move))
            lower = self._stages[-1].finish(left[place])
        self._set_columns(left)
        self._sweep_of = cache(self._sweep)

    def _set_columns(self, left: Sequence[Numbers]) -> None:
        """All columns in a row, those of nearer levels first, and where each leads."""
        self._begins = np.cumsum([0, *(stage.rooms for stage in self._stages)])
        columns = np.arange(self._begins[-1])
        # By place, the column of that level that is below another; -1 where it is farther away.
        self._at = np.full((len(self.spaces), len(columns)), -1, np.intp)
        for number, place in enumerate(self._order):
            mine = slice(self._begins[number], self._begins[number + 1])
            if number:
                below = self._below(number, left[self._order[number - 1]])
                self._at[:, mine] = self._at[:, below]
            self._at[place, mine] = columns[mine]
        self.after_restart = self._leading([stage.after_restart for stage in self._stages])
        self.after_tape = self._leading([stage.after_tape for stage in self._stages])
        self._fresh = np.hstack([stage.fresh[:, :-1] for stage in self._stages])
        self._again = np.hstack([stage.again[:, :-1] for stage in self._stages])

    def _leading(self, afters: Sequence[Numbers]) -> list[Numbers]:
        """By place, where each column leads, from where it leads on each level; -1 for no room."""
        led = list(self._at)
        for begin, place, after in zip(self._begins[:-1], self._order, afters, strict=True):
            # The last column of a level is for no room, and -1 is made to lead there too.
            to = np.append(np.where(after[:-1] < len(after) - 1, begin + after[:-1], -1), -1)
            led[place] = to[np.where(led[place] < 0, len(to) - 1, led[place] - begin)]
        return led

    def _below(self, number: int, left: Numbers) -> Numbers:
        """For each column of a level, the one of the level before that it is on top of."""
        stage, before = self._stages[number], self._stages[number - 1]
        ways = np.arange(stage.rooms) // (stage.space.empty + 1)
        each = before.space.empty + 1
        below: Numbers = (
            self._begins[number - 1] + ways // len(left) * each + left[ways % len(left)]
        )
        return below

    @property
    def empty(self) -> int:
        """The room where nothing is kept."""
        return self.left([0] * len(self.spaces))

    def left(self, kept: Sequence[int], /) -> int:
        """The room that is left where so many keys are kept on each level."""
        way = 0
        for place in self._order[:-1]:
            counts = self._kept[place]
            way = way * len(counts) + int(np.searchsorted(counts, kept[place]))
        last = self.spaces[self._order[-1]]
        free = left_by(last, kept[self._order[-1]])
        return int(self._begins[-2]) + way * (last.empty + 1) + free

    def seconds(self, length: int, room: int, /) -> float:
        """About what a chain of this length takes, with x_0 in the register."""
        return float(self.fresh_seconds(length, np.array([room])).item())

    def fresh_seconds(self, length: int, rooms: Numbers, /) -> Seconds:
        """The same for many rooms."""
        lengths = np.full(rooms.size, length)
        return self._lengths.read_off(self._fresh, lengths, rooms.reshape(-1)).reshape(rooms.shape)

    def again(self, lengths: Numbers, rooms: Numbers, places: Numbers, /) -> Seconds:
        """About what chains take whose x_0 is in the register and on the level of a place.

        Each row of `rooms` is for the length and the place of the same number.
        """
        n = np.repeat(lengths, rooms.shape[1])
        read = np.array([space.read for space in self.spaces])[places, None]
        at = self._at[places[:, None], rooms].reshape(-1)
        again = self._lengths.read_off(self._again, n, at).reshape(rooms.shape)
        again -= lengths[:, None] * self._move + read
        fresh = self._lengths.read_off(self._fresh, n, rooms.reshape(-1)).reshape(rooms.shape)
        least: Seconds = np.minimum(again, fresh)
        return least

    def fresh(self, length: int, free: int, /) -> Choice:
        """What to do with x_0, in the register only."""
        return self._best(length, free)[1]

    def stored(self, length: int, free: int, place: int, /) -> int:
        """How far to advance from x_0, in the register and on a level; 0 to discard it there."""
        seconds, j = self._sweep_of(length, int(self._at[place, free]))
        return 0 if self._best(length, free)[0] < seconds else j

    def _best(self, length: int, free: int) -> tuple[float, Choice]:
        """The least seconds with x_0 in the register only, and by what; a tape first."""
        ways = []
        for place in self._order:
            if (column := int(self._at[place, free])) >= 0:
                stage, number = self._stage(column)
                taped = stage.taped(length, np.array([number])).item()
                ways.append((taped, 0, place, Choice(Kind.TAPE, place)))
                swept = self.spaces[place].write + self._sweep_of(length, column)[0]
                ways.append((swept, 1, place, Choice(Kind.RESTART, place)))
        best = min(ways)
        return best[0], best[-1]

    def _sweep(self, length: int, column: int) -> tuple[float, int]:
        stage, number = self._stage(column)
        seconds, j = stage.sweep(length, np.array([number]))
        return seconds.item(), j.item()

    def _stage(self, column: int) -> tuple[Stage, int]:
        number = int(np.searchsorted(self._begins, column, side="right")) - 1
        return self._stages[number], column - int(self._begins[number])


def sketched(
    given: Sequence[Space], steps: int, kept: Mapping[int, int], *, move: float, held: int
) -> tuple[Sketch, list[int]]:
    """A sketch of no more than so many columns, and the slots of each level that it does without.

    `kept` is how many keys may be kept on each level, by its place.
    """
    places = {id(space): place for place, space in enumerate(given)}
    order = [places[id(space)] for space in next(orders(given))]
    few, told = list(given), _TOLD

    def columns() -> int:
        sizes = [few[place].empty + 1 for place in order]
        ways = [1, *(min(1 + _scarce(given, few, kept, place), told) for place in order)]
        return sum(map(mul, accumulate(ways, mul), sizes))

    while columns() > _MOST_COLUMNS and told > _FEWEST_TOLD:
        told -= 1
    while columns() > _MOST_COLUMNS and (largest := max(s.empty for s in few)) > _ONE_SLOT:
        few = [_smaller(space, largest - 1 - largest // 16) for space in few]
    sketch = Sketch(
        few,
        steps,
        order=order,
        kept=[_scarce(given, few, kept, place) for place in range(len(few))],
        told=told,
        move=move,
        held=held,
    )
    return sketch, [excess(all_, some) for all_, some in zip(given, few, strict=True)]


def _scarce(
    given: Sequence[Space], few: Sequence[Space], kept: Mapping[int, int], place: int
) -> int:
    """How many keys at most take slots of which a level has few."""
    here = few[place]
    return min(max(0, kept.get(place, 0) - excess(given[place], here)), slots(here))


def _smaller(space: Space, empty: int) -> Space:
    """The same level with no more free than so much."""
    size = max(_ONE_SLOT, empty) + 1
    return replace(
        space, after_restart=space.after_restart[:size], after_tape=space.after_tape[:size]
    )


def _grid(most: int, told: int) -> Numbers:
    """0 to the most, or as many of these numbers as are told apart."""
    return np.unique(np.linspace(0, most, min(most + 1, told)).astype(np.intp))
