"""A loop of JAX in blocks of steps, which can advance over blocks and reverse one of them.

To reverse a block, one compiled function runs it forward once more and then backward, so only the
first state of the block must be stored. XLA has the states of the block's steps in memory
meanwhile, with the results of products and transforms. It computes the rest of a step once more
just before it reverses the step. This is faster than to store all values of all steps, because XLA
fuses both computations.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun, subjaxprs
from numpy.typing import NDArray

from ckio.actions.checks import is_whole
from ckio.errors import BadInput
from ckio.model.arrays import check_unmasked

Leaves = list[Any]
"""The arrays of a pytree, in its order."""

like: Any = jax.ShapeDtypeStruct
"""A shape and a dtype."""

BLOCK_BYTES: Final = 16 * 2**20
"""Bytes that the states within a block may take if its length is "auto".

An allocator returns larger pieces of memory to the system each time, and gets new ones page by
page, which is slow.
"""

COSTLY: Final = frozenset(
    {
        "dot_general",
        "conv_general_dilated",
        "fft",
        "sort",
        "cholesky",
        "eig",
        "eigh",
        "lu",
        "qr",
        "svd",
        "schur",
        "triangular_solve",
        "tridiagonal",
        "tridiagonal_solve",
        "custom_linear_solve",
        "while",
        "custom_vjp_call",
        "pure_callback",
        "ffi_call",
    }
)
"""Operations of a step whose results are stored within a block. To compute them again takes longer
than to store them. Solvers by iteration are often loops, or functions with a derivative of their
own."""

STRAIGHT: Final = 4
"""Up to this many steps, a block is compiled without a loop on a device. A loop would copy the
states, and what the reverse needs, to arrays with one row for each step. On a CPU this is only done
for a single step: XLA fuses steps that are not in a loop, and computes a value of the first one
again for each value of the last one that depends on it."""

MAX_STEPS: Final = 2**31 - 1
"""The largest number of steps, because they are counted in 32 bits."""


_CUSTOM: Final = ("custom_jvp_call", "custom_vjp_call")
"""Operations with a derivative of their own, which a Python function computes."""


class Given(NamedTuple):
    """Leaves that steps read: parameters, rows of single steps, and `TracedFunction.consts`."""

    params: Leaves
    rows: Leaves
    consts: Leaves


class Cotangents(NamedTuple):
    """Cotangents of the state, the parameters and all rows, without leaves that have none.

    Those of all outputs, `ys`, are only read.
    """

    x: Leaves
    params: Leaves
    rows: Leaves
    ys: Sequence[Any] = ()


class TracedFunction:
    """A program of JAX, traced from a function when this is created.

    A Python function may read an attribute, a global variable or a variable of an outer function,
    which may change between two calls. Therefore a compiled program is not found by the function,
    but by the operations that JAX traces from the function in each call.

    Two of them are equal if they have the same operations and derivatives. They may differ in
    `consts`, so that a function that was compiled with one of them serves the other, too.

    Parameters
    ----------
    function : callable
    *args : pytree of arrays
        Arguments, or their shapes and dtypes.

    Attributes
    ----------
    consts : list of arrays
        What the function reads in addition to its arguments. Arrays of NumPy are copied.
    after : pytree of jax.ShapeDtypeStruct
        Shapes and dtypes of the result.
    has_effects : bool
        Whether the function does more than to compute, for example calls Python.
    """

    def __init__(self, function: Callable[..., Any], /, *args: Any) -> None:
        # A new function, because JAX finds an earlier trace by the function.
        trace = jax.make_jaxpr(partial(function), return_shape=True)
        closed, self.after = trace(*args)
        with jax.ensure_compile_time_eval():
            arrays = (it if isinstance(it, jax.Array) else jnp.array(it) for it in closed.consts)
            self.consts = list(arrays)
        self.has_effects = bool(closed.effects)
        self._jaxpr: Any = closed.jaxpr
        self._operations = _describe(closed.jaxpr)
        if _has_own_derivative(closed.jaxpr):
            self._operations += (self._derivative(),)
        self._hash = hash(self._operations)

    def __call__(self, consts: Sequence[Any], /, *args: Any) -> Any:
        """Return the result, computed with these arrays in place of `consts`."""
        leaves = self._of(consts, jax.tree.leaves(args))
        return jax.tree.unflatten(jax.tree.structure(self.after), leaves)

    def _of(self, consts: Sequence[Any], leaves: Sequence[Any]) -> list[Any]:
        return jaxpr_as_fun(ClosedJaxpr(self._jaxpr, consts))(*leaves)  # type: ignore[no-any-return]

    def _derivative(self) -> Any:
        """Return the operations of the derivative, or a unique object if there is none."""

        def pulled(leaves: list[Any]) -> Any:
            def moved(moving: list[Any]) -> list[Any]:
                moving = list(moving)
                every = [moving.pop(0) if is_smooth(leaf) else leaf for leaf in leaves]
                return [leaf for leaf in self._of(self.consts, every) if is_smooth(leaf)]

            after, pull = jax.vjp(moved, [leaf for leaf in leaves if is_smooth(leaf)])
            return pull(after)

        leaves = [shape_of(var.aval) for var in self._jaxpr.invars]
        try:
            return _describe(jax.make_jaxpr(pulled)(leaves).jaxpr)
        except Exception:  # the function may be called without its derivative
            return object()

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TracedFunction) and self._operations == other._operations


@dataclass(frozen=True)
class LoopBlocks:
    """A loop of n steps in blocks of `size` steps; the last block may be shorter.

    Attributes
    ----------
    step : Step
        `step(consts, x, params, i, row)` takes leaves, and returns those of x_{i+1} and of y_i.
    names : tuple of str
        The names of the arrays of a state, which are their paths in the tree.
    x, params, rows : tuple of jax.ShapeDtypeStruct
        Shapes and dtypes of the leaves of a state, of the parameters, and of all n rows.
    ys : tuple of jax.ShapeDtypeStruct
        Shapes and dtypes of the leaves of all n outputs.
    n, size : int
        Number of steps, and of those in a block.
    segment : int or "auto"
        The size that was asked for. With "auto", a block is the longest whose states fit into
        `BLOCK_BYTES`. Each length is compiled separately. Therefore all blocks get the same length
        if this adds at most 50 % more blocks.
    """

    step: "Step"
    names: tuple[str, ...]
    x: tuple[Any, ...]
    params: tuple[Any, ...]
    rows: tuple[Any, ...]
    ys: tuple[Any, ...]
    n: int
    segment: int | str

    @cached_property
    def size(self) -> int:
        if not isinstance(self.segment, str):
            return min(self.n, int(self.segment))
        count = -(-self.n // min(self.n, _automatic(self)))
        equal = (it for it in range(count, count + count // 2 + 1) if self.n % it == 0)
        return -(-self.n // next(equal, count))

    @property
    def count(self) -> int:
        return -(-self.n // self.size)

    @cached_property
    def nbytes(self) -> int:
        """The bytes of a state."""
        return sum(map(nbytes_of, self.x))

    def tangent(self) -> "LoopBlocks":
        """Return the loop of the pair (x, dx): of each kind of leaves, all and their tangents."""
        pairs = ((*it, *smooth(it)) for it in (self.x, self.params, self.rows, self.ys))
        x, params, rows, ys = pairs
        named = zip(self.names, self.x, strict=True)
        names = (*self.names, *(f"tangent of {name}" for name, leaf in named if is_smooth(leaf)))
        return replace(
            self, step=TangentStep(self), names=names, x=x, params=params, rows=rows, ys=ys
        )

    def lanes(
        self, size: int, x: Sequence[bool], params: Sequence[bool], rows: Sequence[bool], /
    ) -> "LoopBlocks":
        """Return so many loops side by side; the flags say of which leaves each has its own.

        Each has its own state, but of a pair that differs in tangents alone only the tangents.
        """
        common_x = common_y = 0  # so many leaves, the first ones, are the same in all lanes
        if isinstance(self.step, TangentStep):
            of = self.step.blocks
            one = x[: len(of.x)], params[: len(of.params)], rows[: len(of.rows)]
            if not any(map(any, one)):
                common_x, common_y = len(of.x), len(of.ys)
        own_x = tuple(k >= common_x for k in range(len(self.x)))
        own_y = tuple(k >= common_y for k in range(len(self.ys)))
        step = LanesStep(self, own_x, tuple(params), tuple(rows), own_y)
        alone, beside = partial(_with_axis, size, 0), partial(_with_axis, size, 1)
        return replace(
            self,
            step=step,
            x=tuple(map(alone, self.x, step.x)),
            params=tuple(map(alone, self.params, params)),
            rows=tuple(map(beside, self.rows, rows)),
            ys=tuple(map(beside, self.ys, step.ys)),
        )

    def advance(
        self, x: Leaves, ys: Leaves, given: Given, begin: Any, end: Any, /
    ) -> tuple[Leaves, Leaves]:
        """Advance from the first state of block `begin` to that of `end`; both may be traced.

        Outputs are written into `ys`, unless it is empty.
        """

        def one(i: Any, at: tuple[Leaves, Leaves]) -> tuple[Leaves, Leaves]:
            x, ys = at
            x, y = self.at(i, x, given)
            put = lax.dynamic_update_index_in_dim
            return x, [put(a, b, i, 0) for a, b in zip(ys, y, strict=False)]

        first, last = jnp.int32(begin * self.size), jnp.int32(jnp.minimum(end * self.size, self.n))
        return lax.fori_loop(first, last, one, (x, ys))  # type: ignore[no-any-return]

    def advance_one(
        self, length: int, x: Leaves, given: Given, number: Any, /
    ) -> tuple[Leaves, Any]:
        """Advance over one block, whose number of steps is known; also return the next number.

        On a device, one call for each block takes less time than the loop of `advance`, whose end
        the host must read from the device after each block, and wait for copies meanwhile.
        """
        begin = jnp.int32(number * self.size)

        def one(k: Any, x: Leaves) -> Leaves:
            return self.at(begin + k, x, given)[0]

        return lax.fori_loop(0, length, one, x, unroll=_is_straight(length)), number + 1

    def length(self, number: int, /) -> int:
        """Return the number of steps of a block."""
        return min(self.size, self.n - number * self.size)

    def reverse(self, x: Leaves, given: Given, number: Any, back: Cotangents, /) -> Cotangents:
        """Reverse one block from its first state, and add its contribution to the gradient.

        The number of the block may be traced.
        """
        last = self.count - 1
        whole, short = self.length(0), self.length(last)
        if whole == short:
            return self.reverse_of(whole, x, given, number, back)
        for length, fits in (whole, number != last), (short, number == last):
            back = when(fits, partial(self.reverse_of, length, x, given, number), back)
        return back

    def reverse_of(
        self, length: int, x: Leaves, given: Given, number: Any, back: Cotangents, /
    ) -> Cotangents:
        """Reverse one block whose number of steps is known."""
        begin = jnp.int32(number * self.size)
        rows = [lax.dynamic_slice_in_dim(a, begin, length) for a in given.rows]
        pull = self.pullback(begin, length, x, given._replace(rows=rows))
        ys_bar = [lax.dynamic_slice_in_dim(a, begin, length) for a in back.ys]
        x_bar, params_bar, rows_bar = pull((back.x, ys_bar))
        put = lax.dynamic_update_slice_in_dim
        return Cotangents(
            x_bar,
            [a + b for a, b in zip(back.params, params_bar, strict=True)],
            [put(a, b, begin, 0) for a, b in zip(back.rows, rows_bar, strict=True)],
            back.ys,
        )

    def pullback(
        self, begin: Any, length: int, x: Leaves, given: Given, /
    ) -> Callable[[tuple[Leaves, Leaves]], tuple[Leaves, Leaves, Leaves]]:
        """Return the function that reverses `length` steps, with what JAX stores for it.

        The rows that are given are those of these steps.
        """
        params, rows, consts = given
        take = self.one
        is_straight = _is_straight(length)
        if not is_straight and not self.step.has_effects:  # JAX computes no effect once more
            take = jax.checkpoint(take, prevent_cse=False, policy=_is_stored)

        def block(x_: Leaves, params_: Leaves, rows_: Leaves) -> tuple[Leaves, Leaves]:
            read = merge(params, params_)

            def one(x: Leaves, at: tuple[Any, Leaves]) -> tuple[Leaves, Leaves]:
                x, y = take(consts, x, read, *at)
                return x, smooth(y)

            steps = begin + jnp.arange(length, dtype=jnp.int32), merge(rows, rows_)
            end, ys = lax.scan(one, merge(x, x_), steps, unroll=is_straight)
            return smooth(end), ys

        return jax.vjp(block, smooth(x), smooth(params), smooth(rows))[1]

    def at(self, i: Any, x: Leaves, given: Given, /) -> tuple[Leaves, Leaves]:
        """Take step i, which reads row i, and return x_{i+1} and y_i."""
        row = [lax.dynamic_index_in_dim(a, i, keepdims=False) for a in given.rows]
        return self.one(given.consts, x, given.params, i, row)

    def one(
        self, consts: Leaves, x: Leaves, params: Leaves, i: Any, row: Leaves, /
    ) -> tuple[Leaves, Leaves]:
        """Take one step."""
        after = jax.tree.leaves(self.step(consts, x, params, i, row))
        return after[: len(x)], after[len(x) :]


class _Derived:
    """What a step has in common with the step of the loop from which it is derived."""

    blocks: LoopBlocks

    @property
    def consts(self) -> list[Any]:
        return self.blocks.step.consts

    @property
    def has_effects(self) -> bool:
        return self.blocks.step.has_effects


@dataclass(frozen=True)
class TangentStep(_Derived):
    """The step of the pair (x, dx). Parameters, rows and outputs are pairs, too."""

    blocks: LoopBlocks

    def __call__(self, consts: Leaves, *args: Any) -> Leaves:
        state, read, i, row_ = args
        of, n = self.blocks, len(self.blocks.x)
        pairs = (state, of.x), (read, of.params), (row_, of.rows)
        (x, dx), (params, dparams), (row, drow) = (
            (pair[: len(like)], pair[len(like) :]) for pair, like in pairs
        )

        def take(x_: Leaves, params_: Leaves, row_: Leaves) -> tuple[Leaves, Leaves]:
            args = merge(x, x_), merge(params, params_), i, merge(row, row_)
            after = jax.tree.leaves(of.step(consts, *args))
            return smooth(after), after

        at = smooth(x), smooth(params), smooth(row)
        _, moved, after = jax.jvp(take, at, (dx, dparams, drow), has_aux=True)
        k = len(smooth(after[:n]))
        return [*after[:n], *moved[:k], *after[n:], *moved[k:]]


@dataclass(frozen=True)
class LanesStep(_Derived):
    """The steps of several loops side by side, one batched step, and the leaves that each has."""

    blocks: LoopBlocks
    x: tuple[bool, ...]
    params: tuple[bool, ...]
    rows: tuple[bool, ...]
    ys: tuple[bool, ...]

    def __call__(self, consts: Leaves, *args: Any) -> Leaves:
        x, params, i, row = args
        every = self.x, self.params, self.rows, (*self.x, *self.ys)
        *axes, after = ([0 if it else None for it in each] for each in every)

        def take(x: Leaves, params: Leaves, row: Leaves) -> Leaves:
            return jax.tree.leaves(self.blocks.step(consts, x, params, i, row))

        return jax.vmap(take, tuple(axes), after)(x, params, row)


Step = TracedFunction | TangentStep | LanesStep


def _with_axis(size: int, axis: int, leaf: Any, has: bool) -> Any:
    """Return a shape with one axis more, if it has one for each lane."""
    if not has:
        return leaf
    return like((*leaf.shape[:axis], size, *leaf.shape[axis:]), leaf.dtype)


class CompiledBlocks(NamedTuple):
    """The functions of `LoopBlocks`, each of which is compiled when it is first called.

    The reverse is compiled for each length of a block, because one program for two lengths takes
    the memory of both. `reverse_over` overwrites the cotangents that it receives, and `advance` the
    outputs.
    """

    advance: Callable[..., Any]
    advance_one: Callable[..., Any]
    reverse: Callable[..., Any]
    reverse_over: Callable[..., Any]


@lru_cache(maxsize=64)
def compile_blocks(blocks: LoopBlocks, /) -> CompiledBlocks:
    """Compile the functions of a loop, once for all equal ones."""
    one, back = blocks.advance_one, blocks.reverse_of
    return CompiledBlocks(
        jax.jit(blocks.advance, donate_argnums=1),
        jax.jit(one, static_argnums=0),
        jax.jit(back, static_argnums=0),
        jax.jit(back, static_argnums=0, donate_argnums=4),
    )


def _is_straight(length: int) -> bool:
    """Return whether a block of so many steps is compiled without a loop."""
    return length == 1 or (length <= STRAIGHT and jax.default_backend() != "cpu")


def _is_stored(operation: Any, *inputs: Any, **options: Any) -> bool:
    """Return whether JAX stores the results of an operation until the step is reversed.

    Complex results are not stored: JAX raises a TypeError, because it passes stored results through
    an operation (`reduce_precision`) that exists for real numbers only.
    """
    if operation.name in ("fft", "eig"):  # may have complex results of real inputs
        return bool(options.get("fft_type") == lax.FftType.IRFFT)
    is_complex = (jnp.iscomplexobj(it) for it in inputs if hasattr(it, "dtype"))
    return operation.name in COSTLY and not any(is_complex)


def when(condition: Any, apply: Callable[[Any], Any], carry: Any, /) -> Any:
    """Return `apply(carry)` if the condition, which may be traced, is true, otherwise `carry`."""
    if isinstance(condition, bool):
        return apply(carry) if condition else carry
    return lax.cond(condition, apply, lambda it: it, carry)


def blocks_of(
    step: Callable[..., Any],
    x: Any,
    params: Any,
    xs: Any,
    /,
    *,
    n: int,
    segment: int | str,
    outputs: bool = False,
) -> LoopBlocks:
    """Return the blocks of a loop; raises BadInput if the arguments define no loop."""
    if segment != "auto" and (isinstance(segment, str) or not is_whole(segment) or segment < 1):
        raise BadInput(f"segment = {segment!r}; it must be a number of steps, or 'auto'")
    traced = _trace(step, x, params, xs, outputs=outputs)
    shapes = [tuple(map(shape_of, jax.tree.leaves(tree))) for tree in (x, params, xs)]
    paths = (path for path, _ in jax.tree.leaves_with_path(x))
    names = tuple(f"x{jax.tree_util.keystr(path)}" for path in paths)
    ys = tuple(like((n, *it.shape), it.dtype) for it in jax.tree.leaves(traced.after[1]))
    return LoopBlocks(traced, names, shapes[0], shapes[1], shapes[2], ys, n, segment)


@lru_cache(maxsize=64)
def _automatic(blocks: LoopBlocks) -> int:
    """Return the number of steps whose states fit into `BLOCK_BYTES`."""
    less, more = (_tape(blocks, length) for length in (STRAIGHT + 1, STRAIGHT + 2))
    return max(1, BLOCK_BYTES // max(1, more - less))


def _tape(blocks: LoopBlocks, length: int) -> int:
    """Return the bytes that JAX stores between the forward and the reverse of so many steps."""
    rows = [like((length, *a.shape[1:]), a.dtype) for a in blocks.rows]
    given = Given(list(blocks.params), rows, blocks.step.consts)
    pull = jax.eval_shape(partial(blocks.pullback, 0, length), list(blocks.x), given)
    return sum(map(nbytes_of, jax.tree.leaves(pull)))


def _trace(
    step: Callable[..., Any], x: Any, params: Any, xs: Any, *, outputs: bool
) -> TracedFunction:
    """Trace a step, which returns a state and an output, or None for no output.

    Raises BadInput if it returns a state of another structure, shape or dtype.
    """

    def strong(x: Any, params: Any, i: Any, row: Any) -> Any:
        after = step(x, params, i, *([row] if jax.tree.leaves(row) else []))
        if not outputs:
            after = after, None
        elif not isinstance(after, tuple) or len(after) != 2:
            raise BadInput(
                f"step returns {jax.tree.structure(after)}; with outputs=True it must return two"
                " values, as a tuple: the next state and an output"
            )
        return jax.tree.map(lambda leaf: _strong(jnp.asarray(leaf)), after)

    x, params = (jax.tree.map(shape_of, tree) for tree in (x, params))
    row = jax.tree.map(lambda a: like(a.shape[1:], a.dtype), xs)
    traced = TracedFunction(strong, x, params, like((), jnp.int32), row)
    if any(isinstance(const, jax.core.Tracer) for const in traced.consts):
        raise BadInput(
            "checkpointed_scan: step uses a traced array that is not an argument, so its gradient"
            " would be lost; give it as params"
        )
    one: Any = jax.tree.structure(x)
    two = jax.tree.structure(traced.after[0])
    if one != two:
        raise BadInput(f"step returns {two} for {one}; it must return the structure of x")
    pairs = zip(jax.tree.leaves_with_path(x), jax.tree.leaves(traced.after[0]), strict=True)
    for (path, before), after in pairs:
        if (before.shape, before.dtype) != (after.shape, after.dtype):
            raise BadInput(
                f"step returns x{jax.tree_util.keystr(path)} as {after.dtype}{list(after.shape)},"
                f" and received {before.dtype}{list(before.shape)}; it must keep the dtype and the"
                " shape"
            )
    return traced


def arrays(what: str, tree: Any, /) -> Any:
    """Return the tree with arrays as leaves; raises BadInput if a leaf cannot be an array."""

    def one(path: Any, leaf: Any) -> Any:
        check_unmasked(f"{what}{jax.tree_util.keystr(path)}", leaf)
        try:
            return _strong(jnp.asarray(leaf))
        except (TypeError, ValueError) as error:
            name = f"{what}{jax.tree_util.keystr(path)}"
            raise BadInput(
                f"{name} is a {type(leaf).__name__}, not an array; give arrays or numbers"
            ) from error

    return jax.tree_util.tree_map_with_path(one, tree)


def check_steps(n: object, rows: Any, /) -> int:
    """Return n; raises BadInput if it is invalid, or if there are not n rows."""
    if not is_whole(n) or not 0 <= n <= MAX_STEPS:
        raise BadInput(f"n = {n!r}; it must be a whole number of steps, below 2**31")
    for path, leaf in jax.tree.leaves_with_path(rows):
        if leaf.shape[:1] != (n,):
            name = f"xs{jax.tree_util.keystr(path)}"
            raise BadInput(f"{name} has shape {leaf.shape}; its first axis must be the {n} steps")
    return int(n)


def smooth(leaves: Sequence[Any], /) -> Leaves:
    """Return the leaves that have a cotangent."""
    return [leaf for leaf in leaves if is_smooth(leaf)]


def merge(leaves: Sequence[Any], smooth: Sequence[Any], /) -> Leaves:
    """Return these leaves, with the leaves that have a cotangent replaced by others."""
    others = iter(smooth)
    return [next(others) if is_smooth(leaf) else leaf for leaf in leaves]


def zeros(leaves: Sequence[Any], /) -> Leaves:
    """Return zero cotangents for the leaves that have one."""
    return [jnp.zeros(leaf.shape, leaf.dtype) for leaf in leaves if is_smooth(leaf)]


def shape_of(leaf: Any, /) -> Any:
    """Return the shape and dtype of an array."""
    return like(leaf.shape, leaf.dtype)


def is_key(leaf: Any, /) -> bool:
    """Return whether an array contains keys of random numbers."""
    return _is_key(leaf.dtype)


@lru_cache(maxsize=64)
def _is_key(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, jax.dtypes.prng_key))


def nbytes_of(leaf: Any, /) -> int:
    """Return the bytes of an array, or of a shape with a dtype."""
    plain = plain_shape(leaf)
    return int(plain.size * plain.dtype.itemsize)


def plain(leaves: Sequence[Any], /) -> Leaves:
    """Return the arrays, with keys of random numbers as the integers that NumPy can store."""
    return [jax.random.key_data(leaf) if is_key(leaf) else leaf for leaf in leaves]


def plain_shape(leaf: Any, /) -> Any:
    """Return the shape and dtype of the array that `plain` returns for this one."""
    return jax.eval_shape(jax.random.key_data, leaf) if is_key(leaf) else leaf


def bits_of(leaf: Any, /) -> NDArray[Any]:
    """Return the bits of an array in a dtype of NumPy, without a copy if JAX allows it."""
    array = np.asarray(*plain([leaf]))
    return array if array.dtype.kind in "biufc" else array.view(f"u{array.dtype.itemsize}")


def array_of(old: Any, bits: Any, /, *, may_alias: bool = True) -> Any:
    """Return an array like `old` with these bits. On the CPU it may share their memory."""
    if is_key(old):
        return jax.random.wrap_key_data(bits, impl=jax.random.key_impl(old))
    # If it were committed and `old` were not, or vice versa, functions would be compiled again.
    device = old.sharding if old.committed else None
    bits = bits if bits.dtype == old.dtype else bits.view(old.dtype)
    if isinstance(bits, jax.Array) and bits.committed == old.committed:
        return bits
    return jax.device_put(bits, device, may_alias=may_alias)


def _strong(leaf: Any) -> Any:
    """Return an array with a fixed dtype. JAX adapts the dtype of a Python number to others."""
    return lax.convert_element_type(leaf, leaf.dtype) if getattr(leaf, "weak_type", False) else leaf


def is_smooth(leaf: Any, /) -> bool:
    """Return whether an array has a cotangent, because its numbers are real or complex."""
    return bool(jnp.issubdtype(leaf.dtype, jnp.inexact))


def _describe(value: Any) -> Any:
    """Return a value that is equal for all traces of the same operations.

    An object without a value of its own is described by its identity. It belongs to the program,
    which lives as long as its description is compared.
    """
    match value:
        case Jaxpr():
            return _operations(value)
        case ClosedJaxpr():
            return _operations(value.jaxpr), _describe(value.consts)
        case dict():
            return tuple((key, _describe(it)) for key, it in value.items())
        case tuple() | list():
            return tuple(map(_describe, value))
        case np.ndarray():
            return value.dtype, value.shape, value.tobytes()
        case _:
            return value if isinstance(value, Hashable) else id(value)


def _operations(jaxpr: Any) -> Any:
    numbers: Any = defaultdict(lambda: len(numbers))

    def known(atom: Any) -> Any:
        if isinstance(atom, Literal):
            return _describe(np.asarray(atom.val)), atom.aval
        return numbers[atom], atom.aval

    def named(atoms: Any) -> Any:
        return tuple(map(known, atoms))

    inputs = named([*jaxpr.constvars, *jaxpr.invars])
    lines = (
        (line.primitive, named(line.invars), named(line.outvars), _describe(_options(line)))
        for line in jaxpr.eqns
    )
    return inputs, tuple(lines), named(jaxpr.outvars)


def _options(line: Any) -> dict[str, Any]:
    """Return the options of an operation without the functions of its derivative."""
    custom = line.primitive.name in _CUSTOM
    return {"call_jaxpr": line.params["call_jaxpr"]} if custom else line.params


def _has_own_derivative(jaxpr: Any) -> bool:
    own = (line.primitive.name in _CUSTOM for line in jaxpr.eqns)
    return any(own) or any(map(_has_own_derivative, subjaxprs(jaxpr)))
