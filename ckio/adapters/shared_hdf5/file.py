"""The file of a shared archive: what is in it, how it is made, and how it grows.

    /                   attributes: format, format_version, creator, run, ranks
    /README             how to read the file
    /restart-0          slots for checkpoints of one kind, with one layout on each rank
        zeta            (slots, ny of all ranks, nx), one for each field; attributes name, unit
        psi             ...
        keys            (slots,), which checkpoint lies in a slot
        stored          (slots,), the number of its commit; 0 where the slot is free
        xxh3_128        (slots, ranks), of the bytes of each rank's part
        layouts         (ranks,), of each rank's part: [[name, dtype, shape, unit], ...] as JSON
        begins          (datasets, ranks + 1), where the parts begin along the first axis of each
    /tape-0, ...        another kind or other layouts, or more slots for these

Only the first rank makes a group, and nobody has the file open then. All else is bytes in datasets
whose place never changes: HDF5 has nothing to note for it, and nothing to lose.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

import h5py
import numpy as np
import xxhash
from numpy.typing import NDArray

from ckio import __version__
from ckio.actions import Key, Kind
from ckio.adapters.shared_hdf5.parts import Column, Group
from ckio.adapters.shared_hdf5.undo import forget, undo, undoable
from ckio.backends.contents import Damaged, Stored
from ckio.backends.forms import form_from, form_of
from ckio.backends.runid import RunId
from ckio.errors import BadInput, CorruptCheckpoint, StorageError

FORMAT: Final = "ckio shared archive"
VERSION: Final = 1

KEYS: Final = np.dtype(
    [("step", "<u8"), ("name", "S64"), ("written", "<f8"), ("commit", "<u8"), ("check", "<u8")]
)
"""A row of the table of keys; `check` is the xxh3_64 of the rest, and of the digests."""

_README: Final = """\
Checkpoints that the ranks of one job stored with ckio. A group has slots; of each,
`stored` says whether something lies in it (not 0), and `keys` what. The fields are
datasets with the slot as first axis; the parts of the ranks lie one behind the other
along the second: those of field i and rank r are [slot, begins[i, r]:begins[i, r + 1]].
`layouts` has the shapes that the parts had.
"""

_BROKEN: Final = (OSError, KeyError, ValueError, TypeError, RuntimeError, AttributeError)
"""What h5py raises where a file is not what it should be."""


class Row(NamedTuple):
    """One committed checkpoint: the digests are of the part of each rank."""

    commit: int
    slot: int
    key: Key
    written: float
    digests: tuple[bytes, ...]

    def pack(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Its row of keys, and of digests; raises StorageError for a key that has no room there."""
        name = self.key.name.encode("utf-8", "surrogatepass")
        if self.key.step >= 1 << 64 or len(name) > KEYS["name"].itemsize or name.endswith(b"\0"):
            raise StorageError(
                f"{self.key}: an archive keeps steps below 2**64, and names of at most"
                f" {KEYS['name'].itemsize} bytes"
            )
        row = np.array([(self.key.step, name, self.written, self.commit, 0)], KEYS)
        digests = np.array([[digest.hex().encode() for digest in self.digests]], "S32")
        row["check"] = _check(row[0], digests[0])
        return row, digests

    @classmethod
    def unpack(cls, kind: Kind, slot: int, commit: int, row: Any, digests: NDArray[Any]) -> "Row":
        """Raises ValueError where it is not what was written with this commit."""
        if int(row["check"]) != _check(row, digests) or int(row["commit"]) != commit:
            raise ValueError
        key = Key(kind, int(row["step"]), row["name"].decode("utf-8", "surrogatepass"))
        every = tuple(bytes.fromhex(digest.decode()) for digest in digests)
        return cls(commit, slot, key, float(row["written"]), every)


def _check(row: Any, digests: NDArray[Any]) -> int:
    return xxhash.xxh3_64_intdigest(row.tobytes()[: -KEYS["check"].itemsize] + digests.tobytes())


@dataclass(frozen=True, slots=True)
class Start:
    """What is in a file.

    Attributes
    ----------
    number : int
        What the file system calls the file.
    run : RunId
    ranks : int
    groups : list of (Group, rows)
    damaged : list of Damaged
    """

    number: int
    run: RunId
    ranks: int
    groups: list[tuple[Group, list[Row]]]
    damaged: list[Damaged]


def create(path: Path, run: RunId, ranks: int, /) -> None:
    """Make an archive without checkpoints, complete from the moment it has its name."""
    draft = _draft(path)
    try:
        with h5py.File(draft, "w", libver="earliest", locking=False) as file:
            file.attrs.update(
                format=FORMAT,
                format_version=VERSION,
                creator=f"ckio {__version__}",
                run=run.text,
                ranks=ranks,
            )
            file["README"] = _README
        with draft.open("rb") as written:
            os.fsync(written.fileno())
        draft.rename(path)
    finally:
        draft.unlink(missing_ok=True)


def _draft(path: Path) -> Path:
    return path.with_name(f".{path.name}.new")


def mend(path: Path, /) -> None:
    """Undo a change of the file that was cut short."""
    undo(path)


def remove(path: Path, /) -> None:
    """Remove an archive that is locked, and what was half made of it, by their names.

    Raises OSError, and StorageError where it is something else, which stays.
    """
    if not stat.S_ISREG(path.lstat().st_mode):
        raise StorageError(f"{path} is left: it is no archive of ckio's")
    mend(path)
    try:
        with h5py.File(path, "r", locking=False) as file:
            _check_format(path, file)
    except (*_BROKEN, BadInput) as error:
        raise StorageError(f"{path} is left: it is no archive of ckio's") from error
    path.unlink()
    _draft(path).unlink(missing_ok=True)
    forget(path)


def survey(path: Path, /) -> Start:
    """What is in a file that nobody changes meanwhile.

    Raises BadInput where it is no shared archive, StorageError where it cannot be read.
    """
    try:
        with h5py.File(path, "r", locking=False) as file:
            _check_format(path, file)
            run, ranks = RunId(str(file.attrs["run"])), int(file.attrs["ranks"])
            groups, damaged = [], []
            for name, node in file.items():
                if isinstance(node, h5py.Group):
                    group, rows, bad = _survey(path, name, node)
                    groups.append((group, rows))
                    damaged += bad
            groups.sort(key=lambda it: int(it[0].name.rpartition("-")[2]))
            return Start(path.stat().st_ino, run, ranks, groups, damaged)
    except (*_BROKEN, CorruptCheckpoint) as error:
        if isinstance(error, BadInput):
            raise
        if isinstance(error, OSError) and not h5py.is_hdf5(path):
            raise BadInput(f"{path} is no shared archive: it is no HDF5 file") from None
        raise StorageError(f"{path} is damaged: {error}") from error


def _check_format(path: Path, file: h5py.File) -> None:
    if file.attrs.get("format") != FORMAT:
        raise BadInput(f"{path} is no shared archive, but another HDF5 file; name a new one")
    if (version := int(file.attrs["format_version"])) != VERSION:
        raise BadInput(f"{path} has format {version}; this ckio reads format {VERSION}")


def _survey(path: Path, name: str, node: h5py.Group) -> tuple[Group, list[Row], list[Damaged]]:
    kind = Kind[name.partition("-")[0].upper()]
    layouts = tuple(form_from(text).layout for text in node["layouts"][()].tolist())
    stored, keys, digests = (node[table][()] for table in ("stored", "keys", "xxh3_128"))
    group = Group(name, kind, layouts, len(stored))
    rows, damaged = [], []
    for slot in np.flatnonzero(stored).tolist():
        try:
            rows.append(Row.unpack(kind, slot, int(stored[slot]), keys[slot], digests[slot]))
        except ValueError:
            what = f"{name}: the row of slot {slot} is damaged"
            at = node["keys"].id.get_offset() + slot * KEYS.itemsize
            damaged.append(Damaged(path=path, offset=at, nbytes=KEYS.itemsize, what=what))
    return group, rows, damaged


def grow(path: Path, group: Group, /) -> None:
    """Make a group of free slots, with its space on the disk; nobody has the file open.

    Raises OSError with the file as it was.
    """
    with h5py.File(path, "r", locking=False) as file:
        slots = sorted(_extents(file))
    with undoable(path, _between(slots, path.stat().st_size)):
        with h5py.File(path, "r+", libver="earliest", locking=False) as file:
            node = file.create_group(group.name)
            for column in group.columns:
                _create(node, column, group)
            ranks, n = len(group.layouts), group.slots
            node["keys"] = np.zeros(n, KEYS)
            node["stored"] = np.zeros(n, "<u8")
            node["xxh3_128"] = np.zeros((n, ranks), "S32")
            node["layouts"] = np.array([form_of(layout).text for layout in group.layouts], "S")
            begins = [column.rows for column in group.columns]
            node["begins"] = np.array(begins, "<i8").reshape(len(begins), ranks + 1)
            file.flush()
            extents = list(_extents({group.name: node}))
        with path.open("r+b") as raw:
            for at, nbytes in extents:
                os.posix_fallocate(raw.fileno(), at, nbytes)


def _create(node: h5py.Group, column: Column, group: Group) -> None:
    """A dataset that has its place at once, and is not filled with anything."""
    create = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    create.set_layout(h5py.h5d.CONTIGUOUS)
    create.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    create.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    kind, space = h5py.h5t.py_create(column.dtype, logical=True), (group.slots, *column.shape)
    made = h5py.h5d.create(
        node.id, column.name.encode(), kind, h5py.h5s.create_simple(space), create
    )
    first = next(rank for rank, end in enumerate(column.rows[1:]) if end)
    field = group.layouts[first][column.field]
    attributes = h5py.Dataset(made).attrs
    with suppress(ValueError):  # a name that HDF5 has no letters for; `layouts` has it
        attributes["name"], attributes["unit"] = field.name, field.unit


def _extents(nodes: Any) -> Iterator[tuple[int, int]]:
    """Offsets and bytes of all that HDF5 does not touch when something else is added."""
    for node in nodes.values():
        if isinstance(node, h5py.Group):
            for dataset in node.values():
                at = dataset.id.get_offset()
                if at is not None and dataset.id.get_storage_size():
                    yield at, dataset.id.get_storage_size()


def _between(extents: Sequence[tuple[int, int]], end: int) -> Iterator[tuple[int, int]]:
    """What lies outside of these, up to the end."""
    begin = 0
    for at, nbytes in extents:
        if at > begin:
            yield begin, at - begin
        begin = at + nbytes
    if end > begin:
        yield begin, end - begin


def contents(path: Path, /) -> list[Stored | Damaged]:
    """What lies in an archive: of each checkpoint, the part of each rank."""
    if not path.is_file():
        raise BadInput(f"{path} is no shared archive: there is no such file")
    start = survey(path)
    found: list[Stored | Damaged] = [*start.damaged]
    with h5py.File(path, "r", locking=False) as file:
        for group, rows in start.groups:
            at = [file[group.name][column.name].id.get_offset() for column in group.columns]
            for row, rank in product(rows, range(start.ranks)):
                spans = [column.span(rank, row.slot) for column in group.columns]
                stored = Stored(
                    key=row.key,
                    layout=group.layouts[rank],
                    path=path,
                    spans=tuple((x + begin, n) for x, (begin, n) in zip(at, spans, strict=True)),
                    written=row.written,
                    digest=row.digests[rank],
                    run=start.run.name,
                )
                found.append(stored)
    return found
