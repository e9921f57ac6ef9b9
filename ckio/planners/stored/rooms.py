"""What the steps between two stored keys cost, by how many they are and by what room is free.

The recurrence of `mixed` is solved once for all rooms, and what is kept of the stored keys takes
some of them.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache
from math import gcd
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Action, Advance, Key, Kind, Read, Record, Reverse, Write
from ckio.planners.mixed.space import Space
from ckio.planners.mixed.walk import Stage
from ckio.platform import Platform, copies
from ckio.platform.chain import Chain

Seconds = NDArray[np.float64]


def spaces(
    chain: Chain,
    platform: Platform,
    /,
    *,
    new_tapes: bool,
    endless: Collection[int],
    most_units: int,
) -> list[Space]:
    """What each level offers to new checkpoints; the `endless` ones as if they never filled.

    The room of a level for tapes too is counted in so many units, unless it has more slots.
    """
    return [
        _space(chain, platform, number, most_units * new_tapes, endless=number in endless)
        for number in range(len(platform.levels))
    ]


def _space(
    chain: Chain, platform: Platform, number: int, most_units: int, *, endless: bool
) -> Space:
    level, new_tapes = platform.levels[number], most_units > 0
    restart, tape = level.stored(chain.restart), level.stored(chain.tape)
    capacity, most = level.capacity, chain.length * (restart + new_tapes * tape)
    if capacity is None or capacity >= most or (endless and capacity >= restart):
        after_restart = np.zeros(1, np.intp)
        after_tape = after_restart - (not new_tapes)
    else:
        units = (
            _units(restart, tape, capacity, most_units)
            if new_tapes
            else (1, 0, capacity // restart)
        )
        rooms = np.arange(units[2] + 1)
        after_restart = np.maximum(rooms - units[0], -1)
        after_tape = np.maximum(rooms - units[1], -1) if new_tapes else np.full_like(rooms, -1)
    restart = chain.restart * copies(chain, platform, number, Kind.RESTART)
    tape = chain.tape * copies(chain, platform, number, Kind.TAPE)
    return Space(
        name=level.name,
        number=number,
        write=level.write(restart) + level.discard(chain.restart),
        read=level.read(restart),
        tape=level.write(tape) + level.read(tape) + level.discard(chain.tape)
        if new_tapes
        else np.inf,
        after_restart=after_restart,
        after_tape=after_tape,
        exact=True,
    )


def _units(restart: int, tape: int, capacity: int, most: int) -> tuple[int, int, int]:
    """The sizes and the capacity in units: exactly in few, or else with the tape rounded up."""
    unit = gcd(restart, tape)
    if capacity // unit <= most or restart == 0:
        return restart // unit, tape // unit, capacity // unit
    each = max(1, most * restart // capacity)
    return each, -(-tape * each // restart), capacity * each // restart


def left_by(space: Space, count: int, /) -> int:
    """The number of what is free on a level where so many restart keys lie; -1: too many."""
    free = space.empty
    for _ in range(count if free else 0):
        free = int(space.after_restart[free]) if free >= 0 else free
    return free


def slots(space: Space, /, least: int = 0) -> int:
    """How many restart keys fit so that so much stays free; 0 where it never fills."""
    free, count = space.empty, 0
    while least <= (after := int(space.after_restart[free])) != free:
        free, count = after, count + 1
    return count


def excess(space: Space, smaller: Space, /) -> int:
    """How many restart keys fit into what a smaller level has less."""
    return slots(space, least=smaller.empty)


class _Part(NamedTuple):
    """What is left to do: the steps [begin, end).

    With a `place`, x_begin is also on that level; without, in the register only.
    """

    begin: int
    end: int
    room: int
    place: int | None = None


class Rooms:
    """The rooms that kept keys leave, and the actions that the recurrence means in each.

    A level may have more slots than there are in the recurrence, by its `excess`: those are taken
    by what is kept before all others, and are of no other use.
    """

    def __init__(
        self,
        solved: Stage,
        held: int,
        excess: Sequence[int] = (),
        left: Callable[[Sequence[int]], int] | None = None,
    ) -> None:
        self.solved, self._held, self._left = solved, held, left
        self._excess = list(excess) or [0] * len(solved.spaces)
        # The same lengths with the same room come again and again.
        self._fresh, self._stored = cache(solved.fresh), cache(solved.stored)

    @property
    def places(self) -> int:
        """How many levels there are in the recurrence."""
        return len(self.solved.spaces)

    def slots(self, place: int, /) -> int:
        """How many restart keys fit on one of them; 0 where it never fills: none is counted."""
        return slots(self.solved.spaces[place]) + self._excess[place]

    def scarce(self, kept: Sequence[int], /) -> list[int]:
        """How many of those kept on each level take room from the recurrence."""
        return [
            max(0, count - excess) if space.empty else 0
            for space, count, excess in zip(self.solved.spaces, kept, self._excess, strict=True)
        ]

    def after(self, kept: Sequence[int], /) -> int:
        """The room that is left once so many restart keys are kept on each level."""
        if self._left is not None:
            return self._left(self.scarce(kept))
        room = self.solved.empty
        for place, count in enumerate(self.scarce(kept)):
            after = self.solved.after_restart[place]
            for _ in range(count):
                room = int(after[room]) if room >= 0 else room
        return room

    def finish(self, begin: int, end: int, room: int, place: int | None = None) -> Iterator[Action]:
        """Reverse [begin, end); x_begin is in the register, and on the level of this place."""
        todo: list[_Part | Action] = [_Part(begin, end, room, place)]
        while todo:
            part = todo.pop()
            if isinstance(part, _Part):
                todo.extend(reversed(list(self._first(part))))
            else:
                yield part

    def _first(self, part: _Part) -> Iterator[_Part | Action]:
        """What a part begins with, and the smaller parts that are left then."""
        begin, end, room, place = part
        if end - begin <= self._held:
            yield Record(begin, end)
            yield Reverse(begin, end)
        elif place is None:
            yield from self._store(part)
        elif j := self._stored(end - begin, room, place):
            yield Advance(begin, begin + j)
            yield _Part(begin + j, end, int(self.solved.after_restart[place][room]))
            yield Read(Key(Kind.RESTART, begin), self.solved.spaces[place].number)
            yield _Part(begin, begin + j, room, place)
        else:
            yield _Part(begin, end, room)

    def _store(self, part: _Part) -> Iterator[_Part | Action]:
        """The first state of a part, in the register only, or the tape of its first step."""
        begin, end, room, _ = part
        kind, place = self._fresh(end - begin, room)
        level = self.solved.spaces[place].number
        if kind is Kind.TAPE:
            tape = Key(Kind.TAPE, begin)
            yield Record(begin, begin + 1)
            yield Write(tape, level)
            yield _Part(begin + 1, end, int(self.solved.after_tape[place][room]))
            yield Read(tape, level)
            yield Reverse(begin, begin + 1)
        else:
            yield Write(Key(Kind.RESTART, begin), level)
            yield _Part(begin, end, room, place)
