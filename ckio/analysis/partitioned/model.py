"""A model of steps in two halves: a function in JAX that ckio can schedule and run."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np

from ckio.actions import Buffers, Field, Key, Kind, Layout
from ckio.analysis.partitioned.jaxprs import jax
from ckio.analysis.partitioned.program import Values
from ckio.analysis.partitioned.split import Partition
from ckio.errors import BadInput, RunFailed
from ckio.model.arrays import Array, Arrays, as_bytes, empty


class PartitionedModel:
    """A model whose tapes are what a `Partition` of its step stores.

    The gradient refers to all real and complex arrays of x_0; a parameter is an array of the state
    that no step overwrites, and lies in no checkpoint. Every schedule calls the same two compiled
    functions on the same arrays; where these give the same bits each time, so does the gradient.
    On a CPU, JAX does not promise that: adjoints of a larger step were seen to differ by rounding
    from call to call, and those of `jax.vjp` do so too.

    >>> from pytest import importorskip
    >>> jnp = importorskip("jax.numpy")
    >>> from ckio.analysis.partitioned import partition
    >>> x = {"u": jnp.array([1.0, 2.0]), "k": jnp.array([0.5, 0.25])}
    >>> halves = partition(lambda x: {"u": x["u"] * x["k"]}, x, seconds="declared")
    >>> model = PartitionedModel(halves, x, lambda x: jnp.sum(x["u"]))
    >>> model.record(0, 3)
    3
    >>> model.reverse(0, 3)
    >>> model.functional, model.gradient["k"].tolist()
    (0.15625, [0.75, 0.375])

    Parameters
    ----------
    halves : Partition
        Of a step that was traced. Processes of one run need the same: let it be chosen by bytes, or
        by seconds that are declared.
    state : mapping of str to array
        x_0; copied.
    functional : callable
        J(x_n), from the dict of arrays to a real number, by functions of JAX.
    on_step : callable, optional
        Called after each step of either sweep with where it now stands.
    """

    def __init__(
        self,
        halves: Partition,
        state: Values,
        functional: Callable[[Any], Any],
        /,
        *,
        on_step: Callable[[int], None] | None = None,
    ) -> None:
        self.halves, self.on_step = halves, on_step
        numpy = jax().numpy
        self._first = {name: numpy.array(state[name]) for name in halves.program.inputs}
        smooth = [n for n, x in self._first.items() if numpy.issubdtype(x.dtype, numpy.inexact)]
        self._control = Arrays({name: np.array(self._first[name]) for name in smooth})

        self._differentiated = _differentiated(functional)
        after, tape = halves.forward(self._first)
        cotangent = {name: after[name] for name in smooth}
        j = jax().eval_shape(functional, after)
        if j.shape or not numpy.issubdtype(j.dtype, numpy.floating):
            raise BadInput(f"PartitionedModel: J is {j.dtype}{list(j.shape)}, not a real number")
        self._like = {
            Kind.RESTART: {name: after[name] for name in halves.program.overwritten},
            Kind.TAPE: tape,
            Kind.ADJOINT: {**cotangent, "functional J": numpy.zeros((), j.dtype)},
        }
        self._state: dict[str, Any] = {}  # until x_0 is made of the controls
        self._farthest: tuple[int, Values] = (-1, {})
        self._tapes: dict[int, Values] = {}
        self._adjoint: dict[str, Any] = {}  # the cotangent and J, once the adjoint has started

    @property
    def control(self) -> Arrays:
        return self._control

    @property
    def gradient(self) -> Mapping[str, Array]:
        return {name: np.asarray(self._adjoint[name]) for name in self._control}

    @property
    def functional(self) -> float:
        return float((self._adjoint or self._seed())["functional J"])

    def layout(self, key: Key, /) -> Layout:
        like = {name: np.asarray(_bits(x)) for name, x in self._like[key.kind].items()}
        return tuple(Field(name, x.dtype.str, x.shape) for name, x in like.items())

    def advance(self, begin: int, end: int, /) -> int:
        return self._forward(begin, end, keep=False)

    def record(self, begin: int, end: int, /) -> int:
        self._tapes = {}
        return self._forward(begin, end, keep=True)

    def reverse(self, begin: int, end: int, /) -> None:
        self._start_adjoint(end)
        for i in reversed(range(begin, end)):
            if i not in self._tapes:
                raise RunFailed(f"no tape of step {i} is held; record it, or read it, before")
            j = self._adjoint["functional J"]
            back = self.halves.backward(self._tapes.pop(i), self._cotangent(), self._known())
            self._adjoint = {**back, "functional J": j}
            self._report(i)

    def dump(self, key: Key, /) -> Buffers:
        match key.kind:
            case Kind.RESTART:
                arrays = self._known()
            case Kind.TAPE:
                arrays = dict(self._tapes[key.step])
            case Kind.ADJOINT:
                self._start_adjoint(key.step)
                arrays = self._adjoint
        return [
            as_bytes(np.ascontiguousarray(_bits(arrays[name]))) for name in self._like[key.kind]
        ]

    @contextmanager
    def load(self, key: Key, layout: Layout, /) -> Generator[Buffers]:
        if layout != self.layout(key):
            raise BadInput(f"{key} does not fit this model; was its step partitioned otherwise?")
        filled = [empty(field.shape, field.dtype) for field in layout]
        yield [as_bytes(array) for array in filled]
        like = self._like[key.kind]
        read = {n: _as(like[n], array) for n, array in zip(like, filled, strict=True)}
        match key.kind:
            case Kind.RESTART:
                self._state = {**self._known(), **read}
            case Kind.TAPE:
                self._tapes = {key.step: read}
            case Kind.ADJOINT:
                self._adjoint = read

    def _known(self) -> dict[str, Any]:
        """The state; x_0 where there is none yet."""
        if not self._state:
            controls = {name: jax().numpy.array(x) for name, x in self._control.items()}
            self._state = {**self._first, **controls}
            self._farthest = (0, self._state)
        return self._state

    def _forward(self, begin: int, end: int, *, keep: bool) -> int:
        # One compiled function, whether its tape is kept or not: x_n is the same to the last bit.
        self._known()
        for i in range(begin, end):
            self._state, tape = self.halves.forward(self._state)
            if keep:
                self._tapes[i] = tape
            if i + 1 > self._farthest[0] and not self._adjoint:
                self._farthest = (i + 1, self._state)
            self._report(i + 1)
        return end

    def _report(self, i: int) -> None:
        if self.on_step is not None:
            self.on_step(i)

    def _cotangent(self) -> dict[str, Any]:
        return {name: self._adjoint[name] for name in self._control}

    def _seed(self) -> dict[str, Any]:
        """J where the forward is farthest, and its derivatives."""
        self._known()
        _, state = self._farthest
        j, cotangent = self._differentiated({name: state[name] for name in self._control}, state)
        return {**cotangent, "functional J": j}

    def _start_adjoint(self, n: int) -> None:
        if self._adjoint:
            return
        self._known()
        if self._farthest[0] != n:
            raise RunFailed(
                f"the adjoint cannot start at step {n}: the forward has come to"
                f" {self._farthest[0]}, and J is known only where it ends"
            )
        self._adjoint, self._farthest = self._seed(), (n, {})


@lru_cache(maxsize=8)
def _differentiated(functional: Callable[[Any], Any]) -> Callable[[Values, Values], Any]:
    """J and its derivatives by the first arrays, compiled once for all models that have it."""

    def of(moving: Values, state: Values) -> Any:
        return functional({**state, **moving})

    compiled: Callable[[Values, Values], Any] = jax().jit(jax().value_and_grad(of))
    return compiled


def _bits(array: Any) -> Any:
    """What is stored of an array: of keys of random numbers, the whole numbers that they are."""
    is_key = jax().dtypes.issubdtype(array.dtype, jax().dtypes.prng_key)
    return jax().random.key_data(array) if is_key else array


def _as(like: Any, bits: Array) -> Any:
    """The array that has these bits. They are not changed any more, so that it may be the same."""
    if jax().dtypes.issubdtype(like.dtype, jax().dtypes.prng_key):
        return jax().random.wrap_key_data(bits, impl=jax().random.key_impl(like))
    return jax().numpy.asarray(bits.view(like.dtype))
