"""One theorem, with overlap: the runner's own threads on virtual time do what `simulate` says.

Costs are such that no two things happen at the same instant: then what is first is not said by the
rules alone.
"""

from math import inf
from random import Random

import pytest
from virtual import Time

from ckio.actions import Buffers, Key, Layout
from ckio.backends.ram import Ram
from ckio.chain import Chain
from ckio.errors import NoSchedule
from ckio.overlap import Overlap
from ckio.planners.hrevolve import hrevolve
from ckio.planners.mixed import mixed
from ckio.planners.overlapped import overlapped
from ckio.platforms import Affine, Level, Platform
from ckio.runner import channels, run
from ckio.runner import overlapped as runner
from ckio.schedule import Schedule
from ckio.sim.engine import simulate
from ckio.testing import CountingModel, Throttled
from ckio.timeline import Timeline
from ckio.traffic import Traffic

SIZE = 100


class Memory(Ram):
    """Memory that takes the time it is priced at; it lends, so it cannot be wrapped."""

    def __init__(self, level: Level, time: Time) -> None:
        super().__init__(capacity=level.capacity)
        self._level, self._time = level, time

    def write(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        nbytes = super().write(key, layout, data)
        self._time.sleep(self._level.write(SIZE))
        return nbytes

    def read(self, key: Key, into: Buffers, /) -> int:
        nbytes = super().read(key, into)
        self._time.sleep(self._level.read(SIZE))
        return nbytes

    def discard(self, key: Key, /) -> None:
        super().discard(key)
        self._time.sleep(self._level.discard(SIZE))


def drawn(random: Random) -> tuple[Chain, Platform, Overlap]:
    """Memory and up to three far levels, some of them on one channel; a policy."""

    def price() -> Affine:
        return Affine(latency=random.uniform(0.1, 3.0))

    def level(name: str, slots: int | None, backend: str, channel: str = "") -> Level:
        capacity = None if slots is None else slots * SIZE
        costs = {access: price() for access in ("write", "read", "discard")}
        return Level(name=name, capacity=capacity, backend=backend, channel=channel, **costs)

    far = (
        level(
            f"far{number}",
            random.choice((None, 2, 5, 10)),
            "directory",
            random.choice(("", "bus")),
        )
        for number in range(random.randint(1, 3))
    )
    near = level("ram", random.randint(1, 5), "ram")
    advance, record, reverse = (random.uniform(0.2, 2.0) for _ in range(3))
    sizes = {"restart": SIZE, "tape": SIZE, "adjoint": SIZE}
    steps = random.randint(2, 25)
    chain = Chain(steps=steps, advance=advance, record=record, reverse=reverse, **sizes)
    counts = (0, 1, 2, 3, None)
    overlap = Overlap(random.choice(counts), random.choice(counts), random.choice((inf, 3.0, 8.0)))
    return chain, Platform((near, *far), working_memory=SIZE), overlap


def performed(
    schedule: Schedule, platform: Platform, overlap: Overlap, monkeypatch: pytest.MonkeyPatch
) -> Timeline:
    """What the runner does, its threads on virtual time."""
    time = Time(1 + len(Traffic(schedule, platform, overlap).channels))
    monkeypatch.setattr(channels, "Condition", time.condition)
    monkeypatch.setattr(channels, "SimpleQueue", time.queue)
    memory = platform.levels[0]
    gather, scatter = runner.gather, runner.scatter

    def slow_gather(into: memoryview, data: Buffers) -> None:
        gather(into, data)
        time.sleep(memory.write(SIZE))

    def slow_scatter(data: memoryview, into: Buffers) -> None:
        scatter(data, into)
        time.sleep(memory.read(SIZE))

    monkeypatch.setattr(runner, "gather", slow_gather)
    monkeypatch.setattr(runner, "scatter", slow_scatter)
    backends = [
        Memory(memory, time),
        *(Throttled(Ram(), level, time) for level in platform.levels[1:]),
    ]
    model = CountingModel(schedule.chain, time)
    return run(schedule, platform, model, backends, overlap=overlap, clock=time)


def check(seed: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many transfers went on behind the program."""
    random = Random(seed)
    chain, platform, overlap = drawn(random)
    planner = random.choice((hrevolve, mixed))
    try:
        schedule = planner(chain, platform)
    except NoSchedule:
        return 0
    if not overlap:
        return 0
    found = performed(schedule, platform, overlap, monkeypatch)
    expected = simulate(schedule, platform, overlap=overlap)
    assert found == expected
    return 0 if found.transfers is None else len(found.transfers.actions)


@pytest.mark.parametrize("seed", range(60))
def test_threads_on_virtual_time_do_what_simulate_says(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(seed, monkeypatch)


def test_most_cases_have_something_that_goes_on_behind_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moved = []
    for seed in range(20):
        with monkeypatch.context() as patch:
            moved.append(check(seed, patch))
    assert sum(count > 0 for count in moved) > 10


def test_a_plan_for_overlap_runs_as_it_is_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(1)
    chain, platform, _ = drawn(random)
    schedule = overlapped(chain, platform)
    policy = Overlap(None, None)
    assert performed(schedule, platform, policy, monkeypatch) == simulate(
        schedule, platform, overlap=policy
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60, 2000))
def test_threads_on_virtual_time_in_a_long_campaign(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(seed, monkeypatch)
