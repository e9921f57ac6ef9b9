"""Named arrays that stay where they are, their memory as bytes, and registers made of them."""

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
"""Bytes from which it matters where an array begins."""


def as_bytes(array: Array, /) -> memoryview:
    """Return the memory of an array as bytes, in memory order and without a copy.

    An array in Fortran order is described by a `Field` with its shape reversed, so that what reads
    its bytes finds every element where it belongs. Raises BadInput for an array that is not
    contiguous: a copy of it would be read into and lost.
    """
    if not array.flags.forc:
        raise BadInput(
            "an array must be contiguous (C or Fortran order) to be checkpointed in place"
        )
    return array.reshape(-1, order="A").view(np.uint8).data


class ByteViews:
    """The memory of arrays that are asked for again and again: looked up, and not made each time.

    An array is known by its identity, and kept: those of a model stay, and only change places.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[Array, memoryview]] = {}

    def of(self, arrays: Iterable[Array], /) -> list[memoryview]:
        """Return their bytes, as `as_bytes` gives them."""
        known = self._known
        return [(known.get(id(array)) or self._learn(array))[1] for array in arrays]

    def _learn(self, array: Array) -> tuple[Array, memoryview]:
        pair = self._known[id(array)] = array, as_bytes(array)
        return pair

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return type(self), ()  # a copy of a model has arrays of its own


def empty(shape: tuple[int, ...], dtype: DTypeLike, /) -> NDArray[Any]:
    """Return an array without content, in C order; a large one begins where a page begins.

    NumPy's own begin 16 bytes behind that, where some processors take three times as long to
    read a file into them, and where direct I/O cannot reach them.
    """
    kind = np.dtype(dtype)
    nbytes = math.prod(shape) * kind.itemsize
    if nbytes < _LARGE or kind.hasobject:
        return np.empty(shape, kind)
    room = np.empty(nbytes + _PAGE, np.uint8)
    begin = -room.ctypes.data % _PAGE
    return room[begin : begin + nbytes].view(kind).reshape(shape)


def copy(value: ArrayLike, /) -> NDArray[Any]:
    """Return a copy, in C order, in memory as `empty` makes it."""
    source = np.asarray(value)
    target = empty(source.shape, source.dtype)
    target[...] = source
    return target


class Arrays(dict[str, NDArray[Any]]):
    """Named arrays, each changed only in place: `x["u"] += v`, or `x["u"][...] = v`."""

    def __setitem__(self, name: str, value: NDArray[Any]) -> None:
        if value is not self[name]:
            raise TypeError(f'arrays are changed in place: write x["{name}"][...] = value')

    def __missing__(self, name: str) -> NoReturn:
        raise KeyError(f"no array is called {name!r} here; there are {', '.join(self) or 'none'}")

    def __reduce__(self) -> tuple[type, tuple[dict[str, NDArray[Any]]]]:
        return type(self), (dict(self),)

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError('these arrays stay, and are changed in place: write x["u"][...] = value')

    __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse


def copies(what: str, arrays: Mapping[str, ArrayLike], /) -> Arrays:
    """Copies, in C order; raises BadInput, which says `what` they are, for arrays of objects."""
    copied = Arrays({name: copy(value) for name, value in arrays.items()})
    if objects := [name for name, x in copied.items() if x.dtype.hasobject]:
        raise BadInput(f"{what} {objects} hold objects, whose bytes mean nothing")
    return copied


def is_differentiable(array: Array, /) -> bool:
    """Return whether an array holds real or complex numbers, which have a derivative."""
    return np.issubdtype(array.dtype, np.inexact)


@dataclass(frozen=True)
class AdjointRegister:
    """The adjoint register: dJ/dx_i, the gradient so far, and J."""

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
        """Return the layout of all arrays; J and dJ have the units of J, the others per array."""
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
    """Memory that checkpoints are read into: an array like each of these, made ahead.

    It is `touched`, too, unless it may well never be needed.
    """

    def __init__(self, arrays: Mapping[str, Array], *, touched: bool) -> None:
        self._free: dict[str, list[NDArray[Any]]] = {
            name: [copy(array) if touched else empty(array.shape, array.dtype)]
            for name, array in arrays.items()
        }

    def take(self, like: Mapping[str, Array], names: Iterable[str], /) -> dict[str, NDArray[Any]]:
        """Return arrays of these names to fill, each like the one in `like`."""
        return {
            name: free.pop() if (free := self._free.get(name)) else copy(like[name])
            for name in names
        }

    def give(self, arrays: Mapping[str, NDArray[Any]], /) -> None:
        """Take arrays back as spare, or others that took their places."""
        for name, array in arrays.items():
            self._free.setdefault(name, []).append(array)


def exchange(arrays: Arrays, others: dict[str, NDArray[Any]], name: str, /) -> None:
    """Let the array of a name in others take the place of the one in arrays, and that its own."""
    other, others[name] = others[name], arrays[name]
    dict.__setitem__(arrays, name, other)


class Tapes:
    """The tape register: of some steps in a row, or of one put together of single arrays.

    The tape of a single step may be shared with a level: it was given to it, or taken from it. It
    then lies in memory that nothing is recorded into; what is recorded next lies in memory of the
    model's own, of which there is always enough for one step.

    Parameters
    ----------
    like : mapping of str to array
        The arrays of which the tape of each step holds one.
    """

    def __init__(self, like: Mapping[str, Array]) -> None:
        self._forms = {name: (array.shape, array.dtype) for name, array in like.items()}
        # In one piece of memory the widest types come first: then each begins where it may.
        ends = accumulate((array.nbytes for array in _widest_first(like).values()), initial=0)
        begins = dict(zip(_widest_first(like), ends, strict=False))
        self._places = {name: (form, begins[name]) for name, form in self._forms.items()}
        self._nbytes = sum(array.nbytes for array in like.values())
        self._slots = self._allocated(1)  # memory of its own
        self._shared: Arrays | None = None  # the tape of a single step, elsewhere
        self._given = False  # whether a level relies on what it holds
        self._begin = self._end = 0  # whose tapes they hold
        self._parts: Arrays | None = None
        self._read = set[str]()  # the parts that were read since the last record

    def record(self, begin: int, end: int, /) -> None:
        """Allocate the tape of these steps; the previous contents are lost."""
        if (lacking := end - begin - len(self._slots)) > 0:
            self._slots += self._allocated(lacking)
        self._begin = self._end = begin
        self._shared = None
        self._read.clear()

    def keep(self, step: int, state: Arrays, /) -> None:
        """Keep what the state holds now as the tape of this step, the next one."""
        for name, slot in self._slots[step - self._begin].items():
            np.copyto(slot, state[name])
        self._end = step + 1

    def of(self, step: int, /) -> Arrays:
        """Return the tape of a step: the parts that were read, where it is not one of a row."""
        if self._begin <= step < self._end:
            return self._slots[step - self._begin] if self._shared is None else self._shared
        parts = self._in_parts()
        return Arrays({name: array for name, array in parts.items() if name in self._read})

    def may_hold(self, step: int, /) -> bool:
        """Whether a tape is held that could be that of a step."""
        return self._begin <= step < self._end or bool(self._read)

    def to_spend(self, step: int, /) -> Arrays:
        """Return the tape of a step to reverse, which may overwrite it: no level relies on it."""
        if self._shared is not None and self._given:
            self._copy_back()
        return self.of(step)

    def spend(self, step: int, /) -> None:
        """Drop the tape of a step that is reversed, the last of those in a row."""
        self._end = min(self._end, step)
        self._shared = None
        if step == 0:  # nothing is recorded any more: what it has of a level's memory is free
            self._slots = self._allocated(1)

    def read(self, step: int | None, names: Iterable[str], /) -> Arrays:
        """Return the arrays that those read of a step replace; None: of a tape in parts."""
        self._shared = None
        if step is None:
            self._end = self._begin
            self._read.update(names)
            return self._in_parts()
        self._begin, self._end = step, step + 1
        return self._slots[0]

    def take(self, step: int, arrays: Arrays, /) -> None:
        """Adopt the tape of a single step where it is."""
        self._begin, self._end = step, step + 1
        self._shared, self._given = arrays, False

    def give(self, step: int, slot: Callable[[int], memoryview], /) -> Arrays:
        """Return the tape of a step, in memory that is not recorded into any more."""
        tape = self.of(step)
        if self._shared is None:
            memory = self._memory(slot)
            if (self._begin, self._end) == (step, step + 1):
                self._slots[0], self._shared = memory, tape
            else:
                for name, array in memory.items():
                    np.copyto(array, tape[name])
                tape = memory
        self._given = True
        return tape

    def single(self) -> Arrays:
        """Return the tape of the one step from which single arrays are written."""
        if self._end - self._begin == 1:
            return self.of(self._begin)
        return self._in_parts()

    def _copy_back(self) -> None:
        shared, self._shared = self._shared, None
        assert shared is not None
        for name, array in self._slots[0].items():
            np.copyto(array, shared[name])

    def _memory(self, slot: Callable[[int], memoryview]) -> Arrays:
        """Return memory for the tape of a step: a slot of a level, or else its own."""
        try:
            memory = slot(self._nbytes)
        except StorageError:
            return self._allocated(1)[0]
        arrays = Arrays(
            {name: np.ndarray(*form, memory, begin) for name, (form, begin) in self._places.items()}
        )
        if all(array.flags.aligned for array in arrays.values()):
            return arrays
        return self._allocated(1)[0]

    def _in_parts(self) -> Arrays:
        if self._parts is None:
            (self._parts,) = self._allocated(1)
        return self._parts

    def _allocated(self, count: int) -> list[Arrays]:
        """Allocate the tapes of `count` steps in one piece, which costs fewer page faults."""
        memory = {
            name: empty((count, *shape), dtype) for name, (shape, dtype) in self._forms.items()
        }
        return [Arrays({name: memory[name][k, ...] for name in memory}) for k in range(count)]


def _widest_first(arrays: Mapping[str, Array]) -> Mapping[str, Array]:
    return dict(sorted(arrays.items(), key=lambda item: -item[1].dtype.alignment))


def field(name: str, array: Array, unit: str) -> Field:
    """Return the field that describes an array."""
    return Field(name, array.dtype.str, array.shape, unit)
