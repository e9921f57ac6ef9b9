"""A level in one HDF5 file that all ranks of a job share, by HDF5 with MPI.

    __init__        the level: collective operations, and operations of one rank
    parts           the parts of ranks in one checkpoint, written and read by HDF5 with MPI
    sharedfile      the file: lock, create, add a group, repair, list

A rank writes and reads its own bytes without waiting for others within HDF5 or MPI-IO. An error on
one rank is raised on all ranks at the next collective call. Only opening and closing the file are
collective calls of HDF5.
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
from ckio.backends.contents import Damaged, Stored
from ckio.backends.files import Files, failure, takes_sync
from ckio.backends.forms import form_from, form_of
from ckio.backends.hdf5 import Hdf5
from ckio.backends.ledger import Entry, Ledger
from ckio.backends.payload import digest
from ckio.backends.runid import NOBODY, RunId
from ckio.errors import BadInput, CkioError, CorruptCheckpoint, LevelFull, RankFailed, StorageError
from ckio.parallel.group import ALONE, RankGroup

Place = tuple[SharedGroup, SharedRow]


class SharedHdf5:
    """One archive of all ranks, in which each rank has its part.

    Every method is called by all ranks, in the same order, and has the same result on all of them.

    Parameters
    ----------
    path
        The file, on a file system that all ranks share. It is created if it does not exist.
    ranks
        The ranks of an MPI communicator; by default this process alone.
    capacity
        Payload bytes of each rank; None: limited by the disk only.
    durability
        "process": a checkpoint survives a kill of the job; "fdatasync": also failures of machines.
    checksum
        Whether payload is verified with xxh3_128 when it is read. A checksum is always written.
    run
        The run that uses the archive. An archive of another run is refused.
    now
        Returns the time stamp of a checkpoint, in seconds since 1970.

    Raises
    ------
    BadInput
        h5py has no MPI, or `path` is no such archive, is not the same file on all ranks, or was
        created by another number of ranks.
    StorageError
        The archive is damaged as a whole.
    LevelInUse
        The archive is open already.
    ForeignLevel
        The archive belongs to another run.
    """

    durable = True

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
        self.path = Path(path).absolute()
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

        Nothing is created or changed. Raises BadInput if there is no archive, and StorageError if
        it is damaged as a whole.
        """
        return sharedfile.contents(Path(path).absolute())

    @staticmethod
    def in_use(path: Path, /) -> bool:
        """Return whether a job has it open, as far as this host can detect; raises OSError."""
        return is_taken(path)

    @staticmethod
    def remove_files(path: Path, /) -> None:
        """Remove an archive that no job has open, with its auxiliary files.

        Raises OSError, LevelInUse, and StorageError if it is no archive.
        """
        held = lock(path)
        try:
            sharedfile.remove(path)
        finally:
            unlock(path, held)

    def reserve(self, sizes: Mapping[int, int], /) -> None:
        """Check that the disk has enough free space; `prepare` and `write` allocate the groups."""
        self._ranks.each(lambda: self._ledger.check_reservation(sizes))
        needed = self._ranks.size * sum(nbytes * count for nbytes, count in sizes.items())

        def look() -> None:
            missing = needed - sum(group.nbytes for group in self._free)
            if missing > (free := self._system.free(self.path)):
                raise LevelFull(f"{self.path}: {missing} bytes are needed, and {free} are free")

        self._first(look, "reserving", needed)

    def prepare(self, key: Key, layout: Layout, count: int, /) -> None:
        """Create slots for `count` checkpoints like this one, so that no write has to."""
        self._ranks.each(self._ledger.check_open)
        layouts = self._layouts(layout)
        lacking = count - sum(group.slots for group in self._like(key.kind, layouts))
        if lacking > 0:
            self._grow(key.kind, layouts, lacking)

    def write(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        form = self._ranks.each(lambda: self._ledger.admit(key, layout, data))
        group = self._with_room(key.kind, self._layouts(form.layout))
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
        """Drop the file from the page cache of each rank's host."""
        self._ranks.each(self._ledger.check_open)
        self._ranks.each(lambda: self._system.evict(self._fd))

    def close(self) -> None:
        """Close the file on all ranks. If a rank has ended, MPI's part of it stays open."""
        with suppress(CkioError):
            self._ledger.check_open()  # a fork releases nothing
            self._release()
        self._ledger.close()

    def remove(self) -> None:
        """Close it and delete its file; does nothing if it is closed already."""
        if self._fd < 0:
            return
        self._ledger.check_open()

        def unlink() -> None:
            forget(self.path)
            self.path.unlink(missing_ok=True)

        try:  # while it is locked: nobody opens it
            self._first(unlink, "removing it")
        finally:
            self.close()

    # Calls of one rank alone

    def _put(self, group: SharedGroup, slot: int, data: Buffers) -> bytes:
        """Write this rank's part; returns its digest."""
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
                f" slot {row.slot}) is not what was written; discard it, and recompute it or read"
                " it from another level"
            )
        return entry.form.nbytes

    def _synced(self) -> None:
        if self._sync:
            self._system.sync(self._fd)

    @contextmanager
    def _explained(self, doing: str, needed: int | None = None) -> Iterator[None]:
        """Raise the errors of the system and of h5py as those of a level."""
        what = f"{self.path}: {doing}"
        try:
            yield
        except OSError as error:
            raise failure(self._system, self.path.parent, error, what, needed=needed) from error
        except (RuntimeError, ValueError) as error:
            if isinstance(error, CkioError):
                raise
            raise StorageError(f"{what} failed: {error}") from error

    # Calls of the first rank for all

    def _first(self, do: Callable[[], object], doing: str, needed: int | None = None) -> None:
        def done() -> None:
            with self._explained(doing, needed):
                do()

        self._ranks.once(done)

    def _taken(self) -> SharedStart:
        """Lock, mend or make the file, and read its contents."""
        if self.path.exists() and not self.path.is_file():
            raise BadInput(f"{self.path} cannot be an archive: it is no file")
        with self._explained("making it"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = lock(self.path)
            sharedfile.undo(self.path)
            if not self.path.exists():
                sharedfile.create(self.path, self._run, self._ranks.size)
        start = sharedfile.survey(self.path)
        self._run.check(start.run, str(self.path))
        if start.ranks != self._ranks.size:
            raise BadInput(
                f"{self.path} is of a job of {start.ranks} ranks, and this one has"
                f" {self._ranks.size}; give it a file of its own"
            )
        return start

    def _set(self, group: SharedGroup, row: SharedRow) -> None:
        """Commit: which checkpoint lies in the slot, and then that it does."""
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

    # Calls of all ranks together

    def _layouts(self, layout: Layout) -> tuple[Layout, ...]:
        """Return the layouts of all ranks."""
        texts = self._ranks.gather(form_of(layout).text)
        return tuple(form_from(text).layout for text in texts)

    def _like(self, kind: Kind, layouts: tuple[Layout, ...]) -> list[SharedGroup]:
        return [it for it in self._free if it.kind is kind and it.layouts == layouts]

    def _with_room(self, kind: Kind, layouts: tuple[Layout, ...]) -> SharedGroup:
        """Return a group with a free slot; a new one has as many slots as its like have already."""
        like = self._like(kind, layouts)
        for group in like:
            if self._free[group]:
                return group
        return self._grow(kind, layouts, max(1, sum(group.slots for group in like)))

    def _grow(self, kind: Kind, layouts: tuple[Layout, ...], slots: int) -> SharedGroup:
        """Make a group, by the first rank while nobody has the file open."""
        number = sum(group.kind is kind for group in self._free)
        group = SharedGroup(f"{kind.name.lower()}-{number}", kind, layouts, slots)
        self._leave()
        try:
            self._first(
                lambda: sharedfile.grow(self.path, group), f"making {group.name}", group.nbytes
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
        """Open the file, all at once."""

        def opened() -> SharedFile:
            with self._explained("opening it"):
                return SharedFile(self.path, self._mpi, self._ranks.rank)

        self._ranks.agree()
        self._shared = self._ranks.each(opened)

    def _leave(self) -> None:
        """Close it, all at once; where a rank is gone, nobody can."""
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
            held, self._lock = self._lock, -1
            if fd >= 0:
                os.close(fd)
            if held >= 0:
                unlock(self.path, held)

    def _seen(self, number: int) -> int:
        """Open it on this rank alone, to sync and to evict; it is the file of the first one."""
        with suppress(OSError):
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            if os.fstat(fd).st_ino == number:
                return fd
            os.close(fd)
        raise BadInput(
            f"{self.path} is not there as the first rank has it: a shared archive is for a file"
            " system that all ranks share; use hdf5, a file per rank"
        )
