"""What docs/adapters/pyadjoint.md shows, done: in an empty directory, by a new process."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from adapters.outputs import assert_as_shown, shown

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
    assert_as_shown(done.stdout, shown(PAGE))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / "script.py"]
