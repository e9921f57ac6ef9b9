"""Pieces of memory, views of them, and the cotangents of both.

A `Cell` is one piece of memory. An array in this memory is a `MemoryView`, with an offset and
strides in bytes. The cotangent of a cell is one buffer with the layout of the memory. Therefore the
cotangent of a view is the same view of the buffer, and a view of numpy (a slice, a transpose, a
reshaped array, the real part of a complex array) needs no derivative rule.

A cotangent in a buffer is the direction of steepest ascent: that of z = x + iy is dJ/dx + i dJ/dy,
so that the real and the imaginary part of a buffer are the cotangents of x and y. The rules use its
conjugate, with which the cotangent of a holomorphic function is a plain product with its
derivative.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Cell:
    """One piece of memory.

    Attributes
    ----------
    memory : array
        The whole memory, in C order. If a node has saved it, a write gives the cell a copy.
    slot : int or None
        The slot of its cotangent; None as long as no entry has a derivative.
    origin : array or None
        The plain array that was lifted. It is kept, so that its id stays unique after a write.
    """

    __slots__ = ("__weakref__", "_address", "memory", "origin", "slot")

    def __init__(self, memory: Array, slot: int | None, origin: Array | None = None) -> None:
        self.memory = memory
        self.slot = slot
        self.origin = origin
        self._address: int | None = None

    def move(self) -> None:
        """Replace the memory by a copy."""
        self.memory = self.memory.copy()
        self._address = None

    def view(self, array: Array) -> "MemoryView":
        """Return an array in the memory as a view of it."""
        if array is self.memory or not array.size:
            return view_in(self.memory, array)
        if self._address is None:
            self._address = pointer(self.memory)
        return _view(array, pointer(array) - self._address, self.memory)


@dataclass(frozen=True, eq=False)
class MemoryView:
    """An array in a memory of shape `within` and dtype `base`, with offset and strides in bytes.

    An `exact` view is the whole memory in its order. In an `overlapping` view, as np.broadcast_to
    returns it, a stride is 0, so that several entries are the same memory. No other view of a
    traced array has overlapping entries.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    strides: tuple[int, ...]
    offset: int
    writeable: bool
    within: tuple[int, ...]
    base: np.dtype[Any]

    @cached_property
    def exact(self) -> bool:
        dense = self.strides == _dense(self.shape, self.dtype.itemsize)
        full = dense and prod(self.shape) == prod(self.within) and self.writeable
        return full and self.dtype == self.base

    @cached_property
    def overlapping(self) -> bool:
        return any(n > 1 and not s for n, s in zip(self.shape, self.strides, strict=True))

    def on(self, memory: Array) -> Array:
        """Return the array with this view in a memory."""
        if self.exact:
            return memory if memory.shape == self.shape else memory.reshape(self.shape)
        array: Array = np.ndarray(self.shape, self.dtype, memory, self.offset, self.strides)
        return array

    def folded(self) -> tuple["MemoryView", tuple[int, ...]]:
        """Return the view with length 1 along all axes whose stride is 0, and these axes."""
        axes = tuple(i for i, n in enumerate(self.shape) if n > 1 and not self.strides[i])
        shape = tuple(1 if i in axes else n for i, n in enumerate(self.shape))
        given = self.strides, self.offset, self.writeable, self.within, self.base
        return view_of(shape, self.dtype, *given), axes


view_of = lru_cache(maxsize=4096)(MemoryView)
"""Return a `MemoryView`. Equal views are created once, because a program has few of them."""


def dense_view(shape: tuple[int, ...], dtype: np.dtype[Any]) -> MemoryView:
    """Return the view of an array that is its whole memory, in C order."""
    return view_of(shape, dtype, _dense(shape, dtype.itemsize), 0, True, shape, dtype)


def view_in(memory: Array, array: Array) -> MemoryView:
    """Return `array` as a view of `memory`, which contains it."""
    offset = 0 if array is memory or not array.size else pointer(array) - pointer(memory)
    return _view(array, offset, memory)


def _view(array: Array, offset: int, memory: Array) -> MemoryView:
    return view_of(
        array.shape, array.dtype, array.strides, offset, array.flags.writeable,
        memory.shape, memory.dtype,
    )  # fmt: skip


def inside(memory: Array, array: Array) -> bool:
    """Return whether a memory contains the whole array."""
    if array.size == 0:
        return True
    low, high = np.lib.array_utils.byte_bounds(array)
    return pointer(memory) <= low and high <= pointer(memory) + memory.nbytes


def dense_of(array: Array) -> Array | None:
    """Return the whole memory that contains an array, in C order, or None if it has gaps."""
    owner = root(array)
    if owner.flags.c_contiguous:
        return owner
    order = np.argsort([-stride for stride in owner.strides], kind="stable")
    dense = owner.transpose(order)
    return dense if dense.flags.c_contiguous else None


def root(array: Array) -> Array:
    """Return the array that owns the memory of this one."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def pointer(array: Array) -> int:
    """Return the address of the first entry, in bytes."""
    return int(array.__array_interface__["data"][0])


def _dense(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return the strides of an array in C order."""
    strides = []
    for length in reversed(shape):
        strides.append(itemsize)
        itemsize *= max(length, 1)
    return tuple(reversed(strides))


FLOATS = frozenset((float, np.float64))
"""Types of numbers whose cotangents are plain numbers, too."""


class ViewSlot(NamedTuple):
    """The slot for the cotangent of an array, or of a number other than float64.

    For a float, the slot alone is used, a plain int, because this is faster. The same is done for
    the result of an operation that is a new array and its whole memory.
    """

    slot: int
    view: MemoryView


class Written(NamedTuple):
    """A part of a memory that was written into. Its cotangent becomes that of the written value.

    Attributes
    ----------
    index : an index of the view, with arrays in it; None for the whole view
    first : whether the memory had no derivative before
    add : 1 if a value was added to the entries, -1 if it was subtracted, 0 if it replaced them
    """

    slot: int
    view: MemoryView
    index: Any
    first: bool
    add: int


class Cotangents:
    """Cotangents by slot. That of a number is a float, that of a memory a buffer of its shape.

    A buffer is changed in place only if it is `owned`: this class created it, and no other object
    refers to it.
    """

    __slots__ = ("by_slot", "owned")

    def __init__(self) -> None:
        self.by_slot: dict[int, Any] = {}
        self.owned: set[int] = set()

    def walk(self, nodes: list[tuple[Any, Any, tuple[Any, ...], Any]]) -> None:
        """Propagate the cotangents backwards over all nodes, and remove each node immediately."""
        by_slot, pop, add, owned = self.by_slot, nodes.pop, self.add, self.owned
        while nodes:
            out, pull, saved, into = pop()
            if type(out) is int:
                given = by_slot.pop(out, None)
                owned.discard(out)
            else:
                given = self._take(out)
            if given is None:
                continue
            if type(given) not in FLOATS:
                given = conjugate(given)
            try:
                bars = pull(given, *saved)
            except (ZeroDivisionError, OverflowError):
                bars = pull(np.float64(given), *saved)  # numpy returns inf where Python raises
            if type(into) is tuple:
                for place, cotangent in zip(into, bars, strict=True):
                    if type(place) is int and type(cotangent) in FLOATS:
                        known = by_slot.get(place)
                        by_slot[place] = cotangent if known is None else known + cotangent
                    elif cotangent is not None:
                        add(place, conjugate(cotangent))
            elif type(into) is int and type(bars) in FLOATS:
                known = by_slot.get(into)
                by_slot[into] = bars if known is None else known + bars
            else:
                add(into, conjugate(bars))

    def add(self, place: Any, cotangent: Any) -> None:
        """Add a cotangent to a slot.

        It is summed over axes that were broadcast, and its real part is taken for a real value.
        """
        if type(place) is int:
            if type(cotangent) is not np.float64:
                cotangent = np.float64(np.real(np.sum(cotangent)))
            known = self.by_slot.get(place)
            self.by_slot[place] = cotangent if known is None else known + cotangent
            return
        slot, view = place.slot, place.view
        part = fit(cotangent, view)
        if view.exact:
            part = part if part.shape == view.within else part.reshape(view.within)
            known = self.by_slot.get(slot)
            if known is None:
                self.by_slot[slot] = part
            elif slot in self.owned:
                known += part
            else:
                self.by_slot[slot] = np.asarray(np.add(known, part, order="C"))
                self.owned.add(slot)
        elif view.overlapping:
            single, axes = view.folded()
            self.add(ViewSlot(slot, single), part.sum(axis=axes, keepdims=True))
        else:
            target = view.on(self._buffer(slot, view))
            target += part

    def number(self, place: Any) -> NDArray[Any] | None:
        """Return the cotangent of a number, with shape ()."""
        if place is None:
            return None
        slot, dtype = (place, np.float64) if type(place) is int else (place.slot, place.view.dtype)
        bar = self.by_slot.get(slot)
        return None if bar is None else np.array(bar, dtype).reshape(())

    def array(self, slot: int, view: MemoryView) -> NDArray[Any] | None:
        """Return the cotangent of a view of a memory."""
        buffer = self.by_slot.get(slot)
        if buffer is None:
            return None
        return np.array(_read(view, buffer))

    def _take(self, out: Any) -> Any:
        """Remove and return the cotangent of a result, because no earlier node has this result."""
        if type(out) is ViewSlot:
            buffer = self.by_slot.pop(out.slot, None)
            self.owned.discard(out.slot)
            if buffer is None:
                return None
            return _once(out.view, buffer) if out.view.overlapping else _read(out.view, buffer)
        if type(out) is Written:
            return self._overwrite(out)
        given = [self.by_slot.pop(it, None) if type(it) is int else self._take(it) for it in out]
        return None if all(it is None for it in given) else given

    def _overwrite(self, out: Written) -> Any:
        """Return the cotangent of the written value. The overwritten entries have none."""
        if out.slot not in self.by_slot:
            return None
        view = out.view
        if out.add:
            part = _read(view, self.by_slot[out.slot])
            part = part.copy() if out.index is None else part[out.index]
            return part if out.add > 0 else -part
        if view.exact and out.index is None:
            self.owned.discard(out.slot)
            return _read(view, self.by_slot.pop(out.slot))
        buffer = self._buffer(out.slot, view)
        target = view.on(buffer)
        if out.index is not None:
            given = _overwrite_at(target, out.index)
        else:
            given = target.copy()
            target[...] = 0
        if out.first:
            del self.by_slot[out.slot]
            self.owned.discard(out.slot)
        return given

    def _buffer(self, slot: int, view: MemoryView) -> Array:
        """Return the buffer of a slot, owned, so that it may be changed."""
        buffer: Array
        if slot not in self.by_slot:
            buffer = np.zeros(view.within, view.base)
        elif slot in self.owned:
            return self.by_slot[slot]  # type: ignore[no-any-return]
        else:
            buffer = np.array(self.by_slot[slot], order="C")
        self.by_slot[slot] = buffer
        self.owned.add(slot)
        return buffer


def conjugate(cotangent: Any, /) -> Any:
    """Return the conjugate of a complex cotangent, or of each in a list; a real one unchanged."""
    if type(cotangent) is list:
        return [None if each is None else conjugate(each) for each in cotangent]
    return np.conj(cotangent) if np.iscomplexobj(cotangent) else cotangent


def _once(view: MemoryView, buffer: Array) -> Array:
    """Read a view whose entries share memory: one of these entries has the cotangent of all."""
    single, axes = view.folded()
    bar = np.zeros(view.shape, view.dtype)
    one_each = tuple(slice(1) if axis in axes else slice(None) for axis in range(bar.ndim))
    bar[one_each] = _read(single, buffer)
    return bar


def _read(view: MemoryView, buffer: Array) -> Array:
    """Return a view of a buffer, which must not be changed."""
    if view.exact or buffer.flags.c_contiguous:
        return view.on(buffer)
    return view.on(np.array(buffer, order="C"))


def fit(cotangent: Any, view: MemoryView) -> Array:
    """Return a cotangent with the shape and dtype of its value."""
    part = np.asarray(cotangent)
    if part.shape == view.shape and part.dtype == view.dtype:
        return part
    if part.dtype.kind == "c" and view.dtype.kind != "c":
        part = part.real
    shape = view.shape
    if part.shape != shape:
        extra = part.ndim - len(shape)
        if extra > 0:
            part = part.sum(axis=tuple(range(extra)))
        axes = tuple(i for i, n in enumerate(shape[-part.ndim :] if part.ndim else ()) if n == 1)
        if part.ndim == len(shape) and axes and part.shape != shape:
            part = part.sum(axis=axes, keepdims=True)
        if part.shape != shape:
            part = np.broadcast_to(part, shape)
    return part if part.dtype == view.dtype else part.astype(view.dtype)


def _overwrite_at(target: Array, index: Any) -> Any:
    """Return the cotangent of values that were written by an index with arrays.

    If an entry occurs several times, only the value that was written last has a cotangent.
    """
    given = target[index]
    if type(index) is np.ndarray and index.dtype == bool:
        target[index] = 0
        return given
    shape = np.shape(given)
    order = np.full(target.shape, -1, np.intp)
    order[index] = np.arange(given.size, dtype=np.intp).reshape(shape)
    written = order >= 0
    last = np.zeros(given.size, target.dtype)
    last[order[written]] = target[written]
    target[index] = 0
    return last.reshape(shape)
