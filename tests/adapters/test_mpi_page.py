"""What docs/adapters/mpi.md tells people to do, done on one rank and on several."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from cli.jobs import MPIEXEC, answer, needs_mpi, write_platform

pytest.importorskip("mpi4py")
pytestmark = needs_mpi

PAGE = Path(__file__).parents[2] / "docs" / "adapters" / "mpi.md"
BLOCKS = re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name, block in BLOCKS:
        (tmp_path / name).write_text(block, encoding="utf-8")
    return tmp_path


@pytest.mark.slow
def test_the_job_says_the_same_on_any_number_of_ranks(place):
    assert [name for name, _ in BLOCKS] == ["heat.py", "job.py", "ring.py"]
    said = [
        subprocess.run(
            [MPIEXEC, "-n", str(ranks), sys.executable, "job.py"],
            cwd=place,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for ranks in (1, 3)
    ]
    assert re.fullmatch(r"J = \d+\.\d{9}, sum of dJ/du0 = \d+\.\d{9}\n", said[0])
    assert said[0] == said[1]
    assert not list(place.glob("checkpoints/**/*.ckio"))


@pytest.mark.slow
def test_the_model_runs_by_the_command_and_its_gradient_is_right(place):
    platform = write_platform(place)
    words = ("run", "heat:Heat", "--steps", 50, "--platform", platform, "--check-gradient")
    found = answer(3, *words, "--into", "run", at=place)
    assert found["verified"] is True
    alone = answer(1, *words, "--into", "alone", at=place)
    assert found["gradient_digest"] == alone["gradient_digest"]


def test_periodic_halos_are_right_where_both_neighbours_are_one_rank(place):
    platform = write_platform(place)
    words = ("run", "ring:Ring", "--steps", 50, "--platform", platform, "--check-gradient")
    on_two, alone = (answer(ranks, *words, "--into", f"on-{ranks}", at=place) for ranks in (2, 1))
    assert on_two["verified"] is alone["verified"] is True
    assert on_two["gradient_digest"] == alone["gradient_digest"]
    assert on_two["functional"] == pytest.approx(alone["functional"], rel=1e-14)


@pytest.mark.slow
def test_periodic_halos_are_right_on_three_ranks(place):
    platform = write_platform(place)
    words = ("run", "ring:Ring", "--steps", 50, "--platform", platform, "--check-gradient")
    on_three, alone = (answer(ranks, *words, "--into", f"on-{ranks}", at=place) for ranks in (3, 1))
    assert on_three["verified"] is True
    assert on_three["gradient_digest"] == alone["gradient_digest"]
