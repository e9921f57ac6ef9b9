"""What docs/adapters/torch.md tells people to do, done: in an empty directory, by a new process."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from adapters.outputs import assert_as_shown, shown

pytest.importorskip("torch")

PAGE = Path(__file__).parents[2] / "docs" / "adapters" / "torch.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def run(script: str, place: Path) -> list[str]:
    (place / "script.py").write_text(script, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", "script.py"],
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_first_example_is_complete(tmp_path: Path) -> None:
    lines = run(BLOCKS[0], tmp_path)
    assert_as_shown("\n".join(lines), shown(PAGE).splitlines()[0])


def test_all_of_the_page_in_one_script(tmp_path: Path) -> None:
    lines = run("\n".join(BLOCKS), tmp_path)
    assert_as_shown("\n".join(lines), shown(PAGE).rstrip())
    assert [
        path for path in tmp_path.rglob("*") if path.name != "script.py" and path.is_file()
    ] == []
