"""Choose when and on which level each version of a variable is stored, so that it can be read.

An array is a variable in one version. `ckio.analysis.dataflow` determines the actions of a schedule
at which it has to be read, and those at which it can be written (its sites). This module chooses
copies: one copy of each array, written as late as possible (`latest`), or copies in the capacity of
the whole checkpoints of the schedule, on the level that takes the fewest seconds for each read
(`in_slots`).
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import NamedTuple

import numpy as np

from ckio.actions import Action, Discard, Key, Read, Write
from ckio.actions.columns import Actions
from ckio.actions.variables import Bools, Ints
from ckio.errors import BadInput
from ckio.platform import Level, Platform
from ckio.schedule.occupancy import BEFORE


class WriteSites(NamedTuple):
    """Writes of the schedule at which arrays can be written, because the state contains them.

    Attributes
    ----------
    version, place, level : int64 array
        The version of the array, the number of the action, and the level to which the schedule
        writes. `place` is BEFORE for an array that is stored on the level from the start.
    until : int64 array
        The last action at which the level has a whole checkpoint with the same version. Until then,
        the array fits in the slots for which the schedule was planned.
    """

    version: Ints
    place: Ints
    level: Ints
    until: Ints

    def take(self, index: Ints | Bools, /) -> "WriteSites":
        """Return the sites at `index`."""
        return WriteSites(*(column[index] for column in self))

    @staticmethod
    def together(some: Iterable["WriteSites"], /) -> "WriteSites":
        """Return all sites, ordered by version and action."""
        rows = WriteSites(*map(np.concatenate, zip(*some, strict=True)))
        return rows.take(np.lexsort((rows.place, rows.version)))


@dataclass(frozen=True, slots=True)
class ArrayReads:
    """The arrays of a variable, and their reads, ordered by version and action.

    Attributes
    ----------
    name : str
        The variable.
    version, read : int64 array
        For each read, the version, and the number of the action.
    sites : WriteSites
        The sites of these versions, in the same order.
    """

    name: str
    version: Ints
    read: Ints
    sites: WriteSites

    @staticmethod
    def of(name: str, version: Ints, read: Ints, sites: Iterable[WriteSites], /) -> "ArrayReads":
        """Return reads in order, with their sites; sites of other versions are left out."""
        order, rows = np.lexsort((read, version)), WriteSites.together(sites)
        rows = rows.take(np.isin(rows.version, version))
        return ArrayReads(name, version[order], read[order], rows)

    def arrays(self) -> "Iterator[tuple[int, list[int], list[WriteSite]]]":
        """Yield the version of each array, its reads, and its sites."""
        rows = self.sites
        versions, first = np.unique(self.version, return_index=True)
        sites = list(map(WriteSite, rows.place.tolist(), rows.level.tolist(), rows.until.tolist()))
        reads = np.split(self.read, first)[1:]
        begins, ends = (np.searchsorted(rows.version, versions, it) for it in ("left", "right"))
        for version, read, begin, end in zip(versions.tolist(), reads, begins, ends, strict=True):
            yield version, read.tolist(), sites[begin:end]

    def late(self) -> Iterator[tuple[int, int]]:
        """Yield each version that cannot be written before its first read, and this read."""
        for version, reads, sites in self.arrays():
            if not sites or sites[0].place > reads[0]:
                yield version, reads[0]


@dataclass(frozen=True, slots=True)
class PlacedActions:
    """Actions, each with the number of the action of the schedule to which it belongs."""

    place: Ints
    actions: Actions

    @staticmethod
    def of(pairs: Sequence[tuple[int, Action]], /) -> "PlacedActions":
        """Return these actions, each with its place."""
        place = np.array([place for place, _ in pairs], np.int64)
        return PlacedActions(place, Actions.of(action for _, action in pairs))

    @staticmethod
    def together(some: Iterable["PlacedActions"], /) -> "PlacedActions":
        """Return all actions in the order of their places, and in the given order at one place."""
        places, actions = [np.zeros(0, np.int64)], Actions.of(())
        for each in some:
            places.append(each.place)
            actions += each.actions
        place = np.concatenate(places)
        order = np.argsort(place, kind="stable")
        return PlacedActions(place[order], actions.take(order))


class WriteSite(NamedTuple):
    """A row of `WriteSites`, without the version."""

    place: int
    level: int
    until: int


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of an array, from its Write to the last action that reads it.

    Attributes
    ----------
    version, place, level : int
        The version, the action of the Write, and the level; `place` is BEFORE for a copy that is
        stored from the start.
    reads : tuple of int
        The actions at which it is read.
    """

    version: int
    place: int
    level: int
    reads: tuple[int, ...]

    def accesses(self, key: Key, /) -> Iterator[tuple[int, Action]]:
        """Yield a Write, Reads, and a Discard, each with the action to which it belongs."""
        if self.place != BEFORE:
            yield self.place, Write(key, self.level)
        for read in self.reads:
            yield read, Read(key, self.level)
        yield self.reads[-1], Discard(key, self.level)


def place_copies(needed: ArrayReads, platform: Platform | None, nbytes: int, /) -> Iterator[Copy]:
    """Yield the copies of all arrays of a variable: `in_slots` or, without a platform, `latest`.

    `latest` is also used for an array that is read while no checkpoint has its version.
    """
    for version, reads, sites in needed.arrays():
        copies = [] if platform is None else in_slots(version, reads, sites, platform, nbytes)
        yield from copies or [latest(version, reads, sites)]


def latest(version: int, reads: Sequence[int], sites: Sequence[WriteSite], /) -> Copy:
    """Return one copy, written at the last site before the first read.

    An array that is stored on a level from the start is not written again.
    """
    last = bisect_left(sites, reads[0], key=attrgetter("place")) - 1
    site = sites[0] if sites[0].place == BEFORE else sites[last]
    return Copy(version, site.place, site.level, tuple(reads))


def in_slots(
    version: int, reads: Sequence[int], sites: Sequence[WriteSite], platform: Platform, nbytes: int
) -> list[Copy]:
    """Return copies in the slots of the whole checkpoints; none if a read has no slot.

    An array is on a level only while a checkpoint with the same version would be. Therefore it
    needs only its part of their slots, and all arrays together fit if the checkpoints fit. An array
    may have to be written again for this. Each read has the slot with the fewest seconds to write,
    read and discard a copy. Reads with the same slot share one copy.

    For example, a near slot exists from action 0 to 9 and takes 1 s per access, and a far slot
    exists from action 1 on and takes 3 s. An array that is read at 5 and 20 is written to both,
    which takes 1 + 1 + 3 + 3 = 8 s. With the far slot alone it would take 3 + 3 + 3 = 9 s:

    >>> from ckio.platform import Affine
    >>> near, far = (Level(name=f"of{it}s", write=Affine(it), read=Affine(it)) for it in (1, 3))
    >>> sites = WriteSite(place=0, level=0, until=9), WriteSite(place=1, level=1, until=99)
    >>> [(copy.level, copy.reads) for copy in in_slots(0, [5, 20], sites, Platform((near, far)), 8)]
    [(0, (5,)), (1, (20,))]

    On one level, the times in which an array may be stored follow one another
    (`CheckpointTimes.until`). Therefore only the last site before a read can be used. Every array
    is a separate access, with latency. Raises BadInput if the platform lacks a level.
    """
    by_level: dict[int, list[WriteSite]] = {}
    for site in sites:
        if site.until > site.place:
            by_level.setdefault(site.level, []).append(site)
    slots: dict[tuple[int, int], tuple[WriteSite, list[int]]] = {}
    for read in reads:
        usable: list[tuple[float, WriteSite]] = []
        for number, own in sorted(by_level.items()):
            last = own[bisect_left(own, read, key=attrgetter("place")) - 1]
            if not last.place < read <= last.until:
                continue
            # An array that is stored there from the start need not be written: this is the site.
            stays = own[0].place == BEFORE and own[0].until == last.until
            level = _level(platform, number)
            write = 0.0 if stays else level.write(nbytes)
            seconds = write + level.discard(nbytes) + level.read(nbytes)
            usable.append((seconds, own[0] if stays else last))
        if not usable:
            return []
        _, site = min(usable, key=itemgetter(0))
        slots.setdefault((site.level, site.until), (site, []))[1].append(read)
    return [Copy(version, it.place, it.level, tuple(served)) for it, served in slots.values()]


def _level(platform: Platform, number: int) -> Level:
    if number >= len(platform.levels):
        raise BadInput(
            f"lower: the schedule has a level {number}, but the platform has"
            f" {len(platform.levels)} levels, numbered from 0; give the platform of the schedule"
        )
    return platform.levels[number]
