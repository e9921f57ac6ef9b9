"""Disk-Revolve and its relatives: published values, exhaustive search, and what they compare to."""

from collections.abc import Callable
from functools import partial
from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import notation as oracle
from oracles.exhaustive import least_makespan

from ckio.actions import Discard, Kind, Read, Write
from ckio.errors import BadInput, NoSchedule
from ckio.planners.base import Planner
from ckio.planners.binomial import revolve
from ckio.planners.dp import hrevolve
from ckio.planners.literature import (
    disk_revolve,
    per_rev_revolve,
    periodic_disk_revolve,
    revolve_1d,
)
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, counts

from .cases import GOLDEN, chain, completed, level, paper_chain, platform

PLANNERS: dict[str, Planner] = {
    "disk-revolve": disk_revolve,
    "1d-revolve": revolve_1d,
    "periodic-disk-revolve": periodic_disk_revolve,
    "per-rev-revolve": per_rev_revolve,
}
PERIODIC: dict[str, Callable[..., Schedule]] = {
    "periodic-disk-revolve": periodic_disk_revolve,
    "per-rev-revolve": per_rev_revolve,
}
every = pytest.mark.parametrize("planner", PLANNERS.values(), ids=PLANNERS)
both_periodic = pytest.mark.parametrize("planner", PERIODIC.values(), ids=PERIODIC)


def two_levels(slots: int, write: float, read: float) -> Platform:
    return platform((slots, 0, 0), (None, write, read))


def planned(planner: Planner, chain: Chain, platform: Platform) -> float:
    return completed(planner(chain, platform), platform)


@pytest.mark.parametrize(
    ("planner", "length", "machine", "seconds"),
    [
        pytest.param(disk_revolve, 10, (2, 2, 1), 22, id="Listing 3"),
        pytest.param(disk_revolve, 100, (2, 10, 2), 384, id="Listing 4"),
        pytest.param(periodic_disk_revolve, 10, (2, 2, 1), 25, id="Listing 6"),
        pytest.param(per_rev_revolve, 10, (2, 2, 1), 25, id="Listing 7"),
        pytest.param(per_rev_revolve, 100, (2, 10, 2), 402, id="read once, where twice is better"),
        pytest.param(disk_revolve, 199, (2, 30, 1), 956, id="cheap reads"),
    ],
)
def test_the_published_values(
    planner: Planner, length: int, machine: tuple[int, float, float], seconds: float
) -> None:
    assert planned(planner, chain(length + 1), two_levels(*machine)) == seconds


def accesses_of_disk(schedule: Schedule) -> list[tuple[int, type, int]]:
    """Reads and writes of the far level, each with the steps advanced before it."""
    found, advanced = [], 0
    for action in schedule.actions:
        match action:
            case Write(key, 1) | Read(key, 1):
                found.append((advanced, type(action), key.step))
            case Write() | Read() | Discard():
                pass
            case _:
                advanced += action.end - action.begin
    return found


@pytest.mark.parametrize(
    ("planner", "listing"),
    [
        (disk_revolve, "listing_3"),
        (revolve_1d, "listing_3"),
        (periodic_disk_revolve, "listing_6"),
        (per_rev_revolve, "listing_6"),
    ],
)
def test_the_disk_is_used_just_as_in_a_listing(planner: Planner, listing: str) -> None:
    costs = paper_chain(10)
    printed = oracle.loads((GOLDEN / f"{listing}.txt").read_text(encoding="utf-8"), costs)
    mine = planner(chain(11), two_levels(2, 2, 1))
    assert accesses_of_disk(mine) == accesses_of_disk(printed)


def test_disk_revolve_uses_the_disk_as_listing_4_prints_it() -> None:
    """Five periods of 16 steps and one of 11; the last 10 steps are reversed from memory."""
    used = accesses_of_disk(disk_revolve(chain(101), two_levels(2, 10, 2)))
    assert used[:6] == [(step, Write, step) for step in range(0, 96, 16)]
    read = [step for _, access, step in used[6:] if access is Read]
    assert len(read) == len(used) - 6
    assert sorted(set(read)) == list(range(0, 96, 16))
    assert read == sorted(read, reverse=True)


def check_against_search(cases: int, *, most_steps: int, seed: int) -> None:
    random = Random(seed)
    for _ in range(cases):
        costs = random.choice([2, 5, 12])
        chain_ = chain(random.randint(1, most_steps), advance=random.randint(0, 4))
        slots = random.randint(1, 2)
        machine = two_levels(slots, random.randint(0, costs), random.randint(0, costs))
        assert planned(disk_revolve, chain_, machine) == least_makespan(chain_, machine), machine


def test_no_schedule_beats_disk_revolve_where_the_near_level_is_free() -> None:
    check_against_search(15, most_steps=5, seed=1)


def test_with_one_far_slot_no_schedule_beats_1d_revolve() -> None:
    random = Random(3)
    for _ in range(30):
        chain_ = chain(random.randint(1, 6), advance=random.randint(1, 4))
        machine = platform(
            (random.randint(1, 2), 0, 0), (1, random.randint(0, 6), random.randint(0, 4))
        )
        assert planned(revolve_1d, chain_, machine) == least_makespan(chain_, machine), machine


@given(
    st.integers(1, 150),
    st.sampled_from([0, 1, 2, 3]),
    st.integers(1, 6),
    st.integers(0, 60),
    st.integers(0, 30),
)
def test_disk_revolve_is_hrevolve_where_the_near_level_is_free_and_the_far_one_never_fills(
    steps: int, u_f: float, slots: int, write: float, read: float
) -> None:
    chain_, machine = chain(steps, advance=u_f), two_levels(slots, write, read)
    assert planned(disk_revolve, chain_, machine) == planned(hrevolve, chain_, machine)


@given(st.integers(1, 120), st.integers(1, 4), st.integers(0, 40), st.integers(0, 20))
def test_the_four_are_in_the_order_in_which_they_may_choose(
    steps: int, slots: int, write: float, read: float
) -> None:
    chain_, machine = chain(steps), two_levels(slots, write, read)
    best = planned(disk_revolve, chain_, machine)
    alone = planned(revolve_1d, chain_, machine)
    again = planned(partial(periodic_disk_revolve, period=min(10, steps)), chain_, machine)
    once = planned(partial(per_rev_revolve, period=min(10, steps)), chain_, machine)
    assert best <= alone <= planned(revolve, chain_, machine)
    assert best <= again <= once


def test_per_rev_revolve_reads_each_far_checkpoint_once() -> None:
    disk = counts(per_rev_revolve(chain(300), two_levels(2, 30, 1))).levels[1]
    assert disk.writes == disk.reads == disk.discards == 19


def test_periodic_disk_revolve_reads_a_far_checkpoint_as_often_as_it_pays() -> None:
    disk = counts(periodic_disk_revolve(chain(101), two_levels(2, 10, 2))).levels[1]
    assert (disk.writes, disk.reads) == (6, 12)


@both_periodic
def test_the_last_block_is_up_to_a_step_longer_than_a_period(
    planner: Callable[..., Schedule],
) -> None:
    for steps, turn in ((10, 4), (11, 2), (12, 3), (4, 4), (5, 2)):
        schedule = planner(chain(steps), two_levels(2, 5, 5), period=3)
        written = [a.key.step for a in schedule.actions if isinstance(a, Write) and a.level == 1]
        assert written == list(range(0, steps - turn, 3))


@both_periodic
def test_a_periodic_planner_says_which_period_it_took(planner: Callable[..., Schedule]) -> None:
    machine = two_levels(2, 2, 1)
    for options, period, how in (
        ({}, 3, "closed form"),
        ({"period": 4}, 4, "as given"),
    ):
        note = planner(chain(11), machine, **options).note
        assert f"every {period} steps" in note
        assert how in note
    for wrong in (0, -1, 12, 2.5, True):
        with pytest.raises(BadInput, match="between 1 and the chain's 11 steps"):
            planner(chain(11), machine, period=wrong)
    assert counts(planner(chain(10), platform((3, 2, 2)), period=10)).levels[0].peak == 3


@every
def test_without_a_far_level_that_pays_it_is_revolve(planner: Planner) -> None:
    for machine in (platform((3, 2, 2)), two_levels(3, 10**6, 10**6)):
        assert planner(chain(40), machine) == revolve(chain(40), machine)


@pytest.mark.parametrize(
    "planner", [disk_revolve, periodic_disk_revolve, per_rev_revolve], ids=lambda f: f.__name__
)
def test_a_far_level_with_too_few_slots_is_refused_with_what_is_needed(planner: Planner) -> None:
    needed = counts(planner(chain(101), two_levels(2, 10, 2))).levels[1].peak
    exactly = platform((2, 0, 0), (needed, 10, 2))
    assert counts(planner(chain(101), exactly)).levels[1].peak == needed
    one_less = platform((2, 0, 0), (needed - 1, 10, 2))
    with pytest.raises(NoSchedule, match=rf"{needed} slots on level1, which has {needed - 1}"):
        planner(chain(101), one_less)


@every
def test_the_far_level_is_the_nearest_with_space_for_the_plan(
    planner: Callable[..., Schedule],
) -> None:
    def used(machine: Platform) -> set[int]:
        schedule = planner(chain(101), machine)
        return {number for number, level in enumerate(counts(schedule).levels) if level.writes}

    machine = platform((0, 0, 0), (2, 0, 0), (0, 0, 0), (1, 10, 2), (None, 11, 3))
    assert used(machine) == ({1, 3} if planner is revolve_1d else {1, 4})


def test_what_a_far_checkpoint_costs_to_discard_counts_as_writing_it() -> None:
    def schedule(write: float, discard: float) -> Schedule:
        far = level("far", None, write, 2, discard=discard)
        return disk_revolve(chain(101), Platform((level("near", 2, 0, 0), far), working_memory=2))

    assert schedule(8, 2) == schedule(10, 0) != schedule(30, 0)


@every
def test_costs_beyond_what_can_be_added_up_still_give_a_schedule(planner: Planner) -> None:
    for advance, access in product((1, 1e300, 1e-300), (1e308, 1e-308)):
        planned(planner, chain(60, advance=advance), two_levels(2, access, access))


@every
def test_a_plan_holds_plain_numbers(planner: Planner) -> None:
    for action in planner(chain(60), two_levels(2, 10, 2)).actions:
        if isinstance(action, Write | Read | Discard):
            assert action.key.kind is Kind.RESTART
            assert type(action.key.step) is type(action.level) is int
        else:
            assert type(action.begin) is type(action.end) is int
