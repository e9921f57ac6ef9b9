"""A level in one HDF5 file that people can read: the archive.

`hdf5_file` says what is in the file, `hdf5_rows` what the rows of its key tables are. Payload goes
to a free slot first, then one row says that it is there: a writer killed at any moment leaves a
checkpoint absent or complete.
"""

import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import xxhash

from ckio.actions import Buffers, Key, Kind, Layout
from ckio.backends import hdf5_file
from ckio.backends.files import FULL, Files
from ckio.backends.forms import form_of
from ckio.backends.hdf5_draft import end
from ckio.backends.hdf5_group import Group, family, room, serves, slot_layout
from ckio.backends.hdf5_rows import FREE, ROW, Row
from ckio.backends.ledger import Entry, Ledger
from ckio.errors import BadInput, CorruptCheckpoint, LevelFull, StorageError

DURABILITIES: Final = ("process", "fdatasync")
"""What a checkpoint survives once it is written: its process, or also the machine."""

_SLACK: Final = 1 << 16
"""Bytes of metadata and rounding for which the reservation of a size leaves room."""


@dataclass(frozen=True, slots=True)
class _Place:
    group: Group
    row: Row


class Hdf5:
    """The archive level.

    Parameters
    ----------
    path
        The file; made if there is none.
    capacity
        Payload bytes that it may hold; None: as many as the disk.
    durability
        "process": a checkpoint survives its process being killed; "fdatasync": also the machine.
    checksum
        Whether payload is checksummed when written, and verified with xxh3_128 when read.
    now
        The time that rows are stamped with, in seconds since 1970.
    files
        The system calls; tests pass in their own.

    Raises BadInput where `path` is not an archive, or a newer one, StorageError where it is
    damaged, and LevelInUse where it is open already.
    """

    durable = True

    def __init__(
        self,
        path: str | Path,
        *,
        capacity: int | None = None,
        durability: str = "process",
        checksum: bool = True,
        now: Callable[[], float] = time.time,
        files: Files | None = None,
    ) -> None:
        if durability not in DURABILITIES:
            raise BadInput(f"durability {durability!r} is not one of: {', '.join(DURABILITIES)}")
        self.path = Path(path).absolute()
        self._sync = durability == "fdatasync"
        self._checksum = checksum
        self._now = now
        self._system = files or Files()
        self._ledger: Ledger[_Place] = Ledger(str(self.path), capacity)
        self._groups: dict[tuple[Kind, Layout], list[Group]] = {}
        self._free: dict[Group, list[int]] = {}
        self._reserved: dict[int, int] = {}
        self._commits = 0
        self._fd = hdf5_file.take(self.path, self._system)
        try:
            self._scan()
        except OSError as error:
            self._release()
            raise self._failed(error, "opening it") from error
        except BaseException:
            self._release()
            raise

    @staticmethod
    def for_run(path: str | Path, run: str, /) -> Path:
        """The file of one run, beside `path`."""
        return Path(path).with_name(f"{Path(path).stem}-{run}.h5")

    def reserve(self, sizes: Mapping[int, int], /) -> None:
        self._ledger.check_reservation(sizes)
        there = dict.fromkeys(sizes, 0)
        for group in self._free:
            for nbytes in there:
                there[nbytes] += group.slots * (group.nbytes in (nbytes, room(nbytes)))
        lacking = {n: count - there[n] for n, count in sizes.items() if count > there[n]}
        needed = sum((room(n) + ROW.itemsize) * count + _SLACK for n, count in lacking.items())
        before = os.fstat(self._fd).st_size
        more = end(self._fd) + needed - before
        if needed and more > 0:
            # Behind the end of the file as HDF5 sees it, where new groups will be.
            try:
                self._system.extend(self._fd, before, more, prewrite=True)
                if self._sync:
                    self._system.sync(self._fd)
            except OSError as error:
                raise self._failed(error, "reserving", more) from error
        self._reserved = lacking

    def write(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        form = self._ledger.admit(key, layout, data)
        group = self._with_room(key, layout, form.nbytes)
        slot = self._free[group].pop()
        try:
            digest = self._put(group, slot, data)
            row = Row(self._commits + 1, slot, key, form.nbytes, self._now(), digest)
            self._put_row(group, slot, row.pack(group.seed))
        except BaseException as error:
            self._abandon(group, slot)
            if isinstance(error, OSError):
                raise self._failed(error, f"writing {key}", form.nbytes) from error
            raise
        self._commits = row.commit
        self._ledger.enter(key, Entry(form, _Place(group, row), digest))
        return form.nbytes

    def layout(self, key: Key, /) -> Layout:
        return self._ledger.find(key).form.layout

    def read(self, key: Key, into: Buffers, /) -> int:
        entry = self._ledger.find_for(key, into)
        group, slot = entry.place.group, entry.place.row.slot
        if self._checksum and not entry.digest:
            raise StorageError(
                f"{self.path}: {key} was written without a checksum and cannot be verified;"
                " open the archive with checksum=False to read it"
            )
        digest = xxhash.xxh3_128()
        try:
            for piece, offset in group.pieces(slot, into):
                self._system.read(self._fd, [piece], offset)
                if self._checksum:
                    digest.update(piece)
        except EOFError:
            raise CorruptCheckpoint(f"{self.path}: the file ends within {key}") from None
        except OSError as error:
            raise self._failed(error, f"reading {key}") from error
        if self._checksum and digest.digest() != entry.digest:
            raise CorruptCheckpoint(
                f"{self.path}: {key} (group {group.name}, slot {slot}) is not what was written;"
                " discard it, and recompute it or read it from another level"
            )
        return entry.form.nbytes

    def discard(self, key: Key, /) -> None:
        place = self._ledger.find(key).place
        group, row = place.group, place.row
        try:
            self._put_row(group, row.slot, FREE)
        except OSError as error:
            with suppress(OSError):  # as it was before
                self._put_row(group, row.slot, row.pack(group.seed))
            raise self._failed(error, f"discarding {key}") from error
        self._ledger.strike(key)
        self._free[group].append(row.slot)

    def keys(self) -> list[Key]:
        return self._ledger.keys()

    def evict(self) -> None:
        """Drop the file from the page cache, so that what is read next comes from the disk."""
        self._system.sync(self._fd)
        os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        if self._fd >= 0:
            with suppress(OSError):  # what was reserved and not used goes back to the disk
                os.ftruncate(self._fd, end(self._fd))
        self._release()

    def remove(self) -> None:
        """Close the archive and delete its file."""
        try:
            # Deleted while it is locked: nobody opens what goes away.
            self._system.unlink(self.path)
        except OSError as error:
            raise self._failed(error, "removing it") from error
        finally:
            self.close()

    def _release(self) -> None:
        self._ledger.close()
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._system.close(fd)

    # Slots

    def _put(self, group: Group, slot: int, data: Buffers) -> bytes:
        """Payload into a slot; its digest."""
        digest = xxhash.xxh3_128()
        for piece, offset in group.pieces(slot, data):
            if self._checksum:
                digest.update(piece)
            self._system.write(self._fd, [piece], offset)
        if self._sync:
            self._system.sync(self._fd)
        return digest.digest() if self._checksum else b""

    def _put_row(self, group: Group, slot: int, row: bytes) -> None:
        self._system.write(self._fd, [memoryview(row)], group.row(slot))
        if self._sync:
            self._system.sync(self._fd)

    def _abandon(self, group: Group, slot: int) -> None:
        """Free a slot whose write failed; if not even that is possible, never use it again."""
        with suppress(OSError):
            self._put_row(group, slot, FREE)
            self._free[group].append(slot)

    def _with_room(self, key: Key, layout: Layout, nbytes: int) -> Group:
        """A group with a free slot for a checkpoint, new if need be."""
        groups = self._groups.get((key.kind, family(layout)), [])
        fitting = [group for group in groups if serves(group.nbytes, layout, nbytes)]
        for group in fitting:
            if self._free[group]:
                return group
        # As many slots as were reserved; then, as many again as there are.
        sizes = [size for size in self._reserved if serves(size, layout, nbytes)]
        size = min(sizes, default=nbytes)
        slots = slot_layout(layout, size)
        there = sum(group.slots for group in fitting)
        wanted = max(self._reserved.get(size, 0), there, 1)
        capacity = self._ledger.capacity
        if capacity is not None and nbytes:
            wanted = max(1, min(wanted, capacity // nbytes - there))
        try:
            group = self._grow(key, slots, wanted)
        except LevelFull:
            if wanted == 1:
                raise
            group = self._grow(key, slots, 1)
        self._reserved.pop(size, None)
        return group

    def _grow(self, key: Key, layout: Layout, slots: int) -> Group:
        """A new group of free slots."""
        try:
            group = hdf5_file.add_group(
                self._system, self._fd, key.kind, layout, slots=slots, sync=self._sync
            )
        except OSError as error:
            needed = slots * form_of(layout).nbytes
            raise self._failed(error, f"writing {key}", needed) from error
        self._adopt(group, reversed(range(slots)))
        return group

    def _adopt(self, group: Group, free: Iterable[int]) -> None:
        self._free[group] = list(free)
        self._groups.setdefault((group.kind, family(group.layout)), []).append(group)

    def _scan(self) -> None:
        """Find what is stored; of two rows with one key the younger is valid."""
        found: list[_Place] = []
        for group in hdf5_file.survey(self._fd, self.path):
            rows = self._rows(group)
            found += [_Place(group, row) for row in rows if row is not None]
            self._adopt(group, [slot for slot, row in enumerate(rows) if row is None][::-1])
        found.sort(key=lambda place: place.row.commit)
        valid = {place.row.key: place for place in found}
        for place in found:
            group, row = place.group, place.row
            if valid[row.key] is place:
                form = form_of(group.layout_of(row.nbytes))
                self._ledger.enter(row.key, Entry(form, place, row.digest))
                self._commits = row.commit
            else:
                self._abandon(group, row.slot)

    def _rows(self, group: Group) -> list[Row | None]:
        """What lies in each slot of a group."""
        table = bytearray(group.slots * ROW.itemsize)
        self._system.read(self._fd, [memoryview(table)], group.rows)
        rows: list[Row | None] = []
        for slot in range(group.slots):
            begin = slot * ROW.itemsize
            row = Row.unpack(bytes(table[begin : begin + ROW.itemsize]), slot, group.seed)
            fits = row is not None and serves(group.nbytes, group.layout, row.nbytes)
            rows.append(row if fits else None)
        return rows

    def _failed(self, error: OSError, doing: str, needed: int = 0) -> StorageError:
        """What to raise for an error of the system."""
        what = f"{self.path}: {doing} failed: {error.strerror or error}"
        if error.errno not in FULL:
            return StorageError(what)
        try:
            free = str(self._system.free(self.path))
        except OSError:
            free = "an unknown number of bytes"
        return LevelFull(f"{what}; {needed} bytes are needed, {free} are free on its file system")
