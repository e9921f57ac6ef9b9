"""A quick check of `overlap_planning`: of a short chain, the table says what it should."""

import pytest
from overlap_planning import MACHINES, machines_table, named, policies

pytest.importorskip("numba")


def test_a_row_of_the_machines() -> None:
    case = MACHINES[0].case(20)
    assert len(policies(case)) == 8
    found = named(case)
    assert set(found) >= {"store-all", "mixed", "hrevolve"}
    assert found["hrevolve"] >= found["mixed"]
    table = machines_table([20], MACHINES[:1])
    assert f"{found['mixed']:.1f}" in table
    assert "plans that break a promise: 0 of 1" in table
