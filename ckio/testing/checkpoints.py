"""Checkpoints to test with: keys, layouts, and bytes that look random."""

from collections.abc import Iterable

import numpy as np

from ckio.actions import Field, Key, Kind, Layout
from ckio.backends.base import Backend
from ckio.model import Array, as_bytes

X0, X3, X7, T3, A9 = (
    Key(Kind.RESTART, 0),
    Key(Kind.RESTART, 3),
    Key(Kind.RESTART, 7),
    Key(Kind.TAPE, 3),
    Key(Kind.ADJOINT, 9),
)

FLOW: Layout = (
    Field("zeta", "<f8", (5, 7), "1/s"),
    Field("mask", "|b1", (11,)),
    Field("empty", "<i4", (0, 3)),
    Field("time", "<f8", (), "s"),
    Field("spectrum", "<c16", (2, 3, 4), "m/s"),
)
"""Fields of several types and shapes, one without elements and one without dimensions."""


def raw(nbytes: int, /) -> Layout:
    """The layout of one field of `nbytes` plain bytes."""
    return (Field("raw", "|u1", (nbytes,)),)


def contents(layout: Layout, /, *, seed: int = 0) -> list[Array]:
    """Arrays of this layout with bytes that look random (no codec makes them smaller)."""
    noise = np.random.default_rng(seed)
    arrays: list[Array] = []
    for field in layout:
        dtype = np.dtype(field.dtype)
        count = int(np.prod(field.shape, dtype=np.int64))
        arrays.append(
            np.frombuffer(noise.bytes(count * dtype.itemsize), dtype).reshape(field.shape)
        )
    return arrays


def buffers(arrays: Iterable[Array], /) -> list[memoryview]:
    """The arrays' own memory."""
    return [as_bytes(array) for array in arrays]


def put(backend: Backend, key: Key, layout: Layout, /, *, seed: int = 0) -> bytes:
    """Write a checkpoint; returns its bytes, copied before the backend saw them."""
    data = buffers(contents(layout, seed=seed))
    original = b"".join(data)
    backend.write(key, layout, data)
    return original


def get(backend: Backend, key: Key, layout: Layout, /) -> bytes:
    """Read a checkpoint into memory full of other bytes; returns what is there then."""
    into = [bytearray(b"\xa5" * view.nbytes) for view in buffers(contents(layout))]
    backend.read(key, [memoryview(buffer) for buffer in into])
    return b"".join(into)
