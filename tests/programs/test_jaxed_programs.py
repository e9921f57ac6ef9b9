"""Programs as users of JAX bring them: as long as the data says, mapped over, with own rules."""

from typing import Any

import numpy as np
import pytest

from ckio.programs import Options, checkpoint_vjp, vjp
from ckio.programs.heap import leaves
from ckio.programs.jaxed import JaxProgram, jax_program

from .jaxed import MODES, assert_dual, assert_same, gradient, through_bytes, whole

jax: Any = pytest.importorskip("jax")
jnp = jax.numpy
lax = jax.lax


pytestmark = pytest.mark.usefixtures("doubles_in_jax")


def until_small(x: Any, k: Any) -> Any:
    """Each lane has a length of its own, one of them 0."""

    def alone(x: Any) -> Any:
        step = lambda c: (0.7 * c[0] * jnp.cos(k * c[0]), c[1] + 1)  # noqa: E731
        return lax.while_loop(lambda c: c[0] > 0.01, step, (x, 0))

    return jax.vmap(alone)(x)


def lanes_of_lanes(x: Any, k: Any) -> Any:
    """Two axes that are mapped over, with loops in the condition and in the body."""

    def alone(x: Any) -> Any:
        def far(c: Any) -> Any:
            return lax.fori_loop(0, 2, lambda i, d: d + c[0], 0.0) < 9.0

        def step(c: Any) -> Any:
            turned = lax.fori_loop(0, c[1], lambda i, d: d + 0.1 * k * c[0], 0.0)
            return 1.3 * c[0] + turned, c[1] + 1

        return lax.while_loop(far, step, (x, 0))

    return jax.vmap(jax.vmap(alone))(jnp.stack([x, 3.0 * x]))


def in_a_branch(x: Any, k: Any) -> Any:
    """A branch that lanes take or not: it becomes a selection, and the loop in it is shared."""

    def grow(a: Any) -> Any:
        return lax.while_loop(lambda s: (s < 1.0) & (s > 0.0), lambda s: k * s * 1.9, a)

    return jax.vmap(lambda a: lax.cond(a > 0.2, grow, lambda a: k * a, a))(x)


LANES = np.array([0.5, 0.1, 0.9, 0.001]), 0.8


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("function", [until_small, in_a_branch, lanes_of_lanes])
def test_a_loop_is_mapped_over(mode: Any, function: Any) -> None:
    program = JaxProgram(function, LANES, mode)
    state, ticks = whole(program, LANES)
    assert_same(program.result(state), function(*map(jnp.asarray, LANES)), 1e-14)
    assert ticks > 8
    for tick in range(0, ticks, 3):
        middle, _, _ = program.advance(program.start(*LANES), tick)
        again, rest, _ = program.advance(through_bytes(program, middle))
        assert tick + rest == ticks
        assert_same(program.pack(again), program.pack(state))
    assert_dual(program, function, LANES)


@pytest.mark.campaign
@pytest.mark.parametrize("mode", MODES)
def test_lanes_that_have_ended_make_no_nan(mode: Any) -> None:
    def alone(x: Any) -> Any:  # one more step would be the root of 0, or of less
        return lax.while_loop(lambda s: s > 0.3, lambda s: jnp.sqrt(s - 0.3), x)

    x = np.array([0.35, 0.1, 0.39, 0.2, 0.3])
    program = JaxProgram(jax.vmap(alone), (x,), mode)
    found = gradient(program, (x,), {"y": np.ones(5)})["x.0"]
    first = 0.5 / np.sqrt(x[[0, 2]] - 0.3)
    second = 0.5 / np.sqrt(np.sqrt(x[2] - 0.3) - 0.3) if np.sqrt(x[2] - 0.3) > 0.3 else 1.0
    np.testing.assert_allclose(found, [first[0], 1.0, first[1] * second, 1.0, 1.0], rtol=1e-12)


@pytest.mark.campaign
@pytest.mark.parametrize("mode", MODES)
def test_rules_may_close_over_what_has_no_derivative(mode: Any) -> None:
    def scaled(x: Any, k: Any) -> Any:
        weights = 1.0 + lax.stop_gradient(k) * jnp.linspace(0.5, 1.0, 3)  # traced, not an input

        @jax.custom_vjp  # type: ignore[untyped-decorator]
        def weighed(y: Any) -> Any:
            return y * weights

        weighed.defvjp(lambda y: (y * 2.0, None), lambda _, ct: (3.0 * ct,))
        return lax.fori_loop(0, 3, lambda i, v: k * weighed(v), x)

    x = np.array([0.1, 0.2, 0.4]), 0.7
    program = JaxProgram(scaled, (*x,), mode)
    found = gradient(program, x, {"y": np.ones(3)})
    np.testing.assert_allclose(found["x.0"], (3.0 * 0.7) ** 3, rtol=1e-14)


def ruled(by: float, kind: str) -> Any:
    """A loop with a function whose rule has this factor in it."""
    if kind == "vjp":
        sine = jax.custom_vjp(jnp.sin)
        sine.defvjp(lambda y: (jnp.sin(y), y), lambda y, ct: (by * ct * y,))
    else:
        sine = jax.custom_jvp(jnp.sin)
        sine.defjvp(lambda y, dy: (jnp.sin(*y), by * dy[0]))
    return lambda x: lax.fori_loop(0, 3, lambda i, v: jax.jit(sine)(v), x)


@pytest.mark.parametrize("kind", ["vjp", "jvp"])
def test_a_rule_that_changes_is_other_code(kind: str) -> None:
    one, same, other = (jax_program(ruled(by, kind), 1.0).fingerprint for by in (2.0, 2.0, 3.0))
    assert one == same
    assert one != other


@pytest.mark.campaign
@pytest.mark.parametrize("mode", MODES)
def test_a_limit_is_no_reason_to_compile(mode: Any) -> None:
    program = JaxProgram(until_small, LANES, mode)
    start = program.start(*LANES)
    program.advance(start)
    count = []
    jax.monitoring.register_event_duration_secs_listener(lambda name, *_, **__: count.append(name))
    for limit in (1, 2, 3, 7, 1000, 2**31, 2**40, float("inf"), np.int64(5)):
        program.advance(start, limit)
    assert not [name for name in count if "compile" in name]
    other = JaxProgram(damped, DAMPED, mode)
    other.advance(other.start(*DAMPED), 3)
    assert [name for name in count if "compile" in name]  # it would have been heard


def damped(x: Any, k: Any) -> Any:
    """Some loops in a loop: 59 ticks."""

    def turn(c: Any) -> Any:
        u, n = c
        return lax.fori_loop(0, n, lambda i, u: u - 0.1 * k * jnp.sin(u), u), n + 1

    return lax.while_loop(lambda c: c[1] < 10, turn, (x, 1))[0]


DAMPED = np.linspace(0.0, 2.0, 5), 0.7


@pytest.mark.campaign
@pytest.mark.parametrize("schedule", ["bisection", "revolve"])
@pytest.mark.parametrize("mode", ["switch", "blocks"])
def test_any_base_gives_the_gradient(mode: Any, schedule: Any) -> None:
    program = JaxProgram(damped, DAMPED, mode)
    ybar = np.cos(np.arange(5.0))
    y, xbar = vjp(program, DAMPED, ybar)
    for base in (1, 7, 58, 10**6):
        options = {"slots": 3} if schedule == "revolve" else {}
        found = checkpoint_vjp(
            program, DAMPED, ybar, Options(base=base, schedule=schedule, **options)
        )
        assert_same(found[0], y)
        assert_same(found[1], xbar, 1e-14)


@pytest.mark.campaign
@pytest.mark.parametrize("mode", MODES)
def test_numbers_of_any_kind_are_checkpointed(mode: Any) -> None:
    def collatz(x: Any, n: Any, none: Any) -> Any:
        def step(c: Any) -> Any:
            even = c[1] % 2 == 0
            u = c[0] * jnp.where(even, 0.9, 1.1).astype(c[0].dtype)
            n = jnp.where(even, c[1] // 2, 3 * c[1] + 1)
            return u, n, ~c[2], c[3] ^ np.uint8(5), (c[4] * 1.1).astype(c[4].dtype), c[5] * 2

        narrow = x.real.astype(jnp.bfloat16)
        first = x, n, True, jnp.uint8(3), narrow, none
        u, n, *rest = lax.while_loop(lambda c: c[1] != 1, step, first)
        return {"u": u, "n": (n, *rest[:2]), "sum": rest[2].astype(jnp.float32).sum()}

    x = np.array([2.0, 1.0 + 1.0j], np.complex64), 7, np.zeros((0, 3))
    program = JaxProgram(collatz, (*x,), mode)
    ybar = {"u": 1.0, "n": (0, 0, 0), "sum": 0.5}
    y, xbar = vjp(program, x, ybar)
    found = checkpoint_vjp(program, x, ybar, Options(base=5))
    assert_same(found[0], y)
    assert_same(found[1], xbar, 1e-6)
    assert leaves(xbar, "x")["x.0"].dtype == np.complex64
    assert abs(xbar[0][0]) > 0.1
