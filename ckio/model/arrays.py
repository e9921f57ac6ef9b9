"""Named arrays that are changed in place, their memory as bytes, and the registers of a model."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ckio.actions import Field, Layout
from ckio.errors import BadInput, StorageError

Array = NDArray[np.generic]

_PAGE: Final = 4096
_LARGE: Final = 1 << 16
"""From this number of bytes, the alignment of an array matters for speed."""


def as_bytes(array: Array, /) -> memoryview:
    """Return the memory of an array as bytes, in memory order and without a copy.

    Describe an array in Fortran order by a `Field` with the shape reversed, so that a program that
    reads these bytes finds each element at its index. Raises BadInput for an array that is not
    contiguous: its bytes would be a copy, and data that is read into a copy would be lost.
    """
    if not array.flags.forc:
        raise BadInput(
            "an array must be contiguous (C or Fortran order) to be checkpointed in place; store"
            " np.ascontiguousarray(array) in the model instead"
        )
    return array.reshape(-1, order="A").view(np.uint8).data


class ByteViews:
    """The memory of arrays as bytes, remembered because the same arrays are asked for repeatedly.

    An array is found by its identity, and a reference to it is kept, so that the identity stays
    valid. The arrays of a model exist as long as the model and only exchange their roles.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[Array, memoryview]] = {}

    def of(self, arrays: Iterable[Array], /) -> list[memoryview]:
        """Return the bytes of each array, as `as_bytes` does."""
        known = self._known
        return [(known.get(id(array)) or self._learn(array))[1] for array in arrays]

    def _learn(self, array: Array) -> tuple[Array, memoryview]:
        pair = self._known[id(array)] = array, as_bytes(array)
        return pair

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return type(self), ()  # a copy of a model has arrays of its own


def empty(shape: tuple[int, ...], dtype: DTypeLike, /) -> NDArray[Any]:
    """Return an uninitialised array in C order; a large one begins at the start of a memory page.

    NumPy's large arrays begin 16 bytes after the start of a page. Some processors take three times
    as long to read a file into such an array, and direct I/O cannot use it.
    """
    kind = np.dtype(dtype)
    nbytes = math.prod(shape) * kind.itemsize
    if nbytes < _LARGE or kind.hasobject:
        return np.empty(shape, kind)
    memory = np.empty(nbytes + _PAGE, np.uint8)
    begin = -memory.ctypes.data % _PAGE
    return memory[begin : begin + nbytes].view(kind).reshape(shape)


def copy(value: ArrayLike, /) -> NDArray[Any]:
    """Return a copy of an array in C order; a large one begins at the start of a memory page."""
    source = np.asarray(value)
    target = empty(source.shape, source.dtype)
    target[...] = source
    return target


class Arrays(dict[str, NDArray[Any]]):
    """Named arrays, each changed only in place: `x["u"] += v`, or `x["u"][...] = v`."""

    def __setitem__(self, name: str, value: NDArray[Any]) -> None:
        if value is not self[name]:
            raise TypeError(
                f"array {name!r} cannot be replaced, because arrays are changed in place: write"
                f' x["{name}"][...] = value'
            )

    def __missing__(self, name: str) -> NoReturn:
        raise KeyError(f"there is no array {name!r}; the names are {', '.join(self) or 'none'}")

    def __reduce__(self) -> tuple[type, tuple[dict[str, NDArray[Any]]]]:
        return type(self), (dict(self),)

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError(
            "arrays cannot be added, removed or replaced, because they are changed in place: write"
            ' x["u"][...] = value'
        )

    __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse


class Views(tuple[memoryview, ...]):
    """The bytes of named arrays, from which the arrays themselves can be had again."""

    arrays: Arrays

    @staticmethod
    def of(arrays: Arrays, data: Iterable[memoryview] | None = None, /) -> "Views":
        views = Views(map(as_bytes, arrays.values()) if data is None else data)
        views.arrays = arrays
        return views

    def __reduce__(self) -> tuple[Callable[[Arrays], "Views"], tuple[Arrays]]:
        return Views.of, (self.arrays,)


def check_unmasked(what: str, array: object, /) -> None:
    """Raise BadInput, with `what` as the subject, for a masked array with masked elements."""
    if np.ma.is_masked(array):
        raise BadInput(
            f"{what} is a masked array, and its mask would be lost; give array.filled(value), and"
            " the mask as an array of its own if a step needs it"
        )


def copies(what: str, arrays: Mapping[str, ArrayLike], /) -> Arrays:
    """Return copies in C order; raises BadInput, with `what` as the subject, for Python objects."""
    for name, value in arrays.items():
        check_unmasked(f"{what}: {name!r}", value)
    copied = Arrays({name: copy(value) for name, value in arrays.items()})
    if objects := [name for name, x in copied.items() if x.dtype.hasobject]:
        raise BadInput(
            f"{what} {objects} have Python objects as elements, which cannot be stored as bytes;"
            " use numbers"
        )
    return copied


def is_differentiable(array: Array, /) -> bool:
    """Return whether an array has real or complex numbers, with respect to which J has a gradient.

    Integers, truth values and text do not.
    """
    return np.issubdtype(array.dtype, np.inexact)


@dataclass(frozen=True)
class AdjointRegister:
    """The adjoint register: dJ/dx_i (`cotangent`), the gradient accumulated so far, and J."""

    cotangent: Arrays
    gradient: Arrays
    functional: NDArray[np.float64]

    @staticmethod
    def of(state: Arrays, control: Arrays) -> "AdjointRegister":
        """Return a register of zeros for this state and these controls."""
        return AdjointRegister(
            Arrays({n: np.zeros_like(x) for n, x in state.items() if is_differentiable(x)}),
            Arrays({n: np.zeros_like(x) for n, x in control.items()}),
            np.zeros(()),
        )

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """Return all arrays, in the order of the layout."""
        return *self.cotangent.values(), *self.gradient.values(), self.functional

    def layout(self, units: Mapping[str, str]) -> Layout:
        """Return the layout of all arrays.

        J has the unit of J. The adjoint and the gradient of an array have the unit of J divided by
        the unit of the array: for J in kg and u in m/s, `adjoint_u` has the unit (kg)/(m/s).
        """
        per = {
            name: f"({units['J'] or 1})/({unit})" if unit else units["J"]
            for name, unit in units.items()
        }
        return (
            *(field(f"adjoint_{n}", x, per[n]) for n, x in self.cotangent.items()),
            *(field(f"gradient_{n}", x, per[n]) for n, x in self.gradient.items()),
            field("functional", self.functional, units["J"]),
        )


class Spares:
    """Spare memory into which checkpoints are read: one array like each of `arrays`, to begin with.

    `touched` memory is written once in advance, so that the first read does not wait for the
    operating system to provide its pages. Memory that may never be needed is not touched.
    """

    def __init__(self, arrays: Mapping[str, Array], *, touched: bool) -> None:
        self._free: dict[str, list[NDArray[Any]]] = {
            name: [copy(array) if touched else empty(array.shape, array.dtype)]
            for name, array in arrays.items()
        }

    def take(self, like: Mapping[str, Array], names: Iterable[str], /) -> dict[str, NDArray[Any]]:
        """Return arrays with these names to be filled, each of the form of the one in `like`."""
        return {
            name: free.pop() if (free := self._free.get(name)) else copy(like[name])
            for name in names
        }

    def give(self, arrays: Mapping[str, NDArray[Any]], /) -> None:
        """Take back arrays as spare memory, after some were exchanged with others of their form."""
        for name, array in arrays.items():
            self._free.setdefault(name, []).append(array)


def exchange(arrays: Arrays, others: dict[str, NDArray[Any]], name: str, /) -> None:
    """Exchange the arrays of one name between two dicts."""
    other, others[name] = others[name], arrays[name]
    dict.__setitem__(arrays, name, other)


class Tapes:
    """The tape register: the tapes of consecutive steps, or of one step read as single arrays.

    A level and the model may share the memory of the tape of a single step, because it was passed
    from one to the other without a copy. Nothing is recorded into shared memory: the next record
    uses memory of the model's own, which always suffices for at least one step.

    Parameters
    ----------
    like : mapping of str to array
        The arrays of which the tape of each step holds one.
    """

    def __init__(self, like: Mapping[str, Array]) -> None:
        self._forms = {name: (array.shape, array.dtype) for name, array in like.items()}
        # In one piece of memory the widest types come first, so that each array is aligned.
        ends = accumulate((array.nbytes for array in _widest_first(like).values()), initial=0)
        begins = dict(zip(_widest_first(like), ends, strict=False))
        self._places = [
            (name, array.shape, array.dtype, begins[name], begins[name] + array.nbytes)
            for name, array in like.items()
        ]
        self._nbytes = sum(array.nbytes for array in like.values())
        self._slots = self._allocated(1)  # the model's own memory, for one tape each
        self._first: Views | None = None  # the views of the first of them, if it was made by `give`
        self._shared: Arrays | None = None  # the tape of a single step in shared memory
        self._given = False  # whether a level relies on the values in `_shared`
        self._begin = self._end = 0  # the span of steps whose tapes are in the register
        self._parts: Arrays | None = None  # a tape that is read as single arrays
        self._read = set[str]()  # the arrays of `_parts` that were read since the last record

    def record(self, begin: int, end: int, /) -> None:
        """Allocate memory for the tapes of these steps; the previous tapes are lost."""
        if (lacking := end - begin - len(self._slots)) > 0:
            self._slots += self._allocated(lacking)
        self._begin = self._end = begin
        self._shared = None
        self._read.clear()

    def keep(self, step: int, state: Arrays, /) -> None:
        """Copy the present state to the tape of this step, which follows the last recorded one."""
        for name, slot in self._slots[step - self._begin].items():
            np.copyto(slot, state[name])
        self._end = step + 1

    def of(self, step: int, /) -> Arrays:
        """Return the tape of a step; only the arrays that were read, if it was read as arrays."""
        if self._begin <= step < self._end:
            return self._slots[step - self._begin] if self._shared is None else self._shared
        parts = self._in_parts()
        return Arrays({name: array for name, array in parts.items() if name in self._read})

    def may_hold(self, step: int, /) -> bool:
        """Return whether the register has the tape of a step, or may have it as single arrays."""
        return self._begin <= step < self._end or bool(self._read)

    def to_spend(self, step: int, /) -> Arrays:
        """Return the tape of a step to be reversed, in memory that the adjoint may overwrite.

        A tape is first copied to the model's own memory if a level relies on the shared memory, or
        if it was read as single arrays, because those are read once for several steps.
        """
        if self._begin <= step < self._end:
            if self._shared is not None and self._given:
                self._copy_back()
            return self.of(step)
        own = Arrays({name: self._slots[0][name] for name in self._read})
        for name, array in self.of(step).items():
            np.copyto(own[name], array)
        return own

    def spend(self, step: int, /) -> None:
        """Drop the tape of a step that was reversed, the last one of the span."""
        self._end = min(self._end, step)
        self._shared = None
        if step == 0:  # nothing is recorded any more, so memory of a level can be released
            self._slots, self._first = self._allocated(1), None

    def read(self, step: int | None, names: Iterable[str], /) -> Arrays:
        """Return the arrays that are to be exchanged with those read from a checkpoint.

        `step` is None for single arrays, and otherwise the step of a whole tape.
        """
        self._shared = None
        if step is None:
            self._end = self._begin
            self._read.update(names)
            return self._in_parts()
        self._begin, self._end, self._first = step, step + 1, None
        return self._slots[0]

    def take(self, step: int, arrays: Arrays, /) -> None:
        """Adopt the tape of a single step, without a copy."""
        self._begin, self._end = step, step + 1
        self._shared, self._given = arrays, False

    def give(self, step: int, slot: Callable[[int], memoryview], /) -> Views:
        """Return the tape of a step, in memory into which nothing is recorded any more.

        Memory that is shared already is not given again: the tape is copied.
        """
        memory = self._memory(slot)
        if self._shared is None and self._begin == step == self._end - 1:
            given = self._first or Views.of(self._slots[0])
            self._slots[0], self._first = memory.arrays, memory
            self._shared, self._given = given.arrays, True
            return given
        tape = self.of(step)
        for name, array in memory.arrays.items():
            np.copyto(array, tape[name])
        return memory

    def single(self) -> Arrays:
        """Return the tape of a single step, from which single arrays are written."""
        if self._end - self._begin == 1:
            return self.of(self._begin)
        return self._in_parts()

    def _copy_back(self) -> None:
        shared, self._shared = self._shared, None
        assert shared is not None
        for name, array in self._slots[0].items():
            np.copyto(array, shared[name])

    def _memory(self, slot: Callable[[int], memoryview]) -> Views:
        """Return memory for the tape of a step: a slot of a level, or else newly allocated."""
        try:
            memory = slot(self._nbytes)
        except StorageError:
            return Views.of(self._allocated(1)[0])
        arrays, data = dict[str, NDArray[Any]](), []
        for name, shape, dtype, begin, end in self._places:
            arrays[name] = np.ndarray(shape, dtype, memory, begin)
            data.append(memory[begin:end])
            if not arrays[name].flags.aligned:
                return Views.of(self._allocated(1)[0])
        return Views.of(Arrays(arrays), data)

    def _in_parts(self) -> Arrays:
        if self._parts is None:
            (self._parts,) = self._allocated(1)
        return self._parts

    def _allocated(self, count: int) -> list[Arrays]:
        """Allocate the tapes of `count` steps, with one allocation for each name.

        Large allocations cause fewer page faults.
        """
        memory = {
            name: empty((count, *shape), dtype) for name, (shape, dtype) in self._forms.items()
        }
        return [Arrays({name: memory[name][k, ...] for name in memory}) for k in range(count)]


def _widest_first(arrays: Mapping[str, Array]) -> Mapping[str, Array]:
    return dict(sorted(arrays.items(), key=lambda item: -item[1].dtype.alignment))


def field(name: str, array: Array, unit: str) -> Field:
    """Return the field that describes an array."""
    return Field(name, array.dtype.str, array.shape, unit)
