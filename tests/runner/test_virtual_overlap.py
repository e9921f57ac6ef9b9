"""One theorem, with overlap: the runner's own threads on virtual time do what `simulate` says.

Costs are such that no two things happen at the same instant: then what is first is not said by the
rules alone.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from math import inf
from random import Random
from threading import get_ident

import pytest

from ckio.actions import Buffers, Key, Kind, Layout
from ckio.backends.ram import Ram
from ckio.errors import NoSchedule
from ckio.overlap.rules import ActionMode, Handling, Traffic, Transfer
from ckio.planners.dp import hrevolve, mixed
from ckio.planners.overlap import overlapped
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.platform.profile import Profile
from ckio.runner import channels, run
from ckio.runner import overlapped as runner
from ckio.schedule import Schedule
from ckio.schedule.policy import Overlap
from ckio.schedule.timeline import Timeline
from ckio.sim.engine import simulate
from ckio.testing import CountingModel, Throttled

from .throttled import PricedRam
from .virtual import Time

SIZE = 100
STATES, TAPES = frozenset((Kind.RESTART,)), frozenset((Kind.TAPE,))


class Slower:
    """A clock of the program, for which all that it does itself takes so much longer."""

    def __init__(self, time: Time, overhead: float) -> None:
        self.now, self._sleep, self._overhead = time.now, time.sleep, overhead

    def sleep(self, seconds: float, more: float = 0.0, /) -> None:
        self._sleep(self._overhead + seconds + more)


class Giving(CountingModel):
    """A model that hands over in the seconds that a copy of nothing takes on a far level."""

    def __init__(
        self,
        schedule: Schedule,
        program: Slower,
        time: Time,
        own: Callable[[], tuple[Affine, Affine] | None],
    ) -> None:
        super().__init__(schedule.chain, program, schedule)
        self._time, self._own = time, own

    def give(self, key: Key, slot: Callable[[int], memoryview], /) -> Buffers:
        self._copied(0)
        return super().give(key, slot)

    def take(self, key: Key, layout: Layout, data: Buffers, /) -> None:
        self._copied(1)
        super().take(key, layout, data)

    def _copied(self, way: int) -> None:
        if (prices := self._own()) is not None:
            self._time.sleep(prices[way](0))


def drawn(
    random: Random, *, profiles: bool = False, handed: bool = False
) -> tuple[Chain, Platform, Overlap]:
    """Memory and up to three far levels, some of them on one channel; a policy."""
    per_byte = 0.03 * handed  # so that it matters whether bytes are copied

    def price() -> Affine:
        return Affine(latency=random.uniform(0.1, 3.0), per_byte=per_byte * random.random())

    def profile() -> Profile:
        some = random.random() < 0.5
        return Profile(
            write_beside=random.choice((None, price())),
            read_beside=random.choice((None, price())),
            write_own=random.choice((None, price())),
            read_own=random.choice((None, price())),
            write_hinders=Affine(random.uniform(0.0, 0.5), random.uniform(0.0, 0.005)),
            read_hinders=Affine(random.uniform(0.0, 0.5), random.uniform(0.0, 0.005)),
            discard_hinders=Affine(random.uniform(0.0, 0.5)),
            dirty=random.randint(0, 3 * SIZE) if some else None,
            drained=random.uniform(0.1 * SIZE, SIZE) if some else None,
        )

    def level(name: str, slots: int | None, backend: str, channel: str = "") -> Level:
        capacity = None if slots is None else slots * SIZE
        costs = {access: price() for access in ("write", "read", "discard")}
        measured = profile() if profiles and random.random() < 0.8 else None
        return Level(
            name=name,
            capacity=capacity,
            backend=backend,
            channel=channel,
            profile=measured,
            **costs,
        )

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
    only = record - min(record, advance) * random.choice((0.9, 0.5, 0.0))
    chain = Chain(
        steps=steps, advance=advance, record=record, record_only=only, reverse=reverse, **sizes
    )
    if handed:
        chain = replace(chain, handed=random.choice((STATES, TAPES, STATES | TAPES)))
    counts = (0, 1, 2, 3, None)
    overlap = Overlap(random.choice(counts), random.choice(counts), random.choice((inf, 3.0, 8.0)))
    overhead = random.uniform(0.0, 0.5) if profiles else 0.0
    return chain, Platform((near, *far), working_memory=SIZE, overhead=overhead), overlap


def performed(
    schedule: Schedule, platform: Platform, overlap: Overlap, monkeypatch: pytest.MonkeyPatch
) -> Timeline:
    """What the runner does, its threads on virtual time."""
    names = Traffic(schedule, platform, overlap).channels
    time, moving = Time(1 + len(names)), dict[int, Transfer]()
    move = channels.Channels._move

    def noted_move(self: channels.Channels, transfer: Transfer) -> int:
        moving[get_ident()] = transfer
        return move(self, transfer)

    def behind(lost: float) -> bool:
        transfer = moving[get_ident()]
        if transfer.direct:
            return False
        time.put_off(names.index(platform.levels[transfer.action.level].channel), lost)
        return True

    monkeypatch.setattr(channels.Channels, "_move", noted_move)
    monkeypatch.setattr(channels, "Condition", time.condition)
    monkeypatch.setattr(channels, "SimpleQueue", time.queue)
    near, entered = platform.levels[0], [0]
    enter, performer = channels.Channels.enter, runner.OverlappedPerformer
    put, get = performer.put, performer.get

    def noted_enter(self: channels.Channels, level: int = 0, /, *direct: Buffers) -> Handling:
        step = enter(self, level or None, *direct)
        entered[:] = [level * (step.way is not ActionMode.DIRECT)]
        return step

    def own() -> Profile:
        return platform.levels[entered[0]].profile or Profile()

    def slow_put(self: runner.OverlappedPerformer, memory: memoryview, data: Buffers) -> None:
        put(self, memory, data)
        time.sleep((own().write_own or near.write)(SIZE))

    def slow_get(self: runner.OverlappedPerformer, memory: memoryview, into: Buffers) -> None:
        get(self, memory, into)
        time.sleep((own().read_own or near.read)(SIZE))

    monkeypatch.setattr(channels.Channels, "enter", noted_enter)
    monkeypatch.setattr(performer, "put", slow_put)
    monkeypatch.setattr(performer, "get", slow_get)
    program = Slower(time, platform.overhead)
    backends = [
        PricedRam(near, program, capacity=near.capacity),
        *(Throttled(Ram(), level, time, overlaps=behind) for level in platform.levels[1:]),
    ]

    def copies() -> tuple[Affine, Affine] | None:
        if not entered[0]:
            return None
        return own().write_own or near.write, own().read_own or near.read

    model = Giving(schedule, program, time, copies)
    return run(schedule, platform, model, backends, overlap=overlap, clock=time)


def check(
    seed: int, monkeypatch: pytest.MonkeyPatch, *, profiles: bool = False, handed: bool = False
) -> int:
    """How many transfers went on behind the program."""
    random = Random(seed)
    chain, platform, overlap = drawn(random, profiles=profiles, handed=handed)
    planner = random.choice((hrevolve, mixed))
    try:
        schedule = planner(chain, platform)
    except NoSchedule:
        return 0
    if not overlap:
        return 0
    with monkeypatch.context() as patch:
        found = performed(schedule, platform, overlap, patch)
    expected = simulate(schedule, platform, overlap=overlap)
    assert found == expected, f"seed {seed}, profiles {profiles}, handed {handed}"
    return 0 if found.transfers is None else len(found.transfers.actions)


def check_many(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = [
        check(seed, monkeypatch, profiles=profiles, handed=handed)
        for seed, profiles, handed in product(seeds, (False, True), (False, True))
    ]
    assert sum(count > 0 for count in moved) > len(moved) / 2


def test_threads_on_virtual_time_do_what_simulate_says(monkeypatch: pytest.MonkeyPatch) -> None:
    check_many(range(12), monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 1000, 100))
def test_threads_on_virtual_time_in_a_long_campaign(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_many(range(first, first + 100), monkeypatch)


def test_a_plan_for_overlap_runs_as_it_is_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    chain, platform, _ = drawn(Random(1))
    schedule, policy = overlapped(chain, platform), Overlap(None, None)
    done = performed(schedule, platform, policy, monkeypatch)
    assert done == simulate(schedule, platform, overlap=policy)
