"""A level whose checkpoints are compressed on the way to another level."""

import math
import threading
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from ckio.actions import Buffers, Key, Layout
from ckio.backends.base import Backend
from ckio.backends.blocks import blocks_of
from ckio.backends.encoded import Share, decode, encode, is_marked, mark, room, unmark
from ckio.backends.forms import form_of
from ckio.backends.workers import Workers, alone
from ckio.compression import Codec
from ckio.compression.checked import Checked
from ckio.errors import BadInput, LevelFull, StorageError

_LARGE: Final = 1 << 19
"""Bytes from which threads share the work: it takes ten times as long as waking them."""

_PASSED_ON: Final = ("evict", "contents")
"""What some levels offer beyond a Backend."""


class Compressed:
    """A backend that stores what a codec makes of each checkpoint; seen from outside, like any.

    Fields are cut into blocks of about 1 MiB, which are compressed each by itself, and in parallel.
    Threads that call it at one time take turns.
    What the level underneath holds says which codec it was, whether that is lossless, and the
    layout of the checkpoint. A checkpoint that the codec does not make smaller is stored as it is:
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
        better leaves some of its room unused; what compresses worse needs room beyond the reserved,
        and raises LevelFull where there is none.
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
            self._room(self._codec.bound(largest + largest // 16))
        stored: dict[int, int] = {}
        for nbytes, count in sizes.items():
            each = self._promised(nbytes)
            stored[each] = stored.get(each, 0) + count
        self._backend.reserve(stored)

    def prepare(self, key: Key, layout: Layout, count: int, /) -> None:
        """Let the level underneath make room for such checkpoints, where it has use for that.

        Raises LevelFull where it has no room.
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
        """What the level underneath is to hold: in scratch memory, or as it is."""
        blocks = blocks_of(layout)
        try:
            scratch = self._room(room(blocks, self._codec))
            count = encode(blocks, self._codec, data, scratch, self._share(blocks.form.nbytes))
        except StorageError as error:
            error.args = (f"{key} cannot be encoded: {error}",)
            raise
        # What looks encoded already must be encoded again, or it would be decoded once too often.
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
            data = self._room(nbytes)[:nbytes]
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
        """The bytes that the ratio promises for a checkpoint of `nbytes`."""
        return min(nbytes, math.ceil(nbytes * self._ratio))

    def _share(self, nbytes: int) -> Share:
        return self._workers.each if nbytes >= _LARGE else alone

    def _room(self, nbytes: int) -> memoryview:
        """Scratch memory of at least `nbytes`, the same as long as it is large enough."""
        if self._scratch.nbytes < nbytes:
            self._scratch = memoryview(b"")  # before the new one is there
            try:
                memory = np.empty(nbytes, np.uint8)
            except MemoryError:
                raise LevelFull(
                    f"a compressed level needs {nbytes} bytes of memory to work in"
                ) from None
            memory.fill(0)  # the first touch of a page must not happen during the run
            self._scratch = memory.data
        return self._scratch
