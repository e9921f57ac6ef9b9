"""What lies on the levels over time is what the Machine holds."""

import numpy as np
from drawing import Case, legal_schedules
from hypothesis import given

from ckio.actions import Advance, Discard, Key, Kind, Read, Write
from ckio.actions.columns import Actions
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule
from ckio.schedule.machine import Machine
from ckio.schedule.occupancy import BEFORE, Lifetimes, accesses, occupancies, waits
from ckio.schedule.policy import Overlap
from ckio.schedule.timeline import Timeline
from ckio.sim.engine import simulate

X0, X2 = Key(Kind.RESTART, 0), Key(Kind.RESTART, 2)
CHAIN = Chain(steps=4, advance=1.0, record=1.5, reverse=2.5, restart=10, tape=7, adjoint=3)


def spaced(schedule: Schedule) -> Timeline:
    """Action k from k to k + 0.5: at k + 0.75 it is over and the next has not begun."""
    start = np.arange(len(schedule), dtype=np.float64)
    return Timeline(schedule.actions, start, start + 0.5, np.zeros(len(schedule), np.int64))


def test_a_stay_lasts_from_its_write_to_its_discard() -> None:
    stays = Lifetimes.of(
        Actions.of(
            [Write(X0, 0), Advance(0, 2), Write(X2, 1), Discard(X0, 0), Read(X2, 1), Write(X2, 0)]
        )
    )
    assert list(stays.named) == [Write(X0, 0), Write(X2, 1), Write(X2, 0)]
    assert stays.written.tolist() == [0, 2, 5]
    assert stays.discarded.tolist() == [3, 6, 6]


def test_a_key_may_come_again() -> None:
    stays = Lifetimes.of(Actions.of([Write(X0, 0), Discard(X0, 0), Write(X0, 0), Discard(X0, 0)]))
    assert stays.written.tolist() == [0, 2]
    assert stays.discarded.tolist() == [1, 3]


def test_what_is_read_but_was_never_written_lay_there_before() -> None:
    stays = Lifetimes.of(Actions.of([Read(X2, 1), Write(X2, 0), Discard(X2, 1)]))
    assert stays.written.tolist() == [BEFORE, 1]
    assert stays.discarded.tolist() == [2, 3]


def test_a_schedule_without_storage_has_no_stays() -> None:
    assert len(Lifetimes.of(Actions.of([Advance(0, 2)])).written) == 0
    assert len(Lifetimes.of(Actions.of([])).written) == 0


def test_room_is_taken_when_a_write_starts_and_freed_when_a_discard_stops() -> None:
    timeline = Timeline(
        Actions.of([Write(X0, 0), Advance(0, 2), Discard(X0, 0)]),
        np.array([1.0, 2.0, 4.0]),
        np.array([2.0, 4.0, 4.5]),
        np.array([10, 0, 0]),
    )
    (occupancy,) = occupancies(timeline, CHAIN, Platform((Level(name="ram", ratio=0.5),)))
    assert occupancy.times.tolist() == [0.0, 1.0, 4.5]
    assert occupancy.nbytes.tolist() == [0, 5, 0]
    assert (occupancy.peak_checkpoints, occupancy.peak_bytes) == (1, 5)


@given(legal_schedules())
def test_a_level_is_as_full_as_the_machine_says(case: Case) -> None:
    schedule, platform = case
    named = {(a.key, a.level) for a in schedule.actions if isinstance(a, Write | Read | Discard)}
    seen = [
        frozenset(key for key in keys if (key, level) in named)
        for level, keys in enumerate(schedule.stored)
    ]
    machine = Machine(schedule.chain, platform, seen)
    full = occupancies(spaced(schedule), schedule.chain, platform)
    for place, action in enumerate(schedule.actions):
        machine.apply(action)
        for level, occupancy in enumerate(full):
            now = np.searchsorted(occupancy.times, place + 0.75) - 1
            assert occupancy.nbytes[now] == machine.used[level]
            assert occupancy.checkpoints[now] == len(machine.stored[level])


DISK = Level(name="disk", backend="directory", write=Affine(4.0), discard=Affine(0.5))
MOVED = simulate(
    Schedule(
        CHAIN,
        [
            *(Write(X0, 1), Write(X0, 0), Advance(0, 2), Write(X2, 1), Discard(X2, 1)),
            *(Advance(2, 3), Discard(X0, 0), Discard(X0, 1)),
        ],
    ),
    Platform((Level(name="ram"), DISK)),
    overlap=Overlap(2),
)


def test_with_overlap_a_checkpoint_lies_where_its_transfer_has_brought_it() -> None:
    ram, disk = occupancies(MOVED, CHAIN, Platform((Level(name="ram"), DISK)))
    assert (ram.times.tolist(), ram.nbytes.tolist()) == ([0, 0, 3], [0, 10, 0])
    assert (disk.times.tolist(), disk.nbytes.tolist()) == ([0, 0, 4.5], [0, 10, 0])
    assert disk.peak_checkpoints == 1  # x_2 was cancelled


def test_what_is_done_for_a_level_is_found_in_the_program_or_in_its_transfers() -> None:
    platform = Platform((Level(name="ram"), DISK))
    assert list(accesses(MOVED, platform, 0)) == [MOVED[1], MOVED[6]]
    assert accesses(MOVED, platform, 1) == MOVED.transfers
    plain = simulate(Schedule(CHAIN, MOVED.actions), platform)
    assert [event.start for event in accesses(plain, platform, 1)] == [0, 6, 10, 11.5]


def test_what_the_program_waits_for_takes_it_some_time() -> None:
    platform = Platform((Level(name="ram"), DISK))
    assert len(waits(MOVED, platform)) == 0
    actions = [Write(X0, 1), Advance(0, 2), Write(X2, 1)]
    timeline = simulate(Schedule(CHAIN, actions), platform, overlap=Overlap(1))
    assert [(e.start, e.stop) for e in waits(timeline, platform)] == [(2, 4)]
