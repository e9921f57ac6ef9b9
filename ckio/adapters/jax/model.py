"""Models in JAX that ckio plans, runs, and resumes after a kill.

A `JaxModel` is a loop in blocks of steps, without tapes. The step of a `PartitionedModel` consists
of a forward and a backward function, and its tape is stored.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ckio.actions import Buffers, Field, Key, Kind, Layout
from ckio.adapters.cuda import CudaSpace, DeviceView, stream_of
from ckio.adapters.jax.blocks import (
    Cotangents,
    Given,
    Leaves,
    TracedFunction,
    array_of,
    arrays,
    bits_of,
    blocks_of,
    check_steps,
    compile_blocks,
    is_smooth,
    merge,
    plain,
    plain_shape,
    shape_of,
    smooth,
    zeros,
)
from ckio.analysis.partitioned import Partition, Values
from ckio.errors import BadInput, RunFailed, UnsupportedKind
from ckio.model.arrays import Array, Arrays, as_bytes, empty

_wait: Any = jax.block_until_ready
"""Wait until arrays are computed: levels do not wait, and the time of an action is that of its
computation."""


class _LoopModel(ABC):
    """The results and the checkpoints of a loop in JAX.

    A subclass has the state, and computes the steps.

    Parameters
    ----------
    controls : mapping of str to array
        x_0 and the parameters, as far as they have derivatives.
    functional : TracedFunction
        J as a function of the leaves of x_n.
    stored : mapping of Kind to mapping of str to array
        Arrays like those in checkpoints of states and tapes.
    """

    space: CudaSpace | None = None

    def __init__(
        self,
        controls: Mapping[str, Any],
        functional: TracedFunction,
        stored: Mapping[Kind, Mapping[str, Any]],
    ) -> None:
        self.on_step: Callable[[int], None] | None = None
        self._control = Arrays({name: np.array(leaf) for name, leaf in controls.items()})
        self._functional = functional
        self._bars_like = {"J": jnp.zeros((), functional.after.dtype)}
        self._bars_like |= {f"bar.{name}": leaf for name, leaf in controls.items()}
        self._layouts = {
            kind: tuple(field_of(name, it) for name, it in named.items())
            for kind, named in {**stored, Kind.ADJOINT: self._bars_like}.items()
        }
        # The farthest step of the forward sweep, and its leaves, or None if they are not computed.
        self._farthest: tuple[int, Leaves | None] = (-1, None)
        # The cotangents of the controls, and J; None before the adjoint starts.
        self._adjoint: tuple[Leaves, Any] | None = None

    @property
    def control(self) -> Arrays:
        return self._control

    @property
    def gradient(self) -> Mapping[str, Array]:
        bars, _ = self._start_adjoint(None)
        # ckio's convention is the direction of steepest ascent, the complex conjugate of JAX's.
        return {name: np.asarray(it).conj() for name, it in zip(self._control, bars, strict=True)}

    @property
    def functional(self) -> float:
        return float(self._start_adjoint(None)[1])

    def layout(self, key: Key, /) -> Layout:
        return self._layouts[key.kind]

    def make_start(self) -> None:
        """Make x_0 from the controls, and compile the checks, before the first step."""
        leaves = [*self._leaves(Key(Kind.RESTART, 0)), *self._bars_like.values()]
        _wait(list(map(_is_finite, smooth(leaves))))

    def dump(self, key: Key, /) -> Buffers:
        leaves = self._leaves(key)
        if self.space is not None:
            return _views_of(_wait(leaves))
        return [as_bytes(np.ascontiguousarray(bits_of(leaf))) for leaf in leaves]

    def not_finite(self, key: Key, /) -> list[str] | None:
        """Return the names of the arrays of a checkpoint with infinite values or NaN."""
        leaves = self._leaves(key)
        fields = zip(self.layout(key), leaves, strict=True)
        looked = {field.name: _is_finite(leaf) for field, leaf in fields if is_smooth(leaf)}
        return [name for name, finite in looked.items() if not finite] if looked else None

    @contextmanager
    def load(self, key: Key, layout: Layout, /) -> Generator[Buffers]:
        self._check_layout(key, layout)
        if self.space is not None:
            targets = [_uninitialized(field) for field in layout]
            yield _views_of(targets)
        else:
            targets = [empty(field.shape, field.dtype) for field in layout]
            yield [as_bytes(array) for array in targets]
        self._adopt(key, targets)

    def _check_layout(self, key: Key, layout: Layout) -> None:
        if layout != self.layout(key):
            raise BadInput(
                f"{key} does not fit this model; make the model with the options of the run that"
                " wrote it"
            )

    def _leaves(self, key: Key) -> Leaves:
        """Return the arrays of a checkpoint, in the order of its layout."""
        if key.kind is not Kind.ADJOINT:
            return self._stored(key)
        bars, j = self._start_adjoint(key.step)
        return [j, *map(jnp.conj, bars)]

    def _adopt(self, key: Key, filled: Sequence[Any]) -> None:
        """Adopt the arrays of a checkpoint."""
        if key.kind is not Kind.ADJOINT:
            self._restore(key, filled)
        else:
            j, *bars = map(jnp.conj, map(array_of, self._bars_like.values(), filled))
            self._adjoint = bars, j

    def _report(self, i: int) -> None:
        if self.on_step is not None:
            self.on_step(i)

    def _start_adjoint(self, n: int | None) -> tuple[Leaves, Any]:
        """Return the adjoint and J. If it has not started, it starts at the farthest state, x_n."""
        if self._adjoint is not None:
            return self._adjoint
        self._now()
        reached, state = self._farthest
        if n not in (None, reached):
            raise RunFailed(
                f"the adjoint cannot start at step {n}: the forward sweep has reached step"
                f" {reached}, and J is known only at its end; reverse from step {reached}"
            )
        assert state is not None
        j, bars = _derivative(self._functional)(smooth(state), state, self._functional.consts)
        bars += zeros(list(self._control.values())[len(bars) :])
        if n is not None:
            self._adjoint, self._farthest = (bars, j), (reached, None)
        return bars, j

    @abstractmethod
    def _now(self) -> object:
        """Make x_0 from the controls if it is not made yet, and compute the current state."""

    @abstractmethod
    def _stored(self, key: Key) -> Leaves:
        """Return the arrays of the current state or of a tape."""

    @abstractmethod
    def _restore(self, key: Key, filled: Sequence[Any]) -> None:
        """Adopt the arrays of a state or of a tape."""


@lru_cache(maxsize=8)
def _derivative(functional: TracedFunction) -> Callable[..., Any]:
    """Compile J and its derivatives with respect to the first argument, once for each J."""

    def j(moving: Leaves, state: Leaves, consts: Leaves) -> Any:
        return functional(consts, merge(state, moving))

    compiled: Callable[..., Any] = jax.jit(jax.value_and_grad(j))
    return compiled


@jax.jit
def _is_finite(leaf: Any) -> Any:
    return jnp.isfinite(leaf).all()


def _real(functional: Callable[[Any], Any], x: Any) -> TracedFunction:
    """Trace J as a function of the state; raises BadInput if it is not a real number."""
    traced = TracedFunction(functional, x)
    j = traced.after
    if j.shape or not jnp.issubdtype(j.dtype, jnp.floating):
        raise BadInput(
            f"J is {j.dtype}{list(j.shape)}, not a real number; let functional(x) return a scalar"
        )
    return traced


def field_of(name: str, it: Any, /) -> Field:
    """Return the field of an array in a checkpoint."""
    it = plain_shape(it)
    dtype = np.dtype(it.dtype)
    plain = dtype if dtype.kind in "biufc" else np.dtype(f"u{dtype.itemsize}")
    return Field(name, plain.str, tuple(it.shape))


class JaxModel(_LoopModel):
    """A model whose step is a block of `segment` iterations of a loop in JAX.

    A block is one compiled function. To record a step, the model only keeps its first state,
    because the reverse of the step runs it forward once more inside JAX. Therefore this model has
    no tapes to store, and its planner must store restart data only. Restart data are the arrays of
    a state. A level in memory stores them without a copy, because arrays of JAX never change. If
    they are on a CUDA device, and CuPy is installed, use the levels "device" and "pinned". A
    checkpoint of the adjoint contains J and the cotangents of x, parameters and rows.

    Controls are the real and complex arrays of x_0, parameters and rows. An array is named by its
    path in the tree, for example "x.u", "params.k" or "xs".

    >>> x = {"u": jnp.array([1.0, 2.0])}
    >>> def decay(x, k, i):
    ...     return {"u": k * x["u"]}
    >>> model = JaxModel(decay, x, lambda x: x["u"].sum(), 4, params=jnp.float32(0.5))
    >>> model.record(0, 4)
    4
    >>> model.reverse(0, 4)
    >>> model.functional, {name: array.tolist() for name, array in model.gradient.items()}
    (0.1875, {'x.u': [0.0625, 0.0625], 'params': 1.5})

    Parameters
    ----------
    step : callable
        The step of `checkpointed_scan`.
    x0 : pytree of arrays
        Initial state, which is copied.
    functional : callable
        J(x_n), a real number, computed by functions of JAX.
    n : int
        Total number of iterations. The last step may have fewer of them than the others.
    params, xs : pytree of arrays, optional
        The parameters and rows of `checkpointed_scan`.
    segment : int or "auto"
        Number of iterations of a step, as in `checkpointed_scan`.

    Attributes
    ----------
    steps : int
        Number of steps, which are blocks of iterations.
    control, gradient : mapping of str to array
        The controls, and the derivatives of J with respect to them. Change the arrays of `control`
        in place, before the first step.
    functional : float
        J at the end of the forward sweep.

    Raises
    ------
    BadInput
        An argument is invalid, as for `checkpointed_scan`, or J is not a real number.
    """

    def __init__(
        self,
        step: Callable[..., Any],
        x0: Any,
        functional: Callable[[Any], Any],
        n: int,
        /,
        *,
        params: Any = None,
        xs: Any = None,
        segment: int | str = 1,
    ) -> None:
        x, params, xs = arrays("x0", x0), arrays("params", params), arrays("xs", xs)
        if check_steps(n, xs) == 0:
            raise BadInput("JaxModel: n = 0; it must be a number of iterations >= 1")
        self._blocks = blocks_of(step, x, params, xs, n=int(n), segment=segment)
        self.steps = self._blocks.count
        self._compiled = compile_blocks(self._blocks)
        self._first = [jax.tree.leaves(tree) for tree in (x, params, xs)]
        state, *more = (
            dict(zip(_names(what, tree), jax.tree.leaves(tree), strict=True))
            for what, tree in {"x": x, "params": params, "xs": xs}.items()
        )
        every = {**state, **more[0], **more[1]}
        controls = {name: leaf for name, leaf in every.items() if is_smooth(leaf)}
        j = _real(functional, jax.tree.map(shape_of, x))
        super().__init__(controls, j, {Kind.RESTART: state})
        self._state: Leaves | None = None  # None until x_0 is made from the controls
        self._given = Given([], [], [])
        self._recorded: dict[int, Leaves] = {}  # the first states of recorded steps
        self._late: int | None = None  # a recorded step that has not been computed yet
        self.space = _space_of(self._first[0])

    def layout(self, key: Key, /) -> Layout:
        if key.kind is Kind.TAPE:
            raise UnsupportedKind(
                f"{key}: a JaxModel has no tapes to store; use a planner that stores restart data"
                " only, for example hrevolve"
            )
        return super().layout(key)

    def advance(self, begin: int, end: int, /) -> int:
        end = min(end, self.steps)
        state = self._now()
        if end > begin:
            self._state = self._forward(state, begin, end)
        self._came(begin, end)
        return end

    def _forward(self, state: Leaves, begin: int, end: int) -> Leaves:
        if self.space is None:
            return _wait(self._compiled.advance(state, [], self._given, begin, end)[0])  # type: ignore[no-any-return]
        number = jnp.int32(begin)
        for i in range(begin, end):
            length = self._blocks.length(i)
            state, number = self._compiled.advance_one(length, state, self._given, number)
        return _wait(state)  # type: ignore[no-any-return]

    def record(self, begin: int, end: int, /) -> int:
        end, self._recorded = min(end, self.steps), {}
        for i in range(begin, end):
            self._recorded[i] = self._now()
            self._late = i  # x_{i+1} is computed only if it is needed
            self._came(i, i + 1)
        return end

    exchanges = False
    records_late = True

    def reverse(self, begin: int, end: int, /) -> None:
        bars, j = self._start_adjoint(end)
        for i in reversed(range(begin, end)):
            if i not in self._recorded:
                raise RunFailed(f"step {i} is not recorded; record it before it is reversed")
            x, back = self._recorded.pop(i), Cotangents(*self._parts(bars))
            back = _wait(self._compiled.reverse(self._blocks.length(i), x, self._given, i, back))
            bars = jax.tree.leaves(back)
            self._adjoint = bars, j
            self._report(i)

    @property
    def handed(self) -> frozenset[Kind]:
        return frozenset((Kind.RESTART,))

    def give(self, key: Key, slot: Callable[[int], memoryview], /) -> Buffers:
        return self.dump(key)  # without a copy, because arrays of JAX never change

    def take(self, key: Key, layout: Layout, data: Buffers, /) -> None:
        self._check_layout(key, layout)
        views = zip(layout, data, strict=True)
        if self.space is not None:
            self._adopt(key, [_array_at(view, field, self.space) for field, view in views])
        else:
            self._adopt(key, [np.ndarray(field.shape, field.dtype, view) for field, view in views])

    def _stored(self, key: Key) -> Leaves:
        self.layout(key)
        return self._now()

    def _restore(self, key: Key, filled: Sequence[Any]) -> None:
        # The state at the end of the forward sweep is needed for J, also if it is not computed yet.
        old = self._now(late=self._adjoint is None and self._farthest[1] is None)
        self._state, self._late = list(map(array_of, old, filled)), None

    def _parts(self, flat: Sequence[Any]) -> list[Leaves]:
        """Return the arrays of x, of the parameters and of the rows, in the order of controls."""
        rest = iter(flat)
        return [[next(rest) for _ in smooth(leaves)] for leaves in self._first]

    def _now(self, *, late: bool = True) -> Leaves:
        """Return the state, which is x_0 at first. If `late`, compute a recorded step before."""
        if self._state is None:
            parts = self._parts([jnp.array(array) for array in self._control.values()])
            x, params, rows = map(merge, self._first, parts)
            self._state, self._given = x, Given(params, rows, self._blocks.step.consts)
            self._farthest = (0, x)
        if late and self._late is not None:
            step, self._late = self._late, None
            self._state = self._forward(self._state, step, step + 1)
            if self._farthest == (step + 1, None):
                self._farthest = (step + 1, self._state)
        return self._state

    def _came(self, begin: int, end: int) -> None:
        """Remember the farthest state, and report the steps."""
        if end > self._farthest[0] and self._adjoint is None:
            state = None if self._late is not None else self._now()
            self._farthest = (end, state)
        for i in range(begin, end):
            self._report(i + 1)


def _names(what: str, tree: Any) -> list[str]:
    """Return the name of each leaf, its path in the tree; raises BadInput if two are equal."""
    ways = (path for path, _ in jax.tree.leaves_with_path(tree))
    tails = (jax.tree_util.keystr(path, simple=True, separator=".") for path in ways)
    names = [f"{what}.{tail}".rstrip(".") for tail in tails]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise BadInput(f"JaxModel: several arrays have the name {twice}; rename one of their keys")
    return names


def _space_of(leaves: Leaves, /) -> CudaSpace | None:
    """Return the memory of the one CUDA device that has all arrays, or None.

    It is also None if CuPy is not installed; then checkpoints are copied through the host.
    """
    devices = {device for leaf in leaves for device in leaf.devices()}
    if len(devices) != 1:
        return None
    (device,) = devices
    if device.platform not in ("gpu", "cuda"):
        return None
    try:
        stream_of(device.local_hardware_id or 0)
    except BadInput:
        return None
    return CudaSpace(device.local_hardware_id or 0)


def _views_of(leaves: Sequence[Any], /) -> Buffers:
    """Return the bytes of arrays that are complete. The arrays live as long as the views."""
    arrays = plain(leaves)
    views: Any = [DeviceView(it.unsafe_buffer_pointer(), it.nbytes, it) for it in arrays]
    return views  # type: ignore[no-any-return]


def _uninitialized(field: Field, /) -> Any:
    """Return a new array whose memory a level may fill before it is used."""
    return _wait(jnp.empty(field.shape, np.dtype(field.dtype)))


def _array_at(view: Any, field: Field, space: CudaSpace, /) -> Any:
    """Return the array whose bytes a view is, or a new array with a copy of them."""
    owner = view.owner
    if isinstance(owner, jax.Array) and owner.unsafe_buffer_pointer() == view.address:
        return owner
    array = _uninitialized(field)
    (target,) = _views_of([array])
    stream_of(space.device).copy([(target, view)])
    return array


class PartitionedModel(_LoopModel):
    """A model whose tapes contain the values that a `Partition` of its step stores.

    The gradient is taken with respect to all real and complex arrays of x_0. A parameter is an
    array of the state that no step overwrites, and it is not stored in checkpoints. Every schedule
    calls the same two compiled functions on the same arrays. Therefore the gradient has the same
    bits for all schedules if these functions return the same bits in each call. JAX does not
    guarantee this on a CPU: the adjoints of a larger step differed by rounding from call to call,
    and those of `jax.vjp` do, too.

    >>> from ckio.analysis.partitioned import partition
    >>> x = {"u": jnp.array([1.0, 2.0]), "k": jnp.array([0.5, 0.25])}
    >>> halves = partition(lambda x: {"u": x["u"] * x["k"]}, x)
    >>> model = PartitionedModel(halves, x, lambda x: jnp.sum(x["u"]))
    >>> model.record(0, 3)
    3
    >>> model.reverse(0, 3)
    >>> model.functional, model.gradient["k"].tolist()
    (0.15625, [0.75, 0.375])

    Parameters
    ----------
    halves : Partition
        The partition of a traced step. All processes of one run need the same partition, so it must
        be chosen by bytes, or by declared seconds, not by measured ones.
    state : mapping of str to array
        Initial state x_0, which is copied.
    functional : callable
        J(x_n), a real number, as a function of the dict of arrays, computed by functions of JAX.

    Attributes
    ----------
    control, gradient : mapping of str to array
        The controls, and the derivatives of J with respect to them. Change the arrays of `control`
        in place, before the first step.
    functional : float
        J at the end of the forward sweep.

    Raises
    ------
    BadInput
        J is not a real number.
    """

    def __init__(
        self,
        halves: Partition,
        state: Values,
        functional: Callable[[Any], Any],
        /,
    ) -> None:
        self.halves = halves
        self._first = {name: jnp.array(state[name]) for name in sorted(halves.program.inputs)}
        after, tape = halves.forward(self._first)
        overwritten = {name: after[name] for name in halves.program.overwritten}
        self._like = {Kind.RESTART: overwritten, Kind.TAPE: tape}
        controls = {name: array for name, array in self._first.items() if is_smooth(array)}
        super().__init__(controls, _real(functional, after), self._like)
        self._state: dict[str, Any] = {}  # empty until x_0 is made from the controls
        self._tapes: dict[int, Values] = {}

    def advance(self, begin: int, end: int, /) -> int:
        return self._forward(begin, end, keep=False)

    def record(self, begin: int, end: int, /) -> int:
        self._tapes = {}
        return self._forward(begin, end, keep=True)

    def reverse(self, begin: int, end: int, /) -> None:
        bars, j = self._start_adjoint(end)
        for i in reversed(range(begin, end)):
            if i not in self._tapes:
                raise RunFailed(f"no tape of step {i} is stored; record the step, or read the tape")
            cotangent = dict(zip(self._control, bars, strict=True))
            back = self.halves.backward(self._tapes.pop(i), cotangent, self._now())
            bars = [back[name] for name in self._control]
            self._adjoint = bars, j
            self._report(i)

    def _stored(self, key: Key) -> Leaves:
        arrays = self._now() if key.kind is Kind.RESTART else self._tapes[key.step]
        return [arrays[name] for name in self._like[key.kind]]

    def _restore(self, key: Key, filled: Sequence[Any]) -> None:
        like = self._like[key.kind]
        read = {name: array_of(like[name], it) for name, it in zip(like, filled, strict=True)}
        if key.kind is Kind.RESTART:
            self._state = {**self._now(), **read}
        else:
            self._tapes = {key.step: read}

    def _now(self) -> dict[str, Any]:
        """Return the state, which is x_0 at first."""
        if not self._state:
            controls = {name: jnp.array(x) for name, x in self._control.items()}
            self._state = {**self._first, **controls}
            self._farthest = (0, jax.tree.leaves(self._state))
        return self._state

    def _forward(self, begin: int, end: int, *, keep: bool) -> int:
        self._now()
        # Advance and record call one compiled function, so that x_n has the same bits in both.
        for i in range(begin, end):
            self._state, tape = self.halves.forward(self._state)
            if keep:
                self._tapes[i] = tape
            if i + 1 > self._farthest[0] and self._adjoint is None:
                self._farthest = (i + 1, jax.tree.leaves(self._state))
            self._report(i + 1)
        return end
