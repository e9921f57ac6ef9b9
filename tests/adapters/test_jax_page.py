"""What docs/adapters/jax.md tells people to do, done: in an empty directory, by a new process."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from adapters.outputs import assert_as_shown, shown

pytest.importorskip("jax")

PAGE = Path(__file__).parents[2] / "docs" / "adapters" / "jax.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.slow
def test_all_of_the_page(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(BLOCKS)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )
    assert done.returncode == 0, done.stderr
    assert_as_shown(done.stdout, shown(PAGE))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
