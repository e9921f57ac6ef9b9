"""The example of an inversion does what its page says."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "inversion.py"


@pytest.mark.slow
def test_an_inversion_is_read_back_and_goes_on(tmp_path: Path) -> None:
    def run(evaluations: int) -> list[str]:
        line = [sys.executable, EXAMPLE, "it", "--steps", "60", "--evaluations", str(evaluations)]
        done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    first, second = run(2), run(4)
    assert second[:2] == first[:2]
    assert second[-1].startswith("the misfit fell from ")
    assert sorted(path.name for path in (tmp_path / "it").glob("evaluation-*"))[-1].endswith("004")
