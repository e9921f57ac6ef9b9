"""A level in a directory: slots in a few files, which stay valid if the process is killed.

All slots of one size are in the same file. A slot consists of a head and a payload (`format.py`);
the head begins with a commit word. A write takes a free slot, fills it, and finally writes the
commit word alone, which makes the checkpoint valid. A discard clears the commit word. Therefore a
live slot is never overwritten, no file is truncated or renamed during a run, and a write that a
kill interrupts leaves a free slot.

A slot that is neither free nor sound is damaged (`slotfiles.py`): it is never changed and never
used. A level reads the heads of all slots when it is opened; afterwards it uses only its ledger.
"""

import errno
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from ckio.actions import Buffers, Key, Layout
from ckio.backends.base import Backend
from ckio.backends.contents import Damaged
from ckio.backends.directory import slotfiles
from ckio.backends.directory.format import BLOCK, FREE, LIVE, Head, Outline, outline
from ckio.backends.directory.slots import FileSlot, HeldDirectory, SlotFiles
from ckio.backends.files import DURABILITIES, Files, failure, takes_sync
from ckio.backends.ledger import Entry, Ledger
from ckio.backends.payload import Payload
from ckio.backends.runid import NOBODY, RunId, rank_of
from ckio.errors import CorruptCheckpoint, StorageError
from ckio.platform.readable import path_of

_LIVE: Final = memoryview(LIVE)
_FREE: Final = memoryview(FREE)


class Directory(Backend):
    """A level in a directory; its checkpoints outlive the process.

    Only one thread at a time may call it.

    Parameters
    ----------
    path
        The directory; it is created if it does not exist. Only one process may have it open.
    capacity
        Maximum number of payload bytes; None means no limit. The files also contain heads and are
        rounded up, so that they are somewhat larger.
    durability
        The failure that a stored checkpoint survives. "process": the process is killed.
        "fdatasync": also the machine crashes. "direct": the same as "fdatasync", with payloads that
        bypass the page cache.
    checksum
        Whether the xxh3_128 of each payload is stored when it is written and verified when it is
        read.
    run
        The id of the run for which the level is opened. It is stored with each checkpoint, and the
        checkpoints of another run raise ForeignLevel. Without it, the checkpoints of all runs are
        read, and new checkpoints are stored without an id.
    now
        Function that returns the time to store with a checkpoint, in seconds since 1970.
    files
        The system calls; tests pass their own object.

    Raises
    ------
    BadInput
        The directory cannot be used, its files have another format, or the durability is not known
        or not possible on this file system.
    LevelInUse
        Another process has it open.
    ForeignLevel
        It contains checkpoints of another run; nothing is changed.
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
        self._sync = takes_sync(durability, DURABILITIES)
        self._direct = durability == "direct"
        self._checksum = checksum
        self._run, self._mark, self._now = run, run.pack(), now
        self._system = files or Files()
        self._ledger: Ledger[FileSlot] = Ledger(f"directory {self.path}", capacity)
        self._doubtful: dict[Key, list[FileSlot]] = {}
        self._sequence = 0
        self._place = HeldDirectory(self.path, self._system, sync=self._sync)
        self._slots = SlotFiles(self._system, self._place, sync=self._sync)
        self._free = self._slots.free
        try:
            self._payload = Payload(self._system)
            if self._direct:
                from ckio.backends.directory.direct import Direct

                self._payload = Direct(self._system, self.path)
            self._find()
        except BaseException as error:
            with suppress(OSError):
                self._slots.close()
            self._ledger.close()
            self._place.remove(ours=False)
            if isinstance(error, OSError):
                raise self._failed(error, "opening it") from error
            raise

    def __del__(self) -> None:
        with suppress(Exception):  # an object that is garbage has no lock and no descriptor
            self._release()

    @staticmethod
    def for_run(path: Path, run: str, /) -> Path:
        """Return the directory for the files of one run, or of one rank of it, below `path`."""
        whole, rank = rank_of(run)
        return path / whole if rank is None else path / whole / f"rank-{rank}"

    contents = staticmethod(slotfiles.contents)
    levels_at = staticmethod(slotfiles.levels_at)
    remove_files = staticmethod(slotfiles.remove)

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
        # An earlier head whose commit word could not be cleared must be older than the next one.
        self._sequence += 1
        try:
            slot = self._free.take(shape.needed)
            try:
                digest = self._fill(slot, key, shape, data)
            except BaseException:
                self._free.give(slot)  # its commit word was FREE during the whole write
                raise
            self._commit(slot, key, Entry(form, slot, digest))
        except OSError as error:
            raise self._failed(
                error, f"writing {key} ({form.nbytes} bytes)", shape.needed
            ) from error
        return form.nbytes

    def layout(self, key: Key, /) -> Layout:
        return self._ledger.find(key).form.layout

    def read(self, key: Key, into: Buffers, /) -> int:
        entry = self._ledger.find_for(key, into, verify=self._checksum)
        slot, form = entry.place, entry.form
        offset = slot.offset + outline(form, key.name).begin
        digest = entry.digest if self._checksum else b""
        try:
            sound = self._payload.read(slot.fd, into, offset, digest)
        except EOFError:
            raise CorruptCheckpoint(f"{key} in {self.path}: its file is too short") from None
        except OSError as error:
            raise self._failed(error, f"reading {key} ({form.nbytes} bytes)") from error
        if not sound:
            raise CorruptCheckpoint(f"{key} in {self.path} fails its checksum: it was damaged")
        return form.nbytes

    def discard(self, key: Key, /) -> None:
        entry = self._ledger.find(key)
        slot, doubtful = entry.place, self._doubtful.get(key, [])
        try:
            # Older slots with this key that may be live: without this, the next opening would list
            # one of them.
            for older in doubtful:
                self._put_word(older, _FREE)
            self._put_word(slot, _FREE)
            self._ledger.strike(key)
        except BaseException as error:  # also an interrupt: restore the checkpoint
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
        """Drop the files from the page cache, so that the next read comes from the device."""
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
        """Close the level, delete its files, and delete the directory if it is empty then.

        A level that is closed already is not changed.
        """
        if self._place.fd < 0:
            return
        self._ledger.check_open()  # a forked process must not remove the files
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
        with ExitStack() as ends:  # each step is done even if another one fails
            ends.callback(self._place.release)
            ends.callback(self._slots.close)
            self._ledger.close()

    # Slots

    def _fill(self, slot: FileSlot, key: Key, shape: Outline, data: Buffers) -> bytes:
        """Write a slot without its commit word; return the digest of the payload."""
        begin = slot.offset + shape.begin
        digest = self._payload.write(slot.fd, data, begin, checksum=self._checksum)
        head = shape.pack(key, self._sequence, self._now(), digest, slot.offset, run=self._mark)
        self._system.write(slot.fd, (memoryview(head),), slot.offset + len(LIVE))
        if self._sync:  # head and payload must be on the device before the commit word
            self._system.sync(slot.fd)
        if not self._system.is_named(slot.fd):
            raise OSError(errno.ESTALE, "its file was deleted")
        return digest

    def _put_word(self, slot: FileSlot, word: memoryview) -> None:
        self._system.write(slot.fd, (word,), slot.offset)
        if self._sync:
            self._system.sync(slot.fd)

    def _commit(self, slot: FileSlot, key: Key, entry: Entry[FileSlot]) -> None:
        try:
            self._put_word(slot, _LIVE)
            self._ledger.enter(key, entry)
        except BaseException:  # also an interrupt: undo the commit
            self._ledger.restore(key, None)
            try:
                self._put_word(slot, _FREE)
            except OSError:  # the slot may be live, so it is not used again
                self._doubtful.setdefault(key, []).append(slot)
            else:
                self._free.give(slot)
            raise

    def _find(self) -> None:
        """Enter the stored checkpoints; of two slots with the same key, the newer one is valid."""
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
