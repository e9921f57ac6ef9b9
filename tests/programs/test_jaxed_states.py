"""States of programs in JAX: what they hold, whose they are, and what is refused."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ckio.errors import BadInput
from ckio.programs.jaxed import JaxProgram, jax_program

from .jaxed import MODES, assert_same, gradient, whole

jax: Any = pytest.importorskip("jax")
jnp = jax.numpy
lax = jax.lax


pytestmark = pytest.mark.usefixtures("doubles_in_jax")


def damped(x: Any, by: Any = 0.5, steps: int = 5) -> Any:
    return lax.fori_loop(0, steps, lambda i, y: y - by * jnp.sin(y), x)


@pytest.mark.parametrize("mode", MODES)
def test_states_hold_what_is_live_alone(mode: Any) -> None:
    def sums(x: Any) -> Any:
        squares, used = x["big"] ** 2, x["big"].sum()
        return lax.fori_loop(0, 3, lambda i, y: y * used, squares[0])

    x = {"unused": np.ones(9), "big": np.arange(100.0)}
    program = JaxProgram(sums, (x,), mode)
    start = program.start(x)
    assert set(program.pack(start)[0]) == {"x.0.unused", "x.0.big"}
    for tick in (1, 2, 3):
        arrays, meta = program.pack(program.advance(start, tick)[0])
        assert sum(array.nbytes for array in arrays.values()) <= 32
        assert set(meta) == {"pc", "fingerprint"}
    assert set(program.pack(whole(program, (x,))[0])[0]) == {"y"}


@pytest.mark.campaign
@pytest.mark.parametrize("mode", MODES)
def test_rows_that_a_scan_will_overwrite_have_no_cotangent(mode: Any) -> None:
    def run(x: Any) -> Any:
        return lax.scan(lambda c, row: (c * row, c), 1.0, x)[1]

    program = JaxProgram(run, (np.arange(1.0, 6.0),), mode)
    state, _, _ = program.advance(program.start(np.arange(1.0, 6.0)), 3)  # two rows are there
    found = program.pullback(state, 9, {"y": np.ones(5)})
    stacked = [it.tolist() for name, it in found.items() if it.shape and name != "x.0"]
    assert stacked == [[1.0, 1.0, 0.0, 0.0, 0.0]]


@pytest.mark.campaign
@pytest.mark.parametrize("mode", MODES)
def test_nobody_can_change_a_state(mode: Any) -> None:
    x = np.linspace(0.0, 1.0, 64)
    program = JaxProgram(damped, (x,), mode)
    state = program.start(x)
    before, _ = program.pack(state)
    x[:] = np.nan
    middle, _, _ = program.advance(state, 2)
    arrays, meta = program.pack(middle)
    again = program.unpack(arrays, meta)
    for array in arrays.values():
        array.fill(0)
    assert_same(program.pack(again), program.pack(middle))
    assert_same(program.pack(state)[0], before)
    found = program.pullback(middle, 9, {"y": np.ones(64)})
    next(iter(found.values())).fill(1.0)  # it is the caller's


@pytest.mark.campaign
@pytest.mark.parametrize("mode", MODES)
def test_leaves_are_named_by_their_paths(mode: Any) -> None:
    def swap(pair: Any, table: Any, flag: Any, count: Any) -> Any:
        a, b = pair
        c = lax.fori_loop(0, 2, lambda i, c: c * b, a + table["z"] + table["a"][0])
        return {"z": (c, count + 1), "a": [jnp.where(flag, c, b)]}

    x = ((2.0, 3.0), {"z": 1.0, "a": [5.0]}, True, 7)
    program = JaxProgram(swap, (*x,), mode)
    state, _ = whole(program, x)
    wanted = {"z": (72.0, 8), "a": [72.0]}
    assert jax.tree.map(lambda it: it.item(), program.result(state)) == wanted
    found = gradient(program, x, {"y.z.0": 1.0, "y.a.0": 10.0})
    # (a + z + a.0) b^2 for both results
    assert {name: it.item() for name, it in found.items()} == {
        "x.0.0": 99.0,
        "x.0.1": 11.0 * 8.0 * 6.0,
        "x.1.z": 99.0,
        "x.1.a.0": 99.0,
    }
    zero = gradient(program, x, {})
    assert all(it == 0.0 for it in zero.values())
    for wrong in ("y.z.1", "y", "nonsense"):
        with pytest.raises(BadInput, match=f"no cotangent of '{wrong}'"):
            program.pullback(program.start(*x), 1, {wrong: np.ones(())})


@pytest.mark.slow
def test_fingerprints_are_of_code_and_numbers() -> None:
    def of(function: Callable[..., Any], *x: Any) -> str:
        return jax_program(function, *x).fingerprint

    x = np.ones(3)
    constant = np.arange(3.0)
    base = of(damped, x)
    assert base == of(damped, 2 * x)
    others = {
        of(lambda x: damped(x, 0.5 + 1e-16 * 2), x),
        of(lambda x: damped(x, 0.25), x),
        of(lambda x: damped(x, steps=6), x),
        of(lambda x: damped(x, constant), x),
        of(lambda x: damped(x, constant + 1e-15), x),
        of(damped, np.ones(4)),
        of(damped, np.ones(3, np.float32)),
        of(lambda x: damped(jax.nn.relu(x)), x),
    }
    assert len(others) == 8
    assert base not in others
    script = """
import jax, numpy as np
jax.config.update("jax_enable_x64", True)
from tests.programs.test_jaxed_states import damped
from ckio.programs.jaxed import jax_program
print(jax_program(lambda x: damped(jax.nn.relu(x)), np.ones(3)).fingerprint)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() in others


def test_states_of_something_else_are_refused() -> None:
    program = jax_program(damped, np.ones(3))
    arrays, meta = program.pack(program.advance(program.start(np.ones(3)), 2)[0])
    name = next(name for name, array in arrays.items() if array.shape)
    program.unpack(arrays, meta)
    refused: list[tuple[Any, Any, str]] = [
        (arrays, meta | {"fingerprint": "f"}, "another program"),
        (arrays, {}, "another program"),
        (arrays, meta | {"pc": 0}, "must have the registers x.0, not"),
        ({}, meta, "must have the registers"),
        (arrays | {"r99": np.ones(3)}, meta, "must have the registers"),
        (arrays | {name: np.ones(4)}, meta, rf"{name} is float64\[4\], but .* float64\[3\]"),
    ]
    for wrong, what, why in refused:
        with pytest.raises(BadInput, match=why):
            program.unpack(wrong, what)
    with pytest.raises(BadInput, match="not finished"):
        program.result(program.start(np.ones(3)))


def test_inputs_unlike_the_example_are_refused() -> None:
    program = jax_program(lambda pair: damped(pair["a"]), {"a": np.ones(3, np.float32)})
    program.start({"a": np.ones(3, np.float16)})
    for wrong, why in [
        (({"a": np.ones(4, np.float32)},), r"x.0.a is float32\[4\], but .* float32\[3\]"),
        (({"a": np.ones(3)},), "x.0.a is float64"),
        (({"b": np.ones(3, np.float32)},), "must have the structure of the example"),
        (([np.ones(3, np.float32)],), "must have the structure of the example"),
        ((), "must have the structure of the example"),
    ]:
        with pytest.raises(BadInput, match=why):
            program.start(*wrong)
    number = jax_program(damped, 1.0)
    number.start(1)
    for wrong in (1j, "1", None):
        with pytest.raises(BadInput):
            number.start(wrong)


def printed(x: Any) -> Any:
    jax.debug.print("{x}", x=x)
    return x


def called(x: Any) -> Any:
    return jax.pure_callback(np.sin, x, x)


def asked(x: Any) -> Any:
    return jax.experimental.io_callback(np.sin, x, x)


@pytest.mark.parametrize("function", [printed, called, asked], ids=lambda it: str(it.__name__))
def test_what_does_more_than_compute_is_refused(function: Any) -> None:
    def deep(x: Any) -> Any:
        return lax.fori_loop(0, 2, lambda i, y: lax.cond(y > 0, function, jnp.cos, y), x)

    for each in (function, jax.jit(function), deep):
        with pytest.raises(BadInput, match=r"contains '(debug|pure|io)_\w+'.*nothing but compute"):
            jax_program(each, 1.0)


def test_what_no_checkpoint_can_hold_is_refused() -> None:
    def walk(key: Any) -> Any:
        return lax.fori_loop(0, 2, lambda i, c: c + jax.random.normal(key), 0.0)

    with pytest.raises(BadInput, match=r"typed key .*jax.random.PRNGKey"):
        jax_program(walk, jax.random.key(0))
    with pytest.raises(BadInput, match=r"typed key .*jax.random.PRNGKey"):
        jax_program(lambda x: x * walk(jax.random.key(0)), 1.0)
    with pytest.raises(BadInput, match=r"y\.1 is a str"):
        jax_program(lambda x: (x, "text"), 1.0)
    with pytest.raises(BadInput, match=r"x\.0\.u is a object"):
        jax_program(lambda x: 1.0, {"u": object()})
    with pytest.raises(BadInput, match=r"two values are called x.0.a.b"):
        jax_program(lambda x: 1.0, {"a.b": 1.0, "a": {"b": 2.0}})


def test_a_large_state_runs_in_blocks() -> None:
    assert jax_program(damped, np.ones(3)).mode == "switch"
    assert jax_program(damped, np.ones(10**5)).mode == "blocks"


@pytest.mark.slow
def test_double_precision_is_that_of_the_time_of_tracing() -> None:
    x = np.linspace(0.0, 1.0, 4)
    for mode in MODES:
        program = JaxProgram(damped, (x,), mode)
        state, ticks = whole(program, (x,))
        jax.config.update("jax_enable_x64", False)
        with pytest.raises(BadInput, match=r"x.0 is float64.*'jax_enable_x64', True"):
            jax_program(damped, x)
        again, _ = whole(program, (x,))
        assert_same(program.pack(again), program.pack(state))
        found = program.pullback(program.start(x), ticks, {"y": np.ones(4)})
        assert found["x.0"].dtype == np.float64
        single = JaxProgram(damped, (0.5,), mode)  # a number is what JAX makes of it
        assert single.result(whole(single, (0.5,))[0]).dtype == np.float32
        assert not jax.config.jax_enable_x64
        jax.config.update("jax_enable_x64", True)


def test_without_jax_it_says_what_to_install() -> None:
    script = """
import sys
import ckio.analysis.partitioned
from ckio.programs.jaxed import jax_program
assert not any(name.split(".")[0] in ("jax", "jaxlib") for name in sys.modules)
sys.modules["jax"] = None  # as where it is not installed
from ckio.errors import BadInput
try:
    jax_program(lambda x: x, 1.0)
except BadInput as error:
    assert "pip install 'ckio[jax]'" in str(error), error
else:
    raise SystemExit("nothing was said")
"""
    subprocess.run([sys.executable, "-c", script], check=True)
