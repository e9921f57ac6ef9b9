"""Every system call that a durable level makes on its files.

One small object, so that a test can record, cut short or refuse any of them. What is asked for is
done in full, or OSError is raised; `failure` says which StorageError that is.
"""

import errno
import fcntl
import os
import stat
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from ckio.actions import Buffers
from ckio.backends.buffers import TILE
from ckio.backends.links import links
from ckio.errors import BadInput, LevelFull, StorageError

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""The errors that mean: no room."""

DURABILITIES: Final = {"process": False, "fdatasync": True, "direct": True}
"""What a checkpoint survives, its process or also the machine, and whether that takes a sync.

"direct" is as "fdatasync", with the payload past the page cache; not every level has it.
"""

_CAREFUL: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""Follow no link, and wait for nobody at the other end of a pipe."""

_NO_LINKS: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
"""What file systems say that give a file one name only."""

_GET_FLAGS, _SET_FLAGS, _IN_PLACE = 0x80086601, 0x40086602, 0x00800000  # FS_NOCOW_FL
_FLAGS: Final = struct.Struct("I4x")

_NO_NAME: Final = frozenset({errno.ENOENT, errno.ESTALE})
"""What file systems of programs, and of other machines, say of an open file that was deleted."""

_LARGEST: Final = (1 << 63) - 1
"""Bytes that a file may have; system calls take no larger number."""

_ZEROS = memoryview(bytes(TILE))


def takes_sync(durability: str, known: Iterable[str] = ("process", "fdatasync"), /) -> bool:
    """Whether a level of this durability syncs at each commit; BadInput for one it has not."""
    if durability not in known:
        raise BadInput(f"durability {durability!r} is not known; known: {', '.join(known)}")
    return DURABILITIES[durability]


class Files:
    """The operating system's files."""

    def open(self, path: Path, /) -> int:
        """Open a regular file for reading and writing; it is made if it is not there.

        A file that is empty is from now on written over in place, where that is not so anyway.
        """
        fd = _regular(path, os.open(path, os.O_RDWR | os.O_CREAT | _CAREFUL, 0o666))
        if os.fstat(fd).st_size == 0:
            _write_in_place(fd)
        return fd

    def open_to_read(self, path: Path, /) -> int:
        """Open a regular file that is there, for looking at it only."""
        return _regular(path, os.open(path, os.O_RDONLY | _CAREFUL))

    def open_direct(self, path: Path, /) -> int:
        """Open a file that is there a second time, to go past the page cache.

        Raises OSError with EINVAL where the file system has no direct I/O.
        """
        return os.open(path, os.O_RDWR | os.O_DIRECT | _CAREFUL)

    def make_directory(self, path: Path, /) -> None:
        """Make a directory whose parent is there; one that is there already will do."""
        path.mkdir(exist_ok=True)

    def rename(self, old: Path, new: Path, /) -> None:
        """Give a file another name, which nothing has yet; raises FileExistsError."""
        try:
            os.link(old, new)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            if os.path.lexists(new):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
            old.rename(new)  # of two who get here at once, one finds that its file has no name
        else:
            old.unlink()

    def close(self, fd: int, /) -> None:
        os.close(fd)

    def unlink(self, path: Path, /) -> None:
        path.unlink(missing_ok=True)

    def pwritev(self, fd: int, data: Buffers, offset: int, /) -> int:
        """Write some of `data`; returns how many bytes."""
        if len(data) == 1:  # half a microsecond less
            return os.pwrite(fd, data[0], offset)
        return os.pwritev(fd, data, offset)

    def preadv(self, fd: int, into: Buffers, offset: int, /) -> int:
        """Fill some of `into`; returns how many bytes, 0 where the file ends."""
        return os.preadv(fd, into, offset)

    def write(self, fd: int, data: Buffers, offset: int, /) -> None:
        """Write all of `data`, in as many buffers as one call takes, at `offset`."""
        left = sum(map(len, data))
        while left:
            done = self.pwritev(fd, data, offset)
            if done == left:
                return
            if done == 0:
                raise OSError(errno.EIO, "a write wrote nothing")
            data, offset, left = _after(data, done), offset + done, left - done

    def read(self, fd: int, into: Buffers, offset: int, /) -> None:
        """Fill `into`, as many buffers as one call takes; raises EOFError where the file ends."""
        left = sum(map(len, into))
        while left:
            done = self.preadv(fd, into, offset)
            if done == left:
                return
            if done == 0:
                raise EOFError
            into, offset, left = _after(into, done), offset + done, left - done

    def sync(self, fd: int, /) -> None:
        """Wait until what was written is on the device."""
        os.fdatasync(fd)

    def sync_directory(self, path: Path, /) -> None:
        """Wait until the names that were made or removed in a directory are on the device."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def extend(self, fd: int, begin: int, nbytes: int, /, *, prewrite: bool) -> None:
        """Make room at `begin`, in the file or at its end; what does not fit leaves it as it was.

        The first write into room that was only promised is many times slower than the next:
        `prewrite` makes it here.
        """
        end = begin + nbytes
        if end > _LARGEST:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        size = self.size(fd)
        try:
            os.posix_fallocate(fd, begin, nbytes)
            if prewrite:
                while begin < end:
                    room = TILE - begin % TILE  # as payloads are cut later
                    self.write(fd, [_ZEROS[: min(room, end - begin)]], begin)
                    begin += room
        except BaseException:
            os.ftruncate(fd, size)
            raise

    def size(self, fd: int, /) -> int:
        """Bytes of a file."""
        return os.fstat(fd).st_size

    def is_named(self, fd: int, /) -> bool:
        """Whether a file still has a name; one that was deleted is gone when it is closed."""
        try:
            return links(fd) > 0
        except OSError as error:
            if error.errno not in _NO_NAME:
                raise
            return False

    def cut(self, fd: int, nbytes: int, /) -> None:
        """Give back to the disk what lies behind the first `nbytes` of a file."""
        os.ftruncate(fd, nbytes)

    def occupied(self, fd: int, begin: int, stride: int, /) -> Iterator[int]:
        """The numbers of the slots into which something was written, without visiting holes.

        The first one is at `begin`.
        """
        size = os.fstat(fd).st_size - begin
        number = 0
        while (number + 1) * stride <= size:
            try:
                number = (os.lseek(fd, begin + number * stride, os.SEEK_DATA) - begin) // stride
            except OSError as error:
                if error.errno == errno.ENXIO:  # nothing but holes from here
                    return
                raise
            if (number + 1) * stride <= size:
                yield number
            number += 1

    def evict(self, fd: int, /) -> None:
        """Make the next read of a file come from the device, as far as the system will."""
        os.fdatasync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def free(self, path: Path, /) -> int:
        """Bytes that are free under `path`."""
        system = os.statvfs(path)
        return system.f_bavail * system.f_frsize


def failure(
    files: Files, path: Path, error: OSError, what: str, /, *, needed: int | None = None
) -> StorageError:
    """The error to raise when `what` failed, for which `needed` bytes had to fit under `path`."""
    text = f"{what} failed: {error.strerror or error}"
    if error.errno not in FULL:
        return StorageError(text)
    try:
        free = str(files.free(path))
    except OSError:
        free = "an unknown number of"
    need = "" if needed is None else f"{needed} bytes are needed, "
    return LevelFull(f"{text}; {need}{free} bytes are free on its file system")


def check_here(path: Path, fd: int, /) -> None:
    """Raise OSError where the path of what is open leads elsewhere, or nowhere.

    What is made or deleted by its name then would be somebody else's.
    """
    with suppress(FileNotFoundError, NotADirectoryError):
        if os.path.samestat(os.fstat(fd), path.stat()):
            return
    raise OSError(errno.ESTALE, "it was moved, deleted, or unmounted")


def _regular(path: Path, fd: int) -> int:
    """The same, if it is open on a regular file; raises OSError for a pipe, a device, and so on."""
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return fd
    os.close(fd)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise OSError(errno.EINVAL, f"{path.name} is no regular file")


def _write_in_place(fd: int) -> None:
    """Let an empty file have neither copies on write nor compression, if it would: on btrfs.

    There each write takes new room, and room that was promised to a file serves once: a disk that
    got full would refuse to write over what is there.
    """
    with suppress(OSError):  # others have nothing of the kind
        (flags,) = _FLAGS.unpack(fcntl.ioctl(fd, _GET_FLAGS, bytes(_FLAGS.size)))
        fcntl.ioctl(fd, _SET_FLAGS, _FLAGS.pack(flags | _IN_PLACE))


def _after(data: Buffers, done: int) -> Buffers:
    """What is left of `data` after its first `done` bytes."""
    for number, view in enumerate(data):
        if done < view.nbytes:
            return [view[done:], *data[number + 1 :]]
        done -= view.nbytes
    return []
