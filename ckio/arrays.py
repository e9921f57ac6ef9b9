"""Named arrays that stay where they are, and their memory as bytes."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckio.errors import BadInput

Array = NDArray[np.generic]


def as_bytes(array: Array, /) -> memoryview:
    """The memory of an array as bytes, in memory order and without a copy.

    Raises BadInput for an array that is not contiguous: a copy of it would be read into and lost.
    """
    if not array.flags.forc:
        raise BadInput(
            "an array must be contiguous (C or Fortran order) to be checkpointed in place"
        )
    return array.reshape(-1, order="A").view(np.uint8).data


class Arrays(dict[str, NDArray[Any]]):
    """Named arrays, each changed only in place: `x["u"] += v`, or `x["u"][...] = v`."""

    def __setitem__(self, name: str, value: NDArray[Any]) -> None:
        if value is not self.get(name):
            raise TypeError(f'arrays are changed in place: write x["{name}"][...] = value')
