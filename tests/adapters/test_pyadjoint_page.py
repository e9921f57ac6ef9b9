"""What docs/adapters/pyadjoint.md shows, done: in an empty directory, by a new process."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyadjoint")

PAGE = Path(__file__).parents[2] / "docs" / "adapters" / "pyadjoint.md"


@pytest.mark.slow
def test_the_example(tmp_path: Path) -> None:
    (script,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "script.py").write_text(script, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [re.sub(r" [\d.]+$", "", line) for line in lines] == [
        "gradient",
        "J elsewhere",
        "its gradient",
    ]
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / "script.py"]
