"""Programs of dolfinx-adjoint: gradients with ckio are those of a tape that stores everything."""

import json
import re
import subprocess
import sys
from pathlib import Path

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
