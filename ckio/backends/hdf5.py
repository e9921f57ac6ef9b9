"""A level in one HDF5 file that people can read: the archive.

Payload goes to a free slot first, then one row of a key table says that it is there: a writer that
is killed at any moment leaves a checkpoint absent or complete. Where things are said:

    hdf5            the level: which slot, and in which order things are written
    hdf5_file       what is in the file, how it is verified, and how a group is added
    hdf5_group      a group of slots, and where they lie
    hdf5_rows       the rows of a key table
    hdf5_library    all that is made by HDF5 itself; no other module imports h5py
    hdf5_draft      the file in memory that HDF5 is let loose on
"""

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from ckio.actions import Buffers, Key, Kind, Layout
from ckio.backends import hdf5_file, payload
from ckio.backends.files import Files, failure, takes_sync
from ckio.backends.forms import Form, form_of
from ckio.backends.hdf5_draft import eof
from ckio.backends.hdf5_group import Group, family, room, serves, slot_layout, slot_nbytes
from ckio.backends.hdf5_library import MAX_GROUPS
from ckio.backends.hdf5_rows import FREE, ROW, Row
from ckio.backends.ledger import Entry, Ledger
from ckio.errors import BadInput, CorruptCheckpoint, LevelFull, StorageError

_SLACK: Final = 1 << 16
"""Bytes of metadata and rounding for which the reservation of a size leaves room."""

_REMEMBERED: Final = 64
"""For how many forms the groups that serve them are remembered."""


class _Place(NamedTuple):
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
        self.path = Path(path).absolute()
        self._sync = takes_sync(durability)
        self._checksum = checksum
        self._now = now
        self._system = files or Files()
        self._ledger: Ledger[_Place] = Ledger(str(self.path), capacity)
        self._groups: dict[tuple[Kind, Layout], list[Group]] = {}
        self._free: dict[Group, list[int]] = {}
        self._serving: dict[tuple[Kind, Form], list[Group]] = {}
        self._reserved: dict[int, int] = {}
        self._commits = 0
        self._end = 0
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
        """The file of one run, beside `path`; raises BadInput where that is a directory."""
        if Path(path).is_dir():
            raise BadInput(f"{path} is a directory; an archive is a file, such as archive.h5 in it")
        return Path(path).with_name(f"{Path(path).stem}-{run}.h5")

    def reserve(self, sizes: Mapping[int, int], /) -> None:
        self._ledger.check_reservation(sizes)
        there = dict.fromkeys(sizes, 0)
        for group in self._free:
            for nbytes in there:
                there[nbytes] += group.slots * (group.form.nbytes in (nbytes, room(nbytes)))
        lacking = {n: count - there[n] for n, count in sizes.items() if count > there[n]}
        needed = sum((room(n) + ROW.itemsize) * count + _SLACK for n, count in lacking.items())
        try:
            # Behind the groups there are, where new ones will be.
            size = self._system.size(self._fd)
            if needed and self._end + needed > size:
                self._system.extend(self._fd, size, self._end + needed - size, prewrite=True)
                if self._sync:
                    self._system.sync(self._fd)
        except OSError as error:
            raise self._failed(error, "reserving", needed) from error
        self._reserved = lacking

    def write(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        form = self._ledger.admit(key, layout, data)
        group = self._with_room(key, form)
        slot = self._free[group].pop()
        self._commits += 1  # a row that could not be withdrawn is older than the next
        try:
            digest = payload.write(
                self._system, self._fd, group.pieces(slot, data), checksum=self._checksum
            )
            if self._sync:  # before the row that vouches for it
                self._system.sync(self._fd)
            row = Row(self._commits, slot, key, form.nbytes, self._now(), digest)
            self._put_row(group, slot, row.pack(group.seed))
        except BaseException as error:
            self._abandon(group, slot)
            if isinstance(error, OSError):
                raise self._failed(error, f"writing {key}", form.nbytes) from error
            raise
        self._ledger.enter(key, Entry(form, _Place(group, row), digest))
        return form.nbytes

    def layout(self, key: Key, /) -> Layout:
        return self._ledger.find(key).form.layout

    def read(self, key: Key, into: Buffers, /) -> int:
        entry = self._ledger.find_for(key, into, verify=self._checksum)
        group, slot = entry.place.group, entry.place.row.slot
        digest = entry.digest if self._checksum else b""
        try:
            sound = payload.read(self._system, self._fd, group.pieces(slot, into), digest)
        except EOFError:
            raise CorruptCheckpoint(f"{self.path}: the file ends within {key}") from None
        except OSError as error:
            raise self._failed(error, f"reading {key}") from error
        if not sound:
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
        """Drop its file from the page cache, so that the next read is a cold one."""
        self._ledger.check_open()
        try:
            self._system.evict(self._fd)
        except OSError as error:
            raise self._failed(error, "leaving the page cache") from error

    def close(self) -> None:
        with suppress(OSError, StorageError):
            # What was reserved and not used goes back to the disk; a fork does not decide that.
            self._ledger.check_open()
            self._system.cut(self._fd, max(self._end, eof(self._fd)))
        self._release()

    def remove(self) -> None:
        """Close it and delete its file; nothing happens if it is closed already."""
        try:
            if self._fd >= 0:  # deleted while it is locked: nobody opens what goes away
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

    def _put_row(self, group: Group, slot: int, row: bytes) -> None:
        self._system.write(self._fd, [memoryview(row)], group.row(slot))
        if self._sync:
            self._system.sync(self._fd)

    def _abandon(self, group: Group, slot: int) -> None:
        """Free a slot whose write failed; if not even that is possible, never use it again."""
        with suppress(OSError):
            self._put_row(group, slot, FREE)
            self._free[group].append(slot)

    def _with_room(self, key: Key, form: Form) -> Group:
        """A group with a free slot for a checkpoint, new if need be."""
        fitting = self._serving.get((key.kind, form)) or self._find_serving(key.kind, form)
        for group in fitting:
            if self._free[group]:
                return group
        # As many slots as were reserved; then, as many again as there are.
        layout, nbytes = form.layout, form.nbytes
        sizes = [n for n in self._reserved if serves(slot_nbytes(layout, n), layout, nbytes)]
        size = min(sizes, default=nbytes)
        slot = form_of(slot_layout(layout, size))
        there = sum(group.slots for group in fitting)
        wanted = max(self._reserved.get(size, 0), there, 1)
        capacity = self._ledger.capacity
        if capacity is not None and nbytes:
            wanted = max(1, min(wanted, capacity // nbytes - there))
        for slots in dict.fromkeys((wanted, 1)):
            try:
                group = self._grow(key, slot, slots)
            except LevelFull as error:
                refusal = error
            else:
                self._reserved.pop(size, None)
                return group
        # No room for a new one: any slot will do that is free and large enough.
        for group in self._groups.get((key.kind, family(layout)), []):
            if self._free[group] and group.holds(nbytes):
                return group
        raise refusal

    def _find_serving(self, kind: Kind, form: Form) -> list[Group]:
        """The groups whose slots may hold checkpoints of this form; remembered for the next."""
        groups = self._groups.get((kind, family(form.layout)), [])
        found = [group for group in groups if serves(group.form.nbytes, form.layout, form.nbytes)]
        if len(self._serving) >= _REMEMBERED:
            self._serving.clear()
        self._serving[kind, form] = found
        return found

    def _grow(self, key: Key, slot: Form, slots: int) -> Group:
        """A new group of free slots."""
        if len(self._free) >= MAX_GROUPS:
            raise LevelFull(
                f"{self.path} has {len(self._free)} groups of different layouts, all it can hold;"
                " store checkpoints of fewer layouts, or in another archive"
            )
        kind = key.kind
        name = f"{kind.name.lower()}-{sum(group.kind is kind for group in self._free)}"
        try:
            group = hdf5_file.add_group(
                *(self._system, self._fd, name, kind, slot),
                slots=slots,
                end=self._end,
                sync=self._sync,
            )
        except OSError as error:
            raise self._failed(error, f"writing {key}", slots * slot.nbytes) from error
        self._end = group.end
        self._adopt(group, reversed(range(slots)))
        return group

    def _adopt(self, group: Group, free: Iterable[int]) -> None:
        self._free[group] = list(free)
        self._serving.clear()
        self._groups.setdefault((group.kind, family(group.form.layout)), []).append(group)

    def _scan(self) -> None:
        """Find what is stored; of two rows with one key the younger is valid."""
        found: list[_Place] = []
        groups, self._end = hdf5_file.survey(self._system, self._fd, self.path)
        for group in groups:
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
            rows.append(row if row and group.holds(row.nbytes) else None)
        return rows

    def _failed(self, error: OSError, doing: str, needed: int | None = None) -> StorageError:
        what = f"{self.path}: {doing}"
        return failure(self._system, self.path, error, what, needed=needed)
