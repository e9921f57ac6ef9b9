"""Random functions of JAX, with loops in branches in loops, against what JAX makes of them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ckio.programs.jaxed import JaxProgram

from .jaxed import MODES, assert_derivative, assert_dual, assert_same, through_bytes, whole

jax: Any = pytest.importorskip("jax")
jnp = jax.numpy
lax = jax.lax

Part = tuple[Any, ...]
"""A word, and numbers and parts that belong to it."""


pytestmark = pytest.mark.usefixtures("doubles_in_jax")


WORDS = st.sampled_from(["sin", "mix", "product", "swap", "input", "cumulate"]).map(
    lambda it: (it,)
)
SIZES = st.integers(0, 3)


def _larger(parts: st.SearchStrategy[Part]) -> st.SearchStrategy[Part]:
    several = st.lists(parts, min_size=1, max_size=3)
    loop, booleans = st.tuples(SIZES, several), st.booleans()
    return st.one_of(
        loop.map(lambda it: ("for", *it)),
        st.tuples(SIZES, booleans, several).map(lambda it: ("scan", *it)),
        st.tuples(several, several).map(lambda it: ("cond", *it)),
        st.lists(several, min_size=2, max_size=3).map(lambda it: ("switch", it)),
        several.map(lambda it: ("jit", it)),
        several.map(lambda it: ("checkpoint", it)),
    )


PARTS = st.lists(st.recursive(WORDS, _larger, max_leaves=6), min_size=1, max_size=4)


def _all(parts: list[Part], x: Any, dynamic: bool) -> Callable[[Any], Any]:
    def run(c: Any) -> Any:
        for part in parts:
            c = _one(part, x, dynamic)(c)
        return c

    return run


def _one(part: Part, x: Any, dynamic: bool) -> Callable[[Any], Any]:  # noqa: PLR0911
    """What a part does to the pair of arrays (u, v); `x` is the input, closed over."""
    match part:
        case ("sin",):
            return lambda c: (jnp.sin(c[0]) + 0.1, c[1])
        case ("mix",):
            return lambda c: (c[0] + 0.5 * c[1][::-1], c[1] * 0.9)
        case ("product",):
            return lambda c: (c[0] * jnp.tanh(c[1]), c[1] + 0.2)
        case ("swap",):
            return lambda c: (c[1], c[0])
        case ("input",):
            return lambda c: (c[0] + 0.3 * x, c[1])
        case ("cumulate",):
            return lambda c: (c[0], jnp.cumsum(jnp.cos(c[1])))
        case ("for", turns, parts):
            return _loop(turns, _all(parts, x, dynamic), dynamic)
        case ("scan", length, reverse, parts):
            return _scan(length, reverse, _all(parts, x, dynamic))
        case ("cond", first, second):
            branches = _all(first, x, dynamic), _all(second, x, dynamic)
            return lambda c: lax.cond(c[0][0] > c[1][0], *branches, c)
        case ("switch", several):
            cases = [_all(parts, x, dynamic) for parts in several]
            return lambda c: lax.switch((c[0][1] * 10).astype(int) % 4 - 1, cases, c)
        case ("jit", parts):
            return jax.jit(_all(parts, x, dynamic))  # type: ignore[no-any-return]
        case ("checkpoint", parts):
            return jax.checkpoint(_all(parts, x, dynamic))  # type: ignore[no-any-return]
    raise AssertionError(part)


def _loop(turns: int, body: Callable[[Any], Any], dynamic: bool) -> Callable[[Any], Any]:
    if not dynamic:
        return lambda c: lax.fori_loop(0, turns, lambda i, c: body(c), c)

    def run(c: Any) -> Any:
        most = turns + (c[0][0] > 0)  # known at run time only
        return lax.while_loop(lambda it: it[0] < most, lambda it: (it[0] + 1, body(it[1])), (0, c))[
            1
        ]

    return run


def _scan(length: int, reverse: bool, body: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def run(c: Any) -> Any:
        def turn(c: Any, row: Any) -> Any:
            u, v = body((c[0] * row[1], c[1]))
            return (u, v), (u.sum() * row[0], v)

        rows = jnp.linspace(0.5, 1.0, length), jnp.stack([c[1]] * length + [c[0]])[:length]
        (u, v), (sums, made) = lax.scan(turn, c, rows, reverse=reverse)
        return u + sums.sum(), v + 0.1 * made.sum(0)

    return run


def made(parts: list[Part], dynamic: bool) -> Callable[[Any, Any], Any]:
    return lambda x, k: {"c": _all(parts, x * k, dynamic)((jnp.cos(x), x)), "k": k}


X = np.array([0.3, -0.7, 1.1]), 0.8
SLOW = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@SLOW
@given(PARTS)
def test_derivatives_of_any_function(mode: Any, parts: list[Part]) -> None:
    function = made(parts, dynamic=False)
    assert_derivative(JaxProgram(function, X, mode), function, X)


@pytest.mark.slow
@SLOW
@given(PARTS)
def test_any_function_is_interrupted_anywhere(parts: list[Part]) -> None:
    function = made(parts, dynamic=True)
    program, other = (JaxProgram(function, X, mode) for mode in MODES)
    state, ticks = whole(program, X)
    x = tuple(map(jnp.asarray, X))
    assert_same(program.result(state), jax.jit(function)(*x), 1e-11)
    assert whole(other, X)[1] == ticks
    for tick in range(0, ticks + 1, max(1, ticks // 20)):
        middle = through_bytes(program, program.advance(program.start(*X), tick)[0])
        again, rest, finished = program.advance(middle)
        assert (tick + rest, finished) == (ticks, True)
        assert_same(program.pack(again), program.pack(state))
    for each in (program, other):
        assert_dual(each, function, X)
