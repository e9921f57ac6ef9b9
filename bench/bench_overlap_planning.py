"""A quick check of `overlap_planning`: on small machines, the tables say what they should."""

import pytest
from overlap_planning import (
    MACHINES,
    Slots,
    before,
    drawn,
    grid,
    machines_table,
    named,
    policies,
    random_table,
    slots,
    states_table,
)

from ckio.schedule import makespan
from ckio.sim.engine import simulate

pytest.importorskip("numba")


def test_what_was_before_is_known() -> None:
    known = before()
    assert known["the grid", str(grid()[0])] == 2781
    assert known["seed 2104", str(slots(2104)[-1])] > 0
    for steps in (200, 500, 2000, 10_000):
        for machine in MACHINES:
            assert known[f"ten machines, n = {steps}", machine.case(steps).name] > steps
    assert len(known) == 15 + 7 * 20 + 40


def test_a_row_of_the_machines() -> None:
    case = MACHINES[0].case(20)
    assert len(policies(case)) == 8
    found = named(case)
    assert set(found) >= {"store-all", "mixed", "hrevolve"}
    assert found["hrevolve"] >= found["mixed"]
    table = machines_table([20], MACHINES[:1])
    assert f"{found['mixed']:.1f}" in table
    assert "store-all" in table.splitlines()[0]


def test_machines_drawn_at_random_are_the_same_every_time() -> None:
    assert [case.name for case in drawn(1)] == [case.name for case in drawn(1)]
    assert drawn(1, 3) != drawn(2, 3)
    cases = [case for seed in range(5) for case in drawn(seed)]
    assert {len(case.platform.levels) for case in cases} == {2, 3, 4, 5}
    assert all(100 <= case.chain.length <= 3000 for case in cases)
    assert any(level.channel == "bus" for case in cases for level in case.platform.levels)


def test_a_machine_drawn_at_random() -> None:
    case = min(drawn(3), key=lambda case: case.chain.length)
    for policy in policies(case)[:2]:
        from ckio.planners.dp import hrevolve

        schedule = hrevolve(case.chain, case.platform)
        seconds = simulate(schedule, case.platform, overlap=policy).makespan
        assert min(named(case).values()) <= seconds
        assert policy or seconds == makespan(schedule, case.platform)


def test_a_row_of_states_only() -> None:
    machine = Slots(length=300, near=20, far=200, write=0.5, read=0.5)
    row = states_table({"one": [machine]}).splitlines()[1].split()
    assert row[-8:-3] == ["0.5", "881", "-", "681.0", "-"]
    assert 680.9 <= float(row[-3]) <= 681.0


def test_the_worst_are_told_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    import overlap_planning

    shortest = min(drawn(3), key=lambda case: case.chain.length)
    monkeypatch.setattr(overlap_planning, "drawn", lambda seed, count: [shortest])
    table = random_table([3], 1)
    assert "gaps: least" in table
    assert "a state is written in" in table
