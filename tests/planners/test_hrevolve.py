"""H-Revolve: its published values, and the optimum by exhaustive search."""

import logging
from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.exhaustive import least_makespan
from oracles.recurrences import theorem_2

from ckio.errors import BadInput
from ckio.planners.dp import hrevolve, hrevolve_2020, solve_states
from ckio.planners.dp.spaces import Space, orders, restart_spaces, slots_of
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.schedule import counts, makespan

from .cases import chain, chains, completed, platform, platforms, small_case

PLANNERS = {"hrevolve": hrevolve, "hrevolve-2020": hrevolve_2020}


def planned(name: str, chain: Chain, platform: Platform) -> float:
    """The makespan of the schedule, once it is seen to be legal and worth what its table says."""
    seconds = completed(PLANNERS[name](chain, platform), platform)
    plan = solve_states(chain, platform, planner=name, as_printed=name == "hrevolve-2020")
    assert seconds == plan.seconds
    return seconds


def test_coming_back_to_a_far_level_from_the_end_can_pay() -> None:
    machine = platform((1, 1, 0), (1, 1, 0))
    assert planned("hrevolve-2020", chain(5), machine) == 9
    assert planned("hrevolve", chain(5), machine) == least_makespan(chain(5), machine) == 8


def check_against_search(*, levels: int, most_steps: int, cases: int, seed: int) -> None:
    random = Random(seed)
    for _ in range(cases):
        chain, platform = small_case(random, levels=levels, most_steps=most_steps)
        assert planned("hrevolve", chain, platform) == least_makespan(chain, platform), platform


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("levels", "most_steps", "cases"), [(1, 9, 80), (2, 7, 300), (3, 5, 150), (3, 6, 30)]
)
def test_no_schedule_beats_hrevolve(levels: int, most_steps: int, cases: int) -> None:
    check_against_search(levels=levels, most_steps=most_steps, cases=cases, seed=1)


def test_hrevolve_2020_is_the_printed_theorem() -> None:
    for seed in range(100):
        random = Random(seed)
        count, costs = random.randint(1, 3), random.choice([2, 6, 20])
        writes, reads = (sorted(random.randint(0, costs) for _ in range(count)) for _ in range(2))
        slots = [random.randint(1, 4) for _ in range(count)]
        levels = list(zip(slots, writes, reads, strict=True))
        steps, u_f = random.randint(1, 25), random.randint(1, 3)
        printed = theorem_2(steps - 1, levels, u_f=u_f, repaired=False)[-1]
        found = planned("hrevolve-2020", chain(steps, advance=u_f), platform(*levels))
        assert found == printed, f"seed {seed}"


@given(chains(), platforms(), st.randoms(use_true_random=False))
def test_the_order_in_which_levels_are_listed_does_not_matter(
    chain: Chain, platform: Platform, random: Random
) -> None:
    levels = list(platform.levels)
    random.shuffle(levels)
    shuffled = Platform(tuple(levels), platform.working_memory)
    assert planned("hrevolve", chain, shuffled) == planned("hrevolve", chain, platform)


def room(number: int, write: float, read: float) -> Space:
    return slots_of(str(number), number, 1, write=write, read=read)


def numbers(*given: Space) -> list[list[int]]:
    return sorted([room.number for room in order] for order in orders(given))


def test_a_level_comes_before_those_that_it_beats_in_both_costs() -> None:
    assert numbers(room(0, 1, 1), room(1, 2, 2), room(2, 2, 5)) == [[0, 1, 2]]
    assert numbers(room(0, 9, 9), room(1, 2, 2)) == [[1, 0]]
    assert numbers(room(0, 4, 4), room(1, 4, 4)) == [[0, 1]]
    assert numbers(room(0, 1, 5), room(1, 5, 1)) == [[0, 1], [1, 0]]
    assert numbers(room(0, 3, 3), room(1, 1, 9), room(2, 4, 4)) == [[0, 1, 2], [0, 2, 1], [1, 0, 2]]


def test_the_log_says_which_order_of_levels_was_used(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="ckio"):
        schedule = hrevolve(chain(30, advance=7), platform((2, 9, 9), (5, 1, 1)))
    assert caplog.messages == ["hrevolve: levels in the order level1, level0, of 1 tried"]
    assert [level.peak for level in counts(schedule).levels] == [2, 5]


def test_levels_whose_costs_cross_are_used_in_the_cheaper_order() -> None:
    quick_to_write, quick_to_read = (1, 0, 4), (1, 2, 0)
    one_way = planned("hrevolve", chain(8), platform(quick_to_write, quick_to_read))
    other_way = planned("hrevolve", chain(8), platform(quick_to_read, quick_to_write))
    searched = least_makespan(chain(8), platform(quick_to_write, quick_to_read))
    assert one_way == other_way == searched


def test_a_level_without_end_takes_no_more_slots_than_are_worth_their_cost() -> None:
    endless = hrevolve(chain(200), platform((3, 0, 0), (None, 40, 20)))
    needed = counts(endless).levels[1].peak
    assert 1 < needed < 30
    exactly = platform((3, 0, 0), (needed, 40, 20))
    assert makespan(endless, exactly) == planned("hrevolve", chain(200), exactly)


def test_a_cheap_level_with_room_for_every_state_holds_every_state() -> None:
    schedule = hrevolve(chain(500, advance=4), platform((None, 1, 1)))
    assert counts(schedule).forward == 2 * 500 - 1
    assert counts(schedule).levels[0].peak == 499


def test_costs_beyond_what_can_be_added_up_are_refused() -> None:
    for planner in PLANNERS.values():
        with pytest.raises(BadInput, match="too large to be added up"):
            planner(chain(3), platform((5, 1e308, 1e308)))


def test_decimal_costs_are_not_rounded() -> None:
    machine = platform((5, 0.05, 0.05), (50, 1, 1), (1000, 5, 5))
    plan = solve_states(chain(3000), machine, planner="hrevolve")
    schedule = hrevolve(chain(3000), machine)
    assert schedule.note == plan.note == "the least makespan by H-Revolve's recurrence"
    assert makespan(schedule, machine) == pytest.approx(plan.seconds, rel=1e-12)


def test_measured_costs_of_long_chains_are_rounded_and_the_note_says_so() -> None:
    machine = platform((5, 0.0137129, 0.0119), (50, 1.0383171, 0.7431), (99, 4.8173011, 6.0201))
    measured = chain(3000, advance=1.0007)
    schedule = hrevolve(measured, machine)
    assert "costs rounded to 0.001 s: at most 0.2% more" in schedule.note
    slots = [
        (space.slots, space.write, space.read)
        for space in restart_spaces(measured, machine, planner="hrevolve")
    ]
    exact = theorem_2_rows(2999, slots, u_f=measured.advance)
    exact += 3000 * (measured.record + measured.reverse)
    assert exact <= makespan(schedule, machine) * (1 + 1e-12) <= 1.002 * exact


def theorem_2_rows(length: int, levels: Sequence[tuple[int, float, float]], *, u_f: float) -> float:
    """The repaired theorem with real numbers, a row at a time."""
    below = np.append(0.0, np.full(length, np.inf))
    for slots, write, read in levels:
        outer, j = below, u_f * np.arange(1, length + 1)
        for _ in range(slots):
            stored = below.copy()
            for n in range(1, length + 1):
                splits = j[:n] + outer[n - 1 :: -1] + read + stored[:n]
                stored[n] = min(below[n], splits.min())
            after = np.minimum(below, write + stored)
            if (after == outer).all():
                break
            outer = after
        below = outer
    return float(below[-1])


@pytest.mark.parametrize("steps", [100, 2000])
def test_a_level_too_slow_to_be_of_use_takes_no_precision_from_the_others(steps: int) -> None:
    near, far = (2, 1, 1), (4, 1e17, 1e17)
    alone = planned("hrevolve", chain(steps), platform(near))
    assert planned("hrevolve", chain(steps), platform(near, far)) == alone


def test_a_level_that_is_needed_may_be_as_slow_as_it_likes() -> None:
    slow = platform((4, 1e17, 1e17))
    plan = solve_states(chain(5000), slow, planner="hrevolve")
    assert makespan(hrevolve(chain(5000), slow), slow) == pytest.approx(plan.seconds, 1e-9)
