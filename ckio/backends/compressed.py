"""A level that compresses its checkpoints with several threads and stores them on another level."""

import math
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Final

import numpy as np

from ckio.actions import Buffers, Key, Layout
from ckio.backends.base import Backend
from ckio.backends.encoded import Share, decode, encode, is_marked, mark, most_bytes, unmark
from ckio.backends.forms import form_of
from ckio.backends.wrapper import Wrapper
from ckio.compression import Codec
from ckio.errors import BadInput, CkioError, LevelFull, StorageError


class Workers:
    """A pool of threads that share work with the calling thread.

    Parameters
    ----------
    threads
        Number of threads, including the caller; None means one for each core that this process may
        use.
    """

    def __init__(self, threads: int | None = None) -> None:
        if threads is None:
            threads = len(os.sched_getaffinity(0))
        if threads < 1:
            raise BadInput(f"threads = {threads}; it must be at least 1")
        self._helpers = threads - 1
        self._pool: ThreadPoolExecutor | None = None
        self._owner = 0

    def each(self, work: Callable[[int], None], count: int, /) -> None:
        """Call `work(0)` to `work(count - 1)`, each once, in no particular order.

        The first error or interrupt stops the remaining calls. It is raised when no thread works
        any more.
        """
        todo = deque(range(count))
        futures: list[Future[None]] = []
        try:
            # One by one, so that after an interrupt `futures` contains all threads that work.
            for _ in range(min(self._helpers, count - 1)):
                try:
                    futures.append(self._ready().submit(_drain, todo, work))
                except RuntimeError:  # the system has no more threads: use those that exist
                    break
            _drain(todo, work)
        finally:
            _finish(futures, todo)
        for future in futures:
            if not future.cancelled():
                future.result()

    def close(self) -> None:
        """Stop the threads; they start again when they are needed."""
        if self._pool is not None and self._owner == os.getpid():
            self._pool.shutdown()
        self._pool = None

    def _ready(self) -> ThreadPoolExecutor:
        # A forked process has a copy of the pool object but not its threads.
        if self._pool is None or self._owner != os.getpid():
            self._pool = ThreadPoolExecutor(self._helpers, thread_name_prefix="ckio-codec")
            self._owner = os.getpid()
        return self._pool


def _finish(futures: list[Future[None]], todo: deque[int]) -> None:
    """Wait until no thread works any more; an interrupt during the wait is raised only then.

    What no thread has begun is not waited for, because this thread has done the work alone.
    """
    try:
        wait([future for future in futures if not future.cancel()])
    except BaseException:
        todo.clear()
        _finish(futures, todo)
        raise


def _drain(todo: deque[int], work: Callable[[int], None]) -> None:
    while todo:
        try:
            number = todo.popleft()
        except IndexError:  # another thread took the last number
            return
        try:
            work(number)
        except BaseException:
            todo.clear()
            raise


_ALONE: Final = Workers(1)
"""The calling thread alone."""

_LARGE: Final = 1 << 19
"""Checkpoints of at least this many bytes are shared among threads: the work then takes about ten
times as long as waking the threads."""


class Compressed(Wrapper):
    """A backend that encodes each checkpoint with a codec, and decodes it when it is read.

    Fields are cut into blocks of about 1 MiB, which are compressed independently and in parallel.
    Several threads may call this backend; their calls are executed one after the other.

    The layout of the stored bytes contains the name of the codec, whether the codec is lossless,
    and the layout of the checkpoint. The capacity counts stored bytes. A checkpoint that the codec
    cannot make smaller is stored without compression, so that it never needs more capacity than
    without a codec.

    Parameters
    ----------
    backend
        The level underneath.
    codec
        The codec. Its `name` is stored with each checkpoint. Reading a checkpoint of another codec
        raises StorageError with both names.
    ratio
        Expected ratio of stored bytes to bytes of a checkpoint, for reservations (`Level.ratio`).
        If a checkpoint compresses better, a part of its reserved space stays unused. If it
        compresses worse, it needs more space than reserved, and raises LevelFull if none is free.
    threads
        Number of threads that compress, including the caller; None means one for each core that
        this process may use. The caller alone compresses small checkpoints.
    """

    def __init__(
        self, backend: Backend, codec: Codec, *, ratio: float = 1.0, threads: int | None = None
    ) -> None:
        if not (math.isfinite(ratio) and ratio > 0):
            raise BadInput(f"compressed level: ratio = {ratio}; it must be finite and > 0")
        super().__init__(backend)
        self._codec, self._ratio = codec, ratio
        self.lossless = self._codec.lossless and backend.lossless
        self.keeps = False
        self._workers = Workers(threads)
        self._turn = threading.Lock()  # a thread has it while it uses the scratch memory
        self._scratch = memoryview(bytearray())

    def reserve(self, sizes: Mapping[int, int], /) -> None:
        largest = max(sizes, default=0)
        with self._turn:
            # The layout, and therefore the number of blocks, is not known yet; a sixteenth more is
            # enough for most.
            self._memory(self._codec.bound(largest + largest // 16))
        stored: dict[int, int] = {}
        for nbytes, count in sizes.items():
            each = self._promised(nbytes)
            stored[each] = stored.get(each, 0) + count
        self.backend.reserve(stored)

    def prepare(self, key: Key, layout: Layout, count: int, /) -> None:
        nbytes = self._promised(form_of(layout).nbytes)
        self.backend.prepare(key, mark(self._codec, layout, nbytes), count)

    def write(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        form = form_of(layout)
        if mismatch := form.mismatch(data):
            raise StorageError(f"a compressed level cannot take {key}: {mismatch}")
        with self._turn:
            stored, parts = self._encoded(key, layout, data)
            try:
                return self.backend.write(key, stored, parts)
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
        """Return the layout and bytes to store: encoded in scratch memory, or unchanged."""
        nbytes = form_of(layout).nbytes
        with self._explained(f"{key} cannot be encoded"):
            scratch = self._memory(most_bytes(layout, self._codec))
            count = encode(layout, self._codec, data, scratch, self._share(nbytes))
        # A layout that looks encoded is always encoded again: otherwise `read` would decode a
        # checkpoint that this level did not encode.
        if count >= nbytes and not is_marked(layout):
            return layout, data
        return mark(self._codec, layout, count), [scratch[:count]]

    def layout(self, key: Key, /) -> Layout:
        layout = self.backend.layout(key)
        encoding = unmark(layout)
        return layout if encoding is None else encoding.layout

    def read(self, key: Key, into: Buffers, /) -> int:
        layout = self.backend.layout(key)
        encoding = unmark(layout)
        if encoding is None:
            return self.backend.read(key, into)
        if encoding.codec != self._codec.name:
            raise StorageError(
                f"{key} was encoded with {encoding.codec}; this level is open with"
                f" {self._codec.name}"
            )
        form = form_of(encoding.layout)
        if mismatch := form.mismatch(into):
            raise StorageError(f"a compressed level cannot give {key}: {mismatch}")
        (nbytes,) = layout[0].shape
        with self._turn:
            data = self._memory(nbytes)[:nbytes]
            count = self.backend.read(key, [data])
            with self._explained(f"{key} cannot be decoded"):
                decode(encoding.layout, self._codec, data, into, self._share(form.nbytes))
            return count

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        """Put `what` before the message of an error; one that is not of ckio is of the codec."""
        try:
            yield
        except CkioError as error:
            error.args = (f"{what}: {error}",)
            raise
        except Exception as error:
            codec = f"codec {self._codec.name} failed: {type(error).__name__}"
            raise StorageError(f"{what}: {codec}: {error}") from error

    def close(self) -> None:
        self._workers.close()
        super().close()

    def remove(self) -> None:
        self._workers.close()
        super().remove()

    def _promised(self, nbytes: int) -> int:
        """Return the bytes that the ratio promises for a checkpoint of `nbytes`."""
        return min(nbytes, math.ceil(nbytes * self._ratio))

    def _share(self, nbytes: int) -> Share:
        return (self._workers if nbytes >= _LARGE else _ALONE).each

    def _memory(self, nbytes: int) -> memoryview:
        """Return scratch memory of at least `nbytes`; allocate it only if the last is too small."""
        if self._scratch.nbytes < nbytes:
            self._scratch = memoryview(
                bytearray()
            )  # release the old one before allocating the new one
            try:
                memory = np.empty(nbytes, np.uint8)
            except MemoryError:
                raise LevelFull(
                    f"a compressed level needs {nbytes} bytes of working memory, which are not"
                    " available; free some memory, or store without a codec"
                ) from None
            memory.fill(0)  # the first touch of a page must not happen during the run
            self._scratch = memory.data
        return self._scratch
