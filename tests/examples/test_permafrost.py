"""Frozen ground: the gradient through a conductivity that only a thaw overwrites, and a flow."""

from functools import partial, reduce

import numpy as np
import pytest
from example_models.permafrost import CONDUCT, ROCK, THAW, WIDTH, Permafrost, X, Y
from models.complexstep import Controls, check_every_component
from small_models import reverse_all

from ckio.actions import Key, Kind
from ckio.actions.variables import Flow
from ckio.analysis.snapshots import Plain, eager, lazy, plan, successive
from ckio.errors import RunFailed

LONG = {"grid": 6, "steps": 16, "change": 5, "thaw": 6}
"""With all three phases, and heat that has the time to spread."""


# --- every component of the gradient


def functional(base: Permafrost, steps: int, control: Controls) -> complex:
    """J as the docstrings of the model define it, point by point and with none of its code."""
    heat, conductivity = control["T"], control["K"]
    cells, total = len(heat), 0.0
    for step in range(steps):
        column = heat[:, cells // 2] - base._measured
        total += np.mean(column**2) / 2 / steps
        if step in base.thaw:
            frozen = 1 / (1 + np.exp(2 * heat / WIDTH))
            conductivity = base._rock * (1 + control["ice"] * frozen)
        change = np.zeros_like(heat)
        for j, i in np.ndindex(cells, cells):
            for axis, k, m in ((Y, j + 1, i), (X, j, i + 1)):
                if max(k, m) < cells:
                    between = (conductivity[axis, j, i] + conductivity[axis, k, m]) / 2
                    flux = between * (heat[k, m] - heat[j, i])
                    change[j, i] += flux
                    change[k, m] -= flux
            if j == 0:
                change[j, i] += 2 * conductivity[Y, j, i] * (base._surface - heat[j, i])
        heat = heat + base._factor * change
    return total + np.mean((heat - base._target) ** 2) / 2


@pytest.mark.parametrize(
    "options",
    [
        {"grid": 3, "steps": 1, "change": 0, "thaw": 1},
        {"grid": 3, "steps": 4},
        {"grid": 4, "steps": 5, "thaw": 0, "surface": -20.0},
        {"grid": 4, "steps": 9, "change": 2, "thaw": 4, "ice": 3.0},
        {"grid": 5, "steps": 6, "change": 0, "thaw": 6, "variation": 6.0, "seed": 3},
    ],
)
def test_every_component_is_the_complex_step_derivative_of_a_model_written_anew(options):
    model, base = reverse_all(Permafrost(**options), options["steps"]), Permafrost(**options)
    anew = partial(functional, base, options["steps"])
    scales = check_every_component(model, base.control, anew)
    needed = {"K": 0 not in model.thaw, "ice": bool(model.thaw), "T": True}
    assert {name: scale > 0 for name, scale in scales.items()} == needed


# --- what steps do to arrays


def test_there_are_as_many_flows_as_steps_and_none_may_thaw():
    assert Permafrost(**LONG).variables.steps == (CONDUCT,) * 5 + (THAW,) * 6 + (CONDUCT,) * 5
    assert set(Permafrost(grid=4, steps=9, thaw=0).variables.steps) == {CONDUCT}
    assert Permafrost(steps=200).thaw == range(150, 175)
    assert Permafrost(steps=1).thaw == range(1)
    assert Permafrost(steps=100, change=98).thaw == range(98, 100)


def test_only_the_thaw_changes_the_conductivity_and_it_matters():
    model, changed = Permafrost(**LONG), []
    model.dump(Key(Kind.RESTART, 0))
    for i in range(16):
        before = model._state["K"].copy()
        model.advance(i, i + 1)
        changed.append(not np.array_equal(before, model._state["K"]))
    assert [i for i, it in enumerate(changed) if it] == list(model.thaw)
    assert np.abs(model._state["K"] / model.control["K"] - 1).max() > 0.2


def test_of_checkpoints_that_share_the_conductivity_a_late_one_stores_it():
    """The example of Dauvergne and Hascoet: four checkpoints, and the code of the last thaws."""

    def part(begin: int) -> Plain:
        some = Permafrost(grid=4, steps=200, change=130, thaw=10).variables.steps[begin:][:40]
        forward, recording = (
            reduce(Flow.then, (getattr(step, which) for step in some))
            for which in ("forward", "record")
        )
        return Plain(forward, recording)

    code = successive([part(begin) for begin in range(0, 200, 40)])
    shared, own = {"T"}, {"T", "K"}
    assert [it.stored for it in plan(code, policy=lazy)] == [shared, shared, shared, own]
    assert [it.stored for it in plan(code, policy=eager)] == [shared, shared, own, own]


# --- the end, and a flow


def test_it_is_finished_after_its_steps():
    model = Permafrost(grid=5, steps=12)
    assert model.advance(0, 10) == 10
    assert model.advance(10, 99) == 12
    assert model.advance(12, 99) == 12


def test_heat_comes_from_the_surface_and_goes_nowhere_else():
    model = Permafrost(grid=16, surface=5.0, steps=50)
    model.dump(Key(Kind.RESTART, 0))
    before = model._state["T"].copy()
    assert model.advance(0, 1) == 1
    change = model._state["T"] - before
    through = 2 * model._factor * model.control["K"][Y, 0] * (5.0 - before[0])
    assert change.sum() == pytest.approx(through.sum(), rel=1e-10)
    model.advance(1, 50)
    heat = model._state["T"]
    assert before.min() <= heat.min() <= heat.max() <= max(5.0, before.max())


def test_a_wave_decays_as_theory_says():
    """cos(π x / L), along layers that all conduct alike, under a surface that takes no heat."""
    model = Permafrost(grid=40, steps=1500, thaw=0, contrast=0.0, ice=0.0)
    wave = np.tile(np.cos(np.pi * (np.arange(40) + 0.5) / 40), (40, 1))
    model.control["T"][...] = wave
    model.control["K"][Y] = 0
    model.advance(0, 1500)
    left = np.exp(-ROCK[X] / 2e6 * (np.pi / 20.0) ** 2 * 1500 * model.dt)
    assert left < 0.8
    np.testing.assert_allclose(model._state["T"], left * wave, rtol=0, atol=1e-3)


@pytest.mark.parametrize("options", [{}, {"contrast": 1.0}, {"ice": 9.0}, {"grid": 3}])
def test_the_longest_step_that_is_taken_is_stable(options):
    options = {"grid": 12, "steps": 800, "variation": 5.0} | options
    model = Permafrost(**options)
    longest = Permafrost(**options, dt=1.999 * model.dt)
    for one in (model, longest):
        one.advance(0, 800)
        assert np.abs(one._state["T"]).max() < 30


def test_a_control_that_conducts_better_than_steps_bear_stops_with_advice():
    model = Permafrost(grid=12, steps=500)
    model.control["K"][...] *= 5
    with pytest.raises(RunFailed, match=r"ground is hotter than any in steps of .*; give a sma"):
        model.advance(0, 500)
    model = Permafrost(grid=12)
    model.control["T"][3, 4] = np.nan
    with pytest.raises(RunFailed, match="at step 0 the ground"):
        model.advance(0, 1)


def test_the_same_seed_is_the_same_ground_on_every_grid():
    coarse, fine = (Permafrost(grid=grid, seed=5).control for grid in (32, 64))
    for name in ("T", "K"):
        wide = fine[name]
        middles = (wide[..., ::2, ::2] + wide[..., 1::2, 1::2]) / 2
        assert np.abs(middles - coarse[name]).max() < 0.02 * np.abs(coarse[name]).max()
    other = Permafrost(grid=32, seed=6).control["T"]
    assert np.abs(other - coarse["T"]).max() > 1.0
