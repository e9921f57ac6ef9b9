"""What ckio keeps in a place: the files of each run on each level, found without opening a level.

Nothing is made, changed or locked by looking.
"""

import fcntl
import json
import os
import re
import stat
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final

from ckio import registry
from ckio.backends.contents import Damaged, Stored
from ckio.backends.hdf5.start import PAGE
from ckio.backends.runid import RunId, of_rank, rank_of
from ckio.checks import is_whole
from ckio.errors import BadInput
from ckio.jobs.directory import MANIFEST, SCHEDULE, platform_in
from ckio.jobs.request import FORMAT
from ckio.platforms import Level, Platform

SLOTS: Final = re.compile(r"slots-(\d{1,15})-v\d{1,9}\.ckio")
"""What a directory level calls its files, in any version."""

ARCHIVE_LOCK: Final = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
"""The lock that an archive is opened with, for F_OFD_SETLK."""

_LOCKS: Final = Path("/proc/locks")
_OF_PROCESS: Final = Path("/proc/self")

_RUN: Final = re.compile(r"[0-9a-f]{1,64}")
_RANKS: Final = 1 << 20
"""As many ranks as a job may have."""
_SEAL: Final = b"ckioarc"
_SEALS_AT: Final = (3 * PAGE - 40, 6 * PAGE - 40)
"""Where an archive says what it is: at the end of its first pages, and of their mirror."""

_MOST: Final = 1 << 20
"""Bytes that a manifest may have."""


@dataclass(frozen=True, slots=True)
class Holding:
    """What one run keeps on one level.

    Attributes
    ----------
    path : Path
        Its directory of slot files, or its archive.
    backend : str
        The name of the level's backend: "directory", "hdf5", or somebody else's.
    run : str
        The id of the run that keeps it; "" where it was found by its place alone.
    """

    path: Path
    backend: str
    run: str = ""

    def contents(self) -> list[Stored | Damaged]:
        """What is stored; raises BadInput where that cannot be told."""
        look = getattr(registry.find("backends", self.backend), "contents", None)
        if look is None:
            raise BadInput(f"{self.path}: backend {self.backend!r} cannot list what it stores")
        found: list[Stored | Damaged] = look(self.path)
        return found

    def others(self, found: Iterable[Stored | Damaged], /) -> list[str]:
        """The runs that stored what was `found` in it and are not its own, in words."""
        runs = stored_by(found) if self.run else []
        return [str(RunId(run)) for run in runs if run != self.run]

    def in_use(self) -> bool:
        """Whether a live process has it open, as far as that can be seen from here."""
        return in_use(self.path)


def stored_by(found: Iterable[Stored | Damaged], /) -> list[str]:
    """The runs that stored these, as they say themselves; "" is no run in particular."""
    runs = (item.run for item in found if isinstance(item, Stored))
    return sorted({run for run in runs if run is not None})


def holdings(path: Path, /) -> list[Holding]:
    """What lies at `path`: nothing where it is a directory that has nothing of ckio's.

    It is the directory of a run (`--into`), the place of a directory level, the directory that one
    run has there, an archive, or the name that the archives of all runs are derived from.

    Raises BadInput where there is nothing at all, or a file that is no archive.
    """
    try:
        if (path / MANIFEST).is_file():
            return list(_of_run(path))
        if path.is_dir():
            return list(_in_directory(path))
        if path.exists():
            return [Holding(path, "hdf5")]
        beside = list(_in_directory(path.parent)) if path.parent.is_dir() else []
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None
    name = re.compile(re.escape(path.stem) + rf"-{_RUN.pattern}(-\d+)?\.h5")
    if found := [holding for holding in beside if name.fullmatch(holding.path.name)]:
        return found
    raise BadInput(
        f"there is no {path}; name the directory of a run, the place of a level, or an archive"
    )


def is_run_directory(path: Path, /) -> bool:
    """Whether `ckio run --into` made it."""
    return (path / MANIFEST).is_file()


def expected(path: Path, /) -> list[Holding]:
    """Where the run of this directory keeps its own, whether anything is there or not.

    A relative place counts from the current directory, as it does where a run goes on; from that in
    which the run was begun, where only that leads to something. Raises BadInput.
    """
    runs, here = _run(path / MANIFEST)
    found = []
    for level, run in _parts_of(platform_in(path / SCHEDULE), runs):
        where = registry.place(level, run)
        if where is not None:
            begun = here / where
            elsewhere = not os.path.lexists(where) and os.path.lexists(begun)
            found.append(Holding(begun if elsewhere else where, level.backend, run))
    return found


def has_seal(fd: int, /) -> bool:
    """Whether an open file is an archive, of any version."""
    return any(os.pread(fd, len(_SEAL), at) == _SEAL for at in _SEALS_AT)


def in_use(path: Path, /) -> bool:
    """Whether a live process has a level or a run here, as far as that can be seen."""
    try:
        return is_locked(path)
    except OSError:
        return False


def is_locked(path: Path, /) -> bool:
    """Whether a process holds a level or a run here; raises OSError where it cannot be looked at.

    The lock is not tried, even for a moment: a run that begins might find it taken.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        status = os.fstat(fd)
        if stat.S_ISREG(status.st_mode):
            held = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, ARCHIVE_LOCK)
            kind: int = struct.unpack("hhqqi4x", held)[0]
            return kind != fcntl.F_UNLCK
        inode = _in_list_of_locks(fd, status)
    finally:
        os.close(fd)
    return any(inode in line.split() for line in _LOCKS.read_text().splitlines())


def _in_list_of_locks(fd: int, status: os.stat_result) -> str:
    """What the system's list of locks calls an open file: numbers of a device and an inode.

    They are those of `stat` but where a file system shows other ones: overlayfs, and btrfs.
    """
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


def _in_directory(path: Path) -> Iterator[Holding]:
    """What lies in a directory and one below it; symbolic links are not followed."""
    if _has_slots(path):
        yield Holding(path, "directory")
    for entry in sorted(path.iterdir()):
        if entry.is_symlink():
            continue
        if entry.is_dir():
            parts = [entry, *_parts(entry)]
            yield from (Holding(part, "directory") for part in parts if _has_slots(part))
        elif entry.suffix == ".h5" and entry.is_file() and _is_archive(entry):
            yield Holding(entry, "hdf5")


def _parts(path: Path) -> list[Path]:
    """What single ranks keep in the directory of a run, in their order."""
    try:
        found = [entry for entry in path.glob("rank-*") if not entry.is_symlink()]
    except PermissionError:  # somebody else's
        return []
    return sorted(found, key=lambda entry: (len(entry.name), entry.name))


def _has_slots(path: Path) -> bool:
    try:
        return any(SLOTS.fullmatch(entry.name) for entry in path.iterdir())
    except (PermissionError, NotADirectoryError):  # somebody else's
        return False


def _is_archive(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return has_seal(file.fileno())
    except PermissionError:  # somebody else's
        return False


def _of_run(path: Path) -> Iterator[Holding]:
    """What the run of this directory keeps on the levels of its platform."""
    for holding in expected(path):
        where = holding.path
        if not os.path.lexists(where):
            continue
        ours = registry.is_ours("backends", holding.backend)
        if ours and where.is_dir() and not _has_slots(where):  # the run never wrote to it
            continue
        yield holding


def _parts_of(platform: Platform, runs: list[str]) -> Iterator[tuple[Level, str]]:
    """Each level with each name that the run has there: one, where all ranks share it."""
    for level in platform.levels:
        yield from product([level], [rank_of(runs[0])[0]] if registry.is_shared(level) else runs)


def _run(manifest: Path) -> tuple[list[str], Path]:
    """What a run is called on its levels, by each of its ranks, and where it was begun.

    Raises BadInput.
    """
    try:
        with manifest.open("rb") as file:
            said: Any = json.loads(file.read(_MOST + 1)[:_MOST])
        version, run, ranks = said["format"], said["run"], said.get("ranks", 1)
        here = said.get("here", "")
    except (ValueError, TypeError, LookupError, RecursionError):
        raise BadInput(f"{manifest} is damaged: it does not say which run this is") from None
    except OSError as error:
        raise BadInput(f"{manifest} cannot be read: {error.strerror}") from None
    if version != FORMAT:
        raise BadInput(f"{manifest} has format {version!r:.20}; this ckio reads format {FORMAT}")
    if not isinstance(run, str) or not _RUN.fullmatch(run):
        raise BadInput(f"{manifest} is damaged: {run!r:.80} is no name of a run")
    if not is_whole(ranks) or not 1 <= ranks <= _RANKS:
        raise BadInput(f"{manifest} is damaged: {ranks!r:.80} is no number of ranks")
    if not isinstance(here, str) or "\0" in here:
        raise BadInput(f"{manifest} is damaged: {here!r:.80} is no directory")
    return [run] if ranks == 1 else [of_rank(run, rank) for rank in range(ranks)], Path(here)
