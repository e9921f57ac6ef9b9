"""A level whose checkpoints are compressed on the way to another level."""

import json
import math
from collections.abc import Iterable, Mapping
from functools import lru_cache

from ckio.actions import Buffers, Field, Key, Layout
from ckio.backends.base import Backend
from ckio.backends.forms import Form, form_from, form_of
from ckio.compression import Codec
from ckio.errors import BadInput, CorruptCheckpoint, StorageError

_MARK = "ckio encoded: "


class Compressed:
    """A backend that stores what a codec makes of each checkpoint; seen from outside, like any.

    The level underneath holds one field of bytes, whose `unit` says what they are: the codec, and
    the layout of the checkpoint. A checkpoint that the codec does not make smaller is stored as it
    is: so compression never needs more of the capacity, which counts the bytes that are stored.

    Parameters
    ----------
    backend
        The level underneath.
    codec
        Its `name` is stored, and must be the same when reading.
    ratio
        Stored bytes for each byte of a checkpoint, for reservations: `Level.ratio`. What compresses
        better leaves some of its room unused; what compresses worse needs room beyond the reserved,
        and raises LevelFull where there is none.
    """

    def __init__(self, backend: Backend, codec: Codec, *, ratio: float = 1.0) -> None:
        if not (math.isfinite(ratio) and ratio > 0):
            raise BadInput(f"compressed level: ratio = {ratio}; it must be finite and > 0")
        self.durable = backend.durable
        self._backend, self._codec, self._ratio = backend, codec, ratio
        self._scratch = memoryview(bytearray())
        if (evict := getattr(backend, "evict", None)) is not None:
            self.evict = evict

    def reserve(self, sizes: Mapping[int, int], /) -> None:
        self._room(self._codec.bound(max(sizes, default=0)))
        stored: dict[int, int] = {}
        for nbytes, count in sizes.items():
            each = min(nbytes, math.ceil(nbytes * self._ratio))
            stored[each] = stored.get(each, 0) + count
        self._backend.reserve(stored)

    def write(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        form = form_of(layout)
        if mismatch := form.mismatch(data):
            raise StorageError(f"a compressed level cannot take {key}: {mismatch}")
        scratch = self._room(self._codec.bound(form.nbytes))
        count = self._codec.encode(data, scratch)
        # What looks encoded already must be encoded again, or it would be decoded once too often.
        if count >= form.nbytes and _encoded(layout) is None:
            return self._backend.write(key, layout, data)
        return self._backend.write(
            key, (_encoded_field(self._codec.name, form, count),), [scratch[:count]]
        )

    def layout(self, key: Key, /) -> Layout:
        layout = self._backend.layout(key)
        encoded = _encoded(layout)
        return layout if encoded is None else _description(encoded.unit)[1].layout

    def read(self, key: Key, into: Buffers, /) -> int:
        encoded = _encoded(self._backend.layout(key))
        if encoded is None:
            return self._backend.read(key, into)
        codec, form = _description(encoded.unit)
        if codec != self._codec.name:
            raise StorageError(
                f"{key} was encoded with {codec}; this level is open with {self._codec.name}"
            )
        if mismatch := form.mismatch(into):
            raise StorageError(f"a compressed level cannot give {key}: {mismatch}")
        data = self._room(encoded.shape[0])[: encoded.shape[0]]
        count = self._backend.read(key, [data])
        try:
            self._codec.decode(data, into)
        except CorruptCheckpoint as error:
            raise CorruptCheckpoint(f"{key} cannot be decoded: {error}") from error
        return count

    def discard(self, key: Key, /) -> None:
        self._backend.discard(key)

    def keys(self) -> Iterable[Key]:
        return self._backend.keys()

    def close(self) -> None:
        self._backend.close()

    def remove(self) -> None:
        """Close the level underneath and delete what it kept, where it knows how to."""
        getattr(self._backend, "remove", self._backend.close)()

    def _room(self, nbytes: int) -> memoryview:
        """Scratch memory of at least `nbytes`, the same as long as it is large enough."""
        if self._scratch.nbytes < nbytes:
            self._scratch = memoryview(bytearray(nbytes))
        return self._scratch


def _encoded_field(codec: str, form: Form, count: int) -> Field:
    return Field("encoded", "|u1", (count,), _MARK + json.dumps([codec, form.text.decode()]))


def _encoded(layout: Layout) -> Field | None:
    """The field of encoded bytes, if that is what the layout describes."""
    match layout:
        case (Field("encoded", "|u1", (_,), unit) as field,) if unit.startswith(_MARK):
            return field
    return None


@lru_cache(64)
def _description(unit: str) -> tuple[str, Form]:
    """The codec, and the form of the checkpoint, of encoded bytes."""
    try:
        codec, text = json.loads(unit.removeprefix(_MARK))
        if isinstance(codec, str) and isinstance(text, str):
            return codec, form_from(text.encode())
    except (ValueError, TypeError, RecursionError):
        pass
    raise CorruptCheckpoint("an encoded checkpoint does not say what it is")
