"""Memory as a storage level: slots that are mapped and touched before the run needs them."""

import mmap
from collections import deque
from collections.abc import Mapping
from threading import Lock
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ckio.actions import Buffers, Key, Layout
from ckio.backends.base import Backend
from ckio.backends.forms import form_of
from ckio.backends.freeslots import FreeSlots
from ckio.backends.ledger import Entry, Ledger
from ckio.backends.payload import digest, gather, scatter
from ckio.errors import CorruptCheckpoint, LevelFull
from ckio.platform.memory import available

UNIT = 64
"""Slots begin at multiples of this number of bytes, which is a cache line."""

_SLAB = 1 << 16
"""Smaller slots are mapped together, in pieces of up to this many bytes; slots of at least this
size begin at the start of a page."""

_TOGETHER = 64
"""The most slots that are mapped before they are needed: each is an object, which takes time."""

_PAGE = 4096


class MemorySlot(NamedTuple):
    """Memory for one checkpoint of up to `size` bytes."""

    size: int
    memory: Any


class _Lent(np.ndarray[Any, np.dtype[np.uint8]]):
    """The bytes of a slot; the slot becomes unused when no object refers to them any more.

    Every view of these bytes refers to this array, because the array itself has no base.
    """

    slot: MemorySlot | None = None
    unused: deque[MemorySlot]

    def __del__(self) -> None:
        if self.slot is not None:
            self.unused.append(self.slot)


class Loan(NamedTuple):
    """Memory that a level has lent: its size in bytes, and the memory.

    The memory is empty if `hold` made the loan: then only the size counts.
    """

    nbytes: int
    memory: memoryview


class Ram(Backend):
    """A level in memory; its checkpoints do not outlive the process.

    The level can lend a part of its capacity, for example as buffers of transfers between a model
    and other levels. Checkpoints cannot use this part until it is given back. Any thread may call
    `lend` and `give_back`, even while another thread uses the level.

    A subclass for other memory replaces the allocation of slots and the copies.

    Parameters
    ----------
    capacity
        Maximum number of payload bytes; None means no limit.
    checksum
        Whether reads are verified with xxh3_128.

    Attributes
    ----------
    near : bool
        Whether models compute in this memory, so that it can lend memory for their checkpoints.
    """

    keeps = True
    near: ClassVar[bool] = True

    def __init__(self, *, capacity: int | None = None, checksum: bool = False) -> None:
        self._checksum = checksum
        self._ledger: Ledger[MemorySlot | Buffers] = Ledger("memory", capacity)
        self._free: FreeSlots[MemorySlot] = self._no_slots()
        self._unused = deque[MemorySlot]()  # lent slots to which no object refers any more
        self._turn = Lock()  # a thread has it while it takes a slot or gives one back

    @property
    def capacity(self) -> int | None:
        """Maximum number of payload bytes, less the bytes that are lent; None means no limit."""
        return self._ledger.capacity

    def reserve(self, sizes: Mapping[int, int], /) -> None:
        self._ledger.check_reservation(sizes)
        lacking = self._free.lacking(sizes)
        _check_memory(sum(size * count for size, count in lacking.items()))
        self._free.reserve(sizes)

    def prepare(self, key: Key, layout: Layout, count: int, /) -> None:
        self._free.prepare(form_of(layout).nbytes, count)

    def write(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        with self._turn:
            form = self._ledger.admit(key, layout, data)
            slot = self._take(form.nbytes)
        self.gather(slot.memory, data)
        self._ledger.enter(key, Entry(form, slot, digest(data) if self._checksum else b""))
        return form.nbytes

    def keep(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        with self._turn:
            form = self._ledger.admit(key, layout, data)
        verified = digest(data) if self._checksum else b""
        views = data if isinstance(data, tuple) else tuple(data)
        self._ledger.enter(key, Entry(form, views, verified))
        return form.nbytes

    def layout(self, key: Key, /) -> Layout:
        return self._ledger.find(key).form.layout

    def read(self, key: Key, into: Buffers, /) -> int:
        entry = self._ledger.find_for(key, into, verify=self._checksum)
        if isinstance(entry.place, MemorySlot):
            self.scatter(entry.place.memory, into)
        else:
            for source, target in zip(entry.place, into, strict=True):
                self.scatter(source, (target,))
        self._verify(key, entry, into)
        return entry.form.nbytes

    def kept(self, key: Key, /) -> Buffers | None:
        entry = self._ledger.find(key)
        if isinstance(entry.place, MemorySlot):
            return None
        if self._checksum:
            self._verify(key, entry, entry.place)
        return entry.place

    def discard(self, key: Key, /) -> None:
        place = self._ledger.find(key).place
        with self._turn:
            self._ledger.strike(key)
            if isinstance(place, MemorySlot):
                self._free.give(place)

    def slot(self, nbytes: int, /) -> memoryview:
        self._ledger.check_open()
        with self._turn:
            slot = self._take(nbytes)
        lent = _Lent((nbytes,), np.uint8, slot.memory)
        lent.slot, lent.unused = slot, self._unused
        return lent.data

    def lend(self, nbytes: int, /) -> Loan:
        """Lend `nbytes` of memory in one piece; they count against the capacity like a checkpoint.

        A piece of 64 KiB or more begins at the start of a page. Raises LevelFull if fewer bytes are
        free.
        """
        loan = self.hold(nbytes)
        try:
            return Loan(nbytes, self.slot(nbytes))
        except BaseException:
            self.give_back(loan)
            raise

    def hold(self, nbytes: int, /) -> Loan:
        """Count `nbytes` of memory outside this level against its capacity, like lent memory.

        Raises LevelFull if fewer bytes are free.
        """
        ledger = self._ledger
        ledger.check_open()
        with self._turn:
            if ledger.capacity is not None:
                if nbytes > (free := ledger.capacity - ledger.used):
                    raise LevelFull(f"memory cannot lend {nbytes} bytes; {free} are free")
                ledger.capacity -= nbytes
        return Loan(nbytes, memoryview(b""))

    def give_back(self, loan: Loan, /) -> None:
        """End a loan; call it once for each loan.

        Its bytes no longer count against the capacity. The level uses its memory again when no
        object refers to that memory.
        """
        with self._turn:
            if self._ledger.capacity is not None:
                self._ledger.capacity += loan.nbytes

    def keys(self) -> list[Key]:
        return self._ledger.keys()

    def gather(self, into: Any, data: Buffers, /) -> None:
        """Copy all buffers to the beginning of a slot, one after the other."""
        gather(into, data)

    def scatter(self, data: Any, into: Buffers, /) -> None:
        """Fill all buffers from the beginning of a slot, or from a buffer of the model."""
        scatter(data, into)

    def _no_slots(self) -> FreeSlots[MemorySlot]:
        """Return slots that do not refer to this level, so that its memory is freed with it."""
        return FreeSlots(unit=UNIT, make=mapped, drop=lambda _: None)

    def _take(self, nbytes: int) -> MemorySlot:
        while self._unused:
            self._free.give(self._unused.popleft())
        return self._free.take(nbytes)

    def _verify(self, key: Key, entry: Entry[MemorySlot | Buffers], data: Buffers) -> None:
        if self._checksum and digest(data) != entry.digest:
            raise CorruptCheckpoint(f"{key} in memory fails its checksum; the memory is damaged")

    def close(self) -> None:
        self._ledger.close()
        self._free = self._no_slots()
        self._unused = deque()  # slots mapped before now do not belong to the new FreeSlots


def is_near(level: object, /) -> bool:
    """Return whether a level is memory in which models compute."""
    return isinstance(level, Ram) and level.near


def mapped(size: int, count: int, /, *, ahead: bool) -> list[MemorySlot]:
    """Return at least `count` new slots; with `ahead`, their pages are touched now."""
    count = max(count, min(_SLAB // size, _TOGETHER))
    stride = -(-size // _PAGE) * _PAGE if size >= _SLAB else size
    nbytes = stride * count
    _check_memory(nbytes)
    try:
        # Private: a forked process gets a copy and does not share this memory.
        memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, MemoryError, OverflowError) as error:
        raise LevelFull(f"memory: {nbytes} bytes cannot be mapped: {error}") from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    if ahead:
        # The first touch of a page costs four times as much as the copy of a checkpoint into it.
        # Therefore it happens here and not during the run.
        np.frombuffer(memory, np.uint8).fill(0)
    view = memoryview(memory)
    return [MemorySlot(size, view[begin : begin + size]) for begin in range(0, nbytes, stride)]


def _check_memory(nbytes: int) -> None:
    """Raise LevelFull if less than this much memory is available on this machine."""
    free = available()
    if free is not None and nbytes > free:
        raise LevelFull(
            f"memory: {nbytes} bytes are needed, {free} are available on this machine;"
            " lower the capacity of this level and plan again"
        )
