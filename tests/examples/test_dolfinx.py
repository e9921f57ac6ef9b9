"""Programs of dolfinx-adjoint: gradients with ckio are those of a tape that stores everything."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli.jobs import MPIEXEC, needs_mpi
from example_models import EXAMPLES

pytest.importorskip("dolfinx_adjoint", reason="dolfinx and dolfinx-adjoint are not installed")
pytestmark = pytest.mark.slow

AT = EXAMPLES / "dolfinx"


def run(program: str, *words: object, at: Path) -> str:
    line = [sys.executable, str(AT / program), *map(str, words)]
    done = subprocess.run(line, cwd=at, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def burgers(checkpoints: str, at: Path, *more: object) -> tuple[dict[str, float], np.ndarray]:
    """What the program prints, and its gradient."""
    words = "--checkpoints", checkpoints, "--save", f"{checkpoints}.npy", *more
    return json.loads(run("burgers.py", *words, at=at)), np.load(at / f"{checkpoints}.npy")


def test_a_gradient_through_picard_iterations_is_right_and_that_of_revolve_is_not(
    tmp_path: Path,
) -> None:
    stored, right = burgers("none", tmp_path)
    ours, gradient = burgers("ckio", tmp_path, "--taylor")
    assert ours["J"] == stored["J"]
    assert np.array_equal(gradient, right)
    assert ours["rate"] > 1.95
    theirs, wrong = burgers("revolve", tmp_path, "--taylor")
    error = np.linalg.norm(wrong - right) / np.linalg.norm(right)
    page = (AT / "README.md").read_text(encoding="utf-8")
    assert f"relative error of {error:.1e}".replace("e-0", "e-") in page.replace("\n", " ")
    assert f"order {theirs['rate']:.2f} instead of 2" in page.replace("\n", " ")
    assert f"the order is {ours['rate']:.2f}" in page


def test_the_start_of_the_plate_is_found(tmp_path: Path) -> None:
    printed = {
        name: run("heat.py", "--checkpoints", name, "--into", f"{name}.npz", at=tmp_path)
        for name in ("ckio", "none")
    }
    first, last = map(float, re.findall(r"\d\.\d+e-\d+", printed["ckio"]))
    assert last < first / 1000
    ours, stored = (np.load(tmp_path / f"{name}.npz") for name in printed)
    assert np.allclose(ours["gradient"], stored["gradient"], rtol=1e-10, atol=1e-16)
    away = np.linalg.norm(ours["found"] - ours["true"]) / np.linalg.norm(ours["true"])
    assert away < 0.3
    pytest.importorskip("matplotlib")
    run("picture.py", "ckio.npz", "heat.png", at=tmp_path)
    assert (tmp_path / "heat.png").read_bytes()[:4] == b"\x89PNG"


@needs_mpi
def test_the_ranks_of_a_plate_find_one_gradient(tmp_path: Path) -> None:
    """To rounding, with states in memory and in files, with overlap and without."""
    found = []
    ways = {
        "none": [],
        "memory": ["--checkpoints", "ckio"],
        "files": ["--disk", tmp_path / "disk", "--overlap"],
    }
    for ranks in (1, 2, 4):
        for name, words in ways.items():
            into = f"{name}{ranks}.npz"
            line = [MPIEXEC, "-n", ranks, sys.executable, AT / "heat.py", "--iterations", 0]
            line += ["--cells", 16, "--steps", 12, "--slots", 4, "--into", into]
            line += ["--checkpoints", "none"] if name == "none" else words
            done = subprocess.run(
                [*map(str, line)], cwd=tmp_path, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
            found.append(np.load(tmp_path / into)["gradient"])
    for other in found[1:]:
        assert np.linalg.norm(other - found[0]) < 1e-12 * np.linalg.norm(found[0])
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])
    assert not list(tmp_path.glob("disk/*"))


DIRECT = {"ksp_type": "preonly", "pc_type": "lu"}
STEPS, SLOTS = 24, 4


def wave(tape: Any) -> Any:
    """A string that is fixed at both ends, by Newmark's method; the control is its start."""
    import dolfinx_adjoint as adjoint
    import ufl
    from dolfinx import fem, mesh
    from mpi4py import MPI
    from pyadjoint import Control, ReducedFunctional

    line = mesh.create_interval(MPI.COMM_WORLD, 48, [0, 1])
    space = fem.functionspace(line, ("Lagrange", 1))
    line.topology.create_connectivity(0, 1)
    ends = fem.locate_dofs_topological(space, 0, mesh.exterior_facet_indices(line.topology))
    fixed = adjoint.dirichletbc(adjoint.Function(space), ends)
    start = adjoint.Function(space)
    start.interpolate(lambda x: np.sin(np.pi * x[0]) ** 3)
    u, before, after = (adjoint.Function(space) for _ in range(3))
    adjoint.assign(start, u)
    adjoint.assign(start, before)
    trial, test, dt = ufl.TrialFunction(space), ufl.TestFunction(space), 1 / STEPS
    left = trial * test + dt**2 / 4 * trial.dx(0) * test.dx(0)
    right = (2 * u - before) * test - dt**2 / 4 * (2 * u + before).dx(0) * test.dx(0)
    problem = adjoint.LinearProblem(
        left * ufl.dx,
        right * ufl.dx,
        u=after,
        bcs=[fixed],
        petsc_options_prefix="wave_",
        petsc_options=DIRECT,
        adjoint_petsc_options=DIRECT,
    )
    j = 0
    for _ in tape.timestepper(iter(range(STEPS))):
        problem.solve()
        adjoint.assign(u, before)
        adjoint.assign(after, u)
        j += adjoint.assemble_scalar(u**2 * ufl.dx)
    functional = ReducedFunctional(j, Control(start))
    functional.problem = problem
    return functional


def stokes(tape: Any) -> Any:
    """A flow that a force stirs in a box, by Taylor-Hood elements; the control is the force."""
    import basix.ufl
    import dolfinx_adjoint as adjoint
    import ufl
    from dolfinx import fem, mesh
    from mpi4py import MPI
    from pyadjoint import Control, ReducedFunctional

    box = mesh.create_unit_square(MPI.COMM_WORLD, 6, 6)
    cell = box.basix_cell()
    parts = [
        basix.ufl.element("Lagrange", cell, 2, shape=(2,)),
        basix.ufl.element("Lagrange", cell, 1),
    ]
    space = fem.functionspace(box, basix.ufl.mixed_element(parts))
    velocities, _ = space.sub(0).collapse()
    box.topology.create_connectivity(1, 2)
    edges = mesh.exterior_facet_indices(box.topology)
    dofs = fem.locate_dofs_topological((space.sub(0), velocities), 1, edges)
    walls = fem.dirichletbc(fem.Function(velocities), dofs, space.sub(0))
    force = adjoint.Function(velocities)
    force.interpolate(lambda x: np.stack((np.sin(3 * x[1]), x[0] * (1 - x[0]))))
    now, before = adjoint.Function(space), adjoint.Function(space)
    (u, p), (v, q) = ufl.TrialFunctions(space), ufl.TestFunctions(space)
    dt, old = 1 / STEPS, ufl.split(before)[0]
    left = ufl.inner(u, v) / dt + ufl.inner(ufl.grad(u), ufl.grad(v)) - p * ufl.div(v)
    left += q * ufl.div(u) + 1e-8 * p * q  # the last term makes the pressure unique
    problem = adjoint.LinearProblem(
        left * ufl.dx,
        (ufl.inner(old, v) / dt + ufl.inner(force, v)) * ufl.dx,
        u=now,
        bcs=[walls],
        petsc_options_prefix="stokes_",
        petsc_options=DIRECT,
        adjoint_petsc_options=DIRECT,
    )
    for _ in tape.timestepper(iter(range(STEPS))):
        problem.solve()
        adjoint.assign(now, before)
    flow = ufl.split(before)[0]
    functional = ReducedFunctional(
        adjoint.assemble_scalar(ufl.inner(flow, flow) * ufl.dx), Control(force)
    )
    functional.problem = problem
    return functional


@pytest.mark.parametrize("program", [wave, stokes])
def test_a_program_has_the_gradient_of_a_tape_that_stores_all(
    program: Callable[[Any], Any],
) -> None:
    from pyadjoint import Tape, continue_annotation, pause_annotation, set_working_tape

    from ckio import Level, Platform
    from ckio.adapters.pyadjoint import enable

    gradients = []
    for checkpoints in (False, True):
        tape = Tape()
        set_working_tape(tape)
        continue_annotation()
        if checkpoints:
            memory = Level(name="memory", capacity=SLOTS << 16)
            enable(tape, Platform((memory,), working_memory=4 << 16), steps=STEPS)
        functional = program(tape)
        pause_annotation()
        gradients.append(functional.derivative().x.array.copy())
    assert np.linalg.norm(gradients[0]) > 0
    assert np.array_equal(*gradients)
