"""The HDF5 file of an archive: open and lock it, create it, make a group, list its contents."""

import errno
import fcntl
import io
import json
import os
import re
import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import xxhash

from ckio import __version__
from ckio.actions import Field, Kind, Layout
from ckio.backends.contents import Damaged
from ckio.backends.files import (
    FULL,
    OTHER,
    TILE,
    Files,
    failure,
    first_byte,
    lock_by,
    locking,
    make_directories,
    opened,
    remove_directories,
    user_of,
)
from ckio.backends.forms import Form, form_from
from ckio.backends.hdf5.slots import FREE, ROW, Group, Row, Slot
from ckio.backends.runid import NOBODY, RunId
from ckio.errors import BadInput, LevelFull, LevelInUse, StorageError

if TYPE_CHECKING:  # h5py is imported when the first archive is opened
    import h5py

FORMAT: Final = 4
"""The version of the format; no other version is read."""

PAGE: Final = 4096
"""Bytes of a page; a system call that writes within one page is atomic if the process is killed."""

USER: Final = 1 << 16
"""Bytes of the user block, which HDF5 leaves to applications: a head, and the journal from the
second page on."""

_NAME: Final = b"ckioarc"
_MAGIC: Final = _NAME + bytes([FORMAT])
_HEAD: Final = struct.Struct("<8s64sQ")
"""Magic, the id of the run, and the check of both."""

_JOURNAL: Final = struct.Struct("<16sQ")
"""The xxh3_128 and the number of the bytes that follow."""

_END: Final = USER + 28
"""Offset of the eight bytes with the end of the file, in HDF5's superblock of version 2 or 3."""

_SIGNATURE: Final = b"\x89HDF\r\n\x1a\n"
"""The first bytes of an HDF5 file."""

_STYLE: Final = {"libver": "v110", "alignment_threshold": TILE, "alignment_interval": PAGE}
"""The first format of HDF5 in which all metadata have checksums; datasets of 1 MiB begin on a page.
"""

_BROKEN: Final = (
    OSError,
    RuntimeError,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    StorageError,
)
"""Errors that h5py raises for damaged metadata, or for a file that was not made by ckio."""

Piece = tuple[int, bytes]
"""An offset in the file, and the bytes there."""

_README: Final = """\
Checkpoints of an adjoint computation, written by ckio.

Each group contains checkpoints of one kind: `restart` (the state x_i from which step i starts),
`tape` (the data that the adjoint of step i needs) or `adjoint` (the adjoint state at step i). Index
i of the first axis of its datasets is slot i; the other axes are the axes of the field. The unit of
a field is an attribute. Row i of the dataset `keys` describes the checkpoint in slot i:

  state     `stored`, or empty: then the slot is free, and its bytes and its row have no meaning
  commit    the number of this write, from 1
  slot      the number i
  kind      the kind of the checkpoint
  step      the step of the checkpoint
  name      the variable, if this is only one variable of a checkpoint
  nbytes    bytes of the checkpoint
  written   time of writing, in seconds since 1970 (UTC)
  xxh3_128  checksum of all fields, in their order; empty if none was requested
  row_xxh3  checksum of this row; a stored row that does not agree with it was damaged

If a group has only one field, and it consists of plain bytes, a slot contains `nbytes` of them,
then unused bytes. If this field is called `encoded`, a codec has encoded the checkpoint: the unit
of the field names the codec and the layout of the checkpoint, and ckio decodes it.
"""


class Image(io.RawIOBase):
    """An open file for h5py, whose changes stay in memory.

    h5py writes metadata in any order, and a kill between two writes would leave a file that HDF5
    refuses. `changes` returns what was written, for `Growth` to write it in a safe order.

    Attributes
    ----------
    size : int
        Bytes of the file, including the changes.
    error : OSError or None
        The error of the system that made HDF5 give up.
    """

    def __init__(self, files: Files, fd: int, pieces: Iterable[Piece] = ()) -> None:
        self._files, self._fd, self._at = files, fd, 0
        self.size = self._stored = files.size(fd)
        self._pieces = list(pieces)
        """The changes, in the order in which they were written."""
        self.error: OSError | None = None

    def changes(self) -> list[Piece]:
        """Return the changed parts as they are now, in the order of their offsets."""
        parts = []
        for at, nbytes in sorted({(at, len(data)) for at, data in self._pieces}):
            data = bytearray(nbytes)
            self.seek(at)
            self.readinto(data)
            parts.append((at, bytes(data)))
        return parts

    # Methods that h5py calls

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}
        self._at = base[whence] + offset
        return self._at

    def truncate(self, size: int | None = None) -> int:
        self.size = self._at if size is None else size
        return self.size

    def write(self, data: Any, /) -> int:
        piece = bytes(memoryview(data).cast("B"))
        self._pieces.append((self._at, piece))
        self._at += len(piece)
        self.size = max(self.size, self._at)
        return len(piece)

    def readinto(self, into: Any, /) -> int:
        view, begin = memoryview(into).cast("B"), self._at
        nbytes = max(0, min(len(view), self._stored - begin))
        try:
            self._files.read(self._fd, [view[:nbytes]], begin)
        except EOFError:
            self.error = OSError(errno.EIO, "the file was cut off meanwhile")
            raise self.error from None
        except OSError as error:
            self.error = error
            raise
        view[nbytes:] = bytes(len(view) - nbytes)
        self._at = end = begin + len(view)
        for at, data in self._pieces:
            first, last = max(at, begin), min(at + len(data), end)
            if first < last:
                view[first - begin : last - begin] = data[first - at : last - at]
        return len(view)


@contextmanager
def _hdf5(image: Image, path: Path, mode: str) -> Iterator["h5py.File"]:
    """Open an image by h5py; raises OSError of the system, or StorageError if HDF5 gives up."""
    import h5py

    try:
        with h5py.File(image, mode, **_STYLE) as file:
            yield file
    except _BROKEN as error:
        if image.error is not None:
            raise image.error from None
        raise StorageError(
            f"{path} was damaged: HDF5 cannot read it ({error}); use a new archive"
        ) from error


class Growth:
    """The first pages of an open archive, and its growth by groups.

    A growth is written in the three stages that `ckio.backends.hdf5` describes: `add` performs
    them, `restore` undoes one that failed in this process, and `complete` completes one whose
    process was killed.

    Attributes
    ----------
    end : int
        Offset after the last part that HDF5 uses, in bytes.
    run : RunId
        The run of the archive.
    """

    def __init__(self, files: Files, fd: int, /, *, sync: bool) -> None:
        self._files, self._fd, self._sync = files, fd, sync
        self._before: list[Piece] = []
        self.run, self.end = NOBODY, 0

    def complete(self, run: RunId, name: str, /) -> None:
        """Check the first page, and complete the growth of a process that was killed.

        Raises BadInput if this is no archive of this format, ForeignLevel if it is of another run.
        """
        block = user_block(self._files, self._fd)
        self.run = run_in(block, name)
        run.check(self.run, name)
        if pieces := journal_in(block):
            self._apply(pieces)
            self._clear()
            block = user_block(self._files, self._fd)
        self.end = int.from_bytes(block[_END:], "little")

    def add(self, kind: Kind, form: Form, slots: int, names: list[str], path: str, /) -> Group:
        """Add a group of free slots, and allocate its space.

        Raises OSError if there is no space; then the archive is unchanged. Raises StorageError if
        HDF5 fails.
        """
        self.restore()
        image, word = Image(self._files, self._fd), kind.name.lower()
        used = (int(name.partition("-")[2]) for name in names if name.startswith(f"{word}-"))
        name = f"{word}-{max(used, default=-1) + 1}"
        with _hdf5(image, Path(path), "r+") as file:
            node = file.create_group(name)
            _make_datasets(node, form, slots)
            group = _group(node, name, kind, self.run)
        changes = image.changes()
        old = [piece for piece in changes if piece[0] < self.end]
        new = [piece for piece in changes if piece[0] >= self.end]
        journal = journal_of(old)
        if len(journal) > USER - PAGE:
            raise LevelFull(
                f"{path} has {len(names)} groups of different layouts, and HDF5 has no space for"
                " more; store checkpoints of fewer layouts, or in another archive"
            )
        size = self._files.size(self._fd)
        if image.size > size:
            self._files.extend(self._fd, size, image.size - size, prewrite=False)
        self._apply([*new, (group.rows, bytes(slots * ROW.itemsize))])
        before = [(at, self._files.bytes_at(self._fd, at, len(data))) for at, data in old]
        try:
            self._before = before
            self._apply([(PAGE, journal)])
            self._apply(old)
            self._before = []
        except BaseException:
            with suppress(OSError):
                self.restore()
            raise
        self.end = image.size
        with suppress(OSError):  # what is in the journal is in its place already
            self._files.write(self._fd, [memoryview(bytes(_JOURNAL.size))], PAGE)
        return group

    def restore(self) -> None:
        """Undo a growth that failed, unless that was done already."""
        if self._before:
            self._apply(self._before)
            self._clear()
            self._before = []

    def _clear(self) -> None:
        self._apply([(PAGE, bytes(_JOURNAL.size))])

    def _apply(self, pieces: list[Piece]) -> None:
        for at, data in pieces:
            self._files.write(self._fd, [memoryview(data)], at)
        if self._sync:
            self._files.sync(self._fd)


def user_block(files: Files, fd: int, /) -> bytes:
    """Return the user block and the first bytes of HDF5, or less if the file is shorter."""
    try:
        return files.bytes_at(fd, 0, min(files.size(fd), _END + 8))
    except EOFError:
        raise OSError(errno.EIO, "the file was cut off meanwhile") from None


def head_of(run: RunId, /) -> bytes:
    """Return the first bytes of an archive of a run."""
    head = _MAGIC + run.pack()
    return head + xxhash.xxh3_64_digest(head)


def run_in(block: bytes, name: str, /) -> RunId:
    """Return the run of the archive that begins with these bytes.

    Raises BadInput if it is not an archive of this format, StorageError if it is damaged.
    """
    head = block[: _HEAD.size]
    if head.startswith(_MAGIC):
        if len(block) == _END + 8 and head[-8:] == xxhash.xxh3_64_digest(head[:-8]):
            return RunId.unpack(head[len(_MAGIC) : -8])
        raise StorageError(f"{name} was damaged: its first page; use a new archive")
    if _NAME in block:  # before format 4, not at its beginning
        version = block[block.index(_NAME) + len(_NAME)]
        raise BadInput(
            f"{name} has format {version}; this ckio reads format {FORMAT}: finish its run with the"
            " ckio version that wrote it, and name another file for the archive"
        )
    if block.startswith(_SIGNATURE):
        raise BadInput(f"{name} is an HDF5 file of another program; give another file")
    raise BadInput(f"{name} is not an HDF5 file; give another file")


def is_ours(fd: int) -> bool:
    """Return whether an open file begins like an archive, of any format since 4."""
    return os.pread(fd, len(_NAME), 0) == _NAME


def journal_of(pieces: list[Piece], /) -> bytes:
    """Return the bytes of a journal with these pieces."""
    spans = json.dumps([(at, len(data)) for at, data in pieces]).encode()
    body = b"".join((spans, b"\n", *(data for _, data in pieces)))
    return _JOURNAL.pack(xxhash.xxh3_128_digest(body), len(body)) + body


def journal_in(block: bytes, /) -> list[Piece]:
    """Return the pieces of the journal in a user block; none if it is cleared or incomplete."""
    digest, nbytes = _JOURNAL.unpack_from(block, PAGE)
    body = block[PAGE + _JOURNAL.size :][:nbytes]
    if not nbytes or digest != xxhash.xxh3_128_digest(body):
        return []
    spans, _, data = body.partition(b"\n")
    pieces, begin = list[Piece](), 0
    for at, size in json.loads(spans):
        pieces.append((at, data[begin : begin + size]))
        begin += size
    return pieces


def _make_datasets(node: "h5py.Group", form: Form, slots: int) -> None:
    """Make the datasets of a group in an image; their space is allocated and not filled."""
    node.attrs["layout"] = np.bytes_(form.text)
    names = names_of(form.layout)
    for name, item, nbytes in zip(names, form.layout, form.sizes, strict=True):
        shape, dtype = _as_hdf5(item, nbytes)
        dataset = _make_flat(node, name, (slots, *shape), dtype)
        dataset.attrs.update(name=_text(item.name), unit=_text(item.unit))
    _make_flat(node, "keys", (slots,), ROW)


def _group(node: "h5py.Group", name: str, kind: Kind, run: RunId) -> Group:
    """Return the group with this node; raises the errors of h5py if it is damaged."""
    form, keys = form_from(node.attrs["layout"]), node["keys"].id
    fields = tuple(node[name].id.get_offset() or 0 for name in names_of(form.layout))
    (slots,) = keys.shape
    return Group(name, kind, form, slots, keys.get_offset(), fields, run)


def _as_hdf5(item: Field, nbytes: int) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return the shape and type of a field in HDF5; those of its bytes if HDF5 has no such type."""
    import h5py

    dtype, most = np.dtype(item.dtype), 32
    with suppress(TypeError, ValueError):
        if (
            len(item.shape) < most
            and h5py.h5t.py_create(dtype, logical=True).get_size() == dtype.itemsize
        ):
            return item.shape, dtype
    return (nbytes,), np.dtype("u1")


def _make_flat(
    node: "h5py.Group", name: str, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> "h5py.Dataset":
    import h5py

    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_layout(h5py.h5d.CONTIGUOUS)
    plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    return node.create_dataset(name, shape, dtype, dcpl=plist)


def _text(text: str) -> str:
    """Return a text that HDF5 accepts: valid Unicode without NUL."""
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\0")


def names_of(layout: Layout, /) -> list[str]:
    """Return the names of a layout's datasets: those of its fields, where HDF5 accepts them.

    A name has no slashes, is not empty, does not consist of dots alone, and is not in use.
    """
    names, taken = list[str](), {"keys"}
    for item in layout:
        base = re.sub(r"[^\w.+-]", "_", item.name)
        safe = base = base if base.strip(".") else "field"
        count = 1
        while safe in taken:
            count += 1
            safe = f"{base}-{count}"
        taken.add(safe)
        names.append(safe)
    return names


@dataclass
class Survey:
    """The checkpoints, free slots and damaged parts of an archive.

    Attributes
    ----------
    names : list of str
        The names of all groups, also of damaged ones.
    stored : list of (Slot, Row)
        The checkpoints, the oldest first; their keys differ.
    outdated : list of Slot
        Slots whose rows have the same key as a newer row: they should have been freed, but a write
        failed or did not reach the disk.
    free : dict
        The free slots of each undamaged group.
    damaged : list of Damaged
        The damaged parts.
    """

    names: list[str] = field(default_factory=list)
    stored: list[tuple[Slot, Row]] = field(default_factory=list)
    outdated: list[Slot] = field(default_factory=list)
    free: dict[Group, list[int]] = field(default_factory=dict)
    damaged: list[Damaged] = field(default_factory=list)


_GROUP: Final = re.compile(r"(restart|tape|adjoint)-\d+")


def survey(
    files: Files, fd: int, path: Path, run: RunId, pieces: Iterable[Piece] = (), /
) -> Survey:
    """Return what is in an open archive of a run, whose metadata are changed by these pieces.

    Raises OSError, and StorageError if metadata on which all groups depend is damaged.
    """
    found, groups = Survey(), list[Group]()
    image = Image(files, fd, pieces)
    with _hdf5(image, path, "r") as file:
        for name in filter(_GROUP.fullmatch, file):
            found.names.append(name)
            try:
                kind = Kind[name.partition("-")[0].upper()]
                groups.append(_group(file[name], name, kind, run))
            except _BROKEN:
                if image.error is not None:
                    raise
                what = f"the metadata of group {name} is damaged"
                found.damaged.append(Damaged(path=path, offset=0, nbytes=0, what=what))
    rows: list[tuple[Slot, Row]] = []
    for group in groups:
        try:
            table = files.bytes_at(fd, group.rows, group.slots * ROW.itemsize)
        except EOFError:
            what = f"the file ends within group {group.name}"
            found.damaged.append(Damaged(path=path, offset=group.rows, nbytes=0, what=what))
            continue
        taken = np.frombuffer(table, ROW)["state"] != FREE
        found.free[group] = np.flatnonzero(~taken).tolist()
        for number in np.flatnonzero(taken).tolist():
            row = Row.unpack(table[number * ROW.itemsize :][: ROW.itemsize], number, group.seed)
            if row is not None and row.key.kind is group.kind and group.holds(row.nbytes):
                rows.append((Slot(group, number), row))
                continue
            what = f"the row of slot {number} of group {group.name} is damaged"
            at = group.row(number)
            found.damaged.append(Damaged(path=path, offset=at, nbytes=ROW.itemsize, what=what))
    rows.sort(key=lambda it: it[1].commit)
    youngest = {row.key: slot for slot, row in rows}
    for slot, row in rows:
        if youngest[row.key] is slot:
            found.stored.append((slot, row))
        else:
            found.outdated.append(slot)
    return found


_TRIES: Final = 4
_PAUSE: Final = 0.01


def survey_unlocked(path: Path, /) -> tuple[RunId, Survey]:
    """Return the run of an archive and what is in it, without locking or changing it.

    A run may change the file at this moment, so that some part looks damaged. Therefore only what
    is damaged several times counts as damaged. Raises BadInput, or StorageError.
    """
    files = Files()
    try:
        fd = files.open_to_read(path)
    except OSError as error:
        raise BadInput(f"{path} is no archive: {error.strerror or error}") from None
    try:
        for left in reversed(range(_TRIES)):
            try:
                block = user_block(files, fd)
                run = run_in(block, str(path))
                found = survey(files, fd, path, run, journal_in(block))
            except StorageError:
                if not left:
                    raise
            else:
                if not (found.damaged and left):
                    return run, found
            time.sleep(_PAUSE)
    except IsADirectoryError:
        raise BadInput(f"{path} is no archive, but a directory") from None
    except OSError as error:
        raise StorageError(f"{path}: reading it failed: {error.strerror or error}") from error
    finally:
        files.close(fd)
    raise AssertionError


# Files that are not open

OF_RUN: Final = r"-[0-9a-f]{1,64}(-\d+)?"
"""The part of an archive's name after the stem that all runs share: see `Hdf5.for_run`."""


def open_archive(path: Path, files: Files, run: RunId, /, *, sync: bool) -> int:
    """Open and lock the archive at a path; create it for this run if it does not exist.

    Raises LevelInUse if it is locked already, BadInput if there cannot be an archive at this path,
    and StorageError if the disk fails.
    """
    fd, missing = -1, list[Path]()
    try:
        missing = make_directories(path.parent, files, sync=sync)
        if not path.exists():
            create(path, files, run, sync=sync)
        try:
            fd = files.open(path, create=False)
        except FileNotFoundError:  # another process has just removed it
            raise BlockingIOError from None
        _lock(path, fd, files)
    except OSError as error:
        used = user_of(fd) if fd >= 0 else OTHER
        with suppress(OSError):
            if fd >= 0:
                files.close(fd)
        remove_directories(missing)
        if isinstance(error, BlockingIOError):
            raise LevelInUse(f"{path} is in use by {used}, or use another file") from None
        if error.errno in {errno.EIO, *FULL}:
            raise failure(files, path.parent, error, f"{path}: making it") from error
        raise BadInput(f"{path} cannot be an archive: {error.strerror or error}") from None
    with suppress(OSError):
        for draft in path.parent.glob(f".{escape(path.name)}.*.new"):
            files.unlink(draft)  # its process was killed
    return fd


def _lock(path: Path, fd: int, files: Files) -> None:
    """Lock the open file; raises BlockingIOError if it is locked already or was deleted.

    HDF5 itself uses flock. An open-file-description lock is independent of it, so that people can
    read the file with HDF5 while ckio uses it. The lock belongs to this opening of the file, not to
    the process.
    """
    with locking(path):
        lock_by(partial(fcntl.fcntl, fd, fcntl.F_OFD_SETLK, first_byte(fcntl.F_WRLCK)))
    if not files.is_named(fd):
        raise BlockingIOError


def create(path: Path, files: Files, run: RunId, /, *, sync: bool) -> None:
    """Create an archive without checkpoints for a run; it gets its name when it is complete."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    content = _new(run)
    fd = files.open(draft)
    try:
        try:
            files.cut(fd, 0)  # a killed process with the same number may have left this file
            files.write(fd, [memoryview(content)], 0)
            if sync:
                files.sync(fd)
        finally:
            files.close(fd)
        with suppress(FileExistsError, FileNotFoundError):  # another process was faster
            files.rename(draft, path)
        if sync:
            files.sync_directory(path.parent)
    finally:
        files.unlink(draft)


def _new(run: RunId) -> bytes:
    import h5py

    image = io.BytesIO()
    with h5py.File(image, "w", userblock_size=USER, **_STYLE) as file:
        file.attrs["format"] = "ckio archive"
        file.attrs["format_version"] = FORMAT
        file.attrs["creator"] = f"ckio {__version__}"
        file.attrs["run"] = run.text
        file.create_dataset("README", data=np.bytes_(_README))
    image.seek(0)
    image.write(head_of(run))
    return image.getvalue()


def is_archive(path: Path, /) -> bool:
    """Return whether a path is an archive, of any format since 4, and not a link to one."""
    if path.is_symlink() or not path.is_file():
        return False
    try:
        with opened(path, os.O_RDONLY) as fd:
            return is_ours(fd)
    except (PermissionError, FileNotFoundError):  # of another user, or removed meanwhile
        return False
