"""`jax.lax.scan` over a state, whose reverse mode keeps states on the levels of a platform."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import io_callback

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
    zeros,
)
from ckio.adapters.jax.drive import Held, drive_of, is_traced
from ckio.adapters.jax.plans import Op, Plan, plan
from ckio.adapters.jax.seconds import measured
from ckio.adapters.jax.store import GONE, STORE, Run
from ckio.planners.base import Planner
from ckio.platform import Level, Platform

MEMORY: Final = Platform((Level(name="memory"),))
"""Where states go if nobody says."""

_Forth = tuple[Any, Leaves, Leaves]
_Back = tuple[Any, Leaves, Leaves, Back]
"""On the way: a gradient's number, the block to be reversed next, the state, and cotangents."""

_NUMBER: Final = like((), np.int32)


def checkpointed_scan(
    step: Callable[..., Any],
    x0: Any,
    n: int,
    /,
    *,
    params: Any = None,
    xs: Any = None,
    platform: Platform | None = None,
    planner: str | Planner = "hrevolve",
    segment: int | str = "auto",
) -> Any:
    """x_n, from x_0 by n steps; `jax.grad` of it keeps states on levels, not in JAX's memory.

    Without a derivative this is a loop in XLA and nothing else. For reverse mode, steps are taken
    in blocks, and a schedule says which of their first states are stored on which level, and which
    are computed again. May be called inside `jax.jit` and outside, and under `jax.vmap`, which
    takes one gradient after the other. It has no forward mode and no second derivative.

    >>> x = jnp.array([0.1, 0.2])
    >>> end = lambda r: checkpointed_scan(lambda x, r, i: r * x * (1 - x), x, 9, params=r).sum()
    >>> value, slope = jax.value_and_grad(end)(2.0)
    >>> round(float(value), 6), round(float(slope), 6)
    (1.0, 0.5)

    Parameters
    ----------
    step : callable
        `step(x, params, i)`, or with `xs` `step(x, params, i, row)`: from x_i to x_{i+1}, which is
        a pytree of the same shapes and dtypes. A function that is made anew for each call is
        compiled anew.
    x0 : pytree of arrays
        Of any dtype; those that are not real or complex numbers have no gradient.
    n : int
        How many steps.
    params : pytree of arrays, optional
        What all steps read. An array that a step uses otherwise is a constant.
    xs : pytree of arrays, optional
        What each step reads of its own: row i of each array.
    platform : Platform, optional
        The levels; memory if not given. Their capacities are those of each gradient under way, and
        their files are gone when it is done. What blocks take is measured where levels have prices.
    planner : str or callable, optional
        A name, or a function of chain and platform; one that stores no tapes.
    segment : int or "auto", optional
        Steps of a block, whose states are all in JAX's memory while it is reversed; "auto" gives
        them at most 16 MiB.

    Raises
    ------
    BadInput
        The step does not return what it was given; or an argument is none of the above.
    NoSchedule
        Where a gradient is asked for, and the levels have no room for one state.
    StorageError
        A level failed; inside `jax.jit` as a JaxRuntimeError with this error in its message. No
        files stay.
    """
    x, params, xs = arrays("x0", x0), arrays("params", params), arrays("xs", xs)
    n = check_steps(n, xs)
    if n == 0:
        return x
    blocks = blocks_of(step, Shapes.of(x, params, xs), n, segment)
    given = Given(jax.tree.leaves(params), jax.tree.leaves(xs))
    make: Any = _loop  # which hashes its arguments
    loop = make(blocks, MEMORY if platform is None else platform, planner)
    return jax.tree.unflatten(jax.tree.structure(x), loop(jax.tree.leaves(x), given))


@lru_cache(maxsize=64)
def _loop(blocks: Blocks, platform: Platform, planner: str | Planner) -> Callable[..., Leaves]:
    """The loop with its derivative, compiled once for all calls that are alike."""
    sweeps = Sweeps(blocks, platform, planner)
    loop: Any = jax.custom_vjp(jax.jit(sweeps.value))
    one_by_one: Any = jax.custom_batching.sequential_vmap
    forward, backward = one_by_one(jax.jit(sweeps.forward)), one_by_one(jax.jit(sweeps.backward))

    def forth(x: Leaves, given: Given) -> tuple[Leaves, Any]:
        result: tuple[Leaves, Any] = (forward if is_traced(x, given) else sweeps.drive_forward)(
            x, given
        )
        return result

    def back(residuals: Any, x_bar: Leaves) -> tuple[Leaves, Given]:
        held, *arrays = residuals
        if not is_traced(arrays, x_bar):
            return sweeps.drive_backward(residuals, x_bar)
        number = jnp.int32(GONE) if isinstance(held, Held) else held
        result: tuple[Leaves, Given] = backward((number, *arrays), x_bar)
        return result

    loop.defvjp(forth, back)
    made: Callable[..., Leaves] = loop
    return made


@dataclass(frozen=True)
class Sweeps:
    """The way forward and the way back, as functions of JAX that walk through a plan."""

    blocks: Blocks
    platform: Platform
    planner: str | Planner

    @cached_property
    def plan(self) -> Plan:
        blocks = self.blocks
        seconds = partial(measured, blocks)
        return plan(blocks.count, max(1, blocks.nbytes), self.platform, self.planner, seconds)

    def value(self, x: Leaves, given: Given, /) -> Leaves:
        return self.blocks.advance(x, given, 0, self.blocks.count)

    def forward(self, x: Leaves, given: Given, /) -> tuple[Leaves, Any]:
        """x_n, and what the way back needs."""
        number, kept, end = self._forward(x, given)
        return end, (number, kept, x, given)

    def backward(self, residuals: Any, x_bar: Leaves, /) -> tuple[Leaves, Given]:
        """Cotangents of x_0 and of what is given."""
        number, kept, x, given = residuals
        if self.plan.slots:
            number, kept = self._taken(number, kept, x, given)
        return self._cotangents(self._backward(number, kept, given, self._seed(given, x_bar)))

    def drive_forward(self, x: Leaves, given: Given, /) -> tuple[Leaves, Any]:
        """As `forward`, outside of any compiled program."""
        run, kept, end = drive_of(self.blocks).forward(self.plan, x, given)
        return end, (Held(run), kept, x, given)

    def drive_backward(self, residuals: Any, x_bar: Leaves, /) -> tuple[Leaves, Given]:
        """As `backward`, outside of any compiled program."""
        held, kept, x, given = residuals
        run: Run | None = held.take() if isinstance(held, Held) else STORE.claim(held)
        if run is None and self.plan.slots:
            run, kept, _ = drive_of(self.blocks).forward(self.plan, x, given)
        seed = jax.tree.map(jnp.array, self._seed(given, x_bar))  # copied, as it is used up
        return self._cotangents(drive_of(self.blocks).backward(self.plan, run, kept, given, seed))

    def _seed(self, given: Given, x_bar: Leaves) -> Back:
        pairs = zip(x_bar, self.blocks.shapes.leaves[0], strict=True)
        seed = [bar for bar, leaf in pairs if is_smooth(leaf)]
        return Back(seed, zeros(given.params), zeros(given.rows))

    def _cotangents(self, found: Back) -> tuple[Leaves, Given]:
        pairs = zip(self.blocks.shapes.leaves, found, strict=True)
        x, params, rows = (_whole(leaves, bars) for leaves, bars in pairs)
        return x, Given(params, rows)

    def _taken(self, number: Any, kept: Leaves, x: Leaves, given: Given) -> tuple[Any, Leaves]:
        """The gradient that waits for its way back; begun anew where nothing waits any more."""

        def again() -> tuple[Any, Leaves]:
            number, kept, _ = self._forward(x, given)
            return io_callback(STORE.take, _NUMBER, number), kept

        number = io_callback(STORE.take, _NUMBER, number)
        found: tuple[Any, Leaves] = lax.cond(number == GONE, again, lambda: (number, kept))
        return found

    def _forward(self, x: Leaves, given: Given) -> tuple[Any, Leaves, Leaves]:
        """The number of the gradient, the first state of the last block, and x_n."""
        plan = self.plan

        def advance(carry: _Forth, begin: Any, end: Any) -> _Forth:
            number, kept, x = carry
            return number, kept, self.blocks.advance(x, given, begin, end)

        def keep(carry: _Forth, _begin: Any, _end: Any) -> _Forth:
            number, _, x = carry
            return number, x, x

        def write(carry: _Forth, _step: Any, access: Any) -> _Forth:
            number, kept, x = carry
            return self._put(number, access, x), kept, x

        number = io_callback(partial(STORE.begin, plan), _NUMBER) if plan.slots else jnp.int32(0)
        return _walk(plan.forward, (number, x, x), [advance, keep, write])  # type: ignore[no-any-return]

    def _backward(self, number: Any, kept: Leaves, given: Given, back: Back) -> Back:
        def advance(carry: _Back, begin: Any, end: Any) -> _Back:
            number, kept, x, back = carry
            return number, kept, self.blocks.advance(x, given, begin, end), back

        def keep(carry: _Back, _begin: Any, _end: Any) -> _Back:
            number, _, x, back = carry
            return number, x, x, back

        def write(carry: _Back, _step: Any, access: Any) -> _Back:
            number, kept, x, back = carry
            return self._put(number, access, x), kept, x, back

        def read(carry: _Back, _step: Any, access: Any) -> _Back:
            number, kept, x, back = carry
            number, x = self._get(number, access, x)
            return number, kept, x, back

        def reverse(carry: _Back, begin: Any, _end: Any) -> _Back:
            number, kept, x, back = carry
            return number, kept, x, self.blocks.reverse(kept, given, begin, back)

        moves = [advance, keep, write, read, reverse]
        found: _Back = _walk(self.plan.backward, (number, kept, kept, back), moves)
        return found[-1]

    def _put(self, number: Any, access: Any, x: Leaves) -> Any:
        bits = [jax.random.key_data(leaf) if is_key(leaf) else leaf for leaf in x]
        return io_callback(STORE.put, _NUMBER, number, access, bits)

    def _get(self, number: Any, access: Any, old: Leaves) -> tuple[Any, Leaves]:
        shapes = self.blocks.shapes.leaves[0]
        bits = [jax.eval_shape(jax.random.key_data, a) if is_key(a) else a for a in shapes]
        last = len(self.plan.slots) - 1

        def get(number: Any, access: Any) -> tuple[Any, ...]:
            return STORE.get(last, number, access, bits)

        number, found = io_callback(get, (_NUMBER, bits), number, access)
        wrap = jax.random.wrap_key_data
        x = [
            wrap(array, impl=jax.random.key_impl(leaf)) if is_key(leaf) else array
            for array, leaf in zip(found, old, strict=True)
        ]
        return number, x


def _walk(rows: Any, carry: Any, moves: list[Callable[..., Any]]) -> Any:
    """Do what each row says, one after the other."""
    assert all(row[0] < len(moves) for row in rows), Op

    def one(carry: Any, row: Any) -> tuple[Any, None]:
        return lax.switch(row[0], moves, carry, row[1], row[2]), None

    return lax.scan(one, carry, Plan.columns(rows))[0]


def _whole(leaves: tuple[Any, ...], bars: Leaves) -> Leaves:
    """A cotangent for each leaf: nothing, as JAX writes it, where it has none."""
    smooth = iter(bars)
    return [
        next(smooth) if is_smooth(leaf) else np.zeros(leaf.shape, jax.dtypes.float0)
        for leaf in leaves
    ]
