"""A loop of JAX in blocks of steps: forward over some of them, and back over one.

Going back over a block runs it forward once more, inside the same compiled function: XLA then holds
what the adjoint of its steps needs, and nothing outside keeps more than the block's first state.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ckio.actions.checks import is_whole
from ckio.errors import BadInput

Leaves = list[Any]
"""Arrays of a pytree, in its order."""

like: Any = jax.ShapeDtypeStruct
"""A shape and a dtype."""

ROOM: Final = 16 * 2**20
"""Bytes that the states between the steps of a block may take where nobody says how long it is.

Allocators give larger pieces back to the system each time, and get them anew page by page.
"""

MOST: Final = 2**31 - 1
"""Steps are counted in 32 bits."""


class Given(NamedTuple):
    """What all steps read: the leaves of the parameters, and of rows of which each step has one."""

    params: Leaves
    rows: Leaves


class Back(NamedTuple):
    """Cotangents, of the leaves that have one: of the state, the parameters, and all rows."""

    x: Leaves
    params: Leaves
    rows: Leaves


@dataclass(frozen=True)
class Shapes:
    """What goes into a step, as shapes and dtypes: of a state, parameters, and all n rows.

    Attributes
    ----------
    trees : tuple of PyTreeDef
    leaves : tuple of tuple of jax.ShapeDtypeStruct
        Of each of the three, in the order of its tree.
    """

    trees: tuple[Any, Any, Any]
    leaves: tuple[tuple[Any, ...], ...]

    @staticmethod
    def of(x: Any, params: Any, rows: Any, /) -> "Shapes":
        trees = jax.tree.structure(x), jax.tree.structure(params), jax.tree.structure(rows)
        leaves = (
            tuple(like(a.shape, a.dtype) for a in jax.tree.leaves(tree))
            for tree in (x, params, rows)
        )
        return Shapes(trees, tuple(leaves))

    @property
    def x(self) -> Any:
        return jax.tree.unflatten(self.trees[0], self.leaves[0])

    @property
    def has_rows(self) -> bool:
        return bool(self.leaves[2])

    def row(self) -> tuple[Any, ...]:
        """The leaves of one row."""
        return tuple(like(a.shape[1:], a.dtype) for a in self.leaves[2])

    def arguments(self, x: Leaves, params: Leaves, i: Any, row: Leaves, /) -> list[Any]:
        """What a step is called with."""
        given = [(0, x), (1, params)]
        args = [jax.tree.unflatten(self.trees[which], leaves) for which, leaves in given]
        return [*args, i, *([jax.tree.unflatten(self.trees[2], row)] if self.has_rows else [])]


@dataclass(frozen=True)
class Blocks:
    """n steps in blocks of `size`; the last may be shorter.

    Attributes
    ----------
    step : callable
        `step(x, params, i)` or, with rows, `step(x, params, i, row)`: x_{i+1}, as x_i.
    shapes : Shapes
    n, size : int
    """

    step: Callable[..., Any]
    shapes: Shapes
    n: int
    size: int

    @property
    def count(self) -> int:
        return -(-self.n // self.size)

    @cached_property
    def nbytes(self) -> int:
        """Bytes of a state."""
        return sum(map(nbytes_of, self.shapes.leaves[0]))

    def advance(self, x: Leaves, given: Given, begin: Any, end: Any, /) -> Leaves:
        """From the beginning of a block to that of another, which may be numbers not yet known."""

        def one(i: Any, x: Leaves) -> Leaves:
            row = [lax.dynamic_index_in_dim(a, i, keepdims=False) for a in given.rows]
            return self.one(x, given.params, i, row)

        first, last = jnp.int32(begin * self.size), jnp.int32(jnp.minimum(end * self.size, self.n))
        done: Leaves = lax.fori_loop(first, last, one, x)
        return done

    def length(self, number: int, /) -> int:
        """How many steps a block has."""
        return min(self.size, self.n - number * self.size)

    def reverse(self, x: Leaves, given: Given, number: Any, back: Back, /) -> Back:
        """Over one block, from its first state; the cotangents of parameters grow by its part."""
        last = self.count - 1
        whole, short = self.length(0), self.length(last)
        if whole == short:
            return self.reverse_of(whole, x, given, number, back)
        either = [partial(self.reverse_of, short), partial(self.reverse_of, whole)]
        found: Back = lax.cond(number == last, *either, x, given, number, back)
        return found

    def reverse_of(self, length: int, x: Leaves, given: Given, number: Any, back: Back, /) -> Back:
        """The same, where it is known how long the block is."""
        begin = jnp.int32(number * self.size)
        rows = [lax.dynamic_slice_in_dim(a, begin, length) for a in given.rows]

        def block(x_: Leaves, params_: Leaves, rows_: Leaves) -> Leaves:
            params = merged(given.params, params_)

            def one(x: Leaves, at: tuple[Any, Leaves]) -> tuple[Leaves, None]:
                return self.one(x, params, *at), None

            steps = begin + jnp.arange(length, dtype=jnp.int32)
            done, _ = lax.scan(one, merged(x, x_), (steps, merged(rows, rows_)))
            return smooth(done)

        _, pull = jax.vjp(block, smooth(x), smooth(given.params), smooth(rows))
        x_bar, params_bar, rows_bar = pull(back.x)
        put = lax.dynamic_update_slice_in_dim
        return Back(
            x_bar,
            [a + b for a, b in zip(back.params, params_bar, strict=True)],
            [put(a, b, begin, 0) for a, b in zip(back.rows, rows_bar, strict=True)],
        )

    def one(self, x: Leaves, params: Leaves, i: Any, row: Leaves, /) -> Leaves:
        """One step."""
        after = self.step(*self.shapes.arguments(x, params, i, row))
        return [_strong(leaf) for leaf in jax.tree.leaves(after)]


def blocks_of(step: Callable[..., Any], shapes: Shapes, n: int, segment: int | str, /) -> Blocks:
    """The blocks of a loop, checked; raises BadInput where it is none.

    With "auto", a block is as long as its states have room in `ROOM`; then all are made as long as
    each other, if that does not make them much shorter: one of another length is compiled, too.
    """
    try:
        hash(step)
    except TypeError as error:
        raise BadInput(f"step cannot be hashed, so nothing is compiled for it: {error}") from error
    _check_step(step, shapes)
    if segment == "auto":
        most = min(n, _automatic(step, shapes))
        count = -(-n // most)
        equal = (it for it in range(count, count + count // 2 + 1) if n % it == 0)
        size = -(-n // next(equal, count))
    elif not isinstance(segment, str) and is_whole(segment) and segment >= 1:
        size = min(n, int(segment))
    else:
        raise BadInput(f"segment = {segment!r}; it must be a number of steps, or 'auto'")
    return Blocks(step, shapes, n, size)


@lru_cache(maxsize=64)
def _automatic(step: Callable[..., Any], shapes: Shapes) -> int:
    """Steps whose states have room in `ROOM`."""
    two, three = (_tape(Blocks(step, shapes, length, length)) for length in (2, 3))
    return max(1, ROOM // max(1, three - two))


def _tape(blocks: Blocks) -> int:
    """Bytes between the way forward and the way back over the first block."""
    leaves, params = blocks.shapes.leaves[:2]
    rows = [like((blocks.size, *a.shape), a.dtype) for a in blocks.shapes.row()]

    def pullback(x: Leaves, params: Leaves, rows: Leaves) -> Any:
        def run(x_: Leaves, params_: Leaves) -> Leaves:
            kept = merged(params, params_)

            def one(x: Leaves, at: tuple[Any, Leaves]) -> tuple[Leaves, None]:
                return blocks.one(x, kept, *at), None

            steps = jnp.arange(blocks.size, dtype=jnp.int32)
            return smooth(lax.scan(one, merged(x, x_), (steps, rows))[0])

        return jax.vjp(run, smooth(x), smooth(params))[1]

    return sum(
        map(nbytes_of, jax.tree.leaves(jax.eval_shape(pullback, list(leaves), list(params), rows)))
    )


def _check_step(step: Callable[..., Any], shapes: Shapes) -> None:
    """Raise BadInput where a state is not followed by one like it."""
    x, params, _ = shapes.leaves
    i = like((), jnp.int32)
    args = shapes.arguments(list(x), list(params), i, list(shapes.row()))
    jaxpr, after = jax.make_jaxpr(step, return_shape=True)(*args)
    if any(isinstance(const, jax.core.Tracer) for const in jaxpr.consts):
        raise BadInput(
            "checkpointed_scan: step uses a traced array from outside, whose gradient would be"
            " lost: give it as params"
        )
    one, two = shapes.trees[0], jax.tree.structure(after)
    if one != two:
        raise BadInput(f"step makes {two} of {one}; what it returns must be as x")
    for (path, x), y in zip(
        jax.tree.leaves_with_path(shapes.x), jax.tree.leaves(after), strict=True
    ):
        if (x.shape, x.dtype) != (y.shape, y.dtype):
            raise BadInput(
                f"step makes {y.dtype}{list(y.shape)} of x{jax.tree_util.keystr(path)}, which is"
                f" {x.dtype}{list(x.shape)}; it must stay what it is"
            )


def arrays(what: str, tree: Any, /) -> Any:
    """The same tree with arrays as leaves; raises BadInput where one cannot be an array."""

    def one(path: Any, leaf: Any) -> Any:
        try:
            return _strong(jnp.asarray(leaf))
        except (TypeError, ValueError) as error:
            name = f"{what}{jax.tree_util.keystr(path)}"
            raise BadInput(f"{name} is a {type(leaf).__name__}, not an array") from error

    return jax.tree_util.tree_map_with_path(one, tree)


def check_steps(n: object, rows: Any, /) -> int:
    """The number of steps; raises BadInput where it is none, or rows are not as many."""
    if not is_whole(n) or not 0 <= n <= MOST:
        raise BadInput(f"n = {n!r}; it must be a whole number of steps, below 2**31")
    for path, leaf in jax.tree.leaves_with_path(rows):
        if leaf.shape[:1] != (n,):
            name = f"xs{jax.tree_util.keystr(path)}"
            raise BadInput(f"{name} has shape {leaf.shape}; its first axis must be the {n} steps")
    return int(n)


def is_smooth(leaf: Any, /) -> bool:
    """Whether an array has a cotangent: real or complex numbers."""
    return bool(jnp.issubdtype(leaf.dtype, jnp.inexact))


def smooth(leaves: Sequence[Any], /) -> Leaves:
    """Those that have a cotangent."""
    return [leaf for leaf in leaves if is_smooth(leaf)]


def merged(leaves: Sequence[Any], smooth: Sequence[Any], /) -> Leaves:
    """These leaves, with others in the place of those that have a cotangent."""
    others = iter(smooth)
    return [next(others) if is_smooth(leaf) else leaf for leaf in leaves]


def zeros(leaves: Sequence[Any], /) -> Leaves:
    """Cotangents that are zero, of the leaves that have one."""
    return [jnp.zeros(leaf.shape, leaf.dtype) for leaf in leaves if is_smooth(leaf)]


def is_key(leaf: Any, /) -> bool:
    """Whether it holds keys of random numbers."""
    return bool(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def nbytes_of(leaf: Any, /) -> int:
    """Bytes of an array, or of what has its shape and dtype."""
    like = jax.eval_shape(jax.random.key_data, leaf) if is_key(leaf) else leaf
    return int(like.size * like.dtype.itemsize)


def _strong(leaf: Any) -> Any:
    """An array whose dtype does not give way to others, as that of a number from Python does."""
    return lax.convert_element_type(leaf, leaf.dtype) if getattr(leaf, "weak_type", False) else leaf
