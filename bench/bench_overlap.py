"""The bench of overlap runs; `python bench/overlap.py` takes its tables."""

import tempfile
from pathlib import Path

import overlap
import pytest

from ckio.backends.files import Files


@pytest.fixture
def direct() -> None:
    """Where temporary files have no direct I/O, there is nothing to be measured."""
    if not Files().has_direct(Path(tempfile.gettempdir())):
        pytest.skip("the file system of temporary files has no direct I/O")


@pytest.mark.usefixtures("direct")
def test_the_tables_of_overlap_are_taken() -> None:
    table = overlap.tables(nbytes=1 << 20, steps=2, rounds=1, grid=16, length=6, runs=1)
    assert all(disk in table for disk in overlap.DISKS)


@pytest.mark.usefixtures("direct")
def test_plans_run_in_turns() -> None:
    contest = overlap.Contest(grid=24, steps=9, states=(2, 2, 9), turns=1, repeats=1)
    table = overlap.plans(contest)
    assert "medians of 1 turns" in table
    for name in ("planned for overlap", "mixed, synchronous", "store-all, overlapped"):
        assert name in table
