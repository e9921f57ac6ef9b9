"""When, and on which level, an array is stored: it can be wherever the schedule stores anything."""

import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from ckio.actions import Action, Discard, Key, Read, Write
from ckio.errors import BadInput
from ckio.platform import Level, Platform
from ckio.schedule.occupancy import BEFORE

__all__ = [
    "BEFORE",
    "Array",
    "Chance",
    "Copy",
    "LeastSeconds",
    "Placing",
    "Within",
    "earliest",
    "latest",
]


class Chance(NamedTuple):
    """An action at which an array can be written: a Write of the schedule while it is there.

    Attributes
    ----------
    place : int
        The number of the action; BEFORE for what lies on the level from the start.
    level : int
        Where the schedule writes then.
    until : int
        Up to this action a whole checkpoint with the same version lies there: so long there is
        room for the array, in the slots that the schedule was planned for.
    """

    place: int
    level: int
    until: int = sys.maxsize


@dataclass(frozen=True, slots=True)
class Array:
    """One version of a variable that has to be read.

    Attributes
    ----------
    variable : str
        Its name.
    version : int
        It is the variable as it is in x_version, where it was last overwritten.
    reads : tuple of int
        The actions at which it is read, in order.
    chances : tuple of Chance
        When and where it can be written, in order; the first of them before the first read.
    """

    variable: str
    version: int
    reads: tuple[int, ...]
    chances: tuple[Chance, ...]


@dataclass(frozen=True, slots=True)
class Copy:
    """An array on a level, and the actions at which it is read from there; then it is discarded."""

    chance: Chance
    reads: tuple[int, ...]

    def accesses(self, key: Key, /) -> Iterator[tuple[int, Action]]:
        """All that is done with it, each with the number of the action that it goes with."""
        place, level, _ = self.chance
        if place != BEFORE:
            yield place, Write(key, level)
        for read in self.reads:
            yield read, Read(key, level)
        yield self.reads[-1], Discard(key, level)


Placing: TypeAlias = Callable[[Array], tuple[Copy, ...]]
"""Chooses among the chances of an array: one of them, or several."""


def latest(array: Array, /) -> tuple[Copy, ...]:
    """One copy, written at the last chance before it is first read: it lies there a short time.

    What is there from the start is not written again.
    """
    return (Copy(_once(array)[-1], array.reads),)


def earliest(array: Array, /) -> tuple[Copy, ...]:
    """One copy, written at the first chance."""
    return (Copy(_once(array)[0], array.reads),)


def _once(array: Array) -> list[Chance]:
    """The chances before the first read, or those that need no writing where there are such."""
    before = [chance for chance in array.chances if chance.place < array.reads[0]]
    return [chance for chance in before if chance.place == BEFORE][:1] or before


@dataclass(frozen=True, kw_only=True)
class Priced:
    """What copies take on a platform.

    Attributes
    ----------
    platform : Platform
        Whose levels the schedule uses. Every array is an access of its own, with latency.
    nbytes : mapping of str to int
        Bytes of each variable.
    """

    platform: Platform
    nbytes: Mapping[str, int] = field(hash=False)

    def once(self, chance: Chance, array: Array, /) -> float:
        """Seconds to write a copy there and discard it."""
        level, nbytes = self._level(chance.level), self._bytes(array.variable)
        write = 0.0 if chance.place == BEFORE else level.write(nbytes)
        return write + level.discard(nbytes)

    def read(self, level: int, array: Array, /) -> float:
        """Seconds to read it from a level."""
        return self._level(level).read(self._bytes(array.variable))

    def _level(self, number: int) -> Level:
        levels = self.platform.levels
        if number >= len(levels):
            kind = type(self).__name__
            raise BadInput(f"{kind}: no level {number}; the platform has {len(levels)}")
        return levels[number]

    def _bytes(self, variable: str) -> int:
        if variable not in self.nbytes:
            raise BadInput(f"{type(self).__name__}: nbytes does not say how large {variable} is")
        return self.nbytes[variable]


@dataclass(frozen=True, kw_only=True)
class LeastSeconds(Priced):
    """The copies that take the fewest seconds to write, read and discard, by a platform's prices.

    As a rule that is one copy; where an array is read often from a level that is slow, a second one
    nearer by, written at a chance after the first read, may pay. Capacities do not count.
    """

    def __call__(self, array: Array, /) -> tuple[Copy, ...]:
        """Raises BadInput for a variable without a size, or a level that there is not."""
        # By the level that reads come from at a time: the best way there. As copies are kept for as
        # long as they are read, only the reads still to come tell one way from another.
        best: dict[int, _Way] = {}
        for chance in array.chances:
            way = self._way_to(chance, array, best)
            there = best.get(chance.level)
            if way and (there is None or way.seconds < there.until(way.since)):
                best[chance.level] = way
        many = len(array.reads)
        return min(best.values(), key=lambda way: way.until(many)).copies(array.reads)

    def _way_to(self, chance: Chance, array: Array, best: Mapping[int, "_Way"]) -> "_Way | None":
        """The best way to read from this copy from now on; None where nothing could come before."""
        price, read = self.once(chance, array), self.read(chance.level, array)
        since = bisect_left(array.reads, chance.place)
        ways = [_Way(price, since, read, chance, None)] if since == 0 else []
        ways += [
            _Way(way.until(since) + price, since, read, chance, way)
            for way in best.values()
            if read < way.read
        ]
        return min(ways, key=lambda way: way.seconds, default=None)


@dataclass(frozen=True, kw_only=True)
class Within(Priced):
    """The copies that take the fewest seconds in the room that the whole checkpoints have.

    An array lies on a level only while a checkpoint with the same version would: so it needs no
    more than its part of their slots, and all arrays together fit where the checkpoints do. For
    that an array may be written again. Over the reads in order, with O the copies that are there,

        S(O, read) = min over the copy c in O, or a new one, of
                     [write(c) + discard(c) if new] + read(c) + S(O + c - ended, next read)
    """

    def __call__(self, array: Array, /) -> tuple[Copy, ...]:
        """Where a read comes when no checkpoint has the version, `latest` without regard to room.

        Raises BadInput for a variable without a size, or a level that there is not.
        """
        ways: dict[frozenset[_Slot], _Served | None] = {frozenset(): None}
        for read in array.reads:
            found: dict[frozenset[_Slot], _Served] = {}
            new = dict(_slots(array, read))
            for there, way in ways.items():
                still = frozenset(slot for slot in there if slot.until >= read)
                for slot in still | new.keys():
                    chance = None if slot in still else new[slot]
                    seconds = (way.seconds if way else 0.0) + self.read(slot.level, array)
                    if chance is not None:
                        seconds += self.once(chance, array)
                    after = still | {slot}
                    if after not in found or seconds < found[after].seconds:
                        found[after] = _Served(seconds, read, slot, chance, way)
            if not found:
                return latest(array)
            ways = {**found}
        return min(found.values(), key=lambda way: way.seconds).copies()


class _Slot(NamedTuple):
    """Room for an array on a level; what tells two of them on one level apart is when they end."""

    level: int
    until: int


def _slots(array: Array, read: int) -> Iterator[tuple[_Slot, Chance]]:
    """The room that there is at a read, and the last chance before to write there.

    What lies there from the start needs no writing: then that is the chance.
    """
    from_the_start = set()
    for chance in array.chances:
        slot = _Slot(chance.level, chance.until)
        if chance.place < read <= chance.until and slot not in from_the_start:
            yield slot, chance
            if chance.place == BEFORE:
                from_the_start.add(slot)


@dataclass(frozen=True, slots=True)
class _Served:
    """The reads up to one of them, each served by a copy; `chance` where that was new then."""

    seconds: float
    read: int
    slot: _Slot
    chance: Chance | None = None
    before: "_Served | None" = None

    def copies(self) -> tuple[Copy, ...]:
        """The copies, in the order in which they end."""
        reads: dict[_Slot, list[int]] = {}
        found: list[Copy] = []
        way: _Served | None = self
        while way is not None:
            reads.setdefault(way.slot, []).append(way.read)
            if way.chance is not None:
                found.append(Copy(way.chance, tuple(reversed(reads.pop(way.slot)))))
            way = way.before
        return tuple(reversed(found))


@dataclass(frozen=True, slots=True)
class _Way:
    """Copies one after the other, each read faster than the one before.

    Attributes
    ----------
    seconds : float
        What it took up to the writing of the last copy, and the discarding of all.
    since : int
        How many reads were served before by others.
    read : float
        Seconds of each read from now on.
    chance : Chance
        Of the last copy.
    before : _Way or None
        The way that led here.
    """

    seconds: float
    since: int
    read: float
    chance: Chance
    before: "_Way | None"

    def until(self, many: int, /) -> float:
        """Seconds up to the time when so many reads have been served."""
        return self.seconds + (many - self.since) * self.read

    def copies(self, reads: tuple[int, ...], /) -> tuple[Copy, ...]:
        """The copies that are read, with the actions at which they are."""
        found: list[Copy] = []
        way: _Way | None = self
        until = len(reads)
        while way is not None:
            if way.since < until:
                found.append(Copy(way.chance, reads[way.since : until]))
            until, way = way.since, way.before
        return tuple(reversed(found))
