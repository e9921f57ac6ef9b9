"""Memory as a storage level: slots that are mapped and touched before the run needs them."""

import mmap
from collections import deque
from collections.abc import Mapping
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from ckio.actions import Buffers, Key, Layout
from ckio.backends.freeslots import FreeSlots
from ckio.backends.ledger import Entry, Ledger
from ckio.backends.payload import digest, gather, scatter
from ckio.errors import CorruptCheckpoint, LevelFull
from ckio.platform.memory import available

_UNIT = 64
"""Slots begin at multiples of this: a cache line."""

_SLAB = 1 << 16
"""Bytes mapped at once where slots are small, and from which one begins where a page begins."""

_PAGE = 4096


class _MemorySlot(NamedTuple):
    size: int
    memory: memoryview


class _Lent(np.ndarray[Any, np.dtype[np.uint8]]):
    """Bytes of a slot, which is unused as soon as nobody refers to them.

    Whoever has a view of these bytes refers to this array, as its own base is none.
    """

    slot: _MemorySlot | None = None
    unused: deque[_MemorySlot]

    def __del__(self) -> None:
        if self.slot is not None:
            self.unused.append(self.slot)


class Loan(NamedTuple):
    """Bytes that a level has lent, and where they are; nowhere, if they are memory of others."""

    nbytes: int
    memory: memoryview


class Ram:
    """Checkpoints in memory; they do not outlive the process.

    Some of its memory may be lent, for example to transfers between a model and other levels.
    Checkpoints cannot use it then. `lend` and `give_back` may be called by any thread, also
    while another one uses the level.

    Parameters
    ----------
    capacity
        Payload bytes that it may hold; None never fills.
    checksum
        Whether reads are verified with xxh3_128.
    """

    durable = False

    def __init__(self, *, capacity: int | None = None, checksum: bool = False) -> None:
        self._checksum = checksum
        self._ledger: Ledger[_MemorySlot | Buffers] = Ledger("memory", capacity)
        self._free: FreeSlots[_MemorySlot] = FreeSlots(unit=_UNIT, make=_map, drop=lambda _: None)
        self._unused = deque[_MemorySlot]()  # slots to which nobody refers any more
        self._turn = Lock()  # of who takes a slot, or gives it back

    @property
    def capacity(self) -> int | None:
        """Payload bytes that it may hold, without what it has lent; None never fills."""
        return self._ledger.capacity

    def reserve(self, sizes: Mapping[int, int], /) -> None:
        self._ledger.check_reservation(sizes)
        lacking = self._free.lacking(sizes)
        _check_memory(sum(size * count for size, count in lacking.items()))
        self._free.reserve(sizes)

    def write(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        with self._turn:
            form = self._ledger.admit(key, layout, data)
            slot = self._take(form.nbytes)
        gather(slot.memory, data)
        self._ledger.enter(key, Entry(form, slot, digest(data) if self._checksum else b""))
        return form.nbytes

    def keep(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        with self._turn:
            form = self._ledger.admit(key, layout, data)
        verified = digest(data) if self._checksum else b""
        self._ledger.enter(key, Entry(form, tuple(data), verified))
        return form.nbytes

    def layout(self, key: Key, /) -> Layout:
        return self._ledger.find(key).form.layout

    def read(self, key: Key, into: Buffers, /) -> int:
        entry = self._ledger.find_for(key, into, verify=self._checksum)
        if isinstance(entry.place, _MemorySlot):
            scatter(entry.place.memory, into)
        else:
            for source, target in zip(entry.place, into, strict=True):
                scatter(source, (target,))
        self._verify(key, entry, into)
        return entry.form.nbytes

    def kept(self, key: Key, /) -> Buffers | None:
        entry = self._ledger.find(key)
        if isinstance(entry.place, _MemorySlot):
            return None
        self._verify(key, entry, entry.place)
        return entry.place

    def discard(self, key: Key, /) -> None:
        place = self._ledger.find(key).place
        with self._turn:
            self._ledger.strike(key)
            if isinstance(place, _MemorySlot):
                self._free.give(place)

    def slot(self, nbytes: int, /) -> memoryview:
        self._ledger.check_open()
        with self._turn:
            slot = self._take(nbytes)
        lent = _Lent((nbytes,), np.uint8, slot.memory)
        lent.slot, lent.unused = slot, self._unused
        return lent.data

    def lend(self, nbytes: int, /) -> Loan:
        """Lend so many bytes of memory, in one piece; they count like a checkpoint.

        A piece of 64 KiB or more begins where a page begins. Raises LevelFull.
        """
        loan = self.hold(nbytes)
        try:
            return Loan(nbytes, self.slot(nbytes))
        except BaseException:
            self.give_back(loan)
            raise

    def hold(self, nbytes: int, /) -> Loan:
        """Let so many bytes that lie elsewhere count like those that are lent; raises LevelFull."""
        ledger = self._ledger
        ledger.check_open()
        with self._turn:
            if ledger.capacity is not None:
                if nbytes > (free := ledger.capacity - ledger.used):
                    raise LevelFull(f"memory cannot lend {nbytes} bytes; {free} are free")
                ledger.capacity -= nbytes
        return Loan(nbytes, memoryview(b""))

    def give_back(self, loan: Loan, /) -> None:
        """Take back a loan, once: what it counts for, and its memory when that is unused."""
        with self._turn:
            if self._ledger.capacity is not None:
                self._ledger.capacity += loan.nbytes

    def keys(self) -> list[Key]:
        return self._ledger.keys()

    def _take(self, nbytes: int) -> _MemorySlot:
        while self._unused:
            self._free.give(self._unused.popleft())
        return self._free.take(nbytes)

    def _verify(self, key: Key, entry: Entry[_MemorySlot | Buffers], data: Buffers) -> None:
        if self._checksum and digest(data) != entry.digest:
            raise CorruptCheckpoint(f"{key} in memory fails its checksum; the memory is damaged")

    def close(self) -> None:
        self._ledger.close()
        self._free = FreeSlots(unit=_UNIT, make=_map, drop=lambda _: None)
        self._unused = deque()  # slots of before are none of the new free slots'

    def remove(self) -> None:
        """Close it: nothing outlives it."""
        self.close()


def _map(size: int, count: int, /, *, ahead: bool) -> list[_MemorySlot]:
    """New slots, at least `count`; ahead of a run, in memory that is really there."""
    count = max(count, _SLAB // size)
    stride = -(-size // _PAGE) * _PAGE if size >= _SLAB else size
    nbytes = stride * count
    _check_memory(nbytes)
    try:
        # Private: a fork gets a copy, as of any memory, and not a window into ours.
        memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, MemoryError, OverflowError) as error:
        raise LevelFull(f"memory: {nbytes} bytes cannot be mapped: {error}") from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    if ahead:
        # The first touch of a page costs four times the copy: it must not happen during the run.
        np.frombuffer(memory, np.uint8).fill(0)
    view = memoryview(memory)
    return [_MemorySlot(size, view[begin : begin + size]) for begin in range(0, nbytes, stride)]


def _check_memory(nbytes: int) -> None:
    """Raise LevelFull if this machine has not that much memory to spare."""
    free = available()
    if free is not None and nbytes > free:
        raise LevelFull(
            f"memory: {nbytes} bytes are needed, {free} are available on this machine;"
            " lower the capacity of this level and plan again"
        )
