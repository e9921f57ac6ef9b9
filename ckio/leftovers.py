"""Removing what abandoned runs left in a place.

Only what is certainly ckio's goes: slot files, archives, what a killed process had half written,
and directories that are then empty. What a live process has open stays, symbolic links are not
followed, and everything is removed under the lock that somebody who opens it would need.
"""

import fcntl
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from ckio import registry
from ckio.backends.directory.format import BLOCK, FREE, LIVE, MAGIC
from ckio.backends.directory.slotfiles import TRIAL, name_of
from ckio.backends.files import Files
from ckio.errors import BadInput, LevelInUse, StorageError
from ckio.jobs.directory import HALF, MANIFEST, WHOLE
from ckio.places import ARCHIVE_LOCK, SLOTS, Holding, expected, has_seal, is_run_directory

_DRAFT: Final = re.compile(r"\.(.+)\.h5\.(\d{1,9})\.new")
"""An archive that the process of this number is making, or was making when it was killed."""

_SETTLED: Final = 60.0
"""Seconds after which a half-written text has been given up; writing one takes a moment."""

_SIGNATURE: Final = b"\x89HDF\r\n\x1a\n"


def nbytes_on_disk(holding: Holding, /) -> int:
    """Bytes that its files occupy."""
    path = holding.path
    files = path.iterdir() if path.is_dir() else [path]
    return sum(file.lstat().st_blocks * 512 for file in files)


def remove(holding: Holding, /) -> None:
    """Remove what a run keeps on a level.

    Raises
    ------
    LevelInUse
        A live process has it open.
    StorageError
        It cannot be removed, or is not certainly ckio's, or not that of the run which is cleaned.
    """
    path = holding.path
    _check_owner(holding)
    try:
        match holding.backend:
            case "directory":
                _remove_slots(path)
            case "hdf5":
                _remove_archive(path)
            case other:
                _remove_by(other, path)
    except BlockingIOError:
        raise LevelInUse(f"{path} is in use by a live process") from None
    except OSError as error:
        raise StorageError(f"{path} cannot be removed: {error.strerror}") from None


def _check_owner(holding: Holding) -> None:
    """Raise StorageError where another run stored what lies there."""
    others: list[str] = []
    with suppress(BadInput, StorageError):  # where nothing can be read nothing is lost
        others = holding.others(holding.contents())
    if others:
        raise StorageError(
            f"{holding.path} is left: it holds checkpoints of {' and '.join(others)}, not of run"
            f" {holding.run}; move it to where that run keeps its own"
        )


def remove_results(path: Path, /) -> None:
    """Remove the directory of a run; what else is in it stays, and then the directory too.

    Raises LevelInUse where a live process works on the run, and StorageError.
    """
    try:
        with _opened(path, os.O_RDONLY | os.O_DIRECTORY) as folder:
            _take_run(folder)
            ours = [entry for entry in path.iterdir() if WHOLE.fullmatch(entry.name)]
            for entry in sorted(ours, key=lambda entry: entry.name == MANIFEST):  # that goes last
                entry.unlink(missing_ok=True)
            with suppress(OSError):
                path.rmdir()
    except BlockingIOError:
        raise LevelInUse(f"{path} is in use by a live process") from None
    except OSError as error:
        raise StorageError(f"{path} cannot be removed: {error.strerror}") from None


def _take_run(folder: int) -> None:
    """Have a run alone, as a process that works on it has; raises BlockingIOError."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # a file system without locks
        return


def scraps(path: Path, /) -> list[Path]:
    """What killed processes had half written in a place: archives, and texts of a run."""
    try:
        if is_run_directory(path):
            parts = (entry for entry in path.iterdir() if HALF.fullmatch(entry.name))
            return [*sorted(filter(_is_given_up, parts)), *_drafts_of_run(path)]
        folder = path if path.is_dir() else path.parent
        drafts = list(_dead_drafts(folder))
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None
    return [draft for draft, stem in drafts if folder == path or _is_of(path, stem)]


def _drafts_of_run(path: Path) -> list[Path]:
    """What killed processes of a run had half made beside its archives."""
    archives = {holding.path for holding in expected(path) if holding.backend == "hdf5"}
    found: list[Path] = []
    for folder in sorted({archive.parent for archive in archives}):
        with suppress(OSError):  # there is no such place, or it is somebody else's
            drafts = list(_dead_drafts(folder))
            found += [draft for draft, stem in drafts if folder / f"{stem}.h5" in archives]
    return found


def _dead_drafts(folder: Path) -> Iterator[tuple[Path, str]]:
    """Archives whose makers were killed, each with its stem; raises OSError."""
    for entry in sorted(folder.iterdir()):
        match = _DRAFT.fullmatch(entry.name)
        if match and _is_dead_draft(entry, match[2]):
            yield entry, match[1]


def _is_of(path: Path, stem: str) -> bool:
    """Whether an archive of this stem is that at `path`, or is derived from it for a run."""
    return (
        stem == path.stem
        or re.fullmatch(re.escape(path.stem) + r"-[0-9a-f]+(-\d+)?", stem) is not None
    )


def _is_dead_draft(path: Path, process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        pass
    except PermissionError:  # it lives, and is somebody else's
        return False
    else:
        return False
    with suppress(OSError), _opened(path, os.O_RDONLY) as fd:
        return stat.S_ISREG(os.fstat(fd).st_mode) and _SIGNATURE.startswith(os.pread(fd, 8, 0))
    return False


def _is_given_up(path: Path) -> bool:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_mtime < time.time() - _SETTLED


@contextmanager
def _opened(path: Path | str, flags: int, /, *, folder: int | None = None) -> Iterator[int]:
    """Open what is at a path, or under a name in an open folder: no link, nothing that waits."""
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        yield fd
    finally:
        os.close(fd)


def _remove_slots(path: Path) -> None:
    with _opened(path, os.O_RDONLY | os.O_DIRECTORY) as folder:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for name in _names(folder):
            if _is_ours(name, folder) or _is_trial(name, folder):
                os.unlink(name, dir_fd=folder)
        if _names(folder):
            raise StorageError(f"{path} is left: what else is in it may not be ckio's")
        path.rmdir()
    if re.fullmatch(r"rank-\d+", path.name):
        with suppress(OSError):  # other ranks have theirs there
            path.parent.rmdir()


def _remove_by(backend: str, path: Path) -> None:
    """What another package's backend stored, removed by itself: only it knows what is its own."""
    factory = registry.find("backends", backend)
    if not hasattr(factory, "remove"):
        raise StorageError(f"{path} is left: backend {backend!r} cannot remove what it stored")
    registry.make(f"{path}: {backend}", factory, {"path": path}).remove()


def _names(folder: int) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries]


def _remove_archive(path: Path) -> None:
    with _opened(path, os.O_RDWR) as fd:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, ARCHIVE_LOCK)
        if not has_seal(fd):
            raise StorageError(f"{path} is left: it is no archive of ckio's")
        path.unlink()


def _is_trial(name: str, folder: int) -> bool:
    """Whether a process was killed here while it tried direct I/O: there is at most a page."""
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    return name == TRIAL and stat.S_ISREG(status.st_mode) and status.st_size <= BLOCK


def _is_ours(name: str, folder: int) -> bool:
    """Whether this is a file of slots: something in it has our magic, or nothing is in it."""
    match = SLOTS.fullmatch(name)
    stride = int(match[1]) if match else 0
    if stride <= BLOCK or stride % BLOCK or name != name_of(stride):
        return False
    if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        return False
    with _opened(name, os.O_RDONLY, folder=folder) as fd:
        slots = Files().occupied(fd, BLOCK, stride)
        words = {os.pread(fd, len(FREE), BLOCK + number * stride) for number in slots}
        words.add(os.pread(fd, len(FREE), 0))
    return MAGIC in words or LIVE in words or words <= {FREE, b""}
