"""The open files of a directory level: the directory that one process holds, and slots in files.

A file grows while slots of its size are wanted, and is deleted when none is in use. One that was
damaged stays and does not grow.
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
from ckio.backends.files import Files, check_here
from ckio.backends.freeslots import FreeSlots
from ckio.errors import BadInput, LevelFull, LevelInUse


class HeldDirectory:
    """A directory that this process holds until `release`, or until it dies.

    Parameters
    ----------
    path
    files
        The system calls that make directories.
    sync
        Whether the names of directories that are made must be on the device.

    Attributes
    ----------
    path : Path
    fd : int
        The open directory, which carries the lock.

    Raises
    ------
    BadInput
        The directory cannot be made, written to, or locked.
    LevelInUse
        Another process holds it.
    """

    def __init__(self, path: Path, files: Files, /, *, sync: bool) -> None:
        self.path = path
        self._owner = os.getpid()
        self._made = _make(path, files, sync=sync)
        self.fd = _lock(path, files)

    def check_here(self) -> None:
        """Raise OSError where its path leads elsewhere, or nowhere."""
        check_here(self.path, self.fd)

    def release(self) -> None:
        """Release it; may be called twice, and in a fork, which then has it open no more."""
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            if self._owner == os.getpid():  # or a fork that lives on would hold it
                fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)

    def remove(self, *, ours: bool) -> None:
        """Remove the directories that were made here, or this one if it is `ours`, and release it.

        A directory with somebody else's files in it stays.
        """
        with suppress(OSError):  # while it is held: nobody finds it and opens what goes away
            for path in self._made or ([self.path] if ours else []):
                path.rmdir()
        self.release()


def _make(path: Path, files: Files, *, sync: bool) -> list[Path]:
    """Make the directory and those above it; returns those that were missing, innermost first."""
    missing = []
    try:
        for parent in (path, *path.parents):
            if parent.is_dir():
                break
            missing.append(parent)
        for directory in reversed(missing):
            files.make_directory(directory)
            if sync:
                files.sync_directory(directory.parent)
    except OSError as error:
        raise BadInput(f"directory {path} cannot be made: {error.strerror}") from None
    except ValueError as error:  # no system call takes such a name
        raise BadInput(f"directory {str(path)!r} cannot be made: {error}") from None
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise BadInput(f"directory {path} is not writable; choose another or change its mode")
    return missing


def _lock(path: Path, files: Files) -> int:
    fd = -1
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not files.is_named(fd):  # whoever held it has just removed it
            raise BlockingIOError
    except OSError as error:
        if fd >= 0:
            os.close(fd)
        if isinstance(error, BlockingIOError):
            raise LevelInUse(
                f"directory {path} is in use by another process; wait for it, or use another one"
            ) from None
        raise BadInput(f"directory {path} cannot be locked: {error.strerror}") from None
    return fd


class FileSlot(NamedTuple):
    """Space for a head of a block and a payload of `size` bytes.

    Attributes
    ----------
    offset : int
        Where it is in its file.
    fd, payload : int
        File descriptors for its head, and for its payload; the same but for direct I/O.
    """

    size: int
    offset: int
    fd: int
    payload: int


@dataclass(slots=True)
class _SlotFile:
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


class SlotFiles:
    """The slots of a level.

    Parameters
    ----------
    files
        The system calls.
    place
        The directory, which is held.
    sync
        Whether new files must survive the machine failing.
    direct
        Whether payloads go past the page cache.

    Attributes
    ----------
    free : FreeSlots
        Those that are free, by size.
    """

    def __init__(self, files: Files, place: HeldDirectory, /, *, sync: bool, direct: bool) -> None:
        self.free: FreeSlots[FileSlot] = FreeSlots(unit=BLOCK, make=self._make, drop=self._drop)
        self._system, self._place = files, place
        self._sync, self._direct = sync, direct
        self._files: dict[int, _SlotFile] = {}

    def find(self) -> Iterator[tuple[FileSlot, Head] | Damaged]:
        """Open the files; yields what is stored or damaged, and adds the free slots.

        Nothing is changed before the files are known to be this run's: see `settle`.
        """
        for path, stride in slotfiles.listed(self._place.path):
            yield from self._find(path, stride)
        yield from slotfiles.misnamed(self._system, self._place.path)
        yield from slotfiles.replaced(self._place.path)

    def settle(self) -> None:
        """Mend the files that `find` opened and a killed process left."""
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
        return [FileSlot(size, at, file.fd, file.payload) for at in range(begin, end, stride)]

    def _count(self, file: _SlotFile, stride: int, end: int) -> None:
        """Let the head of a file say how many slots there are up to `end`: a cut will be seen."""
        made = (end - BLOCK) // stride
        if made > file.made:
            if self._sync:  # or the file might be shorter than it says
                self._system.sync(file.fd)
            self._system.write(file.fd, (memoryview(FileHead(stride, made).pack()),), 0)
            file.made = made

    def _create(self, size: int) -> _SlotFile:
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

    def _claim(self, file: _SlotFile) -> None:
        """Take a new file; raises FileExistsError where it is somebody else's."""
        if self._system.size(file.fd):
            raise FileExistsError(errno.EEXIST, f"{file.path.name} is there already")
        if self._sync:
            self._system.sync_directory(self._place.path)

    def _open(self, path: Path) -> _SlotFile:
        fd = self._system.open(path)
        try:
            return _SlotFile(path, fd, self._system.open_direct(path) if self._direct else fd)
        except BaseException:
            self._system.close(fd)
            raise

    def _close(self, file: _SlotFile) -> None:
        with ExitStack() as ends:
            for fd in {file.fd, file.payload}:
                ends.callback(self._system.close, fd)

    def _drop(self, size: int) -> None:
        file = self._files[size]
        file.end = BLOCK  # one that cannot be deleted is used again from its beginning
        self._unlink(file)
        del self._files[size]
        self._close(file)

    def _unlink(self, file: _SlotFile) -> None:
        if self._system.is_named(self._place.fd):  # or it is deleted already
            self._place.check_here()
            if _is_at(file.path, file.fd):  # or somebody else has put something there
                self._system.unlink(file.path)

    def _find(self, path: Path, stride: int) -> Iterator[tuple[FileSlot, Head] | Damaged]:
        size = stride - BLOCK
        file = self._files[size] = self._open(path)
        file.made, flaw, heads = slotfiles.survey(self._system, file.fd, path, stride)
        if flaw is not None:
            file.sound = False
            yield flaw
        free = []
        for offset, head in heads:
            file.end = offset + stride
            slot = FileSlot(size, offset, file.fd, file.payload)
            if head is None:
                free.append(slot)
            else:
                yield head if isinstance(head, Damaged) else (slot, head)
        count = (file.end - BLOCK) // stride
        # A flaw counts as a slot that is never free: a file that has one is not deleted.
        self.free.put(size, count=count + (not file.sound), free=free)


def _is_at(path: Path, fd: int) -> bool:
    """Return whether a path names an open file, itself and not by a link."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(fd))
    except (FileNotFoundError, NotADirectoryError):
        return False
