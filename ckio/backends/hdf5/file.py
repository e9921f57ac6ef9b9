"""The HDF5 file of an archive: what is in it, how it is made, and how it grows.

For people, and the tools of HDF5:

    /                   attributes: format, format_version, creator, run, about
    /README             how to read the file
    /restart-0          a group of slots for checkpoints of one kind and one layout
        payload         (slots, bytes), the checkpoints as they are stored, each in one piece
        zeta            (slots, ny, nx), a view of it, one for each field; attributes name, unit
        psi             …
        keys            (slots,), one row per slot: which checkpoint lies in it
    /tape-0, …          another kind or layout, or more slots for one of these

For ckio, in pages of 4096 bytes:

    pages 0 to 5        what belongs to the archive, and a mirror of it: see `start`
    page 6, …           the rest of an archive without groups, which never changes
    the groups          one behind the other, each with its head, what HDF5 needs, rows and slots

Payload and rows are written at their offsets, past the HDF5 library, while no HDF5 file is open.
Only a new group takes HDF5, on a draft, which then reaches the file in an order that a kill may cut
short anywhere: each prefix of these writes is a file that HDF5 reads. A machine that fails may tear
a page, and then HDF5 reads it again once ckio has opened it.
"""

import errno
import fcntl
import os
import re
import stat
from collections.abc import Sequence
from contextlib import suppress
from glob import escape
from pathlib import Path
from typing import Final

from ckio.actions import Kind
from ckio.backends.files import FULL, TILE, Files, check_here, failure, first_byte, opened
from ckio.backends.forms import Form
from ckio.backends.hdf5.group import Group
from ckio.backends.hdf5.rows import ROW
from ckio.backends.hdf5.start import (
    FIXED,
    PAGE,
    SIGNATURE,
    Start,
    advance,
    bytes_at,
    check,
    has_seal,
    settle,
)
from ckio.backends.runid import RunId
from ckio.errors import BadInput, LevelInUse, StorageError

_OF_RUN: Final = r"-[0-9a-f]{1,64}(-\d+)?"
"""How the name of an archive goes on behind the stem that all runs share: `for_run` makes it."""

_DRAFT: Final = re.compile(r"\.(.+\.h5)\.(\d{1,9})\.new")
"""An archive that the process of this number is making, or was making when it was killed."""


def take(path: Path, files: Files, run: RunId, /, *, sync: bool) -> int:
    """Open the archive at a path for this opener alone; made, of this run, if there is none.

    Raises LevelInUse, BadInput where there can be none, and StorageError where the disk fails.
    """
    fd, missing = -1, list[Path]()
    try:
        missing += [it for it in path.parents if not it.exists()]
        _make_directories(missing, files, sync=sync)
        if not path.exists():
            create(path, files, run, sync=sync)
        fd = files.open(path)
        _lock(fd, files)
    except OSError as error:
        with suppress(OSError):
            if fd >= 0:
                files.close(fd)
        with suppress(OSError):
            for directory in missing:
                directory.rmdir()
        if isinstance(error, BlockingIOError):
            raise LevelInUse(
                f"{path} is in use, by another process or another level; wait, or use another file"
            ) from None
        if error.errno in {errno.EIO, *FULL}:
            raise failure(files, path.parent, error, f"{path}: making it") from error
        raise BadInput(f"{path} cannot be an archive: {error.strerror or error}") from None
    with suppress(OSError):
        for draft in path.parent.glob(f".{escape(path.name)}.*.new"):
            files.unlink(draft)  # of a creator that was killed
    return fd


def _lock(fd: int, files: Files) -> None:
    """Take the file, as long as it has a name; raises BlockingIOError.

    HDF5 itself uses flock, and people shall be able to look into the file meanwhile: this lock is
    of another kind. It goes with this opening of the file, not with the process.
    """
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, first_byte(fcntl.F_WRLCK))
    if not files.is_named(fd):
        raise BlockingIOError


def let_go(fd: int, /) -> None:
    """Give the file free for others, also where a fork lives on that has it open."""
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, first_byte(fcntl.F_UNLCK))


def _make_directories(missing: Sequence[Path], files: Files, /, *, sync: bool) -> None:
    for directory in reversed(missing):
        files.make_directory(directory)
        if sync:
            files.sync_directory(directory.parent)


def create(path: Path, files: Files, run: RunId, /, *, sync: bool) -> None:
    """Make a run's archive without checkpoints, complete from the moment it has its name."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    content = _new(run)
    fd = files.open(draft)
    try:
        try:
            files.cut(fd, 0)  # a creator of the same number may have been killed
            files.write(fd, [memoryview(content)], 0)
            if sync:
                files.sync(fd)
        finally:
            files.close(fd)
        with suppress(FileExistsError, FileNotFoundError):  # somebody else was faster
            files.rename(draft, path)
        if sync:
            files.sync_directory(path.parent)
    finally:
        files.unlink(draft)


def _new(run: RunId) -> bytes:
    from ckio.backends.hdf5.h5 import empty

    content = empty(run)
    page, leaf, rest = content[:PAGE], content[PAGE : 2 * PAGE], content[FIXED:]
    rest = rest.ljust(-len(rest) % PAGE + len(rest), b"\0")
    end = FIXED + len(rest)
    start = Start.sealed(page, leaf, fixed=check(rest), begin=end, end=end, groups=(), run=run)
    return start.pages + start.pages + rest


def add_group(
    files: Files,
    fd: int,
    start: Start,
    name: str,
    kind: Kind,
    /,
    *,
    form: Form,
    slots: int,
    sync: bool,
) -> tuple[Group, Start]:
    """Make a group of free slots where the groups end, with its space on the disk.

    Raises OSError with the archive as it was if there is no space, StorageError if HDF5 gives up,
    or would have to read what was damaged.
    """
    from ckio.backends.hdf5.h5 import drafted

    settle(files, fd, start, sync=sync)  # no mirror may refer to what is written over now
    fixed = bytes_at(files, fd, FIXED, start.begin - FIXED)
    if check(fixed) != start.fixed:
        raise StorageError("it was damaged and cannot grow; it has to be made anew")
    known = start.pages + start.pages + fixed
    made, draft = drafted(known, name, kind, form, slots=slots, end=start.end, run=start.run)
    new, page, leaf = draft.pages()
    grown = Start.sealed(
        *(page, leaf),
        fixed=start.fixed,
        begin=start.begin,
        end=made.end,
        groups=(*start.groups, start.end),
        run=start.run,
    )
    size = files.size(fd)
    if made.end > size:
        files.extend(fd, size, made.end - size, prewrite=False)
    for at, data in (*new.items(), (start.end, made.pack())):
        files.write(fd, [memoryview(data)], at)
    _clear(files, fd, made.rows, slots * ROW.itemsize)
    if sync:
        files.sync(fd)
    try:
        advance(files, fd, grown, sync=sync)
    except BaseException:
        with suppress(OSError):  # as it was before
            settle(files, fd, start, sync=sync)
        raise
    return made, grown


def _clear(files: Files, fd: int, offset: int, nbytes: int) -> None:
    zeros = memoryview(bytes(min(nbytes, TILE)))
    for done in range(0, nbytes, TILE):
        files.write(fd, [zeros[: nbytes - done]], offset + done)


# Archives that are not open


def archives_at(path: Path, /) -> list[Path]:
    """Return the archives in a directory, a file itself, or those of all runs derived from a name.

    Links are not followed. Raises OSError where the directory cannot be read.
    """
    if path.is_dir():
        return [entry for entry in sorted(path.iterdir()) if _is_archive(entry)]
    if path.exists():
        return [path]
    beside = archives_at(path.parent) if path.parent.is_dir() else []
    return [archive for archive in beside if _is_derived(archive, path)]


def _is_archive(path: Path) -> bool:
    if path.suffix != ".h5" or path.is_symlink() or not path.is_file():
        return False
    try:
        with opened(path, os.O_RDONLY) as fd:
            return has_seal(fd)
    except PermissionError:  # somebody else's
        return False


def _is_derived(archive: Path, path: Path) -> bool:
    """Whether an archive has its name from this path, for some run."""
    name = rf"{re.escape(path.stem)}{_OF_RUN}\.h5"
    return re.fullmatch(name, archive.name) is not None


def drafts_at(path: Path, /) -> dict[Path, Path]:
    """Return what killed processes left half made, each with the archive that it was to become.

    They are those in a directory, or of the archive at a path and of those derived from it. Raises
    OSError where the directory cannot be read.
    """
    folder = path if path.is_dir() else path.parent
    drafts = {}
    for entry in sorted(folder.iterdir()):
        if (match := _DRAFT.fullmatch(entry.name)) is None:
            continue
        archive = folder / match[1]
        ours = folder == path or archive.stem == path.stem or _is_derived(archive, path)
        if ours and _is_abandoned(entry, int(match[2])):
            drafts[entry] = archive
    return drafts


def _is_abandoned(draft: Path, process: int) -> bool:
    """Whether this begins as an HDF5 file does, and the process that made it is gone."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        pass
    except PermissionError:  # it lives, and is somebody else's
        return False
    else:
        return False
    with suppress(OSError), opened(draft, os.O_RDONLY) as fd:
        return stat.S_ISREG(os.fstat(fd).st_mode) and SIGNATURE.startswith(os.pread(fd, 8, 0))
    return False


def remove(path: Path, /) -> None:
    """Remove an archive that nobody has open.

    Raises OSError, BlockingIOError where it is in use, and StorageError where it is no archive.
    """
    with opened(path, os.O_RDWR) as fd:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, first_byte(fcntl.F_WRLCK))
        if not has_seal(fd):
            raise StorageError(f"{path} is left: it is no archive of ckio's")
        check_here(path, fd)
        path.unlink()
