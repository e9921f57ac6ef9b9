"""When, and on which level, an array is stored: it can be wherever the schedule stores anything."""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from ckio.errors import BadInput
from ckio.occupancy import BEFORE
from ckio.platforms import Level, Platform

__all__ = ["BEFORE", "Array", "Chance", "Copy", "LeastSeconds", "Placing", "earliest", "latest"]


class Chance(NamedTuple):
    """An action at which an array can be written: a Write of the schedule while it is there.

    Attributes
    ----------
    place : int
        The number of the action; BEFORE for what lies on the level from the start.
    level : int
        Where the schedule writes then.
    """

    place: int
    level: int


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
class LeastSeconds:
    """The copies that take the fewest seconds to write, read and discard, by a platform's prices.

    As a rule that is one copy; where an array is read often from a level that is slow, a second one
    nearer by, written at a chance after the first read, may pay. Capacities do not count.

    Attributes
    ----------
    platform : Platform
        Whose levels the schedule uses. Every array is an access of its own, with latency.
    nbytes : mapping of str to int
        Bytes of each variable.
    """

    platform: Platform
    nbytes: Mapping[str, int] = field(hash=False)

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
        level, nbytes = self._level(chance.level), self._bytes(array.variable)
        write = 0.0 if chance.place == BEFORE else level.write(nbytes)
        price, read = write + level.discard(nbytes), level.read(nbytes)
        since = bisect_left(array.reads, chance.place)
        ways = [_Way(price, since, read, chance, None)] if since == 0 else []
        ways += [
            _Way(way.until(since) + price, since, read, chance, way)
            for way in best.values()
            if read < way.read
        ]
        return min(ways, key=lambda way: way.seconds, default=None)

    def _level(self, number: int) -> Level:
        levels = self.platform.levels
        if number >= len(levels):
            raise BadInput(f"LeastSeconds: no level {number}; the platform has {len(levels)}")
        return levels[number]

    def _bytes(self, variable: str) -> int:
        if variable not in self.nbytes:
            raise BadInput(f"LeastSeconds: nbytes does not say how large {variable} is")
        return self.nbytes[variable]


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
