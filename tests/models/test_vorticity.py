"""The vorticity model: operators and their transposes, the gradient, and a flow that stays sane."""

import itertools

import numpy as np
import pytest

from ckio.actions import Key, Kind
from ckio.errors import RunFailed
from ckio.models.vorticity import ADAMS_BASHFORTH, INSIDE, Basin, Vorticity

SPACING = 0.3
SCALE = {"zeta": 1e-6, "psi": 1e4, "F_1": 1e-11, "F_2": 1e-11, "J": 1e-2, "Q": 1e-12}
"""How large the arrays are, about, so that what is summed below is of one magnitude."""


def fields(cells: int, count: int, *, seed: int = 0) -> list[np.ndarray]:
    """Random fields that vanish on the walls."""
    random = np.random.default_rng(seed)
    return [np.pad(random.standard_normal((cells - 1, cells - 1)), 1) for _ in range(count)]


def inner(a: np.ndarray, b: np.ndarray) -> float:
    """<a, b>, where b may be a field or its values inside."""
    return float(np.sum((a[INSIDE] if a.shape != b.shape else a) * b))


# --- operators


@pytest.fixture(params=[4, 5, 8, 13], ids=lambda cells: f"{cells} cells")
def cells(request):
    return request.param


@pytest.fixture
def basin(cells):
    return Basin(cells=cells, spacing=SPACING)


def test_the_jacobian_is_arakawas(basin, cells):
    """Against the mean of the three second-order forms of J, point by point."""
    a, b = fields(cells, 2)
    # A point beyond the walls is needed for differences of differences; everything is 0 there.
    wide_a, wide_b = np.pad(a, 1), np.pad(b, 1)

    def dx(f):
        return (np.roll(f, -1, 1) - np.roll(f, 1, 1)) / (2 * SPACING)

    def dy(f):
        return (np.roll(f, -1, 0) - np.roll(f, 1, 0)) / (2 * SPACING)

    advective = dx(wide_a) * dy(wide_b) - dy(wide_a) * dx(wide_b)
    flux_of_a = dx(wide_a * dy(wide_b)) - dy(wide_a * dx(wide_b))
    flux_of_b = dy(wide_b * dx(wide_a)) - dx(wide_b * dy(wide_a))
    expected = ((advective + flux_of_a + flux_of_b) / 3)[2:-2, 2:-2]
    np.testing.assert_allclose(basin.jacobian(a, b), expected, rtol=0, atol=1e-12)


def test_the_jacobian_conserves_energy_and_enstrophy(basin, cells):
    psi, zeta = fields(cells, 2)
    rate = basin.jacobian(psi, zeta).copy()
    size = np.abs(rate).sum()
    assert abs(rate.sum()) > 1e-3  # nothing but the walls' flux, and no accident
    assert abs(inner(psi, rate)) < 1e-13 * size
    assert abs(inner(zeta, rate)) < 1e-13 * size


def test_the_transposes_of_the_jacobian_are_jacobians(basin, cells):
    a, b, c = fields(cells, 3)
    value = inner(c, basin.jacobian(a, b))
    assert inner(a, basin.jacobian(b, c)) == pytest.approx(value, rel=1e-12)
    assert inner(b, basin.jacobian(c, a)) == pytest.approx(value, rel=1e-12)


def test_a_slope_is_minus_its_transpose(basin, cells):
    a, c = fields(cells, 2)
    value = inner(c, basin.slope(a, 1.7))
    assert inner(a, basin.slope(c, -1.7)) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("name", ["curvature", "scaled"])
def test_curvature_and_scaling_are_their_own_transposes(basin, cells, name):
    a, c = fields(cells, 2)
    operator = getattr(basin, name)
    value = inner(c, operator(a, 1.7))
    assert inner(a, operator(c, 1.7)) == pytest.approx(value, rel=1e-12)


def test_the_inverse_undoes_the_laplacian_and_is_its_own_transpose(basin, cells):
    a, c = fields(cells, 2)
    b = np.pad(basin.inverse(a), 1)
    np.testing.assert_allclose(basin.curvature(b, 1.0), a[INSIDE], rtol=0, atol=1e-12)
    assert inner(a, basin.inverse(c)) == pytest.approx(inner(c, b), rel=1e-12)


def test_energy_is_that_of_the_slopes_of_psi(basin, cells):
    (zeta,) = fields(cells, 1)
    psi = np.pad(basin.inverse(zeta), 1)
    speeds = np.sum(np.diff(psi, axis=0) ** 2) + np.sum(np.diff(psi, axis=1) ** 2)
    expected = speeds / SPACING**2 / 2 / cells**2
    assert basin.energy(psi, zeta) == pytest.approx(expected, rel=1e-12)


def test_differences_are_of_second_order():
    def errors(cells):
        basin = Basin(cells=cells, spacing=1 / cells)
        x = np.linspace(0, 1, cells + 1)
        wave = np.outer(np.sin(2 * np.pi * x), np.sin(np.pi * x))
        other = np.outer(np.sin(np.pi * x), np.sin(3 * np.pi * x))
        wave_x = np.pi * np.outer(np.sin(2 * np.pi * x), np.cos(np.pi * x))
        wave_y = 2 * np.pi * np.outer(np.cos(2 * np.pi * x), np.sin(np.pi * x))
        other_x = 3 * np.pi * np.outer(np.sin(np.pi * x), np.cos(3 * np.pi * x))
        other_y = np.pi * np.outer(np.cos(np.pi * x), np.sin(3 * np.pi * x))
        jacobian = wave_x * other_y - wave_y * other_x
        return np.array(
            [
                np.abs(basin.jacobian(wave, other) - jacobian[INSIDE]).max(),
                np.abs(basin.slope(wave, 1.0) - wave_x[INSIDE]).max(),
                np.abs(basin.curvature(wave, 1.0) + 5 * np.pi**2 * wave[INSIDE]).max(),
                np.abs(basin.inverse(wave) + wave[INSIDE] / (5 * np.pi**2)).max(),
            ]
        )

    order = np.log2(errors(16) / errors(32))
    assert (order > 1.85).all()


# --- one step, many steps


def tangent_step(model: Vorticity, state, tangent, control_tangent, i: int) -> None:
    """The derivative of `step` along `tangent`, written apart from its adjoint; then the step."""
    basin, psi, zeta = model._basin, state["psi"], state["zeta"]
    of_psi, of_zeta = tangent["psi"], tangent["zeta"]
    tangent["J"] += basin.energy(of_psi, zeta) + basin.energy(psi, of_zeta)
    change = np.zeros_like(zeta)
    change[INSIDE] = control_tangent["Q"][INSIDE]
    change[INSIDE] -= basin.jacobian(of_psi, zeta)
    change[INSIDE] -= basin.jacobian(psi, of_zeta)
    change[INSIDE] -= basin.slope(of_psi, model._beta)
    change[INSIDE] -= model._drag * of_zeta[INSIDE]
    change[INSIDE] += basin.curvature(of_zeta, model._viscosity)
    now, one_ago, two_ago = ADAMS_BASHFORTH[min(i, 2)]
    of_zeta += model.dt * (now * change + one_ago * tangent["F_1"] + two_ago * tangent["F_2"])
    tangent["F_1"], tangent["F_2"] = change, tangent["F_1"]
    of_psi[INSIDE] = basin.inverse(of_zeta)
    model.step(state, i)


def model_at(step: int, **options) -> Vorticity:
    model = Vorticity(**({"grid": 24} | options))
    if step:
        model.advance(0, step)
    return model


@pytest.mark.parametrize("step", [0, 1, 2, 17])
@pytest.mark.parametrize("grid", [6, 9, 24])
def test_one_step_and_its_adjoint_are_transposes(grid, step):
    model = model_at(step, grid=grid)
    random = np.random.default_rng(step)

    def like(name, size):
        if name == "J":
            return np.array(size * random.standard_normal())
        return size * np.pad(random.standard_normal((grid - 1, grid - 1)), 1)

    tape = {name: model._state[name].copy() for name in ("zeta", "psi")}
    tangent = {name: like(name, SCALE[name]) for name in model._state}
    before = {name: array.copy() for name, array in tangent.items()}
    of_wind = {"Q": like("Q", SCALE["Q"])}
    cotangent = {name: like(name, 1 / SCALE[name]) for name in model._state}
    after = {name: array.copy() for name, array in cotangent.items()}

    tangent_step(model, model._state, tangent, of_wind, step)
    model.adjoint_step(cotangent, tape, step)

    forward = [inner(after[name], tangent[name]) for name in after]
    back = [inner(cotangent[name], before[name]) for name in before]
    back.append(inner(model.gradient["Q"], of_wind["Q"]))
    scale = sum(map(abs, forward))
    assert abs(sum(forward) - sum(back)) < 1e-13 * scale
    assert sum(forward) == pytest.approx(sum(back), rel=1e-12)


@pytest.mark.parametrize("grid", [24, 31])
def test_fifty_steps_and_their_adjoint_are_transposes(grid):
    steps = 50
    model = Vorticity(grid=grid)
    model.record(0, steps)
    model.reverse(0, steps)

    twin = Vorticity(grid=grid)
    dzeta, dwind = (SCALE[name] * f for name, f in zip(("zeta", "Q"), fields(grid, 2), strict=True))
    twin.dump(Key(Kind.RESTART, 0))  # makes x_0
    zero = np.zeros_like(dzeta)
    tangent = {"zeta": dzeta.copy(), "psi": zero.copy(), "F_1": zero, "F_2": zero, "J": 0.0}
    tangent["psi"][INSIDE] = twin._basin.inverse(dzeta)
    for step in range(steps):
        tangent_step(twin, twin._state, tangent, {"Q": dwind}, step)
    psi = twin._state["psi"] - twin._target_psi
    zeta = twin._state["zeta"] - twin._target
    forward = (
        tangent["J"] / steps
        + twin._basin.energy(tangent["psi"], zeta)
        + twin._basin.energy(psi, tangent["zeta"])
    )
    back = inner(model.gradient["zeta"], dzeta) + inner(model.gradient["Q"], dwind)
    assert forward == pytest.approx(back, rel=1e-12)


def test_both_controls_matter_and_the_last_steps_too():
    model = Vorticity(grid=32)
    model.record(0, 60)
    seen = []
    for end in range(60, 0, -1):
        model.reverse(end - 1, end)
        seen.append(model.gradient["Q"].copy())
    changes = [np.abs(b - a).max() for a, b in itertools.pairwise(seen)]
    assert min(changes) > 1e-3 * max(changes) > 0
    for name, gradient in model.gradient.items():
        effect = np.abs(gradient * model.control[name]).max()
        assert effect > 1e-6 * model.functional


# --- a flow


@pytest.mark.slow
@pytest.mark.parametrize(("grid", "steps"), [(128, 2000), (32, 4000), (7, 4000)])
def test_the_flow_stays_bounded(grid, steps):
    model = Vorticity(grid=grid)
    model.advance(0, steps)
    psi, zeta = model._state["psi"], model._state["zeta"]
    speed = np.sqrt(2 * model._basin.energy(psi, zeta))
    assert 0.05 < speed < 0.5
    assert max(np.abs(np.diff(psi, axis=k)).max() for k in (0, 1)) < 3e6 / grid  # 3 m/s
    assert all(not f[wall].any() for f in (psi, zeta) for wall in (0, -1))


def test_the_step_chosen_by_default_is_stable_also_where_friction_is_strong():
    model = Vorticity(grid=32, viscosity=5e4)
    assert model.dt < 0.5 * Vorticity(grid=32).dt
    model.advance(0, 300)
    psi, zeta = model._state["psi"], model._state["zeta"]
    assert model._basin.energy(psi, zeta) < 0.5 * 0.3**2


def test_without_forcing_and_friction_a_flow_keeps_its_energy_and_enstrophy():
    model = Vorticity(grid=48, wind=0.0, drag=0.0, viscosity=0.0, beta=0.0)

    def invariants():
        psi, zeta = model._state["psi"], model._state["zeta"]
        return np.array([model._basin.energy(psi, zeta), np.sum(zeta**2)])

    model.advance(0, 1)
    before = invariants()
    model.advance(1, 300)
    np.testing.assert_allclose(invariants(), before, rtol=2e-3)


def test_a_rossby_wave_travels_west_as_theory_says():
    """ψ = cos(β x / 2ω + ω t) sin(π x / L) sin(π y / L) with ω = β L / √8 π, if it is weak."""
    beta, length, grid = 2e-11, 1e6, 64
    model = Vorticity(
        grid=grid, length=length, beta=beta, wind=0.0, drag=0.0, viscosity=0.0, dt=5000.0
    )
    frequency = beta * length / (np.sqrt(8) * np.pi)
    x = np.linspace(0, length, grid + 1)
    walls = np.outer(np.sin(np.pi * x / length), np.sin(np.pi * x / length))

    def psi(time):
        return walls * np.cos(beta * x / (2 * frequency) + frequency * time)

    model.control["zeta"][INSIDE] = model._basin.curvature(psi(0.0), 1.0)
    model.advance(0, 200)
    assert frequency * 200 * model.dt > 2.0  # radians
    np.testing.assert_allclose(model._state["psi"], psi(200 * model.dt), rtol=0, atol=0.02)


def test_the_wind_blows_west_at_the_walls_and_east_between_them():
    """τ = -wind cos(2π y / L), so that Q = -∂τ/∂y / ρ H: clockwise in the south half."""
    wind, density, depth, length, grid = 0.1, 1000.0, 500.0, 2e6, 16
    curl = Vorticity(grid=grid, wind=wind, depth=depth, length=length).control["Q"]
    y = np.linspace(0, 1, grid + 1)[:, None]
    expected = -2 * np.pi * wind / (density * depth * length) * np.sin(2 * np.pi * y)
    np.testing.assert_allclose(curl, np.broadcast_to(expected, curl.shape), rtol=1e-12, atol=1e-25)


def test_the_same_seed_is_the_same_flow_on_every_grid():
    coarse, fine = Vorticity(grid=32, seed=5), Vorticity(grid=64, seed=5)
    zeta = coarse.control["zeta"]
    assert np.abs(fine.control["zeta"][::2, ::2] - zeta).max() < 0.03 * np.abs(zeta).max()
    assert np.abs(Vorticity(grid=32, seed=6).control["zeta"] - zeta).max() > np.abs(zeta).max()


def test_a_flow_that_is_too_fast_for_its_step_stops_with_advice():
    model = Vorticity(grid=64, speed=4.0, dt=20_000.0)
    with pytest.raises(
        RunFailed, match=r"crosses a cell in one step of 20000 s; give a smaller dt"
    ):
        model.advance(0, 500)
