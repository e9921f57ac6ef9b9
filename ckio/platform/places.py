"""The levels that a user names in a word: memory by its size, a directory or a file by its path."""

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from ckio.errors import BadInput
from ckio.platform import Affine, Level, Option, Platform, size
from ckio.platform.memory import available, of_machine
from ckio.platform.readable import bytes_text, duration, path_of

ASSUMED: Final = {
    "ram": Affine(1e-6, 1e-10),
    "disk": Affine(1e-4, 1e-9),
    "archive": Affine(1e-3, 2e-9),
}
"""Costs of an access that are usual: 10 GB/s of memory, 1 GB/s of NVMe, and 0.5 GB/s of a parallel
file system. They order the levels until these are measured.
"""

_EVERY: Final = 600.0
"""Seconds between two copies of a level, if none are given: what the loss of a node costs more."""

SHARE_OF_MEMORY: Final = 2
"""The available memory is divided by this number for checkpoints, if no size is given."""


_MISTYPED: Final = re.compile(r"[-+]?[0-9][0-9.,_ ]*[kmgtp]?i?b\w*", re.IGNORECASE)
"""A text that is meant as a size."""


class Place(NamedTuple):
    """The path of a level, and its capacity in bytes; None if it was not given."""

    path: Path
    capacity: int | None


def place_of(what: str, given: object, /) -> Place:
    """Return a place that is written as PATH or PATH:SIZE.

    Raises BadInput for a size or an option in place of a path.

    >>> place_of("disk", "/scratch:2kB")
    Place(path=PosixPath('/scratch'), capacity=2000)
    """
    text = os.fspath(given) if isinstance(given, os.PathLike) else given
    if not isinstance(text, str) or "\0" in text:
        raise BadInput(f"{what} = {given!r}; give a path, such as scratch or scratch:100GB")
    if not _is_text(text):
        raise BadInput(
            f"{what} = {given!r}: the absolute path is not UTF-8, and files of a run could not name"
            " it; give another path"
        )
    head, colon, tail = text.rpartition(":")
    capacity = _size(tail) if colon else None
    if capacity is None and _MISTYPED.fullmatch(tail if colon else ""):
        raise BadInput(f"{what} = {text!r}: {tail!r} is not a size; write it as in scratch:1.5GB")
    path = text if capacity is None else head
    if not path or path.startswith("-") or _size(path) is not None:
        raise BadInput(
            f"{what} = {text!r}: {path!r} is not a path; give a path, and a size after it if you"
            " like, such as scratch:100GB; an absolute path may have any name"
        )
    return Place(path_of(path), capacity)


def with_copies(levels: Sequence[Level], given: object, /) -> tuple[Level, ...]:
    """Return levels of which the first with files is copied to a directory, e.g. "saved:10m".

    The time after the path is that from one copy to the next; by default it is ten minutes. Raises
    BadInput if no level has files.
    """
    text = os.fspath(given) if isinstance(given, os.PathLike) else given
    if not isinstance(text, str):
        raise BadInput(f"copies = {given!r}; give a directory, such as saved or saved:10m")
    head, colon, tail = text.rpartition(":")
    every = duration(tail) if colon else _EVERY
    path = place_of("copies", head or tail).path.absolute()
    options: dict[str, Option] = {"copies": str(path), "copies_every": every}
    for number, level in enumerate(levels):
        if "path" in level.options:
            own = replace(level, options={**level.options, **options})
            return (*levels[:number], own, *levels[number + 1 :])
    raise BadInput("copies are those of files, and no level has any; give disk, too")


def _is_text(path: str) -> bool:
    """Return whether the absolute path is UTF-8, as the files are in which it is stored."""
    try:
        str(Path(path).absolute()).encode()
    except UnicodeEncodeError:
        return False
    return True


def _size(text: str) -> int | None:
    """Return the bytes of a size with a unit; None if the text is none."""
    try:
        return None if text.isdecimal() else size(text)
    except BadInput:
        return None


def within_what_is_free(levels: Sequence[Level], ranks: int, /) -> tuple[Level, ...]:
    """Return levels whose capacity is a part of what is free at their place, if none was given."""
    return tuple(
        replace(level, capacity=int(SHARE_OF_DISK * _usage(level)[1]) // ranks)
        if level.capacity is None and "path" in level.options
        else level
        for level in levels
    )


def check_exist(levels: Sequence[Level], /) -> None:
    """Raise BadInput for a level of more bytes than the memory or the disk of this machine has."""
    for level in levels:
        of_disk = "path" in level.options
        whole = _usage(level)[0] if of_disk else of_machine()
        if level.capacity is not None and whole is not None and level.capacity > whole:
            where = f"the disk at {level.options['path']} has" if of_disk else "this machine has"
            raise BadInput(
                f"{level.name}: {bytes_text(level.capacity)} are more than the {bytes_text(whole)}"
                f" that {where}; give less"
            )


@lru_cache(maxsize=64)
def usual_platform(levels: tuple[Level, ...], ranks: int, /) -> Platform:
    """Return the platform of these levels, the same for each call of a process.

    What is free on a disk changes all the time. A loop is planned and compiled once for a platform,
    so this must not change with it.
    """
    return Platform(within_what_is_free(levels, ranks))


def _usage(level: Level) -> tuple[int, int]:
    """Return the bytes of the disk of a level, and those of them that are free."""
    path = Path(str(level.options["path"]))
    try:
        there = next(it for it in (path, *path.parents) if it.exists())
        usage = shutil.disk_usage(there)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}; give another path") from None
    return usage.total, usage.free


SHARE_OF_DISK: Final = 0.9
"""The part of a disk that checkpoints may take, of what is free when the run begins."""


class Words(NamedTuple):
    """The levels of a run in words: bytes of memory, a directory, and an HDF5 archive."""

    ram: int | None = None
    disk: Place | None = None
    archive: Place | None = None


def words_of(
    ram: int | str | None,
    disk: str | os.PathLike[str] | None,
    archive: str | os.PathLike[str] | None,
    /,
    platform: object = None,
) -> Words:
    """Return what a user wrote: sizes such as "2GiB", and places such as "/scratch:200GiB".

    Raises BadInput for other texts, and if levels are given both in words and by a platform.
    """
    words = Words(
        size(ram) if isinstance(ram, str) else ram,
        None if disk is None else place_of("disk", disk),
        None if archive is None else place_of("archive", archive),
    )
    if platform is not None and words != Words():
        raise BadInput(
            "ram, disk and archive cannot be given with a platform, which has levels of its own;"
            " leave them out"
        )
    return words


def levels_of(
    ram: int | None, disk: Place | None, archive: Place | None, /, ranks: int = 1
) -> tuple[Level, ...]:
    """Return the given levels: memory, a directory of files, and an HDF5 archive.

    Their costs are the usual ones. If none is given, the level is half of the available memory,
    divided among the ranks.
    """
    if ram is None and disk is None and archive is None:
        ram = (available() or 0) // SHARE_OF_MEMORY // ranks
    levels = []
    if ram is not None:
        levels.append(_level("ram", "ram", ram))
    places = {"disk": ("directory", disk), "archive": ("hdf5", archive)}
    for name, (backend, place) in places.items():
        if place is not None:
            path = str(place.path.absolute())
            levels.append(_level(name, backend, place.capacity, path=path))
    return tuple(levels)


def _level(name: str, backend: str, capacity: int | None, **options: Option) -> Level:
    cost = ASSUMED[name]
    return Level(
        name=name, backend=backend, capacity=capacity, options=options, write=cost, read=cost
    )
