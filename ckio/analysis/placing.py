"""Choose when and on which level each version of a variable is stored, so that it can be read.

An array is a variable in one version. `ckio.analysis.dataflow` determines the actions of a schedule
at which it has to be read, and those at which it can be written (its sites). This module chooses
copies: one copy of each array, written as late as possible (`latest`), or copies in the capacity of
the whole checkpoints of the schedule, on the level that takes the fewest seconds for each read
(`in_slots`). Because a schedule may have a hundred thousand arrays, they are stored in columns, all
arrays of one variable at once.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ckio.actions import Key, Kind
from ckio.actions.columns import DISCARD, KIND_CODE, READ, WRITE, Actions
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

    @property
    def first(self) -> Ints:
        """The index of the first read of each array."""
        version = self.version
        opens = np.append(True, version[1:] != version[:-1])[: len(version)]
        return np.flatnonzero(opens)

    @property
    def late(self) -> Bools:
        """Whether each array cannot be written before its first read."""
        first, sites = self.first, self.sites
        at = np.searchsorted(sites.version, self.version[first])
        version, place = np.append(sites.version, -1)[at], np.append(sites.place, 0)[at]
        late: Bools = (version != self.version[first]) | (place > self.read[first])
        return late

    @property
    def in_slots(self) -> Bools:
        """Whether each read is in the time of a site that comes before it."""
        rows = self.sites
        last = _before(rows.version, rows.place, self.version, self.read)
        if not len(rows.place):
            return np.zeros(len(self.read), np.bool_)
        # Different versions get separate ranges of time, so that one pass is sufficient.
        apart = rows.version * (2 + max(rows.until.max(), self.read.max(initial=0)))
        until = np.maximum.accumulate(rows.until + apart) - apart
        there: Bools = (last >= 0) & (rows.version[last] == self.version)
        there &= until[last] >= self.read
        return there


@dataclass(frozen=True, slots=True)
class PlacedActions:
    """Actions, each with the number of the action of the schedule to which it belongs."""

    place: Ints
    actions: Actions

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


_IN_TURN = np.array((WRITE, READ, DISCARD), np.uint8)


@dataclass(frozen=True, slots=True)
class Copies:
    """Copies of the arrays of one variable, with their versions, levels and times.

    Attributes
    ----------
    version, place, level : int64 array
        The version, the action of the Write, and the level of each copy; `place` is BEFORE for a
        copy that is stored from the start.
    read, of : int64 array
        For each read, the number of the action, and the number of the copy that is read.
    """

    version: Ints
    place: Ints
    level: Ints
    read: Ints
    of: Ints

    def __add__(self, other: "Copies", /) -> "Copies":
        """Return these copies, then `other`."""
        return Copies(
            np.append(self.version, other.version),
            np.append(self.place, other.place),
            np.append(self.level, other.level),
            np.append(self.read, other.read),
            np.append(self.of, other.of + len(self.version)),
        )

    def accesses(self, name: str, kind: Kind, /) -> PlacedActions:
        """Return the actions of these copies: Writes, Reads, and a Discard after the last Read."""
        write, many = np.flatnonzero(self.place != BEFORE), len(self.version)
        last = np.full(many, BEFORE)
        np.maximum.at(last, self.of, self.read)
        which = np.concatenate((write, self.of, np.arange(many)))
        actions = Actions(
            op=np.repeat(_IN_TURN, (len(write), len(self.read), many)),
            begin=self.version[which],
            end=np.zeros(len(which), np.int64),
            kind=np.full(len(which), KIND_CODE[kind], np.uint8),
            level=self.level[which],  # type: ignore[arg-type]
            name=np.ones(len(which), np.int32),
            names=("", name),
        )
        return PlacedActions(np.concatenate((self.place[write], self.read, last)), actions)

    def start(self, name: str, kind: Kind, /) -> Iterator[tuple[int, Key]]:
        """Return the levels and keys of the copies that are stored from the start."""
        start = self.place == BEFORE
        rows = zip(self.level[start].tolist(), self.version[start].tolist(), strict=True)
        return ((level, Key(kind, version, name)) for level, version in rows)


def latest(needed: ArrayReads, which: Bools, /) -> Copies:
    """Return one copy of each array in `which`, written at the last site before its first read.

    An array that is stored on a level from the start is not written again.
    """
    rows, first, many = needed.sites, needed.first, len(needed.read)
    read, version = needed.read[first[which]], needed.version[first[which]]
    begin = np.searchsorted(rows.version, version)
    at = _before(rows.version, rows.place, version, read)
    at = np.where(rows.place[begin] == BEFORE, begin, at) if len(begin) else at
    counts = np.diff(np.append(first, many))
    reads = needed.read[np.repeat(which, counts)]
    of = np.repeat(np.arange(len(at)), counts[which])
    return Copies(version, rows.place[at], rows.level[at], reads, of)


def _before(version: Ints, place: Ints, of: Ints, read: Ints) -> Ints:
    """Return, for each read of a version, the last row of this version with a smaller place.

    The rows are ordered by version and place. If there is no such row, the result is a row of
    another version, or -1.
    """
    size = 2 + max(read.max(initial=0), place.max(initial=0))
    last: Ints = np.searchsorted(version * size + place, of * size + read) - 1
    return last


def place_copies(needed: ArrayReads, platform: Platform | None, nbytes: int, /) -> Copies:
    """Return the copies of all arrays of a variable: `in_slots` or, without a platform, `latest`.

    `latest` is also used for an array that is read while no checkpoint has its version.
    """
    left = np.ones(len(needed.first), np.bool_)
    if platform is None or not len(needed.read):
        return latest(needed, left)
    copies, left = in_slots(needed, platform, nbytes)
    return copies + latest(needed, left)


def in_slots(needed: ArrayReads, platform: Platform, nbytes: int, /) -> tuple[Copies, Bools]:
    """Return copies in the slots of the whole checkpoints, and which arrays have none.

    An array is on a level only while a checkpoint with the same version would be. Therefore it
    needs only its part of their slots, and all arrays together fit if the checkpoints fit. An array
    may have to be written again for this. Each read has the slot with the fewest seconds to write,
    read and discard a copy. Reads with the same slot share one copy.

    For example, a near slot exists from action 0 to 9 and takes 1 s per access, and a far slot
    exists from action 1 on and takes 3 s. An array that is read at 5 and 20 is written to both,
    which takes 1 + 1 + 3 + 3 = 8 s. With the far slot alone it would take 3 + 3 + 3 = 9 s:

    >>> from ckio.platform import Affine
    >>> near, far = (Level(name=f"of{it}s", write=Affine(it), read=Affine(it)) for it in (1, 3))
    >>> version, at, until, read = np.array([[0, 0], [0, 1], [9, 99], [5, 20]])
    >>> u = ArrayReads("u", version, read, WriteSites(version, place=at, level=at, until=until))
    >>> copies, _ = in_slots(u, Platform((near, far)), 8)
    >>> copies.level.tolist(), copies.of.tolist()
    ([0, 1], [0, 1])

    On one level, the times in which an array may be stored follow one another
    (`CheckpointTimes.until`). Therefore only the last site before a read can be used. Every array
    is a separate access, with latency. Raises BadInput if the platform lacks a level.
    """
    rows, many = needed.sites, len(needed.read)
    order = np.lexsort((rows.place, rows.version, rows.level))
    rows = rows.take(order[(rows.until > rows.place)[order]])
    opens = np.ones(len(rows.place), np.bool_)
    opens[1:] = False
    for column in (rows.level, rows.version, rows.until):
        opens[1:] |= column[1:] != column[:-1]
    slot = np.cumsum(opens) - 1
    # An array that is stored there from the start need not be written: this is the site.
    first = np.flatnonzero(opens)[slot]
    site = np.where(rows.place[first] == BEFORE, first, np.arange(len(first)))

    least, chosen = np.full(many, np.inf), np.full(many, -1)
    for number in np.unique(rows.level).tolist():
        level = _level(platform, number)
        begin, end = np.searchsorted(rows.level, (number, number + 1))
        last = begin + _before(
            rows.version[begin:end], rows.place[begin:end], needed.version, needed.read
        )
        serves = (last >= begin) & (rows.version[last] == needed.version)
        serves &= rows.until[last] >= needed.read
        at = site[last]
        write = np.where(rows.place[at] == BEFORE, 0.0, level.write(nbytes))
        seconds = write + level.discard(nbytes) + level.read(nbytes)
        better = serves & (seconds < least)
        least[better], chosen[better] = seconds[better], at[better]
    reads = np.diff(np.append(needed.first, many))
    done = np.logical_and.reduceat(chosen >= 0, needed.first)
    taken = np.flatnonzero(np.repeat(done, reads))
    _, begins, of = np.unique(slot[chosen[taken]], return_index=True, return_inverse=True)
    copy = rows.take(chosen[taken[begins]])
    return Copies(copy.version, copy.place, copy.level, needed.read[taken], of), ~done


def _level(platform: Platform, number: int) -> Level:
    if number >= len(platform.levels):
        raise BadInput(
            f"lower: the schedule has a level {number}, but the platform has"
            f" {len(platform.levels)} levels, numbered from 0; give the platform of the schedule"
        )
    return platform.levels[number]
