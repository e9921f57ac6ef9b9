"""Burgers' equation: its gradient, dt included, against a model written anew; and a flow."""

from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from models.complexstep import Controls, check_every_component
from models.variants import Endless
from small_models import digest, reverse_all

from ckio.actions import Key, Kind
from ckio.calibrate import measure_model
from ckio.errors import RunFailed
from ckio.models.burgers import Burgers
from ckio.testing.checkpoints import save

ENDLESS = 10**6


def steps_of(**options: object) -> int:
    return Burgers(**options).advance(0, ENDLESS)


# --- every component of the gradient


def functional(model: Burgers, time: float, control: Controls) -> complex:
    """J as the docstrings of the model define it, in complex numbers and with none of its code."""
    u, viscosity = control["u"], control["viscosity"]
    cells = len(u) - 1
    h, t, total = model._spacing, 0.0, 0.0
    u = np.concatenate(([0], u[1:-1], [0]))

    def rate(v: np.ndarray) -> np.ndarray:
        of_v = np.zeros_like(v)
        for k in range(1, cells):
            right = (v[k] ** 2 + v[k] * v[k + 1] + v[k + 1] ** 2) / 6
            left = (v[k - 1] ** 2 + v[k - 1] * v[k] + v[k] ** 2) / 6
            of_v[k] = (left - right) / h
            of_v[k] += viscosity * (v[k - 1] - 2 * v[k] + v[k + 1]) / h**2
        return of_v

    def energy(v: np.ndarray) -> complex:
        return sum(v * v) / cells / 2

    while np.real(t) < time:
        place = max(range(cells + 1), key=lambda k: abs(u[k].real))
        speed = u[place] if u[place].real > 0 else -u[place]
        dt = model._courant / (speed / h + 2 * viscosity / h**2)
        last = dt.real >= np.real(time - t)
        dt = time - t if last else dt
        total += dt * energy(u) / time
        stage = u + dt / 3 * rate(u)
        stage = u + dt / 2 * rate(stage)
        u = u + dt * rate(stage)
        t = time if last else t + dt
    return total + energy(u - model._target)


@pytest.mark.parametrize(
    "options",
    [
        {"grid": 4},
        {"grid": 9, "time": 0.02},
        {"grid": 12, "time": 0.2, "seed": 4},
        {"grid": 8, "viscosity": 0.05, "time": 0.3, "seed": 2},
        {"grid": 7, "length": 3.0, "speed": 5.0, "courant": 1.0, "seed": 3},
        {"grid": 10, "viscosity": 1e-5, "speed": 0.01, "time": 20.0},
    ],
)
def test_every_component_is_the_complex_step_derivative_of_a_model_written_anew(options):
    model, base = reverse_all(Burgers(**options), steps_of(**options)), Burgers(**options)
    anew = partial(functional, base, options.get("time", 1.0))
    check_every_component(model, base.control, anew, u=2e-13, viscosity=1e-11)
    assert not model.gradient["u"][[0, -1]].any()


# --- the end


@pytest.mark.parametrize("options", [{}, {"grid": 50, "time": 0.7}, {"seed": 5, "length": 2.0}])
def test_it_ends_exactly_at_its_time_and_no_step_is_longer_than_is_stable(options):
    model, times = Burgers(**options), [0.0]
    model.on_step = lambda _: times.append(float(model._state["t"]))
    steps = model.advance(0, ENDLESS)
    assert len(times) == steps + 1
    assert times[-1] == options.get("time", 1.0)
    dt = np.diff(times)
    assert dt.min() > 0
    limit = model._courant / (2 * model.control["viscosity"] / model._spacing**2)
    assert dt.max() < limit
    assert dt[-2] > 1.1 * dt[0]  # the flow decays, and steps grow


def test_a_faster_flow_takes_more_steps_and_by_default_there_are_some_hundreds():
    counts = [steps_of(speed=speed) for speed in (0.25, 0.5, 1.0)]
    assert counts == sorted(set(counts))
    assert 500 < counts[1] < 1200


def test_steps_beyond_the_end_change_nothing():
    model, longer = Burgers(grid=30), Endless(grid=30)
    steps = model.record(0, 500)
    model.reverse(0, steps)
    longer.record(0, steps + 7)
    longer.reverse(0, steps + 7)
    assert digest(model) == digest(longer)
    assert save(model, Key(Kind.RESTART, 0)) == save(longer, Key(Kind.RESTART, 0))


@pytest.mark.parametrize("fast", [np.nan, np.inf, 1e200])
@pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")
def test_time_that_does_not_go_on_is_an_error_and_no_endless_run(fast):
    model = Burgers(grid=16)
    model.control["u"][5] = fast
    with pytest.raises(RunFailed, match=r"burgers: at step [01], t = .* the speed of the flow is"):
        model.advance(0, ENDLESS)


def test_it_can_be_measured_and_a_probe_that_meets_its_end_too():
    for time in (1.0, 0.05):
        chain = measure_model(lambda time=time: Burgers(grid=16, time=time), repeats=1)
        assert chain.steps is None
        assert chain.restart == 8 * (17 + 2)


# --- a flow


def exact(x: np.ndarray, t: float, *, viscosity: float) -> np.ndarray:
    """A flow of one front, by the transform of Cole and Hopf of a heat equation's first wave."""
    decayed = 0.95 * np.exp(-viscosity * np.pi**2 * t)
    return 2 * np.pi * viscosity * decayed * np.sin(np.pi * x) / (1 + decayed * np.cos(np.pi * x))


def test_it_converges_to_the_exact_solution_with_second_order():
    errors = []
    for grid in (32, 64, 128):
        model = Burgers(grid=grid, viscosity=0.05, time=0.5, courant=0.8)
        x = np.linspace(0, 1, grid + 1)
        model.control["u"][...] = exact(x, 0.0, viscosity=0.05)
        model.advance(0, ENDLESS)
        errors.append(np.abs(model._state["u"] - exact(x, 0.5, viscosity=0.05)).max())
    assert all(np.log2(coarse / fine) > 1.9 for coarse, fine in pairwise(errors))
    assert errors[-1] < 1e-3


@pytest.mark.parametrize("viscosity", [2e-3, 1e-5])
@pytest.mark.parametrize("courant", [0.5, 1.0])
def test_energy_is_lost_in_every_step_also_where_fronts_are_not_resolved(viscosity, courant):
    model, energies = Burgers(grid=100, viscosity=viscosity, courant=courant), []
    model.on_step = lambda _: energies.append(model._energy(model._state["u"]))
    model.advance(0, ENDLESS)
    assert all(after < before for before, after in pairwise(energies))
    assert not model._state["u"][[0, -1]].any()


def test_the_same_seed_is_the_same_flow_on_every_grid():
    coarse, fine = Burgers(grid=32, seed=5), Burgers(grid=64, seed=5)
    np.testing.assert_allclose(fine.control["u"][::2], coarse.control["u"], rtol=0, atol=1e-12)
    other = Burgers(grid=32, seed=6).control["u"]
    assert np.abs(other - coarse.control["u"]).max() > 0.1
    assert np.sqrt(np.mean(Burgers(speed=3.0).control["u"] ** 2)) == pytest.approx(3.0, rel=0.01)
