"""Files for durable levels: system calls, locks that other processes can see, atomic writes.

All system calls go through one small object, `Files`, so that a test can record, shorten or refuse
any of them. Each method of `Files` does the whole task or raises OSError; `failure` turns this
OSError into a StorageError.
"""

import errno
import fcntl
import gc
import logging
import mmap
import os
import stat
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from ckio.actions import Buffers
from ckio.errors import BadInput, LevelFull, LevelInUse, StorageError

log = logging.getLogger("ckio")

TILE = 1 << 20
"""Bytes per tile: small enough that a tile is still in the cache when it is used again."""

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""The system's errors for a full disk, an exhausted quota or a file that is too large."""

DURABILITIES: Final = {"process": False, "fdatasync": True, "direct": True}
"""The durabilities of a level, and whether each commit waits for the device (a sync).

With "process", a checkpoint survives the end of its process; with "fdatasync", also a crash of the
machine. "direct" is "fdatasync" with payloads that bypass the page cache; not every level offers
it.
"""

_NO_LINK: Final = os.O_CLOEXEC | os.O_NOFOLLOW
"""Flags for opening a file without following links."""

_NO_LINKS: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
"""Errors of file systems on which a file can have only one name."""

_LARGEST: Final = (1 << 63) - 1
"""Maximum size of a file in bytes; system calls accept no larger number."""

_ZEROS = memoryview(bytes(TILE))


def takes_sync(durability: str, known: Iterable[str] = ("process", "fdatasync"), /) -> bool:
    """Return whether a level of this durability syncs at each commit.

    Raises BadInput if the durability is not one of `known`.
    """
    if durability not in known:
        raise BadInput(f"durability {durability!r} is not known; known: {', '.join(known)}")
    return DURABILITIES[durability]


class Files:
    """System calls on files."""

    def open(self, path: Path, /, *, create: bool = True) -> int:
        """Open a file for reading and writing; create it if it does not exist.

        Without `create`, raises FileNotFoundError if it does not exist.
        """
        return os.open(path, os.O_RDWR | _NO_LINK | (os.O_CREAT if create else 0), 0o666)

    def open_to_read(self, path: Path, /) -> int:
        """Open an existing file for reading only."""
        return os.open(path, os.O_RDONLY | _NO_LINK)

    def has_direct(self, place: Path, /) -> bool:
        """Return whether a page can be written to a directory with direct I/O.

        A file without a name is used. A file system that has no such files gets the benefit of the
        doubt, and a full one, too.
        """
        try:
            fd = os.open(place, os.O_RDWR | os.O_TMPFILE | os.O_DIRECT | os.O_CLOEXEC)
            try:
                os.pwrite(fd, mmap.mmap(-1, mmap.PAGESIZE), 0)
            finally:
                os.close(fd)
        except OSError as error:
            return error.errno != errno.EINVAL
        return True

    def set_direct(self, fd: int, on: bool, /) -> None:
        """Switch direct I/O, which bypasses the page cache, on or off for an open file."""
        flags = fcntl.fcntl(fd, fcntl.F_GETFL)
        fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_DIRECT if on else flags & ~os.O_DIRECT)

    def make_directory(self, path: Path, /) -> None:
        """Create a directory in an existing parent; it may exist already."""
        path.mkdir(exist_ok=True)

    def rename(self, old: Path, new: Path, /) -> None:
        """Rename a file; raises FileExistsError if the new name is in use."""
        try:
            os.link(old, new)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            if os.path.lexists(new):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
            # If two processes arrive here at the same time, the second overwrites the file of the
            # first, which then notices that its file has no name.
            old.rename(new)
        else:
            old.unlink()

    def close(self, fd: int, /) -> None:
        os.close(fd)

    def unlink(self, path: Path, /) -> None:
        path.unlink(missing_ok=True)

    def pwritev(self, fd: int, data: Buffers, offset: int, /) -> int:
        """Write the beginning of `data`; return the number of bytes written."""
        if len(data) == 1:  # half a microsecond faster
            return os.pwrite(fd, data[0], offset)
        return os.pwritev(fd, data, offset)

    def preadv(self, fd: int, into: Buffers, offset: int, /) -> int:
        """Fill the beginning of `into`; return the number of bytes, 0 at the end of the file."""
        return os.preadv(fd, into, offset)

    def write(self, fd: int, data: Buffers, offset: int, /) -> None:
        """Write all of `data` at `offset`; it may have at most SC_IOV_MAX buffers."""
        left = sum(map(len, data))
        while left:
            done = self.pwritev(fd, data, offset)
            if done == left:
                return
            if done == 0:
                raise OSError(errno.EIO, "a write wrote nothing")
            data, offset, left = _after(data, done), offset + done, left - done

    def read(self, fd: int, into: Buffers, offset: int, /) -> None:
        """Fill `into`, which may have at most SC_IOV_MAX buffers.

        Raises EOFError if the file ends before.
        """
        left = sum(map(len, into))
        while left:
            done = self.preadv(fd, into, offset)
            if done == left:
                return
            if done == 0:
                raise EOFError
            into, offset, left = _after(into, done), offset + done, left - done

    def sync(self, fd: int, /) -> None:
        """Wait until all written bytes are on the device."""
        os.fdatasync(fd)

    def sync_directory(self, path: Path, /) -> None:
        """Wait until the names that were created or removed in a directory are on the device."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def extend(self, fd: int, begin: int, nbytes: int, /, *, prewrite: bool) -> None:
        """Allocate `nbytes` from `begin`, which is in the file or at its end.

        An error leaves the size of the file unchanged. The first write into newly allocated space
        is many times slower than the next one; with `prewrite`, this first write happens here.
        """
        end = begin + nbytes
        if end > _LARGEST:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        size = self.size(fd)
        try:
            os.posix_fallocate(fd, begin, nbytes)
            if prewrite:
                while begin < end:
                    left = TILE - begin % TILE  # payloads are cut at the same offsets later
                    self.write(fd, [_ZEROS[: min(left, end - begin)]], begin)
                    begin += left
        except BaseException:
            os.ftruncate(fd, size)
            raise

    def size(self, fd: int, /) -> int:
        """Return the size of a file in bytes."""
        return os.fstat(fd).st_size

    def is_named(self, fd: int, /) -> bool:
        """Return whether an open file still has a name, that is, whether it was not deleted."""
        return os.fstat(fd).st_nlink > 0

    def cut(self, fd: int, nbytes: int, /) -> None:
        """Shorten a file to `nbytes`."""
        os.ftruncate(fd, nbytes)

    def bytes_at(self, fd: int, offset: int, nbytes: int, /) -> bytes:
        """Return `nbytes` of a file from `offset`; raises EOFError if the file ends before."""
        data = bytearray(nbytes)
        self.read(fd, [memoryview(data)], offset)
        return bytes(data)

    def occupied(self, fd: int, begin: int, stride: int, /) -> Iterator[int]:
        """Yield the numbers of the slots that contain written bytes.

        Slot 0 begins at `begin`; each slot has `stride` bytes. Holes of the file are skipped
        without reading them.
        """
        size = os.fstat(fd).st_size - begin
        number = 0
        while (number + 1) * stride <= size:
            try:
                number = (os.lseek(fd, begin + number * stride, os.SEEK_DATA) - begin) // stride
            except OSError as error:
                if error.errno == errno.ENXIO:  # only a hole follows
                    return
                raise
            if (number + 1) * stride <= size:
                yield number
            number += 1

    def evict(self, fd: int, /) -> None:
        """Drop a file from the page cache, so that the next read comes from the device.

        The system may ignore this request.
        """
        os.fdatasync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def free(self, path: Path, /) -> int:
        """Return the free bytes of the file system of `path`."""
        system = os.statvfs(path)
        return system.f_bavail * system.f_frsize


def failure(
    files: Files, path: Path, error: OSError, what: str, /, *, needed: int | None = None
) -> StorageError:
    """Return the StorageError to raise for an OSError in the operation `what`.

    It is a LevelFull if the disk is full. Its message then has the `needed` bytes (unless None) and
    the free bytes of the file system of `path`.
    """
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
    """Raise OSError if `path` is no longer the path of the open file `fd`.

    Otherwise the caller might create or delete a file that is not its own.
    """
    with suppress(FileNotFoundError, NotADirectoryError):
        if os.path.samestat(os.fstat(fd), path.stat()):
            return
    raise OSError(errno.ESTALE, "it was moved, deleted, or unmounted")


def _after(data: Buffers, done: int) -> Buffers:
    """Return the rest of `data` after its first `done` bytes."""
    for number, view in enumerate(data):
        if done < view.nbytes:
            return [view[done:], *data[number + 1 :]]
        done -= view.nbytes
    return []


def lock_by(lock: Callable[[], object], /) -> None:
    """Call `lock`; if it is refused, once more without garbage, which may have the lock.

    Raises what the second call raises, BlockingIOError if the lock is still refused.
    """
    try:
        lock()
    except BlockingIOError:
        gc.collect()
        lock()


OTHER: Final = "another process; wait for it"


def user_of(fd: int, /) -> str:
    """Return who has locked an open file or directory, with the remedy, for a message."""
    with suppress(OSError):
        for other in Path("/proc/self/fd").iterdir():
            with suppress(OSError):  # the descriptor by which the names are listed
                if other.name != str(fd) and os.path.samestat(other.stat(), os.fstat(fd)):
                    return "an object of this process; call its method close() or wait for its end"
    return OTHER


def lock_directory(path: Path, files: "Files | None" = None, /) -> int:
    """Open and lock a directory, and return its descriptor; unlocked if there are no locks here.

    Raises LevelInUse if it is locked already, another OSError if it cannot be opened.
    """
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with locking(path):
            lock_by(lambda: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB))
        if not (files or Files()).is_named(fd):  # another process has just removed and released it
            raise BlockingIOError
    except OSError as error:
        user = user_of(fd)
        os.close(fd)
        if isinstance(error, BlockingIOError):
            raise LevelInUse(f"{path} is in use by {user}, or use another directory") from None
        raise
    return fd


def make_directories(path: Path, files: "Files", /, *, sync: bool) -> list[Path]:
    """Make a directory and its parents; return those that were missing, the innermost first.

    If one of them cannot be made, none remains, and OSError is raised.
    """
    missing = missing_folders(path)
    try:
        for directory in reversed(missing):
            files.make_directory(directory)
            if sync:
                files.sync_directory(directory.parent)
    except OSError:
        remove_directories(missing)
        raise
    return missing


def remove_directories(paths: Iterable[Path], /) -> None:
    """Remove directories, the innermost first, as far as they are empty."""
    with suppress(OSError):
        for path in paths:
            path.rmdir()


# Locks, which show whether a live process uses a level
#
# A level in a directory is locked by flock on the directory. A level in one file is locked by an
# open-file-description lock on its first byte, because HDF5 itself uses flock. The functions below
# query a lock. For an flock they have to share it for a moment; a process that is refused the lock
# at this moment tries once more (`lock_by`).

_WITHOUT_LOCKS: Final = frozenset(
    {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EBADF, 524}
)
"""The system's errors for a lock that a file system does not have; 524 is the kernel's ENOTSUPP."""

_FLOCK: Final = "hhqqi4x"


@contextmanager
def locking(path: Path, /) -> Iterator[None]:
    """Pass over a lock that fails because the file system has no locks; the log warns of this."""
    try:
        yield
    except OSError as error:
        if error.errno not in _WITHOUT_LOCKS:
            raise
        log.warning(
            "%s cannot be locked, because its file system has no locks (%s): make sure that no"
            " other process uses it meanwhile",
            path,
            error.strerror,
        )


def first_byte(kind: int, /) -> bytes:
    """Return the argument of F_OFD_SETLK for the first byte; kind is F_WRLCK or F_UNLCK."""
    return struct.pack(_FLOCK, kind, os.SEEK_SET, 0, 1, 0)


@contextmanager
def opened(path: Path, flags: int, /) -> Iterator[int]:
    """Open a path without following links."""
    fd = os.open(path, flags | _NO_LINK)
    try:
        yield fd
    finally:
        os.close(fd)


def is_locked(path: Path, /) -> bool:
    """Return whether a process has locked the level or run at this path; raises OSError."""
    with opened(path, os.O_RDONLY) as fd:
        if stat.S_ISREG(os.fstat(fd).st_mode):
            seen = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, first_byte(fcntl.F_WRLCK))
            kind: int = struct.unpack(_FLOCK, seen)[0]
            return kind != fcntl.F_UNLCK
        return _has_flock(fd)


def _has_flock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(fd, fcntl.LOCK_UN)
    return False


# Atomic writes of whole files


def missing_folders(path: Path, /) -> list[Path]:
    """Return the folders that are missing for `path` to be a directory, the innermost first."""
    return [folder for folder in (path, *path.parents) if not os.path.lexists(folder)]


def part_of(path: Path, /) -> Path:
    """Return the temporary file of `write_whole`, which remains if its process is killed."""
    return path.with_name(f".{path.name}.part")


def write_whole(path: Path, content: str | bytes, /) -> None:
    """Write a file atomically; it is on the disk when this function returns. Raises OSError.

    The content is written to a file with a temporary name, which is then renamed. A file or link at
    either name is replaced; the target of a link does not change. The space of an earlier temporary
    file is used, which a killed process or `reserve` has left.
    """
    part = part_of(path)
    try:
        with os.fdopen(_open_part(part), "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
    try:
        Files().sync_directory(path.parent)
    except OSError as error:  # some file systems cannot do this
        if error.errno not in {errno.EINVAL, errno.EBADF, errno.ENOTSUP}:
            raise


def reserve(path: Path, nbytes: int, /) -> None:
    """Reserve space for the next `write_whole` of a path; raises OSError if the disk is full."""
    part = part_of(path)
    fd = _open_part(part)
    try:
        os.posix_fallocate(fd, 0, max(1, nbytes))
    except OSError as error:
        if error.errno in FULL:
            part.unlink()
            raise
    finally:
        os.close(fd)


def _open_part(part: Path) -> int:
    """Open a temporary file to write; a link at its name is removed, and not followed."""
    if part.is_symlink():
        part.unlink()
    return os.open(part, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
