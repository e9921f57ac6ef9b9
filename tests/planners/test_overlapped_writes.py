"""The bound by writes in one piece: below what search finds, and close where writes are long."""

from random import Random

import numpy as np
import pytest

from ckio.planners.overlapped import writes
from ckio.planners.overlapped.bound import bound
from ckio.planners.overlapped.lengths import lengths_of, worth_of
from ckio.planners.overlapped.progress import NEVER, Move, Rules, Steps, Tables, spend, tables
from ckio.planners.overlapped.writes import bound_by_writes

from .overlapsearch import Case, least_makespan
from .test_overlapped_bound import machine

IDLE, WHOLE = 2, 7
RULES = Rules(
    slots=3,
    idle=IDLE,
    read=1,
    whole=WHOLE,
    back=1,
    price=0.5,
    advance=1.0,
    quantum=1.0,
    back_seconds=1.0,
    near_write=0.0,
    near_read=0.0,
)


def tiny(random: Random, length: int) -> Case:
    return Case(
        length=random.randint(1, length),
        near=random.randint(1, 3),
        far=random.randint(1, 3),
        write=random.randint(2, 9),
        read=random.randint(0, 4),
    )


def check(case: Case) -> None:
    assert bound_by_writes(machine(case)) <= least_makespan(case) + 1e-9, case


def test_the_bound_is_below_what_search_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writes, "_PARTS", 6)
    monkeypatch.setattr(writes, "_LEAST_WRITE", 2)
    random = Random(5)
    for _ in range(16):
        check(tiny(random, 5))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_against_search_in_a_long_campaign(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writes, "_PARTS", 8)
    monkeypatch.setattr(writes, "_LEAST_WRITE", 2)
    random = Random(seed)
    for _ in range(12):
        check(tiny(random, 7))


def test_long_writes_and_few_near_slots_leave_little_to_a_plan_that_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The plan takes 2317.2 s; the bound that lets writes be in parts is 2130.7 s."""
    monkeypatch.setattr(writes, "_LOOKS", 0)
    known = machine(Case(565, 3, 662, 0, 0), far_write=28.3, far_read=1.1)
    assert 1.02 * bound(known) < bound_by_writes(known) <= 2317.2


@pytest.mark.parametrize(
    "case",
    [
        Case(100, writes.MOST_SLOTS + 1, 9, 9, 1),
        Case(100, 3, 9, 1, 1),
        Case(100, 3, 9, 99, 1),
        Case(20_000, 3, 9, 9, 1),
    ],
)
def test_it_is_not_looked_for_where_it_says_little_or_takes_long(case: Case) -> None:
    assert bound_by_writes(machine(case)) == 0.0


@pytest.mark.parametrize("price", [0.3, 0.8])
def test_what_is_said_of_long_segments_is_no_more_than_what_they_cost(price: float) -> None:
    longest, short, slots = 24, 10, 3
    rules, seconds = RULES._replace(price=price), np.arange(longest + 1.0)
    steps = Steps(seconds.astype(np.int64), seconds)
    whole = tables(slots, longest, steps, rules)
    cut = Tables(
        *(each[:, : short + 1] for each in whole[:2]),
        *(each[: short + 1] for each in whole[2:-1]),
        scratch=whole.scratch,
    )
    worth = worth_of(cut.read, rules, 5)
    exact, said = (lengths_of(each, steps, rules, worth) for each in (whole, cut))
    for name in ("far", "read", "first"):
        assert (getattr(said, name) <= getattr(exact, name) + 1e-9).all(), name
    for s in range(1, slots + 1):
        assert (said.stored[s] <= exact.stored[s] + 1e-9).all()
    assert said.read[-1] > 0.8 * exact.read[-1]


def after(move: Move, state: int) -> dict[tuple[int, int], float]:
    """What may come of a move: seconds by how many are held, and the progress."""
    row = np.full(RULES.states, NEVER)
    spend(row, RULES, move, state)
    return {
        (number // WHOLE, number % WHOLE - IDLE): float(row[number])
        for number in np.flatnonzero(row < NEVER)
    }


def state(held: int, progress: int) -> int:
    return held * WHOLE + progress + IDLE


def test_a_channel_goes_on_while_a_near_slot_is_free_for_it() -> None:
    assert after(Move(3, 2, 2.0), state(0, 1)) == {(0, 3): 2.0}
    assert after(Move(2, 2, 2.0), state(0, 1)) == {(0, 3): 2.0}
    assert after(Move(1, 2, 2.0), state(0, 1)) == {(0, -2): 2.0}
    assert after(Move(2, 2, 2.0), state(1, 1)) == {(1, -2): 2.0, (0, 0): 2.0}
    assert after(Move(1, 2, 2.0), state(1, 1)) == {}


def test_what_is_written_brings_its_price_and_what_waits_comes_next() -> None:
    assert after(Move(4, 5, 5.0), state(0, 1)) == {(0, -1): 4.5}
    assert after(Move(4, 5, 5.0), state(1, 1)) == {(0, 1): 4.5}
    assert after(Move(4, 5, 5.0), state(2, 1)) == {(1, 1): 4.5, (2, 1): 4.5}
    assert after(Move(4, 12, 12.0), state(0, 0)) == {(0, -2): 11.0}
