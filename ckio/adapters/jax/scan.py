"""A loop like `jax.lax.scan` over a state. Its reverse mode stores states on a platform's levels.

Both sweeps of a gradient perform the rows of a `SweepPlan`, one after the other. Outside `jax.jit`,
Python does this and calls compiled blocks. I/O then overlaps with computation: a state is written
while JAX computes the next block, and read while JAX reverses the previous block. Inside `jax.jit`,
a loop of XLA performs the rows, and calls Python only to store and fetch states.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from operator import ne
from os import PathLike
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import io_callback
from jax.experimental.hijax import VJPHiPrimitive, Zero, instantiate_zeros

from ckio.adapters.jax.blocks import (
    Cotangents,
    Given,
    LanesStep,
    Leaves,
    LoopBlocks,
    TracedFunction,
    array_of,
    arrays,
    bits_of,
    blocks_of,
    check_steps,
    compile_blocks,
    is_key,
    is_smooth,
    like,
    plain,
    plain_shape,
    smooth,
    when,
    zeros,
)
from ckio.adapters.jax.store import GONE, STORE, StoredStates, SweepPlan, SweepRow, plan
from ckio.errors import BadInput
from ckio.model.arrays import as_bytes
from ckio.model.comm import check_measures
from ckio.planners.base import Planner
from ckio.platform import Level, Platform, platform_of
from ckio.runner.reproducible import ReplayCheck

MEMORY: Final = Platform((Level(name="memory"),))
"""The levels if none are given."""

_NUMBER: Final = like((), np.int32)

_wait: Any = jax.block_until_ready
_instantiate: Any = instantiate_zeros
_one_by_one: Any = jax.custom_batching.sequential_vmap


def checkpointed_scan(
    step: Callable[..., Any],
    x0: Any,
    n: int,
    /,
    *,
    params: Any = None,
    xs: Any = None,
    platform: Platform | str | PathLike[str] | None = None,
    ram: int | str | None = None,
    disk: str | PathLike[str] | None = None,
    archive: str | PathLike[str] | None = None,
    planner: str | Planner = "hrevolve",
    segment: int | str = "auto",
    allow_rounding: bool = False,
    outputs: bool = False,
) -> Any:
    """Return x_n, n steps after x_0. Its gradient by `jax.grad` stores states on levels.

    If no derivative is taken, this is a plain loop in XLA. For reverse mode, the steps are grouped
    into blocks. A schedule decides which first states of blocks are stored on which level, and
    which are computed again. You can call this function inside `jax.jit` and outside, and under
    `jax.vmap`, which makes one loop of all lanes, unless a step calls Python. `jax.jvp` stores
    nothing. The gradient of its tangent is a Hessian product, with checkpoints; there is no other
    second derivative.

    >>> x = jnp.array([0.1, 0.2])
    >>> end = lambda r: checkpointed_scan(lambda x, r, i: r * x * (1 - x), x, 9, params=r).sum()
    >>> value, slope = jax.value_and_grad(end)(2.0)
    >>> round(float(value), 6), round(float(slope), 6)
    (1.0, 0.5)

    Parameters
    ----------
    step : callable
        `step(x, params, i)`, or with `xs` `step(x, params, i, row)`. It returns x_{i+1}, a pytree
        with the shapes and dtypes of x_i. It is traced in each call, and compiled if no function
        with the same operations has been.
    x0 : pytree of arrays
        Initial state, of any dtype. Arrays that are neither real nor complex have no gradient.
    n : int
        Number of steps, less than 2**31.
    params : pytree of arrays, optional
        Arrays that all steps read, with a gradient. Other arrays that a step uses are constants.
    xs : pytree of arrays, optional
        Arrays whose first axis is the step: step i reads row i of each. They have a gradient, too.
    platform : Platform or path, optional
        The levels; by default one level in memory. Capacities apply to each gradient separately.
        Files are removed when the gradient is done. If the levels have costs, the time of a block
        is measured; several processes cannot do so, because they would plan differently.
    ram, disk, archive : int, str or path, optional
        The levels in words instead of a platform, with usual costs: memory such as "2GiB", a
        directory and an HDF5 file such as "/scratch:200GiB"; see `Platform.of`.
    planner : str or callable, optional
        A planner that stores no tapes, or its name.
    segment : int or "auto", optional
        Number of steps of a block. While a block is reversed, its states and the results of
        products, transforms and solvers in its steps are in JAX's memory; "auto" chooses the length
        so that they take at most 16 MiB.
    allow_rounding : bool, optional
        Whether a state may differ by rounding when it is computed again. States are compared only
        outside of `jax.jit`.
    outputs : bool, optional
        Whether steps have outputs, as in `jax.lax.scan`: step i then returns (x_{i+1}, y_i), and
        this function (x_n, ys), where the first axis of the arrays of ys is the step. They are in
        JAX's memory as a whole, and have cotangents.

    Raises
    ------
    BadInput
        The step returns a structure, shape or dtype that differs from that of x, or an argument is
        invalid.
    NoSchedule
        A gradient is computed, but not even one state fits on the levels.
    StorageError
        A level failed. Inside `jax.jit` this is a JaxRuntimeError with the error in its message.
        All files are removed.
    """
    x, params, xs = arrays("x0", x0), arrays("params", params), arrays("xs", xs)
    n = check_steps(n, xs)
    if n == 0 and not outputs:
        return x
    blocks = blocks_of(step, x, params, xs, n=n, segment=segment, outputs=outputs)
    given = Given(jax.tree.leaves(params), jax.tree.leaves(xs), blocks.step.consts)
    leaves = jax.tree.leaves(x)
    if n == 0:
        after = [*leaves, *(jnp.zeros(it.shape, it.dtype) for it in blocks.ys)]
    else:
        levels = platform_of(platform, ram=ram, disk=disk, archive=archive)
        loop = ScanLoop(blocks, levels or MEMORY, planner, allow_rounding, (leaves, given))
        after = loop(leaves, given)
    end = jax.tree.unflatten(jax.tree.structure(x), after[: len(leaves)])
    if not outputs:
        return end
    assert isinstance(blocks.step, TracedFunction), "the step of the user"
    _, y = blocks.step.after
    return end, jax.tree.unflatten(jax.tree.structure(y), after[len(leaves) :])


class ScanLoop(VJPHiPrimitive):
    """The operation of JAX that is a loop: all its derivatives, and what `vmap` makes of it.

    Its arguments are the leaves of x_0 and those that are given; its results are the leaves of x_n
    and of all outputs. JAX asks for forward mode and for reverse mode by different methods, which
    `jax.custom_vjp` and `jax.custom_jvp` cannot tell apart.
    """

    blocks: LoopBlocks  # JAX makes attributes of the entries of `params`
    platform: Platform
    planner: str | Planner
    allow_rounding: bool

    def __init__(
        self,
        blocks: LoopBlocks,
        platform: Platform,
        planner: str | Planner,
        allow_rounding: bool,
        args: tuple[Leaves, Given],
    ) -> None:
        self.in_avals = jax.tree.map(jax.typeof, args)
        make: Any = _loop  # mypy cannot see that the arguments of a cached function are hashable
        self.loop: CompiledLoop = make(blocks, platform, planner, allow_rounding)
        self.out_aval = jax.tree.map(jax.typeof, jax.eval_shape(self.loop.plain, *args))
        options: dict[str, Any] = {"planner": planner, "allow_rounding": allow_rounding}
        self.params = {"blocks": blocks, "platform": platform, **options}
        super().__init__()  # type: ignore[no-untyped-call]

    def like(self, blocks: LoopBlocks, *args: Any) -> Leaves:
        """Return the result of other blocks, with the same options."""
        loop = ScanLoop(blocks, self.platform, self.planner, self.allow_rounding, args)
        return loop(*args)  # type: ignore[no-any-return]

    def expand(self, x: Leaves, given: Given) -> Leaves:
        return self.loop.plain(x, given)  # type: ignore[no-any-return]

    def vjp_fwd(self, _: Any, x: Leaves, given: Given) -> tuple[Leaves, Any]:
        if not _is_traced(x, given):
            way = _OutsideXla(self.blocks, self.allow_rounding)
            return self.loop.sweeps.forward(way, x, given)
        return self.loop.forward(x, given)  # type: ignore[no-any-return]

    def vjp_bwd_retval(self, residuals: Any, bars: Leaves) -> tuple[Leaves, Given]:
        token, *arrays = residuals
        pairs = zip(bars, (*self.blocks.x, *self.blocks.ys), strict=True)
        bars = [_instantiate(bar) for bar, leaf in pairs if is_smooth(leaf)]
        if isinstance(token, StoredStates) and not _is_traced(arrays, bars):
            way = _OutsideXla(self.blocks, self.allow_rounding)
            back = self.loop.sweeps.backward(way, residuals, bars)
        else:
            number = jnp.int32(GONE) if isinstance(token, StoredStates) else token
            back = self.loop.backward((number, *arrays), bars)
        x, given = self.in_avals
        zero = [Zero(it.to_ct_aval()) for it in given.consts]
        return _with_zeros(x, back.x), Given(
            _with_zeros(given.params, back.params), _with_zeros(given.rows, back.rows), zero
        )

    def jvp(self, args: tuple[Leaves, Given], tangents: Any) -> tuple[Leaves, Leaves]:
        (x, given), (dx, moved) = args, tangents
        pairs = (x, dx), (given.params, moved.params), (given.rows, moved.rows)
        x, params, rows = ([*it, *_tangents(it, along)] for it, along in pairs)
        after = self.like(self.blocks.tangent(), x, Given(params, rows, given.consts))
        of_x, of_y = self.blocks.x, self.blocks.ys
        parts, at = [], 0
        for size in len(of_x), len(smooth(of_x)), len(of_y), len(smooth(of_y)):
            parts.append(after[at : at + size])
            at += size
        end, end_bar, ys, ys_bar = parts
        return [*end, *ys], _with_zeros(self.out_aval, [*end_bar, *ys_bar])

    def batch(self, axis: Any, args: Any, dims: Any) -> tuple[Leaves, Any]:
        """Return the loop of all lanes; one after the other, if a step calls Python."""
        (x, given), (of_x, of_given) = args, dims
        size = axis.size
        if self.blocks.step.has_effects:
            tree: Any
            flat, tree = jax.tree.flatten(args)
            at = zip(flat, tree.flatten_up_to(dims), strict=True)
            every = jax.tree.unflatten(tree, [_lanes(size, 0, a, d) for a, d in at])
            return lax.map(lambda it: self(*it), every), [0] * len(self.out_aval)
        has = ([d is not None for d in it] for it in (of_x, of_given.params, of_given.rows))
        many = self.blocks.lanes(size, *has)
        assert isinstance(many.step, LanesStep)
        has_x, has_y = many.step.x, many.step.ys  # also of those that get lanes in a step
        x = [_lanes(size, 0, a, d) if it else a for a, d, it in zip(x, of_x, has_x, strict=True)]
        pairs = zip(given.params, of_given.params, strict=True)
        params = [a if d is None else jnp.moveaxis(a, d, 0) for a, d in pairs]
        pairs = zip(given.rows, of_given.rows, strict=True)
        rows = [a if d is None else jnp.moveaxis(a, d, 1) for a, d in pairs]
        after = self.like(many, x, Given(params, rows, given.consts))
        return after, [0 if it else None for it in has_x] + [1 if it else None for it in has_y]


class CompiledLoop(NamedTuple):
    """A loop and its sweeps in compiled programs."""

    sweeps: "Sweeps"
    plain: Callable[..., Any]
    forward: Callable[..., Any]
    backward: Callable[..., Any]


@lru_cache(maxsize=64)
def _loop(
    blocks: LoopBlocks, platform: Platform, planner: str | Planner, allow_rounding: bool, /
) -> CompiledLoop:
    """Return the sweeps of a loop, compiled once for all calls with equal arguments."""
    sweeps = Sweeps(blocks, platform, planner)
    make: Any = _loop
    inside = _InsideXla(blocks)
    forward = jax.jit(partial(sweeps.forward, inside))
    backward = jax.jit(partial(sweeps.backward, inside))

    def lanes(size: int, x: Leaves, given: Given) -> tuple[CompiledLoop, Leaves, Given]:
        """Return the loop of all lanes, and its arguments, of which each lane has its own."""
        has = ([True] * len(it) for it in (blocks.x, blocks.params, blocks.rows))
        many = make(blocks.lanes(size, *has), platform, planner, allow_rounding)
        rows = [jnp.moveaxis(a, 0, 1) for a in given.rows]
        return many, x, given._replace(rows=rows)

    def forth(size: int, has: Any, *args: Any) -> tuple[Any, Any]:
        many, x, given = lanes(size, *_spread(size, has, args))
        after, (number, last, *_) = many.forward(x, given)
        k = len(blocks.x)
        after[k:] = [jnp.moveaxis(y, 1, 0) for y in after[k:]]
        return (after, (number, last, *args)), ([True] * len(after), (False, [True] * k, *has))

    def back(size: int, has: Any, residuals: Any, bars: Leaves) -> tuple[Any, Any]:
        (number, *arrays), (_, of_last, *others) = residuals, has[0]
        last, x, given = _spread(size, (of_last, *others), arrays)
        many, x, given = lanes(size, x, given)
        bars = _spread(size, has[1], bars)
        k = len(smooth(blocks.x))
        bars = [*bars[:k], *(jnp.moveaxis(bar, 0, 1) for bar in bars[k:])]
        found = many.backward((number, last, x, given), bars)
        found = found._replace(rows=[jnp.moveaxis(bar, 1, 0) for bar in found.rows])
        return found, jax.tree.map(lambda _: True, found)

    # Several results of one forward sweep, as for jax.jacrev, go one by one: it has no lanes.
    together = not blocks.step.has_effects
    return CompiledLoop(
        sweeps,
        jax.jit(sweeps.plain),
        _refuse_second(_batched(forward, forth, lambda _: together)),
        _refuse_second(_batched(backward, back, lambda has: together and any(has[0][1]))),
    )


def _batched(
    function: Callable[..., Any], rule: Callable[..., Any], together: Callable[[Any], bool]
) -> Callable[..., Any]:
    """Return a function that `vmap` calls for all lanes together, or for one after the other."""
    one_by_one = _one_by_one(function)
    made: Any = jax.custom_batching.custom_vmap(function)

    @made.def_vmap  # type: ignore[untyped-decorator]  # jax is seen as Any
    def batched(size: int, has: Any, *args: Any) -> Any:
        if together(has):
            return rule(size, has, *args)
        axes = tuple(jax.tree.map(lambda it: 0 if it else None, has))
        found = jax.vmap(one_by_one, axes)(*args)
        return found, jax.tree.map(lambda _: True, found)

    return made  # type: ignore[no-any-return]


def _spread(size: int, has: Any, tree: Any) -> Any:
    """Return arrays with an axis of lanes at the front, from those of which some have it."""
    leaves, structure = jax.tree.flatten(tree)
    pairs = zip(leaves, jax.tree.leaves(has), strict=True)
    return jax.tree.unflatten(structure, [_lanes(size, 0, a, 0 if it else None) for a, it in pairs])


def _lanes(size: int, axis: int, array: Any, had: int | None) -> Any:
    if had is None:
        return jnp.broadcast_to(jnp.expand_dims(array, axis), (size, *array.shape))
    return jnp.moveaxis(array, had, axis)


def _tangents(leaves: Leaves, tangents: Leaves) -> Leaves:
    """Return the tangents of the leaves that have one."""
    pairs = zip(leaves, tangents, strict=True)
    return [_instantiate(tangent) for leaf, tangent in pairs if is_smooth(leaf)]


def _with_zeros(avals: Leaves, bars: Leaves) -> Leaves:
    """Return a cotangent, or tangent, for each leaf: a zero, if the leaf has no derivative."""
    found = iter(bars)
    return [next(found) if is_smooth(it) else Zero(it.to_tangent_aval()) for it in avals]


def _refuse_second(sweep: Callable[..., Any]) -> Callable[..., Any]:
    """Return a sweep whose derivative is refused; JAX's own errors do not say what is missing."""
    first: Any = jax.custom_jvp(sweep)

    @first.defjvp  # type: ignore[untyped-decorator]  # jax is seen as Any
    def refuse(*_: object) -> None:
        raise BadInput(
            "checkpointed_scan has no second derivative of a gradient: take the gradient of a"
            " tangent, jax.grad(lambda c: jax.jvp(f, (c,), (v,))[1])(c), the Hessian times v"
        )

    return first  # type: ignore[no-any-return]


def _is_traced(*trees: Any) -> bool:
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(trees))


class Reversal(NamedTuple):
    """The values that a sweep carries from one row to the next.

    Attributes
    ----------
    token
        The `StoredStates` of the gradient. In a compiled program it is the gradient's number.
    x : list of arrays
        The state.
    ys : list of arrays
        The outputs; none in a sweep that does not need them.
    back : Cotangents
        Cotangents; the forward sweep has none.
    """

    token: Any
    x: Leaves
    ys: Leaves
    back: Cotangents


@dataclass(frozen=True)
class Sweeps:
    """The two sweeps of a gradient. Their plan is computed when it is first needed."""

    blocks: LoopBlocks
    platform: Platform
    planner: str | Planner

    @cached_property
    def plan(self) -> SweepPlan:
        blocks = self.blocks
        seconds = partial(_measure, blocks)
        return plan(blocks.count, max(1, blocks.nbytes), self.platform, self.planner, seconds)

    def forward(self, way: "_Way", x: Leaves, given: Given, /) -> tuple[Leaves, Any]:
        """Return x_n, and the residuals that the reverse sweep needs."""
        token, last, ys = self._to_last(way, x, given, self._no_outputs())
        count = self.blocks.count
        end, ys = way.advance(last, ys, given, count - 1, count)
        return [*end, *ys], (token, last, x, given)

    def plain(self, x: Leaves, given: Given, /) -> Leaves:
        """Return x_n and the outputs, computed without a schedule."""
        end, ys = self.blocks.advance(x, self._no_outputs(), given, 0, self.blocks.count)
        return [*end, *ys]

    def _no_outputs(self) -> Leaves:
        return [_zero(it) for it in self.blocks.ys]

    def backward(self, way: "_Way", residuals: Any, bars: Leaves, /) -> Cotangents:
        """Return the cotangents of x_0, and of the parameters and rows."""
        token, last, x, given = residuals
        if self.plan.slots:
            repeat = lambda: self._to_last(way, x, given, [])[:2]  # noqa: E731
            token, last = way.begin_reverse(token, last, repeat)
        k = len(smooth(self.blocks.x))
        back = Cotangents(bars[:k], zeros(given.params), zeros(given.rows), bars[k:])
        begin = Reversal(token, last, [], way.to_overwrite(back))
        return self._sweep(way, self.plan.backward, given, begin).back._replace(ys=[])

    def _to_last(
        self, way: "_Way", x: Leaves, given: Given, ys: Leaves
    ) -> tuple[Any, Leaves, Leaves]:
        """Advance to the first state of the last block."""
        token = way.begin(self.plan) if self.plan.slots else np.int32(0)
        begin = Reversal(token, x, ys, Cotangents([], [], [], []))
        end = self._sweep(way, self.plan.forward, given, begin)
        return end.token, end.x, end.ys

    def _sweep(
        self, way: "_Way", rows: tuple[SweepRow, ...], given: Given, begin: Reversal
    ) -> Reversal:
        def after(row: SweepRow, has: SweepRow, at: Reversal) -> Reversal:
            token, x, ys, back = at

            def read(old: tuple[Any, Leaves]) -> tuple[Any, Leaves]:
                return way.get(old[0], row.read, old[1])

            token, x = when(has.read, read, (token, x))
            x, ys = when(
                has.end, lambda at: way.advance(at[0], at[1], given, row.begin, row.end), (x, ys)
            )
            token = when(has.write, lambda token: way.put(token, row.write, x), token)
            back = when(has.reverse, lambda back: way.reverse(x, given, row.reverse, back), back)
            return Reversal(token, x, ys, back)

        return way.through(rows, after, begin)


_After = Callable[[SweepRow, SweepRow, Reversal], Reversal]
"""A function of a row, of flags which of its parts exist, and of the values before the row.

It returns the values after the row.
"""


class _InsideXla:
    """Sweeps in a compiled program: a loop over the table, and callbacks that store and fetch."""

    def __init__(self, blocks: LoopBlocks, /) -> None:
        self.advance, self.reverse = blocks.advance, blocks.reverse
        self._like = [plain_shape(leaf) for leaf in blocks.x]

    def through(self, rows: tuple[SweepRow, ...], after: _After, begin: Reversal, /) -> Reversal:
        """Perform all rows. A part that all rows have, or none, is compiled without a condition."""
        if not rows:
            return begin
        table = np.array(rows, np.int32)
        has = table != np.array(SweepRow())
        constant = {
            number: bool(cells[0])
            for number, cells in enumerate(has.T)
            if (cells == cells[0]).all()
        }

        def one(at: Reversal, cells: tuple[Any, Any]) -> tuple[Reversal, None]:
            row, has = cells
            known = (constant.get(number, it) for number, it in enumerate(has))
            return after(SweepRow(*row), SweepRow(*known), at), None

        end, _ = lax.scan(one, begin, (list(table.T), list(has.T)))
        return end

    def begin(self, plan: SweepPlan, /) -> Any:
        return io_callback(partial(STORE.begin, plan), _NUMBER)

    def begin_reverse(
        self, number: Any, last: Leaves, repeat: Callable[[], Any], /
    ) -> tuple[Any, Leaves]:
        """Begin the reverse sweep. If the stored states are gone, run the forward sweep again."""

        def anew(_: Any) -> tuple[Any, Leaves]:
            number, last = repeat()
            return io_callback(STORE.take, _NUMBER, number), last

        number = io_callback(STORE.take, _NUMBER, number)
        return when(number == GONE, anew, (number, last))  # type: ignore[no-any-return]

    def to_overwrite(self, back: Cotangents, /) -> Cotangents:
        return back

    def put(self, number: Any, access: Any, x: Leaves, /) -> Any:
        return io_callback(STORE.put, _NUMBER, number, access, plain(x))

    def get(self, number: Any, access: Any, old: Leaves, /) -> tuple[Any, Leaves]:
        get = partial(STORE.get, self._like)
        number, bits = io_callback(get, (_NUMBER, self._like), number, access)
        wrap = jax.random.wrap_key_data
        pairs = zip(old, bits, strict=True)
        return number, [wrap(b, impl=jax.random.key_impl(o)) if is_key(o) else b for o, b in pairs]


class _OutsideXla:
    """Sweeps in Python: compiled blocks, and levels that are used while JAX computes."""

    def __init__(self, blocks: LoopBlocks, allow_rounding: bool, /) -> None:
        self._compiled = compile_blocks(blocks)
        self._length, self._size, self._names = blocks.length, blocks.size, blocks.names
        self._replay = ReplayCheck(allow_rounding=allow_rounding)
        self._late: list[Callable[[], None]] = []  # a write that waits until JAX computes again

    def through(self, rows: tuple[SweepRow, ...], after: _After, begin: Reversal, /) -> Reversal:
        """Perform all rows. If one fails or is interrupted, close the levels."""
        at = begin
        try:
            for row in rows:
                at = after(row, SweepRow(*map(ne, row, SweepRow())), at)
            self._write()
        except BaseException:
            if isinstance(begin.token, StoredStates):
                begin.token.close()
            raise
        return at

    def begin(self, plan: SweepPlan, /) -> StoredStates:
        states = StoredStates(plan)
        states.replay = self._replay
        return states

    def begin_reverse(
        self, states: StoredStates, last: Leaves, repeat: Callable[[], Any], /
    ) -> tuple[Any, Leaves]:
        if not states.take():
            return repeat()  # type: ignore[no-any-return]
        self._replay = states.replay
        return states, last

    def to_overwrite(self, back: Cotangents, /) -> Cotangents:
        """Return copies, because the compiled functions overwrite the cotangents."""
        return jax.tree.map(jnp.array, back)  # type: ignore[no-any-return]

    def advance(
        self, x: Leaves, ys: Leaves, given: Given, begin: Any, end: Any, /
    ) -> tuple[Leaves, Leaves]:
        replay, size = self._replay, self._size
        while True:
            known = replay.between(begin * size, end * size)
            to = end if known is None else known // size
            if known is None and end - begin > 1 and replay.may((end - 1) * size):
                to = end - 1  # a later sweep ends there
            x, ys = self._compiled.advance(x, ys, given, begin, to)
            self._write()
            if to < end or (to * size in replay.marks and replay.may(to * size)):
                _wait(x)
                replay.look(to * size, partial(self._bits, x), since=begin * size)
            if to == end:
                return x, ys
            begin = to

    def _bits(self, x: Leaves) -> list[tuple[str, str, memoryview]]:
        """Return name, dtype and bytes of each array of a state."""
        arrays = [np.ascontiguousarray(bits_of(leaf)) for leaf in x]
        return [
            (name, array.dtype.str, as_bytes(array))
            for name, array in zip(self._names, arrays, strict=True)
        ]

    def reverse(self, x: Leaves, given: Given, number: Any, back: Cotangents, /) -> Cotangents:
        _wait(back)  # otherwise all states would be read before they are needed
        self._replay.passed(number * self._size)
        return self._compiled.reverse_over(self._length(number), x, given, number, back)  # type: ignore[no-any-return]

    def put(self, states: StoredStates, access: int, x: Leaves, /) -> StoredStates:
        self._write()
        self._late.append(lambda: states.put(access, x))
        return states

    def get(self, states: StoredStates, access: int, old: Leaves, /) -> tuple[Any, Leaves]:
        self._write()
        pairs = zip(old, states.get(access), strict=True)  # copied, because JAX keeps the memory
        return states, [array_of(leaf, bits, may_alias=False) for leaf, bits in pairs]

    def _write(self) -> None:
        while self._late:
            self._late.pop()()


_Way = _InsideXla | _OutsideXla


def _measure(blocks: LoopBlocks) -> float:
    """Return the seconds of a block forward, the least of three runs with zeros."""
    check_measures(jax.process_count() > 1, "give levels without costs")
    seconds: list[float] = []
    with jax.ensure_compile_time_eval():  # also if JAX is tracing
        x, params, rows = (list(map(_zero, it)) for it in (blocks.x, blocks.params, blocks.rows))
        given = Given(params, rows, blocks.step.consts)
        for _ in range(3):  # the first run compiles the function
            start = time.perf_counter()
            _wait(compile_blocks(blocks).advance(x, [], given, 0, 1))
            seconds.append(time.perf_counter() - start)
    return min(seconds)


def _zero(leaf: Any) -> Any:
    if is_key(leaf):
        return jax.random.split(jax.random.key(0), leaf.shape)
    return jnp.zeros(leaf.shape, leaf.dtype)
