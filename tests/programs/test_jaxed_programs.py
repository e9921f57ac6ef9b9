"""Programs as users of JAX bring them: solvers as long as the data says, mapped over, killed."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckio import Affine, Directory, Level, Platform, Ram, hrevolve, run
from ckio.programs import Options, as_chain, checkpoint_vjp, vjp
from ckio.programs.heap import leaves
from ckio.programs.jaxed import jax_program

from .jaxed import MODES, assert_dual, assert_same, gradient, quick_doubles, through_bytes, whole

jax: Any = pytest.importorskip("jax")
jnp = jax.numpy
lax = jax.lax


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    """Double precision, and code that takes less time to compile."""
    with quick_doubles():
        yield


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


QUICK = {("blocks", "until_small"), ("switch", "in_a_branch")}
MAPPED = [
    pytest.param(
        mode, function, marks=() if (mode, function.__name__) in QUICK else pytest.mark.slow
    )
    for function in (until_small, in_a_branch, lanes_of_lanes)
    for mode in MODES
]
"""Each function in one mode, and in others as a long campaign."""


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "function"), MAPPED)
def test_a_loop_is_mapped_over(mode: Any, function: Any) -> None:
    program = jax_program(function, *LANES, mode=mode)
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
    program = jax_program(jax.vmap(alone), x, mode=mode)
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
    program = jax_program(scaled, *x, mode=mode)
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
    program = jax_program(until_small, *LANES, mode=mode)
    start = program.start(*LANES)
    program.advance(start)
    count = []
    jax.monitoring.register_event_duration_secs_listener(lambda name, *_, **__: count.append(name))
    for limit in (1, 2, 3, 7, 1000, 2**31, 2**40, float("inf"), np.int64(5)):
        program.advance(start, limit)
    assert not [name for name in count if "compile" in name]
    other = jax_program(damped, *DAMPED, mode=mode)
    other.advance(other.start(*DAMPED), 3)
    assert [name for name in count if "compile" in name]  # it would have been heard


def damped(x: Any, k: Any) -> Any:
    """Some loops in a loop: 59 ticks."""

    def turn(c: Any) -> Any:
        u, n = c
        return lax.fori_loop(0, n, lambda i, u: u - 0.1 * k * jnp.sin(u), u), n + 1

    return lax.while_loop(lambda c: c[1] < 10, turn, (x, 1))[0]


DAMPED = np.linspace(0.0, 2.0, 5), 0.7


@pytest.mark.parametrize(
    ("mode", "schedule"),
    [
        ("switch", "bisection"),
        pytest.param("blocks", "bisection", marks=pytest.mark.slow),
        pytest.param("blocks", "revolve", marks=pytest.mark.slow),
        pytest.param("switch", "revolve", marks=pytest.mark.slow),
    ],
)
def test_any_base_gives_the_gradient(mode: Any, schedule: Any) -> None:
    program = jax_program(damped, *DAMPED, mode=mode)
    ybar = np.cos(np.arange(5.0))
    y, xbar = vjp(program, DAMPED, ybar)
    for base in (1, 7, 58, 10**6):
        options = {"slots": 3} if schedule == "revolve" else {}
        found = checkpoint_vjp(
            program, DAMPED, ybar, Options(base=base, schedule=schedule, **options)
        )
        assert_same(found[0], y)
        assert_same(found[1], xbar, 1e-14)


KILLED = """
import os, sys
import jax
jax.config.update("jax_enable_x64", True)
from ckio.programs import Options, checkpoint_vjp
from ckio.programs.jaxed import jax_program
from tests.programs.killing import Mortal
from tests.programs.test_jaxed_programs import DAMPED, damped
import numpy as np
place, mode, left = sys.argv[1:]
program = Mortal(jax_program(damped, *DAMPED, mode=mode), int(left))
options = Options(base=4, directory=place, every=0.0)
found = checkpoint_vjp(program, DAMPED, np.cos(np.arange(5.0)), options)
print(found[0].tobytes().hex(), *(np.asarray(bar).tobytes().hex() for bar in found[1]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_gradient_that_was_killed_goes_on(mode: str, tmp_path: Path) -> None:
    def process(name: str, ticks: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", KILLED, str(tmp_path / name), mode, str(ticks)]
        return subprocess.run(command, check=False, capture_output=True, text=True)

    whole = process("whole", 10**9)
    assert whole.returncode == 0, whole.stderr
    kills = [process("killed", ticks).returncode for ticks in (30, 50, 60)]
    assert kills == [-9] * 3
    last = process("killed", 10**9)
    assert last.returncode == 0, last.stderr
    assert last.stdout == whole.stdout


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_plan_for_levels_runs_it(mode: Any, tmp_path: Path) -> None:
    program = jax_program(damped, *DAMPED, mode=mode)
    ybar = np.cos(np.arange(5.0))
    cost = Affine(latency=1e-5, per_byte=1e-9)
    memory = Level(name="memory", capacity=1200, write=cost, read=cost)
    platform = Platform(levels=(memory, Level(name="files", write=cost, read=cost)))
    model = as_chain(program, DAMPED, 3, ybar=ybar)
    chain = model.measure()
    files = Directory(tmp_path / "files")
    run(hrevolve(chain, platform), platform, model, [Ram(), files])
    files.close()
    y, xbar = vjp(program, DAMPED, ybar)
    assert_same(model.result, y)
    assert_same(model.xbar, xbar, 1e-14)


def dormand_prince(y0: Any, mu: Any) -> Any:
    """A van der Pol oscillator to t = 5; the step size is chosen by two errors, and not varied."""
    times = 0.0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0
    stages: list[list[float]] = [
        [],
        [1 / 5],
        [3 / 40, 9 / 40],
        [44 / 45, -56 / 15, 32 / 9],
        [19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729],
        [9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656],
        [35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84],
    ]
    errors = 71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40
    tolerance = 1e-8

    def step(c: Any) -> Any:
        t, y, h, last, first, tried = c
        h = jnp.minimum(h, 5.0 - t)
        slopes = [first]
        for time, weights in zip(times[1:], stages[1:], strict=True):
            at = y + h * sum(a * k for a, k in zip(weights, slopes, strict=True))
            slopes.append(oscillator(at, t + time * h, mu))
        off = h * sum(e * k for e, k in zip(errors, slopes, strict=True))
        size = tolerance + tolerance * jnp.maximum(jnp.abs(y), jnp.abs(at))
        error = lax.stop_gradient(jnp.sqrt(jnp.mean((off / size) ** 2)))
        longer = jnp.clip(0.9 * error**-0.14 * last**0.08, 0.2, 5.0)
        good = error <= 1.0
        t, y, first = lax.cond(good, lambda: (t + h, at, slopes[6]), lambda: (t, y, first))
        last = jnp.where(good, jnp.maximum(error, 1e-4), last)
        return t, y, lax.stop_gradient(h * longer), last, first, tried + 1

    start = 0.0, y0, 0.1, 1.0, oscillator(y0, 0.0, mu), 0
    c = lax.while_loop(lambda c: c[0] < 5.0, step, start)
    return {"y": c[1], "tried": c[5]}


def oscillator(y: Any, t: Any, mu: Any) -> Any:
    return jnp.stack([y[1], mu * (1 - y[0] ** 2) * y[1] - y[0] + 0.1 * jnp.sin(t)])


@pytest.mark.slow
def test_an_adaptive_solver_has_the_derivative_of_what_it_solves() -> None:
    from jax.experimental.ode import odeint

    x, seed = (np.array([2.0, 0.0]), 1.5), np.array([1.0, 2.0])

    def exact(y0: Any, mu: Any) -> Any:
        return odeint(oscillator, y0, jnp.array([0.0, 5.0]), mu, rtol=1e-12, atol=1e-12)[-1]

    _, pull = jax.vjp(exact, *map(jnp.asarray, x))
    program = jax_program(dormand_prince, *x)
    stats: dict[str, int] = {}
    ybar = {"y": seed, "tried": 0}
    _, xbar = checkpoint_vjp(program, x, ybar, Options(base=20), stats=stats)
    assert stats["ticks"] > 100
    for found, wanted in zip(xbar, pull(seed), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def implicit(u: Any, nu: Any) -> Any:
    """Diffusion by implicit steps of varying length, each solved by conjugate gradients."""

    def step(c: Any) -> Any:
        u, t, dt = c

        def applied(v: Any) -> Any:
            return v - dt * nu * (jnp.roll(v, 1) - 2 * v + jnp.roll(v, -1))

        def turn(c: Any) -> Any:
            x, r, q, size, turns = c
            image = applied(q)
            along = size / jnp.vdot(q, image)
            x, r = x + along * q, r - along * image
            now = jnp.vdot(r, r)
            return x, r, r + now / size * q, now, turns + 1

        r = u - applied(u)
        start = u, r, r, jnp.vdot(r, r), 0
        x, *_, turns = lax.while_loop(lambda c: (c[3] > 1e-24) & (c[4] < 50), turn, start)
        return x + dt * jnp.sin(x), t + dt, dt * jnp.where(turns < 6, 1.2, 0.8)

    return lax.while_loop(lambda c: c[1] < 1.0, step, (u, 0.0, 0.05))[0]


def newton(u: Any, k: Any) -> Any:
    """A scan of implicit steps, each solved by Newton's method."""

    def step(u: Any, t: Any) -> Any:
        def closer(c: Any) -> Any:
            v, _, turns = c
            slope = 1 - 0.1 * k * t * jnp.cos(k * v)
            return v - (v - u - 0.1 * t * jnp.sin(k * v)) / slope, v, turns + 1

        def far(c: Any) -> Any:
            return (jnp.max(jnp.abs(c[0] - c[1])) > 1e-13) & (c[2] < 30)

        v, _, turns = lax.while_loop(far, closer, (u, u + 1.0, 0))
        return v, (v.sum(), turns)

    return lax.scan(step, u, jnp.linspace(0.5, 1.5, 9))


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("function", [implicit, newton], ids=lambda it: str(it.__name__))
def test_solvers_in_time_steps_have_derivatives(mode: Any, function: Any) -> None:
    x = np.cos(np.arange(12.0)), 0.9
    assert_dual(jax_program(function, *x, mode=mode), function, x, 1e-10)


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
    program = jax_program(collatz, *x, mode=mode)
    ybar = {"u": 1.0, "n": (0, 0, 0), "sum": 0.5}
    y, xbar = vjp(program, x, ybar)
    found = checkpoint_vjp(program, x, ybar, Options(base=5))
    assert_same(found[0], y)
    assert_same(found[1], xbar, 1e-6)
    assert leaves(xbar, "x")["x.0"].dtype == np.complex64
    assert abs(xbar[0][0]) > 0.1
