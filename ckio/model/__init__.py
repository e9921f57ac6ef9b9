"""The protocol of a model: forward, recording and adjoint steps, and its checkpoints' bytes."""

import reprlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypedDict, runtime_checkable

from ckio.actions import Buffers, Key, Kind, Layout, is_layout, nbytes_of
from ckio.actions.checks import is_whole, told
from ckio.errors import BadInput, RunFailed, UnsupportedKind
from ckio.model.arraymodel import ArrayModel
from ckio.model.arrays import Array, Arrays, as_bytes

__all__ = [
    "Array",
    "ArrayModel",
    "Arrays",
    "Differentiable",
    "ForwardingModel",
    "Handing",
    "Model",
    "as_bytes",
    "handed_by",
    "sizes_of",
]


class Model(Protocol):
    """The forward and the adjoint of a computation in steps.

    A fresh model stands at x_0, holds no tape, and its adjoint stands at n. The moves come only in
    orders that the `Machine` allows, so a model need not check them.

    One whose checkpoints differ in size, and are not known before they are there, has an attribute
    `estimated` that is true: then what a chain says of their bytes need not be what they have. One
    that may know where it ends before it is asked to go on has an attribute `steps`: n, or None.

    One whose state can be looked at has a method `images()`, which returns arrays of one or two
    dimensions by name. It is called once the forward has reached x_n, and the report then shows
    these arrays and, after the reverse sweep, those of `gradient`.
    """

    def layout(self, key: Key, /) -> Layout:
        """Return the layout of a checkpoint; raises UnsupportedKind."""

    def advance(self, begin: int, end: int, /) -> int:
        """Run the forward from x_begin; returns the step reached, `end` unless it finished."""

    def record(self, begin: int, end: int, /) -> int:
        """Like `advance`, replacing the tape by that of these steps."""

    def reverse(self, begin: int, end: int, /) -> None:
        """Run the adjoint from `end` back to `begin`, spending the tape."""

    def dump(self, key: Key, /) -> Buffers:
        """Return live views of what `key` names, valid until the next call."""

    def load(self, key: Key, layout: Layout, /) -> AbstractContextManager[Buffers]:
        """Give buffers to fill, which are adopted only where the context ends well."""


@runtime_checkable
class Handing(Protocol):
    """A model that hands whole checkpoints of some kinds over in memory, without a copy.

    What such a model offers beside `dump` and `load`, which it has, too. With it a tape that is
    recorded lies already where it is stored, and is reversed from there.

    Attributes
    ----------
    handed : frozenset of Kind
        Of which kinds it does; never those of single variables.
    """

    @property
    def handed(self) -> frozenset[Kind]: ...

    def give(self, key: Key, slot: Callable[[int], memoryview], /) -> Buffers:
        """Return the bytes of a checkpoint, like `dump`, in memory that the model does not change.

        What it records, or computes, from now on lies elsewhere: `slot(nbytes)` is memory for it,
        and may raise StorageError. The registers are as before.
        """

    def take(self, key: Key, layout: Layout, data: Buffers, /) -> None:
        """Adopt a checkpoint, as after `load`, from these bytes where they are.

        They are only read, unless by the adjoint step that spends a tape. Raises BadInput where
        they are no checkpoint of this model, which is then unchanged.
        """


class Differentiable(Model, Protocol):
    """A model that also says what was computed.

    Attributes
    ----------
    functional : float
        The value that is differentiated, once the forward has reached the end.
    gradient : mapping of str to array
        Its derivative with respect to each control, once the adjoint has reached 0.
    control : mapping of str to array
        The live arrays that the gradient refers to; change them only before the first move.
    """

    @property
    def functional(self) -> float: ...
    @property
    def gradient(self) -> Mapping[str, Array]: ...
    @property
    def control(self) -> Mapping[str, Array]: ...


class ForwardingModel:
    """A model that passes all that it does not do itself to another, whose attributes it has.

    A subclass does some of it in its own way. Attributes that not every model has, as `on_step`,
    are there if the other has them.
    """

    def __init__(self, model: Differentiable, /) -> None:
        self._model = model
        if isinstance(model, Handing):
            self.handed, self.give, self.take = model.handed, model.give, model.take

    def layout(self, key: Key, /) -> Layout:
        return self._model.layout(key)

    def advance(self, begin: int, end: int, /) -> int:
        return self._model.advance(begin, end)

    def record(self, begin: int, end: int, /) -> int:
        return self._model.record(begin, end)

    def reverse(self, begin: int, end: int, /) -> None:
        self._model.reverse(begin, end)

    def dump(self, key: Key, /) -> Buffers:
        return self._model.dump(key)

    def load(self, key: Key, layout: Layout, /) -> AbstractContextManager[Buffers]:
        return self._model.load(key, layout)

    @property
    def functional(self) -> float:
        return self._model.functional

    @property
    def gradient(self) -> Mapping[str, Any]:
        return self._model.gradient

    @property
    def control(self) -> Mapping[str, Any]:
        return self._model.control

    @property
    def on_step(self) -> Any:
        """The function that the model calls after each step, if it calls one."""
        return getattr(self._model, "on_step")  # noqa: B009  (not every model has it)

    @on_step.setter
    def on_step(self, call: Callable[[int], None] | None) -> None:
        setattr(self._model, "on_step", call)  # noqa: B010

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def reached(method: str, value: object, begin: int, end: int, /) -> int:
    """Return the step that `advance` or `record` returned; raises RunFailed for anything else.

    What it returns may be compared with steps only then: an array would answer in its own words.
    """
    if is_whole(value) and begin <= value <= end:
        return int(value)
    raise RunFailed(
        f"the model's {method} from {begin} returned {told(value)}; it must return the step where"
        f" it stands, {end} unless it finished before"
    )


def layout_of(model: Model, key: Key, /) -> Layout:
    """Return the layout that a model gives a checkpoint; raises BadInput where it is none."""
    layout: object = model.layout(key)
    if is_layout(layout):
        return layout
    raise BadInput(
        f"the model's layout of {key} is {reprlib.repr(layout)}; it must be a tuple of"
        " Field(name, dtype, shape, unit), such as Field('u', '<f8', (64, 64))"
    )


def functional_of(model: Differentiable, /) -> float:
    """Return the value that is differentiated; raises RunFailed where it is no number."""
    value = model.functional
    try:
        float(value)
    except (TypeError, ValueError):
        raise RunFailed(
            f"the model's functional is {told(value)}; it must be J, a number"
        ) from None
    return value  # of its own precision


class Sizes(TypedDict):
    """Bytes of a checkpoint of each kind, as `Chain` takes them."""

    restart: int
    tape: int
    adjoint: int


def sizes_of(model: Model, /) -> Sizes:
    """Return bytes of a model's checkpoints; 0 for a kind that it does not support.

    Of one that is a part of what many ranks compute, those of the rank where they are largest.
    """
    largest: Sizes | None = getattr(model, "largest_sizes", None)
    if largest is not None:
        return largest
    return Sizes(
        restart=_nbytes(model, Kind.RESTART),
        tape=_nbytes(model, Kind.TAPE),
        adjoint=_nbytes(model, Kind.ADJOINT),
    )


def _nbytes(model: Model, kind: Kind) -> int:
    try:
        return nbytes_of(layout_of(model, Key(kind, 0)))
    except UnsupportedKind:
        return 0


def handed_by(model: object, /) -> frozenset[Kind]:
    """Return the kinds of checkpoints that a model hands over in memory."""
    return model.handed if isinstance(model, Handing) else frozenset()
