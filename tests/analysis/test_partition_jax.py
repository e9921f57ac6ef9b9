"""Steps in JAX: whatever is stored, the two halves give the gradient that JAX gives."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ckio.analysis.partitioned import (
    Partition,
    StraightLine,
    partition,
    trace,
)
from ckio.errors import BadInput
from ckio.platform import Affine, Level

jax: Any = pytest.importorskip("jax")
jnp = jax.numpy

State = dict[str, Any]
Step = Callable[[State], State]
SIDE = 6

LEVELS = {
    "bytes alone": None,
    "memory": Level(name="ram", write=Affine(0.0, 1e-10), read=Affine(0.0, 1e-10)),
    "archive": Level(name="archive", write=Affine(1e-2, 1e-8), read=Affine(1e-2, 1e-8)),
}


pytestmark = pytest.mark.usefixtures("doubles_in_jax")


def priced(program: StraightLine) -> StraightLine:
    """Assignments take a microsecond, products of matrices ten: the same on every machine."""
    return replace(
        program,
        assignments=[
            replace(it, seconds=1e-6 * (10 if "dot_general" in it.kind else 1))
            for it in program.assignments
        ],
    )


@jax.custom_vjp
def bounded(u: Any) -> Any:
    return jnp.arctan(u)


bounded.defvjp(lambda u: (jnp.arctan(u), u), lambda u, of: (of / (1 + u * u),))


def scanned(u: Any) -> Any:
    return jax.lax.scan(lambda sum_, row: (jnp.sin(sum_ + row), sum_ * row), u[0], u)[1]


def cotangents(state: State, seed: int = 9) -> State:
    numbers = np.random.default_rng(seed)
    return {
        name: jnp.asarray(numbers.standard_normal(array.shape))
        for name, array in state.items()
        if jnp.issubdtype(array.dtype, jnp.inexact)
    }


def differentiated(step: Step, state: State, moving: State) -> tuple[State, Any, State]:
    """What has derivatives in x_{i+1}, its adjoint, and all of x_{i+1}."""

    def of(moving: State) -> tuple[State, State]:
        before = {**state, **moving}
        after = {**before, **step(before)}
        return {name: after[name] for name in moving}, after

    found: tuple[State, Any, State] = jax.vjp(of, moving, has_aux=True)
    return found


def by_jax(step: Step, state: State, of: State) -> tuple[State, State]:
    """x_{i+1}, and the cotangent of x_i."""

    @jax.jit
    def both(moving: State, of: State) -> tuple[State, State]:
        _, pull, after = differentiated(step, state, moving)
        return after, pull(of)[0]

    found: tuple[State, State] = both({name: state[name] for name in of}, of)
    return found


def residual_bytes(step: Step, state: State) -> int:
    """What JAX keeps for the adjoint, each array once."""

    def kept(moving: State) -> list[Any]:
        leaves: list[Any] = jax.tree_util.tree_leaves(differentiated(step, state, moving)[1])
        return leaves

    moving = {name: state[name] for name in cotangents(state)}
    variables = {v for v in jax.make_jaxpr(kept)(moving).jaxpr.outvars if not hasattr(v, "val")}
    return sum(v.aval.size * v.aval.dtype.itemsize for v in variables)


def assert_equal(found: State, expected: State, rtol: float = 1e-12) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        scale = float(jnp.max(jnp.abs(array))) or 1.0
        np.testing.assert_allclose(found[name], array, rtol=0, atol=rtol * scale, err_msg=name)


def lost(state: State, kept: tuple[str, ...]) -> State:
    """A state that holds nothing of use but what is kept."""
    return {
        name: array if name in kept else (array * jnp.nan).astype(array.dtype)
        for name, array in state.items()
    }


def assert_right(halves: Partition, state: State, right: tuple[State, State]) -> None:
    of = cotangents(state)
    after, expected = right
    found, tape = halves.forward(state)
    assert_equal(found, after)
    assert sum(array.nbytes for array in tape.values()) == halves.tape
    assert_equal(halves.backward(tape, of, lost(state, halves.begins)), expected)
    assert set(halves.begins) <= set(halves.program.inputs) - set(halves.program.overwritten)


def test_code_in_functions_is_taken_apart_and_loops_are_not() -> None:
    def step(state: State) -> State:
        inner = jax.checkpoint(jax.jit(lambda u: jnp.sin(u) * u))(state["u"])
        return {"u": scanned(bounded(inner))}

    state = {"u": jnp.ones((SIDE, SIDE))}
    words = [it.results[0].split(".")[0] for it in trace(step, state).assignments]
    assert words.count("scan") == 1
    assert {"sin", "cos", "atan"} <= set(words)
    assert not {"jit", "pjit", "remat2", "checkpoint", "custom_vjp_call"} & set(words)


def test_single_precision_stays_so() -> None:
    jax.config.update("jax_enable_x64", False)
    state = {"u": np.linspace(0, 1, 5)}  # double, which JAX then makes single
    halves = partition(lambda x: {"u": jnp.sin(x["u"])}, state)
    _, tape = halves.forward(state)
    assert halves.tape == 20 == sum(array.nbytes for array in tape.values())
    found = halves.backward(tape, {"u": np.ones(5)}, {})
    np.testing.assert_allclose(found["u"], np.cos(state["u"]), rtol=1e-6)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda x: x["u"], "a step must return a dict of arrays"),
        (lambda x: {"u": [x["u"]]}, "'u' of the step is a list, not an array"),
        (lambda x: {"w": x["u"]}, "returns 'w', which the state does not have"),
        (lambda x: {"u": x["u"][1:]}, r"makes 'u' float64\[2\] from float64\[3\]"),
        (lambda x: {"u": x["u"].astype("float32")}, r"makes 'u' float32\[3\] from float64\[3\]"),
    ],
)
def test_a_step_that_is_none_is_refused(step: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        trace(step, {"u": jnp.ones(3)})


def test_a_state_that_is_none_is_refused() -> None:
    with pytest.raises(BadInput, match="'u' in the state is a dict, not an array"):
        trace(lambda x: x, {"u": {"v": jnp.ones(3)}})
    none: Any = [jnp.ones(3)]
    with pytest.raises(BadInput, match="a state must be a dict of arrays by name"):
        trace(lambda x: x, none)


def printing(u: Any) -> Any:
    jax.debug.print("{}", u[0])
    return u * u


def calling(u: Any) -> Any:
    return jax.pure_callback(
        np.sin, jax.ShapeDtypeStruct(u.shape, u.dtype), jax.lax.stop_gradient(u)
    )


@pytest.mark.parametrize(
    ("effect", "name"), [(printing, "debug_print"), (calling, "pure_callback")]
)
def test_what_does_more_than_compute_is_refused_by_name(effect: Any, name: str) -> None:
    def hidden(u: Any) -> Any:
        return jax.lax.scan(lambda at, _: (effect(at), None), u, None, length=2)[0]

    for function in (effect, jax.jit(effect), hidden):
        with pytest.raises(BadInput, match=f"the step has '({name}|scan)'"):
            trace(lambda x, function=function: {"u": function(x["u"])}, {"u": jnp.ones(3)})


def test_what_is_computed_twice_is_stored_once() -> None:
    def step(x: State) -> State:
        one, other = jnp.exp(x["u"] * x["k"]), jnp.exp(x["u"] * x["k"])
        again = jax.checkpoint(lambda u: jnp.sin(jnp.exp(u)))(x["u"] * x["k"])
        return {"u": one * other * again, "k": jnp.sin(one)}

    state = {name: jnp.linspace(0.1, 1, 5) for name in "uk"}
    words = [it.results[0].split(".")[0] for it in trace(step, state).assignments]
    assert words.count("exp") == 1
    assert_right(partition(step, state), state, by_jax(step, state, cotangents(state)))


def test_what_only_looks_alike_is_computed_each() -> None:
    def step(x: State) -> State:
        u = x["u"]
        near = 1.0 + 2.0**-50
        return {"u": u**2 + u**3 + (u * near - u * 1.0) * 2.0**50 + u / 0.0 - u / -0.0}

    state = {"u": jnp.ones(3)}
    after, _ = partition(step, state).forward(state)
    assert np.isinf(after["u"]).all()
    finite = lambda x: {"u": x["u"] ** 2 + (x["u"] * (1 + 2.0**-50) - x["u"] * 1.5) * 2.0}  # noqa: E731
    after, _ = partition(finite, state).forward(state)
    np.testing.assert_array_equal(after["u"], finite(state)["u"])


@pytest.mark.campaign
@pytest.mark.parametrize("level", ["memory", "bytes alone", "archive"])
def test_arrays_that_a_step_closes_over_are_stored_nowhere(level: str) -> None:
    matrix = np.random.default_rng(0).standard_normal((40, 40)) / 7
    whole = jnp.asarray(matrix)

    def step(x: State) -> State:
        wide = jnp.broadcast_to(whole[0], (40, 40)) * jnp.cos(whole)  # as nothing else depends
        return {"u": jnp.sin((2 * whole).T @ x["u"]) * (matrix @ x["u"]) + jnp.cos(wide @ x["u"])}

    state = {"u": jnp.linspace(0, 1, 40)}
    program = trace(step, state)
    halves = partition(priced(program), state, LEVELS[level])
    assert halves.tape <= 6 * 40 * 8
    assert program.constants
    assert set(halves.stored).isdisjoint(program.constants)
    assert_right(halves, state, by_jax(step, state, cotangents(state)))
    # An array of the caller's may change afterwards: what was traced does not.
    right = step(state)
    matrix *= 0
    np.testing.assert_allclose(halves.forward(state)[0]["u"], right["u"], rtol=1e-12)


def test_a_constant_that_is_given_back_is_an_output() -> None:
    held = jnp.arange(3.0)
    halves = partition(lambda x: {"u": held, "v": x["u"] ** 2}, {"u": held + 1, "v": held})
    after, tape = halves.forward({"u": held + 1, "v": held})
    np.testing.assert_array_equal(after["u"], held)
    found = halves.backward(tape, {"u": held, "v": held}, {})
    np.testing.assert_array_equal(found["u"], 2 * (held + 1) * held)


def test_arrays_of_numpy_may_be_changed_in_place_without_harm_to_the_tape() -> None:
    room = np.zeros(8 * 4096 + 64, np.uint8)  # where JAX takes an array as it is, without a copy
    begin = -room.ctypes.data % 64
    u = room[begin : begin + 8 * 4096].view(np.float64)
    step = lambda x: {"u": x["u"] * x["u"], "old": x["u"]}  # noqa: E731
    halves = partition(step, {"u": u, "old": u})
    assert halves.stored == ("u",)
    after, tape = halves.forward({"u": u, "old": u})
    u += 7
    assert not np.any(tape["u"])
    assert not np.any(after["old"])


def test_nothing_is_compiled_twice_and_nothing_is_kept() -> None:
    compiled: list[str] = []

    def listen(event: str, _seconds: float, **_: Any) -> None:
        if "backend_compile" in event:
            compiled.append(event)

    state: State = {"u": np.ones(3), "t": 0.5, "n": 1, "w": jnp.asarray(2.0)}  # some of weak types

    def step(x: State) -> State:
        return {"u": x["u"] * jnp.sin(x["t"]), "t": x["t"] + 0.1, "n": x["n"] + 1, "w": 2 * x["w"]}

    halves = partition(step, state)
    state, tape = halves.forward(state)
    of = halves.backward(tape, dict.fromkeys(("u", "t", "w"), 1.0) | {"u": np.ones(3)}, state)
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        before = len(jax.live_arrays())
        for _ in range(200):
            state, tape = halves.forward(state)
            of = halves.backward(tape, of, state)
        assert len(jax.live_arrays()) <= before
        assert not compiled
        jax.jit(lambda u: u * 3)(state["u"])
        assert compiled  # it would have been heard
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def turning(u: Any) -> Any:
    return jax.lax.while_loop(lambda u: jnp.sum(u) > 1, lambda u: u * 0.5, u)


def test_what_has_no_adjoint_is_refused_in_one_line() -> None:
    with pytest.raises(BadInput, match=r"no adjoint of this step: .*lax\.while_loop") as raised:
        trace(lambda x: {"u": turning(x["u"])}, {"u": jnp.ones(3)})
    assert "\n" not in str(raised.value)


def test_an_error_of_the_step_is_its_own() -> None:
    def step(x: State) -> State:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        trace(step, {"u": jnp.ones(3)})


def turned(x: State) -> State:
    n = jax.lax.while_loop(lambda n: n < 10, lambda n: n + 1, x["n"])
    return {"u": x["u"] ** 2 * n, "n": n}


def leapfrog(x: State) -> State:
    return {"old": x["u"], "u": x["old"] + 0.1 * jnp.sin(x["u"])}


def kicked(x: State) -> State:
    key, now = jax.random.split(x["key"])
    return {"u": jnp.sin(x["u"]) * jax.random.normal(now, (5,)), "key": key}


def spectral(x: State) -> State:
    waves = jnp.fft.rfft(x["u"]) * x["w"]
    return {"u": jnp.fft.irfft(waves * waves, n=5), "w": x["w"] * jnp.exp(1j * waves.real)}


def solved(x: State) -> State:
    return {"b": jnp.linalg.solve(x["A"], x["b"] ** 2)}


def scattered(x: State) -> State:
    u = x["u"].at[1:3].set(x["v"][:2] ** 2).at[jnp.array([1, 1, 4])].add(2.0)
    patch = jax.lax.dynamic_update_slice(x["v"], jnp.sin(x["u"][:2]), (jnp.argmax(x["u"]),))
    return {"u": u * x["v"], "v": jax.ops.segment_sum(patch, x["n"], num_segments=5)}


def called(x: State) -> State:
    wave = jax.jit(lambda u: u * jnp.exp(-u * u))(x["u"] @ x["v"] / SIDE)
    both = jax.checkpoint(lambda u: jnp.cos(u) * jnp.sin(u))(bounded(wave))
    u = jax.lax.cond(x["v"][0, 0] > 0, lambda u: u * u, jnp.cos, jnp.where(both > 0, both, x["u"]))
    mixed = scanned(jax.nn.softmax(u.reshape(SIDE // 2, 2 * SIDE)[::-1].reshape(SIDE, SIDE)))
    return {"u": mixed / (1 + x["v"] ** 2), "v": jax.nn.relu(u.T) + jnp.sum(mixed, axis=0)}


def field(*shape: int) -> Any:
    return jnp.asarray(np.random.default_rng(4).standard_normal(shape or (5,)))


OCEANIC: dict[str, tuple[Step, Callable[[], State]]] = {
    "whole numbers in a while": (turned, lambda: {"u": field(), "n": jnp.asarray(3)}),
    "calls": (called, lambda: {"u": field(SIDE, SIDE), "v": field(SIDE, SIDE) + 1}),
    "leapfrog": (leapfrog, lambda: {"u": field(), "old": field()}),
    "swap": (lambda x: {"a": x["b"], "b": x["a"]}, lambda: {"a": field(), "b": field() + 1}),
    "keys": (kicked, lambda: {"u": field(), "key": jax.random.PRNGKey(1)}),
    "spectral": (spectral, lambda: {"u": field(), "w": field(3) + 1j * field(3)}),
    "solve": (solved, lambda: {"A": field(5, 5) + 5 * jnp.eye(5), "b": field()}),
    "scatter": (
        scattered,
        lambda: {"u": field(), "v": field() + 1, "n": jnp.array([0, 0, 1, 2, 2])},
    ),
    "nothing": (
        lambda x: {"u": x["u"] * 2, "e": x["e"] ** 2},
        lambda: {"u": field(), "e": field(0)},
    ),
}


@pytest.mark.campaign
@pytest.mark.parametrize(
    "names",
    [
        ("calls", "leapfrog", "whole numbers in a while"),
        ("swap", "keys", "solve", "nothing", "spectral", "scatter"),
    ],
    ids=len,
)
def test_the_gradient_is_that_of_jax_on_every_level(names: tuple[str, ...]) -> None:
    for name in names:
        step, make = OCEANIC[name]
        state = make()
        traced = priced(trace(step, state))
        chosen = {name: partition(traced, state, level) for name, level in LEVELS.items()}
        right = by_jax(step, state, cotangents(state))
        for halves in {halves.stored: halves for halves in chosen.values()}.values():
            assert_right(halves, state, right)
        assert chosen["bytes alone"].tape <= residual_bytes(step, state)
        assert chosen["bytes alone"].tape <= chosen["archive"].tape <= chosen["memory"].tape
