"""Checkpoints that runs have left: finding, listing, verifying and removing them.

    for level in listing("run1"):                the stored checkpoints, and whether they are in use
        print(level.holding.path, level.nbytes)
    clean("run1").removed                        removes them

Levels are not opened. A path is the directory of a run (`ckio run --into`), the directory of a
level, the directory of one run on a level, an archive, or the name from which the archives of all
runs are derived.

This module reads the manifest of a run and finds its levels. The files of a level are known only to
its backend, which is asked by methods of its class (`levels_at`, `contents`, `drafts_at`, `in_use`,
`remove_files`; see `backends.base`). For safety, only files with names of ckio are removed, under
the lock that a process which opens them needs. Files that a live process has opened remain, and
symbolic links are not followed.
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
from typing import Final, TypeVar

from ckio.actions import Kind, Layout, nbytes_of
from ckio.adapters import registry
from ckio.backends import contents
from ckio.backends.contents import Damaged, Stored
from ckio.backends.encoded import unmark
from ckio.backends.files import is_locked, locking, names_in, opened
from ckio.backends.runid import RunId, of_rank, rank_of, run_name
from ckio.errors import BadInput, CorruptCheckpoint, LevelInUse, StorageError
from ckio.jobs.directory import HALF, MANIFEST, SCHEDULE, WHOLE, manifest_in, platform_in
from ckio.platform import Level, Platform
from ckio.platform.readable import path_of, shown

T = TypeVar("T")

_SEARCHED: Final = ("directory", "hdf5")
"""The backends whose levels are found at any path, in the order in which they are asked.

Levels of other backends are found only through a run, because importing a backend takes time and
may fail.
"""

_NAMED: Final = 4
"""The most locations of a run that a line names; each rank may have its own."""

_ORDER: Final = (Kind.RESTART, Kind.TAPE, Kind.ADJOINT)
"""The order in which checkpoints are listed."""

_SETTLED: Final = 60.0
"""Seconds after which a partly written text counts as abandoned; writing takes less time."""


@dataclass(frozen=True, slots=True)
class Holding:
    """The location of the checkpoints of one run on one level.

    Attributes
    ----------
    path : Path
        The directory of slot files, or the archive.
    backend : str
        The name of the level's backend: "directory", "hdf5", or that of another package.
    run : str
        The id of the run; "" if the location was found without a run.
    """

    path: Path
    backend: str
    run: str = ""

    def contents(self) -> list[Stored | Damaged]:
        """Return the stored checkpoints and damaged parts; raises BadInput if they are unknown."""
        items = registry.find_backend(self.backend).contents(self.path)
        return [
            replace(item, run=run_name(item.run)) if isinstance(item, Stored) and item.run else item
            for item in items  # because a backend may return the complete id that it stored
        ]

    def others(self, items: Iterable[Stored | Damaged], /) -> list[str]:
        """Return texts for the other runs that stored some of these items."""
        runs = stored_by(items) if self.run else []
        return [str(RunId(run)) for run in runs if run != self.run]

    def in_use(self) -> bool:
        """Return whether a live process has opened it, as far as this host can determine."""
        return _is_held(self.path, registry.find_backend(self.backend).in_use)

    def nbytes_on_disk(self) -> int:
        """Return the bytes that the files occupy on the disk."""
        files = self.path.iterdir() if self.path.is_dir() else [self.path]
        return sum(file.lstat().st_blocks * 512 for file in files)


def stored_by(items: Iterable[Stored | Damaged], /) -> list[str]:
    """Return the ids of the runs that stored these items; "" stands for no particular run."""
    runs = (item.run for item in items if isinstance(item, Stored))
    return sorted({run for run in runs if run is not None})


def _is_held(path: Path, look: Callable[[Path], bool]) -> bool:
    """Return whether a live process uses a level or run, as far as can be determined."""
    try:
        return look(path)
    except OSError:
        return False


def is_run_directory(path: Path, /) -> bool:
    """Return whether a path is the directory of a run, made by `ckio run --into`."""
    return (path / MANIFEST).is_file()


# Finding


def holdings(path: Path, /) -> list[Holding]:
    """Return the locations of checkpoints at `path`; none if a directory has no files of ckio.

    Raises BadInput if `path` does not exist or cannot be read.
    """
    try:
        if is_run_directory(path):
            return list(_of_run(path))
        levels = [
            Holding(level, backend)
            for backend in _SEARCHED
            for level in registry.find_backend(backend).levels_at(path)
        ]
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None
    if not levels and not path.exists():
        raise BadInput(
            f"there is no {path}; name the directory of a run or of a level, or an archive"
        )
    # The levels of each backend are in order; those of one entry of the directory stay together.
    return sorted(levels, key=lambda level: level.path.parts[: len(path.parts) + 1])


def _of_run(path: Path) -> Iterator[Holding]:
    """Yield the locations of checkpoints of a run on the levels of its platform."""
    for holding in expected(path):
        where = holding.path
        if not os.path.lexists(where):
            continue
        if not where.is_dir() or _is_written(
            where, registry.find_backend(holding.backend).levels_at
        ):
            yield holding


def _is_written(path: Path, levels_at: Callable[[Path], list[Path]]) -> bool:
    """Return whether a level is in the directory that a run made for it."""
    try:
        return path in levels_at(path)
    except PermissionError:  # of another user
        return False


def expected(path: Path, /) -> list[Holding]:
    """Return the locations of the run of this directory on its levels, whether they exist or not.

    A relative path refers to the current directory, as for a resumed run. If it exists only in the
    directory in which the run was begun, it refers to that one. Raises BadInput.
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
    """Return a text with the locations of a run's levels; "" for a path that is not a run."""
    places = expected(path) if is_run_directory(path) else []
    names = [shown(holding.path.absolute()) for holding in places]
    first = ", ".join(names[:_NAMED]) + ", ..." * (len(names) > _NAMED)
    return f" (looked for in {first})" if names else ""


def _parts_of(platform: Platform, runs: list[str]) -> Iterator[tuple[Level, str]]:
    """Yield each level with each name of the run on it: one name if all ranks share the level."""
    for level in platform.levels:
        yield from product([level], [rank_of(runs[0])[0]] if registry.is_shared(level) else runs)


def _run(path: Path) -> tuple[list[str], Path]:
    """Return the names of a run on its levels, one for each rank, and its initial directory.

    Raises BadInput.
    """
    manifest = manifest_in(path)
    run, ranks = manifest.run, manifest.ranks
    return [run] if ranks == 1 else [of_rank(run, rank) for rank in range(ranks)], Path(
        manifest.here
    )


def half_made(path: Path, /) -> list[Path]:
    """Return the partly written files of killed processes at a path: levels, and texts of a run."""
    try:
        if is_run_directory(path):
            parts = (entry for entry in path.iterdir() if HALF.fullmatch(entry.name))
            return [*sorted(filter(_is_given_up, parts)), *_drafts_of_run(path)]
        return [
            draft
            for backend in _SEARCHED
            for draft in registry.find_backend(backend).drafts_at(path)
        ]
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None


def _drafts_of_run(path: Path) -> list[Path]:
    """Return the partly written levels of killed processes of a run, next to its levels."""
    levels = {(level.backend, level.path) for level in expected(path)}
    unfinished: list[Path] = []
    for backend, folder in sorted({(backend, level.parent) for backend, level in levels}):
        with suppress(OSError):  # the folder does not exist, or belongs to another user
            drafts = registry.find_backend(backend).drafts_at(folder)
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
    """A stored checkpoint, with its layout before compression.

    Attributes
    ----------
    stored : Stored
        The checkpoint as it is stored.
    layout : Layout
        The layout of the checkpoint without compression.
    codec : str
        The codec with which it is compressed; "" if it is not.
    lossless : bool
        Whether reading returns the bytes that were written.
    sound : bool or None
        Whether the bytes match their checksum; None if this was not checked, or there is none.
    """

    stored: Stored
    layout: Layout
    codec: str = ""
    lossless: bool = True
    sound: bool | None = None

    @property
    def original(self) -> int:
        """Return the bytes of the checkpoint without compression."""
        return nbytes_of(self.layout)


@dataclass(frozen=True, slots=True)
class Listing:
    """The checkpoints of one run on one level."""

    holding: Holding
    in_use: bool
    checkpoints: Sequence[Checkpoint]
    damaged: Sequence[Damaged]

    @property
    def nbytes(self) -> int:
        """Return the bytes of all checkpoints, as stored."""
        return sum(checkpoint.stored.nbytes for checkpoint in self.checkpoints)

    @property
    def others(self) -> list[str]:
        """Return texts for other runs that stored checkpoints at this location."""
        return self.holding.others(checkpoint.stored for checkpoint in self.checkpoints)

    def verified(self, tick: Callable[[int], None] = lambda _: None, /) -> "Listing":
        """Read all checkpoints, and return a listing with the results of their checksums.

        `tick` is called with the bytes of each checkpoint. A checkpoint that a run has discarded in
        the meantime is left out.
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
        present = _still(self.holding) if failed else set()
        return replace(
            self,
            checkpoints=[
                entry for entry in checked if entry.sound is not False or entry.stored in present
            ],
            damaged=[*self.damaged, *(failed[stored] for stored in failed if stored in present)],
        )


def listing(path: str | Path, /, *, verify: bool = False) -> list[Listing]:
    """Return the checkpoints that runs have at a path. With `verify`, all of them are read.

    Nothing is created, changed or locked, so that the path may be in use. Raises BadInput if the
    path does not exist, or its checkpoints cannot be listed.
    """
    listings = list(_of_present(_listing, holdings(path_of(path))))
    return [level.verified() for level in listings] if verify else listings


def _of_present(look: Callable[[Holding], T], places: Iterable[Holding]) -> Iterator[T]:
    """Yield `look` of each location, except of those whose run has ended and removed its files."""
    for holding in places:
        try:
            yield look(holding)
        except (BadInput, FileNotFoundError):
            if holding.path in registry.find_backend(holding.backend).levels_at(holding.path):
                raise


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
    """Read a checkpoint's layout; raises CorruptCheckpoint if the layout is damaged."""
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
    """Return the seconds since `written`; 0 if the clock was set back in the meantime."""
    return max(0.0, now - written)


# Removing


@dataclass(frozen=True, slots=True)
class Leftover:
    """The checkpoints that an abandoned run left on a level.

    Attributes
    ----------
    holding : Holding
    runs : list of str
        The ids of the runs that stored the checkpoints.
    checkpoints : int
        The number of checkpoints.
    nbytes : int
        The bytes of the files on the disk.
    newest : float or None
        The time at which the newest checkpoint was written, in seconds since 1970.
    """

    holding: Holding
    runs: Sequence[str]
    checkpoints: int
    nbytes: int
    newest: float | None


@dataclass(frozen=True, slots=True)
class Cleaned:
    """The result of cleaning.

    Attributes
    ----------
    removed : list of Leftover
        The checkpoints that were removed.
    in_use : list of Path
        The files that remain, because a live process uses them.
    refused : mapping of Path to StorageError
        The files that could not be removed, with the errors; LevelInUse if a process has opened
        them in the meantime.
    """

    removed: Sequence[Leftover]
    in_use: Sequence[Path]
    refused: Mapping[Path, StorageError]


@dataclass(frozen=True, slots=True)
class Cleaning:
    """The files that cleaning would remove.

    Attributes
    ----------
    left : list of Leftover
        The checkpoints of abandoned runs.
    half_made : list of Path
        Partly written files.
    results : Path or None
        The directory of the run, if it is to be removed.
    in_use : list of Path
        The files that remain, because a live process uses them.
    """

    left: Sequence[Leftover]
    half_made: Sequence[Path]
    results: Path | None
    in_use: Sequence[Path] = ()

    def __bool__(self) -> bool:
        return bool(self.left or self.half_made or self.results)

    def perform(self) -> Cleaned:
        """Remove the files; the directory of the run only if all others were removed."""
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
    """Remove the checkpoints of abandoned runs at a path, and with `results` the run's directory.

    Raises BadInput if the path is not one of ckio, and StorageError if the run's directory cannot
    be removed. Other files that cannot be removed are listed in the result.
    """
    return survey(path_of(path), results=results).perform()


def survey(place: Path, /, *, results: bool = False) -> Cleaning:
    """Return the files that `clean` would remove, and those in use; raises BadInput."""
    if place.is_symlink():
        raise BadInput(f"{place} is a symbolic link, which is not followed; name its target")
    if results and not is_run_directory(place):
        raise BadInput(f"{place} is not the directory of a run; leave results out")
    places = holdings(place)
    used = [holding.path for holding in places if holding.in_use()]
    if is_run_directory(place) and (used or _is_held(place, is_locked)):  # a process works on it
        return Cleaning((), (), None, used or [place])
    left = list(_of_present(_leftover, [it for it in places if it.path not in used]))
    return Cleaning(left, half_made(place), place if results else None, used)


def _leftover(holding: Holding) -> Leftover:
    try:
        stored = [item for item in holding.contents() if isinstance(item, Stored)]
    except StorageError:  # damaged, so that nothing in it can be read
        stored = []
    newest = max((item.written for item in stored), default=None)
    runs = [run for run in stored_by(stored) if run]
    return Leftover(holding, runs, len(stored), holding.nbytes_on_disk(), newest)


def remove(holding: Holding, /) -> None:
    """Remove the checkpoints of a run on a level.

    Raises
    ------
    LevelInUse
        If a live process has opened them.
    StorageError
        If they cannot be removed, are not certainly files of ckio, or belong to another run.
    """
    path, backend = holding.path, holding.backend
    _check_owner(holding)
    try:
        registry.find_backend(backend).remove_files(path)
    except BlockingIOError:
        raise LevelInUse(f"{path} is in use by a live process") from None
    except OSError as error:
        raise StorageError(f"{path} cannot be removed: {error.strerror}") from None


def _check_owner(holding: Holding) -> None:
    """Raise StorageError if another run stored checkpoints at this location."""
    others: list[str] = []
    with suppress(BadInput, StorageError):  # if nothing can be read, nothing is lost
        others = holding.others(holding.contents())
    if others:
        raise StorageError(
            f"{holding.path} is left: it holds checkpoints of {' and '.join(others)}, not of run"
            f" {holding.run}; move it to the location of the run that stored it"
        )


def remove_results(path: Path, /) -> None:
    """Remove the files of a run's directory, and the directory if it is then empty.

    Raises LevelInUse if a live process works on the run, and StorageError.
    """
    try:
        with opened(path, os.O_RDONLY | os.O_DIRECTORY) as folder:
            with locking(path):  # as a process that works on the run does
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            there = names_in(folder)
            ours = [name for name in there if WHOLE.fullmatch(name) or HALF.fullmatch(name)]
            for name in sorted(ours, key=lambda name: name == MANIFEST):  # the manifest last
                os.unlink(name, dir_fd=folder)
            with suppress(OSError):
                path.rmdir()
    except BlockingIOError:
        raise LevelInUse(f"{path} is in use by a live process") from None
    except OSError as error:
        raise StorageError(f"{path} cannot be removed: {error.strerror}") from None
