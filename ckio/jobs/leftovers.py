"""Checkpoints that runs have left: finding, listing, verifying and removing them.

    for level in find("run1"):               the stored checkpoints, and whether they are in use
        print(level.path, level.nbytes)
    clean("run1")                            removes those that are not in use

Levels are not opened. A path is the directory of a run (`ckio run --into`), the directory of a
level, the directory of one run on a level, an archive, or the name from which the archives of all
runs are derived.

This module reads the manifest of a run and finds its levels. The files of a level are known only to
its backend, which is asked by methods of its class (`levels_at`, `contents`, `in_use`,
`remove_files`; see `backends.base`). Only files with names of ckio are removed, under the lock that
a process which opens them needs. Files that a live process has opened remain, and symbolic links
are not followed.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ckio.actions import Kind, Layout, nbytes_of
from ckio.adapters import registry
from ckio.backends import contents
from ckio.backends.contents import Damaged, Stored
from ckio.backends.encoded import unmark
from ckio.backends.files import is_locked
from ckio.backends.runid import RunId, of_rank, run_name
from ckio.errors import BadInput, CorruptCheckpoint, LevelInUse, StorageError
from ckio.jobs.directory import SCHEDULE, is_run_directory, manifest_in, platform_in, with_paths
from ckio.platform.readable import path_of

_SEARCHED: Final = ("directory", "hdf5")
"""The backends whose levels are found at any path, in the order in which they are asked.

Levels of other backends are found only through a run, because importing a backend takes time and
may fail.
"""

_ORDER: Final = (Kind.RESTART, Kind.TAPE, Kind.ADJOINT)
"""The order in which checkpoints are listed."""


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
class Found:
    """The checkpoints of one run on one level.

    Attributes
    ----------
    path : Path
        The directory of slot files, or the archive.
    backend : str
        The name of the level's backend: "directory", "hdf5", or that of another package.
    run : str
        The id of the run; "" if the location was found without a run.
    in_use : bool
        Whether a live process has opened it, as far as this host can determine.
    checkpoints : list of Checkpoint
    damaged : list of Damaged
        Both are empty before `read`.
    """

    path: Path
    backend: str
    run: str = ""
    in_use: bool = False
    checkpoints: Sequence[Checkpoint] = ()
    damaged: Sequence[Damaged] = ()

    @property
    def nbytes(self) -> int:
        """Return the bytes of all checkpoints, as stored."""
        return sum(checkpoint.stored.nbytes for checkpoint in self.checkpoints)

    @property
    def runs(self) -> list[str]:
        """Return the ids of the runs that stored the checkpoints."""
        return sorted({each.stored.run for each in self.checkpoints if each.stored.run})

    @property
    def others(self) -> list[str]:
        """Return texts for the runs other than `run` that stored checkpoints here."""
        stored = {each.stored.run for each in self.checkpoints} - {None, self.run}
        return [str(RunId(run)) for run in sorted(map(str, stored))] if self.run else []

    def nbytes_on_disk(self) -> int:
        """Return the bytes that the files occupy on the disk."""
        files = self.path.iterdir() if self.path.is_dir() else [self.path]
        return sum(file.lstat().st_blocks * 512 for file in files)

    def read(self) -> "Found":
        """Return it with its checkpoints; raises BadInput if the backend cannot list them."""
        in_use = _is_held(self.path, registry.find_backend(self.backend).in_use)
        checkpoints, damaged = list[Checkpoint](), list[Damaged]()
        try:
            items = self._contents()
        except StorageError as error:
            nbytes = self.path.lstat().st_size
            items = [Damaged(path=self.path, offset=0, nbytes=nbytes, what=str(error))]
        for item in items:
            if isinstance(item, Damaged):
                damaged.append(item)
                continue
            try:
                checkpoints.append(_checkpoint(item))
            except CorruptCheckpoint as error:
                damaged.append(_damage(item, str(error)))
        checkpoints.sort(key=lambda each: _rank(each.stored))
        return replace(self, in_use=in_use, checkpoints=checkpoints, damaged=damaged)

    def verified(self, tick: Callable[[int], None] = lambda _: None, /) -> "Found":
        """Read all checkpoints, and return it with the results of their checksums.

        `tick` is called with the bytes of each checkpoint. A checkpoint that a run has discarded in
        the meantime is left out.
        """
        checked, damaged = list[Checkpoint](), list(self.damaged)
        for checkpoint in self.checkpoints:
            stored = checkpoint.stored
            try:
                sound, what = contents.sound(stored), "its bytes fail their checksum"
            except OSError as error:
                sound, what = False, f"it cannot be read: {error.strerror}"
            tick(stored.nbytes)
            if sound is False:
                if not self._still_has(stored):
                    continue
                damaged.append(_damage(stored, what))
            checked.append(replace(checkpoint, sound=sound))
        return replace(self, checkpoints=checked, damaged=damaged)

    def _contents(self) -> list[Stored | Damaged]:
        look = registry.find_backend(self.backend).contents
        items = look(self.path)
        return [
            replace(item, run=run_name(item.run)) if isinstance(item, Stored) and item.run else item
            for item in items  # because a backend may return the complete id that it stored
        ]

    def _still_has(self, stored: Stored) -> bool:
        try:
            return stored in self._contents()
        except BadInput:  # the run has ended, and its files are gone
            return False


def _is_held(path: Path, look: Callable[[Path], bool]) -> bool:
    """Return whether a live process uses a level or run, as far as can be determined."""
    try:
        return look(path)
    except OSError:
        return False


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


# Finding


def find(path: str | Path, /, *, verify: bool = False) -> list[Found]:
    """Return the checkpoints that runs have at a path. With `verify`, all of them are read.

    Nothing is created, changed or locked, so that the path may be in use. Raises BadInput if the
    path does not exist, or its checkpoints cannot be listed.
    """
    levels = list(_read(locations(path_of(path))))
    return [level.verified() for level in levels] if verify else levels


def _read(places: Sequence[Found]) -> Iterator[Found]:
    """Yield the contents of each location, except if its run has ended and removed its files."""
    for place in places:
        try:
            yield place.read()
        except (BadInput, FileNotFoundError):
            if place.path in registry.find_backend(place.backend).levels_at(place.path):
                raise


def locations(path: Path, /) -> list[Found]:
    """Return the locations of checkpoints at `path`, unread; none if there are no files of ckio.

    Raises BadInput if `path` does not exist or cannot be read.
    """
    try:
        if is_run_directory(path):
            return list(_of_run(path))
        levels = [
            Found(level, backend)
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


def _of_run(path: Path) -> Iterator[Found]:
    """Yield the locations of checkpoints of a run on the levels of its platform."""
    for place in expected(path):
        levels_at = registry.find_backend(place.backend).levels_at
        is_own = not place.path.is_dir() or place.path in levels_at(place.path)
        if os.path.lexists(place.path) and is_own:
            yield place


def expected(path: Path, /) -> list[Found]:
    """Return the locations of the run of this directory on its levels, whether they exist or not.

    Raises BadInput.
    """
    manifest = manifest_in(path)
    run, ranks = manifest.run, manifest.ranks
    runs = [run] if ranks == 1 else [of_rank(run, rank) for rank in range(ranks)]
    found = list[Found]()
    for level in with_paths(platform_in(path / SCHEDULE), path, manifest).levels:
        for name in [run] if registry.is_shared(level) else runs:
            if (where := registry.place(level, name)) is not None:
                found.append(Found(where, level.backend, name))
            if (copies := registry.copies_at(level, name)) is not None:
                found.append(Found(copies, "directory", name))
    return found


# Removing


def removable(path: Path, /) -> list[Found]:
    """Return all that `inspect --remove` would remove at a path, and the levels in use.

    If a process works on the run of a directory, nothing of the run is removable. Raises BadInput.
    """
    if path.is_symlink():
        raise BadInput(f"{path} is a symbolic link, which is not followed; name its target")
    levels = list(_read(locations(path)))
    used = [level for level in levels if level.in_use]
    if is_run_directory(path) and (used or _is_held(path, is_locked)):
        return used or [Found(path, "run", in_use=True)]
    return levels


def clean(path: str | Path, /) -> list[Found]:
    """Remove the checkpoints of abandoned runs at a path, and return what was removed.

    Levels that a live process has opened remain. Raises BadInput if the path is not one of ckio,
    and StorageError if something cannot be removed; then the others are removed nevertheless.
    """
    return remove_all([level for level in removable(path_of(path)) if not level.in_use])


def remove_all(levels: Sequence[Found], /) -> list[Found]:
    """Remove these levels and return them; StorageError if some remain, after all were tried."""
    errors = list[StorageError]()
    for level in levels:
        try:
            remove(level)
        except StorageError as error:
            errors.append(error)
    if errors:
        raise StorageError("; ".join(map(str, errors)))
    return list(levels)


def remove(level: Found, /) -> None:
    """Remove the checkpoints of a run on a level.

    Raises
    ------
    LevelInUse
        If a live process has opened them.
    StorageError
        If they cannot be removed, are not certainly files of ckio, or belong to another run.
    """
    path, backend = level.path, level.backend
    others = list[str]()
    with suppress(BadInput, OSError):  # if nothing can be read, nothing is lost
        others = level.read().others
    if others:
        raise StorageError(
            f"{path} is left: it holds checkpoints of {' and '.join(others)}, not of run"
            f" {level.run}; move it to the location of the run that stored it"
        )
    try:
        registry.find_backend(backend).remove_files(path)
    except BlockingIOError:
        raise LevelInUse(f"{path} is in use by a live process") from None
    except OSError as error:
        raise StorageError(f"{path} cannot be removed: {error.strerror}") from None
