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
    memory : all of it, in C order; a write gives the cell another one if a node has saved it
    slot : int or None
        Where its cotangent is gathered; None as long as nothing in it has a derivative.
    origin : the plain array that was lifted, so that its identity outlives the first write
    """

    __slots__ = ("__weakref__", "_address", "memory", "origin", "slot")

    def __init__(self, memory: Array, slot: int | None, origin: Array | None = None) -> None:
        self.memory = memory
        self.slot = slot
        self.origin = origin
        self._address: int | None = None

    def move(self) -> None:
        """Go on in a copy of the memory."""
        self.memory = self.memory.copy()
        self._address = None

    def lies(self, array: Array) -> "View":
        """How an array lies in the memory."""
        if array is self.memory or not array.size:
            return view_in(self.memory, array)
        if self._address is None:
            self._address = pointer(self.memory)
        return _view(array, pointer(array) - self._address, self.memory)


class View:
    """How an array lies in a memory of shape `within`: `offset` and `strides` are in bytes.

    `exact` views are all of the memory in its order. In `overlapping` ones several entries are
    the same memory. `sign` is -1 for imaginary parts: see `Tape` for the convention.
    """

    __slots__ = (
        "base", "dtype", "exact", "offset", "overlapping", "shape", "sign", "strides",
        "within", "writeable",
    )  # fmt: skip

    def __init__(  # noqa: PLR0917 - by lru_cache, which is faster without names
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        strides: tuple[int, ...],
        offset: int,
        writeable: bool,
        within: tuple[int, ...],
        base: np.dtype[Any],
    ) -> None:
        self.shape = shape
        self.dtype = dtype
        self.strides = strides
        self.offset = offset
        self.writeable = writeable
        self.within = within
        self.base = base
        same = dtype == base
        dense = strides == _dense(shape, dtype.itemsize)
        self.exact = same and dense and prod(shape) == prod(within) and writeable
        self.overlapping = _overlapping(shape, strides, dtype.itemsize)
        self.sign = 1 if same or offset % base.itemsize == 0 else -1

    def on(self, memory: Array) -> Array:
        """The array that lies so in this memory."""
        if self.exact:
            return memory if memory.shape == self.shape else memory.reshape(self.shape)
        array: Array = np.ndarray(self.shape, self.dtype, memory, self.offset, self.strides)
        return array

    def folded(self) -> tuple["View", tuple[int, ...]]:
        """The same with one entry along all axes along which nothing moves, and these axes."""
        axes = tuple(i for i, n in enumerate(self.shape) if n > 1 and not self.strides[i])
        shape = tuple(1 if i in axes else n for i, n in enumerate(self.shape))
        given = self.strides, self.offset, self.writeable, self.within, self.base
        return lying(shape, self.dtype, *given), axes

    def indices(self) -> NDArray[np.intp]:
        """For each entry the number of its element, in a memory of elements like it."""
        places = np.full(self.shape, self.offset, np.intp)
        for axis, (length, stride) in enumerate(zip(self.shape, self.strides, strict=True)):
            steps = np.arange(length, dtype=np.intp) * stride
            places += steps.reshape((-1,) + (1,) * (len(self.shape) - axis - 1))
        return places // self.dtype.itemsize


lying = lru_cache(maxsize=4096)(View)
"""Views, each made once: there are few."""


def whole(shape: tuple[int, ...], dtype: np.dtype[Any]) -> View:
    """The view of an array that is all of its memory, in C order."""
    return lying(shape, dtype, _dense(shape, dtype.itemsize), 0, True, shape, dtype)


def view_in(memory: Array, array: Array) -> View:
    """How `array` lies in `memory`, which contains it."""
    offset = 0 if array is memory or not array.size else pointer(array) - pointer(memory)
    return _view(array, offset, memory)


def _view(array: Array, offset: int, memory: Array) -> View:
    return lying(
        array.shape, array.dtype, array.strides, offset, array.flags.writeable,
        memory.shape, memory.dtype,
    )  # fmt: skip


def inside(memory: Array, array: Array) -> bool:
    """Whether all of `array` lies in this memory."""
    if array.size == 0:
        return True
    low, high = np.lib.array_utils.byte_bounds(array)
    return pointer(memory) <= low and high <= pointer(memory) + memory.nbytes


def dense_of(array: Array) -> Array | None:
    """All of the memory an array lies in, in C order; None where it has gaps."""
    owner = root(array)
    if owner.flags.c_contiguous:
        return owner
    order = np.argsort([-stride for stride in owner.strides], kind="stable")
    dense = owner.transpose(order)
    return dense if dense.flags.c_contiguous else None


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
