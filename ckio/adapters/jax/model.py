"""A loop of JAX as a model that ckio schedules, runs, and goes on with after a kill."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ckio.actions import Buffers, Field, Key, Kind, Layout
from ckio.adapters.jax.blocks import (
    Back,
    Blocks,
    Given,
    Leaves,
    Shapes,
    arrays,
    blocks_of,
    check_steps,
    is_key,
    is_smooth,
    like,
    merged,
    smooth,
    zeros,
)
from ckio.errors import BadInput, RunFailed, UnsupportedKind
from ckio.model.arrays import Array, Arrays, as_bytes, empty


class JaxModel:
    """A loop of JAX in steps of `segment` iterations each; its state lies where JAX puts it.

    A step is a block of iterations in one compiled function. To record it is to keep its first
    state: reversing it runs it forward once more, inside JAX. So there are no tapes to store, and
    a schedule of restart data alone fits best. A checkpoint of restart data is the arrays of a
    state, which go to memory on the host without a copy, as nobody changes an array of JAX; one of
    the adjoint has the cotangents of x, of all parameters and rows, and J.

    Controls are x_0, the parameters and the rows, as far as they are real or complex; an array
    is called by its place in the tree, such as "x.u", "params.k" or "xs".

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
        As `checkpointed_scan` takes it.
    x0 : pytree of arrays
        Copied.
    functional : callable
        J(x_n), a real number, by functions of JAX.
    n : int
        Iterations in all; the last step may have fewer of them than the others.
    params, xs : pytree of arrays, optional
        As `checkpointed_scan` takes them.
    segment : int or "auto"
        Iterations of a step.
    on_step : callable, optional
        Called after each step of either sweep with where it now stands.

    Attributes
    ----------
    steps : int
        How many steps the iterations make.

    Raises
    ------
    BadInput
        As `checkpointed_scan` does, and where J is no real number.
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
            raise BadInput("JaxModel: n = 0; there has to be an iteration")
        self._blocks = blocks_of(step, Shapes.of(x, params, xs), int(n), segment)
        self.steps, self.on_step = self._blocks.count, on_step
        j = jax.eval_shape(functional, self._blocks.shapes.x)
        if j.shape or not jnp.issubdtype(j.dtype, jnp.floating):
            raise BadInput(f"JaxModel: J is {j.dtype}{list(j.shape)}, not a real number")
        self._advance, self._reverse, self._seed = _compiled(self._blocks, functional)

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
        self._j = j.dtype
        self._state: Leaves | None = None  # until x_0 is made of the controls
        self._given = Given([], [])
        self._kept: dict[int, Leaves] = {}  # the first states of recorded steps
        self._late: int | None = None  # a recorded step that the state has not made yet
        self._farthest: tuple[int, Leaves | None] = (-1, None)  # None: that step was put off
        self._adjoint: tuple[Back, Any] | None = None  # cotangents and J, once it has started

    @property
    def control(self) -> Arrays:
        return self._control

    @property
    def gradient(self) -> Mapping[str, Array]:
        back, _ = self._started(None)
        flat = [*back.x, *back.params, *back.rows]
        return {name: np.asarray(it) for name, it in zip(self._control, flat, strict=True)}

    @property
    def functional(self) -> float:
        return float(self._started(None)[1])

    def layout(self, key: Key, /) -> Layout:
        match key.kind:
            case Kind.RESTART:
                named = list(zip(self._names, self._blocks.shapes.leaves[0], strict=True))
            case Kind.ADJOINT:
                named = [("J", like((), self._j))]
                named += [(f"bar.{name}", array) for name, array in self._control.items()]
            case Kind.TAPE:
                raise UnsupportedKind(
                    f"{key}: a model of JAX has no tapes to store; plan with one that stores"
                    " restart data alone, such as hrevolve"
                )
        return tuple(_field(name, it) for name, it in named)

    def advance(self, begin: int, end: int, /) -> int:
        end = min(end, self.steps)
        state = self._now()
        if end > begin:
            self._state = self._advance(state, self._given, begin, end)
        self._came(begin, end)
        return end

    def record(self, begin: int, end: int, /) -> int:
        end, self._kept = min(end, self.steps), {}
        for i in range(begin, end):
            self._kept[i] = self._now()
            self._late = i  # whoever needs what comes after it computes it then
            self._came(i, i + 1)
        return end

    def reverse(self, begin: int, end: int, /) -> None:
        back, j = self._started(end)
        for i in reversed(range(begin, end)):
            if i not in self._kept:
                raise RunFailed(f"no tape of step {i} is held; record it before")
            back = self._reverse(self._kept.pop(i), self._given, i, back)
            self._adjoint = back, j
            self._report(i)

    def dump(self, key: Key, /) -> Buffers:
        match key.kind:
            case Kind.ADJOINT:
                back, j = self._started(key.step)
                leaves = [j, *back.x, *back.params, *back.rows]
            case _:
                self.layout(key)
                leaves = self._now()
        return [as_bytes(np.ascontiguousarray(_bits(leaf))) for leaf in leaves]

    @property
    def handed(self) -> frozenset[Kind]:
        return frozenset((Kind.RESTART,))

    def give(self, key: Key, slot: Callable[[int], memoryview], /) -> Buffers:
        return self.dump(key)  # what JAX has computed it does not change any more

    def take(self, key: Key, layout: Layout, data: Buffers, /) -> None:
        self._check_layout(key, layout)
        views = zip(layout, data, strict=True)
        self._adopt(key, [np.ndarray(field.shape, field.dtype, view) for field, view in views])

    @contextmanager
    def load(self, key: Key, layout: Layout, /) -> Generator[Buffers]:
        self._check_layout(key, layout)
        filled = [empty(field.shape, field.dtype) for field in layout]
        yield [as_bytes(array) for array in filled]
        self._adopt(key, filled)

    def _check_layout(self, key: Key, layout: Layout) -> None:
        if layout != self.layout(key):
            raise BadInput(f"{key} does not fit this model; was it written with other options?")

    def _adopt(self, key: Key, filled: Sequence[Array]) -> None:
        first = self._now(late=self._adjoint is None and self._farthest[1] is None)
        match key.kind:
            case Kind.ADJOINT:
                same = [
                    jnp.zeros((), self._j),
                    *(leaf for it in self._first for leaf in smooth(it)),
                ]
                j, *bars = map(_as, same, filled)
                sizes = [len(smooth(it)) for it in self._first]
                ends = np.cumsum(sizes).tolist()
                cut = (bars[end - size : end] for size, end in zip(sizes, ends, strict=True))
                self._adjoint = Back(*cut), j
            case _:
                self._state, self._late = list(map(_as, first, filled)), None

    def _now(self, *, late: bool = True) -> Leaves:
        """The state; x_0 where there is none yet. What was recorded and put off is done now."""
        if self._state is None:
            values = iter([jnp.array(array) for array in self._control.values()])
            x, params, rows = (
                merged(leaves, [next(values) for _ in smooth(leaves)]) for leaves in self._first
            )
            self._state, self._given = x, Given(params, rows)
            self._farthest = (0, x)
        if late and self._late is not None:
            step, self._late = self._late, None
            self._state = self._advance(self._state, self._given, step, step + 1)
            if self._farthest == (step + 1, None):
                self._farthest = (step + 1, self._state)
        return self._state

    def _came(self, begin: int, end: int) -> None:
        """Note where the state is, and say so."""
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
        """The adjoint; where it has not started, as it starts at the farthest state, x_n."""
        if self._adjoint is not None:
            return self._adjoint
        self._now()
        reached, state = self._farthest
        if n not in (None, reached):
            raise RunFailed(
                f"the adjoint cannot start at step {n}: the forward has come to {reached}, and J is"
                " known only where it ends"
            )
        assert state is not None
        j, bar = self._seed(smooth(state), state)
        started = Back(bar, zeros(self._given.params), zeros(self._given.rows)), j
        if n is not None:
            self._adjoint, self._farthest = started, (reached, None)
        return started


@lru_cache(maxsize=8)
def _compiled(blocks: Blocks, functional: Callable[[Any], Any]) -> tuple[Callable[..., Any], ...]:
    """Forward over blocks, back over one, and J with its derivative."""

    def j(moving: Leaves, state: Leaves) -> Any:
        return functional(jax.tree.unflatten(blocks.shapes.trees[0], merged(state, moving)))

    seed = jax.jit(jax.value_and_grad(j))
    return jax.jit(blocks.advance), jax.jit(blocks.reverse), seed


def _names(what: str, tree: Any) -> list[str]:
    """Of each leaf, the way to it."""
    ways = (path for path, _ in jax.tree.leaves_with_path(tree))
    tails = (jax.tree_util.keystr(path, simple=True, separator=".") for path in ways)
    return [f"{what}.{tail}".rstrip(".") for tail in tails]


def _field(name: str, it: Any) -> Field:
    it = jax.eval_shape(jax.random.key_data, it) if is_key(it) else it
    dtype = np.dtype(it.dtype)
    plain = dtype if dtype.kind in "biufc" else np.dtype(f"u{dtype.itemsize}")
    return Field(name, plain.str, tuple(it.shape))


def _bits(leaf: Any) -> Array:
    """An array as numbers of NumPy's own, without a copy where JAX allows it."""
    array = np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf)
    return array if array.dtype.kind in "biufc" else array.view(f"u{array.dtype.itemsize}")


def _as(old: Any, bits: Any) -> Any:
    """The array that has these bits, which nobody changes any more; on the CPU, in their memory."""
    if is_key(old):
        return jax.random.wrap_key_data(bits, impl=jax.random.key_impl(old))
    return jax.device_put(bits.view(old.dtype), may_alias=True)
