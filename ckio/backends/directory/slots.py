"""The slots of a directory level, in the files that it has open: made, grown, found, let go.

A file grows while slots of its size are wanted, and is deleted when none is in use. One that was
damaged stays and does not grow.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ckio.backends.contents import Damaged
from ckio.backends.directory import slotfiles
from ckio.backends.directory.format import BLOCK, FileHead, Head
from ckio.backends.directory.place import Place
from ckio.backends.files import Files
from ckio.backends.shelves import Shelves
from ckio.errors import LevelFull


class Slot(NamedTuple):
    """Room for a head of a block and a payload of `size` bytes.

    Attributes
    ----------
    offset : int
        Where it is in its file.
    fd, payload : int
        What its head is written through, and its payload; the same but for direct I/O.
    """

    size: int
    offset: int
    fd: int
    payload: int


@dataclass(slots=True)
class _File:
    """One file of slots.

    Attributes
    ----------
    end : int
        Where the next slot is made.
    made : int
        How many slots its head says that there are.
    sound : bool
        Whether it may grow.
    """

    path: Path
    fd: int
    payload: int
    end: int = BLOCK
    made: int = 0
    sound: bool = True


class Slots:
    """The slots of a level.

    Parameters
    ----------
    files
        The system calls.
    place
        The directory, which is held.
    sync
        Whether what is made must survive the machine failing.
    direct
        Whether payloads go past the page cache.

    Attributes
    ----------
    shelves : Shelves
        Those that are free.
    """

    def __init__(self, files: Files, place: Place, /, *, sync: bool, direct: bool) -> None:
        self.shelves: Shelves[Slot] = Shelves(unit=BLOCK, make=self._make, drop=self._drop)
        self._system, self._place = files, place
        self._sync, self._direct = sync, direct
        self._files: dict[int, _File] = {}

    def find(self) -> Iterator[tuple[Slot, Head] | Damaged]:
        """Open the files there are: what is stored or damaged; free slots go to the shelves.

        Nothing is changed before they are known to be this run's: see `settle`.
        """
        for path, stride in slotfiles.listed(self._place.path):
            yield from self._find(path, stride)
        yield from slotfiles.misnamed(self._system, self._place.path)
        yield from slotfiles.replaced(self._place.path)

    def settle(self) -> None:
        """Mend what a killed process left of the files that `find` found."""
        self._system.unlink(self._place.path / slotfiles.TRIAL)
        for size, file in self._files.items():
            if file.sound:
                self._count(file, BLOCK + size, file.end)

    def evict(self) -> None:
        """Drop the files from the page cache."""
        for file in self._files.values():
            self._system.evict(file.fd)

    def unlink(self) -> bool:
        """Delete the files, which stay open; returns whether there were any."""
        for file in self._files.values():
            self._unlink(file)
        return bool(self._files)

    def close(self) -> None:
        """Close the files; may be called twice."""
        with ExitStack() as ends:  # all of them, whatever fails
            for file in self._files.values():
                ends.callback(self._close, file)
            self._files.clear()

    def _make(self, size: int, count: int, /, *, ahead: bool) -> list[Slot]:
        """Append `count` slots to the file of this size."""
        file = self._files.get(size) or self._create(size)
        if not file.sound:
            raise LevelFull(
                f"{file.path} was damaged and does not grow: save what can be read, then remove it"
            )
        stride, begin = BLOCK + size, file.end
        end = begin + stride * count
        try:
            self._system.extend(file.fd, begin, end - begin, prewrite=ahead)
            self._count(file, stride, end)
        except BaseException:
            if file.made == 0:
                self._drop(size)
            raise
        file.end = end
        return [Slot(size, at, file.fd, file.payload) for at in range(begin, end, stride)]

    def _count(self, file: _File, stride: int, end: int) -> None:
        """Let the head of a file say how many slots there are up to `end`: a cut will be seen."""
        made = (end - BLOCK) // stride
        if made > file.made:
            if self._sync:  # or the file might be shorter than it says
                self._system.sync(file.fd)
            self._system.write(file.fd, (memoryview(FileHead(stride, made).pack()),), 0)
            file.made = made

    def _create(self, size: int) -> _File:
        self._place.check_here()
        path = self._place.path / slotfiles.name_of(BLOCK + size)
        is_new = not os.path.lexists(path)
        try:
            file = self._files[size] = self._open(path)
            self._claim(file)
        except BaseException:  # an interrupt, too, leaves no file behind
            if opened := self._files.pop(size, None):
                self._close(opened)
            if is_new:
                with suppress(OSError):
                    self._system.unlink(path)
            raise
        return file

    def _claim(self, file: _File) -> None:
        """Take a new file; what somebody else put there is not written to."""
        if self._system.size(file.fd):
            raise FileExistsError(errno.EEXIST, f"{file.path.name} is there already")
        if self._sync:
            self._system.sync_directory(self._place.path)

    def _open(self, path: Path) -> _File:
        fd = self._system.open(path)
        try:
            return _File(path, fd, self._system.open_direct(path) if self._direct else fd)
        except BaseException:
            self._system.close(fd)
            raise

    def _close(self, file: _File) -> None:
        with ExitStack() as ends:
            for fd in {file.fd, file.payload}:
                ends.callback(self._system.close, fd)

    def _drop(self, size: int) -> None:
        file = self._files[size]
        file.end = BLOCK  # one that cannot be deleted is used again from its beginning
        self._unlink(file)
        del self._files[size]
        self._close(file)

    def _unlink(self, file: _File) -> None:
        if self._system.is_named(self._place.fd):  # or it is deleted already
            self._place.check_here()
            if _is_at(file.path, file.fd):  # or somebody else has put something there
                self._system.unlink(file.path)

    def _find(self, path: Path, stride: int) -> Iterator[tuple[Slot, Head] | Damaged]:
        size = stride - BLOCK
        file = self._files[size] = self._open(path)
        file.made, flaw, heads = slotfiles.survey(self._system, file.fd, path, stride)
        if flaw is not None:
            file.sound = False
            yield flaw
        free = []
        for offset, head in heads:
            file.end = offset + stride
            slot = Slot(size, offset, file.fd, file.payload)
            if head is None:
                free.append(slot)
            else:
                yield head if isinstance(head, Damaged) else (slot, head)
        count = (file.end - BLOCK) // stride
        # A flaw counts as a slot that is never free: a file that has one is not deleted.
        self.shelves.put(size, count=count + (not file.sound), free=free)


def _is_at(path: Path, fd: int) -> bool:
    """Whether a path names what is open, itself and not by a link."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(fd))
    except (FileNotFoundError, NotADirectoryError):
        return False
