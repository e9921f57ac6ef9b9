"""Checkpoints of models on a CUDA device: in its memory, in page-locked memory, and in files.

The buffers of such a model are `DeviceView`s, which are addresses in the memory of the device.
Three kinds of levels take them:

* `DeviceMemory`, the level "device". A model whose arrays never change stores them there without a
  copy.
* `PinnedMemory`, the level "pinned": page-locked memory of the host. The device copies to it at the
  speed of its bus, also while it computes.
* All levels of the host, through `ThroughPinned`: the bytes are copied to page-locked memory first.

Each level has a stream of its own. With overlap, its transfers are concurrent with the computation
of the device and with those of other levels. A copy begins when the arrays of the model are
complete, because the model waits for the device at the end of each action.

CuPy is imported when a level is made.
"""

import weakref
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np

from ckio.actions import Buffers, Key, Layout
from ckio.backends.base import Backend
from ckio.backends.freeslots import FreeSlots
from ckio.backends.ram import UNIT, MemorySlot, Ram, mapped
from ckio.backends.wrapper import Wrapper
from ckio.errors import BadInput, LevelFull, StorageError

_OUT_OF_MEMORY: Final = 2
"""The status cudaErrorMemoryAllocation."""

_LEAST: Final = 1 << 20
"""Minimum bytes of page-locked memory."""


class DeviceView:
    """Bytes in the memory of a device. Like a memoryview of bytes, it has a length and slices.

    `view[:] = data` copies bytes of the host to the device, and `bytes(view)` copies them back.

    Attributes
    ----------
    address : int
    nbytes : int
    owner : object
        The object whose memory it is. It lives as long as the view.
    """

    __slots__ = ("address", "nbytes", "owner")

    def __init__(self, address: int, nbytes: int, owner: object) -> None:
        self.address, self.nbytes, self.owner = address, nbytes, owner

    def __len__(self) -> int:
        return self.nbytes

    def __getitem__(self, part: slice) -> "DeviceView":
        begin, end, _ = part.indices(self.nbytes)
        return DeviceView(self.address + begin, end - begin, self.owner)

    def __setitem__(self, part: slice, data: bytes | memoryview) -> None:
        stream_of(0).copy([(self[part], memoryview(data))])

    def __bytes__(self) -> bytes:
        copy = bytearray(self.nbytes)
        stream_of(0).copy([(memoryview(copy), self)])
        return bytes(copy)


class CopyStream:
    """A stream of a device, on which one thread at a time copies bytes in any direction."""

    def __init__(self, device: int) -> None:
        self.cuda = _runtime()
        self.device = device
        with self.on_device():
            self._stream = self.cuda.streamCreateWithFlags(self.cuda.streamNonBlocking)
        weakref.finalize(self, self.cuda.streamDestroy, self._stream).atexit = False

    @contextmanager
    def on_device(self) -> Generator[Any]:
        """Run a block with this device; errors of CUDA become LevelFull or StorageError."""
        try:
            self.cuda.setDevice(self.device)
            yield self.cuda
        except self.cuda.CUDARuntimeError as error:
            text = f"CUDA device {self.device}: {error}"
            if error.status == _OUT_OF_MEMORY:
                raise LevelFull(
                    f"{text}; lower the capacity of the level, or let the framework of the model"
                    " take less memory"
                ) from error
            raise StorageError(text) from error

    def copy(self, pairs: Iterable[tuple[Any, Any]], /) -> None:
        """Copy the bytes of each second buffer to the first one, and wait until all are copied.

        Other threads run meanwhile. Each buffer is a DeviceView or bytes of the host.
        """
        copies = [(into, data) for into, data in pairs if into.nbytes or data.nbytes]
        for into, data in copies:
            if into.nbytes != data.nbytes:
                raise StorageError(f"{data.nbytes} bytes do not fill {into.nbytes} bytes")
        with self.on_device() as cuda:
            try:
                for into, data in copies:
                    addresses = _address(into), _address(data)
                    cuda.memcpyAsync(*addresses, data.nbytes, cuda.memcpyDefault, self._stream)
            finally:  # after an error, too, nothing is copied any more
                cuda.streamSynchronize(self._stream)


@cache
def stream_of(device: int, /) -> CopyStream:
    """Return the stream on which the program itself copies between arrays of this device."""
    return CopyStream(device)


class _CudaMemory(Ram):
    """A level in memory, whose copies are those of a stream of a device."""

    def __init__(self, *, capacity: int | None = None, device: int = 0) -> None:
        self._stream, self.space = CopyStream(device), CudaSpace(device)
        super().__init__(capacity=capacity)

    def prepare(self, key: Key, layout: Layout, count: int, /) -> None:
        """Make no slots: those that are not reserved may not be needed, but would use memory."""

    def gather(self, into: Any, data: Buffers, /) -> None:
        self._stream.copy(_cut(into, data))

    def scatter(self, data: Any, into: Buffers, /) -> None:
        self._stream.copy((piece, view) for view, piece in _cut(data, into))


class DeviceMemory(_CudaMemory):
    """A level in the memory of a CUDA device; its checkpoints do not outlive the process.

    As level 0 of a platform, it also provides the memory for transfers between the model and other
    levels. This memory is allocated when it is first needed and is then used again.

    Parameters
    ----------
    capacity
        Maximum number of payload bytes; None means no limit.
    device
        The number of the device.
    """

    def reserve(self, sizes: Mapping[int, int], /) -> None:
        self._ledger.check_reservation(sizes)
        self._free.expect(sizes)  # a model that brings its own memory needs few slots, or none

    def slot(self, nbytes: int, /) -> Any:
        self._ledger.check_open()
        with self._turn:
            slot = self._take(nbytes)
        return DeviceView(slot.memory.address, nbytes, _LentSlot(slot, self._unused.append))

    def _no_slots(self) -> FreeSlots[MemorySlot]:
        return FreeSlots(unit=UNIT, make=partial(_allocated, self._stream), drop=lambda _: None)


class _LentSlot:
    """The owner of a lent slot. The slot becomes unused when no view refers to this object."""

    def __init__(self, slot: MemorySlot, release: Any) -> None:
        self._slot, self._release = slot, release

    def __del__(self) -> None:
        self._release(self._slot)


class PinnedMemory(_CudaMemory):
    """A level in page-locked memory of the host, for checkpoints of a model on a CUDA device.

    Its memory is allocated, touched and page-locked before the run.

    Parameters
    ----------
    capacity
        Maximum number of payload bytes; None means no limit.
    device
        The number of the device.
    """

    near: ClassVar[bool] = False
    keeps = False  # the model's buffers are on the device

    def __init__(self, *, capacity: int | None = None, device: int = 0) -> None:
        self._pinned: dict[int, list[Pinned]] = {}  # by the size of slots
        super().__init__(capacity=capacity, device=device)

    def _no_slots(self) -> FreeSlots[MemorySlot]:
        pinned, stream = self._pinned, self._stream

        def make(size: int, count: int, /, *, ahead: bool) -> list[MemorySlot]:
            slots = mapped(size, count, ahead=ahead)
            pinned.setdefault(size, []).extend(Pinned(stream, slot.memory) for slot in slots)
            return slots

        return FreeSlots(unit=UNIT, make=make, drop=pinned.__delitem__)

    def close(self) -> None:
        super().close()
        self._pinned.clear()


class Pinned:
    """Memory of the host whose pages are locked as long as this object exists.

    Raises LevelFull or StorageError if they cannot be locked.
    """

    def __init__(self, stream: CopyStream, memory: memoryview) -> None:
        self.memory = memory
        with stream.on_device() as cuda:
            cuda.hostRegister(_address(memory), memory.nbytes, 0)
        weakref.finalize(self, _unlocked, stream, memory).atexit = False


def _unlocked(stream: CopyStream, memory: memoryview) -> None:
    stream.cuda.hostUnregister(_address(memory))


class ThroughPinned(Wrapper):
    """A level of the host for a model on a device: all bytes go through page-locked memory.

    It stores no checkpoint without a copy.
    """

    def __init__(self, level: Backend, device: int = 0) -> None:
        super().__init__(level)
        self.keeps, self.space = False, CudaSpace(device)
        self._stream = CopyStream(device)
        self._pinned: Pinned | None = None

    def reserve(self, sizes: Mapping[int, int], /) -> None:
        super().reserve(sizes)
        self._host(max(sizes, default=0))

    def write(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        host = self._pieces(data)
        self._stream.copy(zip(host, data, strict=True))
        return super().write(key, layout, host)

    def read(self, key: Key, into: Buffers, /) -> int:
        host = self._pieces(into)
        nbytes = super().read(key, host)
        self._stream.copy(zip(into, host, strict=True))
        return nbytes

    def close(self) -> None:
        super().close()
        self._pinned = None

    def _pieces(self, data: Buffers) -> Buffers:
        host = self._host(sum(view.nbytes for view in data))
        return [piece for piece, _ in _cut(host, data)]

    def _host(self, nbytes: int) -> memoryview:
        """Return page-locked memory of at least this size, which is used for each checkpoint."""
        if self._pinned is None or self._pinned.memory.nbytes < nbytes:
            self._pinned = None
            slot, *_ = mapped(max(_LEAST, nbytes), 1, ahead=True)
            self._pinned = Pinned(self._stream, slot.memory)
        return self._pinned.memory


class CudaSpace(NamedTuple):
    """The memory of a CUDA device, as the `space` of a model whose buffers are there."""

    device: int = 0

    def level(self, capacity: int | None = None, /) -> Ram:
        return DeviceMemory(capacity=capacity, device=self.device)

    def through(self, level: Backend, /) -> Backend:
        return ThroughPinned(level, self.device)


def _cut(memory: Any, data: Buffers, /) -> Generator[tuple[Any, Any]]:
    """Yield each buffer with its piece of memory, in which the buffers follow each other."""
    begin = 0
    for view in data:
        end = begin + view.nbytes
        yield memory[begin:end], view
        begin = end


def _address(view: Any) -> int:
    """Return the address of the bytes of a DeviceView or of the host."""
    if isinstance(view, DeviceView):
        return view.address
    return np.frombuffer(view, np.uint8).ctypes.data


def _allocated(stream: CopyStream, size: int, count: int, /, *, ahead: bool) -> list[MemorySlot]:
    """Return new slots in the memory of a device, which need not be touched before their use."""
    import cupy

    del ahead
    with stream.on_device():
        memories = [cupy.cuda.Memory(size) for _ in range(count)]
    return [MemorySlot(size, DeviceView(memory.ptr, size, memory)) for memory in memories]


@cache
def _runtime() -> Any:
    """Return the CUDA runtime of CuPy; raises BadInput if there is none."""
    try:
        from cupy.cuda import runtime

        runtime.getDeviceCount()
    except Exception as error:
        raise BadInput(
            f"levels of a CUDA device need CuPy and a device ({error}); install the CuPy package"
            " for your version of CUDA, for example cupy-cuda13x"
        ) from error
    return runtime
