"""The simulator on schedules that can be reckoned by hand, and beside an independent replay."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.synchronous import replayed

from ckio.actions import Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.errors import IllegalAction
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.platform.profile import Profile
from ckio.schedule import Schedule, makespan
from ckio.schedule.policy import Overlap
from ckio.sim.engine import simulate
from ckio.testing.strategies import Case, untidy_schedules

CHAIN = Chain(steps=2, advance=1.0, record=1.5, reverse=2.5, restart=100, tape=50, adjoint=70)
NVME = Level(
    name="nvme",
    capacity=100,
    write=Affine(0.5, 0.01),
    read=Affine(0.25, 0.005),
    discard=Affine(0.125),
)
PLATFORM = Platform((NVME,), working_memory=50)
X0 = Key(Kind.RESTART, 0)
SCHEDULE = Schedule(
    CHAIN,
    [
        Write(X0, 0),
        Advance(0, 1),
        Record(1, 2),
        Reverse(1, 2),
        Read(X0, 0),
        Discard(X0, 0),
        Record(0, 1),
        Reverse(0, 1),
    ],
)


def test_each_action_starts_when_the_one_before_it_stops() -> None:
    timeline = simulate(SCHEDULE, PLATFORM)
    assert timeline.stop.tolist() == [1.5, 2.5, 4.0, 6.5, 7.25, 7.375, 8.875, 11.375]
    assert timeline.start.tolist() == [0.0, *timeline.stop[:-1].tolist()]
    assert timeline.makespan == makespan(SCHEDULE, PLATFORM) == 11.375


def test_accesses_move_bytes_and_computing_moves_none() -> None:
    assert simulate(SCHEDULE, PLATFORM).nbytes.tolist() == [100, 0, 0, 0, 100, 0, 0, 0]


def test_a_level_that_compresses_moves_what_it_stores() -> None:
    level = Level(name="nvme", capacity=100, ratio=0.25)
    assert simulate(SCHEDULE, Platform((level,), 50)).nbytes.max() == 25


def test_an_illegal_schedule_is_refused() -> None:
    with pytest.raises(IllegalAction, match=r"#1 Advance\[0, 1\)"):
        simulate(Schedule(CHAIN, [Advance(0, 1), Advance(0, 1)]), PLATFORM)


def test_a_schedule_without_actions_takes_no_time() -> None:
    assert simulate(Schedule(CHAIN, []), PLATFORM).makespan == 0.0


@given(untidy_schedules())
def test_the_clock_shows_the_sum_of_the_costs_to_the_last_bit(case: Case) -> None:
    timeline = simulate(*case)
    assert timeline.makespan == makespan(*case)
    assert timeline.start.tolist() == [0.0, *timeline.stop.tolist()][: len(timeline)]


def test_levels_that_share_a_channel_are_no_slower_while_the_program_waits_for_each() -> None:
    ram = Level(name="ram", channel="bus", write=Affine(0.5))
    shared = Platform((replace(NVME, channel="bus"), ram), 50)
    actions = [Write(X0, 0), Write(X0, 1), Advance(0, 1)]
    assert simulate(Schedule(CHAIN, actions), shared).stop.tolist() == [1.5, 2.0, 3.0]


@given(untidy_schedules(), st.integers(0, 2**32).map(Random))
def test_the_sum_is_what_a_replay_by_processes_finds(case: Case, random: Random) -> None:
    schedule, platform = case
    factors = np.array([random.uniform(0.5, 2) for _ in schedule.actions])
    levels = tuple(
        replace(
            level,
            profile=Profile(dirty=random.randint(0, 30), drained=random.uniform(0.5, 9.0)),
        )
        if random.random() < 0.5
        else level
        for level in platform.levels
    )
    cached = replace(platform, levels=levels)
    assert simulate(schedule, platform) == replayed(schedule, platform)
    assert simulate(schedule, cached) == replayed(schedule, cached)
    expected = replayed(schedule, cached, factors=factors)
    assert simulate(schedule, cached, factors=factors) == expected


@pytest.mark.parametrize(("overlap", "often"), [(Overlap(), 1), (Overlap(1), 3)])
def test_a_watcher_hears_how_many_more_actions_are_done(overlap: Overlap, often: int) -> None:
    steps = 40_000
    schedule = Schedule(CHAIN.with_steps(steps), [Advance(i, i + 1) for i in range(steps)])
    heard: list[int] = []
    simulate(schedule, PLATFORM, overlap=overlap, watch=heard.append)
    assert len(heard) == often
    assert sum(heard) == steps
