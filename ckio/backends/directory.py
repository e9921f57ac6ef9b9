"""A directory as a storage level: slots in a few files, which a kill at any moment leaves sound.

Slots of one size share a file, `slots-<stride>-v1.ckio`. A slot is one head and one payload
(`format.py`). Writing takes a free slot, writes the payload, then the head: that commits it.
Discarding clears the head's magic. So a slot that is live is never written to, nothing is truncated
or renamed while a run goes on, and what a kill interrupts is a free slot.
"""

import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ckio.actions import Buffers, Key, Layout
from ckio.backends import payload
from ckio.backends.buffers import pieces
from ckio.backends.files import Files, failure, takes_sync
from ckio.backends.format import BLOCK, FREE, MAGIC, Head, length, pack, payload_begin, unpack
from ckio.backends.ledger import Entry, Ledger
from ckio.backends.place import Place
from ckio.backends.shelves import Shelves
from ckio.errors import CorruptCheckpoint, StorageError

_NAME = re.compile(r"slots-(\d{4,15})-v(\d{1,9})\.ckio")
_VERSION = 1


@dataclass(slots=True)
class _File:
    """One file of slots; `end` is where the next slot is made."""

    path: Path
    fd: int
    end: int = 0


class _Slot(NamedTuple):
    size: int
    fd: int
    offset: int


class Directory:
    """Checkpoints in a directory; they outlive the process.

    Parameters
    ----------
    path
        The directory; it is made if it is not there. Only one process may have it open.
    capacity
        Payload bytes that it may hold; None never fills. Heads and rounding come on top.
    durability
        What a committed checkpoint survives: "process", the process being killed; "fdatasync", the
        machine failing too.
    checksum
        Whether payloads are digested with xxh3_128 when written, and verified when read.
    files
        The system calls; tests pass in their own.

    Raises
    ------
    BadInput
        The place cannot be used, or there is no such durability.
    LevelInUse
        Another process has it open.
    """

    durable = True

    def __init__(
        self,
        path: str | Path,
        *,
        capacity: int | None = None,
        durability: str = "process",
        checksum: bool = True,
        files: Files | None = None,
    ) -> None:
        self.path = Path(path).absolute()
        self._sync = takes_sync(durability)
        self._checksum = checksum
        self._system = files or Files()
        self._ledger: Ledger[_Slot] = Ledger(f"directory {self.path}", capacity)
        self._shelves: Shelves[_Slot] = Shelves(unit=BLOCK, make=self._make, drop=self._drop)
        self._files: dict[int, _File] = {}
        self._sequence = 0
        self._place = Place(self.path)
        try:
            self._scan()
        except OSError as error:
            self.close()
            raise self._failed(error, "opening it") from error
        except BaseException:
            self.close()
            raise

    @staticmethod
    def for_run(path: Path, run: str, /) -> Path:
        """Where the files of one run go under the place of this level."""
        return path / run

    def reserve(self, sizes: Mapping[int, int], /) -> None:
        self._ledger.check_reservation(sizes)
        try:
            self._shelves.reserve(sizes)
        except OSError as error:
            lacking = self._shelves.lacking(sizes)
            needed = sum((BLOCK + size) * count for size, count in lacking.items())
            raise self._failed(error, "reserving", needed) from error

    def write(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        form = self._ledger.admit(key, layout, data)
        begin = payload_begin(key, form)
        needed = begin - BLOCK + form.nbytes
        self._sequence += 1  # a head that could not be withdrawn is older than the next
        try:
            slot = self._shelves.take(needed)
            try:
                places = pieces(data, slot.offset + begin)
                digest = payload.write(self._system, slot.fd, places, checksum=self._checksum)
                if self._sync:  # before the head that vouches for it
                    self._system.sync(slot.fd)
                self._put_head(slot, pack(Head(key, form, self._sequence, begin, digest)))
            except BaseException:
                self._abandon(slot)
                raise
        except OSError as error:
            raise self._failed(error, f"writing {key}", needed) from error
        self._ledger.enter(key, Entry(form, slot, digest))
        return form.nbytes

    def layout(self, key: Key, /) -> Layout:
        return self._ledger.find(key).form.layout

    def read(self, key: Key, into: Buffers, /) -> int:
        entry = self._ledger.find_for(key, into, verify=self._checksum)
        slot, form = entry.place, entry.form
        offset = slot.offset + payload_begin(key, form)
        digest = entry.digest if self._checksum else b""
        try:
            sound = payload.read(self._system, slot.fd, pieces(into, offset), digest)
        except EOFError:
            raise CorruptCheckpoint(f"{key} in {self.path}: its file ends within it") from None
        except OSError as error:
            raise self._failed(error, f"reading {key}") from error
        if not sound:
            raise CorruptCheckpoint(f"{key} in {self.path} fails its checksum: it was damaged")
        return form.nbytes

    def discard(self, key: Key, /) -> None:
        slot = self._ledger.find(key).place
        try:
            self._put_head(slot, FREE)
        except OSError as error:
            with suppress(OSError):  # as it was before
                self._put_head(slot, MAGIC)
            raise self._failed(error, f"discarding {key}") from error
        self._ledger.strike(key)
        self._shelves.give(slot)

    def keys(self) -> list[Key]:
        return self._ledger.keys()

    def evict(self) -> None:
        """Drop its files from the page cache, so that the next read is a cold one."""
        self._ledger.check_open()
        try:
            for file in self._files.values():
                self._system.evict(file.fd)
        except OSError as error:
            raise self._failed(error, "leaving the page cache") from error

    def close(self) -> None:
        self._ledger.close()
        for file in self._files.values():
            self._system.close(file.fd)
        self._files.clear()
        self._place.release()

    def remove(self) -> None:
        """Close it and delete its files, and the directory if then nothing is left in it.

        Nothing happens if it is closed already.
        """
        paths = [file.path for file in self._files.values()]
        try:
            for path in paths:
                self._system.unlink(path)
        except OSError as error:
            raise self._failed(error, "removing it") from error
        finally:
            self.close()
        self._place.remove(ours=bool(paths))

    # Slots

    def _put_head(self, slot: _Slot, head: bytes) -> None:
        """Write the head of a slot, or the beginning of it."""
        self._system.write(slot.fd, [memoryview(head)], slot.offset)
        if self._sync:
            self._system.sync(slot.fd)

    def _abandon(self, slot: _Slot) -> None:
        """Free a slot whose write failed; if not even that is possible, never use it again."""
        with suppress(OSError):
            self._put_head(slot, FREE)
            self._shelves.give(slot)

    def _make(self, size: int, count: int, /, *, ahead: bool) -> list[_Slot]:
        """Append `count` slots to the file of this size."""
        file = self._files.get(size) or self._create(size)
        stride, begin = BLOCK + size, file.end
        try:
            self._system.extend(file.fd, begin, stride * count, prewrite=ahead)
        except OSError:
            if begin == 0:
                self._drop(size)
            raise
        file.end = begin + stride * count
        return [_Slot(size, file.fd, begin + stride * number) for number in range(count)]

    def _create(self, size: int) -> _File:
        path = self.path / f"slots-{BLOCK + size}-v{_VERSION}.ckio"
        file = self._files[size] = _File(path, self._system.open(path))
        if self._sync:
            self._system.sync_directory(self.path)
        return file

    def _drop(self, size: int) -> None:
        file = self._files.pop(size)
        self._system.close(file.fd)
        self._system.unlink(file.path)

    # Opening

    def _scan(self) -> None:
        """Find what is stored; of two slots with one key the younger is valid."""
        found: dict[Key, tuple[Head, _Slot]] = {}
        for path in sorted(self.path.iterdir()):
            match = _NAME.fullmatch(path.name)
            if not match or not stat.S_ISREG(path.lstat().st_mode):
                continue
            if int(match[2]) != _VERSION:
                raise StorageError(
                    f"{path} has format {match[2]}; this ckio reads format {_VERSION}"
                )
            size = int(match[1]) - BLOCK
            if size > 0 and size % BLOCK == 0:
                self._scan_file(path, size, found)
        for key, (head, slot) in found.items():
            self._ledger.enter(key, Entry(head.form, slot, head.digest))

    def _scan_file(self, path: Path, size: int, found: dict[Key, tuple[Head, _Slot]]) -> None:
        file = self._files[size] = _File(path, self._system.open(path))
        stride = BLOCK + size
        free = []
        for number in self._system.occupied(file.fd, stride):
            slot = _Slot(size, file.fd, number * stride)
            file.end = slot.offset + stride
            head = self._head(slot)
            if head is None:
                free.append(slot)
                continue
            self._sequence = max(self._sequence, head.sequence)
            other = found.get(head.key)
            if other is not None and other[0].sequence > head.sequence:
                self._put_head(slot, FREE)
                continue
            if other is not None:
                self._put_head(other[1], FREE)
            found[head.key] = head, slot
        self._shelves.put(size, count=file.end // stride, free=free)

    def _head(self, slot: _Slot) -> Head | None:
        """The head of a slot, or None if the slot is free or its head is damaged."""
        room = BLOCK + slot.size
        nbytes = length(self._bytes(slot, BLOCK))
        if nbytes > room:
            return None
        head = unpack(self._bytes(slot, nbytes))
        return head if head is not None and head.begin + head.form.nbytes <= room else None

    def _bytes(self, slot: _Slot, nbytes: int) -> bytes:
        data = bytearray(nbytes)
        self._system.read(slot.fd, [memoryview(data)], slot.offset)
        return bytes(data)

    def _failed(self, error: OSError, doing: str, needed: int | None = None) -> StorageError:
        what = f"directory {self.path}: {doing}"
        return failure(self._system, self.path, error, what, needed=needed)
