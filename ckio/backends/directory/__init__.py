"""A level in a directory: slots in a few files, which a kill at any moment leaves sound.

SlotFiles of one size share a file. A slot is one head and one payload (`format.py`), and the head
begins with a commit word. Writing takes a free slot and fills it, then writes the word by itself:
that commits it. Discarding clears the word. So a slot that is live is never written to, nothing is
truncated or renamed while a run goes on, and what a kill interrupts is a free slot.

A slot that is neither free nor sound is damaged (`slotfiles.py`): it stays as it is and takes part
in nothing. A level looks at all slots when it is opened, and then only at its own ledger.
"""

import errno
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import xxhash

from ckio.actions import Buffers, Key, Layout
from ckio.backends.contents import Damaged, Stored
from ckio.backends.directory import slotfiles
from ckio.backends.directory.format import BLOCK, FREE, LIVE, Head, Outline, outline
from ckio.backends.directory.slots import FileSlot, HeldDirectory, SlotFiles
from ckio.backends.files import DURABILITIES, Files, failure, takes_sync
from ckio.backends.ledger import Entry, Ledger
from ckio.backends.payload import SMALL, Buffered, Payload
from ckio.backends.runid import NOBODY, RunId, rank_of
from ckio.errors import CorruptCheckpoint, StorageError

_LIVE: Final = memoryview(LIVE)
_FREE: Final = memoryview(FREE)


class Directory:
    """Checkpoints in a directory; they outlive the process.

    One call at a time: threads that share a level take turns.

    Parameters
    ----------
    path
        The directory; it is made if it is not there. Only one process may have it open.
    capacity
        Payload bytes that it may hold; None never fills. Heads and rounding come on top.
    durability
        What a committed checkpoint survives: "process", the process being killed; "fdatasync", the
        machine failing too; "direct", the same, with payloads going past the page cache.
    checksum
        Whether payloads are digested with xxh3_128 when written, and verified when read.
    run
        The run that it is opened for: each checkpoint says whose it is, and those of another run
        are refused. Without it all are read, and what is written is of no run.
    now
        The time that checkpoints are stamped with, in seconds since 1970.
    files
        The system calls; tests pass in their own.

    Raises
    ------
    BadInput
        The place cannot be used, or holds another format, or there is no such durability (there).
    LevelInUse
        Another process has it open.
    ForeignLevel
        Something in it was stored by another run; nothing is changed.
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
        self.path = Path(path).absolute()
        self._sync = takes_sync(durability, DURABILITIES)
        self._direct = durability == "direct"
        self._checksum = checksum
        self._run, self._mark, self._now = run, run.pack(), now
        self._system = files or Files()
        self._ledger: Ledger[FileSlot] = Ledger(f"directory {self.path}", capacity)
        self._doubtful: dict[Key, list[FileSlot]] = {}
        self._sequence = 0
        self._place = HeldDirectory(self.path, self._system, sync=self._sync)
        self._slots = SlotFiles(self._system, self._place, sync=self._sync, direct=self._direct)
        self._free = self._slots.free
        try:
            self._payload = self._way()
        except BaseException:
            self._place.remove(ours=False)
            raise
        try:
            self._find()
        except BaseException as error:
            with suppress(OSError):
                self._slots.close()
            with suppress(OSError):
                self._payload.close()
            self._ledger.close()
            self._place.remove(ours=False)
            if isinstance(error, OSError):
                raise self._failed(error, "opening it") from error
            raise

    @staticmethod
    def for_run(path: Path, run: str, /) -> Path:
        """Return where the files of one run go under the path of this level, each rank's apart."""
        whole, rank = rank_of(run)
        return path / whole if rank is None else path / whole / f"rank-{rank}"

    @staticmethod
    def contents(path: str | Path, /) -> list[Stored | Damaged]:
        """List what is stored at a place, which may be in use; nothing is changed.

        Raises BadInput where no level is, or one of another format.
        """
        return slotfiles.contents(Files(), Path(path).absolute())

    @staticmethod
    def levels_at(path: Path, /) -> list[Path]:
        """Return the levels in a directory and below it; see `slotfiles.levels_at`."""
        return slotfiles.levels_at(path)

    @staticmethod
    def remove_files(path: Path, /) -> None:
        """Remove a level that nobody has open; see `slotfiles.remove`."""
        slotfiles.remove(path)

    def reserve(self, sizes: Mapping[int, int], /) -> None:
        self._ledger.check_reservation(sizes)
        try:
            self._free.reserve(sizes)
        except OSError as error:
            lacking = self._free.lacking(sizes)
            needed = sum((BLOCK + size) * count for size, count in lacking.items())
            raise self._failed(error, "reserving", needed) from error

    def write(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        form = self._ledger.admit(key, layout, data)
        shape = outline(form, key.name)
        self._sequence += 1  # a head that could not be withdrawn is older than the next
        try:
            slot = self._free.take(shape.room)
            try:
                digest = self._fill(slot, key, shape, data)
            except BaseException:
                self._free.give(slot)  # its commit word says free all the time
                raise
            self._commit(slot, key, Entry(form, slot, digest))
        except OSError as error:
            raise self._failed(error, f"writing {key} ({form.nbytes} bytes)", shape.room) from error
        return form.nbytes

    def layout(self, key: Key, /) -> Layout:
        return self._ledger.find(key).form.layout

    def read(self, key: Key, into: Buffers, /) -> int:
        entry = self._ledger.find_for(key, into, verify=self._checksum)
        slot, form = entry.place, entry.form
        offset = slot.offset + outline(form, key.name).begin
        digest = entry.digest if self._checksum else b""
        try:
            sound = self._payload.read(slot.payload, into, offset, digest)
        except EOFError:
            raise CorruptCheckpoint(f"{key} in {self.path}: its file ends within it") from None
        except OSError as error:
            raise self._failed(error, f"reading {key} ({form.nbytes} bytes)") from error
        if not sound:
            raise CorruptCheckpoint(f"{key} in {self.path} fails its checksum: it was damaged")
        return form.nbytes

    def discard(self, key: Key, /) -> None:
        entry = self._ledger.find(key)
        slot, doubtful = entry.place, self._doubtful.get(key, [])
        try:
            for older in doubtful:  # or they would come back when this one is gone
                self._put_word(older, _FREE)
            self._put_word(slot, _FREE)
            self._ledger.strike(key)
        except BaseException as error:  # an interrupt, too, leaves it as it was before
            with suppress(OSError):
                self._put_word(slot, _LIVE)
            self._ledger.restore(key, entry)
            if isinstance(error, OSError):
                doing = f"discarding {key} ({entry.form.nbytes} bytes)"
                raise self._failed(error, doing) from error
            raise
        self._free.give(slot)
        if doubtful:
            del self._doubtful[key]

    def keys(self) -> list[Key]:
        return self._ledger.keys()

    def evict(self) -> None:
        """Drop its files from the page cache, so that the next read is a cold one."""
        self._ledger.check_open()
        try:
            self._slots.evict()
        except OSError as error:
            raise self._failed(error, "leaving the page cache") from error

    def close(self) -> None:
        try:
            self._release()
        except OSError as error:
            raise self._failed(error, "closing it") from error

    def remove(self) -> None:
        """Close it and delete its files, and the directory if then nothing is left in it.

        Nothing happens if it is closed already.
        """
        if self._place.fd < 0:
            return
        self._ledger.check_open()  # a fork removes nothing
        try:
            ours = self._slots.unlink()
        except OSError as error:
            self.close()
            raise self._failed(error, "removing it") from error
        try:
            self.close()
        finally:
            self._place.remove(ours=ours)

    def _release(self) -> None:
        with ExitStack() as ends:  # all of it, whatever fails
            ends.callback(self._place.release)
            ends.callback(self._slots.close)
            ends.callback(self._payload.close)
            self._ledger.close()

    def _way(self) -> Payload:
        """Return the way for payloads: through the page cache, or past it."""
        if not self._direct:
            return Buffered(self._system)
        from ckio.backends.directory.direct import direct_payload

        return direct_payload(self._system, self.path)

    # SlotFiles

    def _fill(self, slot: FileSlot, key: Key, shape: Outline, data: Buffers) -> bytes:
        """Write all of a slot but its commit word; returns the digest of the payload."""
        if shape.nbytes <= SMALL and not self._direct:
            digest = self._fill_at_once(slot, key, shape, data)
        else:
            begin = slot.offset + shape.begin
            digest = self._payload.write(slot.payload, data, begin, checksum=self._checksum)
            self._put_head(slot, self._head(slot, key, shape, digest))
        if self._sync:  # before the word that vouches for it
            self._system.sync(slot.fd)
        if not self._system.is_named(slot.fd):
            raise OSError(errno.ESTALE, "its file was deleted")
        return digest

    def _fill_at_once(self, slot: FileSlot, key: Key, shape: Outline, data: Buffers) -> bytes:
        """Write head and payload of little data by one call; returns the digest."""
        payload = b"".join(data)
        digest = xxhash.xxh3_128_digest(payload) if self._checksum else b""
        head = self._head(slot, key, shape, digest)
        self._put_head(slot, b"".join((head, shape.pad, payload)))
        return digest

    def _head(self, slot: FileSlot, key: Key, shape: Outline, digest: bytes) -> bytes:
        return shape.pack(key, self._sequence, self._now(), digest, slot.offset, run=self._mark)

    def _put_head(self, slot: FileSlot, data: bytes) -> None:
        """Write the bytes that follow the commit word of a slot."""
        self._put(slot.fd, memoryview(data), slot.offset + len(LIVE))

    def _put_word(self, slot: FileSlot, word: memoryview) -> None:
        self._put(slot.fd, word, slot.offset)
        if self._sync:
            self._system.sync(slot.fd)

    def _put(self, fd: int, data: memoryview, at: int) -> None:
        """Write a few bytes by one call, and with patience only where that did a part of it."""
        if self._system.pwritev(fd, (data,), at) != len(data):
            self._system.write(fd, (data,), at)

    def _commit(self, slot: FileSlot, key: Key, entry: Entry[FileSlot]) -> None:
        try:
            self._put_word(slot, _LIVE)
            self._ledger.enter(key, entry)
        except BaseException:  # an interrupt, too, leaves it as it was before
            self._ledger.restore(key, None)
            try:
                self._put_word(slot, _FREE)
            except OSError:  # it is not used again, and may be live
                self._doubtful.setdefault(key, []).append(slot)
            else:
                self._free.give(slot)
            raise

    def _find(self) -> None:
        """Enter what is stored; of two slots with one key the younger is valid."""
        heads: list[tuple[FileSlot, Head]] = []
        for item in self._slots.find():
            if isinstance(item, Damaged):
                self._ledger.damaged.append(f"{item.path.name}, byte {item.offset}: {item.what}")
            else:
                heads.append(item)
        for slot, head in heads:
            name = slotfiles.name_of(BLOCK + slot.size)
            self._run.check(head.run, f"directory {self.path}: {name}")
        self._slots.settle()
        heads.sort(key=lambda item: item[1].sequence)
        valid = {head.key: slot for slot, head in heads}
        for slot, head in heads:
            if valid[head.key] is slot:
                self._ledger.enter(head.key, Entry(head.form, slot, head.digest))
                self._sequence = head.sequence
            else:
                self._put_word(slot, _FREE)
                self._free.give(slot)

    def _failed(self, error: OSError, doing: str, needed: int | None = None) -> StorageError:
        what = f"directory {self.path}: {doing}"
        return failure(self._system, self.path, error, what, needed=needed)
