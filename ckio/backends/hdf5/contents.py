"""What lies in an archive: its groups, the rows of each, and what of them was damaged."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from ckio.backends.contents import Damaged, Stored
from ckio.backends.files import Files
from ckio.backends.hdf5.group import Group
from ckio.backends.hdf5.rows import FREE, ROW, Row
from ckio.backends.hdf5.start import FIXED, PAGE, Start, bytes_at, check, load
from ckio.backends.runid import RunId
from ckio.errors import BadInput, CorruptCheckpoint, StorageError

_ROWS: Final = (1 << 18) // ROW.itemsize
"""Rows that are read at once."""

_TRIES: Final = 3


class Place(NamedTuple):
    """Where a checkpoint lies, and what its row says."""

    group: Group
    row: Row


@dataclass
class Found:
    """What a survey found.

    Attributes
    ----------
    stored : list of Place
        The checkpoints, the oldest first; their keys differ.
    outdated : list of Place
        Rows with the key of a younger one, which could not be freed when they should have been.
    free : dict
        The free slots of each sound group.
    damaged : list of Damaged
    """

    stored: list[Place] = field(default_factory=list)
    outdated: list[Place] = field(default_factory=list)
    free: dict[Group, list[int]] = field(default_factory=dict)
    damaged: list[Damaged] = field(default_factory=list)


def survey(files: Files, fd: int, path: Path, start: Start, /) -> Found:
    """What lies in the archive that is open as `fd`; nothing is changed."""
    found = Found()
    rows: list[Place] = []
    for begin, end in start.spans():
        try:
            group = _group(files, fd, begin, end, start.run)
        except CorruptCheckpoint as error:
            found.damaged.append(
                Damaged(path=path, offset=begin, nbytes=end - begin, what=str(error))
            )
            continue
        free = found.free[group] = []
        for slot, row in _rows(files, fd, group, free):
            if row is not None:
                rows.append(Place(group, row))
                continue
            what = f"the row of slot {slot} of group {group.name} is damaged"
            found.damaged.append(
                Damaged(path=path, offset=group.row(slot), nbytes=ROW.itemsize, what=what)
            )
    rows.sort(key=lambda place: place.row.commit)
    youngest = {place.row.key: place for place in rows}
    for place in rows:
        (found.stored if youngest[place.row.key] is place else found.outdated).append(place)
    return found


def _group(files: Files, fd: int, begin: int, end: int, run: RunId) -> Group:
    length = Group.length(bytes_at(files, fd, begin, min(PAGE, end - begin)))
    return Group.unpack(bytes_at(files, fd, begin, min(length, end - begin)), begin, end, run)


def _rows(files: Files, fd: int, group: Group, free: list[int]) -> Iterator[tuple[int, Row | None]]:
    """The rows that are not free, None for a damaged one; the others are added to `free`."""
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
    """What a row says that is not free.

    One that a run is just writing is no damage: it is not the same a second time.
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
    """What lies in an archive; see `Hdf5.contents`."""
    files = Files()
    try:
        fd = files.open_to_read(path)
    except OSError as error:
        raise BadInput(f"{path} is no archive: {error.strerror}") from None
    try:
        start = _load(files, fd, str(path))
        found = survey(files, fd, path, start)
        fixed = bytes_at(files, fd, FIXED, start.begin - FIXED)
    except IsADirectoryError as error:
        raise BadInput(f"{path} is no archive: {error.strerror}") from None
    except OSError as error:
        raise StorageError(f"{path}: reading it failed: {error.strerror or error}") from error
    finally:
        files.close(fd)
    listed: list[Stored | Damaged] = [_stored(path, place) for place in found.stored]
    if check(fixed) != start.fixed:
        what = "what HDF5 needs to read the archive is damaged"
        found.damaged.insert(0, Damaged(path=path, offset=FIXED, nbytes=len(fixed), what=what))
    return listed + found.damaged


def _load(files: Files, fd: int, name: str) -> Start:
    """The first pages, which a run may just be changing."""
    for _ in range(_TRIES):
        with suppress(StorageError):
            return load(files, fd, name)
    return load(files, fd, name)


def _stored(path: Path, place: Place) -> Stored:
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
