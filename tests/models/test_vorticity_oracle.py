"""The vorticity model against one written anew, and its gradient under schedules of every kind."""

from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from ckio.actions import Kind, Write
from ckio.backends.base import Backend
from ckio.backends.compressed import Compressed
from ckio.backends.directory import Directory
from ckio.backends.hdf5 import Hdf5
from ckio.backends.ram import Ram
from ckio.compression import Zstd
from ckio.model import sizes_of
from ckio.models.vorticity import INSIDE, Vorticity
from ckio.planners.binomial import revolve
from ckio.planners.dp import hrevolve, hrevolve_2020
from ckio.planners.trivial import periodic, recompute_all, store_all
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.runner import run
from ckio.schedule import Schedule
from ckio.schedule.machine import Machine
from ckio.testing.strategies import random_complete

# --- every component of the gradient


def functional(model: Vorticity, control: dict[str, np.ndarray], steps: int) -> complex:
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
    model = store_all_of(Vorticity(grid=grid, **options), steps)
    base = Vorticity(grid=grid, **options)
    control = {name: array.astype(complex) for name, array in base.control.items()}
    assert functional(base, control, steps) == pytest.approx(model.functional, rel=1e-13)
    for name, gradient in model.gradient.items():
        tiny = 1e-30 * np.abs(control[name]).max()
        expected = np.zeros_like(gradient)
        for place in np.ndindex(expected.shape):
            control[name][place] += 1j * tiny
            expected[place] = functional(base, control, steps).imag / tiny
            control[name][place] -= 1j * tiny
        np.testing.assert_allclose(gradient, expected, rtol=0, atol=1e-13 * np.abs(expected).max())


def store_all_of(model: Vorticity, steps: int) -> Vorticity:
    model.record(0, steps)
    model.reverse(0, steps)
    return model


# --- the same bytes under every planner, on every mix of levels, and by any legal way

GRID = 6
SIZES = sizes_of(Vorticity(grid=GRID))


def digest(model: Vorticity) -> tuple[float, bytes, bytes]:
    return model.functional, model.gradient["zeta"].tobytes(), model.gradient["Q"].tobytes()


def opened(kind: str, path: Path) -> Backend:
    match kind.split():
        case ["compressed", other]:
            return Compressed(opened(other, path), Zstd())
        case ["directory"]:
            return Directory(path)
        case ["archive"]:
            return Hdf5(path.with_suffix(".h5"))
        case _:
            return Ram()


def gradient_by(schedule: Schedule, platform: Platform, kinds: list[str], path: Path) -> object:
    model = Vorticity(grid=GRID)
    backends = [opened(kind, path / f"{number}") for number, kind in enumerate(kinds)]
    run(schedule, platform, model, backends)
    for backend in backends:
        backend.close()
    return digest(model)


PLANS = {
    "store-all": store_all,
    "recompute-all": recompute_all,
    "periodic": periodic,
    "periodic by 1": lambda *a: periodic(*a, period=1),
    "periodic by 4": lambda *a: periodic(*a, period=4),
    "revolve": revolve,
    "hrevolve": hrevolve,
    "hrevolve-2020": hrevolve_2020,
}


@pytest.mark.campaign
@pytest.mark.parametrize("working", [1, 3])
@pytest.mark.parametrize("kinds", ["ram", "directory, compressed ram", "ram, archive", "archive"])
@pytest.mark.parametrize("plan", PLANS)
def test_every_planner_gives_the_gradient_of_store_all_to_the_last_bit(
    plan: str, kinds: str, working: int, tmp_path: Path
) -> None:
    chain = Chain(steps=13, advance=1.0, record=1.3, reverse=2.0, **SIZES)
    names = kinds.split(", ")
    levels = tuple(
        Level(
            name=f"level{number}",
            capacity=13 * chain.restart if number == len(names) - 1 else 2 * chain.restart,
            write=Affine(0.1 + number),
            read=Affine(0.2 + number),
        )
        for number in range(len(names))
    )
    platform = Platform(levels, working_memory=working * chain.tape)
    found = gradient_by(PLANS[plan](chain, platform), platform, names, tmp_path)
    assert found == digest(store_all_of(Vorticity(grid=GRID), 13))


KINDS = ("ram", "compressed ram", "directory", "compressed directory", "archive")


def check_random_schedules(random: Random, count: int, path: Path) -> None:
    """Tapes, adjoints, moves between levels and detours, as the Machine allows them."""
    done = 0
    while done < count:
        drawn, platform = random_complete(random, most_steps=9)
        if not has_seed(drawn, platform):
            continue
        done += 1
        schedule = Schedule(replace(drawn.chain, **SIZES), drawn.actions)
        kinds = [random.choice(KINDS) for _ in platform.levels]
        roomy = Platform(tuple(Level(name=level.name) for level in platform.levels))
        found = gradient_by(schedule, roomy, kinds, path / str(done))
        assert found == digest(store_all_of(Vorticity(grid=GRID), drawn.chain.length))


def has_seed(schedule: Schedule, platform: Platform) -> bool:
    """Whether the adjoint at n is written only once the forward has been there: there J is known.

    The Machine does not ask for it, since it knows nothing of what an adjoint is made of.
    """
    machine = Machine(schedule.chain, platform)
    for action in schedule.actions:
        match action:
            case Write(key, _) if key.kind is Kind.ADJOINT and key.step == schedule.chain.length:
                if not machine.turned:
                    return False
        machine.apply(action)
    return True


@pytest.mark.slow
def test_any_legal_schedule_gives_the_gradient_of_store_all(tmp_path: Path) -> None:
    check_random_schedules(Random(8), 60, tmp_path)


@pytest.mark.slow
def test_very_many_legal_schedules_give_the_gradient_of_store_all(tmp_path: Path) -> None:
    check_random_schedules(Random(9), 3000, tmp_path)
