"""docs/promises.md names tests; they are there, and every fault has one."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "promises.md"


def faults() -> dict[str, str]:
    """The footnote of each line of the table of faults."""
    text = PAGE.read_text(encoding="utf-8")
    notes = dict(re.findall(r"^\[\^(\d+)\]: (.*)$", text, re.MULTILINE))
    table = text.split("| fault |")[1].split("\n\n")[0]
    rows = re.findall(r"^\| (.*?) \|.* \[\^(\d+)\] \|$", table, re.MULTILINE)
    assert len(rows) == len(notes) == len(table.splitlines()) - 2
    return {fault: notes[number] for fault, number in rows}


def test_every_fault_is_shown_by_tests_that_exist() -> None:
    assert len(faults()) > 20
    for fault, shown_by in faults().items():
        files = re.findall(r"\]\(\.\./(\S+)\)((?:: `\w+`(?:, `\w+`)*)?)", shown_by)
        assert files, fault
        for path, names in files:
            text = (ROOT / path).read_text()
            tests = set(re.findall(r"^\s*def (test_\w+)", text, re.MULTILINE))
            assert tests, path
            assert set(re.findall(r"`(\w+)`", names)) <= tests, f"{fault}: {path}"
