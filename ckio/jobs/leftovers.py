"""Checkpoints that runs left: found without opening a level, listed, verified, removed.

    for level in listing("run1"):                what lies there, and whether a process has it
        print(level.holding.path, level.nbytes)
    clean("run1").removed                        removes it

A path names the directory of a run (`ckio run --into`), the directory of a level, the directory
that one run has there, an archive, or the name that the archives of all runs are derived from.

This module knows runs: the manifest, where their levels are, and which run stored what. Of the
files of a level its backend alone knows something, and is asked through its class (`levels_at`,
`contents`, `drafts_at`, `in_use`, `remove_files`; see `backends.base`). Only what is certainly
ckio's is removed, by its name and under the lock that somebody who opens it would need; what a live
process has open stays, and symbolic links are not followed.
"""

import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Final

from ckio.actions import Kind, Layout, nbytes_of
from ckio.adapters import registry
from ckio.backends import contents
from ckio.backends.contents import Damaged, Stored
from ckio.backends.encoded import unmark
from ckio.backends.files import is_locked, names_in, opened
from ckio.backends.runid import RunId, of_rank, rank_of, run_name
from ckio.errors import BadInput, CorruptCheckpoint, LevelInUse, StorageError
from ckio.jobs.directory import HALF, MANIFEST, SCHEDULE, WHOLE, manifest_in, platform_in
from ckio.platform import Level, Platform
from ckio.platform.readable import shown

_SEARCHED: Final = ("directory", "hdf5")
"""Backends whose levels are found anywhere, in the order in which a path is taken for theirs.

Levels of the others are found through a run: to import one only to ask it takes time, or fails.
"""

_NAMED: Final = 4
"""The most places of a run that a line names; each rank may have its own."""

_ORDER: Final = (Kind.RESTART, Kind.TAPE, Kind.ADJOINT)
"""In which checkpoints are listed."""

_SETTLED: Final = 60.0
"""Seconds after which a half-written text has been given up; writing one takes a moment."""


@dataclass(frozen=True, slots=True)
class Holding:
    """The place where one run keeps its checkpoints on one level.

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
        """List what is stored; raises BadInput where that cannot be told."""
        look = _offered(self.backend, "contents")
        if look is None:
            raise BadInput(f"{self.path}: backend {self.backend!r} cannot list what it stores")
        items: list[Stored | Damaged] = look(self.path)
        return [
            replace(item, run=run_name(item.run)) if isinstance(item, Stored) and item.run else item
            for item in items  # a backend may give the whole id that it stored
        ]

    def others(self, items: Iterable[Stored | Damaged], /) -> list[str]:
        """Return the runs that stored what is listed and are not its own, in words."""
        runs = stored_by(items) if self.run else []
        return [str(RunId(run)) for run in runs if run != self.run]

    def in_use(self) -> bool:
        """Whether a live process has it open, as far as that can be seen from here."""
        return _is_held(self.path, _offered(self.backend, "in_use") or is_locked)

    def nbytes_on_disk(self) -> int:
        """Count the bytes that its files occupy."""
        files = self.path.iterdir() if self.path.is_dir() else [self.path]
        return sum(file.lstat().st_blocks * 512 for file in files)


def _offered(backend: str, question: str) -> Any:
    """Return the function by which a backend's class answers a question; None where it has none."""
    return getattr(registry.find("backends", backend), question, None)


def stored_by(items: Iterable[Stored | Damaged], /) -> list[str]:
    """Return the runs that stored these, as they say themselves; "" is no run in particular."""
    runs = (item.run for item in items if isinstance(item, Stored))
    return sorted({run for run in runs if run is not None})


def _is_held(path: Path, look: Callable[[Path], bool]) -> bool:
    """Whether a live process has a level or a run here, as far as that can be seen."""
    try:
        return look(path)
    except OSError:
        return False


def is_run_directory(path: Path, /) -> bool:
    """Whether `ckio run --into` made it."""
    return (path / MANIFEST).is_file()


# Finding


def holdings(path: Path, /) -> list[Holding]:
    """Find what lies at `path`: nothing where it is a directory that has nothing of ckio's.

    Raises BadInput where there is nothing at all.
    """
    try:
        if is_run_directory(path):
            return list(_of_run(path))
        levels = [
            Holding(level, backend)
            for backend in _SEARCHED
            for level in _offered(backend, "levels_at")(path)
        ]
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None
    if not levels and not path.exists():
        raise BadInput(
            f"there is no {path}; name the directory of a run, the place of a level, or an archive"
        )
    # Each backend has its levels in order; those of one entry of the directory stay together.
    return sorted(levels, key=lambda level: level.path.parts[: len(path.parts) + 1])


def _of_run(path: Path) -> Iterator[Holding]:
    """Find the checkpoints of the run of this directory on the levels of its platform."""
    for holding in expected(path):
        where = holding.path
        if not os.path.lexists(where):
            continue
        levels_at = _offered(holding.backend, "levels_at")
        if levels_at is None or not where.is_dir() or _is_written(where, levels_at):
            yield holding


def _is_written(path: Path, levels_at: Callable[[Path], list[Path]]) -> bool:
    """Whether a level is in the directory that a run made for it."""
    try:
        return path in levels_at(path)
    except PermissionError:  # somebody else's
        return False


def expected(path: Path, /) -> list[Holding]:
    """Return where the run of this directory keeps its own, whether anything is there or not.

    A relative place counts from the current directory, as it does where a run goes on; from that in
    which the run was begun, where only that leads to something. Raises BadInput.
    """
    runs, here = _run(path)
    places = []
    for level, run in _parts_of(platform_in(path / SCHEDULE), runs):
        where = registry.place(level, run)
        if where is not None:
            begun = here / where
            elsewhere = not os.path.lexists(where) and os.path.lexists(begun)
            places.append(Holding(begun if elsewhere else where, level.backend, run))
    return places


def looked_for(path: Path, /) -> str:
    """Return where the run of this directory has its levels, in words; "" of other places."""
    places = expected(path) if is_run_directory(path) else []
    names = [shown(holding.path.absolute()) for holding in places]
    first = ", ".join(names[:_NAMED]) + ", ..." * (len(names) > _NAMED)
    return f" (looked for in {first})" if names else ""


def _parts_of(platform: Platform, runs: list[str]) -> Iterator[tuple[Level, str]]:
    """Return each level with each name that the run has there: one, where all ranks share it."""
    for level in platform.levels:
        yield from product([level], [rank_of(runs[0])[0]] if registry.is_shared(level) else runs)


def _run(path: Path) -> tuple[list[str], Path]:
    """Return the names of a run on its levels, one for each rank, and where it was begun.

    Raises BadInput.
    """
    manifest = manifest_in(path)
    run, ranks = manifest.run, manifest.ranks
    return [run] if ranks == 1 else [of_rank(run, rank) for rank in range(ranks)], Path(
        manifest.here
    )


def half_made(path: Path, /) -> list[Path]:
    """Find what killed processes had half written at a path: levels, and texts of a run."""
    try:
        if is_run_directory(path):
            parts = (entry for entry in path.iterdir() if HALF.fullmatch(entry.name))
            return [*sorted(filter(_is_given_up, parts)), *_drafts_of_run(path)]
        return [
            draft
            for backend in _SEARCHED
            for draft in (_offered(backend, "drafts_at") or _no_drafts)(path)
        ]
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None


def _no_drafts(path: Path) -> dict[Path, Path]:
    return {}


def _drafts_of_run(path: Path) -> list[Path]:
    """Find what killed processes of a run had half made beside its levels."""
    levels = {(level.backend, level.path) for level in expected(path)}
    unfinished: list[Path] = []
    for backend, folder in sorted({(backend, level.parent) for backend, level in levels}):
        drafts_at = _offered(backend, "drafts_at") or _no_drafts
        with suppress(OSError):  # there is no such place, or it is somebody else's
            drafts = drafts_at(folder)
            unfinished += [draft for draft, level in drafts.items() if (backend, level) in levels]
    return unfinished


def _is_given_up(path: Path) -> bool:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_mtime < time.time() - _SETTLED


# Listing


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint, and what it was before it was compressed.

    Attributes
    ----------
    stored : Stored
    layout : Layout
        That of the checkpoint itself.
    codec : str
        What it is compressed with; "" if it is not.
    lossless : bool
        Whether what is read is bitwise what was written.
    sound : bool or None
        Whether its bytes match their checksum; None where that was not asked, or there is none.
    """

    stored: Stored
    layout: Layout
    codec: str = ""
    lossless: bool = True
    sound: bool | None = None

    @property
    def original(self) -> int:
        """Return bytes of the checkpoint itself."""
        return nbytes_of(self.layout)


@dataclass(frozen=True, slots=True)
class Listing:
    """The checkpoints of one run on one level, as they were found."""

    holding: Holding
    in_use: bool
    checkpoints: Sequence[Checkpoint]
    damaged: Sequence[Damaged]

    @property
    def nbytes(self) -> int:
        """Return bytes of all checkpoints, as stored."""
        return sum(checkpoint.stored.nbytes for checkpoint in self.checkpoints)

    @property
    def others(self) -> list[str]:
        """Return the runs that stored something there and are not the one whose place it is."""
        return self.holding.others(checkpoint.stored for checkpoint in self.checkpoints)

    def verified(self, tick: Callable[[int], None] = lambda _: None, /) -> "Listing":
        """Read and check everything that it names; `tick` is told of the bytes that were read.

        What a run has discarded meanwhile is no longer in the listing.
        """
        checked, failed = [], {}
        for checkpoint in self.checkpoints:
            stored = checkpoint.stored
            try:
                sound = contents.sound(stored)
                what = "its bytes fail their checksum"
            except OSError as error:
                sound, what = False, f"it cannot be read: {error.strerror}"
            if sound is False:
                failed[stored] = _damage(stored, what)
            checked.append(replace(checkpoint, sound=sound))
            tick(stored.nbytes)
        there = _still(self.holding) if failed else set()
        return replace(
            self,
            checkpoints=[
                entry for entry in checked if entry.sound is not False or entry.stored in there
            ],
            damaged=[*self.damaged, *(failed[stored] for stored in failed if stored in there)],
        )


def listing(path: str | Path, /, *, verify: bool = False) -> list[Listing]:
    """List what runs left at a path, which may be in use; with `verify`, all of it is read.

    Nothing is made, changed or locked. Raises BadInput where nothing is, or it cannot be told.
    """
    listings = [_listing(holding) for holding in holdings(Path(path))]
    return [level.verified() for level in listings] if verify else listings


def _listing(holding: Holding) -> Listing:
    in_use = holding.in_use()
    try:
        items = holding.contents()
    except StorageError as error:
        size = holding.path.lstat().st_size
        items = [Damaged(path=holding.path, offset=0, nbytes=size, what=str(error))]
    damaged = [item for item in items if isinstance(item, Damaged)]
    checkpoints = []
    for stored in sorted((item for item in items if isinstance(item, Stored)), key=_rank):
        try:
            checkpoints.append(_checkpoint(stored))
        except CorruptCheckpoint as error:
            damaged.append(_damage(stored, str(error)))
    return Listing(holding, in_use, checkpoints, damaged)


def _rank(stored: Stored) -> tuple[int, int, str]:
    return _ORDER.index(stored.key.kind), stored.key.step, stored.key.name


def _checkpoint(stored: Stored) -> Checkpoint:
    """Read a checkpoint's layout; raises CorruptCheckpoint where that makes no sense."""
    encoding = unmark(stored.layout)
    if encoding is None:
        return Checkpoint(stored, stored.layout)
    return Checkpoint(stored, encoding.layout, encoding.codec, encoding.lossless)


def _damage(stored: Stored, what: str) -> Damaged:
    offset = stored.spans[0][0] if stored.spans else 0
    text = f"{stored.key}: {what}"
    return Damaged(path=stored.path, offset=offset, nbytes=stored.nbytes, what=text)


def _still(holding: Holding) -> set[Stored]:
    try:
        return {item for item in holding.contents() if isinstance(item, Stored)}
    except BadInput:  # the run has ended, and its files are gone
        return set()


def age(written: float, now: float, /) -> float:
    """Return seconds since then; nothing is younger than 0, though a clock may be set back."""
    return max(0.0, now - written)


# Removing


@dataclass(frozen=True, slots=True)
class Leftover:
    """The checkpoints that an abandoned run left on a level.

    Attributes
    ----------
    holding : Holding
    runs : list of str
        The runs whose checkpoints these are.
    checkpoints : int
    nbytes : int
        Bytes that its files have on the disk.
    newest : float or None
        When its newest checkpoint was written, in seconds since 1970.
    """

    holding: Holding
    runs: Sequence[str]
    checkpoints: int
    nbytes: int
    newest: float | None


@dataclass(frozen=True, slots=True)
class Cleaned:
    """The outcome of cleaning: what was removed, and what stays.

    Attributes
    ----------
    removed : list of Leftover
    in_use : list of Path
        What a live process has.
    refused : mapping of Path to StorageError
        What could not be removed, and why; a LevelInUse where it was taken meanwhile.
    """

    removed: Sequence[Leftover]
    in_use: Sequence[Path]
    refused: Mapping[Path, StorageError]


@dataclass(frozen=True, slots=True)
class Cleaning:
    """A plan of cleaning: leftovers, half-written files, perhaps the directory of the run.

    Attributes
    ----------
    left : list of Leftover
    half_made : list of Path
    results : Path or None
        The directory of the run, if it is to be removed.
    in_use : list of Path
        What a live process has, which stays.
    """

    left: Sequence[Leftover]
    half_made: Sequence[Path]
    results: Path | None
    in_use: Sequence[Path] = ()

    def __bool__(self) -> bool:
        return bool(self.left or self.half_made or self.results)

    def perform(self) -> Cleaned:
        """Remove all that can be removed; the directory of the run only where all else is gone."""
        removed: list[Leftover] = []
        refused: dict[Path, StorageError] = {}
        for left in self.left:
            try:
                remove(left.holding)
                removed.append(left)
            except StorageError as error:
                refused[left.holding.path] = error
        for path in self.half_made:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                refused[path] = StorageError(f"{path} cannot be removed: {error.strerror}")
        if self.results is not None and not refused:
            remove_results(self.results)
        taken = [path for path, error in refused.items() if isinstance(error, LevelInUse)]
        return Cleaned(removed, [*self.in_use, *taken], refused)


def clean(path: str | Path, /, *, results: bool = False) -> Cleaned:
    """Remove what abandoned runs left at a path; with `results`, the directory of the run as well.

    Raises BadInput, and where `results` cannot be removed StorageError.
    """
    return survey(Path(path), results=results).perform()


def survey(place: Path, /, *, results: bool = False) -> Cleaning:
    """Find what can be removed, and what is in use; raises BadInput."""
    if place.is_symlink():
        raise BadInput(f"{place} is a symbolic link, which is not followed; name what it points to")
    if results and not is_run_directory(place):
        raise BadInput(f"{place} is not the directory of a run; leave results out")
    places = holdings(place)
    used = [holding.path for holding in places if holding.in_use()]
    if is_run_directory(place) and (used or _is_held(place, is_locked)):  # the run goes on
        return Cleaning((), (), None, used or [place])
    left = [_leftover(holding) for holding in places if holding.path not in used]
    return Cleaning(left, half_made(place), place if results else None, used)


def _leftover(holding: Holding) -> Leftover:
    try:
        stored = [item for item in holding.contents() if isinstance(item, Stored)]
    except StorageError:  # damaged all over: nobody reads what is in it
        stored = []
    newest = max((item.written for item in stored), default=None)
    runs = [run for run in stored_by(stored) if run]
    return Leftover(holding, runs, len(stored), holding.nbytes_on_disk(), newest)


def remove(holding: Holding, /) -> None:
    """Remove what a run keeps on a level.

    Raises
    ------
    LevelInUse
        A live process has it open.
    StorageError
        It cannot be removed, or is not certainly ckio's, or not that of the run which is cleaned.
    """
    path, backend = holding.path, holding.backend
    _check_owner(holding)
    try:
        if (remove_files := _offered(backend, "remove_files")) is not None:
            remove_files(path)
        elif hasattr(factory := registry.find("backends", backend), "remove"):
            registry.make(f"{path}: {backend}", factory, {"path": path}).remove()
        else:
            raise StorageError(f"{path} is left: backend {backend!r} cannot remove what it stored")
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
        with opened(path, os.O_RDONLY | os.O_DIRECTORY) as folder:
            _take_run(folder)
            ours = [name for name in names_in(folder) if WHOLE.fullmatch(name)]
            for name in sorted(ours, key=lambda name: name == MANIFEST):  # that goes last
                os.unlink(name, dir_fd=folder)
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
