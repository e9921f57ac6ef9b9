"""Files as durable levels use them: system calls, locks that others can look at, whole files.

`Files` is one small object, so that a test can record, cut short or refuse any of its calls. The
calls do in full what is asked, or raise OSError; `failure` says which StorageError that is.
"""

import ctypes
import errno
import fcntl
import os
import stat
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from ckio.actions import Buffers
from ckio.errors import BadInput, LevelFull, StorageError

TILE = 1 << 20
"""Bytes handled at once, so that a tile is still in the cache when it is used a second time."""

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""The errors that say that no space is left."""

DURABILITIES: Final = {"process": False, "fdatasync": True, "direct": True}
"""What a checkpoint survives, its process or also the machine, and whether that takes a sync.

"direct" is as "fdatasync", with the payload past the page cache; not every level has it.
"""

_CAREFUL: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""Flags by which no link is followed, and nobody awaited at the other end of a pipe."""

_NO_LINKS: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
"""Errors of file systems that give a file one name only."""

_GET_FLAGS, _SET_FLAGS, _IN_PLACE = 0x80086601, 0x40086602, 0x00800000  # FS_NOCOW_FL
_FLAGS: Final = struct.Struct("I4x")

_NO_NAME: Final = frozenset({errno.ENOENT, errno.ESTALE})
"""Errors of file systems of programs and of other machines for an open file that was deleted."""

_LARGEST: Final = (1 << 63) - 1
"""Bytes that a file may have; system calls take no larger number."""

_ZEROS = memoryview(bytes(TILE))


def takes_sync(durability: str, known: Iterable[str] = ("process", "fdatasync"), /) -> bool:
    """Return whether a level of this durability syncs at each commit; raises BadInput."""
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
        """Allocate bytes from `begin` in the file or at its end; an error leaves it as it was.

        The first write into space that was only allocated is many times slower than the next:
        `prewrite` does it here.
        """
        end = begin + nbytes
        if end > _LARGEST:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        size = self.size(fd)
        try:
            os.posix_fallocate(fd, begin, nbytes)
            if prewrite:
                while begin < end:
                    left = TILE - begin % TILE  # as payloads are cut later
                    self.write(fd, [_ZEROS[: min(left, end - begin)]], begin)
                    begin += left
        except BaseException:
            os.ftruncate(fd, size)
            raise

    def size(self, fd: int, /) -> int:
        """Return the bytes of a file."""
        return os.fstat(fd).st_size

    def is_named(self, fd: int, /) -> bool:
        """Return whether a file has a name; one that was deleted is gone when it is closed."""
        try:
            return links(fd) > 0
        except OSError as error:
            if error.errno not in _NO_NAME:
                raise
            return False

    def cut(self, fd: int, nbytes: int, /) -> None:
        """Release to the disk all but the first `nbytes` of a file."""
        os.ftruncate(fd, nbytes)

    def bytes_at(self, fd: int, offset: int, nbytes: int, /) -> bytes:
        """Return some bytes of a file; raises EOFError where it ends before them."""
        data = bytearray(nbytes)
        self.read(fd, [memoryview(data)], offset)
        return bytes(data)

    def occupied(self, fd: int, begin: int, stride: int, /) -> Iterator[int]:
        """Yield the numbers of the slots into which something was written, without visiting holes.

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
        """Return the bytes that are free under `path`."""
        system = os.statvfs(path)
        return system.f_bavail * system.f_frsize


def failure(
    files: Files, path: Path, error: OSError, what: str, /, *, needed: int | None = None
) -> StorageError:
    """Return the error to raise when `what` failed, which needed so many bytes under `path`."""
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
    """Raise OSError where the path of an open file leads elsewhere, or nowhere.

    A file made or deleted by its name would then be somebody else's.
    """
    with suppress(FileNotFoundError, NotADirectoryError):
        if os.path.samestat(os.fstat(fd), path.stat()):
            return
    raise OSError(errno.ESTALE, "it was moved, deleted, or unmounted")


def _regular(path: Path, fd: int) -> int:
    """Return `fd` if it is open on a regular file; raises OSError for a pipe, a device, ..."""
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return fd
    os.close(fd)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise OSError(errno.EINVAL, f"{path.name} is no regular file")


def _write_in_place(fd: int) -> None:
    """Let an empty file have neither copies on write nor compression, if it would: on btrfs.

    There each write takes new space, and space that was allocated to a file serves once: a disk
    that got full would refuse to write over a file's own bytes.
    """
    with suppress(OSError):  # others have nothing of the kind
        (flags,) = _FLAGS.unpack(fcntl.ioctl(fd, _GET_FLAGS, bytes(_FLAGS.size)))
        fcntl.ioctl(fd, _SET_FLAGS, _FLAGS.pack(flags | _IN_PLACE))


def _after(data: Buffers, done: int) -> Buffers:
    """Return the rest of `data` after its first `done` bytes."""
    for number, view in enumerate(data):
        if done < view.nbytes:
            return [view[done:], *data[number + 1 :]]
        done -= view.nbytes
    return []


# How many names an open file has

# `os.fstat` would tell, and asks for the times of the file as well. Times that were seen are kept
# exactly by Linux from 6.13 on: the next write stores a new one with the inode, which takes a third
# of a small write. `statx` can be asked for the number alone.
_NLINK: Final = 0x4
_ITSELF: Final = 0x1000  # AT_EMPTY_PATH: what is open, and nothing in it


class _Status(ctypes.Structure):
    """The `struct statx` of Linux, on all of its machines: 256 bytes."""

    _fields_ = (
        ("mask", ctypes.c_uint32),
        ("blksize", ctypes.c_uint32),
        ("attributes", ctypes.c_uint64),
        ("nlink", ctypes.c_uint32),
        ("rest", ctypes.c_uint8 * 236),
    )


_statx = getattr(ctypes.CDLL(None), "statx", None)
_ARGUMENTS = ctypes.c_char_p(b""), ctypes.c_int(_ITSELF), ctypes.c_uint(_NLINK)


def links(fd: int, /) -> int:
    """Return how many names an open file has; raises OSError where nobody can tell."""
    if _statx is not None:
        status = _Status()
        if _statx(fd, *_ARGUMENTS, ctypes.byref(status)) == 0 and status.mask & _NLINK:
            return int(status.nlink)
    return os.fstat(fd).st_nlink  # a system without the call; or it says what is wrong


# Locks, which tell whether a live process has a level
#
# A level that is a directory is locked by flock on it; a level that is one file, by a lock of the
# open file on its first byte, because HDF5 itself uses flock. A lock is looked at, never tried, not
# even for a moment: a run that begins might find it taken.

_LOCKS: Final = Path("/proc/locks")
_OF_PROCESS: Final = Path("/proc/self")
_FLOCK: Final = "hhqqi4x"


def first_byte(kind: int, /) -> bytes:
    """Return the lock of this kind (F_WRLCK, F_UNLCK) that files have, for F_OFD_SETLK."""
    return struct.pack(_FLOCK, kind, os.SEEK_SET, 0, 1, 0)


@contextmanager
def opened(path: Path | str, flags: int, /, *, folder: int | None = None) -> Iterator[int]:
    """Open a path, or a name in an open folder; follows no link and waits for nobody."""
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
    """Return whether a process has a level or a run here; raises OSError."""
    with opened(path, os.O_RDONLY) as fd:
        if stat.S_ISREG(os.fstat(fd).st_mode):
            seen = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, first_byte(fcntl.F_WRLCK))
            kind: int = struct.unpack(_FLOCK, seen)[0]
            return kind != fcntl.F_UNLCK
        return _has_flock(fd)


def is_flocked(path: Path, /) -> bool:
    """Return whether a process has flock on a file or directory; raises OSError."""
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
    info = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    inode = int(info.get("ino", inode))  # not listed before Linux 5.14
    for line in (_OF_PROCESS / "mountinfo").read_text(errors="replace").splitlines():
        number, _, shown, *_ = line.split()
        if number == info.get("mnt_id"):
            device = shown
    major, minor = map(int, device.split(":"))
    return f"{major:02x}:{minor:02x}:{inode}"


# Files that are written whole or not at all


def missing_folders(path: Path, /) -> list[Path]:
    """Return the folders to create for `path` to be a directory, the innermost first."""
    return [folder for folder in (path, *path.parents) if not os.path.lexists(folder)]


def part_of(path: Path, /) -> Path:
    """Return the file that a process leaves which is killed while it writes a whole file."""
    return path.with_name(f".{path.name}.part")


def write_whole(path: Path, content: str | bytes, /) -> None:
    """Write a file whole or not at all, and on the disk when this returns; raises OSError.

    The file is made anew under another name and renamed. A file or link at either name is replaced;
    the target of a link is not touched.
    """
    part = part_of(path).name
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(FileNotFoundError):  # of a process that was killed
            os.unlink(part, dir_fd=folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(part, flags, 0o666, dir_fd=folder)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(part, dir_fd=folder)
            raise
        _sync(folder)
    finally:
        os.close(folder)


def _sync(folder: int) -> None:
    """Have the names in an open directory on the disk, where its file system can."""
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.EBADF, errno.ENOTSUP}:
            raise
