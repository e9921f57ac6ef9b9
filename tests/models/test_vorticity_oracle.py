"""The vorticity model against one written anew, and its gradient under schedules of every kind."""

from functools import partial

import numpy as np
import pytest
from models.complexstep import Controls, check_every_component
from small_models import reverse_all

from ckio.models.vorticity import INSIDE, Vorticity

# --- every component of the gradient


def functional(model: Vorticity, steps: int, control: Controls) -> complex:
    """J as the docstrings of the model define it, with dense matrices and none of its code."""
    cells, spacing = len(control["zeta"]) - 1, model._basin.spacing

    def shifted(f: np.ndarray, axis: int) -> np.ndarray:
        return (np.roll(f, -1, axis) - np.roll(f, 1, axis)) / (2 * spacing)

    def dx(f: np.ndarray) -> np.ndarray:
        return shifted(f, 1)

    def dy(f: np.ndarray) -> np.ndarray:
        return shifted(f, 0)

    def wide(f: np.ndarray) -> np.ndarray:
        """With the walls and one point beyond, where everything is 0."""
        return np.pad(f.reshape(cells - 1, cells - 1), 2)

    def within(f: np.ndarray) -> np.ndarray:
        return f[2:-2, 2:-2].ravel()

    def jacobian(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """The mean of its advective form and of its two flux forms."""
        advective = dx(a) * dy(b) - dy(a) * dx(b)
        of_a = dx(a * dy(b)) - dy(a * dx(b))
        of_b = dy(b * dx(a)) - dx(b * dy(a))
        return within(advective + of_a + of_b) / 3

    along = (np.eye(cells - 1, k=1) - 2 * np.eye(cells - 1) + np.eye(cells - 1, k=-1)) / spacing**2
    laplacian = np.kron(along, np.eye(cells - 1)) + np.kron(np.eye(cells - 1), along)
    solve = np.linalg.inv(laplacian)

    def energy(psi: np.ndarray, zeta: np.ndarray) -> complex:
        return -0.5 * np.sum(psi * zeta) / cells**2

    zeta, wind = (control[name][INSIDE].ravel() for name in ("zeta", "Q"))
    total, tendencies = 0.0, []
    for step in range(steps):
        psi = solve @ zeta
        total += energy(psi, zeta) / steps
        tendency = wind - jacobian(wide(psi), wide(zeta)) - model._beta * within(dx(wide(psi)))
        tendency += model._viscosity * (laplacian @ zeta) - model._drag * zeta
        tendencies = [tendency, *tendencies][:3]
        for weight, rate in zip(
            ([1.0], [1.5, -0.5], [23 / 12, -4 / 3, 5 / 12])[min(step, 2)], tendencies, strict=True
        ):
            zeta = zeta + model.dt * weight * rate
    away = zeta - model._target[INSIDE].ravel()
    return total + energy(solve @ away, away)


@pytest.mark.parametrize(
    ("grid", "steps", "options"),
    [
        (4, 1, {}),
        (4, 2, {"wind": 1.0}),
        (5, 9, {"wind": 2.0}),
        (5, 8, {"beta": 0.0, "drag": 0.0, "viscosity": 0.0}),
        (6, 7, {"viscosity": 2000.0, "drag": 1e-6, "speed": 1.0}),
    ],
)
def test_every_component_is_the_complex_step_derivative_of_a_model_written_anew(
    grid: int, steps: int, options: dict[str, float]
) -> None:
    model = reverse_all(Vorticity(grid=grid, **options), steps)
    base = Vorticity(grid=grid, **options)
    check_every_component(model, base.control, partial(functional, base, steps), within=1e-13)
