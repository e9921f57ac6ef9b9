"""Checkpoints for tests: keys, layouts, and random bytes."""

from collections.abc import Iterable

import numpy as np

from ckio.actions import Field, Key, Kind, Layout
from ckio.backends.base import Backend
from ckio.model import Array, Model, as_bytes


def x(step: int, /) -> Key:
    """Return the key of the restart data x_i of a step i."""
    return Key(Kind.RESTART, step)


def t(step: int, /) -> Key:
    """Return the key of the tape of a step."""
    return Key(Kind.TAPE, step)


def a(step: int, /) -> Key:
    """Return the key of the adjoint at a step."""
    return Key(Kind.ADJOINT, step)


X0, X3, X7, T3, A9 = x(0), x(3), x(7), t(3), a(9)

FLOW: Layout = (
    Field("zeta", "<f8", (5, 7), "1/s"),
    Field("mask", "|b1", (11,)),
    Field("empty", "<i4", (0, 3)),
    Field("time", "<f8", (), "s"),
    Field("spectrum", "<c16", (2, 3, 4), "m/s"),
)
"""Fields of several types and shapes, one without elements and one without dimensions."""


def raw(nbytes: int, /) -> Layout:
    """Return the layout of one field of `nbytes` bytes."""
    return (Field("raw", "|u1", (nbytes,)),)


def contents(layout: Layout, /, *, seed: int = 0) -> list[Array]:
    """Return arrays of this layout with random bytes, which no codec can compress."""
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
    """Return the memory of the arrays, without a copy."""
    return [as_bytes(array) for array in arrays]


def put(backend: Backend, key: Key, layout: Layout, /, *, seed: int = 0) -> bytes:
    """Write a checkpoint with random bytes, and return a copy of them."""
    data = buffers(contents(layout, seed=seed))
    original = b"".join(data)
    backend.write(key, layout, data)
    return original


def get(backend: Backend, key: Key, layout: Layout, /) -> bytes:
    """Read a checkpoint into memory with other bytes, and return the bytes of that memory."""
    into = [bytearray(b"\xa5" * view.nbytes) for view in buffers(contents(layout))]
    backend.read(key, [memoryview(buffer) for buffer in into])
    return b"".join(into)


def save(model: Model, key: Key, /) -> list[bytes]:
    """Return a copy of a model's checkpoint."""
    return [bytes(view) for view in model.dump(key)]


def restore(model: Model, key: Key, saved: list[bytes], /) -> None:
    """Load a checkpoint that `save` returned into a model."""
    with model.load(key, model.layout(key)) as into:
        for buffer, data in zip(into, saved, strict=True):
            buffer[:] = data
