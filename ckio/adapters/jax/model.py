"""Models in JAX that ckio plans, runs, and resumes after a kill.

A `JaxModel` is a loop in blocks of steps, without tapes. The step of a `PartitionedModel` consists
of a forward and a backward function, and its tape is stored.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ckio.actions import Buffers, Field, Key, Kind, Layout
from ckio.adapters.cuda import CudaSpace, DeviceView, stream_of
from ckio.adapters.jax.blocks import (
    Back,
    Given,
    Leaves,
    LoopBlocks,
    Shapes,
    TracedFunction,
    array_of,
    arrays,
    bits_of,
    blocks_of,
    check_steps,
    is_smooth,
    like,
    merge,
    plain,
    plain_shape,
    smooth,
    zeros,
)
from ckio.analysis.partitioned import Partition, Values
from ckio.errors import BadInput, RunFailed, UnsupportedKind
from ckio.model.arrays import Array, Arrays, as_bytes, empty

_wait: Any = jax.block_until_ready
"""Wait until arrays are computed: levels do not wait, and the time of an action is that of its
computation."""


class JaxModel:
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
    on_step : callable, optional
        Is called after each step of both sweeps with the number of the step that is reached.

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
        on_step: Callable[[int], None] | None = None,
    ) -> None:
        x, params, xs = arrays("x0", x0), arrays("params", params), arrays("xs", xs)
        if check_steps(n, xs) == 0:
            raise BadInput("JaxModel: n = 0; it must be a number of iterations >= 1")
        self._blocks = blocks_of(step, Shapes.of(x, params, xs), int(n), segment)
        self.steps, self.on_step = self._blocks.count, on_step
        self._functional = _real(functional, self._blocks.shapes.x)
        self._compiled = _compile(self._blocks, self._functional)

        trees = {"x": x, "params": params, "xs": xs}
        names = {what: _names(what, tree) for what, tree in trees.items()}
        self._first = [jax.tree.leaves(tree) for tree in trees.values()]
        leaves = [
            (name, leaf)
            for mine, tree in zip(names.values(), self._first, strict=True)
            for name, leaf in zip(mine, tree, strict=True)
        ]
        self._control = Arrays({name: np.array(leaf) for name, leaf in leaves if is_smooth(leaf)})
        self._names = names["x"]
        self._j = self._functional.after.dtype
        self._state: Leaves | None = None  # None until x_0 is made from the controls
        self._given = Given([], [], [])
        self._recorded: dict[int, Leaves] = {}  # the first states of recorded steps
        self._late: int | None = None  # a recorded step that has not been computed yet
        self._farthest: tuple[int, Leaves | None] = (-1, None)  # None: that step was not computed
        self._adjoint: tuple[Back, Any] | None = None  # cotangents and J, or None before its start
        self._layouts: dict[Kind, Layout] = {}
        self.space = _space_of(self._first[0])

    @property
    def control(self) -> Arrays:
        return self._control

    @property
    def gradient(self) -> Mapping[str, Array]:
        back, _ = self._started(None)
        flat = [*back.x, *back.params, *back.rows]
        return {name: _steepest(it) for name, it in zip(self._control, flat, strict=True)}

    @property
    def functional(self) -> float:
        return float(self._started(None)[1])

    def layout(self, key: Key, /) -> Layout:
        layout = self._layouts.get(key.kind)
        if layout is None:
            layout = self._layouts[key.kind] = self._layout(key)
        return layout

    def _layout(self, key: Key) -> Layout:
        match key.kind:
            case Kind.RESTART:
                named = list(zip(self._names, self._blocks.shapes.leaves[0], strict=True))
            case Kind.ADJOINT:
                named = [("J", like((), self._j))]
                named += [(f"bar.{name}", array) for name, array in self._control.items()]
            case Kind.TAPE:
                raise UnsupportedKind(
                    f"{key}: a JaxModel has no tapes to store; use a planner that stores restart"
                    " data only, for example hrevolve"
                )
        return tuple(field_of(name, it) for name, it in named)

    def make_start(self) -> None:
        """Copy x_0, parameters and rows to JAX, and compile the checks, before the first step."""
        leaves = [*self._now(), *self._given.params, *self._given.rows, jnp.zeros((), self._j)]
        _wait(list(map(_is_finite, smooth(leaves))))

    def advance(self, begin: int, end: int, /) -> int:
        end = min(end, self.steps)
        state = self._now()
        if end > begin:
            self._state = self._forward(state, begin, end)
        self._came(begin, end)
        return end

    def _forward(self, state: Leaves, begin: int, end: int) -> Leaves:
        if self.space is None:
            return _wait(self._compiled.advance(state, self._given, begin, end))  # type: ignore[no-any-return]
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

    def reverse(self, begin: int, end: int, /) -> None:
        back, j = self._started(end)
        for i in reversed(range(begin, end)):
            if i not in self._recorded:
                raise RunFailed(f"step {i} is not recorded; record it before it is reversed")
            back = _wait(self._compiled.reverse(self._recorded.pop(i), self._given, i, back))
            self._adjoint = back, j
            self._report(i)

    def dump(self, key: Key, /) -> Buffers:
        leaves = self._leaves(key)
        if self.space is not None:
            return _views_of(_wait(leaves))
        return [as_bytes(np.ascontiguousarray(bits_of(leaf))) for leaf in leaves]

    def _leaves(self, key: Key) -> Leaves:
        """Return the arrays of a checkpoint, in the order of its layout."""
        if key.kind is Kind.ADJOINT:
            back, j = self._started(key.step)
            return [j, *map(jnp.conj, [*back.x, *back.params, *back.rows])]
        self.layout(key)
        return self._now()

    def not_finite(self, key: Key, /) -> list[str] | None:
        """Return the names of the arrays of a checkpoint with infinite values or NaN."""
        leaves = self._leaves(key)
        fields = zip(self.layout(key), leaves, strict=True)
        looked = {field.name: _is_finite(leaf) for field, leaf in fields if is_smooth(leaf)}
        return [name for name, finite in looked.items() if not finite] if looked else None

    records_late = True  # x_{i+1} is computed only if it is needed

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

    @contextmanager
    def load(self, key: Key, layout: Layout, /) -> Generator[Buffers]:
        self._check_layout(key, layout)
        if self.space is not None:
            targets = [_uninitialized(field) for field in layout]
            yield _views_of(targets)
            self._adopt(key, targets)
        else:
            filled = [empty(field.shape, field.dtype) for field in layout]
            yield [as_bytes(array) for array in filled]
            self._adopt(key, filled)

    def _check_layout(self, key: Key, layout: Layout) -> None:
        if layout != self.layout(key):
            raise BadInput(
                f"{key} does not fit this model; make the model with the options of the run that"
                " wrote it"
            )

    def _adopt(self, key: Key, filled: Sequence[Any]) -> None:
        first = self._now(late=self._adjoint is None and self._farthest[1] is None)
        match key.kind:
            case Kind.ADJOINT:
                same = [
                    jnp.zeros((), self._j),
                    *(leaf for it in self._first for leaf in smooth(it)),
                ]
                j, *bars = map(jnp.conj, map(array_of, same, filled))
                sizes = [len(smooth(it)) for it in self._first]
                ends = np.cumsum(sizes).tolist()
                cut = (bars[end - size : end] for size, end in zip(sizes, ends, strict=True))
                self._adjoint = Back(*cut), j
            case _:
                self._state, self._late = list(map(array_of, first, filled)), None

    def _now(self, *, late: bool = True) -> Leaves:
        """Return the state, which is x_0 at first. If `late`, compute a recorded step before."""
        if self._state is None:
            values = iter([jnp.array(array) for array in self._control.values()])
            x, params, rows = (
                merge(leaves, [next(values) for _ in smooth(leaves)]) for leaves in self._first
            )
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
        if self.on_step is not None:
            for i in range(begin, end):
                self._report(i + 1)

    def _report(self, i: int) -> None:
        if self.on_step is not None:
            self.on_step(i)

    def _started(self, n: int | None) -> tuple[Back, Any]:
        """Return the adjoint and J. If it has not started, it starts at the farthest state, x_n."""
        if self._adjoint is not None:
            return self._adjoint
        self._now()
        reached, state = self._farthest
        if n not in (None, reached):
            raise _no_start(n, reached)
        assert state is not None
        j, bar = self._compiled.seed(smooth(state), state, self._functional.consts)
        started = Back(bar, zeros(self._given.params), zeros(self._given.rows)), j
        if n is not None:
            self._adjoint, self._farthest = started, (reached, None)
        return started


class _Compiled(NamedTuple):
    """Compiled functions: the advance over blocks, that over one block, its reverse, and J."""

    advance: Callable[..., Any]
    advance_one: Callable[..., Any]
    reverse: Callable[..., Any]
    seed: Callable[..., Any]


@lru_cache(maxsize=8)
def _compile(blocks: LoopBlocks, functional: TracedFunction) -> _Compiled:
    """Compile the functions of a model, each when it is first called."""

    def j(moving: Leaves, state: Leaves, consts: Leaves) -> Any:
        return functional(consts, merge(state, moving))

    seed = jax.jit(jax.value_and_grad(j))
    one = jax.jit(blocks.advance_one, static_argnums=0)
    return _Compiled(jax.jit(blocks.advance), one, jax.jit(blocks.reverse), seed)


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


def _no_start(n: int | None, reached: int) -> RunFailed:
    return RunFailed(
        f"the adjoint cannot start at step {n}: the forward sweep has reached step {reached}, and J"
        f" is known only at its end; reverse from step {reached}"
    )


def _steepest(derivative: Any) -> Array:
    """Return the gradient in ckio's convention, the complex conjugate of JAX's."""
    return np.asarray(derivative).conj()


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


class PartitionedModel:
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
    on_step : callable, optional
        Is called after each step of both sweeps with the number of the step that is reached.

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
        *,
        on_step: Callable[[int], None] | None = None,
    ) -> None:
        self.halves, self.on_step = halves, on_step
        self._first = {name: jnp.array(state[name]) for name in halves.program.inputs}
        smooth = [name for name, array in self._first.items() if is_smooth(array)]
        self._control = Arrays({name: np.array(self._first[name]) for name in smooth})

        after, tape = halves.forward(self._first)
        cotangent = {name: after[name] for name in smooth}
        self._functional = _real(functional, after)
        self._like = {
            Kind.RESTART: {name: after[name] for name in halves.program.overwritten},
            Kind.TAPE: tape,
            Kind.ADJOINT: {
                **cotangent,
                "functional J": jnp.zeros((), self._functional.after.dtype),
            },
        }
        self._state: dict[str, Any] = {}  # empty until x_0 is made from the controls
        self._farthest: tuple[int, Values] = (-1, {})
        self._tapes: dict[int, Values] = {}
        self._adjoint: dict[str, Any] = {}  # the cotangent and J; empty before the adjoint starts

    @property
    def control(self) -> Arrays:
        return self._control

    @property
    def gradient(self) -> Mapping[str, Array]:
        return {name: _steepest(self._adjoint[name]) for name in self._control}

    @property
    def functional(self) -> float:
        return float((self._adjoint or self._seed())["functional J"])

    def layout(self, key: Key, /) -> Layout:
        return tuple(field_of(name, array) for name, array in self._like[key.kind].items())

    def advance(self, begin: int, end: int, /) -> int:
        return self._forward(begin, end, keep=False)

    def record(self, begin: int, end: int, /) -> int:
        self._tapes = {}
        return self._forward(begin, end, keep=True)

    def reverse(self, begin: int, end: int, /) -> None:
        self._start_adjoint(end)
        for i in reversed(range(begin, end)):
            if i not in self._tapes:
                raise RunFailed(f"no tape of step {i} is stored; record the step, or read the tape")
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
                arrays = {name: jnp.conj(bar) for name, bar in self._adjoint.items()}
        named = (arrays[name] for name in self._like[key.kind])
        return [as_bytes(np.ascontiguousarray(bits_of(array))) for array in named]

    @contextmanager
    def load(self, key: Key, layout: Layout, /) -> Generator[Buffers]:
        if layout != self.layout(key):
            raise BadInput(
                f"{key} does not fit this model; use the partition of the run that wrote it"
            )
        filled = [empty(field.shape, field.dtype) for field in layout]
        yield [as_bytes(array) for array in filled]
        like = self._like[key.kind]
        read = {n: array_of(like[n], bits) for n, bits in zip(like, filled, strict=True)}
        match key.kind:
            case Kind.RESTART:
                self._state = {**self._known(), **read}
            case Kind.TAPE:
                self._tapes = {key.step: read}
            case Kind.ADJOINT:
                self._adjoint = {name: jnp.conj(bar) for name, bar in read.items()}

    def _known(self) -> dict[str, Any]:
        """Return the state, which is x_0 at first."""
        if not self._state:
            controls = {name: jnp.array(x) for name, x in self._control.items()}
            self._state = {**self._first, **controls}
            self._farthest = (0, self._state)
        return self._state

    def _forward(self, begin: int, end: int, *, keep: bool) -> int:
        self._known()
        # Advance and record call one compiled function, so that x_n has the same bits in both.
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
        """Return J at the farthest state, and its derivatives."""
        self._known()
        _, state = self._farthest
        moving = {name: state[name] for name in self._control}
        differentiated = _differentiated(self._functional)
        j, cotangent = differentiated(moving, state, self._functional.consts)
        return {**cotangent, "functional J": j}

    def _start_adjoint(self, n: int) -> None:
        if self._adjoint:
            return
        self._known()
        if self._farthest[0] != n:
            raise _no_start(n, self._farthest[0])
        self._adjoint, self._farthest = self._seed(), (n, {})


@lru_cache(maxsize=8)
def _differentiated(functional: TracedFunction) -> Callable[..., Any]:
    """Compile J and its derivatives with respect to the first argument, once for each J."""

    def of(moving: Values, state: Values, consts: Leaves) -> Any:
        return functional(consts, {**state, **moving})

    compiled: Callable[..., Any] = jax.jit(jax.value_and_grad(of))
    return compiled


def field_of(name: str, it: Any, /) -> Field:
    """Return the field of an array in a checkpoint."""
    it = plain_shape(it)
    dtype = np.dtype(it.dtype)
    plain = dtype if dtype.kind in "biufc" else np.dtype(f"u{dtype.itemsize}")
    return Field(name, plain.str, tuple(it.shape))
