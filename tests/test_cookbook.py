"""The recipes of docs/cookbook.md: each runs as it stands, and has a right gradient."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cli.jobs import MPIEXEC, needs_mpi

PAGE = (Path(__file__).parents[1] / "docs/cookbook.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE, re.DOTALL))
VERIFIED, BOUNDED = re.findall(r"```sh\n(.*?)\n```", PAGE)
RECIPES = [name for name in FILES if name not in ("ring.py", "shots.py")]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with the files of the page, and data of the kinds that they read."""
    for name, code in FILES.items():
        (tmp_path / name).write_text(code, encoding="utf-8")
    rng = np.random.default_rng(2)
    for shot in range(2):
        np.save(tmp_path / f"shot{shot}.npy", rng.random((21, 5)))
    np.save(tmp_path / "forcing.npy", 0.01 * rng.random((200, 100)))
    np.savez(tmp_path / "restart.npz", u=rng.random(100), step=50)
    return tmp_path


def printed(words: list[str], at: Path) -> str:
    """What a program prints that succeeds; `ckio` is that of this environment."""
    programs = {"ckio": str(Path(sys.executable).with_name("ckio")), "mpiexec": str(MPIEXEC)}
    words = [programs.get(word, word) for word in words]
    done = subprocess.run(words, cwd=at, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, f"{words}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_has_a_right_gradient(name: str, place: Path) -> None:
    steps = "150" if name == "restarted.py" else "200"  # its file is of step 50, the forcing of 200
    line = VERIFIED.replace("FILE.py", name).replace("200", steps)
    assert "gradient check  verified" in printed(shlex.split(line), place)


@pytest.mark.slow
def test_a_bounded_disk_is_not_exceeded(place: Path) -> None:
    (used,) = re.findall(r"([\d.]+) KiB of files", printed(shlex.split(BOUNDED), place))
    assert float(used) <= 20e3 / 1024


@pytest.mark.slow
@needs_mpi
def test_the_recipe_for_ranks_has_the_gradient_of_one_rank(place: Path) -> None:
    line = shlex.split(VERIFIED.replace("FILE.py", "cells.py"))
    several = printed(["mpiexec", "-n", "2", *line], place)
    alone = printed([*line, "--into", "alone"], place)
    assert "gradient check  verified" in several
    functionals = [re.findall(r"functional +(\S+)", text) for text in (several, alone)]
    assert np.allclose(*np.array(functionals, float), rtol=1e-10)


@pytest.mark.slow
def test_the_gradient_of_several_shots_is_the_sum(place: Path) -> None:
    functional, slope = map(
        float, re.findall(r"-?\d+\.\d+", printed([sys.executable, "shots.py"], place))[-2:]
    )
    code = """
import sys
from observed import Observed
J, slope = 0.0, 0.0
for shot in range(2):
    model = Observed(shot)
    model.record(0, 200)
    model.reverse(0, 200)
    J, slope = J + model.functional, slope + float(model.gradient["k"])
print(J, slope)
"""
    expected = list(map(float, printed([sys.executable, "-c", code], place).split()))
    assert [functional, slope] == pytest.approx(expected, rel=1e-12)
