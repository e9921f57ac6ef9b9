"""The HDF5 file of an archive: what is in it, and how it grows.

    /                   attributes: format, format_version, creator, about
    /README             how to read the file, for people
    /restart-0          a group of slots for checkpoints of one kind and one layout
        zeta            (slots, ny, nx), one dataset per field; attributes name, dtype, unit, …
        psi             …
        keys            (slots,), one row per slot: which checkpoint lies in it
    /tape-0, …          another kind or layout, or more slots for one of these

Payload and rows are written at their offsets, past the HDF5 library, while no HDF5 file is open: a
writer that is killed leaves the metadata as it was. Only a new group changes them, by a draft.
"""

import fcntl
import io
import os
import re
import struct
from collections.abc import Iterator
from contextlib import suppress
from glob import escape
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np

from ckio import __version__
from ckio.actions import Field, Kind, Layout
from ckio.backends.files import Files
from ckio.backends.hdf5_draft import PAGE, Draft, end
from ckio.backends.hdf5_group import Group
from ckio.backends.hdf5_rows import FREE, ROW
from ckio.errors import BadInput, LevelInUse, StorageError
from ckio.layout import field_nbytes

FORMAT: Final = "ckio archive"
VERSION: Final = 1
"""The version of the format; a newer one is refused."""

MAX_GROUPS: Final = 128
"""As many as the first page has room for the names of."""

_ROOM_FOR_NAMES: Final = 2304

_SIGNATURE: Final = b"\x89HDF\r\n\x1a\n"
_STYLE: Final = {
    "libver": "earliest",  # later metadata has flags that stay set when the writer is killed
    "alignment_threshold": PAGE,
    "alignment_interval": PAGE,
}
_DAMAGE: Final = (
    OSError,
    RuntimeError,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    OverflowError,
)

_ABOUT: Final = """\
Checkpoints of an adjoint computation, written by ckio.

Each group holds checkpoints of one kind: `restart` (the state x_i from which step i starts), `tape`
(what the adjoint needs to reverse step i) or `adjoint` (what the adjoint holds at step i). Index i
of the first axis of its datasets is slot i; the other axes are the field's own. Its unit is an
attribute. Row i of the dataset `keys` says what lies in slot i:

  commit    0: the slot is free, whatever bytes it holds; else the number of this write, from 1
  slot      i itself
  kind      the kind again
  step      the step of the checkpoint
  name      the variable, if this is only one variable of a checkpoint
  nbytes    bytes of the payload
  written   when, in seconds since 1970 (UTC)
  xxh3_128  checksum of the payload, all fields in their order; empty: was not asked for
  row_xxh3  checksum of this row; a row that does not match it counts as free

A group of one field of plain bytes holds `nbytes` bytes in each slot, and then nothing of meaning.
"""


def take(path: Path, files: Files, /) -> int:
    """Open the archive at a path for this opener alone; made if there is none.

    Raises LevelInUse, and BadInput where there can be none.
    """
    fd = -1
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            create(path)
        fd = files.open(path)
        _lock(fd)
    except OSError as error:
        if fd >= 0:
            files.close(fd)
        if isinstance(error, BlockingIOError):
            raise LevelInUse(
                f"{path} is in use, by another process or another level; wait, or use another file"
            ) from None
        raise BadInput(f"{path} cannot be an archive: {error.strerror or error}") from None
    for draft in path.parent.glob(f".{escape(path.name)}.*.new"):
        draft.unlink(missing_ok=True)  # of a creator that was killed
    return fd


def _lock(fd: int) -> None:
    """Take the file, as long as it has a name; raises BlockingIOError.

    HDF5 itself uses flock, and people shall be able to look into the file meanwhile: this lock is
    of another kind. It goes with this opening of the file, not with the process.
    """
    lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, lock)
    if os.fstat(fd).st_nlink == 0:
        raise BlockingIOError


def create(path: Path, /) -> None:
    """Make an archive without checkpoints, complete from the moment it has its name."""
    image = io.BytesIO()
    with h5py.File(image, "w", meta_block_size=PAGE - 512, **_STYLE) as file:
        # HDF5 keeps the names of a group's members in one block, and makes a larger one elsewhere
        # when it is full. A long name that comes and goes leaves a hole in it for the names to
        # come, which stays because another name lies behind it.
        hole = "-" * _ROOM_FOR_NAMES
        file[hole] = h5py.SoftLink("/")
        file.create_dataset("README", data=np.bytes_(_ABOUT))
        del file[hole]
        file.attrs["format"] = FORMAT
        file.attrs["format_version"] = VERSION
        file.attrs["creator"] = f"ckio {__version__}"
        file.attrs["about"] = "/README explains the groups, their slots and their table `keys`"
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        draft.write_bytes(image.getbuffer())
        with suppress(FileExistsError, FileNotFoundError):  # somebody else was faster
            os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def survey(fd: int, path: Path, /) -> list[Group]:
    """The groups of an archive that is open as `fd`.

    Raises BadInput if it is not an archive, or a newer one, and StorageError if it is damaged.
    """
    if os.pread(fd, len(_SIGNATURE), 0) != _SIGNATURE:
        raise BadInput(f"{path} is not an HDF5 file; name another file for the archive")
    try:
        with h5py.File(Draft(fd), "r") as file:
            _check_ours(file, path)
            size = min(end(fd), os.fstat(fd).st_size)
            groups = [item for item in file.values() if isinstance(item, h5py.Group)]
            return [_group(group, size) for group in groups]
    except BadInput:
        raise
    except _DAMAGE as error:
        raise StorageError(f"{path}: the HDF5 metadata is damaged ({error})") from error


def _check_ours(file: h5py.File, path: Path) -> None:
    if file.attrs.get("format") != FORMAT:
        raise BadInput(f"{path} is an HDF5 file of something else; name another for the archive")
    version = int(file.attrs["format_version"])
    if version > VERSION:
        raise BadInput(
            f"{path} has format {version}, by {file.attrs.get('creator')}; ckio {__version__} knows"
            f" formats up to {VERSION}: update ckio, or name another file for the archive"
        )


def _group(group: h5py.Group, size: int) -> Group:
    """What the metadata says, held against the size of the file."""
    keys = group["keys"]
    fields = sorted(
        (item for name, item in group.items() if name != "keys"),
        key=lambda item: int(item.attrs["order"]),
    )
    slots = int(keys.shape[0])
    layout = tuple(_field(item, slots) for item in fields)
    made = _placed(group, layout, slots, [_offset(item) for item in (keys, *fields)])
    extents = ((made.rows, ROW.itemsize), *made.fields)
    if keys.dtype != ROW or any(at + slots * nbytes > size for at, nbytes in extents):
        raise ValueError(f"{group.name} has other rows, or reaches beyond the end of the file")
    return made


def _field(dataset: h5py.Dataset, slots: int) -> Field:
    name, dtype, unit = (str(dataset.attrs[it]) for it in ("name", "dtype", "unit"))
    rank = int(dataset.attrs["rank"])
    field = Field(name, dtype, tuple(map(int, dataset.shape[1 : 1 + rank])), unit)
    if dataset.shape[0] != slots or dataset.nbytes != slots * field_nbytes(field):
        raise ValueError(f"{dataset.name} is not what its attributes say")
    return field


def _offset(dataset: h5py.Dataset) -> int:
    return int(dataset.id.get_offset()) if dataset.nbytes else 0


def _placed(group: h5py.Group, layout: Layout, slots: int, offsets: list[int]) -> Group:
    """A group whose datasets, `keys` first, lie at these offsets."""
    name = str(group.name).removeprefix("/")
    return Group(
        name=name,
        kind=Kind[name.split("-")[0].upper()],
        layout=layout,
        slots=slots,
        rows=offsets[0],
        fields=tuple(zip(offsets[1:], map(field_nbytes, layout), strict=True)),
    )


def add_group(
    files: Files, fd: int, kind: Kind, layout: Layout, /, *, slots: int, sync: bool
) -> Group:
    """Make a group of free slots, with their space on the disk.

    Raises OSError with the file as it was if there is no space, StorageError if HDF5 gives up.
    """
    draft, made = drafted(fd, kind, layout, slots=slots)
    size = os.fstat(fd).st_size
    if draft.size > size:
        files.extend(fd, size, draft.size - size, prewrite=False)
    files.write(fd, [memoryview(FREE * slots)], made.rows)
    for stage in draft.stages():
        for at, data in stage.items():
            files.write(fd, [memoryview(data)], at)
        if sync:
            files.sync(fd)
    return made


def drafted(fd: int, kind: Kind, layout: Layout, /, *, slots: int) -> tuple[Draft, Group]:
    """The file as it would be with one more group."""
    draft = Draft(fd)
    try:
        with h5py.File(draft, "r+", **_STYLE) as file:
            kinds = [name.split("-")[0] for name in file if name != "README"]
            if len(kinds) >= MAX_GROUPS:
                raise StorageError(
                    f"the archive has {MAX_GROUPS} groups of different layouts, all it can hold;"
                    " store checkpoints of fewer layouts, or in another archive"
                )
            word = kind.name.lower()
            group = file.create_group(f"{word}-{kinds.count(word)}")
            offsets = list(_make_datasets(group, layout, slots))
            return draft, _placed(group, layout, slots, offsets)
    except _DAMAGE as error:
        raise StorageError(f"HDF5 cannot add a group to the archive: {error}") from error


def _make_datasets(group: h5py.Group, layout: Layout, slots: int) -> Iterator[int]:
    """Make the datasets of a group; yields their offsets, of `keys` first."""
    yield _offset(_make_dataset(group, "keys", (slots,), ROW))
    taken = {"keys"}
    for order, field in enumerate(layout):
        shape, dtype = (slots, *field.shape), np.dtype(field.dtype)
        if not _has_type(dtype):
            shape, dtype = (*shape, dtype.itemsize), np.dtype("u1")
        dataset = _make_dataset(group, _safe(field.name, taken), shape, dtype)
        dataset.attrs.update(name=field.name, dtype=field.dtype, unit=field.unit)
        dataset.attrs.update(rank=len(field.shape), order=order)
        yield _offset(dataset)


def _make_dataset(
    group: h5py.Group, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> h5py.Dataset:
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_layout(h5py.h5d.CONTIGUOUS)
    plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    return group.create_dataset(name, shape, dtype, dcpl=plist)


def _has_type(dtype: np.dtype[Any]) -> bool:
    """Whether HDF5 has this type, byte for byte; otherwise it is stored as bytes."""
    try:
        return int(h5py.h5t.py_create(dtype, logical=True).get_size()) == dtype.itemsize
    except (TypeError, ValueError):
        return False


def _safe(name: str, taken: set[str]) -> str:
    """A name for HDF5, then in `taken`: without slashes, not empty, not of dots alone."""
    base = re.sub(r"[^\w.+-]", "_", name)
    if not base.strip("."):
        base = "field"
    safe, count = base, 1
    while safe in taken:
        count += 1
        safe = f"{base}-{count}"
    taken.add(safe)
    return safe
