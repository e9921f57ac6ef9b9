"""What a disk may hold after its machine failed, or its writer was killed: each state, by replay.

A `Recorder` performs a workload for real and keeps its trace; `crashes` and `kills` replay each
prefix of that trace as a failing machine, or a killed process, may leave it. A level that passes
its own `Files` through is tested by opening it in each of these states:

    files = Recorder(tmp_path)
    level = Mine(tmp_path / "level", files=files)
    level.write(key, layout, data)
    files.note(key)                          # acknowledged: no crash from here on may lose it
    for state in crashes(files.trace, most=4):
        state.write(place)                   # then open place / "level" and look for state.notes

The model of a failing machine, stricter than any file system we know: what a sync of a file covered
is there; so is a name once its directory was synced; of everything else any subset is, in any
order, each write whole or cut at sectors of 512 bytes, and room that was added may be missing or
read as zeros. A killed process loses nothing but the rest of the write that it was in.

The idea is that of SQLite's crash tests and of ALICE (Pillai et al., OSDI 2014).
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Final, TypeAlias

from ckio.actions import Buffers
from ckio.backends.files import Files
from ckio.errors import BadInput

SECTOR: Final = 512
"""Bytes that a disk writes whole or not at all."""

PAGE: Final = 4096
"""Bytes that a kill does not tear."""

_ROOT: Final = PurePath()

DIRECTORY: Final = 0
"""What stands for the number of a file where a name is that of a directory."""


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes went to a file, at an offset."""

    where: int
    offset: int
    data: bytes

    def __repr__(self) -> str:
        return f"write {self.where} [{self.offset}, {self.offset + len(self.data)})"


@dataclass(frozen=True, slots=True)
class Extend:
    """Room was added to a file: `nbytes` zeros at `begin`."""

    where: int
    begin: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Cut:
    """A file was cut to at most `nbytes`."""

    where: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Name:
    """In a directory, a name was given to a file; or it was removed: None."""

    where: PurePath
    name: str
    file: int | None


@dataclass(frozen=True, slots=True)
class Sync:
    """A file or directory was synced: what was done to it before operation `since` is on disk."""

    where: int | PurePath
    since: int


@dataclass(frozen=True, slots=True)
class Note:
    """What the workload says to those who look at a state: that something was acknowledged, say."""

    what: object


Change: TypeAlias = Write | Extend | Cut | Name
Operation: TypeAlias = Change | Sync | Note


@dataclass(frozen=True)
class Trace:
    """What was there under a directory (None: a directory), and what was done then."""

    start: Mapping[PurePath, bytes | None]
    operations: Sequence[Operation]


class Recorder(Files):
    """Files that remember what was done to them; several threads may use them.

    Parameters
    ----------
    root
        The directory under which all of it happens; what is there already is on the disk.
    """

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()
        self._start = contents(self._root)
        self._operations: list[Operation] = []
        self._numbers = dict(numbered(self._start))
        self._made = len(self._start)
        self._opened: dict[int, int] = {}

    @property
    def trace(self) -> Trace:
        """What was done until now."""
        return Trace(self._start, tuple(self._operations))

    def note(self, what: object, /) -> None:
        """Leave a word for those who look at the states from here on."""
        self._operations.append(Note(what))

    def open(self, path: Path, /, *, create: bool = True) -> int:
        inside = self._inside(path)
        if inside not in self._numbers and path.exists():
            raise BadInput(f"{path} was made by something else than this recorder: it cannot know")
        fd = super().open(path, create=create)
        if inside not in self._numbers:
            self._made += 1
            self._name(inside, self._made)
        self._opened[fd] = self._numbers[inside]
        return fd

    def close(self, fd: int, /) -> None:
        self._opened.pop(fd, None)
        super().close(fd)

    def make_directory(self, path: Path, /) -> None:
        super().make_directory(path)
        if self._inside(path) not in self._numbers:
            self._name(self._inside(path), DIRECTORY)

    def rename(self, old: Path, new: Path, /) -> None:
        super().rename(old, new)
        self._name(self._inside(new), self._numbers[self._inside(old)])
        self._name(self._inside(old), None)

    def unlink(self, path: Path, /) -> None:
        super().unlink(path)
        if self._inside(path) in self._numbers:
            self._name(self._inside(path), None)

    def pwritev(self, fd: int, data: Buffers, offset: int, /) -> int:
        done = super().pwritev(fd, data, offset)
        written = b"".join(data)[:done]
        self._operations.append(Write(self._opened[fd], offset, written))
        return done

    def extend(self, fd: int, begin: int, nbytes: int, /, *, prewrite: bool) -> None:
        size = self.size(fd)
        self._operations.append(Extend(self._opened[fd], begin, nbytes))
        try:
            super().extend(fd, begin, nbytes, prewrite=prewrite)
        except BaseException:
            self._operations.append(Cut(self._opened[fd], size))
            raise

    def cut(self, fd: int, nbytes: int, /) -> None:
        super().cut(fd, nbytes)
        self._operations.append(Cut(self._opened[fd], nbytes))

    def sync(self, fd: int, /) -> None:
        since = len(self._operations) + 1  # what another thread does meanwhile is not covered
        super().sync(fd)
        self._operations.append(Sync(self._opened[fd], since))

    def sync_directory(self, path: Path, /) -> None:
        since = len(self._operations) + 1
        super().sync_directory(path)
        self._operations.append(Sync(self._inside(path), since))

    def _inside(self, path: Path) -> PurePath:
        return PurePath(path.absolute().relative_to(self._root))

    def _name(self, path: PurePath, number: int | None) -> None:
        if number is None:
            del self._numbers[path]
        else:
            self._numbers[path] = number
        self._operations.append(Name(path.parent, path.name, number))


def contents(root: Path, /) -> dict[PurePath, bytes | None]:
    """The files under a directory, as a `State` has them."""
    return {
        PurePath(path.relative_to(root)): None if path.is_dir() else path.read_bytes()
        for path in sorted(root.rglob("*"))
    }


def numbered(start: Mapping[PurePath, bytes | None], /) -> list[tuple[PurePath, int]]:
    """A number for each file there is, from 1; that of directories."""
    return [
        (path, DIRECTORY if data is None else number)
        for number, (path, data) in enumerate(start.items(), 1)
    ]


@dataclass(frozen=True)
class State:
    """A state that a disk may be in.

    Attributes
    ----------
    files : mapping
        The bytes of each file by its path, relative to the recorder's root; None: a directory.
    notes : tuple
        What the workload had noted by then.
    story : str
        After which operation, and what was lost.
    """

    files: Mapping[PurePath, bytes | None]
    notes: tuple[object, ...]
    story: str

    def write(self, root: Path, /) -> None:
        """Make these files under `root`, a directory that is empty."""
        for path in sorted(self.files):
            data = self.files[path]
            if data is None:
                (root / path).mkdir()
            else:
                (root / path).write_bytes(data)


def crashes(trace: Trace, /, *, most: int, seed: int = 0) -> Iterator[State]:
    """The states that a disk may be in after the machine failed during this.

    Parameters
    ----------
    most
        How many states to try after each operation by chance, besides those in which all that was
        not synced is there, or is lost: one change lost, cut or alone, or any of them in any order.
    seed
        What the chance depends on.

    Yields
    ------
    State
        One after the other, and not the same twice after the same note.
    """
    dice = random.Random(seed)
    seen: set[object] = set()
    noted = 0
    for disk, last, notes in _prefixes(trace):
        if len(notes) > noted:
            seen.clear()
            noted = len(notes)
        for kept, loss in _losses(disk.pending, most, dice):
            files = disk.after(kept)
            sight = frozenset((path, hash(data)) for path, data in files.items())
            if sight not in seen:
                seen.add(sight)
                yield State(files, notes, f"after {last}: {loss}")


def kills(trace: Trace, /) -> Iterator[State]:
    """The states that files may be in after the process was killed during this."""
    for disk, last, notes in _prefixes(trace):
        yield State(disk.after(disk.pending), notes, f"after {last}")
        if isinstance(last[1], Write | Extend):
            for head, _ in _halves(last[1], PAGE):
                files = disk.after([*disk.pending[:-1], head])
                yield State(files, notes, f"after {last}, cut to {head}")


class _Disk:
    """What is surely on a disk, and the changes that may be."""

    def __init__(self, start: Mapping[PurePath, bytes | None]) -> None:
        numbers = numbered(start)
        self._pending: list[tuple[int, Change]] = []
        self._names = dict(numbers)
        self._bytes = {number: start[path] or b"" for path, number in numbers if number}

    @property
    def pending(self) -> list[Change]:
        """What was done and may be lost."""
        return [change for _, change in self._pending]

    def do(self, time: int, operation: Operation) -> None:
        match operation:
            case Sync(where, since):
                covered = [(t, c) for t, c in self._pending if c.where == where and t < since]
                self._names, self._bytes = self._with(change for _, change in covered)
                self._pending = [pair for pair in self._pending if pair not in covered]
            case Note():
                pass
            case _:
                self._pending.append((time, operation))

    def after(self, changes: Iterable[Change]) -> dict[PurePath, bytes | None]:
        """The files that are there once these changes are."""
        names, data = self._with(changes)
        return {
            path: None if number == DIRECTORY else data.get(number, b"")
            for path, number in names.items()
            if all(names.get(parent) == DIRECTORY for parent in path.parents if parent != _ROOT)
        }

    def _with(self, changes: Iterable[Change]) -> tuple[dict[PurePath, int], dict[int, bytes]]:
        names, touched = dict(self._names), dict[int, bytearray]()
        for change in changes:
            if isinstance(change, Name):
                _rename(names, change)
                continue
            if change.where not in touched:
                touched[change.where] = bytearray(self._bytes.get(change.where, b""))
            _change(touched[change.where], change)
        return names, self._bytes | {number: bytes(data) for number, data in touched.items()}


def _rename(names: dict[PurePath, int], change: Name) -> None:
    path = change.where / change.name
    if change.file is None:
        names.pop(path, None)
    else:
        names[path] = change.file


def _change(data: bytearray, change: Write | Extend | Cut) -> None:
    match change:
        case Write(_, offset, written):
            data.extend(bytes(max(0, offset - len(data))))
            data[offset : offset + len(written)] = written
        case Extend(_, begin, nbytes):
            data.extend(bytes(max(0, begin + nbytes - len(data))))
        case Cut(_, nbytes):
            del data[nbytes:]


def _prefixes(
    trace: Trace,
) -> Iterator[tuple[_Disk, tuple[int, Operation], tuple[object, ...]]]:
    """The disk after each operation, that operation with its number, and the notes until then."""
    disk, notes = _Disk(trace.start), tuple[object, ...]()
    yield disk, (0, Note("the start")), notes
    for number, operation in enumerate(trace.operations, 1):
        disk.do(number, operation)
        if isinstance(operation, Note):
            notes = (*notes, operation.what)
        yield disk, (number, operation), notes


def _losses(
    pending: Sequence[Change], most: int, dice: random.Random
) -> Iterator[tuple[Sequence[Change], str]]:
    """What may be there of the changes that no sync covers, and how that is told."""
    yield pending, "all is there"
    yield (), f"{len(pending)} changes are lost"
    for _ in range(most if pending else 0):
        yield _by_chance(pending, dice)


def _by_chance(pending: Sequence[Change], dice: random.Random) -> tuple[Sequence[Change], str]:
    """One change cut, lost, or alone there; or some of all, in any order."""
    at = dice.randrange(len(pending))
    change, parts = pending[at], list(_parts(pending[at]))
    match dice.randrange(3):
        case 0:
            part = [dice.choice(parts)] if parts else []
            return [*pending[:at], *part, *pending[at + 1 :]], f"{change} is cut or lost"
        case 1:
            kept = _perhaps_cut(change, dice)
            return [kept], f"{kept} alone is there"
        case _:
            return _some(pending, dice)


def _some(pending: Sequence[Change], dice: random.Random) -> tuple[Sequence[Change], str]:
    """Some changes by chance, some of them cut, in any order."""
    some = [_perhaps_cut(change, dice) for change in pending if dice.random() < 0.5]
    dice.shuffle(some)
    return some, f"{len(some)} of {len(pending)} changes are there: {some}"


def _perhaps_cut(change: Change, dice: random.Random) -> Change:
    parts = list(_parts(change))
    return dice.choice(parts) if parts and dice.random() < 0.3 else change


def _parts(change: Change) -> Iterator[Change]:
    """What may be there of a change without the rest."""
    for halves in _halves(change, SECTOR):
        yield from halves
    if isinstance(change, Write):  # its room, without its bytes
        yield Extend(change.where, change.offset, len(change.data))


def _halves(change: Change, unit: int) -> Iterator[tuple[Change, Change]]:
    """The two parts into which a change of a file can be cut at each multiple of `unit` bytes."""
    match change:
        case Write(where, offset, data):
            for at in range(offset // unit * unit + unit, offset + len(data), unit):
                head, tail = data[: at - offset], data[at - offset :]
                yield Write(where, offset, head), Write(where, at, tail)
        case Extend(where, begin, nbytes):
            end = begin + nbytes
            for at in range(begin // unit * unit + unit, end, unit):
                yield Extend(where, begin, at - begin), Extend(where, at, end - at)
        case Cut() | Name():
            pass
