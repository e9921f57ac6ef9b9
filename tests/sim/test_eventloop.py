"""The simulator with overlap, against an event loop that was written from its rules in words."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import inf
from random import Random
from typing import Any

import pytest
from drawing import Case, random_complete, random_legal, random_stored
from oracles.eventloop import EventLoop, synchronous

from ckio.actions import Discard, Key, Kind, Read, Write
from ckio.planners.base import Planner
from ckio.planners.dp import hrevolve, mixed
from ckio.planners.literature import disk_revolve, multistage
from ckio.planners.resume import resume
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.platform.profile import Profile
from ckio.schedule import Schedule, bytes_moved, makespan
from ckio.schedule.occupancy import occupancies
from ckio.schedule.policy import Overlap
from ckio.schedule.timeline import Timeline
from ckio.sim.engine import simulate
from ckio.sim.overlapped import simulate as simulate_overlapped

Cost = Callable[[Random], float]
"""Seconds that something takes, drawn."""

PLANNERS: dict[str, Planner] = {
    "hrevolve": hrevolve,
    "mixed": mixed,
    "multistage": multistage,
    "disk-revolve": disk_revolve,
}


def whole(random: Random) -> float:
    """Seconds whose sums are exact, in whatever order; now and then none."""
    return random.choice((0, 0.25, 1, 1, 2, 3, 5, 7.5))


def untidy(random: Random) -> float:
    return random.uniform(0, 5)


def extreme(random: Random) -> float:
    """Nothing, next to nothing, and more seconds than anybody has, side by side."""
    return random.choice((0, 0, 1e-12, 3e-12, 1e-3, 1, 1e6, 1e12, 7e11))


def machine(random: Random, levels: tuple[Level, ...], cost: Cost) -> Platform:
    """The same levels with other costs; far ones may share channels, and even memory's name.

    Where costs are whole, so are those of what goes on behind the computation.
    """

    def one(number: int, level: Level) -> Level:
        near = number == 0 and random.random() < 0.85
        write, read = (Affine(cost(random), random.choice((0, 0, 0.25, 0.5))) for _ in range(2))
        return replace(
            level,
            backend="ram" if near else "directory",
            channel=random.choice(("", "bus", "bus", levels[0].name)) or level.name,
            write=write,
            read=read,
            discard=Affine(random.choice((0, 0, cost(random)))),
            profile=random.choice((None, profile(random))) if cost is whole else None,
        )

    overhead = random.choice((0, 0, cost(random)))
    return Platform(
        tuple(one(number, level) for number, level in enumerate(levels)), overhead=overhead
    )


def profile(random: Random) -> Profile:
    """What transfers take beside the program, what it loses by them, and how much may wait."""

    def price() -> Affine:
        return Affine(whole(random), random.choice((0, 0.25)))

    is_backed_up = random.random() < 0.7
    return Profile(
        first=random.choice((None, price())),
        write_beside=random.choice((None, price())),
        read_beside=random.choice((None, price())),
        write_own=random.choice((None, price())),
        read_own=random.choice((None, price())),
        write_hinders=random.choice((Affine(), price())),
        read_hinders=random.choice((Affine(), price())),
        discard_hinders=random.choice((Affine(), price())),
        handoff=random.choice((Affine(), price())),
        dirty=random.choice((0, 8, 16)) if is_backed_up else None,
        drained=random.choice((0.125, 0.5, 4.0)) if is_backed_up else None,
    )


def planned(random: Random, cost: Cost) -> Case:
    """What a planner makes of steps that are alike, on memory and one to three levels behind it."""
    sizes = {name: random.randint(1, 8) for name in ("restart", "tape", "adjoint")}
    seconds: dict[str, Any] = {name: cost(random) for name in ("advance", "record", "reverse")}
    chain = Chain(steps=random.randint(1, 22), **seconds, **sizes)
    rooms = [random.randint(1, 40) for _ in range(random.randint(1, 3))]
    levels = tuple(
        Level(
            name=f"level{number}",
            capacity=room,
            write=Affine(random.randint(0, 4)),
            read=Affine(random.randint(0, 4)),
        )
        for number, room in enumerate([*rooms, None])
    )
    platform = Platform(levels, working_memory=chain.largest("tape") * random.randint(1, 3))
    if random.random() < 0.25:
        stored = list(random_stored(random, chain, platform))
        stored[-1] |= {Key(Kind.RESTART, 0)}
        return resume(chain, platform, stored), platform
    return random.choice(tuple(PLANNERS.values()))(chain, platform), platform


def case(random: Random, cost: Cost = whole) -> Case:
    """A legal schedule from anywhere, on one to four levels, with costs of another machine."""
    match random.randrange(4):
        case 0:
            schedule, platform = random_legal(random, most_levels=4)
        case 1:
            schedule, platform = random_complete(random, most_levels=4)
        case _:
            schedule, platform = planned(random, cost)
    other = machine(random, platform.levels, cost)
    return schedule, replace(other, working_memory=platform.working_memory)


def policy(random: Random) -> Overlap:
    counts = (0, 1, 1, 2, 3, None)
    horizon = random.choice((inf, inf, 0, 2, 4.25, 9))
    return Overlap(random.choice(counts), random.choice(counts), horizon)


def spans(timeline: Timeline) -> list[tuple[float, float]]:
    return list(zip(timeline.start.tolist(), timeline.stop.tolist(), strict=True))


def check(schedule: Schedule, platform: Platform, overlap: Overlap, seed: int) -> EventLoop:
    """Every start and every stop, of the program and of transfers, to the last bit."""
    timeline = simulate_overlapped(schedule, platform, overlap)
    loop = EventLoop(schedule, platform, overlap).run()
    assert spans(timeline) == loop.program, f"seed {seed}"
    events = sorted((event.start, event.stop, str(event.action)) for event in timeline.transfers)
    expected = ((*span, str(schedule.actions[row])) for row, span in loop.transfers.items())
    assert events == sorted(expected), f"seed {seed}"
    ends = timeline.transfers.stop.tolist()
    assert ends == sorted(ends), f"seed {seed}: not in the order in which they ended"
    moved = [*timeline.nbytes.tolist(), *timeline.transfers.nbytes.tolist()]
    assert sum(moved) == sum(
        nbytes
        for row, nbytes in enumerate(bytes_moved(schedule, platform).tolist())
        if not loop.is_far(row) or row in loop.transfers
    ), f"seed {seed}: bytes are moved once, by the program or by a channel"
    return loop


SORTS = ("shared", "direct", "staged", "cancelled", "copied", "ahead")


def sorts(loop: EventLoop) -> Iterator[str]:
    """What sorts of transfers there were: on shared channels, direct or staged writes, ..."""
    moved, actions = loop.transfers, loop.actions
    channels = [level.channel for level in loop.platform.levels if level is not loop.memory]
    if len(channels) > len(set(channels)) and len(moved) > 1:
        yield "shared"
    for row, action in enumerate(actions):
        if isinstance(action, Write) and row in moved:
            yield "staged" if row in loop.staged else "direct"
        if isinstance(action, Read) and loop.is_far(row) and row not in moved:
            yield "copied"
    yield from ("cancelled" for _ in loop.cancelled)
    yield from ("ahead" for _ in loop.ahead)


def drawn(random: Random, cost: Cost) -> tuple[Schedule, Platform, Overlap]:
    """But for a horizon if sums are not exact: they depend on the order of adding."""
    overlap = policy(random)
    if cost is not whole:
        overlap = replace(overlap, horizon=inf)
    return *case(random, cost), overlap


COSTS = pytest.mark.parametrize("cost", [whole, untidy, extreme])
SEEDS = pytest.mark.parametrize(
    "seeds", [range(60), pytest.param(range(60, 3000), marks=pytest.mark.slow)], ids=len
)


@SEEDS
@COSTS
def test_it_finds_every_start_and_every_stop_to_the_last_bit(cost: Cost, seeds: range) -> None:
    seen = Counter[str]()
    for seed in seeds:
        schedule, platform, overlap = drawn(Random(seed), cost)
        seen.update(set(sorts(check(schedule, platform, overlap, seed))))
    assert min(seen[sort] for sort in SORTS) > 2, seen


@SEEDS
@COSTS
def test_without_overlap_it_finds_them_too(cost: Cost, seeds: range) -> None:
    for seed in seeds:
        schedule, platform = case(Random(seed), cost)
        timeline = simulate(schedule, platform)
        assert spans(timeline) == synchronous(schedule, platform), f"seed {seed}"
        assert simulate(schedule, platform, overlap=Overlap()) == timeline, f"seed {seed}"
        if cost is not whole:  # no level has a profile
            assert timeline.makespan == makespan(schedule, platform), f"seed {seed}"


def one_size(random: Random, schedule: Schedule, platform: Platform, size: int) -> Case:
    """All checkpoints as large as each other, or nothing; memory is full to the last byte."""
    chain = schedule.chain
    alike = Chain(
        steps=chain.length,
        **{name: chain.each(name).tolist() for name in ("advance", "record", "reverse")},
        **dict.fromkeys(("restart", "tape", "adjoint"), size),
    )
    same = Schedule(alike, schedule.actions, stored=schedule.stored)
    levels = [replace(level, capacity=None, ratio=1.0) for level in platform.levels]
    free = Platform(tuple(levels), working_memory=None)
    most = [int(held.nbytes.max()) for held in occupancies(simulate(same, free), alike, free)]
    named = {(it.key, it.level) for it in same.actions if isinstance(it, Write | Read | Discard)}
    for number, keys in enumerate(same.stored):  # what nobody names lies there all the time
        most[number] += size * sum((key, number) not in named for key in keys)
    room = random.choice((0, 0, 1, 2)) * size
    levels[0] = replace(levels[0], capacity=most[0] + room)
    levels[1:] = [
        replace(level, capacity=held) for level, held in zip(levels[1:], most[1:], strict=True)
    ]
    return same, Platform(tuple(levels), working_memory=None)


@pytest.mark.slow
@COSTS
@pytest.mark.parametrize("size", [0, 1, 4])
def test_it_finds_them_where_levels_are_exactly_full(size: int, cost: Cost) -> None:
    """On one channel for all far levels, or on one for each; where a byte may cost nothing."""
    for seed in range(40):
        random = Random(seed)
        schedule, platform = one_size(random, *case(random, cost), size)
        bus = random.random() < 0.5
        levels = [
            replace(level, backend="directory", channel="bus" if bus else level.name)
            for level in platform.levels[1:]
        ]
        near = replace(platform.levels[0], backend="ram", channel=platform.levels[0].name)
        shared = replace(platform, levels=(near, *levels))
        check(schedule, shared, replace(policy(random), horizon=inf), seed)
