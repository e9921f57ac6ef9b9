"""The open files of a directory level: the locked directory, and the files with slots.

A file grows when more slots of its size are needed, and is deleted when none is in use. A damaged
file is not deleted and does not grow.
"""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ckio.backends.contents import Damaged
from ckio.backends.directory import slotfiles
from ckio.backends.directory.format import BLOCK, FileHead, Head
from ckio.backends.files import (
    Files,
    check_here,
    lock_directory,
    make_directories,
    remove_directories,
)
from ckio.backends.freeslots import FreeSlots
from ckio.errors import BadInput, LevelFull


class HeldDirectory:
    """A directory that this process has locked until `release`, or until the process ends.

    Parameters
    ----------
    path
    files
        The system calls that create directories.
    sync
        Whether the names of new directories must be on the device before this continues.

    Attributes
    ----------
    path : Path
    fd : int
        The open directory, on which the lock is.

    Raises
    ------
    BadInput
        The directory cannot be created, written to, or locked.
    LevelInUse
        Another process has locked it.
    """

    def __init__(self, path: Path, files: Files, /, *, sync: bool) -> None:
        self.path = path
        self._owner = os.getpid()
        self._made = _make(path, files, sync=sync)
        try:
            self.fd = lock_directory(path, files)
        except OSError as error:
            raise BadInput(f"directory {path} cannot be locked: {error.strerror}") from None

    def check_here(self) -> None:
        """Raise OSError if the path does not lead to this directory any more."""
        check_here(self.path, self.fd)

    def release(self) -> None:
        """Unlock and close the directory.

        It may be called twice. In a fork it only closes the fork's copy.
        """
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            # A fork shares the lock. Without the explicit unlock, a fork that is still alive would
            # keep the directory locked.
            if self._owner == os.getpid():
                with suppress(OSError):  # a file system without locks
                    fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)

    def remove(self, *, ours: bool) -> None:
        """Remove the directories that this object created, and release the lock.

        If it created none, remove its directory if `ours` is true. A directory that contains other
        files is not removed.
        """
        # The removal comes before the release, so that no other process opens the directory between
        # the two.
        remove_directories(self._made or ([self.path] if ours else []))
        self.release()


def _make(path: Path, files: Files, *, sync: bool) -> list[Path]:
    """Make the directory and its parents; return those that were missing, innermost first."""
    try:
        with suppress(FileNotFoundError, NotADirectoryError):
            (path / slotfiles.name_of(1 << 40)).lstat()  # this name may be too long
        missing = make_directories(path, files, sync=sync)
    except OSError as error:
        raise BadInput(f"{path} cannot be made: {error.strerror}") from None
    except ValueError as error:  # for example a zero byte in the name
        raise BadInput(f"{str(path)!r} cannot be made: {error}") from None
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise BadInput(f"directory {path} is not writable; choose another or change its mode")
    return missing


class FileSlot(NamedTuple):
    """Space for a head of a block and a payload of `size` bytes.

    Attributes
    ----------
    offset : int
        Its offset in the file.
    fd : int
        The open file.
    """

    size: int
    offset: int
    fd: int


@dataclass(slots=True)
class _SlotFile:
    """A file of slots of one size.

    Attributes
    ----------
    end : int
        Offset of the next slot to be made.
    made : int
        Number of slots according to the head of the file.
    sound : bool
        Whether the file is undamaged, so that it may grow.
    """

    path: Path
    fd: int
    end: int = BLOCK
    made: int = 0
    sound: bool = True


class SlotFiles:
    """The slots of a level.

    Parameters
    ----------
    files
        The system calls.
    place
        The locked directory.
    sync
        Whether new files must survive a crash of the machine.

    Attributes
    ----------
    free : FreeSlots
        The free slots, by size.
    """

    def __init__(self, files: Files, place: HeldDirectory, /, *, sync: bool) -> None:
        self.free: FreeSlots[FileSlot] = FreeSlots(unit=BLOCK, make=self._make, drop=self._drop)
        self._system, self._place = files, place
        self._sync = sync
        self._files: dict[int, _SlotFile] = {}

    def find(self) -> Iterator[tuple[FileSlot, Head] | Damaged]:
        """Open the files, yield live and damaged slots, and add the free slots to `free`.

        The files are not changed, because they may be of another run; `settle` changes them later.
        """
        for path, stride in slotfiles.listed(self._place.path):
            yield from self._find(path, stride)
        yield from slotfiles.misnamed(self._system, self._place.path)

    def settle(self) -> None:
        """Repair the files that `find` opened, in case that a killed process left them."""
        for size, file in self._files.items():
            if file.sound:
                self._count(file, BLOCK + size, file.end)

    def evict(self) -> None:
        """Drop the files from the page cache."""
        for file in self._files.values():
            self._system.evict(file.fd)

    def unlink(self) -> bool:
        """Delete the files but leave them open; return whether there were any."""
        for file in self._files.values():
            self._unlink(file)
        return bool(self._files)

    def close(self) -> None:
        """Close the files; it may be called twice."""
        with ExitStack() as ends:  # each file is closed even if another one fails
            for file in self._files.values():
                ends.callback(self._system.close, file.fd)
            self._files.clear()

    def _make(self, size: int, count: int, /, *, ahead: bool) -> list[FileSlot]:
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
        return [FileSlot(size, at, file.fd) for at in range(begin, end, stride)]

    def _count(self, file: _SlotFile, stride: int, end: int) -> None:
        """Write the number of slots up to `end` into the head of a file.

        With this number, a file that was cut off later is recognised.
        """
        made = (end - BLOCK) // stride
        if made > file.made:
            if self._sync:  # the file must never be shorter than its head claims
                self._system.sync(file.fd)
            self._system.write(file.fd, (memoryview(FileHead(stride, made).pack()),), 0)
            file.made = made

    def _create(self, size: int) -> _SlotFile:
        self._place.check_here()
        path = self._place.path / slotfiles.name_of(BLOCK + size)
        is_new = not os.path.lexists(path)
        try:
            file = self._files[size] = _SlotFile(path, self._system.open(path))
            self._claim(file)
        except BaseException:  # also after an interrupt, no new file may remain
            if opened := self._files.pop(size, None):
                self._system.close(opened.fd)
            if is_new:
                with suppress(OSError):
                    self._system.unlink(path)
            raise
        return file

    def _claim(self, file: _SlotFile) -> None:
        """Raise FileExistsError if a new file is not empty, because then it is another program's.

        Otherwise make its name durable.
        """
        if self._system.size(file.fd):
            raise FileExistsError(errno.EEXIST, f"{file.path.name} exists already")
        if self._sync:
            self._system.sync_directory(self._place.path)

    def _drop(self, size: int) -> None:
        file = self._files[size]
        file.end = BLOCK  # if the file cannot be deleted, it is used again from its beginning
        self._unlink(file)
        del self._files[size]
        self._system.close(file.fd)

    def _unlink(self, file: _SlotFile) -> None:
        if self._system.is_named(self._place.fd):  # otherwise the file was deleted already
            self._place.check_here()
            if _is_at(file.path, file.fd):  # otherwise the path leads to another program's file
                self._system.unlink(file.path)

    def _find(self, path: Path, stride: int) -> Iterator[tuple[FileSlot, Head] | Damaged]:
        size = stride - BLOCK
        file = self._files[size] = _SlotFile(path, self._system.open(path))
        file.made, flaw, heads = slotfiles.survey(self._system, file.fd, path, stride)
        if flaw is not None:
            file.sound = False
            yield flaw
        free = []
        for offset, head in heads:
            file.end = offset + stride
            slot = FileSlot(size, offset, file.fd)
            if head is None:
                free.append(slot)
            else:
                yield head if isinstance(head, Damaged) else (slot, head)
        count = (file.end - BLOCK) // stride
        # A flaw counts as a slot that is never free, so that a damaged file is not deleted.
        self.free.put(size, count=count + (not file.sound), free=free)


def _is_at(path: Path, fd: int) -> bool:
    """Return whether a path is the name of this open file, and not a link to it."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(fd))
    except (FileNotFoundError, NotADirectoryError):
        return False
