"""Shallow water: every component of the gradient, what steps do to arrays, and waves."""

from functools import partial

import numpy as np
import pytest
from example_models.shallow_water import (
    GRAVITY,
    NOW,
    ShallowWater,
    X,
    Y,
    gather,
)
from models.complexstep import Controls, check_every_component
from models.variants import ROUGH
from small_models import reverse_all

from ckio.errors import RunFailed

# --- every component of the gradient


def functional(base: ShallowWater, steps: int, control: Controls) -> complex:
    """J as the docstrings of the model define it, point by point and with none of its code."""
    cells, dx, f = len(control["h"]), 1 / base._per_spacing, base._coriolis
    depth, drag, dt, gamma = control["depth"], control["drag"], base.dt, base._asselin
    inside = range(1, cells)

    def at_faces(u, v):
        """With the walls: u[j, i] to the left of cell [j, i], v[j, i] below it."""
        return np.pad(u, ((0, 0), (1, 1))), np.pad(v, ((1, 1), (0, 0)))

    def rates(u, v, h):
        u, v = at_faces(u, v)
        flux_x, flux_y, q = u * 0, v * 0, np.zeros((cells + 1, cells + 1), complex)
        for j, i in np.ndindex(cells, cells):
            if i:
                flux_x[j, i] = (h[j, i] + h[j, i - 1]) / 2 * u[j, i]
            if j:
                flux_y[j, i] = (h[j, i] + h[j - 1, i]) / 2 * v[j, i]
            if i and j:
                vorticity = (v[j, i] - v[j, i - 1] - u[j, i] + u[j - 1, i]) / dx
                q[j, i] = (f + vorticity) / h[j - 1 : j + 1, i - 1 : i + 1].mean()
        bernoulli = GRAVITY * (h - depth)
        bernoulli += (u[:, 1:] ** 2 + u[:, :-1] ** 2 + v[1:] ** 2 + v[:-1] ** 2) / 4
        of_u, of_v, of_h = u * 0, v * 0, h * 0
        for j, i in np.ndindex(cells, cells):
            if i:
                around = [q[k, i] * (flux_y[k, i] + flux_y[k, i - 1]) / 2 for k in (j, j + 1)]
                of_u[j, i] = sum(around) / 2 - (bernoulli[j, i] - bernoulli[j, i - 1]) / dx
            if j:
                around = [q[j, k] * (flux_x[j, k] + flux_x[j - 1, k]) / 2 for k in (i, i + 1)]
                of_v[j, i] = -sum(around) / 2 - (bernoulli[j, i] - bernoulli[j - 1, i]) / dx
            of_h[j, i] = flux_x[j, i] - flux_x[j, i + 1] + flux_y[j, i] - flux_y[j + 1, i]
        energy = (flux_x * u).sum() + (flux_y * v).sum() + GRAVITY * ((h - depth) ** 2).sum()
        return (of_u[:, inside], of_v[inside], of_h / dx), energy / (2 * cells**2)

    now = [control[name] for name in NOW]
    old, total = now, 0.0
    for step in range(steps):
        (of_u, of_v, of_h), energy = rates(*now)
        total += energy / steps
        changes = of_u - drag * old[0], of_v - drag * old[1], of_h
        leap = 2 * dt if step else dt
        new = [x + leap * change for x, change in zip(old, changes, strict=True)]
        some = gamma if step else 0.0
        old = [b + some * (a - 2 * b + c) for a, b, c in zip(old, now, new, strict=True)]
        now = new
    return total + GRAVITY * np.mean((now[2] - base._target) ** 2) / 2


@pytest.mark.parametrize(
    ("grid", "steps", "options"),
    [
        (3, 1, {}),
        (3, 2, ROUGH),
        (4, 5, ROUGH | {"asselin": 0.2}),
        (4, 4, ROUGH | {"asselin": 0.0, "coriolis": 0.0, "bank": 0.0, "seed": 2}),
    ],
)
def test_every_component_is_the_complex_step_derivative_of_a_model_written_anew(
    grid, steps, options
):
    model = reverse_all(ShallowWater(grid=grid, **options), steps)
    base = ShallowWater(grid=grid, **options)
    scales = check_every_component(model, base.control, partial(functional, base, steps))
    assert all((scale > 0) == (steps > 1 or name != "drag") for name, scale in scales.items())


# --- waves


def test_but_for_drag_and_time_steps_energy_stays_as_it_is():
    """U, V and B are the derivatives of E: what they and the rates make is its rate."""
    model = ShallowWater(grid=20, **ROUGH)
    model.advance(0, 30)
    state, rate = model._state, model._rate
    model._diagnose(state, state)
    model._compute_rates(state)
    change = {"u": -model.control["drag"] * state["u_old"], "v": None}
    change["v"] = -model.control["drag"] * state["v_old"]
    parts = [np.sum(state[flow] * (rate[s] - change[s])) for s, flow in (("u", "U"), ("v", "V"))]
    parts.append(np.sum(state["B"] * rate["h"]))
    assert abs(sum(parts)) < 1e-12 * sum(map(abs, parts))
    assert abs(np.sum(rate["h"])) < 1e-12 * np.abs(rate["h"]).sum()


def test_a_seiche_swings_as_theory_says():
    """A surface cos(π x / L) cos(ω t) with ω = c π / L, on water of one depth that is at rest."""
    grid, length, depth = 64, 1e5, 50.0
    model = ShallowWater(
        grid=grid, length=length, depth=depth, bank=0.0, coriolis=0.0, drag=0.0, asselin=0.0
    )
    x = (np.arange(grid) + 0.5) / grid
    model.control["h"][...] = depth + 0.01 * np.cos(np.pi * x)
    model.control["u"][...] = model.control["v"][...] = 0
    frequency = np.sqrt(GRAVITY * depth) * np.pi / length
    steps = round(2.5 * np.pi / frequency / model.dt)
    model.advance(0, steps)
    expected = 0.01 * np.cos(np.pi * x) * np.cos(frequency * steps * model.dt)
    found = model._state["h"] - depth
    np.testing.assert_allclose(found, np.broadcast_to(expected, found.shape), rtol=0, atol=2e-4)
    speed = 0.01 * np.sqrt(GRAVITY / depth) * np.sin(np.pi * np.arange(1, grid) / grid)
    np.testing.assert_allclose(
        model._state["u"],
        np.broadcast_to(speed * np.sin(frequency * steps * model.dt), (grid, grid - 1)),
        rtol=0,
        atol=3e-2 * speed.max(),
    )


def test_a_flow_in_balance_stays():
    """f u = -g ∂h/∂y and f v = g ∂h/∂x: eddies that turn slowly and are weak hardly change."""
    model = ShallowWater(grid=64, length=2e5, bank=0.0, coriolis=2e-3, drag=0.0)
    x = (np.arange(1, 64)) / 64
    corner = 1e-3 * np.outer(np.sin(np.pi * x) ** 2, np.sin(np.pi * x) ** 2)
    middle = (np.arange(64) + 0.5) / 64
    bump = 1e-3 * np.outer(np.sin(np.pi * middle) ** 2, np.sin(np.pi * middle) ** 2)
    factor = GRAVITY / 2e-3 * model._per_spacing
    for name, axis, sign in (("u", Y, 1.0), ("v", X, -1.0)):
        model.control[name][...] = 0
        gather(corner.copy(), sign * factor, axis, model.control[name])
    model.control["h"][...] = model.control["depth"] + bump
    model.advance(0, 400)
    np.testing.assert_allclose(model._state["h"] - model._state["depth"], bump, rtol=0, atol=4e-5)


@pytest.mark.parametrize(("grid", "steps"), [(128, 500), (32, 2000), (3, 500)])
def test_the_flow_stays_bounded(grid, steps):
    model = ShallowWater(grid=grid)
    model.advance(0, 1)
    before = model._energy(model._state)
    model.advance(1, steps)
    assert 0.05 * before < model._energy(model._state) < 1.05 * before


@pytest.mark.parametrize(
    ("options", "longer"),
    [({}, 1.45), ({"drag": 1e-3}, 3.0), ({"coriolis": 5e-3}, 1.1), ({"asselin": 0.3}, 1.8)],
)
def test_the_longest_step_that_is_taken_is_stable_and_a_longer_one_is_not(options, longer):
    quiet = {"grid": 10, "bank": 0.0, "surface": 1e-3, "speed": 1e-4} | options
    limit = 2 * ShallowWater(**quiet).dt
    ShallowWater(**quiet, dt=0.999 * limit).advance(0, 1500)
    model = ShallowWater(**quiet)
    model._dt = longer * limit
    with pytest.raises(RunFailed, match=r"crosses a cell in one step|run dry"):
        model.advance(0, 1500)


def test_a_cell_that_runs_dry_is_no_accident_of_numbers():
    model = ShallowWater(grid=8)
    model.control["h"][2, 3] = -0.1
    with pytest.raises(RunFailed, match="at step 0 a cell has run dry; h must stay above 0"):
        model.advance(0, 5)


@pytest.mark.parametrize("value", [np.nan, 1e3])
def test_a_flow_that_is_too_fast_for_its_step_stops_with_advice(value):
    model = ShallowWater(grid=8)
    model.control["u"][...] = value
    with pytest.raises(RunFailed, match=r"at step 0 the flow crosses a cell in one step of .*dt"):
        model.advance(0, 5)


def test_the_same_seed_is_the_same_flow_on_every_grid():
    coarse, fine = ShallowWater(grid=32, seed=5), ShallowWater(grid=64, seed=5)
    h, wide = coarse.control["h"], fine.control["h"]
    middles = (wide[::2, ::2] + wide[1::2, ::2] + wide[::2, 1::2] + wide[1::2, 1::2]) / 4
    assert np.abs(middles - h).max() < 0.01 * np.abs(h - 100).max()
    u = coarse.control["u"]
    faces = (fine.control["u"][::2, 1::2] + fine.control["u"][1::2, 1::2]) / 2
    assert np.abs(faces - u).max() < 0.03 * np.abs(u).max()
    assert np.abs(ShallowWater(grid=32, seed=6).control["u"] - u).max() > np.abs(u).max() / 2
    assert np.sqrt(np.mean((h - coarse.control["depth"]) ** 2)) == pytest.approx(0.5)
