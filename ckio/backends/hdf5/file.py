"""The HDF5 file of an archive: open and lock it, create it, add a group, list its contents.

The objects that people and the tools of HDF5 see:

    /                   attributes: format, format_version, creator, run, about
    /README             how to read the file
    /restart-0          a group of slots for checkpoints of one kind and one layout
        payload         (slots, bytes), the stored checkpoints, each in one piece
        zeta            (slots, ny, nx), a view of one field in the payload; attributes name, unit
        psi             … another field
        keys            (slots,), one row per slot: the checkpoint in this slot
    /tape-0, …          another kind or layout, or more slots for one of these

The parts that ckio uses, in pages of 4096 bytes:

    pages 0 to 5        the first pages, and their mirror: see `heads`
    page 6, …           the rest of an archive without groups, which never changes
    the groups          one after the other, each with its head, metadata of HDF5, rows and slots

Only a new group needs the HDF5 library, which works on a draft in memory (`drafts`). The pages of
the draft are then written to the file in a safe order: after any number of these writes, HDF5 can
read the file. Therefore a kill does no harm. A crash of the machine may leave a torn page; HDF5 can
read the file again after ckio has opened it once.
"""

import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from glob import escape
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from ckio.actions import Kind
from ckio.backends.contents import Damaged, Stored
from ckio.backends.files import (
    FULL,
    TILE,
    Files,
    check_here,
    failure,
    first_byte,
    lock_by,
    locking,
    opened,
    user_of,
)
from ckio.backends.forms import Form
from ckio.backends.hdf5.heads import (
    FIXED,
    FREE,
    PAGE,
    ROW,
    SIGNATURE,
    Group,
    Row,
    Start,
    advance,
    bytes_at,
    check,
    has_seal,
    load,
    settle,
)
from ckio.backends.runid import RunId
from ckio.errors import BadInput, CorruptCheckpoint, LevelInUse, StorageError

_OF_RUN: Final = r"-[0-9a-f]{1,64}(-\d+)?"
"""The part of an archive's name after the stem that all runs share: see `Hdf5.for_run`."""

_DRAFT: Final = re.compile(r"\.(.+\.h5)\.(\d{1,9})\.new")
"""The name of an incomplete archive, with the number of the process that creates it."""


def take(path: Path, files: Files, run: RunId, /, *, sync: bool) -> int:
    """Open and lock the archive at a path; create it for this run if it does not exist.

    Raises LevelInUse if it is locked already, BadInput if there cannot be an archive at this path,
    and StorageError if the disk fails.
    """
    fd, missing = -1, list[Path]()
    try:
        missing += [it for it in path.parents if not it.exists()]
        _make_directories(missing, files, sync=sync)
        if not path.exists():
            create(path, files, run, sync=sync)
        fd = files.open(path)
        _lock(path, fd, files)
    except OSError as error:
        used = user_of(fd) if fd >= 0 else ""
        with suppress(OSError):
            if fd >= 0:
                files.close(fd)
        with suppress(OSError):
            for directory in missing:
                directory.rmdir()
        if isinstance(error, BlockingIOError):
            raise LevelInUse(f"{path} is in use by {used}, or use another file") from None
        if error.errno in {errno.EIO, *FULL}:
            raise failure(files, path.parent, error, f"{path}: making it") from error
        raise BadInput(f"{path} cannot be an archive: {error.strerror or error}") from None
    with suppress(OSError):
        for draft in path.parent.glob(f".{escape(path.name)}.*.new"):
            files.unlink(draft)  # its process was killed
    return fd


def _lock(path: Path, fd: int, files: Files) -> None:
    """Lock the open file; raises BlockingIOError if it is locked already or was deleted.

    HDF5 itself uses flock. An open-file-description lock is independent of it, so that people can
    read the file with HDF5 while ckio uses it. The lock belongs to this opening of the file, not to
    the process.
    """
    with locking(path):
        lock_by(partial(fcntl.fcntl, fd, fcntl.F_OFD_SETLK, first_byte(fcntl.F_WRLCK)))
    if not files.is_named(fd):
        raise BlockingIOError


def let_go(fd: int, /) -> None:
    """Unlock the file; this is effective even if a forked process still has it open."""
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, first_byte(fcntl.F_UNLCK))


def _make_directories(missing: Sequence[Path], files: Files, /, *, sync: bool) -> None:
    for directory in reversed(missing):
        files.make_directory(directory)
        if sync:
            files.sync_directory(directory.parent)


def create(path: Path, files: Files, run: RunId, /, *, sync: bool) -> None:
    """Create an archive without checkpoints for a run; it gets its name when it is complete."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    content = _new(run)
    fd = files.open(draft)
    try:
        try:
            files.cut(fd, 0)  # a killed process with the same number may have left this file
            files.write(fd, [memoryview(content)], 0)
            if sync:
                files.sync(fd)
        finally:
            files.close(fd)
        with suppress(FileExistsError, FileNotFoundError):  # another process was faster
            files.rename(draft, path)
        if sync:
            files.sync_directory(path.parent)
    finally:
        files.unlink(draft)


def _new(run: RunId) -> bytes:
    from ckio.backends.hdf5.drafts import empty

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
    """Add a group of free slots after the last group, and allocate its disk space.

    Raises OSError if there is no space; then the archive is unchanged. Raises StorageError if HDF5
    fails, or would have to read damaged bytes.
    """
    # Promise: HDF5 can read the file after every single write of this function, and a kill between
    # them loses nothing. h5py would write its metadata in place and in pieces, so it writes to a
    # draft in memory. Tests:
    # test_hdf5_reads_a_growing_archive_after_every_single_write,
    # test_an_archive_of_many_groups_survives_a_kill_in_each_growth.
    from ckio.backends.hdf5.drafts import drafted

    settle(files, fd, start, sync=sync)  # the mirror must not refer to bytes overwritten below
    fixed = bytes_at(files, fd, FIXED, start.begin - FIXED)
    if check(fixed) != start.fixed:
        raise StorageError("it was damaged and cannot grow; use a new archive")
    known = start.pages + start.pages + fixed
    group, draft = drafted(known, name, kind, form, slots=slots, end=start.end, run=start.run)
    new, page, leaf = draft.pages()
    grown = Start.sealed(
        *(page, leaf),
        fixed=start.fixed,
        begin=start.begin,
        end=group.end,
        groups=(*start.groups, start.end),
        run=start.run,
    )
    size = files.size(fd)
    if group.end > size:
        files.extend(fd, size, group.end - size, prewrite=False)
    for at, data in (*new.items(), (start.end, group.pack())):
        files.write(fd, [memoryview(data)], at)
    _clear(files, fd, group.rows, slots * ROW.itemsize)
    if sync:
        files.sync(fd)
    try:
        advance(files, fd, grown, sync=sync)
    except BaseException:
        with suppress(OSError):  # restore the first pages
            settle(files, fd, start, sync=sync)
        raise
    return group, grown


def _clear(files: Files, fd: int, offset: int, nbytes: int) -> None:
    zeros = memoryview(bytes(min(nbytes, TILE)))
    for done in range(0, nbytes, TILE):
        files.write(fd, [zeros[: nbytes - done]], offset + done)


# The contents of an archive

_ROWS: Final = (1 << 18) // ROW.itemsize
"""Number of rows per read."""

_TRIES: Final = 3


class Committed(NamedTuple):
    """A stored checkpoint: its group and its row."""

    group: Group
    row: Row


@dataclass
class ArchiveSurvey:
    """The checkpoints, free slots and damaged parts of an archive.

    Attributes
    ----------
    stored : list of Committed
        The checkpoints, the oldest first; their keys differ.
    outdated : list of Committed
        Rows with the same key as a newer row. Their slots should have been freed, but a write
        failed.
    free : dict
        The free slots of each undamaged group.
    damaged : list of Damaged
        The damaged parts.
    """

    stored: list[Committed] = field(default_factory=list)
    outdated: list[Committed] = field(default_factory=list)
    free: dict[Group, list[int]] = field(default_factory=dict)
    damaged: list[Damaged] = field(default_factory=list)


def survey(files: Files, fd: int, path: Path, start: Start, /) -> ArchiveSurvey:
    """Return the checkpoints, free slots and damaged parts of an open archive."""
    result = ArchiveSurvey()
    rows: list[Committed] = []
    for begin, end in start.spans():
        try:
            group = _group(files, fd, begin, end, start.run)
        except CorruptCheckpoint as error:
            result.damaged.append(
                Damaged(path=path, offset=begin, nbytes=end - begin, what=str(error))
            )
            continue
        free = result.free[group] = []
        for slot, row in _rows(files, fd, group, free):
            if row is not None:
                rows.append(Committed(group, row))
                continue
            what = f"the row of slot {slot} of group {group.name} is damaged"
            result.damaged.append(
                Damaged(path=path, offset=group.row(slot), nbytes=ROW.itemsize, what=what)
            )
    rows.sort(key=lambda place: place.row.commit)
    youngest = {place.row.key: place for place in rows}
    for place in rows:
        (result.stored if youngest[place.row.key] is place else result.outdated).append(place)
    return result


def _group(files: Files, fd: int, begin: int, end: int, run: RunId) -> Group:
    length = Group.length(bytes_at(files, fd, begin, min(PAGE, end - begin)))
    return Group.unpack(bytes_at(files, fd, begin, min(length, end - begin)), begin, end, run)


def _rows(files: Files, fd: int, group: Group, free: list[int]) -> Iterator[tuple[int, Row | None]]:
    """Yield each slot that is not free and its row, None for a damaged row; append to `free`."""
    for first in range(0, group.slots, _ROWS):
        count = min(_ROWS, group.slots - first)
        table = bytes_at(files, fd, group.row(first), count * ROW.itemsize)
        taken = np.frombuffer(table, ROW)["state"] != FREE
        free.extend((first + np.flatnonzero(~taken)).tolist())
        for number in np.flatnonzero(taken).tolist():
            data = table[number * ROW.itemsize :][: ROW.itemsize]
            yield from _row(files, fd, group, first + number, data)


def _row(
    files: Files, fd: int, group: Group, slot: int, data: bytes
) -> Iterator[tuple[int, Row | None]]:
    """Yield the slot and its row, None for a damaged row; nothing if the slot is free now.

    A row that a run writes at this moment may look damaged. Therefore it is read again; only a row
    that stays the same is damaged.
    """
    for _ in range(_TRIES):
        row = Row.unpack(data, slot, group.seed)
        if row is not None and row.key.kind is group.kind and group.holds(row.nbytes):
            yield slot, row
            return
        before, data = data, bytes_at(files, fd, group.row(slot), ROW.itemsize)
        if data.startswith(FREE):
            return
        if data == before:
            break
    yield slot, None


def contents(path: Path, /) -> list[Stored | Damaged]:
    """List the contents of an archive; see `Hdf5.contents`."""
    files = Files()
    try:
        fd = files.open_to_read(path)
    except OSError as error:
        raise BadInput(f"{path} is no archive: {error.strerror}") from None
    try:
        start = _load(files, fd, str(path))
        result = survey(files, fd, path, start)
        fixed = bytes_at(files, fd, FIXED, start.begin - FIXED)
    except IsADirectoryError as error:
        raise BadInput(f"{path} is no archive: {error.strerror}") from None
    except OSError as error:
        raise StorageError(f"{path}: reading it failed: {error.strerror or error}") from error
    finally:
        files.close(fd)
    listed: list[Stored | Damaged] = [_stored(path, place) for place in result.stored]
    if check(fixed) != start.fixed:
        what = "the part that HDF5 needs to read the archive is damaged"
        result.damaged.insert(0, Damaged(path=path, offset=FIXED, nbytes=len(fixed), what=what))
    return listed + result.damaged


def _load(files: Files, fd: int, name: str) -> Start:
    """Return the first pages; try again after an error, because a run may be changing them."""
    for _ in range(_TRIES):
        with suppress(StorageError):
            return load(files, fd, name)
    return load(files, fd, name)


def _stored(path: Path, place: Committed) -> Stored:
    group, row = place
    return Stored(
        key=row.key,
        layout=group.layout_of(row.nbytes),
        path=path,
        spans=((group.at(row.slot), row.nbytes),),
        written=row.written,
        digest=row.digest,
        run=group.run.name,
    )


# Archives that are not open


def archives_at(path: Path, /) -> list[Path]:
    """Return the archives at a path.

    If `path` is a directory, they are the archives in it; if it is a file, the file itself.
    Otherwise they are the archives of all runs whose names are derived from `path` (see
    `Hdf5.for_run`). Links are not followed. Raises OSError if the directory cannot be read.
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
    except (PermissionError, FileNotFoundError):  # of another user, or removed meanwhile
        return False


def _is_derived(archive: Path, path: Path) -> bool:
    """Return whether the name of an archive is derived from this path, for some run."""
    name = rf"{re.escape(path.stem)}{_OF_RUN}\.h5"
    return re.fullmatch(name, archive.name) is not None


def drafts_at(path: Path, /) -> dict[Path, Path]:
    """Return the incomplete archives that killed processes left.

    The value for each incomplete file is the path of the archive that it was meant to become. If
    `path` is a directory, all incomplete files in it are returned; otherwise those of `path` and of
    the archives with names derived from it. Raises OSError if the directory cannot be read.
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
    """Return whether the file begins like an HDF5 file and its process does not exist any more."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        pass
    except PermissionError:  # the process exists and belongs to another user
        return False
    else:
        return False
    with suppress(OSError), opened(draft, os.O_RDONLY) as fd:
        return stat.S_ISREG(os.fstat(fd).st_mode) and SIGNATURE.startswith(os.pread(fd, 8, 0))
    return False


def remove(path: Path, /) -> None:
    """Remove an archive that no process has open.

    Raises BlockingIOError if it is in use, another OSError if it cannot be removed, and
    StorageError if it is not an archive.
    """
    with opened(path, os.O_RDWR) as fd:
        with locking(path):
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, first_byte(fcntl.F_WRLCK))
        if not has_seal(fd):
            raise StorageError(f"{path} is not removed: it is not an archive of ckio")
        check_here(path, fd)
        path.unlink()
