"""The archive: a level in one HDF5 file, which other programs can read.

A write first puts the payload into a free slot; then one row of a key table marks it as complete.
Therefore, if the writer is killed at any moment, a checkpoint is either absent or complete.

    __init__        the level, and the order in which its commits reach the file
    allocation      the free slots, and the choice of a slot for a checkpoint
    heads           the first pages and their mirror, heads of groups, rows
    file            the file: open and lock it, create it, add a group, list its contents
    drafts          the metadata of HDF5, made in memory; only this module imports h5py
    views           encoded checkpoints as datasets of HDF5

Payloads and rows are written directly at their offsets, without the HDF5 library. Promise: a kill
at any moment loses no checkpoint, and plain h5py opens the remaining file. (A file that h5py itself
has open for writing is not valid before it is closed.) Test:
test_a_killed_writer_loses_nothing_and_leaves_nothing_torn.
"""

import errno
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from ckio.actions import Buffers, Key, Layout
from ckio.backends.base import Backend
from ckio.backends.contents import Damaged, Stored
from ckio.backends.files import Files, check_here, failure, takes_sync
from ckio.backends.forms import Form, form_of
from ckio.backends.hdf5 import file
from ckio.backends.hdf5.allocation import ArchiveSlots
from ckio.backends.hdf5.file import Committed
from ckio.backends.hdf5.heads import FREE, MAX_GROUPS, PAGE, STORED, Group, Row, Start, load, settle
from ckio.backends.ledger import Entry, Ledger
from ckio.backends.payload import Buffered
from ckio.backends.runid import NOBODY, RunId
from ckio.errors import BadInput, CorruptCheckpoint, LevelFull, StorageError
from ckio.platform.readable import path_of


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
        Both copies of its first pages are damaged.
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
        self._payload = Buffered(self._system)
        self._ledger: Ledger[Committed] = Ledger(str(self.path), capacity)
        self._slots = ArchiveSlots(capacity, self._make_group)
        self._fd = file.take(self.path, self._system, run, sync=self._sync)
        self._commits = Commits(self._system, self._fd, self._slots.free, sync=self._sync)
        try:
            self._start = self._open()
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
        """List the checkpoints in an archive without HDF5; nothing is created, locked or changed.

        The archive may be in use. Raises BadInput if there is no archive or one of another format,
        and StorageError if both copies of its first pages are damaged.
        """
        return file.contents(Path(path).absolute())

    @staticmethod
    def levels_at(path: Path, /) -> list[Path]:
        """Return the archives at a path or with names from it; see `file.archives_at`."""
        return file.archives_at(path)

    @staticmethod
    def drafts_at(path: Path, /) -> dict[Path, Path]:
        """Return incomplete archives whose processes were killed; see `file.drafts_at`."""
        return file.drafts_at(path)

    @staticmethod
    def remove_files(path: Path, /) -> None:
        """Remove an archive that no process has open; see `file.remove`."""
        file.remove(path)

    def reserve(self, sizes: Mapping[int, int], /) -> None:
        self._ledger.check_reservation(sizes)
        lacking = self._slots.lacking(sizes)
        needed = self._slots.bytes_for(lacking)
        try:
            # Allocate space after the last group, where new groups will be.
            size, end = self._system.size(self._fd), self._start.end + needed
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
        self._slots.prepare(key, form_of(layout), count)

    def write(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        form = self._ledger.admit(key, layout, data)
        nbytes, group = form.nbytes, self._slots.group_for(key, form)
        slot = self._slots.free[group].pop()
        # An earlier row that could not be withdrawn must be older than the next one.
        self._commits.number += 1
        try:
            self._commits.withdraw()
            at = group.at(slot)
            digest = self._payload.write(self._fd, data, at, checksum=self._checksum)
            if group.views is not None:
                self._show(group, slot, key, data[0])
            row = Row(self._commits.number, slot, key, nbytes, self._now(), digest)
            self._commits.commit(group, row)
            self._ledger.enter(key, Entry(form, Committed(group, row), digest))
        except BaseException as error:  # also an interrupt: undo the write
            self._ledger.restore(key, None)
            self._commits.give_up(group, slot)
            if isinstance(error, OSError):
                raise self._failed(error, f"writing {key}", nbytes) from error
            raise
        return nbytes

    def layout(self, key: Key, /) -> Layout:
        return self._ledger.find(key).form.layout

    def read(self, key: Key, into: Buffers, /) -> int:
        entry = self._ledger.find_for(key, into, verify=self._checksum)
        nbytes, (group, row) = entry.form.nbytes, entry.place
        digest = row.digest if self._checksum else b""
        try:
            sound = self._payload.read(self._fd, into, group.at(row.slot), digest)
        except EOFError:
            raise CorruptCheckpoint(f"{self.path}: the file ends within {key}") from None
        except OSError as error:
            raise self._failed(error, f"reading {key}", nbytes) from error
        if not sound:
            raise CorruptCheckpoint(
                f"{self.path}: {key} (group {group.name}, slot {row.slot}) fails its checksum: it"
                " was damaged; discard it, and recompute it or read it from another level"
            )
        return nbytes

    def discard(self, key: Key, /) -> None:
        entry = self._ledger.find(key)
        group, row = entry.place
        try:
            self._commits.discard(group, row.slot)
            self._ledger.strike(key)
        except BaseException as error:  # also an interrupt: restore the checkpoint
            self._commits.keep(group, row.slot)
            self._ledger.restore(key, entry)
            if isinstance(error, OSError):
                raise self._failed(error, f"discarding {key}") from error
            raise
        self._slots.free[group].append(row.slot)

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
            self._commits.withdraw()
            # Return reserved space that was not used to the disk.
            settle(self._system, self._fd, self._start, sync=self._sync)
            self._system.cut(self._fd, self._start.end)
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
            file.let_go(self._fd)
        self._ledger.close()
        fd, self._fd = self._fd, -1
        try:
            if fd >= 0:
                self._system.close(fd)
        except OSError as error:
            raise self._failed(error, "closing it") from error

    # Groups

    def _show(self, group: Group, slot: int, key: Key, data: memoryview) -> None:
        """Write the entries by which HDF5 finds the fields in a slot, which is still free."""
        try:
            for patch, at in group.patches(slot, data):
                self._system.write(self._fd, [memoryview(patch)], at)
        except CorruptCheckpoint as error:
            raise StorageError(f"{self.path}: {key} does not fit its layout: {error}") from None

    def _make_group(self, key: Key, slot: Form, slots: int) -> Group:
        """Make a group of free slots; raises LevelFull."""
        count = len(self._start.groups)
        if count >= MAX_GROUPS:
            raise LevelFull(
                f"{self.path} has {count} groups of different layouts, which is the maximum;"
                " store checkpoints of fewer layouts, or in another archive"
            )
        # A damaged group may have been of this kind: its number must not be used again.
        kind, sound = key.kind, self._slots.free
        number = sum(group.kind is kind for group in sound) + count - len(sound)
        try:
            group, self._start = file.add_group(
                *(self._system, self._fd, self._start, f"{kind.name.lower()}-{number}", kind),
                form=slot,
                slots=slots,
                sync=self._sync,
            )
        except OSError as error:
            raise self._failed(error, f"writing {key}", slots * slot.nbytes) from error
        except StorageError as error:
            raise StorageError(f"{self.path}: writing {key} failed: {error}") from error
        self._slots.adopt(group, reversed(range(slots)))
        return group

    def _open(self) -> Start:
        """Enter the stored checkpoints, and repair the file if possible."""
        if self._sync:  # a killed process may have left bytes and a name that are not on the device
            self._system.sync(self._fd)
            self._system.sync_directory(self.path.parent)
        first = load(self._system, self._fd, str(self.path))
        self._run.check(first.run, str(self.path))
        settle(self._system, self._fd, first, sync=self._sync)
        survey = file.survey(self._system, self._fd, self.path, first)
        for group, free in survey.free.items():
            self._slots.adopt(group, reversed(free))
        for group, row in survey.stored:
            form = form_of(group.layout_of(row.nbytes))
            self._ledger.enter(row.key, Entry(form, Committed(group, row), row.digest))
            self._commits.number = row.commit
        self._ledger.damaged += [damaged.what for damaged in survey.damaged]
        for group, row in survey.outdated:
            self._commits.give_up(group, row.slot)
        return first

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


_STORED: Final = memoryview(STORED)
_FREE: Final = memoryview(FREE)


class Commits:
    """The writes that make the checkpoints of an archive valid or invalid.

    When a commit begins, the payload and the entries of its views have been written. The commit
    writes the row. One system call within one page is atomic: a kill leaves all of it or nothing.
    In two cases that does not suffice: the level syncs, so that checkpoints survive a crash of the
    machine, or the row is on two pages. Then the row is first written without its state, so that
    the slot is still free, and then the state alone. A level that syncs does so before and after
    the write of the state.

    Promise: if a row is valid, its payload is complete. Tests:
    test_a_killed_writer_loses_nothing_and_leaves_nothing_torn,
    test_a_failing_machine_loses_nothing_acknowledged.

    Parameters
    ----------
    files, fd
        The system calls, and the open archive.
    free
        The free slots of each group; the slots of failed commits are added to it.
    sync
        Whether each commit waits for the device.

    Attributes
    ----------
    number : int
        Number of the last commit.
    """

    def __init__(
        self, files: Files, fd: int, free: Mapping[Group, list[int]], /, *, sync: bool
    ) -> None:
        self.number = 0
        self._files, self._fd, self._free, self._sync = files, fd, free, sync
        self._stuck: list[tuple[Group, int]] = []

    def commit(self, group: Group, row: Row, /) -> None:
        """Write the row of a slot that has its payload, and make the row valid."""
        data, at = memoryview(row.pack(group.seed)), group.row(row.slot)
        if self._sync or at // PAGE < (at + len(data) - 1) // PAGE:
            self._put(data[len(FREE) :], at + len(FREE))
            data = data[: len(FREE)]
        if self._sync:
            self._files.sync(self._fd)
        if not self._files.is_named(self._fd):
            raise OSError(errno.ESTALE, "its file was deleted")
        self._put_synced(data, at)

    def discard(self, group: Group, slot: int, /) -> None:
        """Make a row invalid; if that fails, the caller calls `keep`."""
        self.withdraw()
        self._put_state(group, slot, _FREE)

    def keep(self, group: Group, slot: int, /) -> None:
        """Make a row valid again after a failed `discard`, as far as the disk permits."""
        with suppress(OSError):
            self._put_state(group, slot, _STORED)

    def give_up(self, group: Group, slot: int, /) -> None:
        """Free a slot whose commit failed: now if the disk permits, or else before later writes."""
        self._stuck.append((group, slot))
        with suppress(OSError):
            self.withdraw()

    def withdraw(self) -> None:
        """Free the slots whose commits failed; called before every other change.

        Such a row may have reached the disk although its commit failed. It must not exist any more
        when a newer checkpoint with its key is discarded.
        """
        while self._stuck:
            group, slot = self._stuck[-1]
            self._put_state(group, slot, _FREE)
            self._free[group].append(slot)
            self._stuck.pop()

    def _put_state(self, group: Group, slot: int, state: memoryview) -> None:
        self._put_synced(state, group.row(slot))

    def _put_synced(self, data: memoryview, at: int) -> None:
        self._put(data, at)
        if self._sync:
            self._files.sync(self._fd)

    def _put(self, data: memoryview, at: int) -> None:
        if self._files.pwritev(self._fd, (data,), at) != len(data):
            self._files.write(self._fd, (data,), at)
