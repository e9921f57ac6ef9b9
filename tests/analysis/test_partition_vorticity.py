"""Barotropic vorticity with Adams-Bashforth steps, in JAX: what its tape takes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench.papers.step_tape import repeated
from ckio.analysis.partitioned import (
    Assignment,
    StraightLine,
    partition,
    trace,
)
from ckio.platform import Affine, Level

jax: Any = pytest.importorskip("jax")
jnp = jax.numpy

State = dict[str, Any]
GRID = 32
FIELD = GRID * GRID * 8
"""Bytes."""


pytestmark = pytest.mark.usefixtures("doubles_in_jax")


def model() -> tuple[Callable[[State], State], State]:
    """A step in terms of seven fields, of which it needs five, and a state."""
    h, k = 1 / (GRID + 1), np.arange(1, GRID + 1)
    sines = jnp.asarray(np.sqrt(2 * h) * np.sin(np.pi * h * np.outer(k, k)))
    wave = (2 * np.cos(np.pi * h * k) - 2) / h**2
    inverse = jnp.asarray(1 / (wave[:, None] + wave))
    drag, viscosity, dt = 0.02, 5e-5, 5e-3

    def poisson(zeta: Any) -> Any:
        return sines @ (sines @ zeta @ sines * inverse) @ sines

    def shifted(a: Any, y: int, x: int) -> Any:
        return jnp.pad(a, 1)[1 + y : 1 + y + GRID, 1 + x : 1 + x + GRID]

    def d_dx(a: Any) -> Any:
        return (shifted(a, 0, 1) - shifted(a, 0, -1)) / (2 * h)

    def d_dy(a: Any) -> Any:
        return (shifted(a, 1, 0) - shifted(a, -1, 0)) / (2 * h)

    def laplacian(a: Any) -> Any:
        around = shifted(a, 1, 0) + shifted(a, -1, 0) + shifted(a, 0, 1) + shifted(a, 0, -1)
        return (around - 4 * a) / h**2

    def step(state: State) -> State:
        zeta, psi = state["zeta"], state["psi"]
        jacobian = d_dx(psi) * d_dy(zeta) - d_dy(psi) * d_dx(zeta)
        now = state["Q"] - jacobian - d_dx(psi) - drag * zeta + viscosity * laplacian(zeta)
        new = zeta + dt / 12 * (23 * now - 16 * state["F_1"] + 5 * state["F_2"])
        return {
            "zeta": new, "psi": poisson(new), "zeta_prev": zeta,
            "F_0": now, "F_1": now, "F_2": state["F_1"], "Q": state["Q"],
        }  # fmt: skip

    zeta = jnp.asarray(np.random.default_rng(0).standard_normal((GRID, GRID)) / 10)
    rest = jnp.zeros((GRID, GRID))
    wind = jnp.broadcast_to(-jnp.sin(2 * jnp.pi * h * k) / 10, (GRID, GRID))
    fields = dict.fromkeys(("zeta_prev", "F_0", "F_1", "F_2"), rest)
    return step, {"zeta": zeta, "psi": poisson(zeta), "Q": wind, **fields}


def operations(assignment: Assignment) -> int:
    if "dot_general" in assignment.kind:
        return GRID**2 * 2 * GRID
    return GRID**2 if assignment.arguments else 0


def flops(program: StraightLine, rate: float) -> StraightLine:
    """Assignments take as long as their operations, at so many seconds for each."""
    return replace(
        program,
        assignments=[replace(it, seconds=rate * operations(it)) for it in program.assignments],
    )


def level(seconds_per_byte: float) -> Level:
    return Level(name="some", write=Affine(1e-3, seconds_per_byte))


def cotangents() -> State:
    numbers = np.random.default_rng(1)
    _, state = model()
    return {name: jnp.asarray(numbers.standard_normal((GRID, GRID))) for name in state}


def assert_right(program: StraightLine, step: Any, where: Level | None, fields: float) -> None:
    _, state = model()
    halves = partition(program, state, where)
    assert halves.tape == fields * FIELD
    after, tape = halves.forward(state)
    assert sum(array.nbytes for array in tape.values()) == halves.tape
    lost = {name: array if name == "Q" else array * jnp.nan for name, array in after.items()}
    found = halves.backward(tape, cotangents(), lost)
    expected = jax.vjp(step, state)[1](cotangents())[0]
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=0, atol=1e-12 * jnp.abs(array).max())


@pytest.mark.slow
def test_a_tape_of_two_fields_is_enough_where_jax_keeps_six() -> None:
    step, state = model()
    _, pull = jax.vjp(step, state)
    kept = {id(x): x.nbytes for x in jax.tree_util.tree_leaves(pull)}
    assert round(sum(kept.values()) / FIELD) == 6
    program = trace(step, state)
    assert_right(program, step, None, fields=2)
    assert set(partition(program, state).stored) == {"zeta", "psi"}


@pytest.mark.parametrize(
    ("seconds_per_byte", "fields"), [(1e-12, 4), pytest.param(1e-8, 2, marks=pytest.mark.slow)]
)
def test_what_the_level_takes_decides(seconds_per_byte: float, fields: int) -> None:
    """Two derivatives each of two fields: read, where that is faster than to compute them."""
    step, state = model()
    program = flops(trace(step, state), 1e-9)
    assert_right(program, step, level(seconds_per_byte), fields)


@pytest.mark.slow
def test_steps_chosen_together_take_a_state_or_four_fields_each() -> None:
    steps, (step, state) = 4, model()
    program = flops(trace(repeated(step, steps), state), 1e-9)
    for where, fields in ((None, 4), (level(1e-12), 4 * steps)):
        assert partition(program, state, where).tape == fields * FIELD
