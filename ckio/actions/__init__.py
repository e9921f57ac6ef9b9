"""Keys of checkpoints, the layout of their bytes, and the six actions of a schedule.

Step i takes the state x_i to x_{i+1}. Every span of steps is half-open, `[begin, end)`, and
increasing, also in `Reverse`, which visits the steps of the span backwards. `schedule/machine.py`
is the only definition of what the actions mean.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from operator import index
from typing import TypeAlias, TypeGuard

import numpy as np

from ckio.errors import BadInput

Buffers: TypeAlias = Sequence[memoryview]
"""The bytes of one checkpoint: contiguous byte views, in an order that the model fixes."""


class Kind(Enum):
    """The kind of data in a checkpoint. The value is its letter in texts and pictures."""

    RESTART = "x"
    """Restart data x_i: the state from which the forward sweep starts step i (a snapshot)."""
    TAPE = "t"
    """The tape of step i: the non-linear dependency data that the adjoint needs to reverse the
    step.
    """
    ADJOINT = "a"
    """The adjoint at step i, from which an interrupted adjoint sweep is resumed."""

    # Each kind exists once, so that its identity is its hash. The hash of Enum is slower: it hashes
    # the name of the kind, in Python, whenever a key is looked up.
    __hash__ = object.__hash__


def _whole(what: str, number: object) -> int:
    """Return a whole number of any type (for example numpy's) as an int, or raise BadInput."""
    try:
        return index(number)  # type: ignore[arg-type]
    except TypeError:
        raise BadInput(f"{what} = {number!r}; it must be a whole number") from None


@dataclass(frozen=True, slots=True)
class Key:
    """The name of a checkpoint. Within one run, the key determines the bytes of its checkpoint.

    `name` is one variable of the checkpoint, or "" for the whole checkpoint.
    """

    kind: Kind
    step: int
    name: str = ""

    def __post_init__(self) -> None:
        if type(self.kind) is not Kind:
            raise BadInput(f"Key: kind = {self.kind!r}; it must be a Kind")
        if type(self.step) is not int:
            object.__setattr__(self, "step", _whole("Key: step", self.step))
        if self.step < 0:
            raise BadInput(f"Key: step {self.step} is negative; steps count from 0")

    def __str__(self) -> str:
        return f"{self.kind.value}_{self.step}" + (f".{self.name}" if self.name else "")


@dataclass(frozen=True, slots=True)
class Field:
    """One array of a checkpoint: what is needed to allocate it and to name it in a file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    unit: str = ""


Layout: TypeAlias = tuple[Field, ...]
"""The fields of a checkpoint, one for each buffer."""


@dataclass(frozen=True, slots=True)
class _Span:
    begin: int
    end: int

    def __post_init__(self) -> None:
        if not type(self.begin) is type(self.end) is int:
            for name in ("begin", "end"):
                number = _whole(f"{type(self).__name__}: {name}", getattr(self, name))
                object.__setattr__(self, name, number)
        if not 0 <= self.begin < self.end:
            raise BadInput(
                f"{type(self).__name__}: [{self.begin}, {self.end}) is not a span of steps;"
                " 0 <= begin < end must hold"
            )

    def __str__(self) -> str:
        return f"{type(self).__name__}[{self.begin}, {self.end})"


@dataclass(frozen=True, slots=True)
class _Access:
    key: Key
    level: int

    def __post_init__(self) -> None:
        if type(self.level) is not int:
            level = _whole(f"{type(self).__name__}: level", self.level)
            object.__setattr__(self, "level", level)
        if self.level < 0:
            raise BadInput(
                f"{type(self).__name__}: level {self.level} is negative; levels count from 0"
            )

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.key}, level {self.level})"


class Advance(_Span):
    """Run the forward model over the steps of the span, without recording."""

    __slots__ = ()


class Record(_Span):
    """Run the forward model over the steps of the span, and record their tape."""

    __slots__ = ()


class Reverse(_Span):
    """Run the adjoint backwards over the steps of the span; this consumes their tape."""

    __slots__ = ()


class Write(_Access):
    """Store a checkpoint with the contents of its register."""

    __slots__ = ()


class Read(_Access):
    """Load a checkpoint into its register; the checkpoint remains stored."""

    __slots__ = ()


class Discard(_Access):
    """Remove a checkpoint from a level."""

    __slots__ = ()


Action: TypeAlias = Advance | Record | Reverse | Write | Read | Discard


def field_nbytes(field: Field, /) -> int:
    """Return the bytes of one array.

    >>> field_nbytes(Field("u", "float64", (3, 2)))
    48
    """
    return np.dtype(field.dtype).itemsize * math.prod(field.shape)


def nbytes_of(layout: Layout, /) -> int:
    """Return the bytes of a whole checkpoint."""
    return sum(map(field_nbytes, layout))


def is_layout(value: object, /) -> TypeGuard[Layout]:
    """Return whether a value is a layout with valid dtypes and shapes."""
    if not isinstance(value, tuple) or not all(isinstance(field, Field) for field in value):
        return False
    try:
        nbytes_of(value)
    except (TypeError, ValueError):
        return False
    return True
