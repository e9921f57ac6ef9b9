"""What docs/programs.md tells people to do, done: in an empty directory, by a new process."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "programs.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def run(script: str, place: Path) -> list[str]:
    (place / "script.py").write_text(script, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=place, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_ten_lines(tmp_path: Path) -> None:
    (line,) = run(BLOCKS[0], tmp_path)
    assert re.fullmatch(r"y = \d+\.\d+, dy/dnu = -?\d+\.\d+, \|dy/du0\| = \d+\.\d+", line)
    assert [path.name for path in tmp_path.iterdir()] == ["script.py"]


@pytest.mark.slow
def test_all_of_the_page_in_one_script(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    first, *rest = BLOCKS
    told = "assert stats['live_peak'] <= 12, stats\nassert xbar[0] > 0, xbar\n"
    script = first.replace('if __name__ == "__main__":', "if True:") + "\n".join(rest) + told
    lines = run(script, tmp_path)
    functional, bar = lines[-1].split(" ")
    assert f"y = {float(functional):.6f}, dy/dnu = {float(bar):.6f}," in lines[0]
