"""The tape: operations as they were done to which memory, and the way back along them."""

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
    inside,
    root,
    view_in,
    whole,
)

Pull = Callable[..., Any]
"""From the cotangent of a result, and what was saved, to that of the operand, or of several."""


class Value:
    """A plain number or array on a tape, its memory, and where its cotangent is gathered.

    The operations are those of `operators.Traced`.

    Attributes
    ----------
    held : the plain value, which may be out of date: see `value`
    cell : its memory; None of numbers
    seen : the memory that `held` lies in
    """

    __slots__ = ("_lies", "_place", "cell", "held", "seen", "tape")

    def __init__(
        self, tape: "Tape", value: Any, place: Any, cell: Cell | None = None, lies: Any = None
    ) -> None:
        self.tape = tape
        self.held = value
        self._place = place
        self.cell = cell
        if cell is not None:
            self._lies: MemoryView | None = lies
            self.seen: Any = cell.memory

    @property
    def value(self) -> Any:
        """The plain number or array."""
        cell = self.cell
        if cell is not None and self.seen is not cell.memory:
            lies = self.lies
            self.held = lies.on(cell.memory)
            if not lies.writeable:
                self.held.flags.writeable = False
            self.seen = cell.memory
        return self.held

    @property
    def lies(self) -> MemoryView:
        """The view that the array is of its memory: found out when it is asked for."""
        if self._lies is None:
            cell, seen = self.cell, self.seen
            assert cell is not None
            self._lies = cell.lies(self.held) if seen is cell.memory else view_in(seen, self.held)
        return self._lies

    @property
    def place(self) -> Any:
        """The slot of its cotangent; None if it has none."""
        if self._place is None and self.cell is not None and self.cell.slot is not None:
            self._place = ViewSlot(self.cell.slot, self.lies)
        return self._place


class _Spent(list[Any]):
    """The nodes of a tape that was walked back."""

    def append(self, node: Any, /) -> None:
        raise BadInput("this tape was walked back already; values of it cannot be used further")


class Tape:
    """Operations on floats and arrays as they are done, for one walk back.

    A cotangent has the shape and dtype of its value. Of complex z it is such that a real functional
    changes by Re(sum(cotangent * dz)), as in JAX; nothing is conjugated on the way.

    Attributes
    ----------
    kind : type
        The class of the values on it: `Traced`, which the module `operators` defines, above.
    nbytes : int
        Bytes of the arrays that they keep alive, each once.
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
        """Operations that have a derivative, and are not walked back yet."""
        return len(self._nodes)

    def input(self, value: Any, /) -> Value:
        """A number or an array with a derivative; an array is never written into, but copied."""
        slot = self.slot()
        if isinstance(value, np.ndarray):
            if value.dtype.kind not in "fc":
                raise BadInput(f"an array of {value.dtype} has no derivative; give it as it is")
            memory = _memory_of(value)
            self._kept[id(root(value))] = root(value)
            return self.kind(self, value, None, Cell(memory, slot, value), view_in(memory, value))
        if not isinstance(value, float | complex | np.inexact):
            raise BadInput(
                f"{type(value).__name__} has no derivative; give floats or arrays of them"
            )
        return self.number(value, slot)

    def view(self, owner: Value, array: Array, /) -> Value:
        """Another array in the memory of this one, as it was given to `input` or `lift`."""
        cell = owner.cell
        origin = None if cell is None else cell.origin
        memory = None if origin is None else _memory_of(origin)
        if cell is None or memory is None or not inside(memory, array):
            raise BadInput("this array does not lie in the memory that was given to Tape.input")
        traced = self.kind(self, array, None, cell, view_in(memory, array))
        if cell.memory is not memory and root(cell.memory) is not root(memory):
            traced.seen = None
        return traced

    def lift(self, value: Any, /) -> Any:
        """Return a value with float arrays as constants of this tape, which can be written into.

        In tuples, lists and dicts too, of which it makes others where they change; integers,
        numbers and what is known to the tape stay as they are.
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
        """Cotangents of the inputs from those of results; the tape is spent by it.

        Parameters
        ----------
        seeds : of (traced, cotangent) or (traced, cotangent, memory)
            The cotangent in the shape of the traced, or of all that was given to `input`; with
            `memory`, a plain array over the memory of the traced, in the shape of that array.
        inputs : what `input` returned

        Returns
        -------
        list of arrays, or None where nothing depends on the input

        Raises
        ------
        BadInput
            Where a cotangent has another shape, or the tape was walked before.
        """
        if isinstance(self._nodes, _Spent):
            raise BadInput("this tape was walked back already, and is spent; make another")
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
            else adjoint.array(it.place.slot, it.lies)
            for it in inputs
        ]

    # The rest is for the modules of the tape.

    def slot(self) -> int:
        """A new place for cotangents."""
        self.slots += 1
        return self.slots

    def number(self, value: Any, slot: int) -> Value:
        """A traced number."""
        if type(value) in FLOATS:
            return self.kind(self, value, slot)
        return self.kind(self, value, ViewSlot(slot, whole((), np.asarray(value).dtype)))

    def result(self, value: Array, slot: int | None) -> Value:
        """A new array, with memory of its own; the slot is None if it has no derivative."""
        if value.flags.c_contiguous and value.flags.writeable:
            return self.kind(self, value, None, Cell(value, slot))
        memory = dense_of(value)
        if memory is None:
            value = memory = value.copy()
        return self.kind(self, value, None, Cell(memory, slot))

    def viewing(self, cell: Cell, array: Array) -> Value:
        """An array that lies in the memory of this cell, as it is now."""
        return self.kind(self, array, None, cell)

    def record(self, out: Any, pull: Pull, saved: tuple[Any, ...], into: Any) -> None:
        """One operation: where the cotangent of its result is, and where those it gives go."""
        self.keep(saved)
        self._nodes.append((out, pull, saved, into))

    def number_noted(self, value: Any, pull: Pull, saved: tuple[Any, ...], into: Any) -> Value:
        """A float that is the result of an operation on numbers, recorded."""
        self.slots = slot = self.slots + 1
        self._nodes.append((slot, pull, saved, into))
        return self.kind(self, value, slot)

    def noted(self, value: Any, pull: Pull, saved: tuple[Any, ...], into: Any) -> Value:
        """The result of an operation, recorded."""
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
        """See to it that none of these arrays is written into from now on, and count them."""
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
        """A plain operand that may be saved: arrays are copied, once while they are unchanged."""
        if not isinstance(value, np.ndarray) or id(root(value)) in self._kept:
            return value
        known = self._copies.get(id(value))
        if known is not None and known[0]() is value and _identical(known[1], value):
            return known[1]
        key, copies = id(value), self._copies
        copies[key] = ref(value, lambda _: copies.pop(key, None)), value.copy(order="K")
        return copies[key][1]

    def own(self, cell: Cell) -> None:
        """Before a write: memory that a node has saved is left to it, the cell gets a copy."""
        if id(root(cell.memory)) in self._kept:
            cell.move()

    def written(self, traced: Value, index: Any = None, mask: Any = None, add: int = 0) -> Any:
        """Return where the cotangent of values written into a traced array is found."""
        cell, view = traced.cell, traced.lies
        assert cell is not None
        first = cell.slot is None
        if cell.slot is None:
            cell.slot = self.slot()
        return Written(cell.slot, view, index, mask, first, add)

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
            traced.seen = None  # written into since: its value is that of the cell
        return traced


def _sow(adjoint: Cotangents, traced: Any, cotangent: Any, memory: Array | None = None) -> None:
    """Begin with this cotangent."""
    if not isinstance(traced, Value) or traced.place is None:
        return
    cotangent, place = np.asarray(cotangent), traced.place
    cell = traced.cell
    shape: tuple[int, ...] = ()
    if cell is not None:
        shape = traced.lies.shape
        all_of = cell.memory if cell.origin is None else cell.origin
        if memory is not None:
            if not inside(cell.memory, memory):
                raise BadInput(
                    "the array given with a cotangent is not in the memory of its traced"
                )
            place, shape = ViewSlot(place.slot, view_in(cell.memory, memory)), memory.shape
        elif cotangent.shape != shape and cotangent.shape == all_of.shape:
            place, shape = ViewSlot(place.slot, view_in(_memory_of(all_of), all_of)), all_of.shape
    if cotangent.shape != shape:
        raise BadInput(f"a cotangent of shape {cotangent.shape} for a value of shape {shape}")
    adjoint.add(place, cotangent.copy() if shape else cotangent[()])


def _memory_of(value: Array) -> Array:
    """The memory of an array from outside: of its owner, or all between its first and last byte."""
    memory = dense_of(value)
    if memory is not None and memory.dtype == value.dtype:
        return memory
    if value.flags.c_contiguous:
        return value
    raise BadInput(
        f"an array with strides {value.strides} has gaps in its memory; copy it, or give all of it"
    )


def _identical(copy: Array, value: Array) -> bool:
    """Whether an array still is what its copy is, to the bit."""
    if copy.shape != value.shape or copy.strides != value.strides:
        return False
    if value.dtype != np.float64 or not value.flags.c_contiguous:
        return copy.tobytes() == value.tobytes()
    return bool((copy.view(np.int64) == value.view(np.int64)).all())  # in one pass
