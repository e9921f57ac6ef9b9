"""A quick check of `gradient_peers`: on a small grid every row finds the gradient, and is told."""

from importlib.util import find_spec
from pathlib import Path

import gradient_peers
import pytest
from gradient_rows import NEEDS, ROWS, Task


@pytest.mark.parametrize("disk", [0, 4])
def test_every_row_finds_the_gradient(tmp_path: Path, disk: int) -> None:
    there = [name for name in ROWS if name not in NEEDS or find_spec(NEEDS[name])]
    text = gradient_peers.table(Task(32, 40, 4, disk, str(tmp_path)), 1)
    assert [line.split("  ")[0] for line in text.splitlines()[2:]] == there
    assert not list(tmp_path.iterdir())
