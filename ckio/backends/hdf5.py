"""The archive: a level in one HDF5 file, which other programs can read.

    /restart-0          slots for checkpoints of one kind and one layout
        zeta            (slots, ny, nx), one contiguous dataset per field; attributes name, unit
        psi             ...
        keys            (slots,), row i describes the checkpoint in slot i of each dataset
    /tape-0, ...        another kind or layout, or more slots for one of these

The space of a dataset is allocated when it is made, and its offset never changes. Therefore HDF5
has nothing to do in a write: each field is written to its offset, and then one row of `keys` makes
the checkpoint valid. If the writer is killed at any moment, a checkpoint is absent or complete.

Only a new group changes the metadata of HDF5. h5py makes it in an `Image` of the file, whose
changes stay in memory. They are written in this order:

    1. what is new, after the end of the file, to which nothing refers yet
    2. the changed parts of old metadata, with their checksum: the journal
    3. the same parts, each in its place; then the journal is cleared

After a kill in stage 3, the next opening completes it from the journal. Until then, plain h5py may
refuse the file. The journal is in the user block, the first 64 KiB of the file, which HDF5 leaves
to applications; its first page has the version of the format and the id of the run.

Tests: test_a_killed_writer_loses_nothing_and_leaves_nothing_torn,
test_a_failing_machine_loses_nothing_acknowledged,
test_a_machine_that_fails_while_an_archive_grows_loses_nothing.
"""

import errno
import fcntl
import io
import json
import os
import re
import struct
import time
from binascii import hexlify, unhexlify
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import numpy as np
import xxhash

from ckio import __version__
from ckio.actions import Buffers, Field, Key, Kind, Layout
from ckio.backends.contents import Damaged, Stored
from ckio.backends.files import (
    FULL,
    TILE,
    Files,
    check_here,
    failure,
    first_byte,
    lock_by,
    locking,
    opened,
    takes_sync,
    user_of,
)
from ckio.backends.forms import Form, form_from, form_of
from ckio.backends.freeslots import rounded
from ckio.backends.ledger import Entry, Ledger
from ckio.backends.payload import SMALL
from ckio.backends.runid import NOBODY, RunId
from ckio.errors import BadInput, CorruptCheckpoint, LevelFull, LevelInUse, StorageError
from ckio.platform.readable import path_of

if TYPE_CHECKING:  # h5py is imported when the first archive is opened
    import h5py

FORMAT: Final = 4
"""The version of the format; no other version is read."""

_LINE: Final = 64
"""The size of a slot for plain bytes is a multiple of this number of bytes."""


class Hdf5:
    """A level in one HDF5 file, called an archive; its checkpoints outlive the process.

    Parameters
    ----------
    path
        The file; it is created if it does not exist.
    capacity
        Maximum number of payload bytes; None means no limit but the disk.
    durability
        The failure that a stored checkpoint survives. "process": the process is killed.
        "fdatasync": also the machine crashes.
    checksum
        Whether the xxh3_128 of each payload is stored when it is written and verified when it is
        read.
    run
        The id of the run for which the archive is opened. It is stored in a new archive, and an
        archive of another run raises ForeignLevel. Without it, the archive of any run is opened,
        and a new archive has no id.
    now
        Function that returns the time to store with a checkpoint, in seconds since 1970.
    files
        The system calls; tests pass their own object.

    Raises
    ------
    BadInput
        The file is not an archive, or has another format.
    StorageError
        Its first page, or metadata of HDF5 on which all groups depend, is damaged.
    LevelInUse
        The archive is open already, in this process or another one.
    ForeignLevel
        The archive is of another run; nothing is changed.

    Other damage affects only the checkpoints in the damaged part of the file. After such damage,
    reading any key that is not stored raises CorruptCheckpoint.
    """

    durable = True

    def __init__(
        self,
        path: str | Path,
        *,
        capacity: int | None = None,
        durability: str = "process",
        checksum: bool = True,
        run: RunId = NOBODY,
        now: Callable[[], float] = time.time,
        files: Files | None = None,
    ) -> None:
        self.path = path_of(path).absolute()
        self._sync = _takes_sync(durability)
        self._checksum = checksum
        self._run, self._now = run, now
        self._system = files or Files()
        self._ledger: Ledger[Slot] = Ledger(str(self.path), capacity)
        self._slots = ArchiveSlots(capacity, self._grow)
        self._commit = 0
        self._stuck: list[Slot] = []
        self._fd = take(self.path, self._system, run, sync=self._sync)
        self._growth = Growth(self._system, self._fd, sync=self._sync)
        try:
            self._open()
        except OSError as error:
            self._release()
            raise self._failed(error, "opening it") from error
        except BaseException:
            self._release()
            raise

    def __del__(self) -> None:
        with suppress(Exception):  # an object that is garbage has no lock and no descriptor
            self._release()

    @staticmethod
    def for_run(path: str | Path, run: str, /) -> Path:
        """Return the file of one run, in the directory of `path`.

        For example, the file of run 0a1b2c3d for the path `archive.h5` is `archive-0a1b2c3d.h5`.
        Raises BadInput if `path` is a directory.
        """
        with suppress(OSError):  # in a directory of another user: it is an error to open it
            if Path(path).is_dir():
                raise BadInput(
                    f"{path} is a directory; an archive is a file, such as archive.h5 in it"
                )
        return Path(path).with_name(f"{Path(path).stem}-{run}.h5")

    @staticmethod
    def contents(path: str | Path, /) -> list[Stored | Damaged]:
        """List the checkpoints in an archive, which may be in use; nothing is created or changed.

        Raises BadInput if there is no archive or one of another format, and StorageError if
        metadata on which all groups depend is damaged.
        """
        return contents(Path(path).absolute())

    @staticmethod
    def levels_at(path: Path, /) -> list[Path]:
        """Return the archives at a path or with names from it; see `archives_at`."""
        return archives_at(path)

    @staticmethod
    def remove_files(path: Path, /) -> None:
        """Remove an archive that no process has open.

        Raises BlockingIOError if it is in use, another OSError if it cannot be removed, and
        StorageError if it is not an archive.
        """
        with opened(path, os.O_RDWR) as fd:
            with locking(path):
                fcntl.fcntl(fd, fcntl.F_OFD_SETLK, first_byte(fcntl.F_WRLCK))
            if not _is_ours(fd):
                raise StorageError(f"{path} is not removed: it is not an archive of ckio")
            check_here(path, fd)
            path.unlink()

    @property
    def damaged(self) -> list[str]:
        """Descriptions of the damaged parts."""
        return self._ledger.damaged

    def reserve(self, sizes: Mapping[int, int], /) -> None:
        self._ledger.check_reservation(sizes)
        lacking = self._slots.lacking(sizes)
        needed = bytes_for(lacking)
        try:
            # Allocate space after the last group, where new groups will be.
            size, end = self._system.size(self._fd), self._growth.end + needed
            if end > size and needed:
                self._system.extend(self._fd, size, end - size, prewrite=True)
                if self._sync:
                    self._system.sync(self._fd)
        except OSError as error:
            raise self._failed(error, "reserving", needed) from error
        self._slots.reserved = lacking

    def prepare(self, key: Key, layout: Layout, count: int, /) -> None:
        """Make slots for `count` checkpoints like this one, so that no later write must make them.

        Raises LevelFull if they do not fit.
        """
        self._ledger.check_open()
        form = form_of(layout)
        try:
            self._slots.prepare(key.kind, form, count)
        except OSError as error:
            raise self._failed(error, f"making slots for {key}", count * form.nbytes) from error

    def write(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        form = self._ledger.admit(key, layout, data)
        slot = self.begin(key, form)
        try:
            digest = self._put_fields(slot, data, form)
            self.commit(key, slot, form, digest)
        except BaseException as error:  # also an interrupt: undo the write
            self.give_up(key, slot)
            if isinstance(error, OSError):
                raise self._failed(error, f"writing {key}", form.nbytes) from error
            raise
        return form.nbytes

    def begin(self, key: Key, form: Form, /) -> "Slot":
        """Return a free slot for a checkpoint; `commit` or `give_up` must follow."""
        # An earlier row that could not be withdrawn must be older than the next one.
        self._commit += 1
        try:
            self._withdraw()
            return self._slots.take(key.kind, form)
        except OSError as error:
            raise self._failed(error, f"writing {key}", form.nbytes) from error
        except StorageError as error:
            error.args = (f"writing {key} failed: {error}",)
            raise

    def commit(self, key: Key, slot: "Slot", form: Form, digest: bytes, /) -> None:
        """Make a checkpoint valid whose fields have been written.

        One system call within one page is atomic: a kill leaves all of it or nothing. In two cases
        that does not suffice: the level syncs, so that checkpoints survive a crash of the machine,
        or the row is on two pages. Then the row is first written without its state, so that the
        slot is still free, and then the state alone.
        """
        group, number = slot
        at = group.row(number)
        row = Row(self._commit, number, key, form.nbytes, self._now(), digest)
        data = memoryview(row.pack(group.seed))
        if self._sync or at // PAGE < (at + len(data) - 1) // PAGE:
            self._put(data[len(FREE) :], at + len(FREE))
            data = data[: len(FREE)]
        if self._sync:
            self._system.sync(self._fd)
        if not self._system.is_named(self._fd):
            raise OSError(errno.ESTALE, "its file was deleted")
        self._put_synced(data, at)
        self._ledger.enter(key, Entry(form, slot, digest))

    def give_up(self, key: Key, slot: "Slot", /) -> None:
        """Free the slot of a write that failed: now if the disk permits, or before later writes."""
        self._ledger.restore(key, None)
        self._stuck.append(slot)
        with suppress(OSError):
            self._withdraw()

    def layout(self, key: Key, /) -> Layout:
        return self._ledger.find(key).form.layout

    def read(self, key: Key, into: Buffers, /) -> int:
        entry = self._ledger.find_for(key, into, verify=self._checksum)
        group, number = entry.place
        expected = entry.digest if self._checksum else b""
        try:
            sound = self._get_fields(group.offsets(number), into, entry.form, expected)
        except EOFError:
            raise CorruptCheckpoint(f"{self.path}: the file ends within {key}") from None
        except OSError as error:
            raise self._failed(error, f"reading {key}", entry.form.nbytes) from error
        if not sound:
            raise CorruptCheckpoint(
                f"{self.path}: {key} (group {group.name}, slot {number}) fails its checksum: it"
                " was damaged; discard it, and recompute it or read it from another level"
            )
        return entry.form.nbytes

    def discard(self, key: Key, /) -> None:
        entry = self._ledger.find(key)
        slot = entry.place
        try:
            self._withdraw()
            self._put_state(slot, _FREE)
            self._ledger.strike(key)
        except BaseException as error:  # also an interrupt: restore the checkpoint
            with suppress(OSError):
                self._put_state(slot, _STORED)
            self._ledger.restore(key, entry)
            if isinstance(error, OSError):
                raise self._failed(error, f"discarding {key}") from error
            raise
        self._slots.give(slot)

    def keys(self) -> list[Key]:
        return self._ledger.keys()

    def evict(self) -> None:
        """Drop the file from the page cache, so that the next read comes from the device."""
        self._ledger.check_open()
        try:
            self._system.evict(self._fd)
        except OSError as error:
            raise self._failed(error, "leaving the page cache") from error

    def close(self) -> None:
        with suppress(OSError, StorageError):
            self._ledger.check_open()  # a forked process must not change the file
            self._withdraw()
            self._growth.restore()
            # Return reserved space that was not used to the disk.
            self._system.cut(self._fd, self._growth.end)
        self._release()

    def remove(self) -> None:
        """Close the archive and delete its file; nothing happens if it is closed already."""
        if self._fd < 0:
            return
        self._ledger.check_open()  # a forked process must not remove the file
        try:  # delete it while it is locked, so that no other process opens it before
            if self._system.is_named(self._fd):
                check_here(self.path, self._fd)
                self._system.unlink(self.path)
        except OSError as error:
            raise self._failed(error, "removing it") from error
        finally:
            self.close()

    def _release(self) -> None:
        with suppress(OSError, StorageError):
            self._ledger.check_open()  # a forked process must not unlock the file
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, first_byte(fcntl.F_UNLCK))
        self._ledger.close()
        fd, self._fd = self._fd, -1
        try:
            if fd >= 0:
                self._system.close(fd)
        except OSError as error:
            raise self._failed(error, "closing it") from error

    def _open(self) -> None:
        """Enter the stored checkpoints, and complete what a killed process has left."""
        if self._sync:  # a killed process may have left bytes and a name that are not on the device
            self._system.sync(self._fd)
            self._system.sync_directory(self.path.parent)
        self._growth.complete(self._run, str(self.path))
        found = survey(self._system, self._fd, self.path, self._growth.run)
        for group, free in found.free.items():
            self._slots.adopt(group, reversed(free))
        for slot, row in found.stored:
            form = form_of(slot.group.layout_of(row.nbytes))
            self._ledger.enter(row.key, Entry(form, slot, row.digest))
            self._commit = row.commit
        self._ledger.damaged += [damaged.what for damaged in found.damaged]
        self._names = found.names
        for slot, row in found.outdated:  # a write over it could not be withdrawn
            self.give_up(row.key, slot)

    def _grow(self, kind: Kind, form: Form, slots: int) -> "Group":
        group = self._growth.add(kind, form, slots, self._names, str(self.path))
        self._names.append(group.name)
        return group

    # Fields, rows and states

    def _put_fields(self, slot: "Slot", data: Buffers, form: Form) -> bytes:
        """Write a payload; return its digest, or b"" without checksums."""
        system, fd, offsets = self._system, self._fd, slot.group.offsets(slot.number)
        if form.nbytes <= SMALL:
            for view, at in zip(data, offsets, strict=True):
                if (size := len(view)) and system.pwritev(fd, (view,), at) != size:
                    system.write(fd, (view,), at)
            return xxhash.xxh3_128_digest(b"".join(data)) if self._checksum else b""
        state = xxhash.xxh3_128()
        for view, at in _tiles(data, offsets):
            system.write(fd, (view,), at)
            if self._checksum:  # while the tile is in the cache of the processor
                state.update(view)
        return state.digest() if self._checksum else b""

    def _get_fields(self, offsets: list[int], into: Buffers, form: Form, expected: bytes) -> bool:
        """Fill `into`; return whether its digest is `expected` (always True for b"")."""
        system, fd = self._system, self._fd
        if form.nbytes <= SMALL:
            for view, at in zip(into, offsets, strict=True):
                if (size := len(view)) and system.preadv(fd, (view,), at) != size:
                    system.read(fd, (view,), at)
            return not expected or xxhash.xxh3_128_digest(b"".join(into)) == expected
        state = xxhash.xxh3_128()
        for view, at in _tiles(into, offsets):
            system.read(fd, (view,), at)
            if expected:
                state.update(view)
        return not expected or state.digest() == expected

    def _withdraw(self) -> None:
        """Free the slots whose commits failed; called before every other change.

        Such a row may have reached the disk although its commit failed. It must not exist any more
        when a newer checkpoint with its key is discarded.
        """
        while self._stuck:
            slot = self._stuck[-1]
            self._put_state(slot, _FREE)
            self._slots.give(slot)
            self._stuck.pop()

    def _put_state(self, slot: "Slot", state: memoryview) -> None:
        self._put_synced(state, slot.group.row(slot.number))

    def _put_synced(self, data: memoryview, at: int) -> None:
        self._put(data, at)
        if self._sync:
            self._system.sync(self._fd)

    def _put(self, data: memoryview, at: int) -> None:
        if self._system.pwritev(self._fd, (data,), at) != len(data):
            self._system.write(self._fd, (data,), at)

    def _failed(self, error: OSError, doing: str, needed: int | None = None) -> StorageError:
        what = f"{self.path}: {doing}"
        return failure(self._system, self.path, error, what, needed=needed)


def _takes_sync(durability: str) -> bool:
    if durability == "direct":
        raise BadInput(
            "an archive has no durability 'direct': HDF5 chooses the offsets of its slots, which"
            " are not multiples of a page; choose fdatasync, or a directory"
        )
    return takes_sync(durability)


def _tiles(data: Buffers, offsets: list[int]) -> Iterator[tuple[memoryview, int]]:
    """Cut buffers at multiples of a tile in the file; yield the parts and their offsets.

    Large pages of the page cache begin there, and a system call that begins within one is slower.
    """
    for view, offset in zip(data, offsets, strict=True):
        begin = 0
        while begin < len(view):
            part = view[begin : begin + TILE - (offset + begin) % TILE]
            yield part, offset + begin
            begin += len(part)


# Rows

NAME: Final = 64
"""Maximum bytes of the name of a key."""

ROW: Final = np.dtype(
    [
        ("state", "S8"),
        ("commit", "<u8"),
        ("slot", "<u8"),
        ("kind", "S8"),
        ("step", "<u8"),
        ("name", f"S{NAME}"),
        ("nbytes", "<u8"),
        ("written", "<f8"),
        ("xxh3_128", "S32"),
        ("row_xxh3", "<u8"),
    ]
)
STORED: Final = b"stored\0\0"
"""State of a row whose slot has a checkpoint."""

FREE: Final = bytes(len(STORED))
"""State of a row whose slot is free; the rest of the row has no meaning then."""

_STORED: Final = memoryview(STORED)
_FREE: Final = memoryview(FREE)
_ROW: Final = struct.Struct(f"<8sQQ8sQ{NAME}sQd32s")
_ROW_CHECK: Final = struct.Struct("<Q")
_WORDS: Final = {kind: kind.name.lower().encode() for kind in Kind}
_KINDS: Final = {word.ljust(8, b"\0"): kind for kind, word in _WORDS.items()}
_TEXT: Final = ("utf-8", "surrogatepass")


class Row(NamedTuple):
    """The row of a stored checkpoint.

    Attributes
    ----------
    commit : int
        The number of the write, from 1.
    nbytes : int
        Bytes of the payload.
    written : float
        Time of writing, in seconds since 1970 (UTC).
    digest : bytes
        The xxh3_128 of the payload; empty if it was written without a checksum.
    """

    commit: int
    slot: int
    key: Key
    nbytes: int
    written: float
    digest: bytes

    def pack(self, seed: int, /) -> bytes:
        """Return the bytes of a valid row; `seed` is that of its group.

        Raises StorageError if a row cannot store its key.
        """
        commit, slot, key, nbytes, written, digest = self
        name = key.name.encode(*_TEXT) if key.name else b""
        if key.step >= 1 << 64 or len(name) > NAME or name.endswith(b"\0"):
            raise StorageError(
                f"{key}: an archive stores steps below 2**64, and names of at most {NAME} bytes"
                " that do not end in NUL"
            )
        word, text = _WORDS[key.kind], hexlify(digest)
        row = _ROW.pack(STORED, commit, slot, word, key.step, name, nbytes, written, text)
        return row + _ROW_CHECK.pack(xxhash.xxh3_64_intdigest(row, seed))

    @classmethod
    def unpack(cls, row: bytes, slot: int, seed: int, /) -> Self | None:
        """Return the row of a slot of the group with this seed; None if it is not valid."""
        (check,) = _ROW_CHECK.unpack_from(row, _ROW.size)
        if xxhash.xxh3_64_intdigest(row[: _ROW.size], seed) != check:
            return None
        state, commit, at, kind, step, name, nbytes, written, text = _ROW.unpack_from(row)
        if state != STORED or at != slot:
            return None
        key = Key(_KINDS[kind], step, name.rstrip(b"\0").decode(*_TEXT))
        return cls(commit, slot, key, nbytes, written, unhexlify(text.rstrip(b"\0")))


# Groups and their slots


@dataclass(frozen=True, eq=False)
class Group:
    """Slots for checkpoints of one kind and one layout, and the offsets of its datasets.

    Attributes
    ----------
    name : str
        Name of the group in HDF5.
    kind : Kind
        Kind of its checkpoints.
    form : Form
        Form of the largest checkpoint that fits a slot.
    slots : int
        Number of slots.
    rows : int
        Offset of the row of slot 0, in bytes.
    fields : tuple of int
        Offset of slot 0 of each field.
    run : RunId
        The run of the archive.
    """

    name: str
    kind: Kind
    form: Form
    slots: int
    rows: int
    fields: tuple[int, ...]
    run: RunId

    @cached_property
    def seed(self) -> int:
        """Seed of the checksums of rows: a digest of run, name, kind and layout.

        With it, a row of another group or run does not look valid.
        """
        words = self.run.text, self.name, self.kind.value, self.form.text.decode()
        return xxhash.xxh3_64_intdigest("\n".join(words).encode(errors="surrogatepass"))

    @cached_property
    def _places(self) -> list[tuple[int, int]]:
        return list(zip(self.fields, self.form.sizes, strict=True))

    def row(self, slot: int, /) -> int:
        """Return the offset of the row of a slot, in bytes."""
        return self.rows + slot * ROW.itemsize

    def offsets(self, slot: int, /) -> list[int]:
        """Return the offset of each field in a slot, in bytes."""
        return [begin + slot * size for begin, size in self._places]

    def spans(self, slot: int, nbytes: int, /) -> tuple[tuple[int, int], ...]:
        """Return the offset and the bytes of each field of a checkpoint of `nbytes` in a slot."""
        sizes = [nbytes] if is_plain(self.form.layout) else self.form.sizes
        return tuple(zip(self.offsets(slot), sizes, strict=True))

    def layout_of(self, nbytes: int, /) -> Layout:
        """Return the layout of a checkpoint of `nbytes` in one of its slots."""
        layout = self.form.layout
        return layout if nbytes == self.form.nbytes else (replace(layout[0], shape=(nbytes,)),)

    def holds(self, nbytes: int, /) -> bool:
        """Return whether a checkpoint of `nbytes` fits one of the slots."""
        size = self.form.nbytes
        return nbytes == size or (is_plain(self.form.layout) and nbytes < size)


class Slot(NamedTuple):
    """Space for one checkpoint: number `number` of a group."""

    group: Group
    number: int


def is_plain(layout: Layout, /) -> bool:
    """Return whether a layout is one field of plain bytes; their number differs by checkpoint."""
    plain = ("|u1", "u1", "uint8")
    return len(layout) == 1 and layout[0].dtype in plain and len(layout[0].shape) == 1


def _of_size(layout: Layout, nbytes: int) -> Layout:
    """Return the layout of slots for checkpoints like this one with up to `nbytes`."""
    return (replace(layout[0], shape=(nbytes,)),) if is_plain(layout) else layout


_SLACK: Final = 1 << 15
"""Bytes of metadata for each reserved size: 32 KiB, which a group of about 50 fields has."""


def bytes_for(sizes: Mapping[int, int], /) -> int:
    """Return the bytes by which the file grows when these slots are made, at most."""
    slots = sum(count * (rounded(n, _LINE) + ROW.itemsize) for n, count in sizes.items())
    return _SLACK * len(sizes) + slots


_REMEMBERED: Final = 64
"""Number of forms whose groups are remembered."""


class ArchiveSlots:
    """The free slots of an archive, and the choice of a slot for a checkpoint.

    A new group has as many slots as were reserved for its size; without a reservation, as many as
    are occupied by such checkpoints already. Checkpoints of plain bytes, for example compressed
    ones, take any free slot that is large enough, the smallest first. Only checkpoints with the
    same name and unit share slots, because the unit describes them before compression.

    Parameters
    ----------
    capacity
        Maximum payload bytes of the level; None means no limit but the disk.
    make
        Function that makes a group with this number of slots; raises LevelFull or OSError.

    Attributes
    ----------
    free : dict
        The free slots of each group; the last one is taken first.
    reserved : dict
        Slots that were reserved and are not made yet, `{bytes: number}`.
    """

    def __init__(self, capacity: int | None, make: Callable[[Kind, Form, int], Group]) -> None:
        self.free: dict[Group, list[int]] = {}
        self.reserved: dict[int, int] = {}
        self._capacity, self._make = capacity, make
        self._suitable: dict[tuple[Kind, Form], list[Group]] = {}

    def adopt(self, group: Group, free: Iterator[int], /) -> None:
        """Add a group with these free slots."""
        self.free[group] = list(free)
        self._suitable.clear()

    def give(self, slot: Slot, /) -> None:
        """Take back a slot."""
        self.free[slot.group].append(slot.number)

    def take(self, kind: Kind, form: Form, /) -> Slot:
        """Return a free slot for a checkpoint, if necessary of a new group.

        Raises LevelFull or OSError if the file cannot grow.
        """
        for group in self._suitable.get((kind, form)) or self._find(kind, form):
            if free := self.free[group]:
                return Slot(group, free.pop())
        wanted = self._wanted(kind, form)
        try:
            group = self._new(kind, form, wanted)
        except (LevelFull, OSError):
            if wanted == 1:
                raise
            group = self._new(kind, form, 1)
        return Slot(group, self.free[group].pop())

    def prepare(self, kind: Kind, form: Form, count: int, /) -> None:
        """Make slots until there are `count` for such checkpoints; raises LevelFull or OSError."""
        lacking = count - sum(group.slots for group in self._find(kind, form))
        if lacking > 0:
            self._new(kind, form, lacking)

    def lacking(self, sizes: Mapping[int, int], /) -> dict[int, int]:
        """Return the slots that a reservation must still make; both are `{bytes: number}`."""
        slots = dict.fromkeys(sizes, 0)
        for group in self.free:
            for nbytes in slots:
                slots[nbytes] += group.slots * (
                    group.form.nbytes in (nbytes, rounded(nbytes, _LINE))
                )
        return {n: count - slots[n] for n, count in sizes.items() if count > slots[n]}

    def _new(self, kind: Kind, form: Form, count: int) -> Group:
        size = self._reserved_for(form) or form.nbytes
        group = self._make(kind, form_of(_of_size(form.layout, rounded(size, _LINE))), count)
        if size in self.reserved:
            self.reserved[size] = max(0, self.reserved[size] - count)
        self.adopt(group, reversed(range(count)))
        return group

    def _wanted(self, kind: Kind, form: Form) -> int:
        """Return the number of slots of a new group."""
        family = _of_size(form.layout, 0)
        taken = sum(
            group.slots - len(free)
            for group, free in self.free.items()
            if group.kind is kind and _of_size(group.form.layout, 0) == family
        )
        wanted = max(self.reserved.get(self._reserved_for(form), 0), taken, 1)
        if self._capacity is None or not form.nbytes:
            return wanted
        return max(1, min(wanted, self._capacity // form.nbytes - taken))

    def _reserved_for(self, form: Form) -> int:
        """Return the smallest reserved size that suits a checkpoint; 0 if there is none."""
        if not is_plain(form.layout):
            return form.nbytes
        sizes = [
            n for n, count in self.reserved.items() if count and rounded(n, _LINE) >= form.nbytes
        ]
        return min(sizes, default=0)

    def _find(self, kind: Kind, form: Form) -> list[Group]:
        """Return the groups with slots for checkpoints of this form, and remember them."""
        family = _of_size(form.layout, 0)
        groups = [
            group
            for group in self.free
            if group.kind is kind
            and group.form.nbytes >= form.nbytes
            and _of_size(group.form.layout, 0) == family
        ]
        groups.sort(key=lambda group: group.form.nbytes)
        if len(self._suitable) >= _REMEMBERED:
            self._suitable.clear()
        self._suitable[kind, form] = groups
        return groups


# The file

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
"""Offset of the eight bytes of HDF5's superblock with the end of the file."""

_SIGNATURE: Final = b"\x89HDF\r\n\x1a\n"
"""The first bytes of an HDF5 file."""

_SECTOR: Final = 512
_LIBVER: Final = "v110"
"""The first format of HDF5 in which all metadata have checksums."""

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

    Attributes
    ----------
    size : int
        Bytes of the file, including the changes.
    error : OSError or None
        The error of the system that made HDF5 give up.
    """

    def __init__(self, files: Files, fd: int, pieces: list[Piece] | None = None) -> None:
        self._files, self._fd = files, fd
        self.size = self._stored = files.size(fd)
        self.error: OSError | None = None
        self._sectors: dict[int, bytearray] = {}
        self._at = 0
        for at, data in pieces or ():
            self.seek(at)
            self.write(data)

    def changes(self, end: int) -> tuple[list[Piece], list[Piece]]:
        """Return the changed parts that begin before `end`, and those that begin after it."""
        pieces: tuple[list[Piece], list[Piece]] = ([], [])
        for number in sorted(self._sectors):
            at = number * _SECTOR
            data = bytes(self._sectors[number][: self.size - at])
            part = pieces[at >= end]
            if part and part[-1][0] + len(part[-1][1]) == at:
                part[-1] = part[-1][0], part[-1][1] + data
            else:
                part.append((at, data))
        return pieces

    # Methods that h5py calls

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}
        self._at = base[whence] + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def truncate(self, size: int | None = None) -> int:
        self.size = self._at if size is None else size
        return self.size

    def write(self, data: Any, /) -> int:
        view = memoryview(data).cast("B")
        for number, inside, part in self._parts(len(view)):
            if number not in self._sectors:
                sector = memoryview(bytearray(_SECTOR))
                self._fill(sector, number * _SECTOR)
                self._sectors[number] = bytearray(sector)
            self._sectors[number][inside] = view[part]
        self.size = max(self.size, self._at)
        return len(view)

    def readinto(self, into: Any, /) -> int:
        view = memoryview(into).cast("B")
        self._fill(view, self._at)
        for number, inside, part in self._parts(len(view)):
            if number in self._sectors:
                view[part] = self._sectors[number][inside]
        return len(view)

    def _fill(self, view: memoryview, at: int) -> None:
        """Read from the file; what is after its end is zero."""
        nbytes = max(0, min(len(view), self._stored - at))
        try:
            self._files.read(self._fd, [view[:nbytes]], at)
        except EOFError:
            self.error = OSError(errno.EIO, "the file was cut off meanwhile")
            raise self.error from None
        except OSError as error:
            self.error = error
            raise
        view[nbytes:] = bytes(len(view) - nbytes)

    def _parts(self, nbytes: int) -> Iterator[tuple[int, slice, slice]]:
        """Yield, for each sector of the next `nbytes`: its number, a slice of it, one of them."""
        done = 0
        while done < nbytes:
            number, begin = divmod(self._at, _SECTOR)
            count = min(_SECTOR - begin, nbytes - done)
            yield number, slice(begin, begin + count), slice(done, done + count)
            done += count
            self._at += count


@contextmanager
def _hdf5(image: Image, path: Path, mode: str) -> Iterator["h5py.File"]:
    """Open an image by h5py; raises OSError of the system, or StorageError if HDF5 gives up."""
    import h5py

    try:
        with h5py.File(image, mode, libver=_LIBVER) as file:
            yield file
    except _BROKEN as error:
        if image.error is not None:
            raise image.error from None
        raise StorageError(
            f"{path} was damaged: HDF5 cannot read it ({error}); use a new archive"
        ) from error


class Growth:
    """The first pages of an open archive, and its growth by groups.

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
        number = sum(name.startswith(f"{word}-") for name in names)
        with _hdf5(image, Path(path), "r+") as file:
            node = file.create_group(f"{word}-{number}")
            _make_datasets(node, form, slots)
            group = _group(node, f"{word}-{number}", kind, self.run)
        old, new = image.changes(self.end)
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
    if head.startswith(_NAME):
        raise BadInput(
            f"{name} has format {head[len(_NAME)]}; this ckio reads format {FORMAT}: update ckio,"
            " or name another file for the archive"
        )
    if block.startswith(_SIGNATURE) and _NAME in block:
        version = block[block.index(_NAME) + len(_NAME)]
        raise BadInput(
            f"{name} has format {version}, of an earlier ckio; this one reads format {FORMAT}:"
            " finish its run with that version, or read it by h5py, and name another file"
        )
    if block.startswith(_SIGNATURE):
        raise BadInput(
            f"{name} is an HDF5 file of another program; name another file for the archive"
        )
    raise BadInput(f"{name} is not an HDF5 file; name another file for the archive")


def _is_ours(fd: int) -> bool:
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
    outdated : list of (Slot, Row)
        Rows with the same key as a newer row. Their slots should have been freed, but a write
        failed.
    free : dict
        The free slots of each undamaged group.
    damaged : list of Damaged
        The damaged parts.
    """

    names: list[str] = field(default_factory=list)
    stored: list[tuple[Slot, Row]] = field(default_factory=list)
    outdated: list[tuple[Slot, Row]] = field(default_factory=list)
    free: dict[Group, list[int]] = field(default_factory=dict)
    damaged: list[Damaged] = field(default_factory=list)


_GROUP: Final = re.compile(r"(restart|tape|adjoint)-\d+")


def survey(
    files: Files, fd: int, path: Path, run: RunId, pieces: list[Piece] | None = None, /
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
        (found.stored if youngest[row.key] is slot else found.outdated).append((slot, row))
    return found


_TRIES: Final = 4
_PAUSE: Final = 0.01


def contents(path: Path, /) -> list[Stored | Damaged]:
    """List the contents of an archive; see `Hdf5.contents`.

    A run may change the file at this moment, so that some part looks damaged. Therefore only what
    is damaged several times counts as damaged.
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
                if not found.damaged:
                    break
            time.sleep(_PAUSE)
    except OSError as error:
        raise StorageError(f"{path}: reading it failed: {error.strerror or error}") from error
    finally:
        files.close(fd)
    stored = [
        Stored(
            key=row.key,
            layout=slot.group.layout_of(row.nbytes),
            path=path,
            spans=slot.group.spans(slot.number, row.nbytes),
            written=row.written,
            digest=row.digest,
            run=run.name,
        )
        for slot, row in found.stored
    ]
    return [*stored, *found.damaged]


# Files that are not open

_OF_RUN: Final = r"-[0-9a-f]{1,64}(-\d+)?"
"""The part of an archive's name after the stem that all runs share: see `Hdf5.for_run`."""


def take(path: Path, files: Files, run: RunId, /, *, sync: bool) -> int:
    """Open and lock the archive at a path; create it for this run if it does not exist.

    Raises LevelInUse if it is locked already, BadInput if there cannot be an archive at this path,
    and StorageError if the disk fails.
    """
    fd, missing = -1, list[Path]()
    try:
        missing += [it for it in path.parents if not it.exists()]
        for directory in reversed(missing):
            files.make_directory(directory)
            if sync:
                files.sync_directory(directory.parent)
        if not path.exists():
            create(path, files, run, sync=sync)
        fd = files.open(path)
        _lock(path, fd, files)
    except OSError as error:
        used = user_of(fd) if fd >= 0 else ""
        with suppress(OSError):
            if fd >= 0:
                files.close(fd)
        with suppress(OSError):
            for directory in missing:
                directory.rmdir()
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
    with h5py.File(image, "w", libver=_LIBVER, userblock_size=USER) as file:
        file.attrs["format"] = "ckio archive"
        file.attrs["format_version"] = FORMAT
        file.attrs["creator"] = f"ckio {__version__}"
        file.attrs["run"] = run.text
        file.create_dataset("README", data=np.bytes_(_README))
    image.seek(0)
    image.write(head_of(run))
    return image.getvalue()


def archives_at(path: Path, /) -> list[Path]:
    """Return the archives at a path.

    If `path` is a directory, they are the archives in it; if it is a file, the file itself.
    Otherwise they are the archives of all runs whose names are derived from `path` (see
    `Hdf5.for_run`). Links are not followed. Raises OSError if the directory cannot be read.
    """
    if path.is_dir():
        return [entry for entry in sorted(path.iterdir()) if _is_archive(entry)]
    if path.exists():
        return [path]
    beside = archives_at(path.parent) if path.parent.is_dir() else []
    return [archive for archive in beside if _is_derived(archive, path)]


def _is_archive(path: Path) -> bool:
    if path.suffix != ".h5" or path.is_symlink() or not path.is_file():
        return False
    try:
        with opened(path, os.O_RDONLY) as fd:
            return _is_ours(fd)
    except (PermissionError, FileNotFoundError):  # of another user, or removed meanwhile
        return False


def _is_derived(archive: Path, path: Path) -> bool:
    """Return whether the name of an archive is derived from this path, for some run."""
    name = rf"{re.escape(path.stem)}{_OF_RUN}\.h5"
    return re.fullmatch(name, archive.name) is not None
