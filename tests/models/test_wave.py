"""Waves: operators, every component of the gradient, known solutions, and a border that takes."""

from functools import partial

import numpy as np
import pytest
from models.complexstep import Controls, check_every_component
from scipy.integrate import quad
from small_models import reverse_all

from ckio.actions import Key, Kind
from ckio.errors import RunFailed
from ckio.model.comm import SOLO
from ckio.models.wave import (
    HALO,
    INSIDE,
    LONGEST,
    SOURCE_BELOW,
    STIFFEST,
    Strip,
    Wave,
    Wavelet,
)

SMALL = {"grid": 16, "frequency": 25.0}
"""A small earth, over which a wave comes to the receivers within 30 steps."""

EVEN = {"layers": 1, "anomaly": 0.0}
"""An earth of one speed."""


def silent(**options: object) -> Wave:
    """A model at x_0 without a source, in a box that damps nothing."""
    model = Wave(**{"border": 0} | EVEN | options)
    model._source = model._receivers = None
    model.dump(Key(Kind.RESTART, 0))  # makes x_0
    return model


def push_of(model: Wave, u: np.ndarray) -> np.ndarray:
    """L u, all of it."""
    out, strip = np.zeros_like(u), model._strip
    for block in strip.blocks():
        out.reshape(-1)[block] = strip.laplacian(u.reshape(-1), block)
    return out


# --- the Laplacian


@pytest.mark.parametrize("grid", [2, 3, 8, 400])
def test_sines_between_the_walls_are_its_eigenvectors(grid):
    """12 h² ∇² of sin k x is -64 sin² (k h / 2) (1 + sin² (k h / 2) / 3) of it, 3/4 of that up."""
    strip = Strip(grid, SOLO)
    for waves in {1, 2, grid}:
        angle = waves * np.pi / (grid + 1)
        sine = np.sin(angle * np.arange(1, grid + 1))
        field = strip.field(np.outer(sine, sine))
        strip.fill_halo(field)
        half = np.sin(angle / 2) ** 2
        eigenvalue = -2 * 48 * (half + half**2 / 3)
        assert -STIFFEST < eigenvalue < 0
        for block in strip.blocks():
            found = strip.laplacian(field.reshape(-1), block)
            expected = eigenvalue * field.reshape(-1)[block].reshape(-1, grid + 2 * HALO)
            expected[:, :HALO] = expected[:, -HALO:] = 0
            np.testing.assert_allclose(found, expected.ravel(), rtol=0, atol=1e-11)


# --- every component of the gradient


def second_difference(points: int) -> np.ndarray:
    """h² ∂²/∂x² as a matrix, point by point: beyond a wall is the negative of the mirror image."""
    matrix = np.zeros((points, points))
    for j in range(points):
        for away, weight in {-2: -1 / 12, -1: 4 / 3, 0: -5 / 2, 1: 4 / 3, 2: -1 / 12}.items():
            k = j + away
            if 0 <= k < points:
                matrix[j, k] += weight
            elif k == -2:
                matrix[j, 0] -= weight
            elif k == points + 1:
                matrix[j, -1] -= weight
    return matrix


def functional(base: "Known", steps: int, control: Controls) -> complex:
    """J as the equation and its leapfrog say, with none of the model's code but for the data."""
    m, dt, brake = control["m"], base.dt, base.sigma * base.dt / 2
    spacing, along = dt / base._per_spacing, second_difference(len(m))
    source = base._source[0] - HALO, base._source[1] - HALO
    receivers = base._receivers[0] - HALO, base._receivers[1] - HALO
    (old, now), total = np.zeros((2, *m.shape), complex), 0.0
    for step in range(steps):
        residual = now[receivers] - base._wavelet.traces(step * dt, base._travel)
        total += dt * np.sum(residual**2) / 2
        force = along @ now + now @ along.T
        force[source] += base._wavelet.at(np.array(step * dt))
        new = 2 * now - (1 - brake) * old + dt**2 / (m * spacing**2) * force
        old, now = now, new / (1 + brake)
    return total


class Known(Wave):
    """With what its border is made of."""

    @property
    def sigma(self) -> np.ndarray:
        keep = self._keep.reshape(self._pull.shape)[INSIDE]
        return 2 / self.dt * (1 - keep) / (1 + keep)


@pytest.mark.parametrize(
    ("grid", "steps", "options"),
    [
        (8, 1, {}),
        (8, 60, {"border": 1}),
        (9, 40, {"border": 2, "anomaly": 0.3}),
        (12, 30, {"border": 0, "layers": 2}),
    ],
)
def test_every_component_is_the_complex_step_derivative_of_a_model_written_anew(
    grid, steps, options
):
    options = {"grid": grid, "frequency": 33.0} | options
    model, base = reverse_all(Wave(**options), steps), Known(**options)
    anew = partial(functional, base, steps)
    scales = check_every_component(model, base.control, anew, rel=1e-12)
    assert (scales["m"] > 0) == (steps > 1)


# --- waves


def test_a_standing_wave_swings_as_theory_says_to_fourth_order():
    """u = sin(k x) sin(l z) cos(ω t) with ω² = c² (k² + l²); dt is like h², so h⁴ is all."""
    width, speed, time = 1000.0, 2000.0, 0.75

    def error(points: int) -> float:
        spacing = width / points
        steps = 40 * (points // 12) ** 2
        model = silent(
            grid=points - 1, spacing=spacing, speed=speed, frequency=1.0, dt=time / steps
        )
        x = np.arange(1, points) / points
        shape = np.outer(np.sin(2 * np.pi * x), np.sin(3 * np.pi * x))
        frequency = speed * np.pi / width * np.hypot(2, 3)
        state, dt = model._state, model.dt
        state["u"][INSIDE] = shape
        state["du"][INSIDE] = shape * (1 - np.cos(frequency * dt))
        model._strip.fill_halo(state["u"])
        model.advance(0, steps)
        return np.abs(state["u"][INSIDE] - shape * np.cos(frequency * time)).max()

    errors = [error(points) for points in (12, 24, 48)]
    assert np.log2(errors[0] / errors[1]) > 3.7
    assert np.log2(errors[1] / errors[2]) > 3.9
    assert errors[2] < 1e-3


def test_in_a_box_that_damps_nothing_energy_stays():
    """|du|² / response - <u, L (u - du)> is what a leapfrog keeps."""
    model = silent(grid=40, layers=3, anomaly=-0.2)
    state = model._state
    state["u"][INSIDE] = np.random.default_rng(5).standard_normal((40, 40))
    model._strip.fill_halo(state["u"])

    def energy() -> float:
        before = state["u"] - state["du"]
        model._strip.fill_halo(before)
        moved = np.sum(np.square(state["du"][INSIDE]) / state["response"][INSIDE])
        return moved - np.sum(state["u"] * push_of(model, before))

    start = energy()
    assert start > 0
    model.advance(0, 500)
    assert energy() == pytest.approx(start, rel=1e-11)


def test_little_comes_back_from_the_border():
    """Beside a plane so wide that nothing comes back: 6% of what passed a point, head on."""
    steps, inside = 336, 88
    passed, came_back = np.zeros((2, inside, inside))
    wide, bordered = (
        Wave(grid=grid, border=border, **EVEN) for grid, border in ((210, 0), (128, 20))
    )
    for model in (wide, bordered):
        middle = HALO + model._strip.grid // 2
        model._source = middle, middle
    for step in range(steps):
        seen = []
        for model in (wide, bordered):
            model.advance(step, step + 1)
            begin = HALO + (model._strip.grid - inside) // 2
            part = slice(begin, begin + inside)
            seen.append(model._state["u"][part, part])
        np.maximum(passed, np.abs(seen[0]), out=passed)
        np.maximum(came_back, np.abs(seen[1] - seen[0]), out=came_back)
    part = came_back / passed
    assert 0.01 < part[inside // 2, 5] < 0.06
    assert part.max() < 0.10


@pytest.mark.parametrize("travel", [0.027, 0.1, 0.8])
def test_a_trace_is_the_integral_that_it_is_said_to_be(travel):
    """Over the past, with 1 / 2π √(t² - travel²) for each time that has gone by."""
    wavelet = Wavelet(10.0)
    for time in (0.02, 0.9 * travel, 0.16, 0.35, 1.0, 3.0):
        first = np.sqrt(max(time - wavelet.end - travel, 0))
        last = np.sqrt(max(time - travel, 0))

        def past(root, time=time):  # root² is the time since the front has passed, t - travel
            gone = travel + root**2
            return 2 * wavelet.at(np.array(time - gone)) / np.sqrt(gone + travel)

        expected, _ = quad(past, first, last, epsabs=1e-12, epsrel=1e-12, limit=200)
        found = wavelet.traces(time, np.array([travel]))[0]
        assert found == pytest.approx(expected / (2 * np.pi), abs=1e-8)


def test_traces_of_an_even_earth_are_those_observed():
    """By a theory that knows no grid: so source, receivers and border are what they should be."""
    options = {"grid": 128, "border": 40}
    model = Wave(**options, **EVEN)
    travel, wavelet, steps = model._travel, model._wavelet, 270
    observed = [wavelet.traces(i * model.dt, travel) for i in range(steps)]
    size = 0.5 * model.dt * np.sum(np.square(observed))
    model.advance(0, steps)
    assert model.functional < 2e-3 * size
    other = Wave(**options, anomaly=-0.3)
    other.advance(0, steps)
    assert other.functional > 10 * model.functional


def test_a_step_along_the_gradient_brings_traces_closer():
    steps = 400
    model = reverse_all(Wave(grid=64), steps)
    change = 1e-3 * model.functional / np.sum(np.square(model.gradient["m"]))
    closer = Wave(grid=64)
    closer.control["m"][...] -= change * model.gradient["m"]
    closer.advance(0, steps)
    assert closer.functional == pytest.approx(model.functional * (1 - 1e-3), rel=1e-4)


def test_layers_get_faster_and_the_anomaly_is_in_their_middle():
    speeds = Wave(grid=96, border=18).control["m"] ** -0.5
    np.testing.assert_allclose(
        speeds[[18, 37, 38, 57, 58, 95], 0], [1500] * 2 + [2000] * 2 + [2500] * 2
    )
    slower = speeds / speeds[:, :1]
    assert slower[48, 48] == pytest.approx(0.9, abs=1e-3) == slower.min()
    assert slower[20, 48] > 0.999


@pytest.mark.parametrize(
    ("options", "longer"), [({"border": 0}, 1.03), ({"anomaly": 0.3}, 1.3), ({"border": 2}, 1.05)]
)
def test_the_longest_step_that_is_taken_is_stable_and_a_longer_one_is_not(options, longer):
    def largest(dt: float, stretch: float = 1.0) -> float:
        model = Wave(grid=12, **EVEN | options, dt=dt)
        model._ready *= stretch**2
        model.dump(Key(Kind.RESTART, 0))
        model._state["du"][INSIDE] = np.random.default_rng(1).standard_normal((12, 12))
        with np.errstate(all="ignore"):
            model.advance(0, 1000)
        return np.abs(model._state["u"]).max()

    limit = Wave(grid=12, **EVEN | options).dt / 0.8
    assert largest(0.999 * limit) < 1e3
    assert not largest(0.999 * limit, longer) < 1e12


@pytest.mark.parametrize("value", [0.0, -1e-7, np.nan, 1e-8])
def test_a_control_that_is_not_stable_is_refused_before_the_first_step(value):
    model = Wave(**SMALL)
    model.control["m"][2, 3] = value
    with pytest.raises(RunFailed, match=r"steps of .* s need m >= .* s2 m-2, and the control"):
        model.advance(0, 5)


def test_the_largest_border_and_none_are_taken():
    for grid in (8, 9, 128):
        Wave(grid=grid, border=(grid - SOURCE_BELOW - 1) // 2).advance(0, 2)
        Wave(grid=grid, border=0).advance(0, 2)
    assert Wave(grid=8).dt == pytest.approx(0.8 * LONGEST * 10.0 / 2500.0)
