"""The file of a shared archive: its lock, its layout, its creation, and its new groups.

    /                   attributes: format, format_version, creator, run, ranks
    /README             how to read the file
    /restart-0          slots for checkpoints of one kind, with one layout on each rank
        zeta            (slots, ny of all ranks, nx), one for each field; attributes name, unit
        psi             ...
        keys            (slots,), the checkpoint in each slot
        stored          (slots,), the number of the commit of each slot; 0 if the slot is free
        xxh3_128        (slots, ranks), the digest of each rank's part
        layouts         (ranks,), each rank's layout: [[name, dtype, shape, unit], ...] as JSON
        begins          (datasets, ranks + 1), beginnings of parts along the first axis of each
    /tape-0, ...        another kind or other layouts, or more slots for these

Only the first rank creates a group, while no rank has the file open. All other writes are bytes in
datasets whose offset never changes, so that HDF5 has no metadata to update or lose.

The format differs from that of `ckio.backends.hdf5` for two reasons. First, the error about a
damaged part names its rank, so a row has a checksum for each part. A row of the other format has
one checksum of all bytes, and no rank has all bytes
(test_a_part_that_is_not_what_was_written_is_named). Second, a field of all ranks is one dataset of
any size, which HDF5 with MPI writes. In the other format fields of 4 GiB and more have no dataset,
and bytes are written without HDF5, which a file system of several hosts may not allow
(test_parts_of_any_size_are_one_field_for_everybody). Both formats have in common the names in rows,
datasets whose space is allocated when they are created, whole files, forms and the ledger.
"""

import fcntl
import json
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

import h5py
import numpy as np
import xxhash
from numpy.typing import NDArray

from ckio import __version__
from ckio.actions import Key, Kind
from ckio.adapters.shared_hdf5.parts import Column, SharedGroup
from ckio.backends.contents import Damaged, Stored
from ckio.backends.files import Files, is_flocked, locking, part_of, write_whole
from ckio.backends.forms import form_from, form_of
from ckio.backends.hdf5.drafts import describe, make_flat
from ckio.backends.hdf5.heads import NAME, packed_name, unpacked_name
from ckio.backends.runid import RunId
from ckio.errors import BadInput, CorruptCheckpoint, LevelInUse, StorageError
from ckio.parallel.group import RankGroup

FORMAT: Final = "ckio shared archive"
VERSION: Final = 1

KEYS: Final = np.dtype(
    [("step", "<u8"), ("name", f"S{NAME}"), ("written", "<f8"), ("commit", "<u8"), ("check", "<u8")]
)
"""A row of the table of keys; `check` is the xxh3_64 of the rest, and of the digests."""

_README: Final = """\
Checkpoints that the ranks of one job stored with ckio. A group has slots. A slot has a
checkpoint if its number in `stored` is not 0. Then `keys` has the checkpoint's key. The
fields are datasets whose first axis is the slot. The parts of the ranks follow each other
along the second axis: the part of field i and rank r is
[slot, begins[i, r]:begins[i, r + 1]]. `layouts` has the original shapes of the parts.
"""

_BROKEN: Final = (OSError, KeyError, ValueError, TypeError, RuntimeError, AttributeError)
"""Errors that h5py raises for a file of another format or a damaged file."""


class SharedRow(NamedTuple):
    """One committed checkpoint, with the digest of each rank's part."""

    commit: int
    slot: int
    key: Key
    written: float
    digests: tuple[bytes, ...]

    def pack(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the rows of keys and digests; raises StorageError for a key that is too long."""
        row = np.array([(self.key.step, packed_name(self.key), self.written, self.commit, 0)], KEYS)
        digests = np.array([[digest.hex().encode() for digest in self.digests]], "S32")
        row["check"] = _check(row[0], digests[0])
        return row, digests

    @classmethod
    def unpack(
        cls, kind: Kind, slot: int, commit: int, row: Any, digests: NDArray[Any]
    ) -> "SharedRow":
        """Return the row of a slot; raises ValueError if it was not written with this commit."""
        if int(row["check"]) != _check(row, digests) or int(row["commit"]) != commit:
            raise ValueError
        key = Key(kind, int(row["step"]), unpacked_name(row["name"]))
        every = tuple(bytes.fromhex(digest.decode()) for digest in digests)
        return cls(commit, slot, key, float(row["written"]), every)


def _check(row: Any, digests: NDArray[Any]) -> int:
    return xxhash.xxh3_64_intdigest(row.tobytes()[: -KEYS["check"].itemsize] + digests.tobytes())


@dataclass(frozen=True, slots=True)
class SharedStart:
    """The contents of a file.

    Attributes
    ----------
    number : int
        Inode of the file.
    run : RunId
    ranks : int
    groups : list of (SharedGroup, rows)
    damaged : list of Damaged
    """

    number: int
    run: RunId
    ranks: int
    groups: list[tuple[SharedGroup, list[SharedRow]]]
    damaged: list[Damaged]


def create(path: Path, run: RunId, ranks: int, /) -> None:
    """Create an archive without checkpoints. The file gets its name when it is complete."""
    image = BytesIO()
    with h5py.File(image, "w", libver="earliest") as file:
        file.attrs.update(
            format=FORMAT,
            format_version=VERSION,
            creator=f"ckio {__version__}",
            run=run.text,
            ranks=ranks,
        )
        file["README"] = _README
    write_whole(path, image.getvalue())


def remove(path: Path, /) -> None:
    """Remove a locked archive and its auxiliary files, which a kill may have left.

    Raises OSError. If the file is not an archive, raises StorageError and does not remove it.
    """
    if not stat.S_ISREG(path.lstat().st_mode):
        raise StorageError(f"{path} is left: it is no archive of ckio; remove it yourself")
    undo(path)
    try:
        with h5py.File(path, "r", locking=False) as file:
            _check_format(path, file)
    except (*_BROKEN, BadInput) as error:
        raise StorageError(
            f"{path} is left: it is no archive of ckio; remove it yourself"
        ) from error
    path.unlink()
    forget(path)


def survey(path: Path, /) -> SharedStart:
    """Read the contents of a file. No process may change it meanwhile.

    Raises BadInput if it is not a shared archive, and StorageError if it cannot be read.
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
            return SharedStart(path.stat().st_ino, run, ranks, groups, damaged)
    except (*_BROKEN, CorruptCheckpoint) as error:
        if isinstance(error, BadInput):
            raise
        if isinstance(error, OSError) and not h5py.is_hdf5(path):
            raise BadInput(
                f"{path} is no shared archive: it is no HDF5 file; give another path"
            ) from None
        raise StorageError(f"{path} is damaged: {error}; use another file") from error


def _check_format(path: Path, file: h5py.File) -> None:
    if file.attrs.get("format") != FORMAT:
        raise BadInput(f"{path} is no shared archive, but another HDF5 file; give another path")
    if (version := int(file.attrs["format_version"])) != VERSION:
        raise BadInput(
            f"{path} has format {version}; this ckio reads format {VERSION}: use another version of"
            " ckio, or another file"
        )


def _survey(
    path: Path, name: str, node: h5py.Group
) -> tuple[SharedGroup, list[SharedRow], list[Damaged]]:
    kind = Kind[name.partition("-")[0].upper()]
    layouts = tuple(form_from(text).layout for text in node["layouts"][()].tolist())
    stored, keys, digests = (node[table][()] for table in ("stored", "keys", "xxh3_128"))
    group = SharedGroup(name, kind, layouts, len(stored))
    rows, damaged = [], []
    for slot in np.flatnonzero(stored).tolist():
        try:
            rows.append(SharedRow.unpack(kind, slot, int(stored[slot]), keys[slot], digests[slot]))
        except ValueError:
            what = f"{name}: the row of slot {slot} is damaged"
            at = node["keys"].id.get_offset() + slot * KEYS.itemsize
            damaged.append(Damaged(path=path, offset=at, nbytes=KEYS.itemsize, what=what))
    return group, rows, damaged


def grow(path: Path, group: SharedGroup, /) -> None:
    """Create a group of free slots and allocate its space; no rank may have the file open.

    If it raises OSError, the file is unchanged.
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


def _create(node: h5py.Group, column: Column, group: SharedGroup) -> None:
    """Create a dataset whose space is allocated immediately and not filled."""
    dataset = make_flat(node, column.name, (group.slots, *column.shape), column.dtype)
    first = next(rank for rank, end in enumerate(column.rows[1:]) if end)
    describe(dataset, group.layouts[first][column.field])


def _extents(nodes: Any) -> Iterator[tuple[int, int]]:
    """Yield the offsets and sizes of datasets, which HDF5 does not change when it adds others."""
    for node in nodes.values():
        if isinstance(node, h5py.Group):
            for dataset in node.values():
                at = dataset.id.get_offset()
                if at is not None and dataset.id.get_storage_size():
                    yield at, dataset.id.get_storage_size()


def _between(extents: Sequence[tuple[int, int]], end: int) -> Iterator[tuple[int, int]]:
    """Yield the offsets and bytes outside of these extents, up to the end."""
    begin = 0
    for at, nbytes in extents:
        if at > begin:
            yield begin, at - begin
        begin = at + nbytes
    if end > begin:
        yield begin, end - begin


def contents(path: Path, /) -> list[Stored | Damaged]:
    """List the contents of an archive, one item for each rank's part of a checkpoint."""
    if not path.is_file():
        raise BadInput(f"{path} is no shared archive: there is no such file; give another path")
    start = survey(path)
    listed: list[Stored | Damaged] = [*start.damaged]
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
                listed.append(stored)
    return listed


# A change of the whole file. The bytes that it may overwrite are saved in another file before.
#
# Promise: a job that is killed while the file grows loses no checkpoint; ckio undoes the change.
# Tests: test_growing_that_was_cut_short_is_undone,
# test_a_job_that_is_killed_leaves_whole_checkpoints.

_DIGEST: Final = 16


def _auxiliary(path: Path, what: str) -> Path:
    """Return the path of an auxiliary file of an archive."""
    return path.with_name(f".{path.name}.{what}")


@contextmanager
def undoable(path: Path, spans: Iterable[tuple[int, int]], /) -> Iterator[None]:
    """Run a `with` block that changes a file in these spans (offset, bytes), or after its end.

    If the block raises an error, the change is undone. If the process or the machine fails, the
    next call of `undo` undoes the change.
    """
    journal = _auxiliary(path, "undo")
    spans, size = list(spans), path.stat().st_size
    with path.open("rb") as file:
        pieces = [os.pread(file.fileno(), nbytes, at) for at, nbytes in spans]
    head = json.dumps({"size": size, "spans": spans}).encode() + b"\n"
    content = head + b"".join(pieces)
    try:
        write_whole(journal, xxhash.xxh3_128_digest(content) + content)
        yield
        with path.open("rb") as file:
            os.fsync(file.fileno())
    except BaseException:
        undo(path)
        raise
    journal.unlink()  # from now on the change is permanent
    Files().sync_directory(path.parent)


def undo(path: Path, /) -> None:
    """Undo an incomplete change of a file, if there is one."""
    journal = _auxiliary(path, "undo")
    if not journal.exists():
        return
    content = journal.read_bytes()
    digest, content = content[:_DIGEST], content[_DIGEST:]
    if digest == xxhash.xxh3_128_digest(content):  # if not, the machine failed before the change
        head, _, data = content.partition(b"\n")
        change = json.loads(head)
        with path.open("r+b") as file:
            for at, nbytes in change["spans"]:
                file.seek(at)
                file.write(data[:nbytes])
                data = data[nbytes:]
            file.truncate(change["size"])
            file.flush()
            os.fsync(file.fileno())
    journal.unlink()
    Files().sync_directory(path.parent)


def forget(path: Path, /) -> None:
    """Remove the auxiliary files of a removed archive that killed processes have left."""
    for left in (path, _auxiliary(path, "undo")):
        part_of(left).unlink(missing_ok=True)
    _auxiliary(path, "undo").unlink(missing_ok=True)


# Access to the file: only ranks of MPI, if h5py has MPI, and only one job at a time


def communicator(ranks: RankGroup) -> Any:
    """Return the communicator of these ranks for HDF5; raises BadInput if HDF5 cannot use one."""
    if not h5py.get_config().mpi:
        raise BadInput(
            f"h5py here has no MPI: {h5py.__file__} was built without it; use hdf5, a file per"
            " rank, or install an h5py that was built with HDF5_MPI=ON"
        )
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise BadInput(f"a shared archive needs mpi4py: {error}; install 'ckio[mpi]'") from None
    if ranks.is_alone:
        return MPI.COMM_SELF
    communicator = getattr(ranks.comm, "mpi", None)
    if communicator is None:
        raise BadInput(
            "these ranks have no MPI communicator, which a shared archive needs; use"
            " ckio.adapters.mpi, or hdf5, a file per rank"
        )
    return communicator


def lock(path: Path, /) -> int:
    """Lock the archive by a second file, because HDF5 and MPI-IO may lock the archive itself.

    Returns the file descriptor for `unlock`. Raises LevelInUse if another job has the archive.
    """
    file = _auxiliary(path, "lock")
    fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    try:
        with locking(path):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_free = os.fstat(fd).st_nlink > 0  # 0 if the other job has just removed the file
    except BlockingIOError:
        is_free = False
    if not is_free:
        os.close(fd)
        raise LevelInUse(
            f"{path} is in use by another job or another level; wait, or use another file"
        )
    return fd


def unlock(path: Path, fd: int, /) -> None:
    """Release the lock that `lock` has returned."""
    _auxiliary(path, "lock").unlink(missing_ok=True)
    os.close(fd)


def is_taken(path: Path, /) -> bool:
    """Return whether a job has the archive open, as far as this host can detect. Do not lock it."""
    try:
        return is_flocked(_auxiliary(path, "lock"))
    except FileNotFoundError:
        return False
