"""What is done to the files of a level, operation by operation: a recorder and its trace."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Final, TypeAlias

from ckio.actions import Buffers
from ckio.backends.files import Files
from ckio.errors import BadInput

DIRECTORY: Final = 0
"""What stands for the number of a file where a name is that of a directory."""


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes went to a file, at an offset."""

    where: int
    offset: int
    data: bytes


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

    def open(self, path: Path, /) -> int:
        inside = self._inside(path)
        if inside not in self._numbers and path.exists():
            raise BadInput(f"{path} was made by something else than this recorder: it cannot know")
        fd = super().open(path)
        if inside not in self._numbers:
            self._made += 1
            self._name(inside, self._made)
        self._opened[fd] = self._numbers[inside]
        return fd

    def open_direct(self, path: Path, /) -> int:
        fd = super().open_direct(path)
        self._opened[fd] = self._numbers[self._inside(path)]
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


def told(operation: Operation, /) -> str:
    """An operation in a few words."""
    match operation:
        case Write(where, offset, data):
            return f"write {where} [{offset}, {offset + len(data)})"
        case Extend(where, begin, nbytes):
            return f"extend {where} [{begin}, {begin + nbytes})"
        case Cut(where, nbytes):
            return f"cut {where} to {nbytes}"
        case Name(where, name, file):
            return f"remove {where / name}" if file is None else f"name {where / name}"
        case Sync(where, _):
            return f"sync {where}"
        case Note(what):
            return f"note {what}"
