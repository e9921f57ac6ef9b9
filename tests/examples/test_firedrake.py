"""Programs of Firedrake: gradients with ckio are those of a tape that stores everything."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from example_models import EXAMPLES

fd = pytest.importorskip("firedrake", reason="Firedrake is not installed")
import firedrake.adjoint as fda  # noqa: E402

from ckio import Level, Platform  # noqa: E402
from ckio.adapters.pyadjoint import enable  # noqa: E402

pytestmark = pytest.mark.slow

AT = EXAMPLES / "firedrake"
PAGE = (AT / "README.md").read_text(encoding="utf-8").replace("\n", " ")


def run(program: str, *words: object, at: Path) -> str:
    line = [sys.executable, str(AT / program), *map(str, words)]
    done = subprocess.run(line, cwd=at, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return next(line for line in done.stdout.splitlines() if line.startswith(("{", "written")))


def result(
    program: str, checkpoints: str, at: Path, *more: object
) -> tuple[dict[str, float], np.ndarray]:
    """What a program prints, and its gradient."""
    name = f"{Path(program).stem}-{checkpoints}.npz"
    words = "--checkpoints", checkpoints, "--into", name, *more
    return json.loads(run(program, *words, at=at)), np.load(at / name)["derivative"]


def error(gradient: np.ndarray, right: np.ndarray) -> float:
    return float(np.linalg.norm(gradient - right) / np.linalg.norm(right))


def test_a_gradient_through_semi_implicit_steps_is_right_and_that_of_revolve_is_not(
    tmp_path: Path,
) -> None:
    stored, right = result("burgers.py", "none", tmp_path)
    ours, gradient = result("burgers.py", "ckio", tmp_path, "--taylor")
    assert ours["J"] == stored["J"]
    assert np.array_equal(gradient, right)
    assert ours["rate"] > 1.95
    theirs, wrong = result("burgers.py", "revolve", tmp_path, "--taylor")
    assert f"relative error of {error(wrong, right):.2f}" in PAGE
    assert f"order {theirs['rate']:.2f} instead of 2" in PAGE
    assert f"the order is {ours['rate']:.2f}" in PAGE


def test_fully_implicit_steps_are_right_with_all_managers(tmp_path: Path) -> None:
    few = "--steps", 12, "--cells", 12, "--slots", 3, "--implicit"
    right, *others = (
        result("burgers.py", how, tmp_path, *few)[1] for how in ("none", "ckio", "revolve")
    )
    for gradient in others:
        assert np.array_equal(gradient, right)


def test_the_depth_of_a_basin_and_the_picture(tmp_path: Path) -> None:
    stored, right = result("basin.py", "none", tmp_path)
    ours, gradient = result("basin.py", "ckio", tmp_path, "--taylor")
    assert ours["J"] == stored["J"]
    assert np.array_equal(gradient, right)
    assert ours["rate"] > 1.95
    _, wrong = result("basin.py", "revolve", tmp_path)
    assert f"the relative error is {error(wrong, right):.2f}" in PAGE
    pytest.importorskip("matplotlib")
    run("burgers.py", "--into", "burgers.npz", at=tmp_path)
    run("picture.py", "burgers.npz", "basin-ckio.npz", "firedrake.png", at=tmp_path)
    assert (tmp_path / "firedrake.png").read_bytes()[:4] == b"\x89PNG"


STEPS = 14


def heated(use: Callable[[Any], Any]) -> Any:
    """Heat with what programs have: a wall and a source that change, a sum over time, `solve`."""
    tape = fda.Tape()
    fda.set_working_tape(tape)
    fda.continue_annotation()
    use(tape)
    line = fd.UnitIntervalMesh(20)
    space, numbers = fd.FunctionSpace(line, "CG", 2), fd.FunctionSpace(line, "R", 0)
    (x,) = fd.SpatialCoordinate(line)
    start = fd.Function(space).interpolate(fd.sin(3 * x))
    source = fd.Function(space).interpolate(x)
    u, before, wall = (fd.Function(space) for _ in range(3))
    factor = fd.Function(numbers)
    before.assign(start)
    trial, test = fd.TrialFunction(space), fd.TestFunction(space)
    left = (trial * test / 0.01 + (1 + before**2) * trial.dx(0) * test.dx(0)) * fd.dx
    right = (before / 0.01 + factor * source) * test * fd.dx
    total = 0.0
    for step in tape.timestepper(iter(range(STEPS))):
        factor.assign(0.1 * step)
        wall.assign(0.5 * before)
        fd.solve(left == right, u, fd.DirichletBC(space, wall, 1))
        before.assign(u)
        total += fd.assemble(before**2 * fd.dx)
    fda.pause_annotation()
    return fda.ReducedFunctional(total, [fda.Control(start), fda.Control(source)])


def test_walls_changing_numbers_sums_and_several_controls(tmp_path: Path) -> None:
    """`solve` starts from zero when a step is computed again, so the first bits may differ."""
    files = Level(
        name="files", capacity=6 * 8 * 41, backend="directory", options={"path": str(tmp_path)}
    )
    stored = heated(lambda _: None)
    ours = heated(
        lambda tape: enable(tape, Platform((files,), working_memory=1 << 16), steps=STEPS)
    )
    for mine, right in zip(ours.derivative(), stored.derivative(), strict=True):
        assert np.allclose(mine.dat.data_ro, right.dat.data_ro, rtol=1e-12, atol=1e-14)
    values = {}
    for functional in ours, stored:
        others = [it.control.copy(deepcopy=True) for it in functional.controls]
        others[0].dat.data[:] *= 0.7
        values[functional] = functional(others)
    assert values[ours] == values[stored]
    for mine, right in zip(ours.derivative(), stored.derivative(), strict=True):
        assert np.array_equal(mine.dat.data_ro, right.dat.data_ro)
    controls = [it.control for it in ours.controls]
    assert fda.taylor_test(ours, controls, controls) > 1.9
