"""Functions of JAX, interrupted and reversed: against `jax.vjp`, bit for bit where it can be."""

from typing import Any, NamedTuple

import numpy as np
import pytest

from ckio.programs.interface import metered
from ckio.programs.jaxed import JaxProgram, jax_program
from ckio.programs.jaxed.tracing import BASE

from .examples import listing1_in_jax
from .jaxed import (
    MODES,
    assert_derivative,
    assert_dual,
    assert_same,
    gradient,
    through_bytes,
    whole,
)

jax: Any = pytest.importorskip("jax")
jnp = jax.numpy
lax = jax.lax


pytestmark = pytest.mark.usefixtures("doubles_in_jax")


@pytest.mark.campaign
@pytest.mark.parametrize("mode", MODES)
def test_listing_1_goes_on_after_every_tick_and_has_its_derivative(mode: Any) -> None:
    function = listing1_in_jax(8, 1e-3)
    program = JaxProgram(function, (3.0,), mode)
    other = JaxProgram(function, (3.0,), "switch" if mode == "blocks" else "blocks")
    assert other.fingerprint == program.fingerprint
    state, ticks = whole(program, (3.0,))
    last, _ = program.pack(state)
    one = program.start(3.0)
    for tick in range(ticks + 1):
        reached, done, finished = program.advance(program.start(3.0), tick)
        assert (done, finished) == (tick, tick == ticks)
        assert_same(program.pack(reached), program.pack(one))  # the same as tick by tick
        assert len(program.pack(reached)[0]) <= 6
        again, rest, finished = program.advance(through_bytes(program, reached))
        assert (done + rest, finished) == (ticks, True)
        assert_same(program.pack(again)[0], last)
        elsewhere, rest, _ = other.advance(through_bytes(other, reached))
        assert done + rest == ticks
        np.testing.assert_allclose(other.result(elsewhere), last["y"], rtol=1e-14)
        one, _, _ = program.advance(one, 1)
    assert_dual(program, function, (3.0,))


def nested(x: Any, w: Any) -> Any:
    """Triangular scans, three deep, one backwards, with rows read and written at each depth."""

    def innermost(c: Any, a: Any) -> Any:
        c = jnp.tanh(w @ c + a)
        return c, c.sum() * a

    def middle(c: Any, a: Any) -> Any:
        c, made = lax.scan(innermost, c, jnp.stack([a, 2 * a, 3 * a]), reverse=True)
        return c * 1.1, (made, c[0])

    def outer(c: Any, row: Any) -> Any:
        c, made = lax.scan(middle, c, row)
        return c, made[0].sum(0) + made[1][0]

    c, rows = lax.scan(outer, x, w)
    return c, {"rows": rows, "x": x}


@jax.custom_vjp  # type: ignore[untyped-decorator]
def ruled(x: Any) -> Any:
    return lax.while_loop(lambda y: jnp.max(y) > 1.0, lambda y: y / 2, x)


ruled.defvjp(lambda x: (ruled(x), x), lambda x, ct: (7.0 * x * ct,))


@jax.custom_jvp  # type: ignore[untyped-decorator]
def tangential(x: Any, y: Any) -> Any:
    return lax.fori_loop(0, 3, lambda i, z: z * y, x)


@tangential.defjvp  # type: ignore[untyped-decorator]
def _tangent(primals: Any, tangents: Any) -> Any:
    return tangential(*primals), 5.0 * tangents[0] + primals[0] * tangents[1]


def rules(x: Any, w: Any) -> Any:
    """Functions with rules of their own, in loops, and a linear solver."""

    def body(c: Any, _: Any) -> Any:
        c = ruled(c + 3.0) + tangential(c, 0.5 + c[0])
        return 0.3 * jnp.sin(jax.nn.relu(c) * jnp.linalg.norm(c)), None

    c, _ = lax.scan(body, x, None, length=3)
    matrix = w @ w.T + 5 * jnp.eye(len(x))
    solved, _ = jax.scipy.sparse.linalg.cg(lambda v: matrix @ v, c, tol=1e-14)
    return jnp.linalg.solve(matrix, solved)


def swapped(x: Any, w: Any) -> Any:
    """Carried values that change places, and a closed-over product of inputs."""
    k = w.sum() * x

    def body(i: Any, c: Any) -> Any:
        a, b, turns = c
        return b * k, a + 0.1 * i, turns + 1

    return lax.fori_loop(0, 5, body, (x, w[1], jnp.int32(0)))


class Pair(NamedTuple):
    first: Any
    second: Any


def results(x: Any, w: Any) -> Any:
    """An input as a result, twice; constants; none; and nothing of w."""
    y = lax.fori_loop(0, 2, lambda _, y: y * y, x)
    return [x, {"y": y, "x": x, "none": None}, jnp.arange(3), 2.5 * jnp.ones(2), Pair(y, ())]


def empty(x: Any, w: Any) -> Any:
    """Loops of no iteration, of all kinds."""
    c, made = lax.scan(lambda c, a: (c * a.sum(), c), x, w[:0])
    c = lax.fori_loop(3, 3, lambda i, c: c / 0.0, c)
    return c + made.sum(), lax.map(jnp.sin, w[:0])


def straight(x: Any, w: Any) -> Any:
    return w @ jnp.sin(x), x[0]


def keys(x: Any, w: Any) -> Any:
    """Random numbers from keys that are whole numbers."""
    key = jax.random.PRNGKey(3)

    def body(i: Any, c: Any) -> Any:
        c, key = c
        key, now = jax.random.split(key)
        return c * jax.random.normal(now, c.shape), key

    return lax.fori_loop(0, 3, body, (x, key))


def waves(x: Any, w: Any) -> Any:
    """Complex numbers in loops, and a Fourier transform."""
    z = lax.fori_loop(0, 3, lambda i, z: jnp.exp(1j * z) * x + jnp.fft.fft(z), x + 1j * w[0])
    return z, jnp.abs(z).sum()


def branches(x: Any, w: Any) -> Any:
    """Branches of which the data takes one, with loops in them, compiled and taped anew."""
    loop = jax.jit(lambda v: lax.fori_loop(0, 2, lambda i, v: jnp.sin(v) + 0.1, v))

    def body(i: Any, v: Any) -> Any:
        v = lax.switch((10 * v[0]).astype(int) % 4 - 1, [loop, jnp.cos, jax.checkpoint(loop)], v)
        return lax.cond(v[1] > v[2], lambda: loop(v) * x, lambda: v[::-1])

    return lax.fori_loop(0, 5, body, x)


FUNCTIONS = results, nested, rules, swapped, empty, straight, keys, waves, branches


def inputs(dtype: str = "float64") -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    return random.normal(size=4).astype(dtype), (random.normal(size=(4, 4)) * 0.4).astype(dtype)


@pytest.mark.campaign
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda it: str(it.__name__))
def test_derivatives_are_those_of_jax(mode: Any, function: Any) -> None:
    x = inputs()
    assert_derivative(JaxProgram(function, (*x,), mode), function, x)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_single_precision_stays_so(mode: Any) -> None:
    x = inputs("float32")
    program = JaxProgram(swapped, (*x,), mode)
    assert_derivative(program, swapped, x, 1e-5)
    found = gradient(program, x, {"y.0": np.ones(4, np.float32)})
    assert {it.dtype for it in found.values()} == {np.dtype(np.float32)}


@pytest.mark.campaign
@pytest.mark.parametrize("mode", MODES)
def test_compiled_with_all_optimizations_it_is_the_same_by_pieces(mode: Any) -> None:
    jax.config.update("jax_disable_most_optimizations", False)
    program = JaxProgram(nested, (*inputs(),), mode)
    state, ticks = whole(program, inputs())
    start = program.start(*inputs())
    for tick in range(ticks + 1):
        middle, _, _ = program.advance(start, tick)
        again, rest, _ = program.advance(middle)
        assert tick + rest == ticks
        assert_same(program.pack(again), program.pack(state))


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_tape_is_made_of_pieces_of_base_ticks(mode: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def grown(x: Any) -> Any:
        return lax.fori_loop(0, 1000, lambda i, y: y + 0.001 * jnp.sin(y) * x, x)

    x = (np.linspace(0.5, 1.0, 50),)
    seeds = {"y": np.ones(50)}
    nodes, nbytes, found = [], [], []
    for base in (BASE[mode], 16):
        monkeypatch.setitem(BASE, mode, base)
        program = JaxProgram(grown, (*x,), mode)
        with metered() as meter:
            found.append(program.pullback(program.start(*x), 2000, seeds))
        nodes.append(meter.nodes)
        nbytes.append(meter.nbytes)
    np.testing.assert_allclose(found[1]["x.0"], found[0]["x.0"], rtol=1e-13)
    np.testing.assert_allclose(found[0]["x.0"], jax.grad(lambda x: grown(x).sum())(*x), rtol=1e-12)
    assert 1000 * 400 <= nbytes[0] <= 3000 * 400
    assert 16 * 400 <= nbytes[1] <= 260 * 400  # of 16 ticks, and 63 states
    assert nodes[1] < 90
    assert nodes[0] >= 1000


def test_ticks_are_few_where_there_is_no_loop() -> None:
    for mode in MODES:
        program = JaxProgram(straight, (*inputs(),), mode)
        assert whole(program, inputs())[1] == 1


def test_an_iteration_of_an_innermost_loop_is_one_tick() -> None:
    """Unless its condition has a loop.

    For 5, 4, 3, 2, 1 and 0 this loop halves 3, 2, 2, 1, 0 and 0 times. The condition has a tick
    after it, so that 1 + 6 + 8 + 5 + 1 ticks are run.
    """

    def small(y: Any) -> Any:
        return lax.while_loop(lambda z: z > 1.0, lambda z: z / 2.0, y) > 0.6

    def until(test: Any) -> Any:
        return jax_program(lambda x: lax.while_loop(test, lambda y: y - 1.0, x), 5.0)

    assert whole(until(lambda y: y > 0.0), (5.0,))[1] == 7
    assert whole(until(small), (5.0,))[1] == 21
