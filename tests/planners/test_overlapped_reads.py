"""The bound by reads in one piece: below what search finds, and close where reads are slow."""

from random import Random

import numpy as np
import pytest

from ckio.planners.overlapped import reads, writes
from ckio.planners.overlapped.bound import bound
from ckio.planners.overlapped.reads import bound_by_reads
from ckio.planners.overlapped.transfers import (
    NEVER,
    Doing,
    Edges,
    State,
    Times,
    before,
    channel,
    follow,
    stand_still,
    states,
)

from .overlapsearch import Case, least_makespan
from .test_overlapped_bound import machine

TIMES = Times(slots=2, write=2, read=3, write_seconds=2.0, read_seconds=3.0, price=0.5)
STATES = states(TIMES)
REST = State(0, 0)


def tiny(random: Random, length: int) -> Case:
    return Case(
        length=random.randint(1, length),
        near=random.randint(1, 3),
        far=random.randint(1, 3),
        write=random.randint(0, 5),
        read=random.randint(1, 9),
    )


def check(case: Case, price: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "_LEAST", 0)
    monkeypatch.setattr(reads, "_LEAST_READ", 0)
    monkeypatch.setattr(reads, "_PRICE", price)
    found = bound_by_reads(machine(case))
    assert found <= least_makespan(case) + 1e-9, case


def test_the_bound_is_below_what_search_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(6)
    for _ in range(16):
        check(tiny(random, 5), random.choice([0.0, 0.01, 0.2]), monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_against_search_in_a_long_campaign(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    for _ in range(10):
        check(tiny(random, 7), random.choice([0.0, 0.01, 0.1, 0.3]), monkeypatch)


@pytest.mark.parametrize(
    "case",
    [
        Case(100, writes.MOST_SLOTS + 1, 9, 9, 9),
        Case(100, 3, 9, 1, 1),
        Case(100, 3, 9, 40, 40),
        Case(100, 5, 9, 20, 20),
        Case(100, 3, 9, 9, 2),
        Case(20_000, 3, 9, 9, 9),
    ],
)
def test_it_is_not_looked_for_where_it_says_little_or_takes_long(case: Case) -> None:
    assert bound_by_reads(machine(case)) == 0.0


def test_slow_reads_and_few_near_slots_leave_little_to_a_plan_that_is_known() -> None:
    """The plan takes 5868.8 s; the bound that lets transfers be in parts is 5473.7 s."""
    known = machine(Case(1500, 4, 75, 0, 0), far_write=3.9, far_read=15.6)
    assert 1.02 * bound(known) < bound_by_reads(known) <= 5868.8


# The channel


def after(state: State, edges: Edges, slots: int = 2) -> dict[State, float]:
    row, found = np.full((2, len(STATES)), NEVER)
    row[STATES.index(state)] = 0.0
    follow(row, edges, slots, found)
    return {STATES[number]: float(found[number]) for number in np.flatnonzero(found < NEVER / 2)}


def test_a_quantum_begins_and_ends_transfers_where_there_are_slots_for_them() -> None:
    ticks = channel(TIMES).ticks
    assert after(REST, ticks) == {REST: 0.0, State(0, 0, Doing(False, 1)): 0.0}
    assert after(REST, ticks, slots=0) == {REST: 0.0}
    assert after(State(0, 0, Doing(False, 1)), ticks) == {State(0, 0, Doing(False, 2)): 0.0}
    assert after(State(0, 0, Doing(False, 1)), ticks, slots=0) == {}
    # what was read may be used, or be what something that will be written is computed from
    assert after(State(0, 0, Doing(False, 2)), ticks) == {State(0, 1): 0.0, State(1, 0): 0.0}
    assert after(State(0, 1, Doing(True, 1)), ticks) == {State(0, 1): -0.5}


def test_of_those_that_wait_there_may_be_more() -> None:
    found = after(State(1, 0), channel(TIMES).ticks)
    assert State(0, 0, Doing(True, 1)) in found
    assert State(1, 0, Doing(True, 1)) in found


def test_a_far_checkpoint_is_staged_or_written_at_once() -> None:
    passes = channel(TIMES).passes
    assert after(REST, passes) == {State(1, 0): 0.5, REST: 2.0}
    assert after(State(0, 2), passes) == {State(0, 2): 2.0}
    assert after(State(0, 1, Doing(True, 1)), passes) == {}


def test_a_far_checkpoint_is_used_from_its_slot_or_waited_for() -> None:
    edges = channel(TIMES).reads
    assert after(REST, edges) == {REST: 3.0}
    assert after(State(0, 1), edges) == {REST: 0.0, State(0, 1): 3.0}
    assert after(State(0, 1, Doing(True, 1)), edges) == {State(0, 0, Doing(True, 1)): 0.0}


def test_standing_still_brings_what_quanta_bring() -> None:
    row = np.full(len(STATES), NEVER)
    row[0] = 0.0
    stand_still(row, channel(TIMES).ticks, 2, 1.0)
    assert row[STATES.index(State(0, 1))] == 3.0
    assert row[STATES.index(State(0, 2))] == 6.0
    assert row[STATES.index(State(0, 0, Doing(True, 1)))] == 4.0


def test_what_states_are_worth_before_is_the_least_of_what_follows() -> None:
    edges, found = channel(TIMES).reads, np.empty(len(STATES))
    worth = np.arange(float(len(STATES)))
    before(worth, edges, 1.0, found)
    for number, state in enumerate(STATES):
        following = [worth[STATES.index(it)] + cost for it, cost in after(state, edges).items()]
        assert found[number] == pytest.approx(min(following, default=NEVER) + 1.0)
