"""The simulator on schedules that can be reckoned by hand."""

from dataclasses import replace

import numpy as np
import pytest

from ckio.actions import Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.actions.columns import READ, WRITE
from ckio.errors import IllegalAction
from ckio.planners.dp import hrevolve
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, makespan
from ckio.schedule.policy import Overlap
from ckio.sim import engine
from ckio.sim.engine import simulate

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


def test_accesses_move_the_bytes_that_are_stored_and_computing_moves_none() -> None:
    for ratio in (1.0, 0.25):
        platform = Platform((replace(NVME, ratio=ratio),), 50)
        moved = int(100 * ratio)
        assert simulate(SCHEDULE, platform).nbytes.tolist() == [moved, 0, 0, 0, moved, 0, 0, 0]


@pytest.mark.parametrize("overlap", [Overlap(), Overlap(1, 1)])
def test_an_illegal_schedule_is_refused_and_an_empty_one_takes_no_time(overlap: Overlap) -> None:
    with pytest.raises(IllegalAction, match=r"#1 Advance\[0, 1\)"):
        simulate(Schedule(CHAIN, [Advance(0, 1)] * 2), PLATFORM, overlap=overlap)
    assert simulate(Schedule(CHAIN, []), PLATFORM, overlap=overlap).makespan == 0.0


def test_most_of_what_storage_costs_is_hidden_on_the_papers_machine() -> None:
    chain = Chain(steps=500, advance=1.0, record=0.0, reverse=1.0, restart=1, tape=1, adjoint=1)
    far = Level(name="disk", backend="directory", write=Affine(5.0), read=Affine(5.0))
    platform = Platform((Level(name="ram", capacity=20), far), working_memory=1)
    schedule = hrevolve(chain, platform)
    assert (schedule.actions.op[schedule.actions.level == 1] == READ).any()
    plain, hidden = makespan(schedule, platform), simulate(schedule, platform, overlap=Overlap(1))
    busy = hidden.transfers.stop - hidden.transfers.start
    stored = busy[hidden.transfers.actions.op == WRITE].sum()
    assert hidden.makespan < plain - 0.9 * stored


@pytest.mark.parametrize("overlap", [Overlap(), Overlap(1)])
def test_a_watcher_hears_how_many_more_actions_are_done(overlap: Overlap) -> None:
    steps = 40_000
    schedule = Schedule(CHAIN.with_steps(steps), [Advance(i, i + 1) for i in range(steps)])
    heard: list[int] = []
    simulate(schedule, PLATFORM, overlap=overlap, watch=heard.append)
    assert len(heard) == 3
    assert sum(heard) == steps


def test_the_sum_that_stands_for_a_long_replay_is_equal_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = 2000
    chain = replace(CHAIN.with_steps(steps), advance=1 / 3, record=0.1 / 7, reverse=1e-9)
    platform = Platform((replace(NVME, capacity=2000),), working_memory=50)
    schedule = hrevolve(chain, platform)
    replayed = simulate(schedule, platform)
    monkeypatch.setattr(engine, "MOST_REPLAYED", 0)
    monkeypatch.setattr(engine, "_replayed", None)
    summed = simulate(schedule, platform)
    assert np.array_equal(replayed.start, summed.start)
    assert np.array_equal(replayed.stop, summed.stop)
    assert summed.makespan == makespan(schedule, platform)
