"""The exhaustive search for overlapped schedules, against what is known in other ways."""

from dataclasses import replace
from itertools import product
from math import inf

import pytest
from oracles.overlapped import (
    TooLarge,
    least_by_rules,
    least_free,
    least_prompt,
    policies,
    tiny_cases,
)
from oracles.overlapped_states import Case, least_makespan
from planners.cases import completed, unit_chain

from ckio.actions import Discard, Key, Kind, Write
from ckio.errors import BadInput, NoSchedule
from ckio.planners.dp import hrevolve, mixed
from ckio.planners.overlap import overlapped
from ckio.planners.trivial import periodic, store_all
from ckio.platform import FREE, Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, makespan
from ckio.sim.engine import simulate

MOST = 1 << 20
"""States that are looked at; of the cases drawn some few have more."""


def named(chain: Chain, platform: Platform) -> list[Schedule]:
    schedules = list[Schedule]()
    for planner in (store_all, periodic, hrevolve, mixed):
        try:
            schedules.append(planner(chain, platform))
        except NoSchedule:
            continue
    return schedules


def check(chain: Chain, platform: Platform) -> bool:
    """Hold the searches of one case to one another, and to the simulator; was it searched?"""
    try:
        free = least_free(chain, platform, most=MOST)
        prompt = least_prompt(chain, platform, most=MOST)
    except TooLarge:
        return False
    assert free is not None
    assert prompt is not None
    for least in (free, prompt):
        completed(least.schedule, platform)
    assert free.makespan <= prompt.makespan
    others = named(chain, platform)
    reached = least_by_rules(chain, platform, *others, most=MOST)
    assert prompt.makespan <= reached.makespan
    timeline = simulate(reached.schedule, platform, overlap=reached.overlap)
    assert timeline.makespan == reached.makespan
    for schedule in (free.schedule, *others):
        for policy in policies(chain, platform)[::4]:
            assert simulate(schedule, platform, overlap=policy).makespan >= prompt.makespan
    made = overlapped(chain, platform)
    assert made.makespan is not None
    assert made.bound is not None
    assert made.bound - 1e-9 <= free.makespan <= prompt.makespan <= made.makespan
    # Half a second less is not possible: costs are whole, or halves.
    assert least_free(chain, platform, below=free.makespan, most=MOST) is None
    return True


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(7))
def test_fifty_cases_are_searched(seed: int) -> None:
    assert sum(check(*case) for case in tiny_cases(seed, 50)) >= 45


@pytest.mark.slow
def test_by_hand() -> None:
    chain = unit_chain(3, record=1, reverse=1)
    slow = Affine(latency=2)
    far = Level(name="far", capacity=9, write=slow, read=slow, backend="directory")
    platform = Platform((Level(name="ram", capacity=1), far), working_memory=1)
    # Memory holds one byte. The first tape is staged until second 3, the second one is in memory
    # until it is read at 5, when the first one comes back until 7, and its step is reversed.
    for search in (least_free, least_prompt):
        least = search(chain, platform)
        assert least is not None
        assert least.makespan == 8
    reached = least_by_rules(chain, platform)
    assert (reached.makespan, reached.proven) == (8, True)
    # With another byte the second tape waits for nothing, and the first one comes back meanwhile.
    ram = Level(name="ram", capacity=2)
    assert least_by_rules(chain, replace(platform, levels=(ram, far))).makespan == 6


@pytest.mark.slow
def test_where_far_levels_hold_nothing_it_is_the_least_without_overlap() -> None:
    for chain, platform in tiny_cases(0, 60):
        memory, *far = platform.levels
        none = tuple(replace(level, capacity=0) for level in far)
        alone = replace(platform, levels=(memory, *none))
        try:
            expected = makespan(mixed(chain, alone), alone)
        except NoSchedule:
            assert least_free(chain, alone) is None
            continue
        for search in (least_free, least_prompt):
            least = search(chain, alone)
            assert least is not None
            assert least.makespan == expected


@pytest.mark.slow
def test_without_tapes_it_is_what_the_search_for_states_finds() -> None:
    # There a state that was written may stay in memory, here it needs the room of another one.
    for near, read, write, length in product((1, 2), (1, 3), (1, 2, 5), (1, 2, 3, 4)):
        chain = unit_chain(length + 1, record=1, tape=9)
        far = Level(
            name="far",
            capacity=2,
            write=Affine(latency=write),
            read=Affine(latency=read),
            backend="directory",
        )
        platform = Platform((Level(name="ram", capacity=near), far), working_memory=9)
        least = least_free(chain, platform)
        assert least is not None
        assert least.makespan == least_makespan(Case(length, near, 2, write, read))


@pytest.mark.slow
def test_what_is_read_no_more_may_be_discarded_before_its_step_is_reversed() -> None:
    # A discard takes a second of the channel here. x_0 is discarded while step 0 is still to be
    # reversed, before the channel is given the tape of that step; kept longer, it would cost one.
    chain, platform = tiny_cases(1, 185)[184]
    free, prompt = least_free(chain, platform), least_prompt(chain, platform)
    assert free is not None
    assert prompt is not None
    assert free.makespan == prompt.makespan == 23
    x_0 = Key(Kind.RESTART, 0)
    actions = list(prompt.schedule.actions)
    assert actions.index(Discard(x_0, 1)) < actions.index(Write(Key(Kind.TAPE, 0), 1))


def test_what_is_not_tiny_is_refused() -> None:
    chain, platform = tiny_cases(1, 1)[0]
    with pytest.raises(BadInput, match="tiny"):
        least_free(replace(chain, steps=6), platform)
    with pytest.raises(BadInput, match="whole"):
        least_free(replace(chain, advance=0.3), platform)


@pytest.mark.slow
def test_what_takes_too_many_states_is_given_up() -> None:
    with pytest.raises(TooLarge):
        least_free(*tiny_cases(1, 4)[3], most=100)


def test_cases_are_tiny_and_the_same_every_time() -> None:
    assert tiny_cases(3, 30) == tiny_cases(3, 30) != tiny_cases(4, 30)
    chains, platforms = zip(*tiny_cases(3, 200), strict=True)
    assert {chain.steps for chain in chains} == {2, 3, 4, 5}
    assert {len(platform.levels) for platform in platforms} == {2, 3}
    assert any(platform.levels[1].discard != FREE for platform in platforms)
    assert max(level.capacity or inf for p in platforms for level in p.levels[:1]) < inf
