"""A level whose checkpoints are compressed on the way to another level, by a few threads."""

import math
import os
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final

import numpy as np

from ckio.actions import Buffers, Key, Layout
from ckio.backends.base import Backend
from ckio.backends.encoded import (
    Share,
    Work,
    blocks_of,
    decode,
    encode,
    is_marked,
    mark,
    room,
    unmark,
)
from ckio.backends.forms import form_of
from ckio.compression import Codec
from ckio.compression.base import Checked
from ckio.errors import BadInput, LevelFull, StorageError


class Workers:
    """The calling thread and its helpers.

    Parameters
    ----------
    threads
        How many in all; None: as many as the cores that this process may use.
    """

    def __init__(self, threads: int | None = None) -> None:
        if threads is None:
            threads = len(os.sched_getaffinity(0))
        if threads < 1:
            raise BadInput(f"threads = {threads}; it must be at least 1")
        self._helpers = threads - 1
        self._pool: ThreadPoolExecutor | None = None
        self._owner = 0

    def each(self, work: Work, count: int, /) -> None:
        """Do `work(0)` to `work(count - 1)`, each once, in no particular order.

        An error, or an interrupt, ends it, and is raised once no thread is at work any more.
        """
        todo = deque(range(count))
        futures: list[Future[None]] = []
        try:
            # One by one: an interrupt must know of those that are at work already.
            for _ in range(min(self._helpers, count - 1)):
                try:
                    futures.append(self._ready().submit(_drain, todo, work))
                except RuntimeError:  # the system has no more threads: we do without
                    break
            _drain(todo, work)
        finally:
            _finish(futures, todo)
        for future in futures:
            future.result()

    def close(self) -> None:
        """End the threads; they are started again when they are needed."""
        if self._pool is not None and self._owner == os.getpid():
            self._pool.shutdown()
        self._pool = None

    def _ready(self) -> ThreadPoolExecutor:
        # A fork has our memory and not our threads.
        if self._pool is None or self._owner != os.getpid():
            self._pool = ThreadPoolExecutor(self._helpers, thread_name_prefix="ckio-codec")
            self._owner = os.getpid()
        return self._pool


def alone(work: Work, count: int, /) -> None:
    """Do `work(0)` to `work(count - 1)` in their order."""
    for number in range(count):
        work(number)


def _finish(futures: list[Future[None]], todo: deque[int]) -> None:
    """Wait until no thread is at work; an interrupt is raised only then."""
    try:
        wait(futures)
    except BaseException:
        todo.clear()
        _finish(futures, todo)
        raise


def _drain(todo: deque[int], work: Work) -> None:
    while todo:
        try:
            number = todo.popleft()
        except IndexError:  # another thread was faster
            return
        try:
            work(number)
        except BaseException:
            todo.clear()
            raise


_LARGE: Final = 1 << 19
"""Bytes from which threads share the work: it takes ten times as long as waking them."""

_PASSED_ON: Final = ("evict", "contents")
"""Methods of some levels beyond those of a Backend."""


class Compressed:
    """A backend that stores each checkpoint encoded by a codec, and returns it decoded.

    Fields are cut into blocks of about 1 MiB, which are compressed each by itself, and in parallel.
    Threads that call it at one time take turns.
    The layout of the stored bytes names the codec, whether that is lossless, and the layout of the
    checkpoint. A checkpoint that the codec does not make smaller is stored as it is:
    so compression never needs more of the capacity, which counts the bytes that are stored.

    Parameters
    ----------
    backend
        The level underneath.
    codec
        Its `name` is stored, and must be the same when reading: what another codec has encoded is
        refused by name.
    ratio
        Stored bytes for each byte of a checkpoint, for reservations: `Level.ratio`. What compresses
        better leaves some of its space unused; what compresses worse needs space beyond the
        reserved, and raises LevelFull where there is none.
    threads
        How many compress at a time, the caller among them; None: as many as the cores that this
        process may use. Small checkpoints are left to the caller.

    Attributes
    ----------
    lossless : bool
        Whether what is read is bitwise what was written.
    """

    def __init__(
        self, backend: Backend, codec: Codec, *, ratio: float = 1.0, threads: int | None = None
    ) -> None:
        if not (math.isfinite(ratio) and ratio > 0):
            raise BadInput(f"compressed level: ratio = {ratio}; it must be finite and > 0")
        self.durable = backend.durable
        self._backend, self._codec, self._ratio = backend, Checked(codec), ratio
        self.lossless: bool = self._codec.lossless and getattr(backend, "lossless", True)
        self._workers = Workers(threads)
        self._turn = threading.Lock()  # of who works in the scratch memory
        self._scratch = memoryview(b"")
        for name in _PASSED_ON:
            if (offer := getattr(backend, name, None)) is not None:
                setattr(self, name, offer)

    def reserve(self, sizes: Mapping[int, int], /) -> None:
        largest = max(sizes, default=0)
        with self._turn:
            # How it is cut is not known yet; most layouts need less than a sixteenth more.
            self._memory(self._codec.bound(largest + largest // 16))
        stored: dict[int, int] = {}
        for nbytes, count in sizes.items():
            each = self._promised(nbytes)
            stored[each] = stored.get(each, 0) + count
        self._backend.reserve(stored)

    def prepare(self, key: Key, layout: Layout, count: int, /) -> None:
        """Let the level underneath make slots for such checkpoints, where it has use for that.

        Raises LevelFull where it has no space.
        """
        if prepare := getattr(self._backend, "prepare", None):
            prepare(key, mark(self._codec, layout, self._promised(form_of(layout).nbytes)), count)

    def write(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        form = form_of(layout)
        if mismatch := form.mismatch(data):
            raise StorageError(f"a compressed level cannot take {key}: {mismatch}")
        with self._turn:
            stored, parts = self._encoded(key, layout, data)
            try:
                return self._backend.write(key, stored, parts)
            except LevelFull as error:
                count = sum(map(len, parts))
                if count > self._promised(form.nbytes):
                    error.args = (
                        f"{error}; compressed, it takes {count / form.nbytes:.0%} of its bytes, and"
                        f" the level's ratio promises {self._ratio:.0%}: calibrate again, or set a"
                        " larger ratio in the platform file",
                    )
                raise

    def _encoded(self, key: Key, layout: Layout, data: Buffers) -> tuple[Layout, Buffers]:
        """Return the layout and bytes to store: encoded in scratch memory, or as they are."""
        blocks = blocks_of(layout)
        try:
            scratch = self._memory(room(blocks, self._codec))
            count = encode(blocks, self._codec, data, scratch, self._share(blocks.form.nbytes))
        except StorageError as error:
            error.args = (f"{key} cannot be encoded: {error}",)
            raise
        # A layout that looks encoded must be encoded again, or it would be decoded once too often.
        if count >= blocks.form.nbytes and not is_marked(layout):
            return layout, data
        return mark(self._codec, layout, count), [scratch[:count]]

    def layout(self, key: Key, /) -> Layout:
        layout = self._backend.layout(key)
        encoding = unmark(layout)
        return layout if encoding is None else encoding.layout

    def read(self, key: Key, into: Buffers, /) -> int:
        layout = self._backend.layout(key)
        encoding = unmark(layout)
        if encoding is None:
            return self._backend.read(key, into)
        if encoding.codec != self._codec.name:
            raise StorageError(
                f"{key} was encoded with {encoding.codec}; this level is open with"
                f" {self._codec.name}"
            )
        form = encoding.blocks.form
        if mismatch := form.mismatch(into):
            raise StorageError(f"a compressed level cannot give {key}: {mismatch}")
        (nbytes,) = layout[0].shape
        with self._turn:
            data = self._memory(nbytes)[:nbytes]
            count = self._backend.read(key, [data])
            try:
                decode(encoding.blocks, self._codec, data, into, self._share(form.nbytes))
            except StorageError as error:
                error.args = (f"{key} cannot be decoded: {error}",)
                raise
            return count

    def discard(self, key: Key, /) -> None:
        self._backend.discard(key)

    def keys(self) -> Iterable[Key]:
        return self._backend.keys()

    def close(self) -> None:
        self._workers.close()
        self._backend.close()

    def remove(self) -> None:
        """Close the level underneath and delete what it kept, where it knows how to."""
        self._workers.close()
        getattr(self._backend, "remove", self._backend.close)()

    def _promised(self, nbytes: int) -> int:
        """Return the bytes that the ratio promises for a checkpoint of `nbytes`."""
        return min(nbytes, math.ceil(nbytes * self._ratio))

    def _share(self, nbytes: int) -> Share:
        return self._workers.each if nbytes >= _LARGE else alone

    def _memory(self, nbytes: int) -> memoryview:
        """Return scratch memory of at least `nbytes`, new only where the last is too small."""
        if self._scratch.nbytes < nbytes:
            self._scratch = memoryview(b"")  # before the new one is made
            try:
                memory = np.empty(nbytes, np.uint8)
            except MemoryError:
                raise LevelFull(
                    f"a compressed level needs {nbytes} bytes of memory to work in"
                ) from None
            memory.fill(0)  # the first touch of a page must not happen during the run
            self._scratch = memory.data
        return self._scratch
