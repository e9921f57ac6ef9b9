"""Pieces of memory and the views of them, as numpy has them, with room for their cotangents.

A `Cell` is one piece of memory. Arrays that share it are `View`s: an offset and strides in bytes.
The cotangent of a cell is one flat buffer laid out like the memory, so what is true of a view of
the memory is true of the same view of the buffer: whatever numpy calls a view (a slice, a
transpose, a reshaped array, the real part of a complex one) needs no derivative rule.
"""

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Cell:
    """One piece of memory.

    Attributes
    ----------
    memory : 1-D array over all of it; a write gives the cell another one if a node has saved it
    slot : int or None
        Where its cotangent is gathered; None as long as nothing in it has a derivative.
    origin : the plain array that was lifted, so that its identity outlives the first write
    """

    __slots__ = ("__weakref__", "memory", "origin", "slot")

    def __init__(self, memory: Array, slot: int | None, origin: Array | None = None) -> None:
        self.memory = memory
        self.slot = slot
        self.origin = origin


class View:
    """How an array lies in a memory: `offset` and `strides` in bytes, `size` elements in all.

    `exact` views are all of the memory in its order. In `overlapping` ones several entries are
    the same memory. `sign` is -1 for imaginary parts: see `Tape` for the convention.
    """

    __slots__ = (
        "base", "dtype", "exact", "offset", "overlapping", "shape", "sign", "size", "strides",
        "writeable",
    )  # fmt: skip

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        size: int,
        base: np.dtype[Any],
        *,
        offset: int,
        strides: tuple[int, ...] | None,
        writeable: bool,
    ) -> None:
        self.shape = shape
        self.dtype = dtype
        self.size = size
        self.base = base
        self.offset = offset
        self.writeable = writeable
        whole = _dense(shape, dtype.itemsize)
        self.strides = whole if strides is None else strides
        same = dtype == base
        self.exact = same and self.strides == whole and prod(shape) == size and writeable
        self.overlapping = _overlapping(shape, self.strides, dtype.itemsize)
        self.sign = 1 if same or offset % base.itemsize == 0 else -1

    def on(self, memory: Array) -> Array:
        """The array that lies so in this memory."""
        if self.exact:
            return memory.reshape(self.shape)
        array: Array = np.ndarray(self.shape, self.dtype, memory, self.offset, self.strides)
        return array

    def indices(self) -> NDArray[np.intp]:
        """For each entry the number of its element in the memory."""
        places = np.full(self.shape, self.offset, np.intp)
        for axis, (length, stride) in enumerate(zip(self.shape, self.strides, strict=True)):
            steps = np.arange(length, dtype=np.intp) * stride
            places += steps.reshape((-1,) + (1,) * (len(self.shape) - axis - 1))
        return places // self.base.itemsize


@lru_cache(maxsize=4096)
def whole(shape: tuple[int, ...], dtype: np.dtype[Any]) -> View:
    """The view of an array that is all of its memory, in C order."""
    return View(shape, dtype, prod(shape), dtype, offset=0, strides=None, writeable=True)


def view_in(memory: Array, array: Array) -> View:
    """How `array` lies in `memory`, which contains it."""
    return View(
        array.shape,
        array.dtype,
        memory.size,
        memory.dtype,
        offset=pointer(array) - pointer(memory) if array.size else 0,
        strides=array.strides,
        writeable=bool(array.flags.writeable),
    )


def inside(memory: Array, array: Array) -> bool:
    """Whether all of `array` lies in this memory."""
    if array.size == 0:
        return True
    low, high = np.lib.array_utils.byte_bounds(array)
    return pointer(memory) <= low and high <= pointer(memory) + memory.nbytes


def flat(array: Array) -> Array | None:
    """All of the memory an array lies in as one dimension; None where that is not its own."""
    owner = root(array)
    if owner.flags.c_contiguous:
        return owner.reshape(-1)
    order = np.argsort([-stride for stride in owner.strides], kind="stable")
    dense = owner.transpose(order)
    return dense.reshape(-1) if dense.flags.c_contiguous else None


def root(array: Array) -> Array:
    """The array that owns the memory of this one."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def pointer(array: Array) -> int:
    """The address of the first entry, in bytes."""
    return int(array.__array_interface__["data"][0])


def _dense(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Strides in C order."""
    strides = []
    for length in reversed(shape):
        strides.append(itemsize)
        itemsize *= max(length, 1)
    return tuple(reversed(strides))


def _overlapping(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    """Whether two entries may be the same memory."""
    if 0 in shape:
        return False
    reach = itemsize
    for stride, length in sorted((abs(s), n) for s, n in zip(strides, shape, strict=True) if n > 1):
        if stride < reach:
            return True
        reach = stride * length
    return False
