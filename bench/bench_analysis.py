"""A quick check of `analysis`: of small models, the tables say what they should."""

from functools import partial

import analysis
import analysis_arrays
import analysis_table1
import analysis_traced
import numpy as np
import pytest
from example_models.ocean import Ocean
from oracles.snapshots import SnapshotRates, cheapest

from ckio.analysis.snapshots import plan


def cells(table: str) -> list[list[str]]:
    return [line.split() for line in table.splitlines()]


def test_the_same_memory_holds_more_of_what_is_needed_and_the_gradient_is_the_same() -> None:
    results = analysis.measured(12, 30, 4, 1)
    every, observed, again, *_ = (result.way for result in results)
    field = 13**2 * 8
    assert [way.restart - 8 for way in (every, observed, again)] == [
        7 * field,
        4 * field,
        3 * field,
    ]
    assert [way.tape for way in (observed, again)] == [2 * field, field]
    assert {result.away(results[0]) for result in results} == {"same bits"}
    steps = [analysis.counts(result.schedule).forward for result in results]
    assert steps[0] > steps[1] > steps[2]
    assert steps[1:3] == steps[3:]


def test_a_gradient_that_is_not_the_same_is_seen() -> None:
    first, other, *_ = analysis.measured(8, 5, 2, 1)
    other.gradient["zeta"] += 1e-3 * np.abs(first.gradient["zeta"]).max()
    assert float(other.away(first)) == pytest.approx(1e-3, rel=0.1)


def test_a_step_in_jax_is_the_step_in_numpy_and_least_bytes_are_two_fields() -> None:
    pytest.importorskip("jax")
    table = analysis_traced.table(8, analysis_traced.QUICK)
    (differs,) = (row for row in cells(table) if "differs" in row)
    assert float(differs[-5].rstrip(";")) < 1e-12
    (least,) = (row for row in cells(table) if row[1:4] == ["jointly,", "bytes", "only"])
    assert least[4:8] == ["2.00", "2", "psi,", "zeta"]
    assert float(least[-1]) < 1e-12


CASES = list(analysis_table1.cases(small=True))


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_snapshots_of_least_seconds_take_no_more_than_any_others(
    case: analysis_table1.Case,
) -> None:
    level = analysis_table1.NVME
    rates = SnapshotRates(nbytes=case.variables.nbytes, snapshots=level, tape=level)
    for code in case.codes.values():
        seconds = {
            name: analysis_table1.stored(code, choose(code, rates), rates).seconds
            for name, choose in analysis_table1.POLICIES.items()
        }
        assert seconds["cheapest"] == pytest.approx(cheapest(code, rates=rates)[1], rel=1e-12)
        assert seconds["cheapest"] <= min(seconds.values()) * (1 + 1e-12)
        assert max(seconds, key=seconds.__getitem__) == "whole"


def test_nested_code_has_a_checkpoint_for_each_advance_of_the_schedule() -> None:
    case = CASES[0]
    snapshots = plan(case.codes["nested"])
    assert len(snapshots) == int((case.binomial.actions.op == analysis_table1.ADVANCE).sum())


def test_the_ground_that_thaws_tells_the_policies_apart() -> None:
    table = analysis_table1.table(small=True)
    assert "K is in 2 snp (eager); 1 snp, 1 tape (lazy); 1 snp+sbk (cheapest)" in table
    assert table.count("no choice") == 6


@pytest.mark.parametrize("case", CASES[:-1], ids=[case.name for case in CASES[:-1]])
def test_arrays_by_themselves_take_least(case: analysis_table1.Case) -> None:
    rows = {row[1]: row for row in analysis_arrays.by_array(case)}
    for column in (5, 6, 7):  # written, read, at most there
        amounts = [float(rows[name][column]) for name in ("arrays, once", "needed", "whole")]
        assert amounts == sorted(amounts)
    slots, forward = ([int(rows[name][k]) for name in ("whole", "arrays, anew")] for k in (2, 3))
    assert slots == sorted(slots)
    assert forward == sorted(forward, reverse=True)


def test_what_is_observed_is_what_the_program_needs() -> None:
    found = analysis.observe(partial(Ocean, grid=8))
    assert found.stored == {"zeta", "psi", "F_1", "F_2", "J"}
    assert found.taped == {"zeta", "psi"}
