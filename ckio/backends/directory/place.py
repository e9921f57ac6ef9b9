"""The directory of a level: made where it is missing, and held by one process at a time."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from ckio.backends.files import Files, check_here
from ckio.errors import BadInput, LevelInUse


class Place:
    """A directory that this process holds until `release`; the system lets go when it dies.

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
        """Let go; may be called twice, and in a fork, which then has it open no more."""
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            if self._owner == os.getpid():  # or a fork that lives on would hold it
                fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)

    def remove(self, *, ours: bool) -> None:
        """Remove the directories that were made here, or this one if it is `ours`, and let go.

        What somebody else's files are in stays.
        """
        with suppress(OSError):  # while it is held: nobody finds it and opens what goes away
            for path in self._made or ([self.path] if ours else []):
                path.rmdir()
        self.release()


def _make(path: Path, files: Files, *, sync: bool) -> list[Path]:
    """Make the directory and those above it; returns what was missing, the innermost first."""
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
