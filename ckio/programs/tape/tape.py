"""The tape: the operations in the order in which they were performed, and the reverse over them."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar
from weakref import WeakValueDictionary, ref

import numpy as np

from ckio.errors import BadInput
from ckio.programs.tape.cells import (
    FLOATS,
    Array,
    Cell,
    Cotangents,
    MemoryView,
    ViewSlot,
    Written,
    dense_of,
    dense_view,
    inside,
    root,
    view_in,
)

Pull = Callable[..., Any]
"""A function of the cotangent of a result and of saved values.

It returns the cotangent of the operand, or a tuple of those of several operands.
"""


class Value:
    """A plain number or array on a tape, with its memory and the slot of its cotangent.

    `operators.Traced` adds the operations.

    Attributes
    ----------
    held : the plain value; if the memory has moved since, it is out of date, but `value` is not
    cell : the memory; None for numbers
    seen : the memory that contains `held`
    """

    __slots__ = ("_place", "_view", "cell", "held", "seen", "tape")

    def __init__(
        self, tape: "Tape", value: Any, place: Any, cell: Cell | None = None, view: Any = None
    ) -> None:
        self.tape = tape
        self.held = value
        self._place = place
        self.cell = cell
        if cell is not None:
            self._view: MemoryView | None = view
            self.seen: Any = cell.memory

    @property
    def value(self) -> Any:
        """The plain number or array."""
        cell = self.cell
        if cell is not None and self.seen is not cell.memory:
            view = self.memory_view
            self.held = view.on(cell.memory)
            if not view.writeable:
                self.held.flags.writeable = False
            self.seen = cell.memory
        return self.held

    @property
    def memory_view(self) -> MemoryView:
        """The array as a view of its memory. It is computed when it is first needed."""
        if self._view is None:
            cell, seen = self.cell, self.seen
            assert cell is not None
            self._view = cell.view(self.held) if seen is cell.memory else view_in(seen, self.held)
        return self._view

    @property
    def place(self) -> Any:
        """The slot of its cotangent, or None if it has no derivative."""
        if self._place is None and self.cell is not None and self.cell.slot is not None:
            self._place = ViewSlot(self.cell.slot, self.memory_view)
        return self._place


class _Spent(list[Any]):
    """The nodes of a tape that was reversed. No node can be added."""

    def append(self, node: Any, /) -> None:
        raise BadInput("this tape was reversed already; use new values on a new tape")


class Tape:
    """A record of operations on floats and arrays, which can be reversed once.

    A cotangent has the shape and dtype of its value. The cotangent g of a complex array z is the
    direction of steepest ascent, as in PyTorch: a real functional changes by Re(sum(conj(g) * dz)).

    Attributes
    ----------
    kind : type
        The class of the values on the tape. It is `Traced`, which the higher module `operators`
        sets.
    nbytes : int
        Bytes of all arrays that the operations keep alive. Each array counts once.
    """

    kind: ClassVar[type[Value]] = Value

    __slots__ = ("_copies", "_kept", "_lifted", "_nodes", "nbytes", "slots")

    def __init__(self) -> None:
        self._nodes: list[tuple[Any, Pull, tuple[Any, ...], Any]] = []
        self._kept: dict[int, Array] = {}
        self._lifted: WeakValueDictionary[int, Cell] = WeakValueDictionary()
        self._copies: dict[int, tuple[ref[Array], Array]] = {}
        self.nbytes = 0
        self.slots = 0

    @property
    def nodes(self) -> int:
        """The number of operations that have a derivative and are not reversed yet."""
        return len(self._nodes)

    def input(self, value: Any, /) -> Value:
        """Return a float or complex number, or an array of them, as an input of the tape.

        The given array is never changed, because a write to the input copies it first.
        """
        slot = self.slot()
        if isinstance(value, np.ndarray):
            memory = _memory_of(value)
            self._kept[id(root(value))] = root(value)
            return self.kind(self, value, None, Cell(memory, slot, value), view_in(memory, value))
        return self.number(value, slot)

    def view(self, owner: Value, array: Array, /) -> Value:
        """Return another array in the memory of an input as a traced value."""
        cell = owner.cell
        assert cell is not None
        assert cell.origin is not None
        memory = _memory_of(cell.origin)
        traced = self.kind(self, array, None, cell, view_in(memory, array))
        if cell.memory is not memory and root(cell.memory) is not root(memory):
            traced.seen = None
        return traced

    def lift(self, value: Any, /) -> Any:
        """Return a value whose float arrays are constants of this tape.

        Traced values can be written into such an array. Arrays in tuples, lists and dicts are
        replaced, too, and the structure is copied if one is. Integers, numbers and values on the
        tape do not change.
        """
        kind = type(value)
        if kind is np.ndarray:
            return self._constant(value) if value.dtype.kind in "fc" else value
        if kind is list or isinstance(value, tuple):
            items = [self.lift(item) for item in value]
            if all(new is old for new, old in zip(items, value, strict=True)):
                return value
            return items if kind is list else getattr(value, "_make", tuple)(items)
        if kind is dict:
            pairs = {key: self.lift(item) for key, item in value.items()}
            same = all(pairs[key] is item for key, item in value.items())
            return value if same else pairs
        return value

    def backward(
        self, seeds: Iterable[tuple[Any, ...]], inputs: Sequence[Value], /
    ) -> list[Array | None]:
        """Return the cotangents of the inputs from the cotangents of results.

        A tape can be reversed once.

        Parameters
        ----------
        seeds : of (traced, cotangent) or (traced, cotangent, memory)
            A traced value and its cotangent, of the same shape. `memory` is a plain array over the
            memory of the traced value, whose shape the cotangent then has.
        inputs : of values
            Values that `input` returned.

        Returns
        -------
        list
            An array for each input, or None if no result depends on it.
        """
        adjoint = Cotangents()
        for seed in seeds:
            _sow(adjoint, *seed)
        nodes, self._nodes = self._nodes, _Spent()
        self._kept.clear()
        self._copies.clear()
        with np.errstate(all="ignore"):
            adjoint.walk(nodes)
        return [
            adjoint.number(it.place)
            if it.place is None or it.cell is None
            else adjoint.array(it.place.slot, it.memory_view)
            for it in inputs
        ]

    # Methods for the other modules of this package

    def slot(self) -> int:
        """Return the number of a new slot for a cotangent."""
        self.slots += 1
        return self.slots

    def number(self, value: Any, slot: int) -> Value:
        """Return a number with this slot as a traced value."""
        if type(value) in FLOATS:
            return self.kind(self, value, slot)
        return self.kind(self, value, ViewSlot(slot, dense_view((), np.asarray(value).dtype)))

    def result(self, value: Array, slot: int | None) -> Value:
        """Return a new array with memory of its own as a traced value.

        The slot is None if it has no derivative.
        """
        if value.flags.c_contiguous and value.flags.writeable:
            return self.kind(self, value, None, Cell(value, slot))
        memory = dense_of(value)
        if memory is None:
            value = memory = value.copy()
        return self.kind(self, value, None, Cell(memory, slot))

    def viewing(self, cell: Cell, array: Array) -> Value:
        """Return an array in the current memory of a cell as a traced value."""
        return self.kind(self, array, None, cell)

    def record(self, out: Any, pull: Pull, saved: tuple[Any, ...], into: Any) -> None:
        """Record an operation: the slot of its result, its pull, and the slots of its operands."""
        self.keep(saved)
        self._nodes.append((out, pull, saved, into))

    def record_number(self, value: Any, pull: Pull, saved: tuple[Any, ...], into: Any) -> Value:
        """Record an operation on numbers, and return its result, a float, as a traced value."""
        self.slots = slot = self.slots + 1
        self._nodes.append((slot, pull, saved, into))
        return self.kind(self, value, slot)

    def record_result(self, value: Any, pull: Pull, saved: tuple[Any, ...], into: Any) -> Value:
        """Record an operation, and return its result as a traced value."""
        self.slots = slot = self.slots + 1
        out: Any = slot
        kind = type(value)
        if kind is np.ndarray:
            traced = self.result(value, slot)
            if traced.cell.memory is not value:  # type: ignore[union-attr]
                out = traced.place
        elif kind in FLOATS:
            traced = self.kind(self, value, slot)
        else:
            traced = self.number(value, slot)
            out = traced.place
        for item in saved:
            if type(item) not in FLOATS:
                self.keep(saved)
                break
        self._nodes.append((out, pull, saved, into))
        return traced

    def keep(self, saved: tuple[Any, ...] | list[Any]) -> None:
        """Keep these arrays unchanged from now on, and count their bytes."""
        for item in saved:
            kind = type(item)
            if kind is np.ndarray:
                owner = item if item.base is None else root(item)
                if id(owner) not in self._kept:
                    self._kept[id(owner)] = owner
                    self.nbytes += owner.nbytes
            elif kind is tuple or kind is list:
                self.keep(item)
            elif kind is dict:
                self.keep(list(item.values()))

    def safe(self, value: Any) -> Any:
        """Return a plain operand that a node may save.

        An array is copied, because the program may change it. An unchanged array is copied once.
        """
        if not isinstance(value, np.ndarray) or id(root(value)) in self._kept:
            return value
        known = self._copies.get(id(value))
        if known is not None and known[0]() is value and _identical(known[1], value):
            return known[1]
        key, copies = id(value), self._copies
        copies[key] = ref(value, lambda _: copies.pop(key, None)), value.copy(order="K")
        return copies[key][1]

    def own(self, cell: Cell) -> None:
        """Prepare a write: if a node has saved the memory of the cell, the cell gets a copy."""
        if id(root(cell.memory)) in self._kept:
            cell.move()

    def written(self, traced: Value, index: Any = None, add: int = 0) -> Any:
        """Return the part of a traced array that is written to, with the slot of its cotangent."""
        cell, view = traced.cell, traced.memory_view
        assert cell is not None
        first = cell.slot is None
        if cell.slot is None:
            cell.slot = self.slot()
        return Written(cell.slot, view, index, first, add)

    def _constant(self, value: Array) -> Value:
        owner = root(value)
        cell = self._lifted.get(id(owner))
        if cell is None:
            cell = Cell(_memory_of(value), None, owner)
            self._kept.setdefault(id(owner), owner)
            self._lifted[id(owner)] = cell
        elif not inside(_memory_of(value), value):
            return self.result(value.copy(), None)
        traced = self.kind(self, value, None, cell, view_in(_memory_of(value), value))
        if root(cell.memory) is not owner:
            traced.seen = None  # the cell was written into since, and has the current value
        return traced


def _sow(adjoint: Cotangents, traced: Any, cotangent: Any, memory: Array | None = None) -> None:
    """Add the cotangent of a result."""
    if not isinstance(traced, Value) or traced.place is None:
        return
    cotangent, place = np.asarray(cotangent), traced.place
    cell = traced.cell
    shape: tuple[int, ...] = ()
    if cell is not None:
        shape = traced.memory_view.shape
        if memory is not None:
            place, shape = ViewSlot(place.slot, view_in(cell.memory, memory)), memory.shape
    if cotangent.shape != shape:
        raise BadInput(
            f"a cotangent has shape {cotangent.shape}, its value has shape {shape}; give the"
            " cotangent the shape of the value"
        )
    adjoint.add(place, cotangent.copy() if shape else cotangent[()])


def _memory_of(value: Array) -> Array:
    """Return the memory of an array that was not computed on the tape, as one array.

    It is the memory of its owner, or the array itself if that is contiguous.
    """
    memory = dense_of(value)
    if memory is not None and memory.dtype == value.dtype:
        return memory
    if value.flags.c_contiguous:
        return value
    raise BadInput(
        f"an array with strides {value.strides} has gaps in its memory; give a copy, or the whole"
        " array"
    )


def _identical(copy: Array, value: Array) -> bool:
    """Return whether an array has the same bits as its copy."""
    if copy.shape != value.shape or copy.strides != value.strides:
        return False
    if value.dtype != np.float64 or not value.flags.c_contiguous:
        return copy.tobytes() == value.tobytes()
    return bool((copy.view(np.int64) == value.view(np.int64)).all())  # faster than tobytes
