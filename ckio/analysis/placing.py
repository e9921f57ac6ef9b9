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
    """A Write of the schedule at which an array can be written, because the state contains it.

    Attributes
    ----------
    place : int
        The number of the action; BEFORE for an array that is stored on the level from the start.
    level : int
        The level to which the schedule writes.
    until : int
        The last action at which the level has a whole checkpoint with the same version. Until then,
        the array fits in the slots for which the schedule was planned.
    """

    place: int
    level: int
    until: int = sys.maxsize


@dataclass(frozen=True, slots=True)
class Chances:
    """The chances of many arrays: the version of each, and the columns of `Chance`."""

    version: Ints
    place: Ints
    level: Ints
    until: Ints

    def take(self, index: Ints | Bools, /) -> "Chances":
        """Return the chances at `index`."""
        return Chances(self.version[index], self.place[index], self.level[index], self.until[index])

    @staticmethod
    def together(some: Iterable["Chances"], /) -> "Chances":
        """Return all chances, ordered by version and action."""
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
    """The arrays of a variable, and their reads, ordered by version and action.

    Attributes
    ----------
    name : str
        The variable.
    version, read : int64 array
        For each read, the version, and the number of the action.
    chances : Chances
        The chances of these versions, in the same order.
    """

    name: str
    version: Ints
    read: Ints
    chances: Chances

    @staticmethod
    def of(name: str, version: Ints, read: Ints, chances: Iterable[Chances], /) -> "ArrayReads":
        """Return reads in order, with their chances; chances of other versions are left out."""
        order, rows = np.lexsort((read, version)), Chances.together(chances)
        asked = rows.take(np.isin(rows.version, version))
        return ArrayReads(name, version[order], read[order], asked)

    @property
    def first(self) -> Ints:
        """The index of the first read of each array."""
        version = self.version
        opens = np.append(True, version[1:] != version[:-1])[: len(version)]
        return np.flatnonzero(opens)

    @property
    def late(self) -> Bools:
        """Whether each array cannot be written before its first read."""
        first, chances = self.first, self.chances
        at = np.searchsorted(chances.version, self.version[first])
        version, place = np.append(chances.version, -1)[at], np.append(chances.place, 0)[at]
        late: Bools = (version != self.version[first]) | (place > self.read[first])
        return late

    @property
    def in_slots(self) -> Bools:
        """Whether each read is in the time of a chance that comes before it."""
        rows = self.chances
        last = _before(rows.version, rows.place, self.version, self.read)
        if not len(rows.place):
            return np.zeros(len(self.read), np.bool_)
        # Different versions get separate ranges of time, so that one pass is sufficient.
        apart = rows.version * (2 + max(rows.until.max(), self.read.max(initial=0)))
        until = np.maximum.accumulate(rows.until + apart) - apart
        there: Bools = (last >= 0) & (rows.version[last] == self.version)
        there &= until[last] >= self.read
        return there

    def arrays(self, which: Bools, /) -> Iterator[Array]:
        """Yield the arrays for which `which` is true."""
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
    """Return one copy of each array in `which`, written at the last chance before its first read.

    An array that is stored on a level from the start is not written again.
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
    """Return, for each read of a version, the last row of this version with a smaller place.

    The rows are ordered by version and place. If there is no such row, the result is a row of
    another version, or -1.
    """
    size = 2 + max(read.max(initial=0), place.max(initial=0))
    last: Ints = np.searchsorted(version * size + place, of * size + read) - 1
    return last


@dataclass(frozen=True, kw_only=True)
class Within:
    """The copies with the fewest seconds in the slots of the whole checkpoints.

    An array is on a level only while a checkpoint with the same version would be. Therefore it
    needs only its part of their slots, and all arrays together fit if the checkpoints fit. An array
    may have to be written again for this. Over the reads in order, with O the present copies,

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
        """Return the seconds to write a copy at this chance and to discard it."""
        level, nbytes = self._level(chance.level), self._bytes(name)
        write = 0.0 if chance.place == BEFORE else level.write(nbytes)
        return write + level.discard(nbytes)

    def read(self, name: str, level: int, /) -> float:
        """Return the seconds to read the variable from a level."""
        return self._level(level).read(self._bytes(name))

    def _level(self, number: int) -> Level:
        levels = self.platform.levels
        if number >= len(levels):
            raise BadInput(
                f"Within: there is no level {number}; the platform has {len(levels)} levels,"
                " numbered from 0"
            )
        return levels[number]

    def _bytes(self, variable: str) -> int:
        if variable not in self.nbytes:
            raise BadInput(f"Within: nbytes does not say how large {variable} is; add its bytes")
        return self.nbytes[variable]

    def copies(self, name: str, array: Array, /) -> list[tuple[Chance, tuple[int, ...]]]:
        """Return the copies of an array, by S, or an empty list if a read has no slot."""
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
"""A level, and the action at which the slot ends. The action distinguishes slots of one level."""


def _slots(array: Array, read: int) -> Iterator[tuple[_Slot, Chance]]:
    """Yield the slots for an array at a read, each with the last chance to write the array there.

    If the array is stored there from the start, it need not be written: this is the chance.
    """
    from_the_start = set()
    for chance in array.chances:
        slot = chance.level, chance.until
        if chance.place < read <= chance.until and slot not in from_the_start:
            yield slot, chance
            if chance.place == BEFORE:
                from_the_start.add(slot)


class _ServedReads(NamedTuple):
    """The reads up to one of them, each with its copy; `chance` is set if the last copy is new."""

    seconds: float
    read: int
    slot: _Slot
    chance: Chance | None
    before: "_ServedReads | None"

    def copies(self) -> list[tuple[Chance, tuple[int, ...]]]:
        """Return the copies with their reads, in the order in which they end."""
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
    """Return the copies of all arrays of a variable: by `Within` or, without it, by `latest`.

    `latest` is also used for an array that is read while no checkpoint has its version.
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
    """Return copies by `Within` of arrays that have no choice, and which arrays remain.

    An array has no choice if each of its reads can use one level only. An array that is read once
    uses the best of its levels. On one level, the times in which an array may be stored follow one
    another (`CheckpointTimes.until`). Therefore only the last chance before a read can be used.
    """
    rows, many = needed.chances, len(needed.read)
    order = np.lexsort((rows.place, rows.version, rows.level))
    rows = rows.take(order[(rows.until > rows.place)[order]])
    opens = np.ones(len(rows.place), np.bool_)
    opens[1:] = False
    for column in (rows.level, rows.version, rows.until):
        opens[1:] |= column[1:] != column[:-1]
    slot = np.cumsum(opens) - 1
    # An array that is stored there from the start need not be written: this is the chance.
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
