"""The output that a page shows below its examples, compared with that of a run of them."""

import re
from pathlib import Path

import pytest

NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def shown(page: Path) -> str:
    """Return the blocks of output of a page, one after the other."""
    blocks = re.findall(r"^```text\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return "".join(blocks)


def assert_as_shown(output: str, expected: str) -> None:
    """Compare two texts: the words are the same, and numbers agree to 0.1 %."""
    assert NUMBER.sub("#", output) == NUMBER.sub("#", expected)
    numbers = [[float(it) for it in NUMBER.findall(text)] for text in (output, expected)]
    assert numbers[0] == pytest.approx(numbers[1], rel=1e-3)
