"""One number for each step of a chain, in a column that does not change."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

_SHOWN = 3
"""How many numbers at either end a representation shows."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PerStep:
    """Numbers by step: compared, hashed and walked like a tuple of plain ones, kept in columns.

    It has no arithmetic on purpose: what takes it for the one number of a chain whose steps are all
    alike fails at once, and cannot go on with something else.

    Attributes
    ----------
    values : float64 or int64 array
        One for each step; read only.
    before : array of the same type, one longer
        Their sums from the left: of none, of the first, of the first two; read only.
    """

    values: NDArray[Any]
    before: NDArray[Any] = field(init=False)

    def __post_init__(self) -> None:
        values = self.values + self.values.dtype.type(0)  # a copy, and -0.0 is 0.0 there
        before = np.zeros(len(values) + 1, values.dtype)
        with np.errstate(over="ignore"):
            np.cumsum(values, out=before[1:])
        for name, column in (("values", values), ("before", before)):
            column.flags.writeable = False
            object.__setattr__(self, name, column)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, step: int, /) -> Any:
        return self.values[step].item()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values.tolist())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PerStep):
            return NotImplemented
        return np.array_equal(self.values, other.values)

    def __hash__(self) -> int:
        return hash(self.values.tobytes())

    def __repr__(self) -> str:
        shown = [repr(value) for value in self]
        if len(shown) > 2 * _SHOWN:
            shown[_SHOWN:-_SHOWN] = ["..."]
        return f"PerStep({len(self)}: {', '.join(shown)})"
