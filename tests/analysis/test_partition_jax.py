"""Steps in JAX: whatever is stored, the two halves give the gradient that JAX gives."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from ckio.analysis.dag import choose
from ckio.analysis.partitioned import Partition, StraightLine, flow_of, partition, repeated, trace
from ckio.errors import BadInput
from ckio.platforms import Affine, Level

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


CONFIG = "jax_enable_x64", "jax_disable_most_optimizations"


@pytest.fixture(autouse=True)
def configured() -> Iterator[None]:
    """And code that takes less time to compile."""
    before = {name: jax.config.values[name] for name in CONFIG}
    for name in CONFIG:
        jax.config.update(name, True)
    yield
    for name in CONFIG:
        jax.config.update(name, before[name])


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


ONE: tuple[Callable[[Any], Any], ...] = (
    jnp.sin,
    jnp.tanh,
    jax.nn.relu,
    jax.nn.softmax,
    jnp.transpose,
    bounded,
    scanned,
    jax.jit(lambda u: u * jnp.exp(-u * u)),
    jax.checkpoint(lambda u: jnp.cos(u) * jnp.sin(u)),
    lambda u: u.reshape(SIDE // 2, 2 * SIDE)[::-1].reshape(SIDE, SIDE),
    lambda u: jax.lax.cond(u[0, 0] > 0, lambda u: u * u, jnp.cos, u),
    lambda u: 1 / (2 + u * u) + jnp.sum(u, axis=0) * jnp.arange(SIDE),
)

TWO: tuple[Callable[[Any, Any], Any], ...] = (
    lambda u, v: u * v,
    lambda u, v: u - 0.3 * v,
    lambda u, v: u @ v / SIDE,
    lambda u, v: jnp.where(u > v, u * u, v),
    lambda u, v: u / (1 + v * v),
)


def program(seed: int, length: int = 10) -> tuple[Step, State]:
    """A step made of random functions, on a state of which it overwrites a part."""
    random, numbers = Random(seed), np.random.default_rng(seed)

    def step(state: State) -> State:
        draw = Random(seed)
        pool = [state[name] for name in ("a", "b", "c", "k")]
        for _ in range(length):
            if draw.random() < 0.5:
                pool.append(draw.choice(ONE)(draw.choice(pool[-6:])))
            else:
                pool.append(draw.choice(TWO)(draw.choice(pool[-6:]), draw.choice(pool)))
        even = jnp.where(state["count"] % 2 == 0, pool[-2], pool[-3])
        new = {"a": pool[-1], "b": even, "d": state["a"], "count": state["count"] + 1}
        return new if draw.random() < 0.5 else {**new, "k": state["k"], "c": state["c"]}

    names = "abcdk"
    state = {name: jnp.asarray(numbers.standard_normal((SIDE, SIDE))) for name in names}
    return step, {**state, "count": jnp.asarray(random.randrange(2))}


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
    assert set(halves.begins) <= set(halves.program.kept)


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 30))]
)
def test_the_gradient_is_that_of_jax_on_every_level(seed: int) -> None:
    step, state = program(seed)
    traced = priced(trace(step, state))
    chosen = {
        name: partition(traced, state, level, seconds="declared") for name, level in LEVELS.items()
    }
    right = by_jax(step, state, cotangents(state))
    for halves in {halves.stored: halves for halves in chosen.values()}.values():
        assert_right(halves, state, right)
    assert chosen["bytes alone"].tape <= residual_bytes(step, state)
    assert chosen["bytes alone"].tape <= chosen["archive"].tape <= chosen["memory"].tape


def test_the_gradient_is_that_of_jax_with_seconds_that_were_measured() -> None:
    step, state = program(3, length=3)
    halves = partition(step, state, LEVELS["memory"])
    assert_right(halves, state, by_jax(step, state, cotangents(state)))
    assert max(halves.graph.recompute.values()) > 0


def test_every_value_on_the_tape_is_needed() -> None:
    needed = 0
    for seed in range(3):
        step, state = program(seed)
        halves = partition(trace(step, state), state, seconds="declared")
        saved, stored = halves.choice.saved, halves.choice.stored
        for name in (*saved, *stored):
            needed += 1
            with pytest.raises(BadInput, match="is needed again and not stored"):
                choose(
                    halves.graph,
                    saved=[it for it in saved if it != name],
                    stored=[it for it in stored if it != name],
                )
        _, tape = halves.forward(state)
        for name in halves.stored:
            with pytest.raises(KeyError, match="the tape has no"):
                halves.backward({k: v for k, v in tape.items() if k != name}, {}, state)
    assert needed >= 3


def test_the_adjoint_reads_its_tape() -> None:
    step, state = program(0)
    of = cotangents(state)
    halves = partition(trace(step, state), state, seconds="declared")
    _, tape = halves.forward(state)
    right = halves.backward(tape, of, state)
    spoilt = {name: array + 1 for name, array in tape.items() if array.dtype != bool}
    wrong = halves.backward({**tape, **spoilt}, of, state)
    assert any(not np.allclose(right[name], wrong[name]) for name in right)


def test_code_in_functions_is_taken_apart_and_loops_are_not() -> None:
    def step(state: State) -> State:
        inner = jax.checkpoint(jax.jit(lambda u: jnp.sin(u) * u))(state["u"])
        return {"u": scanned(bounded(inner))}

    state = {"u": jnp.ones((SIDE, SIDE))}
    words = [it.results[0].split(".")[0] for it in trace(step, state).assignments]
    assert words.count("scan") == 1
    assert {"sin", "cos", "atan"} <= set(words)
    assert not {"jit", "pjit", "remat2", "checkpoint", "custom_vjp_call"} & set(words)


def test_several_steps_are_chosen_together() -> None:
    step, state = program(5)
    one = partition(trace(step, state), state, seconds="declared")
    together = repeated(step, 2)
    two = partition(trace(together, state), state, seconds="declared")
    assert two.tape <= 2 * one.tape
    assert_right(two, state, by_jax(together, state, cotangents(state)))


def test_single_precision_stays_so() -> None:
    jax.config.update("jax_enable_x64", False)
    state = {"u": np.linspace(0, 1, 5)}  # double, which JAX then makes single
    halves = partition(lambda x: {"u": jnp.sin(x["u"])}, state, seconds="declared")
    _, tape = halves.forward(state)
    assert halves.tape == 20 == sum(array.nbytes for array in tape.values())
    found = halves.backward(tape, {"u": np.ones(5)}, {})
    np.testing.assert_allclose(found["u"], np.cos(state["u"]), rtol=1e-6)


def test_what_a_step_uses_and_overwrites_is_seen() -> None:
    def step(state: State) -> State:
        x = state["x"] * state["k"] + state["q"]
        return {"x": x, "old": state["x"], "mean": jnp.mean(x), "k": state["k"]}

    state = {name: jnp.ones(3) for name in ("x", "old", "k", "q")} | {"mean": jnp.ones(())}
    flow = flow_of(step, state, wanted=["x"])
    assert flow.forward.use == {"x", "k", "q"}
    assert flow.forward.out == flow.forward.kill == {"x", "old", "mean"}
    assert flow.record.use == {"x", "k"}  # q is only added
    assert (flow.reverse.use, flow.restored) == (frozenset(), frozenset())
    with pytest.raises(BadInput, match="y is wanted, but the state has only k, mean"):
        flow_of(step, state, wanted=["y"])


def test_what_is_live_follows_from_step_to_step() -> None:
    def step(state: State) -> State:
        return {"a": state["b"], "b": state["c"] + 1.0, "c": state["c"] - 1.0, "d": state["e"]}

    state = {name: jnp.ones(2) for name in "abcde"}
    assert flow_of(step, state, wanted=["a"]).forward.use == {"b", "c"}
    assert flow_of(step, state, wanted=["d"]).forward.use == {"e"}
    assert flow_of(step, state).forward.use == {"b", "c", "e"}


def test_what_a_later_tape_is_made_of_is_live() -> None:
    def step(state: State) -> State:
        return {"a": state["a"] + 1.0, "q": state["q"] * state["r"], "r": state["z"]}

    flow = flow_of(step, {name: jnp.ones(2) for name in "aqrz"}, wanted=["a"])
    assert flow.record.use == {"q", "r"}
    assert flow.forward.use == {"a", "q", "r", "z"}


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda x: x["u"], "a step gives a dict of arrays"),
        (lambda x: {"u": [x["u"]]}, "'u' of the step is a list, not an array"),
        (lambda x: {"w": x["u"]}, "gives 'w', which the state does not have"),
        (lambda x: {"u": x["u"][1:]}, r"makes 'u' float64\[2\] of float64\[3\]"),
        (lambda x: {"u": x["u"].astype("float32")}, r"makes 'u' float32\[3\] of float64\[3\]"),
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
