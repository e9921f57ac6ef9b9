"""Named arrays that stay where they are, and their memory as bytes."""

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ckio.errors import BadInput

Array = NDArray[np.generic]


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
    found = Arrays({name: np.array(value, order="C") for name, value in arrays.items()})
    if objects := [name for name, x in found.items() if x.dtype.hasobject]:
        raise BadInput(f"{what} {objects} hold objects, whose bytes mean nothing")
    return found


def is_differentiable(array: Array, /) -> bool:
    """Whether it holds numbers that have a derivative: real or complex, not whole ones."""
    return np.issubdtype(array.dtype, np.inexact)
