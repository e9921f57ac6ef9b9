"""Values in memory of their own, quickly: where each array is a piece of memory for itself."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray


class Unclear(Exception):
    """A value that has to be looked at more closely."""


class Copying:
    """Copies values one after the other; what is one list or array stays one.

    Lists and dicts are made anew, and arrays in the order that they have. Raises Unclear for
    arrays that may share memory, or are not in one piece, and for all but plain values.
    """

    def __init__(self) -> None:
        self._made: dict[int, Any] = {}
        self._owners: set[int] = set()

    def copy(self, value: Any, /) -> Any:
        """The same value; the one that is given has to outlive this object."""
        kind = type(value)
        if kind in _SAME:
            return value
        if kind is tuple:
            return tuple(map(self.copy, value))
        number = id(value)
        if number in self._made:
            return self._made[number]
        made: Any
        if kind is np.ndarray:
            made = self._made[number] = self._array(value)
        elif kind is list:
            made = self._made[number] = []
            made.extend(map(self.copy, value))
        elif kind is dict:
            made = self._made[number] = {}
            made.update(zip(map(self.copy, value), map(self.copy, value.values()), strict=True))
        else:
            raise Unclear
        return made

    def _array(self, array: NDArray[Any]) -> NDArray[Any]:
        owner = array if array.base is None else array.base
        alone = type(owner) is np.ndarray and owner.base is None and id(owner) not in self._owners
        if not alone or not array.flags.forc or array.dtype.kind not in _KINDS:
            raise Unclear
        self._owners.add(id(owner))
        return array.copy("K")


_KINDS: Final = frozenset("biufcSUmM")
_NUMBERS: Final = "? b h i l q B H I L Q e f d F D"
_SAME: Final = frozenset(
    [type(None), bool, int, float, complex, str, bytes, range]
    + [np.dtype(code).type for code in _NUMBERS.split()]
)
"""Types of what nobody can change, and a checkpoint can hold."""
