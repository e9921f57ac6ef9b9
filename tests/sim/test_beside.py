"""What a level's profile says: transfers beside the computation, and bytes that wait."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replayed import Replay

from ckio.actions import Action, Advance, Discard, Key, Kind, Read, Write
from ckio.actions.columns import DISCARD, REVERSE
from ckio.backends.ram import Ram
from ckio.overlap.prices import Backlog
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.platform.clock import VirtualClock
from ckio.platform.profile import Profile
from ckio.runner import run
from ckio.schedule import Schedule, makespan, seconds_of
from ckio.schedule.policy import Overlap
from ckio.schedule.timeline import Timeline
from ckio.sim.engine import simulate
from ckio.testing import CountingModel, Throttled
from ckio.testing.strategies import Case, random_complete, random_legal

X0, X2 = Key(Kind.RESTART, 0), Key(Kind.RESTART, 2)
CHAIN = Chain(steps=4, advance=1.0, record=1.5, reverse=2.5, restart=10, tape=7, adjoint=3)
RAM = Level(name="ram", capacity=100, write=Affine(0.5), read=Affine(0.25))
LOSS = Affine(0.25, 0.0125)
MEASURED = Profile(
    write_beside=Affine(2.0, 0.5),
    read_beside=Affine(3.0),
    write_hinders=LOSS,
    read_hinders=LOSS,
    discard_hinders=LOSS,
)
DISK = Level(
    name="disk", backend="directory", write=Affine(4.0), read=Affine(1.0), profile=MEASURED
)
TAPE = Level(name="tape", backend="directory", write=Affine(9.0), read=Affine(10.0))
PLATFORM = Platform((RAM, DISK, TAPE))


def of(timeline: Timeline) -> list[tuple[float, float]]:
    return list(zip(timeline.start.tolist(), timeline.stop.tolist(), strict=True))


def both(
    actions: list[Action], overlap: Overlap, stored: list[set[Key]] | None = None
) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """From when to when each action goes on, and each transfer."""
    timeline = simulate(Schedule(CHAIN, actions, stored or []), PLATFORM, overlap=overlap)
    return of(timeline), of(timeline.transfers)


def test_a_write_behind_takes_its_own_price_and_puts_off_what_it_begins_beside() -> None:
    done, moved = both([Write(X0, 1), Advance(0, 2), Advance(2, 3)], Overlap(1))
    assert moved == [(0.5, 7.5)]  # 2 seconds, and half a second for each of 10 bytes
    assert done == [(0.0, 0.5), (0.5, 2.875), (2.875, 3.875)]  # 0.375 are lost, once


def test_a_direct_write_takes_the_price_of_one_alone() -> None:
    done, moved = both([Write(X0, 1), Advance(0, 2)], Overlap(0, 1))
    assert (done, moved) == ([(0.0, 4.0), (4.0, 6.0)], [(0.0, 4.0)])


def test_nothing_is_lost_by_a_transfer_that_begins_after_the_end() -> None:
    assert both([Write(X0, 1)], Overlap(1)) == ([(0.0, 0.5)], [(0.5, 7.5)])


def test_a_read_ahead_takes_its_own_price_too() -> None:
    done, moved = both([Advance(0, 2), Advance(2, 4), Read(X0, 1)], Overlap(0, 1), [set(), {X0}])
    assert moved == [(0.0, 3.0)]
    assert done == [(0.0, 2.375), (2.375, 4.375), (4.375, 4.625)]


def test_nothing_is_lost_while_the_program_waits() -> None:
    actions = [Write(X0, 1), Advance(0, 2), Write(X2, 1), Read(X0, 2)]
    done, moved = both(actions, Overlap(2), [set(), set(), {X0}])
    # The second write begins when the first has ended, while the program waits for the tape.
    assert moved == [(0.5, 7.5), (3.375, 13.375), (7.5, 14.5)]
    assert done[1:] == [(0.5, 2.875), (2.875, 3.375), (3.375, 13.375)]


def test_several_that_begin_together_add_up() -> None:
    tape = replace(TAPE, profile=Profile(read_hinders=Affine(1.0)))
    schedule = Schedule(
        CHAIN, [Advance(0, 2), Advance(2, 4), Read(X0, 1), Read(X0, 2)], [set(), {X0}, {X0}]
    )
    timeline = simulate(schedule, Platform((RAM, DISK, tape)), overlap=Overlap(0, 2))
    assert of(timeline)[0] == (0.0, 2.0 + 0.375 + 1.0)
    assert of(timeline.transfers) == [(0.0, 3.0), (0.0, 10.0)]


def test_a_discard_hinders_too() -> None:
    done, moved = both([Discard(X0, 1), Advance(0, 1)], Overlap(1), [set(), {X0}])
    assert moved == [(0.0, 0.0)]
    assert done == [(0.0, 0.0), (0.0, 1.375)]


def test_what_the_program_does_itself_has_a_price_of_its_own() -> None:
    disk = replace(DISK, profile=Profile(write_own=Affine(0.75), read_own=Affine(0.0, 0.125)))
    schedule = Schedule(CHAIN, [Write(X0, 1), Advance(0, 3), Read(X0, 1)])
    timeline = simulate(schedule, Platform((RAM, disk)), overlap=Overlap(1))
    assert of(timeline) == [(0.0, 0.75), (0.75, 3.75), (3.75, 5.0)]  # it is staged to 4.75


def test_with_overlap_whatever_the_program_does_itself_has_its_overhead() -> None:
    actions = [Write(X0, 0), Write(X0, 1), Advance(0, 2), Read(X0, 0), Read(X0, 1), Discard(X0, 0)]
    schedule = Schedule(CHAIN, actions)
    platform = Platform((RAM, replace(DISK, profile=None)), overhead=0.125)
    timeline = simulate(schedule, platform, overlap=Overlap(1))
    # The write to the disk ends at 5.125; till then it is read from where it is staged.
    assert of(timeline) == [
        (0.0, 0.625),
        (0.625, 1.125),
        (1.125, 3.25),
        (3.25, 3.625),
        (3.625, 3.875),
        (3.875, 4.0),
    ]
    assert simulate(schedule, platform) == simulate(schedule, replace(platform, overhead=0.0))


def test_who_waits_for_a_transfer_is_told_later() -> None:
    disk = replace(DISK, profile=Profile(handoff=Affine(0.5, 0.0125)))
    schedule = Schedule(CHAIN, [Write(X0, 1), Advance(0, 1), Read(X0, 1), Advance(0, 1)])
    timeline = simulate(schedule, Platform((RAM, disk)), overlap=Overlap(0, 1))
    assert of(timeline) == [(0.0, 4.625), (4.625, 5.625), (5.625, 5.875), (5.875, 6.875)]
    assert of(timeline.transfers) == [(0.0, 4.0), (4.625, 5.625)]  # read ahead: nobody waited


def test_what_begins_while_the_end_is_put_off_puts_it_off_again() -> None:
    profile = Profile(
        write_beside=Affine(0.25), write_hinders=Affine(0.0, 0.2), read_hinders=Affine(0.0, 0.2)
    )
    disk = replace(DISK, profile=profile, discard=Affine(1.0))
    schedule = Schedule(CHAIN, [Write(X0, 1), Advance(0, 1), Discard(X0, 1), Advance(1, 2)])
    # Two reads on two channels; the second channel is busy with a discard at first.
    timeline = simulate(schedule, Platform((RAM, disk)), overlap=Overlap(1))
    assert of(timeline) == [(0.0, 0.5), (0.5, 3.5), (3.5, 3.5), (3.5, 4.5)]
    x3 = Key(Kind.RESTART, 3)
    late = Schedule(
        CHAIN, [Discard(X0, 1), Advance(0, 2), Read(x3, 2), Read(X2, 1)], [set(), {X0, X2}, {x3}]
    )
    tape = replace(TAPE, profile=Profile(read_hinders=Affine(0.5)))
    slow = replace(disk, discard=Affine(2.25))  # the read from the disk begins at 2.25
    timeline = simulate(late, Platform((RAM, slow, tape)), overlap=Overlap(0, 2))
    assert of(timeline)[1] == (0.0, 2.0 + 0.5 + 2.0)


# Any schedule


def measured(random: Random, platform: Platform) -> Platform:
    """No two instants are the same, nothing is free, and levels are as their profiles say."""

    def price() -> Affine:
        return Affine(random.uniform(0.1, 3), random.uniform(0, 0.5))

    levels = []
    for number, level in enumerate(platform.levels):
        profile = Profile(
            write_beside=random.choice((None, price())),
            read_beside=random.choice((None, price())),
            write_own=random.choice((None, price())),
            read_own=random.choice((None, price())),
            write_hinders=Affine(random.uniform(0, 0.5)),
            read_hinders=Affine(random.uniform(0, 0.5)),
            discard_hinders=Affine(random.uniform(0, 0.5)),
        )
        prices = {access: price() for access in ("write", "read", "discard")}
        backend = "directory" if number else "ram"
        levels.append(replace(level, **prices, backend=backend, ratio=1.0, profile=profile))
    return replace(platform, levels=tuple(levels))


def case(random: Random) -> tuple[Case, Overlap]:
    schedule, platform = random.choice((random_complete, random_legal))(random, most_levels=4)
    chain = schedule.chain
    if not chain.varies:
        chain = replace(chain, **{name: random.uniform(0.2, 3) for name in ("advance", "record")})
    levels = [
        replace(level, capacity=None if level.capacity is None else 2 * level.capacity)
        for level in platform.levels
    ]
    platform = replace(platform, levels=tuple(levels))
    schedule = Schedule(chain, schedule.actions, schedule.stored)
    counts = (0, 1, 2, None)
    return (schedule, measured(random, platform)), Overlap(
        random.choice(counts), random.choice(counts)
    )


RANDOMS = st.integers(0, 2**32).map(Random)


@settings(max_examples=60)
@given(RANDOMS)
def test_each_action_is_longer_by_what_begins_beside_it(random: Random) -> None:
    (schedule, platform), overlap = case(random)
    if not overlap or not platform.levels:
        return
    timeline = simulate(schedule, platform, overlap=overlap)
    replay, costs = Replay(schedule, platform, overlap, timeline), seconds_of(schedule, platform)
    begun: list[tuple[float, float]] = []
    for row, access in replay.accesses.items():
        assert access.transfer is not None
        action = access.event.action
        assert isinstance(action, Write | Read | Discard)
        level, nbytes = platform.levels[action.level], 0
        assert level.profile is not None
        took = access.transfer.stop - access.transfer.start
        direct = (
            access.transfer.start >= access.event.start
            if isinstance(action, Read)
            else access.transfer.start < access.event.stop
        )
        if isinstance(action, Discard) or direct:
            assert took == pytest.approx(costs[row])
            if isinstance(action, Discard):
                begun.append((access.transfer.start, level.profile.discard_hinders(0)))
            continue
        nbytes = schedule.chain.nbytes(action.key)
        profile = level.profile
        beside, loss = (
            (profile.write_beside, profile.write_hinders)
            if isinstance(action, Write)
            else (profile.read_beside, profile.read_hinders)
        )
        assert took == pytest.approx(costs[row] if beside is None else beside(nbytes))
        begun.append((access.transfer.start, loss(nbytes)))
    for row in np.flatnonzero((schedule.actions.op <= REVERSE) & (costs > 0)).tolist():
        start, stop = timeline.start[row], timeline.stop[row]
        lost = sum(seconds for at, seconds in begun if start <= at < stop)
        assert stop - start == pytest.approx(costs[row] + lost)


@settings(max_examples=40)
@given(RANDOMS)
def test_a_profile_that_says_nothing_changes_nothing(random: Random) -> None:
    (schedule, platform), overlap = case(random)
    plain, empty = (
        replace(
            platform, levels=tuple(replace(level, profile=profile) for level in platform.levels)
        )
        for profile in (None, Profile())
    )
    assert simulate(schedule, plain, overlap=overlap) == simulate(schedule, empty, overlap=overlap)


# Bytes that wait


def test_a_backlog_takes_what_it_may_and_then_makes_wait() -> None:
    backlog = Backlog(100, 10.0)
    assert backlog.longer(0.0, 100) == 0.0
    assert backlog.longer(0.0, 150) == 5.0
    backlog.add(2.0, 80)
    assert backlog.longer(2.0, 20) == 0.0
    assert backlog.longer(3.0, 50) == (70 + 50 - 100) / 10
    backlog.add(4.0, 50)  # 60 and 50 wait
    assert backlog.longer(5.0, 10) == 1.0
    assert backlog.longer(90.0, 110) == 1.0  # all is on the device


DIRTY = replace(DISK, profile=Profile(dirty=15, drained=2.0), discard=Affine(1.0))


def test_a_write_waits_where_too_many_bytes_do() -> None:
    platform = Platform((DIRTY,))
    schedule = Schedule(
        CHAIN, [Write(X0, 0), Advance(0, 2), Write(X2, 0), Read(X0, 0), Discard(X2, 0)]
    )
    # At 4 ten bytes wait, at 6 six: then one too many does, for half a second.
    assert simulate(schedule, platform).stop.tolist() == [4.0, 6.0, 10.5, 11.5, 12.5]
    assert makespan(schedule, platform) == 12.0


def test_transfers_behind_wait_for_the_device_too() -> None:
    schedule = Schedule(CHAIN, [Write(X0, 1), Advance(0, 2), Write(X2, 1), Advance(2, 3)])
    timeline = simulate(schedule, Platform((RAM, DIRTY)), overlap=Overlap(2))
    assert of(timeline) == [(0.0, 0.5), (0.5, 2.5), (2.5, 3.0), (3.0, 4.0)]
    assert of(timeline.transfers) == [(0.5, 4.5), (4.5, 4.5 + 4.0 + (10 + 10 - 15) / 2)]


@settings(max_examples=40)
@given(RANDOMS)
def test_a_run_without_overlap_waits_as_it_is_simulated(random: Random) -> None:
    schedule, platform = random_complete(random)
    levels = tuple(
        replace(
            level,
            ratio=1.0,
            capacity=None,
            profile=Profile(dirty=random.randint(0, 30), drained=random.uniform(0.5, 9.0))
            if random.random() < 0.7
            else None,
        )
        for level in platform.levels
    )
    platform = replace(platform, levels=levels)
    clock = VirtualClock()
    model = CountingModel(schedule.chain, clock)
    backends = [Throttled(Ram(), level, clock) for level in levels]
    for number, keys in enumerate(schedule.stored):
        for key in keys:
            backends[number]._backend.write(key, model.layout(key), [model._bytes(key).data])
    expected = simulate(schedule, platform)
    assert run(schedule, platform, model, backends, clock=clock) == expected
    assert expected.makespan >= makespan(schedule, platform)
    spent = seconds_of(schedule, platform)
    longer = (expected.stop - expected.start) - spent > 1e-9
    assert not longer[schedule.actions.op <= REVERSE].any()
    assert not longer[schedule.actions.op == DISCARD].any()
