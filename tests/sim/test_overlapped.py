"""The simulator with overlap: what is true of every timeline that it gives."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from math import inf
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replayed import Replay

from ckio.actions import Discard, Key, Kind, Read, Write
from ckio.actions.columns import READ, REVERSE, WRITE
from ckio.errors import IllegalAction
from ckio.planners.hrevolve import hrevolve
from ckio.planners.literature import disk_revolve, multistage
from ckio.planners.mixed import mixed
from ckio.planners.stored import finish
from ckio.platform import FREE, Affine, Level, Platform, memory_level
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, makespan, seconds_of
from ckio.schedule.policy import Overlap
from ckio.schedule.timeline import Timeline
from ckio.sim.engine import simulate
from ckio.sim.overlapped import simulate as simulate_overlapped
from ckio.testing.strategies import Case, random_complete, random_legal, random_stored

PLANNERS = (hrevolve, mixed, multistage, disk_revolve)


def overlap(random: Random) -> Overlap:
    """Any policy."""
    counts = (0, 1, 1, 2, 3, None)
    return Overlap(random.choice(counts), random.choice(counts), random.choice((inf, inf, 0, 4, 9)))


def priced(random: Random, platform: Platform, *, free: bool = False) -> Platform:
    """Other costs and channels for the same levels; the first is memory, or none is.

    Transfers to and from far levels take some time, if they are not free.
    """
    levels = []
    for number, level in enumerate(platform.levels):
        near = number == 0 and random.random() < 0.85
        least = 0 if near else 1
        write, read = (
            Affine(random.randint(least, 9), random.choice((0, 0.25, 1))) for _ in range(2)
        )
        levels.append(
            replace(
                level,
                backend="ram" if near else "directory",
                channel=random.choice((level.name, "bus")),
                write=FREE if free and not near else write,
                read=FREE if free and not near else read,
                discard=FREE if free else Affine(random.randint(0, 3)),
            )
        )
    return replace(platform, levels=tuple(levels))


def planned(random: Random) -> Case:
    """What a planner makes of a chain whose steps are alike, on two to four levels."""
    seconds = (float(random.randint(0, 6)) for _ in range(3))
    sizes = (random.randint(1, 8) for _ in range(3))
    names = ("advance", "record", "reverse", "restart", "tape", "adjoint")
    costs = dict(zip(names, (*seconds, *sizes), strict=True))
    chain = Chain(steps=random.randint(1, 24), **costs)  # type: ignore[arg-type]
    rooms = [random.randint(1, 40) for _ in range(random.randint(1, 3))]
    levels = tuple(
        Level(
            name=f"level{number}",
            capacity=room,
            write=Affine(random.randint(0, 5)),
            read=Affine(random.randint(0, 5)),
        )
        for number, room in enumerate([*rooms, None])
    )
    platform = Platform(levels, working_memory=chain.largest("tape") * random.randint(1, 3))
    if random.random() < 0.25:
        stored = list(random_stored(random, chain, platform))
        stored[-1] |= {Key(Kind.RESTART, 0)}
        return finish(chain, platform, stored), platform
    return random.choice(PLANNERS)(chain, platform), platform


def case(random: Random, *, free: bool = False) -> Case:
    """A legal schedule from anywhere, on two to four levels."""
    make = random.choice((planned, random_complete, random_legal))
    schedule, platform = make(random) if make is planned else make(random, most_levels=4)
    return schedule, priced(random, platform, free=free)


RANDOMS = st.integers(0, 2**32).map(Random)


def computing(schedule: Schedule, platform: Platform) -> float:
    return float(seconds_of(schedule, platform)[schedule.actions.op <= REVERSE].sum())


@settings(max_examples=150)
@given(RANDOMS)
def test_a_replay_of_its_events_finds_every_rule_kept(random: Random) -> None:
    (schedule, platform), policy = case(random), overlap(random)
    timeline = simulate_overlapped(schedule, platform, policy)
    Replay(schedule, platform, policy, timeline).check()


@pytest.mark.slow
def test_a_replay_of_five_thousand_finds_every_rule_kept() -> None:
    for seed in range(5_000):
        random = Random(seed)
        (schedule, platform), policy = case(random), overlap(random)
        timeline = simulate_overlapped(schedule, platform, policy)
        Replay(schedule, platform, policy, timeline).check()


@settings(max_examples=40)
@given(RANDOMS)
def test_no_resource_works_longer_than_the_makespan(random: Random) -> None:
    schedule, platform = case(random)
    timeline = simulate_overlapped(schedule, platform, overlap(random))
    busy: dict[str, float] = defaultdict(float)
    for event in timeline.transfers:
        assert isinstance(event.action, Write | Read | Discard)
        busy[platform.levels[event.action.level].channel] += event.stop - event.start
    assert timeline.makespan >= max([computing(schedule, platform), *busy.values()])


@settings(max_examples=40)
@given(RANDOMS)
def test_overlap_costs_at_most_the_copies_that_it_makes(random: Random) -> None:
    """While the program waits a transfer goes on, each at most once; so only copies can cost."""
    (schedule, platform), policy = case(random), overlap(random)
    timeline = simulate_overlapped(schedule, platform, policy)
    copies = sum(_copies(schedule, platform, policy, timeline))
    assert timeline.makespan <= makespan(schedule, platform) + copies


def _copies(
    schedule: Schedule, platform: Platform, policy: Overlap, timeline: Timeline
) -> Iterator[float]:
    replay = Replay(schedule, platform, policy, timeline)
    for stays in replay.stays.values():
        for stay in stays:
            if stay.write is not None and stay.staged:
                yield replay._copy(stay.write.event.action)
            for access in stay.reads:
                moved = access.transfer
                if moved is None or moved.start < access.event.start:
                    yield replay._copy(access.event.action)


@settings(max_examples=40)
@given(RANDOMS)
def test_where_far_levels_and_copies_are_free_nothing_changes_but_the_order(random: Random) -> None:
    schedule, platform = case(random, free=True)
    memory = memory_level(platform)
    if memory is not None:
        free = replace(platform.levels[0], write=FREE, read=FREE)
        platform = replace(platform, levels=(free, *platform.levels[1:]))
    timeline = simulate_overlapped(schedule, platform, overlap(random))
    assert timeline.makespan == makespan(schedule, platform)


@settings(max_examples=40)
@given(RANDOMS)
def test_without_overlap_it_is_the_synchronous_timeline_to_the_last_bit(random: Random) -> None:
    schedule, platform = case(random)
    assert simulate(schedule, platform, overlap=Overlap()) == simulate(schedule, platform)


@settings(max_examples=40)
@given(RANDOMS)
def test_the_same_rules_without_any_overlap_leave_only_discards_behind(random: Random) -> None:
    schedule, platform = case(random)
    levels = tuple(replace(level, discard=FREE) for level in platform.levels)
    platform = replace(platform, levels=levels)
    plain = simulate(schedule, platform)
    timeline = simulate_overlapped(schedule, platform, Overlap())
    assert np.array_equal(timeline.start, plain.start)
    assert np.array_equal(timeline.stop, plain.stop)


@settings(max_examples=40)
@given(RANDOMS)
def test_bytes_are_moved_once_by_the_program_or_by_a_channel(random: Random) -> None:
    (schedule, platform), policy = case(random), overlap(random)
    timeline = simulate_overlapped(schedule, platform, policy)
    plain = simulate(schedule, platform)
    near = timeline.nbytes > 0
    assert np.array_equal(timeline.nbytes[near], plain.nbytes[near])
    replay = Replay(schedule, platform, policy, timeline)
    for row, access in replay.accesses.items():
        assert access.transfer is not None
        assert access.transfer.nbytes == plain.nbytes[row]
        assert timeline.nbytes[row] == 0


def test_an_illegal_schedule_is_refused() -> None:
    (schedule, platform) = planned(Random(1))
    twice = Schedule(schedule.chain, [*schedule.actions, *schedule.actions])
    with pytest.raises(IllegalAction):
        simulate(twice, platform, overlap=Overlap(1, 1))


def test_a_watcher_hears_of_every_action() -> None:
    chain = Chain(steps=9_000, advance=1.0, record=1.0, reverse=1.0, restart=1, tape=1, adjoint=1)
    levels = (Level(name="ram", capacity=20), Level(name="far", backend="directory"))
    schedule = hrevolve(chain, Platform(levels, working_memory=1))
    heard: list[int] = []
    simulate(schedule, Platform(levels, 1), overlap=Overlap(1, 1), watch=heard.append)
    assert len(heard) > 2
    assert sum(heard) == len(schedule)


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
