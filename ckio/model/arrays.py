"""Named arrays that stay where they are, and their memory as bytes."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ckio.errors import BadInput

Array = NDArray[np.generic]

_PAGE: Final = 4096
_LARGE: Final = 1 << 16
"""Bytes from which it matters where an array begins."""


def as_bytes(array: Array, /) -> memoryview:
    """The memory of an array as bytes, in memory order and without a copy.

    An array in Fortran order is described by a `Field` with its shape reversed, so that what reads
    its bytes finds every element where it belongs. Raises BadInput for an array that is not
    contiguous: a copy of it would be read into and lost.
    """
    if not array.flags.forc:
        raise BadInput(
            "an array must be contiguous (C or Fortran order) to be checkpointed in place"
        )
    return array.reshape(-1, order="A").view(np.uint8).data


class Views:
    """The memory of arrays that are asked for again and again: looked up, and not made each time.

    An array is known by its identity, and kept: those of a model stay, and only change places.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[Array, memoryview]] = {}

    def of(self, arrays: Iterable[Array], /) -> list[memoryview]:
        """Their bytes, as `as_bytes` gives them."""
        known = self._known
        return [(known.get(id(array)) or self._learn(array))[1] for array in arrays]

    def _learn(self, array: Array) -> tuple[Array, memoryview]:
        found = self._known[id(array)] = array, as_bytes(array)
        return found

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return type(self), ()  # a copy of a model has arrays of its own


def empty(shape: tuple[int, ...], dtype: DTypeLike, /) -> NDArray[Any]:
    """An array without content, in C order; a large one begins where a page begins.

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
    """A copy, in C order, in memory as `empty` makes it."""
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
    found = Arrays({name: copy(value) for name, value in arrays.items()})
    if objects := [name for name, x in found.items() if x.dtype.hasobject]:
        raise BadInput(f"{what} {objects} hold objects, whose bytes mean nothing")
    return found


def is_differentiable(array: Array, /) -> bool:
    """Whether it holds numbers that have a derivative: real or complex, not whole ones."""
    return np.issubdtype(array.dtype, np.inexact)
