"""docs/promises.md names tests; they are there, and every fault has one."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "promises.md"


def faults() -> dict[str, str]:
    """What shows each line of the table of faults."""
    if not PAGE.exists():
        return {}
    table = PAGE.read_text(encoding="utf-8").split("| fault |")[1].split("\n\n")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines()[2:]]
    return {row[0].strip(): row[2] for row in rows}


def test_the_table_is_there() -> None:
    assert len(faults()) > 20


@pytest.mark.parametrize("fault", faults())
def test_every_fault_is_shown_by_tests_that_exist(fault: str) -> None:
    files = re.findall(r"\]\(\.\./(\S+)\)((?:: `\w+`(?:, `\w+`)*)?)", faults()[fault])
    assert files
    for path, names in files:
        there = set(re.findall(r"^\s*def (test_\w+)", (ROOT / path).read_text(), re.MULTILINE))
        assert there
        assert set(re.findall(r"`(\w+)`", names)) <= there
