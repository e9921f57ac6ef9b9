"""The vorticity model: what its operators keep, and a flow that stays sane."""

import numpy as np
import pytest

from ckio.errors import RunFailed
from ckio.models.vorticity import INSIDE, Basin, Vorticity

SPACING = 0.3


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


def test_the_jacobian_conserves_energy_and_enstrophy(basin, cells):
    psi, zeta = fields(cells, 2)
    rate = basin.jacobian(psi, zeta).copy()
    size = np.abs(rate).sum()
    assert abs(rate.sum()) > 1e-3  # nothing but the walls' flux, and no accident
    assert abs(inner(psi, rate)) < 1e-13 * size
    assert abs(inner(zeta, rate)) < 1e-13 * size


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


# --- a flow


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
