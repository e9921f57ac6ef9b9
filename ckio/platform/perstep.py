"""One number for each step of a chain, in a column that does not change."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ckio.actions.checks import check_cost
from ckio.errors import BadInput

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

    def __reduce__(self) -> tuple[type["PerStep"], tuple[NDArray[Any]]]:
        return PerStep, (self.values,)  # made anew: a column that was pickled may be written to

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


Each: TypeAlias = Sequence[Any] | NDArray[Any] | PerStep
"""One number for each step."""


def one_or_each(
    what: str,
    given: Any,
    steps: int | None,
    check: Callable[[str, object], Any],
    /,
    *,
    of_states: bool,
) -> Any:
    """A cost as one number, or as a PerStep where there are several; raises BadInput.

    `of_states`, there may be one more than there are steps.
    """
    if not _is_sequence(given):
        return check(what, given)
    if steps is None:
        raise BadInput(f"{what} has a value for each step, and the number of steps is not known")
    if len(given) not in (steps, steps + of_states):
        raise BadInput(f"{what} has {len(given)} values; the chain has {steps} steps")
    values = _column(what, given, check)
    if len(values) < steps + of_states:
        values = np.append(values, values[-1])
    if (values == values[0]).all():
        return check(what, values[0].item())
    return PerStep(values)


def _is_sequence(given: object) -> bool:
    if isinstance(given, np.ndarray):
        return given.ndim > 0
    return isinstance(given, Sequence | PerStep) and not isinstance(given, str | bytes)


def _column(what: str, given: Each, check: Callable[[str, object], Any]) -> NDArray[Any]:
    """The numbers, each of which passes its `check`, as float64 or int64."""
    dtype = np.float64 if check is check_cost else np.int64
    if isinstance(given, PerStep):
        given = given.values
    if set(map(type, given)) == {float if dtype is np.float64 else int}:
        with suppress(OverflowError):
            given = np.array(given, dtype)
    if isinstance(given, np.ndarray) and given.ndim == 1 and given.dtype == dtype:
        good = np.isfinite(given) & (given >= 0)
        if not good.all():
            step = int(good.argmin())
            check(f"{what}[{step}]", given[step])
        return given
    values = [check(f"{what}[{step}]", value) for step, value in enumerate(given)]
    try:
        return np.array(values, dtype)
    except OverflowError:
        raise BadInput(f"{what}: a checkpoint must be below 2**63 bytes") from None
