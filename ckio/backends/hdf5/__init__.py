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

    __init__    the level, and the order in which its commits reach the file
    slots       rows, groups, and the choice of a slot for a checkpoint
    file        the file: open and lock it, create it, make a group, list its contents

Tests: test_a_killed_writer_loses_nothing_and_leaves_nothing_torn,
test_a_failing_machine_loses_nothing_acknowledged,
test_a_machine_that_fails_while_an_archive_grows_loses_nothing.
"""

import errno
import fcntl
import os
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from ckio.actions import Buffers, Key, Kind, Layout
from ckio.backends.base import Backend
from ckio.backends.contents import Damaged, Stored
from ckio.backends.files import (
    Files,
    check_here,
    failure,
    first_byte,
    locking,
    opened,
    takes_sync,
)
from ckio.backends.forms import Form, form_of
from ckio.backends.hdf5.file import (
    OF_RUN,
    PAGE,
    Growth,
    is_archive,
    is_ours,
    open_archive,
    survey,
    survey_unlocked,
)
from ckio.backends.hdf5.slots import FREE, STORED, ArchiveSlots, Group, Row, Slot
from ckio.backends.ledger import Entry, Ledger
from ckio.backends.payload import Payload
from ckio.backends.runid import NOBODY, RunId
from ckio.errors import BadInput, CorruptCheckpoint, StorageError
from ckio.platform.readable import path_of

__all__ = ["Hdf5", "Slot"]

_STORED = memoryview(STORED)
_FREE = memoryview(FREE)


class Hdf5(Backend):
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
    cached = True

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
        self._payload = Payload(self._system)
        self._ledger: Ledger[Slot] = Ledger(str(self.path), capacity)
        self._slots = ArchiveSlots(capacity, self._grow)
        self._commit = 0
        """The number of the last write."""
        self._stuck: list[Slot] = []
        """Slots of failed writes, whose rows may be in the file: see `_withdraw`."""
        self._names: list[str] = []
        """The names of all groups, also of damaged ones, which new groups must not have."""
        self._fd = open_archive(self.path, self._system, run, sync=self._sync)
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
        path = Path(path).absolute()
        run, found = survey_unlocked(path)
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

    @staticmethod
    def levels_at(path: Path, /) -> list[Path]:
        """Return the archives at a path.

        If `path` is a directory, they are the archives in it; if it is a file, the file itself.
        Otherwise they are the archives of all runs whose names are derived from `path` (see
        `for_run`). Links are not followed. Raises OSError if the directory cannot be read.
        """
        if path.is_file():
            return [path]
        name = re.compile(rf"{'.*' if path.is_dir() else re.escape(path.stem) + OF_RUN}\.h5")
        folder = path if path.is_dir() else path.parent
        entries = sorted(folder.iterdir()) if folder.is_dir() else []
        return [it for it in entries if name.fullmatch(it.name) and is_archive(it)]

    @staticmethod
    def remove_files(path: Path, /) -> None:
        """Remove an archive that no process has open.

        Raises BlockingIOError if it is in use, another OSError if it cannot be removed, and
        StorageError if it is not an archive.
        """
        with opened(path, os.O_RDWR) as fd:
            with locking(path):
                fcntl.fcntl(fd, fcntl.F_OFD_SETLK, first_byte(fcntl.F_WRLCK))
            if not is_ours(fd):
                raise StorageError(f"{path} is not removed: it is not an archive of ckio")
            check_here(path, fd)
            path.unlink()

    @property
    def damaged(self) -> list[str]:
        """Descriptions of the damaged parts."""
        return self._ledger.damaged

    def reserve(self, sizes: Mapping[int, int], /) -> None:
        self._ledger.check_reservation(sizes)
        needed = self._slots.reserve(sizes)
        try:
            # Allocate space after the last group, where new groups will be.
            size, end = self._system.size(self._fd), self._growth.end + needed
            if end > size and needed:
                self._system.extend(self._fd, size, end - size, prewrite=True)
                if self._sync:
                    self._system.sync(self._fd)
        except OSError as error:
            self._slots.reserve({})
            raise self._failed(error, "reserving", needed) from error

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
            offsets = slot.group.offsets(slot.number)
            digest = self._payload.write_fields(self._fd, data, offsets, checksum=self._checksum)
            self.commit(key, slot, form, digest)
        except BaseException as error:  # also an interrupt: undo the write
            self.give_up(key, slot)
            if isinstance(error, OSError):
                raise self._failed(error, f"writing {key}", form.nbytes) from error
            raise
        return form.nbytes

    def begin(self, key: Key, form: Form, /) -> Slot:
        """Return a free slot for a checkpoint; `commit` or `give_up` must follow."""
        # An earlier row that could not be withdrawn must be older than the next one.
        self._commit += 1
        try:
            if self._stuck:
                self._withdraw()
            return self._slots.take(key.kind, form)
        except OSError as error:
            raise self._failed(error, f"writing {key}", form.nbytes) from error
        except StorageError as error:
            error.args = (f"writing {key} failed: {error}",)
            raise

    def commit(self, key: Key, slot: Slot, form: Form, digest: bytes, /) -> None:
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
            self._system.write(self._fd, (data[len(FREE) :],), at + len(FREE))
            data = data[: len(FREE)]
        if self._sync:
            self._system.sync(self._fd)
        if not self._system.is_named(self._fd):
            raise OSError(errno.ESTALE, "its file was deleted")
        self._put_synced(data, at)
        self._ledger.enter(key, Entry(form, slot, digest))

    def give_up(self, key: Key, slot: Slot, /) -> None:
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
            offsets = group.offsets(number)
            sound = self._payload.read_fields(self._fd, into, offsets, expected)
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
        self._stuck = found.outdated
        with suppress(OSError):
            self._withdraw()

    def _grow(self, kind: Kind, form: Form, slots: int) -> Group:
        group = self._growth.add(kind, form, slots, self._names, str(self.path))
        self._names.append(group.name)
        return group

    # Rows and states

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

    def _put_state(self, slot: Slot, state: memoryview) -> None:
        self._put_synced(state, slot.group.row(slot.number))

    def _put_synced(self, data: memoryview, at: int) -> None:
        self._system.write(self._fd, (data,), at)
        if self._sync:
            self._system.sync(self._fd)

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
