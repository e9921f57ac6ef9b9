"""Locks that tell whether a live process has a level, and how they are looked at from outside.

A level that is a directory is locked by flock on it; a level that is one file, by a lock of the
open file on its first byte, because HDF5 itself uses flock. A lock is looked at, never tried, not
even for a moment: a run that begins might find it taken.
"""

import fcntl
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_LOCKS: Final = Path("/proc/locks")
_OF_PROCESS: Final = Path("/proc/self")
_FLOCK: Final = "hhqqi4x"


def first_byte(kind: int, /) -> bytes:
    """Return the lock of this kind (F_WRLCK, F_UNLCK) that files have, for F_OFD_SETLK."""
    return struct.pack(_FLOCK, kind, os.SEEK_SET, 0, 1, 0)


@contextmanager
def opened(path: Path | str, flags: int, /, *, folder: int | None = None) -> Iterator[int]:
    """Open what is at a path, or under a name in an open folder: no link, nothing that waits."""
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        yield fd
    finally:
        os.close(fd)


def names_in(folder: int, /) -> list[str]:
    """Return the names of what is in an open folder."""
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries]


def is_locked(path: Path, /) -> bool:
    """Whether a process has a level or a run here; raises OSError where it cannot be looked at."""
    with opened(path, os.O_RDONLY) as fd:
        if stat.S_ISREG(os.fstat(fd).st_mode):
            seen = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, first_byte(fcntl.F_WRLCK))
            kind: int = struct.unpack(_FLOCK, seen)[0]
            return kind != fcntl.F_UNLCK
        return _has_flock(fd)


def is_flocked(path: Path, /) -> bool:
    """Whether a process has flock on a file or directory; raises OSError as `is_locked` does."""
    with opened(path, os.O_RDONLY) as fd:
        return _has_flock(fd)


def _has_flock(fd: int) -> bool:
    inode = _in_list_of_locks(fd)
    return any(inode in line.split() for line in _LOCKS.read_text().splitlines())


def _in_list_of_locks(fd: int) -> str:
    """Return the device and inode of an open file as the system's list of locks has them.

    They are those of `stat` but where a file system shows other ones: overlayfs, and btrfs.
    """
    status = os.fstat(fd)
    device, inode = f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}", status.st_ino
    lines = (_OF_PROCESS / f"fdinfo/{fd}").read_text().splitlines()
    said = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    inode = int(said.get("ino", inode))  # not said before Linux 5.14
    for line in (_OF_PROCESS / "mountinfo").read_text(errors="replace").splitlines():
        number, _, shown, *_ = line.split()
        if number == said.get("mnt_id"):
            device = shown
    major, minor = map(int, device.split(":"))
    return f"{major:02x}:{minor:02x}:{inode}"
