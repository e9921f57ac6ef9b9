"""Choose when and on which level each version of a variable is stored, so that it can be read.

An array is a variable in one version. `ckio.analysis.dataflow` determines the actions of a schedule
at which it has to be read, and those at which it can be written (its chances). This module chooses
copies: one copy of each array, written as late as possible (`latest`), or the copies with the
fewest seconds in the capacity of the whole checkpoints of the schedule (`Within`). Because a
schedule may have a hundred thousand arrays, they are stored in columns, all arrays of one variable
at once.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np

from ckio.actions import Key, Kind
from ckio.actions.columns import DISCARD, KIND_CODE, READ, WRITE, Actions
from ckio.actions.variables import Bools, Ints
from ckio.errors import BadInput
from ckio.platform import Level, Platform
from ckio.schedule.occupancy import BEFORE


class Chance(NamedTuple):
    """An action at which an array can be written: a Write of the schedule while it is there.

    Attributes
    ----------
    place : int
        The number of the action; BEFORE for an array that lies on the level from the start.
    level : int
        Where the schedule writes then.
    until : int
        Up to this action a whole checkpoint with the same version lies there: so long the array
        fits into the slots that the schedule was planned for.
    """

    place: int
    level: int
    until: int = sys.maxsize


@dataclass(frozen=True, slots=True)
class Chances:
    """Chances of many arrays: of which version each is, and the columns of `Chance`."""

    version: Ints
    place: Ints
    level: Ints
    until: Ints

    def take(self, index: Ints | Bools, /) -> "Chances":
        """Some of them."""
        return Chances(self.version[index], self.place[index], self.level[index], self.until[index])

    @staticmethod
    def together(some: Iterable["Chances"], /) -> "Chances":
        """All of them, those of one version in order."""
        columns = zip(*((it.version, it.place, it.level, it.until) for it in some), strict=True)
        rows = Chances(*map(np.concatenate, columns))
        return rows.take(np.lexsort((rows.place, rows.version)))


class Array(NamedTuple):
    """One version of a variable: the actions at which it is read, and its chances, in order."""

    version: int
    reads: tuple[int, ...]
    chances: tuple[Chance, ...]


@dataclass(frozen=True, slots=True)
class ArrayReads:
    """The arrays of a variable: the reads of one version after those of another, in order.

    Attributes
    ----------
    name : str
        The variable.
    version, read : int64 array
        For each read, which version it is of, and the number of the action.
    chances : Chances
        Of these versions, in the same order.
    """

    name: str
    version: Ints
    read: Ints
    chances: Chances

    @staticmethod
    def of(name: str, version: Ints, read: Ints, chances: Iterable[Chances], /) -> "ArrayReads":
        """Put in order what is given in any; chances of other versions are left out."""
        order, rows = np.lexsort((read, version)), Chances.together(chances)
        asked = rows.take(np.isin(rows.version, version))
        return ArrayReads(name, version[order], read[order], asked)

    @property
    def first(self) -> Ints:
        """For each array, its first read."""
        version = self.version
        opens = np.append(True, version[1:] != version[:-1])[: len(version)]
        return np.flatnonzero(opens)

    @property
    def late(self) -> Bools:
        """For each array, whether it cannot be written before its first read."""
        first, chances = self.first, self.chances
        at = np.searchsorted(chances.version, self.version[first])
        version, place = np.append(chances.version, -1)[at], np.append(chances.place, 0)[at]
        late: Bools = (version != self.version[first]) | (place > self.read[first])
        return late

    def arrays(self, which: Bools, /) -> Iterator[Array]:
        """Some of the arrays, one by one."""
        first, chances = self.first, self.chances
        ends = np.append(first[1:], len(self.read))[which].tolist()
        version = self.version[first[which]]
        since = np.searchsorted(chances.version, version).tolist()
        until = np.searchsorted(chances.version, version, "right").tolist()
        for row in zip(version.tolist(), first[which].tolist(), ends, since, until, strict=True):
            number, begin, end, low, high = row
            columns = (getattr(chances, it)[low:high].tolist() for it in Chance._fields)
            reads = self.read[begin:end].tolist()
            yield Array(number, tuple(reads), tuple(map(Chance, *columns)))


@dataclass(frozen=True, slots=True)
class PlacedActions:
    """Actions, each with the number of the action of the schedule that it goes with."""

    place: Ints
    actions: Actions

    @staticmethod
    def together(some: Iterable["PlacedActions"], /) -> "PlacedActions":
        """All of them in the order of their places; at one place as they are given."""
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
    """Copies of arrays of one variable: of which version each is, where and when it is written.

    Attributes
    ----------
    version, place, level : int64 array
        Of each copy; `place` is BEFORE where it lies there from the start.
    read, of : int64 array
        For each read the number of the action, and which of the copies is read.
    """

    version: Ints
    place: Ints
    level: Ints
    read: Ints
    of: Ints

    def __add__(self, other: "Copies", /) -> "Copies":
        """These, then `other`."""
        return Copies(
            np.append(self.version, other.version),
            np.append(self.place, other.place),
            np.append(self.level, other.level),
            np.append(self.read, other.read),
            np.append(self.of, other.of + len(self.version)),
        )

    def accesses(self, name: str, kind: Kind, /) -> PlacedActions:
        """Their actions: each is written, read, and discarded after its last read."""
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
        """The levels and keys of those that lie there from the start."""
        start = self.place == BEFORE
        rows = zip(self.level[start].tolist(), self.version[start].tolist(), strict=True)
        return ((level, Key(kind, version, name)) for level, version in rows)


def latest(needed: ArrayReads, which: Bools, /) -> Copies:
    """One copy of each of some arrays, written at the last chance before it is first read.

    An array that lies on a level from the start is not written again.
    """
    rows, first, many = needed.chances, needed.first, len(needed.read)
    read, version = needed.read[first[which]], needed.version[first[which]]
    begin = np.searchsorted(rows.version, version)
    at = _before(rows.version, rows.place, version, read)
    at = np.where(rows.place[begin] == BEFORE, begin, at) if len(begin) else at
    counts = np.diff(np.append(first, many))
    reads = needed.read[np.repeat(which, counts)]
    of = np.repeat(np.arange(len(at)), counts[which])
    return Copies(version, rows.place[at], rows.level[at], reads, of)


def _before(version: Ints, place: Ints, of: Ints, read: Ints) -> Ints:
    """For each read of a version, the last row of smaller place; rows are in order of both."""
    size = 2 + max(read.max(initial=0), place.max(initial=0))
    last: Ints = np.searchsorted(version * size + place, of * size + read) - 1
    return last


@dataclass(frozen=True, kw_only=True)
class Within:
    """The copies with the fewest seconds in the slots of the whole checkpoints.

    An array is on a level only while a checkpoint with the same version would be. So it needs only
    its part of their slots, and all arrays together fit if the checkpoints fit. An array may have
    to be written again for this. Over the reads in order, with O the present copies,

        S(O, read) = min over the copy c in O, or a new one, of
                     [write(c) + discard(c) if new] + read(c) + S(O + c - ended, next read)

    For example, a near slot exists from action 0 to 9 and takes 1 s per access, and a far slot
    exists from action 1 on and takes 3 s. An array that is read at 5 and 20 is written to both,
    which takes 1 + 1 + 3 + 3 = 8 s. With the far slot alone it would take 3 + 3 + 3 = 9 s:

    >>> from ckio.platform import Affine
    >>> near, far = (Level(name=f"of{it}s", write=Affine(it), read=Affine(it)) for it in (1, 3))
    >>> within = Within(platform=Platform((near, far)), nbytes={"u": 8})
    >>> within.copies("u", Array(0, (5, 20), (Chance(0, 0, 9), Chance(1, 1, 99))))
    [(Chance(place=0, level=0, until=9), (5,)), (Chance(place=1, level=1, until=99), (20,))]

    Attributes
    ----------
    platform : Platform
        The platform of the schedule. Every array is a separate access, with latency.
    nbytes : mapping of str to int
        Bytes of each variable.
    """

    platform: Platform
    nbytes: Mapping[str, int] = field(hash=False)

    def once(self, name: str, chance: Chance, /) -> float:
        """Seconds to write a copy there and discard it."""
        level, nbytes = self._level(chance.level), self._bytes(name)
        write = 0.0 if chance.place == BEFORE else level.write(nbytes)
        return write + level.discard(nbytes)

    def read(self, name: str, level: int, /) -> float:
        """Seconds to read it from a level."""
        return self._level(level).read(self._bytes(name))

    def _level(self, number: int) -> Level:
        levels = self.platform.levels
        if number >= len(levels):
            raise BadInput(f"Within: no level {number}; the platform has {len(levels)}")
        return levels[number]

    def _bytes(self, variable: str) -> int:
        if variable not in self.nbytes:
            raise BadInput(f"Within: nbytes does not say how large {variable} is")
        return self.nbytes[variable]

    def copies(self, name: str, array: Array, /) -> list[tuple[Chance, tuple[int, ...]]]:
        """The copies of an array, by S; none where it is read while no slot has the version."""
        plans: dict[frozenset[_Slot], _ServedReads | None] = {frozenset(): None}
        for read in array.reads:
            best: dict[frozenset[_Slot], _ServedReads] = {}
            new = dict(_slots(array, read))
            for copies, plan in plans.items():
                still = frozenset(slot for slot in copies if slot[1] >= read)
                for slot in still | new.keys():
                    chance = None if slot in still else new[slot]
                    seconds = (plan.seconds if plan else 0.0) + self.read(name, slot[0])
                    if chance is not None:
                        seconds += self.once(name, chance)
                    after = still | {slot}
                    if after not in best or seconds < best[after].seconds:
                        best[after] = _ServedReads(seconds, read, slot, chance, plan)
            plans = {**best}
            if not best:
                return []
        plan = min(filter(None, plans.values()), key=lambda plan: plan.seconds)
        return plan.copies()


_Slot: TypeAlias = tuple[int, int]
"""A level and the action at which the slot ends; that tells two on one level apart."""


def _slots(array: Array, read: int) -> Iterator[tuple[_Slot, Chance]]:
    """The slots for an array at a read, and the last chance before to write there.

    An array that lies there from the start needs no writing: then that is the chance.
    """
    from_the_start = set()
    for chance in array.chances:
        slot = chance.level, chance.until
        if chance.place < read <= chance.until and slot not in from_the_start:
            yield slot, chance
            if chance.place == BEFORE:
                from_the_start.add(slot)


class _ServedReads(NamedTuple):
    """The reads up to one of them, each served by a copy; `chance` where that was new then."""

    seconds: float
    read: int
    slot: _Slot
    chance: Chance | None
    before: "_ServedReads | None"

    def copies(self) -> list[tuple[Chance, tuple[int, ...]]]:
        """The copies with their reads, in the order in which they end."""
        reads: dict[_Slot, list[int]] = {}
        copies: list[tuple[Chance, tuple[int, ...]]] = []
        plan: _ServedReads | None = self
        while plan is not None:
            reads.setdefault(plan.slot, []).append(plan.read)
            if plan.chance is not None:
                copies.append((plan.chance, tuple(reversed(reads.pop(plan.slot)))))
            plan = plan.before
        return copies[::-1]


def placed(needed: ArrayReads, within: Within | None, /) -> Copies:
    """The copies of all arrays of a variable: by `Within`, or else by `latest`.

    `latest` also serves an array that is read while no checkpoint has its version.
    """
    left = np.ones(len(needed.first), np.bool_)
    if within is None or not len(needed.read):
        return latest(needed, left)
    copies, left = _without_choice(needed, within)
    rows: list[tuple[int, Chance, tuple[int, ...]]] = []
    for number, array in zip(np.flatnonzero(left).tolist(), needed.arrays(left), strict=True):
        chosen = within.copies(needed.name, array)
        rows += [(array.version, *copy) for copy in chosen]
        left[number] = not chosen
    return copies + _in_columns(rows) + latest(needed, left)


def _in_columns(rows: Sequence[tuple[int, Chance, tuple[int, ...]]]) -> Copies:
    heads = [(version, *chance[:2]) for version, chance, _ in rows]
    version, place, level = np.array(heads, np.int64).reshape(-1, 3).T
    of = np.repeat(np.arange(len(rows)), [len(reads) for *_, reads in rows])
    reads = np.array([read for *_, reads in rows for read in reads], np.int64)
    return Copies(version, place, level, reads, of)


def _without_choice(needed: ArrayReads, within: Within) -> tuple[Copies, Bools]:
    """Copies by `Within` of arrays that have no choice, and which arrays are left.

    For each of their reads there is one level, or the array is read once and comes from the best of
    them. On one level the times in which an array may lie there follow one another
    (`CheckpointTimes.until`): so there only the last chance before a read may serve it.
    """
    rows, many = needed.chances, len(needed.read)
    order = np.lexsort((rows.place, rows.version, rows.level))
    rows = rows.take(order[(rows.until > rows.place)[order]])
    opens = np.ones(len(rows.place), np.bool_)
    opens[1:] = False
    for column in (rows.level, rows.version, rows.until):
        opens[1:] |= column[1:] != column[:-1]
    slot = np.cumsum(opens) - 1
    # An array that lies there from the start needs no writing: then that is the chance.
    first = np.flatnonzero(opens)[slot]
    chance = np.where(rows.place[first] == BEFORE, first, np.arange(len(first)))

    least, chosen, choices = np.full(many, np.inf), np.full(many, -1), np.zeros(many, np.int64)
    for level in np.unique(rows.level).tolist():
        begin, end = np.searchsorted(rows.level, (level, level + 1))
        last = begin + _before(
            rows.version[begin:end], rows.place[begin:end], needed.version, needed.read
        )
        serves = (last >= begin) & (rows.version[last] == needed.version)
        serves &= rows.until[last] >= needed.read
        from_the_start, new = (
            within.once(needed.name, Chance(place, level)) + within.read(needed.name, level)
            for place in (BEFORE, 0)
        )
        at = chance[last]
        seconds = np.where(rows.place[at] == BEFORE, from_the_start, new)
        better = serves & (seconds < least)
        least[better], chosen[better] = seconds[better], at[better]
        choices += serves
    reads = np.diff(np.append(needed.first, many))
    plain = (choices == 1) | ((choices > 1) & np.repeat(reads == 1, reads))
    done = np.logical_and.reduceat(plain, needed.first)
    taken = np.flatnonzero(np.repeat(done, reads))
    _, begins, of = np.unique(slot[chosen[taken]], return_index=True, return_inverse=True)
    copy = rows.take(chosen[taken[begins]])
    return Copies(copy.version, copy.place, copy.level, needed.read[taken], of), ~done
