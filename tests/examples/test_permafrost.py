"""Frozen ground: the gradient through a conductivity that only a thaw overwrites, and a flow."""

from functools import reduce

import numpy as np
import pytest
from example_models.permafrost import CONDUCT, ROCK, THAW, WIDTH, Permafrost, X, Y
from models.fewslots import PLANS, digest, digest_by, digest_by_two, store_all
from models.poisoning import flow_of, seed_of, tape_of

from ckio.actions import Key, Kind
from ckio.actions.variables import Flow
from ckio.analysis.snapshots import Plain, eager, lazy, plan, successive
from ckio.errors import BadInput, RunFailed
from ckio.model import sizes_of
from ckio.model.gradient import check_gradient

LONG = {"grid": 6, "steps": 16, "change": 5, "thaw": 6}
"""With all three phases, and heat that has the time to spread."""


def whole(**options: object) -> Permafrost:
    """Its gradient by store-all."""
    return store_all(Permafrost(**options), options["steps"])


# --- every component of the gradient


def functional(base: Permafrost, control: dict[str, np.ndarray], *, steps: int) -> complex:
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
    model, base = whole(**options), Permafrost(**options)
    control = {name: array.astype(complex) for name, array in base.control.items()}
    steps = options["steps"]
    assert functional(base, control, steps=steps) == pytest.approx(model.functional, rel=1e-13)
    for name, gradient in model.gradient.items():
        expected, tiny = np.zeros_like(gradient), 1e-40
        for place in np.ndindex(expected.shape):
            control[name][place] += 1j * tiny
            expected[place] = functional(base, control, steps=steps).imag / tiny
            control[name][place] -= 1j * tiny
        scale = np.abs(expected).max()
        np.testing.assert_allclose(gradient, expected, rtol=0, atol=1e-12 * scale)
        needed = {"K": 0 not in model.thaw, "ice": bool(model.thaw), "T": True}
        assert (scale > 0) == needed[name]


@pytest.mark.parametrize("change", [0, 7, 30])
@pytest.mark.parametrize("grid", [10, 33])
def test_the_taylor_test_finds_second_order_over_five_halvings(grid, change):
    options = {"grid": grid, "steps": 40, "change": change, "thaw": 10, "variation": 3.0}
    check = check_gradient(lambda: Permafrost(**options), 40, whole(**options).gradient)
    assert check.verified
    assert min(check.rates) > 1.95


# --- what steps do to arrays


@pytest.mark.parametrize(("i", "step"), [(1, CONDUCT), (4, CONDUCT), (5, THAW), (10, THAW)])
@pytest.mark.parametrize("after", [False, True])
def test_the_flows_declared_are_what_steps_do(i, step, after):
    def make():
        return Permafrost(**LONG)

    if after:  # the thaw is over; what comes then conducts
        i, step = 11 + i % 5, CONDUCT
    assert make().variables.steps[i] == step
    assert flow_of(make, i) == step.forward
    assert tape_of(make, i) == step.record.use
    assert seed_of(make, i) == {"T", "J"} == make().variables.seed


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


def test_the_conductivity_is_most_of_a_checkpoint_and_not_in_one_if_nothing_thaws():
    field = 8 * 20**2
    sizes = sizes_of(Permafrost(grid=20))
    assert (sizes["restart"], sizes["tape"]) == (3 * field + 8, 3 * field)
    sizes = sizes_of(Permafrost(grid=20, thaw=0))
    assert (sizes["restart"], sizes["tape"]) == (field + 8, field)


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


@pytest.mark.parametrize("planner", PLANS)
@pytest.mark.parametrize("options", [LONG, LONG | {"thaw": 0}, LONG | {"change": 0, "thaw": 16}])
def test_few_slots_give_the_gradient_of_store_all_to_the_last_bit(planner, options, tmp_path):
    found = digest_by(planner, lambda: Permafrost(**options), 16, tmp_path)
    assert found == digest(whole(**options))


@pytest.mark.parametrize("thaw", [0, 6])
def test_a_new_process_goes_on_from_an_adjoint_checkpoint(thaw):
    def make():
        model = Permafrost(**LONG | {"thaw": thaw})
        model.control["K"][...] *= 1.1  # which no checkpoint has if nothing thaws
        return model

    assert digest_by_two(make, 16) == digest(store_all(make(), 16))


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


def test_checkpoints_have_units():
    layout = Permafrost(grid=5).layout(Key(Kind.RESTART, 0))
    assert [(field.name, field.unit) for field in layout] == [
        ("T", "degC"),
        ("K", "W m-1 K-1"),
        ("J", "K2"),
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"grid": 2}, "grid = 2; it must be a whole number >= 3"),
        ({"steps": 0}, "steps = 0; it must be a whole number >= 1"),
        ({"steps": 1.5}, r"steps = 1\.5; it must be a whole number"),
        ({"change": -1}, "change = -1; it must be a whole number >= 0"),
        ({"change": 2.5}, r"change = 2\.5; it must be a whole number"),
        ({"thaw": "long"}, "thaw = 'long'; it must be a whole number"),
        (
            {"change": 190, "thaw": 11},
            "change = 190 and thaw = 11 go beyond the end; there are 200",
        ),
        ({"change": 201}, "change = 201 and thaw = 0 go beyond the end"),
        ({"heat": 0.0}, "heat = 0; it must be finite and > 0"),
        ({"ice": -0.1}, r"ice = -0\.1; it must be finite and >= 0"),
        ({"surface": float("nan")}, "surface = nan; it must be finite"),
        ({"dt": -1.0}, "dt = -1; it must be finite and > 0"),
        ({"dt": 1e9}, r"dt = 1e\+09 s; conduction on this grid needs at most"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(BadInput, match=message):
        Permafrost(**options)
