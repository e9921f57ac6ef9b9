"""All arrays of one variable in columns, and their copies: a hundred thousand of them at once."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from ckio.actions import Key, Kind
from ckio.actions.columns import DISCARD, KIND_CODE, READ, WRITE, Actions
from ckio.actions.variables import Bools, Ints
from ckio.analysis.dataflow.placing import BEFORE, Array, Chance, Copy


@dataclass(frozen=True, slots=True)
class Chances:
    """Chances of many arrays: of which version each is, and what a `Chance` says; in any order."""

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
        found = Chances(*map(np.concatenate, columns))
        return found.take(np.lexsort((found.place, found.version)))


@dataclass(frozen=True, slots=True)
class Needed:
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
    def of(name: str, version: Ints, read: Ints, chances: Iterable[Chances], /) -> "Needed":
        """Put in order what is given in any; chances of other versions are left out."""
        order, found = np.lexsort((read, version)), Chances.together(chances)
        asked = found.take(np.isin(found.version, version))
        return Needed(name, version[order], read[order], asked)

    @property
    def first(self) -> Ints:
        """For each array, its first read."""
        return np.flatnonzero(_opens(self.version))

    @property
    def late(self) -> Bools:
        """For each array, whether it cannot be written before its first read."""
        first, chances = self.first, self.chances
        at = np.searchsorted(chances.version, self.version[first])
        version, place = np.append(chances.version, -1)[at], np.append(chances.place, 0)[at]
        late: Bools = (version != self.version[first]) | (place > self.read[first])
        return late

    def arrays(self, which: Bools, /) -> Iterator[Array]:
        """Some of the arrays."""
        first, chances = self.first, self.chances
        ends = np.append(first[1:], len(self.read))[which].tolist()
        first = first[which]
        version = self.version[first]
        since = np.searchsorted(chances.version, version).tolist()
        until = np.searchsorted(chances.version, version, "right").tolist()
        for row in zip(version.tolist(), first.tolist(), ends, since, until, strict=True):
            number, begin, end, low, high = row
            columns = (getattr(chances, it)[low:high].tolist() for it in Chance._fields)
            reads = self.read[begin:end].tolist()
            yield Array(self.name, number, tuple(reads), tuple(map(Chance, *columns)))


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

    @staticmethod
    def made(copies: Iterable[tuple[int, Copy]], /) -> "Copies":
        """Those of single arrays, each with its version."""
        rows = [(version, *copy.chance[:2], copy.reads) for version, copy in copies]
        version, place, level = np.array([row[:3] for row in rows], np.int64).reshape(-1, 3).T
        of = np.repeat(np.arange(len(rows)), [len(row[3]) for row in rows])
        return Copies(
            version, place, level, np.array([it for row in rows for it in row[3]], int), of
        )

    def __add__(self, other: "Copies", /) -> "Copies":
        """These, then `other`."""
        return Copies(
            np.append(self.version, other.version),
            np.append(self.place, other.place),
            np.append(self.level, other.level),
            np.append(self.read, other.read),
            np.append(self.of, other.of + len(self.version)),
        )

    def accesses(self, name: str, kind: Kind, /) -> "Accesses":
        """All that is done with them: written, read, and discarded after the last read."""
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
        return Accesses(np.concatenate((self.place[write], self.read, last)), actions)

    def start(self, name: str, kind: Kind, /) -> Iterator[tuple[int, Key]]:
        """The levels and keys of those that lie there from the start."""
        there = self.place == BEFORE
        rows = zip(self.level[there].tolist(), self.version[there].tolist(), strict=True)
        return ((level, Key(kind, version, name)) for level, version in rows)


_IN_TURN = np.array((WRITE, READ, DISCARD), np.uint8)


@dataclass(frozen=True, slots=True)
class Accesses:
    """Actions, each with the number of the action of the schedule that it goes with."""

    place: Ints
    actions: Actions

    @staticmethod
    def together(some: Iterable["Accesses"], /) -> "Accesses":
        """All of them in the order of their places; at one place as they are given."""
        places, actions = [np.zeros(0, np.int64)], Actions.of(())
        for each in some:
            places.append(each.place)
            actions += each.actions
        place = np.concatenate(places)
        order = np.argsort(place, kind="stable")
        return Accesses(place[order], actions.take(order))


def _opens(version: Ints) -> Bools:
    """Where another version begins."""
    return np.append(True, version[1:] != version[:-1])[: len(version)]
