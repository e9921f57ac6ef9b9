"""The protocol of a model: the forward, its recording, the adjoint, and the checkpoints' bytes.

Throughout, x_i is the state before step i, and a run of n steps takes x_0 to x_n.
"""

import reprlib
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any, Final, Protocol, TypedDict, cast, runtime_checkable

from ckio.actions import Buffers, Key, Kind, Layout, is_layout, nbytes_of
from ckio.actions.checks import describe, is_whole
from ckio.actions.variables import Variables
from ckio.errors import BadInput, RunFailed, UnsupportedKind
from ckio.model.arraymodel import ArrayModel
from ckio.model.arrays import Array, Arrays, as_bytes

__all__ = [
    "TANGENT",
    "Array",
    "ArrayModel",
    "Arrays",
    "Differentiable",
    "ForwardingModel",
    "Handing",
    "Model",
    "OptionalMembers",
    "TwiceDifferentiable",
    "as_bytes",
    "handed_by",
    "optional",
    "sizes_of",
]


class Model(Protocol):
    """The forward and the adjoint of a computation in time steps, with their checkpoints.

    A fresh model is at x_0, has no tape, and its adjoint is at n. ckio calls the methods only in
    orders that the `Machine` allows, so that a model need not check the order. It may have more
    members: see `OptionalMembers`.
    """

    def layout(self, key: Key, /) -> Layout:
        """Return the layout of a checkpoint: one `Field` (name, dtype, shape, unit) per array.

        Raises UnsupportedKind if the model has no checkpoints of this kind.
        """

    def advance(self, begin: int, end: int, /) -> int:
        """Run the forward steps begin, ..., end - 1, from x_begin to x_end, without a tape.

        Return the step that is reached. It is `end`, unless the model finished before.
        """

    def record(self, begin: int, end: int, /) -> int:
        """Run the same steps as `advance`, and record their tape, which replaces any other tape.

        Return the step that is reached, as `advance` does.
        """

    def reverse(self, begin: int, end: int, /) -> None:
        """Run the adjoint steps end - 1, ..., begin, from `end` back to `begin`.

        This consumes the tape of these steps. At `begin` = 0 the gradient is complete.
        """

    def dump(self, key: Key, /) -> Buffers:
        """Return the bytes of the checkpoint `key`, one buffer per field of its layout.

        The buffers are views of the model's arrays, not copies, and are valid until the next call.
        """

    def load(self, key: Key, layout: Layout, /) -> AbstractContextManager[Buffers]:
        """Return a context that provides buffers, one per field of `layout`, to be filled.

        If the context ends without an error, the model adopts the data as the checkpoint `key`.
        After an error the model is as it was before.
        """


class OptionalMembers:
    """The optional members of a model, each with the value that it has in a model without it.

    Attributes
    ----------
    estimated : bool
        Whether the checkpoints differ in size and their sizes are not known before they are
        written: then they need not have the bytes that the chain gives.
    steps : int or None
        The number of steps n, if the model knows it before the forward gets there.
    make_start : callable
        Computes x_0, if the model does so when x_0 is first used: a run calls it before its time
        begins to count, so that the first action takes no longer than predicted.
    space : MemorySpace or None
        The memory of the buffers, if it is not that of the host.
    not_finite : callable or None
        Returns the names of the arrays of a checkpoint that have infinite values or NaN, or None if
        it has no floating-point values; without this method, the buffers are searched.
    control : mapping of str to array, or None
        The controls, as in `Differentiable`.
    complete : callable or None
        `complete(arrays)` computes, in place, the elements of the restart data that repeat others,
        such as those of a halo, from these. The check of a model then changes no halo alone.
    variables : Variables or None
        The arrays that can be stored one by one, and those that each step uses.
    units : mapping of str to str
        The units of the controls and of "J".
    gathered : callable or None
        On many ranks: returns the whole array of a control or a gradient from the parts of all
        ranks, on each rank. Its arguments are the name and the part.
    shared_controls : collection of str or None
        On many ranks: the controls that are the same on all of them.
    largest_sizes : Sizes or None
        On many ranks: the sizes of checkpoints on the rank where they are largest.
    unequal : bool
        On many ranks: whether these sizes differ.
    put_inside : callable or None
        On many ranks: puts the model of one rank within a wrapper.
    replay_check : ReplayCheck or None
        The check of steps that are computed again, if the model has one.
    exchanges : bool
        Whether `give` takes memory of the level in exchange for what it gives (see `Handing`).
    records_late : bool
        Whether `record` leaves its last step to be computed when the state after it is needed.
    tape_restarts : bool
        Whether the tape of step i contains x_{i+1}: it is the model's state after the tape is read.
    kept_records : frozenset of str
        Of a program: the names of records that no checkpoint has to contain.
    """

    estimated: bool = False
    steps: int | None = None
    space: Any = None
    not_finite: Callable[[Key], list[str] | None] | None = None
    control: Mapping[str, Array] | None = None
    complete: Callable[[dict[str, Any]], object] | None = None
    variables: Variables | None = None
    units: Mapping[str, str] = MappingProxyType({})
    gathered: Callable[[str, Any], Any] | None = None
    shared_controls: Collection[str] | None = None
    largest_sizes: "Sizes | None" = None
    unequal: bool = False
    put_inside: Callable[[Callable[[Any], Any]], object] | None = None
    replay_check: Any = None
    exchanges: bool = True
    records_late: bool = False
    tape_restarts: bool = False
    kept_records: frozenset[str] = frozenset()

    def make_start(self) -> None: ...


class _Members:
    """The members of a model, and those of `OptionalMembers` that it has not."""

    def __init__(self, model: object) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name, getattr(_WITHOUT, name))


_WITHOUT: Final = OptionalMembers()


def optional(model: object, /) -> OptionalMembers:
    """Return the optional members of a model.

    >>> optional(object()).estimated
    False
    """
    return cast("OptionalMembers", _Members(model))


@runtime_checkable
class Handing(Protocol):
    """A model that can pass whole checkpoints of some kinds in memory, without a copy.

    Such a model has these members in addition to those of `Model`. With them, a tape stays in the
    memory in which it was recorded: a level stores that memory, and the tape is reversed from it.

    Attributes
    ----------
    handed : frozenset of Kind
        The kinds of checkpoints that are passed without a copy. Checkpoints of single variables
        are always copied.
    """

    @property
    def handed(self) -> frozenset[Kind]: ...

    def give(self, key: Key, slot: Callable[[int], memoryview], /) -> Buffers:
        """Give up the memory of a checkpoint: return its bytes as `dump` does.

        The level owns the memory from now on. The model records or computes into other memory.
        `slot(nbytes)` provides memory for this, and may raise StorageError; the model then
        allocates its own. The state, the tape and the adjoint of the model keep their values.
        """

    def take(self, key: Key, layout: Layout, data: Buffers, /) -> None:
        """Adopt a checkpoint, as `load` does, but use the memory of `data` without a copy.

        The model only reads this memory. The one exception is the adjoint step that consumes a
        tape, which may overwrite it: if a level still stores that tape, a copy is loaded before.
        If the level passes the very object that `give` has returned, the model may know its arrays.
        Raises BadInput if `data` is not a checkpoint of this model,
        which is then unchanged.
        """


class Differentiable(Model, Protocol):
    """A model that also has results: the functional J and its gradient.

    Attributes
    ----------
    functional : float
        The cost function J, after the forward has reached x_n.
    gradient : mapping of str to array
        The derivative of J with respect to each control, after the adjoint has reached 0. Each
        array has the shape of its control.
    control : mapping of str to array
        The model's own arrays of the controls, not copies. Change them, in place, only before the
        first step.
    """

    @property
    def functional(self) -> float: ...
    @property
    def gradient(self) -> Mapping[str, Array]: ...
    @property
    def control(self) -> Mapping[str, Array]: ...


TANGENT: Final = "tangent_"
"""The beginning of the name of a direction in a control, before that of the control."""


@runtime_checkable
class TwiceDifferentiable(Protocol):
    """A model that offers Hessian products, by the model of its tangent-linear loop."""

    def tangent_model(self) -> Differentiable:
        """Return a fresh model whose state is the pair (x, dx), and whose J is dJ.

        It has the controls of this model, and as many directions, which are 0 and have the name of
        a control after "tangent_". dx_0 is the derivative of x_0 along the directions, and a step
        takes dx_i to the derivative of x_{i+1}. At the end dJ = <dJ/dc, dc>. Its gradient by the
        controls c is therefore the Hessian times dc, and that by the directions is dJ/dc.
        """


class ForwardingModel:
    """A wrapper that forwards each call to another model.

    A subclass overrides the methods that it changes. Optional attributes, such as `on_step`, exist
    if the wrapped model has them.
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
    """Return the step that `advance` or `record` returned; raises RunFailed if it is not a step.

    This check comes before any comparison with a step, because a comparison with an array would
    fail with an error of NumPy that does not name the model's method.
    """
    if is_whole(value) and begin <= value <= end:
        return int(value)
    raise RunFailed(
        f"the model's {method} from {begin} returned {describe(value)}; it must return the step"
        f" that it has reached, {end} unless it finished before"
    )


def layout_of(model: Model, key: Key, /) -> Layout:
    """Return the layout that a model gives a checkpoint; raises BadInput if it is not a layout."""
    layout: object = model.layout(key)
    if is_layout(layout):
        return layout
    raise BadInput(
        f"the model's layout of {key} is {reprlib.repr(layout)}; it must be a tuple of"
        " Field(name, dtype, shape, unit), such as Field('u', '<f8', (64, 64))"
    )


def functional_of(model: Differentiable, /) -> float:
    """Return the model's functional J; raises RunFailed if it is not a number."""
    value = model.functional
    try:
        float(value)
    except (TypeError, ValueError):
        raise RunFailed(
            f"the model's functional is {describe(value)}; it must be J, a number"
        ) from None
    return value  # not float(value), which could lose precision


class Sizes(TypedDict):
    """The size in bytes of a checkpoint of each kind, as arguments of `Chain`."""

    restart: int
    tape: int
    adjoint: int


def sizes_of(model: Model, /) -> Sizes:
    """Return the bytes of a model's checkpoints; 0 for a kind that it does not support.

    If the model is the part of one rank, these are the sizes on the rank where they are largest.
    """
    if (largest := optional(model).largest_sizes) is not None:
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
    """Return the kinds of checkpoints that a model passes without a copy (see `Handing`)."""
    return model.handed if isinstance(model, Handing) else frozenset()
