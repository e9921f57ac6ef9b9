"""A level in one HDF5 file that all ranks of a job share, by HDF5 with MPI.

    __init__        the level: collective operations, and operations of one rank
    parts           the parts of ranks in one checkpoint, written and read by HDF5 with MPI
    sharedfile      the file: lock, create, add a group, repair, list

Within HDF5 and MPI-IO, a rank writes and reads its own bytes without waiting for other ranks. An
error on one rank is raised on all ranks at the next collective call of ckio. Only opening and
closing the file are collective calls of HDF5.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from ckio.actions import Buffers, Key, Kind, Layout
from ckio.adapters.shared_hdf5 import sharedfile
from ckio.adapters.shared_hdf5.parts import SharedFile, SharedGroup
from ckio.adapters.shared_hdf5.sharedfile import (
    SharedRow,
    SharedStart,
    communicator,
    forget,
    is_taken,
    lock,
    unlock,
)
from ckio.backends.base import Backend
from ckio.backends.contents import Damaged, Stored
from ckio.backends.files import Files, failure, takes_sync
from ckio.backends.forms import form_from, form_of
from ckio.backends.hdf5 import Hdf5
from ckio.backends.ledger import Entry, Ledger
from ckio.backends.payload import digest
from ckio.backends.runid import NOBODY, RunId
from ckio.errors import BadInput, CkioError, CorruptCheckpoint, LevelFull, RankFailed, StorageError
from ckio.parallel.group import ALONE, RankGroup
from ckio.platform.readable import path_of

Place = tuple[SharedGroup, SharedRow]


class SharedHdf5(Backend):
    """One archive of all ranks. Each rank has its part of each checkpoint.

    Every method is a collective call: all ranks call it, in the same order. If it raises an error,
    it does so on all ranks.

    Parameters
    ----------
    path
        The file, on a file system that all ranks share. It is created if it does not exist.
    ranks
        The ranks of an MPI communicator; by default this process alone.
    capacity
        Payload bytes of each rank. None means that only the disk limits them.
    durability
        With "process", a checkpoint survives a kill of the job. With "fdatasync" it also survives
        failures of machines.
    checksum
        Whether payload is verified with xxh3_128 when it is read. A checksum is always written.
    run
        The run that uses the archive. An archive of another run is refused.
    now
        `now()` returns the time stamp of a checkpoint, in seconds since 1970.

    Raises
    ------
    BadInput
        h5py has no MPI, or `path` is not such an archive, is not the same file on all ranks, or was
        created by another number of ranks.
    StorageError
        The archive cannot be read.
    LevelInUse
        The archive is already open.
    ForeignLevel
        The archive belongs to another run.
    """

    durable = True
    cached = True

    def __init__(
        self,
        path: str | Path,
        ranks: RankGroup = ALONE,
        *,
        capacity: int | None = None,
        durability: str = "process",
        checksum: bool = True,
        run: RunId = NOBODY,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.path = path_of(path).absolute()
        self._ranks, self._run, self._now, self._checksum = ranks, run, now, checksum
        self._ledger: Ledger[Place] = Ledger(str(self.path), capacity)
        self._free: dict[SharedGroup, list[int]] = {}
        self._commit = 0
        self._system = Files()
        self._shared = SharedFile()
        self._fd = self._lock = -1

        def checked() -> tuple[Any, bool]:
            return communicator(ranks), takes_sync(durability)

        self._mpi, self._sync = ranks.each(checked)
        try:
            start = ranks.once(self._taken)
            self._fd = ranks.each(lambda: self._seen(start.number))
            self._join()
        except BaseException:
            self._release()
            raise
        for group, rows in start.groups:
            self._adopt(group, rows)
        self._ledger.damaged += [damaged.what for damaged in start.damaged]

    for_run = staticmethod(Hdf5.for_run)

    @staticmethod
    def contents(path: str | Path, /) -> list[Stored | Damaged]:
        """List the contents of an archive, one item for each rank's part of a checkpoint.

        No file is created or changed. Raises BadInput if there is no archive, and StorageError if
        it cannot be read.
        """
        return sharedfile.contents(Path(path).absolute())

    @staticmethod
    def in_use(path: Path, /) -> bool:
        """Return whether a job has the archive open, as far as this host can detect.

        Raises OSError.
        """
        return is_taken(path)

    @staticmethod
    def remove_files(path: Path, /) -> None:
        """Remove an archive that no job has open, and its auxiliary files.

        Raises OSError, LevelInUse, and StorageError if the file is not an archive.
        """
        locked = lock(path)
        try:
            sharedfile.remove(path)
        finally:
            unlock(path, locked)

    def reserve(self, sizes: Mapping[int, int], /) -> None:
        """Check that the disk has enough free space; `prepare` and `write` allocate the groups."""
        self._ranks.each(lambda: self._ledger.check_reservation(sizes))
        needed = self._ranks.size * sum(nbytes * count for nbytes, count in sizes.items())

        def look() -> None:
            missing = needed - sum(group.nbytes for group in self._free)
            if missing > (free := self._system.free(self.path)):
                raise LevelFull(
                    f"{self.path}: {missing} bytes are needed, but {free} are free; delete files,"
                    " or use another file system"
                )

        self._first(look, "reserving", needed)

    def prepare(self, key: Key, layout: Layout, count: int, /) -> None:
        """Create slots for `count` checkpoints of this layout, so that writes need not do it."""
        self._ranks.each(self._ledger.check_open)
        layouts = self._layouts(layout)
        lacking = count - sum(group.slots for group in self._like(key.kind, layouts))
        if lacking > 0:
            self._grow(key.kind, layouts, lacking)

    def write(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        form = self._ranks.each(lambda: self._ledger.admit(key, layout, data))
        group = self._with_free_slot(key.kind, self._layouts(form.layout))
        slot, self._commit = self._free[group].pop(), self._commit + 1
        try:
            mine = self._ranks.each(lambda: self._put(group, slot, data))
            row = SharedRow(self._commit, slot, key, self._now(), tuple(self._ranks.gather(mine)))
            self._first(lambda: self._set(group, row), f"writing {key}")
            self._ledger.enter(key, Entry(form, (group, row), mine))
        except BaseException:
            self._free[group].append(slot)
            raise
        return form.nbytes

    def layout(self, key: Key, /) -> Layout:
        return self._ledger.find(key).form.layout

    def read(self, key: Key, into: Buffers, /) -> int:
        return self._ranks.each(lambda: self._get(key, into))

    def discard(self, key: Key, /) -> None:
        group, row = self._ranks.each(lambda: self._ledger.find(key)).place
        self._first(lambda: self._mark(group, row.slot, 0), f"discarding {key}")
        self._ledger.strike(key)
        self._free[group].append(row.slot)

    def keys(self) -> list[Key]:
        return self._ledger.keys()

    def evict(self) -> None:
        """Remove the file from the page cache of each rank's host."""
        self._ranks.each(self._ledger.check_open)
        self._ranks.each(lambda: self._system.evict(self._fd))

    def close(self) -> None:
        """Close the file on all ranks. If a rank has ended, MPI keeps the file open."""
        with suppress(CkioError):
            self._ledger.check_open()  # raises in a fork, which must not release the file
            self._release()
        self._ledger.close()

    def remove(self) -> None:
        """Close the archive and delete its file. If it is closed already, do nothing."""
        if self._fd < 0:
            return
        self._ledger.check_open()

        def unlink() -> None:
            forget(self.path)
            self.path.unlink(missing_ok=True)

        try:  # before the lock is released, so that no other job opens the file
            self._first(unlink, "removing it")
        finally:
            self.close()

    # Operations of one rank

    def _put(self, group: SharedGroup, slot: int, data: Buffers) -> bytes:
        """Write this rank's part, and return its digest."""
        with self._explained(f"writing into {group.name}"):
            self._shared.put(group, slot, data)
            self._synced()
        return digest(data)

    def _get(self, key: Key, into: Buffers) -> int:
        entry = self._ledger.find_for(key, into, verify=False)
        group, row = entry.place
        with self._explained(f"reading {key}"):
            self._shared.get(group, row.slot, into)
        if self._checksum and digest(into) != entry.digest:
            raise CorruptCheckpoint(
                f"{self.path}: the part of rank {self._ranks.rank} of {key} (group {group.name},"
                f" slot {row.slot}) is damaged: it must have the checksum with which it was"
                " written; discard it, and recompute it or read it from another level"
            )
        return entry.form.nbytes

    def _synced(self) -> None:
        if self._sync:
            self._system.sync(self._fd)

    @contextmanager
    def _explained(self, doing: str, needed: int | None = None) -> Iterator[None]:
        """Raise the errors of the system and of h5py as errors of a level."""
        what = f"{self.path}: {doing}"
        try:
            yield
        except OSError as error:
            raise failure(self._system, self.path.parent, error, what, needed=needed) from error
        except (RuntimeError, ValueError) as error:
            if isinstance(error, CkioError):
                raise
            raise StorageError(f"{what} failed: {error}") from error

    # Operations of the first rank for all ranks

    def _first(self, do: Callable[[], object], doing: str, needed: int | None = None) -> None:
        def done() -> None:
            with self._explained(doing, needed):
                do()

        self._ranks.once(done)

    def _taken(self) -> SharedStart:
        """Lock the file, repair or create it, and read its contents."""
        if self.path.exists() and not self.path.is_file():
            raise BadInput(f"{self.path} cannot be an archive: it is no file; give another path")
        with self._explained("creating it"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = lock(self.path)
            sharedfile.undo(self.path)
            if not self.path.exists():
                sharedfile.create(self.path, self._run, self._ranks.size)
        start = sharedfile.survey(self.path)
        self._run.check(start.run, str(self.path))
        if start.ranks != self._ranks.size:
            raise BadInput(
                f"{self.path} belongs to a job of {start.ranks} ranks, but this job has"
                f" {self._ranks.size}; give this job another file"
            )
        return start

    def _set(self, group: SharedGroup, row: SharedRow) -> None:
        """Commit a checkpoint: write its key, and then mark its slot as occupied."""
        keys, digests = row.pack()
        self._shared.put_row(group, "keys", row.slot, keys)
        self._shared.put_row(group, "xxh3_128", row.slot, digests)
        self._synced()
        try:
            self._mark(group, row.slot, row.commit)
        except BaseException:
            with suppress(OSError, RuntimeError):
                self._mark(group, row.slot, 0)
            raise

    def _mark(self, group: SharedGroup, slot: int, commit: int) -> None:
        self._shared.put_row(group, "stored", slot, np.array([commit], "<u8"))
        self._synced()

    # Collective operations

    def _layouts(self, layout: Layout) -> tuple[Layout, ...]:
        """Return the layouts of all ranks."""
        texts = self._ranks.gather(form_of(layout).text)
        return tuple(form_from(text).layout for text in texts)

    def _like(self, kind: Kind, layouts: tuple[Layout, ...]) -> list[SharedGroup]:
        return [it for it in self._free if it.kind is kind and it.layouts == layouts]

    def _with_free_slot(self, kind: Kind, layouts: tuple[Layout, ...]) -> SharedGroup:
        """Return a group with a free slot. A new group doubles the slots of its layouts."""
        like = self._like(kind, layouts)
        for group in like:
            if self._free[group]:
                return group
        return self._grow(kind, layouts, max(1, sum(group.slots for group in like)))

    def _grow(self, kind: Kind, layouts: tuple[Layout, ...], slots: int) -> SharedGroup:
        """Create a group. The first rank does so, while no rank has the file open."""
        number = sum(group.kind is kind for group in self._free)
        group = SharedGroup(f"{kind.name.lower()}-{number}", kind, layouts, slots)
        self._leave()
        try:
            self._first(
                lambda: sharedfile.grow(self.path, group), f"creating {group.name}", group.nbytes
            )
        except RankFailed:
            raise
        except StorageError:
            self._join()
            raise
        self._join()
        self._adopt(group, [])
        return group

    def _adopt(self, group: SharedGroup, rows: list[SharedRow]) -> None:
        taken = {row.slot for row in rows}
        self._free[group] = [slot for slot in reversed(range(group.slots)) if slot not in taken]
        form = form_of(group.layouts[self._ranks.rank])
        for row in rows:
            mine = row.digests[self._ranks.rank]
            self._ledger.enter(row.key, Entry(form, (group, row), mine))
            self._commit = max(self._commit, row.commit)

    def _join(self) -> None:
        """Open the file on all ranks."""

        def opened() -> SharedFile:
            with self._explained("opening it"):
                return SharedFile(self.path, self._mpi, self._ranks.rank)

        self._ranks.agree()
        self._shared = self._ranks.each(opened)

    def _leave(self) -> None:
        """Close the file on all ranks. This is impossible if a rank has ended."""
        try:
            self._ranks.agree()
        except RankFailed:
            self._shared.abandon()
            raise
        self._shared.close()

    def _release(self) -> None:
        try:
            if self._shared.is_open:
                self._leave()
        finally:
            fd, self._fd = self._fd, -1
            lock_fd, self._lock = self._lock, -1
            if fd >= 0:
                os.close(fd)
            if lock_fd >= 0:
                unlock(self.path, lock_fd)

    def _seen(self, number: int) -> int:
        """Open the file on this rank for sync and evict. Its inode must be that of rank 0."""
        with suppress(OSError):
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            if os.fstat(fd).st_ino == number:
                return fd
            os.close(fd)
        raise BadInput(
            f"{self.path} is not the same file as on the first rank: a shared archive needs a file"
            " system that all ranks share; use it, or hdf5, which has a file per rank"
        )
