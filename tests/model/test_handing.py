"""What is handed over in memory is not copied, costs no bytes, and changes no result."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import product
from random import Random
from time import sleep

import numpy as np
import pytest
from drawing import random_legal
from jobs.begun import MANIFEST
from oracles.costs import all_seconds, seconds
from small_models import digest, reverse_all

from ckio.actions import Action, Advance, Discard, Kind, Read, Record, Reverse, Write
from ckio.backends.directory import Directory
from ckio.backends.ram import Ram
from ckio.calibrate.probe import Copying, measure_model
from ckio.errors import BadInput, CorruptCheckpoint, LevelFull, NoSchedule, StorageError
from ckio.jobs.request import Manifest
from ckio.model import handed_by, sizes_of
from ckio.model.arraymodel import ArrayModel
from ckio.overlap.costs import transfer_seconds
from ckio.planners.dp import hrevolve, mixed
from ckio.planners.fastest import auto
from ckio.planners.resume import resume
from ckio.planners.trivial import periodic, store_all
from ckio.planners.varying import varying
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.platform.clock import VirtualClock
from ckio.platform.profile import Profile
from ckio.runner import overlapped, perform, run
from ckio.runner.failover import failover
from ckio.runner.perform import slots_of
from ckio.schedule import Schedule, makespan, seconds_of
from ckio.schedule.policy import Overlap
from ckio.schedule.text import dumps, loads
from ckio.sim.engine import simulate
from ckio.testing import CountingModel, HandingTests, t, x
from tests.runner.throttled import PricedRam
from tests.single import perform_one

STATES, TAPES = frozenset((Kind.RESTART,)), frozenset((Kind.TAPE,))


class Growth(ArrayModel):
    """Several arrays whose bytes do not begin where their types may, one behind the other.

    Its adjoint step spends its tape: it leaves other numbers there.
    """

    def __init__(self, cells: int = 40) -> None:
        x = np.linspace(0.1, 0.5, cells)
        self.seen: dict[int, int] = {}
        super().__init__(
            {"mask": np.arange(11) % 2 > 0, "x": x, "y": x[:7] * 2, "J": 0.0},
            control={"x": x, "rate": 0.3},
            tape=["mask", "x", "y"],
        )

    def step(self, state, i):
        x, y = state["x"], state["y"]
        state["J"] += (x**2).sum() + (y * state["mask"].sum()).sum()
        x *= 1 + self.control["rate"] * (1 - x)
        y += 0.1 * x[:7]
        state["mask"][i % 11] ^= True

    def adjoint_step(self, adjoint, tape, i):
        self.seen[i] = tape["x"].ctypes.data
        x, bar = tape["x"], adjoint["x"]
        rate = self.control["rate"]
        grown = x * (1 + rate * (1 - x))
        bar[:7] += 0.1 * adjoint["y"]
        adjoint["y"] += tape["mask"].sum() * adjoint["J"]
        self.gradient["rate"] += (x * (1 - x) * bar).sum()
        bar *= 1 + rate * (1 - 2 * x)
        bar += 2 * x * adjoint["J"]
        x[:] = grown
        tape["mask"][:] = True


class TestGrowth(HandingTests):
    def make(self) -> Growth:
        return Growth()


class TestCounting(HandingTests):
    def make(self) -> CountingModel:
        sizes = {"restart": 99, "tape": 70, "adjoint": 9}
        chain = Chain(steps=3, advance=1, record=1, reverse=1, **sizes, handed=STATES | TAPES)
        return CountingModel(chain)


def chain_of(model: object, steps: int) -> Chain:
    costs = {"advance": 1.0, "record": 1.1, "reverse": 2.0}
    return Chain(steps=steps, **costs, **sizes_of(model), handed=handed_by(model))  # type: ignore[arg-type]


def alone(steps: int, cells: int = 40) -> tuple[object, ...]:
    return digest(reverse_all(Growth(cells), steps))


def address(view: memoryview) -> int:
    return np.frombuffer(view, np.uint8).ctypes.data


def three_levels(chain: Chain, slots: int) -> Platform:
    room = slots * max(chain.restart, chain.tape)
    slow = Affine(0.5, 1e-3)
    return Platform(
        (
            Level(name="ram", capacity=room, write=Affine(0.1, 1e-3), read=Affine(0.1, 1e-3)),
            Level(name="disk", capacity=3 * room, write=slow, read=slow, backend="directory"),
            Level(name="far", write=Affine(1, 2e-3), read=Affine(1, 2e-3), backend="directory"),
        ),
        working_memory=2 * chain.tape,
    )


def by_period(chain: Chain, platform: Platform) -> Schedule:
    return periodic(chain, platform, period=4)


PLANNERS: tuple[Callable[[Chain, Platform], Schedule], ...] = (
    store_all,
    by_period,
    hrevolve,
    mixed,
    partial(varying, tapes=True, planner="mixed"),
    auto,
)


@pytest.mark.campaign
@pytest.mark.parametrize("planner", PLANNERS)
def test_the_gradient_is_that_of_copies_to_the_last_bit(planner, tmp_path) -> None:
    steps = 17
    expected = alone(steps)
    overlaps = Overlap(), Overlap(2, 2), Overlap(None, None)
    cases = product((2, 30), (False, True), overlaps, (False, True))
    for number, (slots, checksum, overlap, copying) in enumerate(cases):
        model = Growth()
        driven = Copying(model) if copying else model
        chain = chain_of(driven, steps)
        platform = three_levels(chain, slots)
        capacity = platform.levels[0].capacity
        levels = [
            Ram(capacity=capacity, checksum=checksum),
            *(Directory(tmp_path / f"{name}{number}") for name in ("disk", "far")),
        ]
        try:
            schedule = planner(chain, platform)
        except NoSchedule:
            continue
        run(schedule, platform, driven, levels, overlap=overlap)
        assert digest(model) == expected, (slots, checksum, overlap, copying)
        assert [list(level.keys()) for level in levels] == [[], [], []]
        assert levels[0].capacity == capacity
        for level in levels:
            level.close()


def test_a_tape_is_reversed_in_the_memory_that_it_was_recorded_in() -> None:
    model, memory, steps = Growth(10_000), Ram(), 6
    chain = chain_of(model, steps)
    platform = Platform((Level(name="ram"),), working_memory=chain.tape)
    kept: dict[int, int] = {}
    schedule = store_all(chain, platform)
    times = perform(schedule, platform, model, [memory])
    for action, _ in zip(schedule.actions, times, strict=True):
        if isinstance(action, Write):
            _, x, _ = memory.kept(action.key) or ()
            kept[action.key.step] = address(x)
    assert len(set(kept.values())) == steps - 1
    assert {step: model.seen[step] for step in kept} == kept


def test_a_far_tape_is_written_from_where_it_was_recorded(monkeypatch) -> None:
    def no_copy(*_: object) -> None:
        raise AssertionError("a copy")

    monkeypatch.setattr(overlapped.OverlappedPerformer, "put", no_copy)
    monkeypatch.setattr(overlapped.OverlappedPerformer, "get", no_copy)
    model, steps, far = Growth(10_000), 6, Noting()
    chain = chain_of(model, steps)
    platform = Platform(
        (Level(name="ram"), Level(name="far", backend="directory")), working_memory=chain.tape
    )
    schedule = store_all(chain, platform, on="far")
    recorded = []
    times = perform(schedule, platform, model, [Ram(), far], overlap=Overlap(None, None))
    for action, _ in zip(schedule.actions, times, strict=True):
        match action:
            case Record(step, _) if step < steps - 1:
                recorded.append(address(model.dump(t(step))[1]))
    assert digest(model) == alone(steps, 10_000)
    # What was read before its turn came need not be written any more.
    assert far.written
    assert far.written == recorded[: len(far.written)]


class Noting(Ram):
    """A far level that notes where the bytes are which it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.written = list[int]()

    def write(self, key, layout, data, /):
        self.written.append(address(data[1]))
        return super().write(key, layout, data)


def test_memory_that_does_not_fit_the_types_is_copied() -> None:
    model = Growth()
    model.record(0, 1)
    data = [bytes(view) for view in model.dump(t(0))]
    odd = memoryview(bytearray(1 + sum(map(len, data))))
    views, begin = [], 1
    for each in data:
        odd[begin : begin + len(each)] = each
        views.append(odd[begin : begin + len(each)])
        begin += len(each)
    model.take(t(0), model.layout(t(0)), views)
    model.reverse(0, 1)
    assert model.seen[0] % 8 == 0
    assert digest(model) == alone(1)


def test_a_write_that_fails_leaves_the_model_as_it_was() -> None:
    model, steps = Growth(), 3
    memory = Ram(capacity=sum(view.nbytes for view in tape_of(1)))
    for step in range(steps):
        model.record(step, step + 1)
        data = model.give(t(step), memory.slot)
        if step:
            with pytest.raises(LevelFull):
                memory.keep(t(step), model.layout(t(step)), data)
        else:
            memory.keep(t(step), model.layout(t(step)), data)
    model.reverse(2, 3)
    saved = model.gradient["x"].copy()
    model.take(t(0), model.layout(t(0)), memory.kept(t(0)) or ())
    assert [bytes(view) for view in model.dump(t(0))] == [bytes(view) for view in tape_of(1)]
    assert np.array_equal(saved, model.gradient["x"])


def tape_of(steps: int):
    model = Growth()
    model.advance(0, steps - 1)
    model.record(steps - 1, steps)
    return model.dump(t(steps - 1))


def test_damage_in_memory_is_found_before_the_model_takes_it() -> None:
    model, memory = Growth(), Ram(checksum=True)
    model.record(0, 1)
    memory.keep(t(0), model.layout(t(0)), model.give(t(0), memory.slot))
    model.record(1, 2)
    before = [bytes(view) for view in model.dump(t(1))]
    kept = memory._ledger.find(t(0)).place
    kept[1][3] ^= 1  # type: ignore[index]
    with pytest.raises(CorruptCheckpoint, match="t_0"):
        perform_one(Read(t(0), 0), model, [memory])
    assert [bytes(view) for view in model.dump(t(1))] == before


def test_what_is_written_between_read_and_reverse_does_not_take_its_memory() -> None:
    model, memory = Growth(4_000), Ram()
    chain = chain_of(model, 3)
    platform = Platform((Level(name="ram"),), working_memory=chain.tape)
    actions = [
        *(Write(x(0), 0), Record(0, 1), Write(t(0), 0), Record(1, 2), Write(t(1), 0), Record(2, 3)),
        *(Reverse(2, 3), Read(t(1), 0), Discard(t(1), 0), Read(x(0), 0), Advance(0, 2)),
        *(Write(x(2), 0), Reverse(1, 2), Read(t(0), 0), Discard(t(0), 0), Reverse(0, 1)),
        *(Discard(x(0), 0), Discard(x(2), 0)),
    ]
    run(Schedule(chain, actions), platform, model, [memory])
    assert digest(model) == alone(3, 4_000)


class Late(Directory):
    """A level that writes late."""

    def write(self, key, layout, data, /):
        sleep(0.05)
        return super().write(key, layout, data)


@pytest.mark.parametrize("overlap", [Overlap(), Overlap(3, 3)])
def test_a_tape_that_was_stored_is_not_changed_by_the_step_that_spends_it(
    overlap: Overlap, tmp_path
) -> None:
    """On a durable level it may be needed once more: by who resumes."""
    model = Growth()
    chain = chain_of(model, 2)
    platform = Platform(
        (Level(name="ram"), Level(name="far", backend="directory")), working_memory=chain.tape
    )
    actions = [Record(0, 1), Write(t(0), 1), Record(1, 2), Write(t(1), 1), Reverse(1, 2)]
    with closing(Late(tmp_path / "far")) as far:
        for _ in perform(Schedule(chain, actions), platform, model, [Ram(), far], overlap=overlap):
            pass
        stored = [bytearray(view.nbytes) for view in tape_of(2)]
        far.read(t(1), [memoryview(it) for it in stored])
    assert stored == [bytearray(view) for view in tape_of(2)]


TWICE = {
    "read, while it stays stored": [Record(0, 1), Write(t(0), 0), Read(t(0), 0)],
    "read twice": [Record(0, 1), Write(t(0), 0), Read(t(0), 0), Read(t(0), 0)],
    "stored on two levels": [Record(0, 1), *(Write(t(0), it) for it in (0, 1)), Read(t(0), 1)],
    "read, and stored on another level": [
        *(Record(0, 1), Write(t(0), 1), Read(t(0), 1), Write(t(0), 0), Discard(t(0), 1))
    ],
    "read from one of two, and discarded there": [
        *(Record(0, 1), Write(t(0), 0), Write(t(0), 1), Read(t(0), 1), Discard(t(0), 1))
    ],
    "read after another tape": [
        *(Write(x(0), 0), Record(0, 1), Write(t(0), 0), Read(t(0), 0), Read(x(0), 0)),
        *(Record(0, 1), Read(t(0), 0)),
    ],
}


@pytest.mark.parametrize("before", TWICE.values(), ids=TWICE)
@pytest.mark.parametrize("overlap", [Overlap(), Overlap(3, 3)])
def test_a_tape_that_stays_stored_keeps_its_bytes(before: list[Action], overlap: Overlap) -> None:
    """The adjoint step overwrites the tape that it spends, not what a level still stores."""
    model, levels = Growth(), [Ram(checksum=True), Ram(checksum=True)]
    chain = chain_of(model, 1)
    near = Platform((Level(name="ram"), Level(name="other")), working_memory=chain.tape)
    schedule = Schedule(chain, [*before, Reverse(0, 1)])
    for _ in perform(schedule, near, model, levels, overlap=overlap):
        pass
    assert digest(model) == alone(1)
    stored = [bytearray(view.nbytes) for view in tape_of(1)]
    levels[0].read(t(0), [memoryview(it) for it in stored])
    assert stored == [bytearray(view) for view in tape_of(1)]


def test_a_level_that_fails_is_left_with_what_was_handed_over(tmp_path) -> None:
    steps = 12
    chain = chain_of(Growth(), steps)
    platform = Platform(
        (Level(name="ram", capacity=4 * chain.restart), Level(name="far", backend="directory")),
        working_memory=chain.tape,
    )

    class Fails(Directory):
        writes = 0

        def write(self, key, layout, data, /):
            self.writes += 1
            if self.writes == 4:
                raise StorageError("out of order")
            return super().write(key, layout, data)

    levels = [Ram(capacity=platform.levels[0].capacity), Fails(tmp_path / "far")]
    schedule = store_all(chain, platform, on="far")
    facts: list[str] = []
    _, model = failover(
        schedule, platform, Growth(), levels, fresh=Growth, replan=resume, warn=facts.append
    )
    assert facts
    assert digest(model) == alone(steps)


# Prices


PRICED = Level(
    name="ram", write=Affine(0.25, 0.5), read=Affine(0.125, 0.25), discard=Affine(1.0, 0.0625)
)
FAR = Level(
    name="far",
    write=Affine(1.0, 1.0),
    read=Affine(1.0, 1.0),
    backend="directory",
    profile=Profile(write_own=Affine(3.0, 2.0), read_own=Affine(5.0, 2.0)),
)
CHAIN = Chain(
    steps=9, advance=1.0, record=1.5, reverse=2.0, restart=8, tape=4, adjoint=2, handed=TAPES
)


def test_an_access_of_memory_costs_its_latency() -> None:
    platform = Platform((PRICED, FAR))
    assert seconds(Write(t(0), 0), CHAIN, platform) == 0.25
    assert seconds(Read(t(0), 0), CHAIN, platform) == 0.125
    assert seconds(Discard(t(0), 0), CHAIN, platform) == 1.25
    assert seconds(Write(x(0), 0), CHAIN, platform) == 4.25
    assert seconds(Write(t(0), 1), CHAIN, platform) == 5.0


def test_what_is_no_plain_memory_or_not_the_first_level_takes_all_bytes() -> None:
    for level in (
        replace(PRICED, options={"codec": "zstd"}),
        replace(PRICED, options={"checksum": True}),
        replace(PRICED, backend="directory"),
    ):
        assert seconds(Write(t(0), 0), CHAIN, Platform((level,))) == 2.25
    assert seconds(Write(t(0), 1), CHAIN, Platform((FAR, PRICED))) == 2.25


def test_the_copies_of_far_accesses_are_of_no_bytes() -> None:
    actions = [
        *(Write(x(0), 1), Record(0, 1), Write(t(0), 1), Advance(1, 9)),
        *(Read(t(0), 1), Discard(t(0), 1)),
    ]
    schedule = Schedule(CHAIN, actions)
    own = transfer_seconds(schedule, Platform((PRICED, FAR))).own
    assert own[[0, 2, 4]].tolist() == [3.0 + 2.0 * 8, 3.0, 5.0]
    plain = transfer_seconds(schedule, Platform((PRICED, replace(FAR, profile=None)))).own
    assert plain[[0, 2, 4]].tolist() == [0.25 + 0.5 * 8, 0.25, 0.125]


def test_columns_say_what_single_actions_cost() -> None:
    for seed in range(40):
        random = Random(seed)
        schedule, platform = random_legal(random, most_steps=12, most_levels=3)
        first = replace(platform.levels[0], backend=random.choice(("ram", "directory")))
        platform = replace(platform, levels=(first, *platform.levels[1:]))
        kinds = frozenset(kind for kind in Kind if random.random() < 0.5)
        schedule = replace(schedule, chain=replace(schedule.chain, handed=kinds))
        found = seconds_of(schedule, platform).tolist()
        assert found == all_seconds(schedule, platform), f"seed {seed}"


@pytest.mark.parametrize("planner", [store_all, by_period, hrevolve, mixed, auto])
def test_a_run_takes_what_it_is_simulated_to_take(planner) -> None:
    for handed in (frozenset[Kind](), STATES, TAPES, STATES | TAPES):
        chain = replace(CHAIN, steps=20, handed=handed)
        platform = Platform((replace(PRICED, capacity=200),), working_memory=chain.tape)
        clock = VirtualClock()
        schedule, model = planner(chain, platform), CountingModel(chain, clock)
        found = run(schedule, platform, model, [PricedRam(platform.levels[0], clock)], clock=clock)
        assert found == simulate(schedule, platform)
        assert found.makespan == makespan(schedule, platform)


@pytest.mark.parametrize("planner", [hrevolve, mixed, periodic])
def test_planners_use_the_prices(planner) -> None:
    """A plan for what is handed over is never above the plan for copies, where that is the best."""
    for seed in range(40):
        random = Random(seed)
        steps, restart, tape = random.randint(3, 30), random.randint(1, 9), random.randint(1, 9)
        costs = {name: random.uniform(0.5, 2.0) for name in ("advance", "record", "reverse")}
        chain = Chain(steps=steps, restart=restart, tape=tape, adjoint=1, **costs)
        prices = [Affine(random.uniform(0, 0.5), random.uniform(0, 1.0)) for _ in range(4)]
        capacity = random.randint(9, 60)
        ram = Level(name="ram", capacity=capacity, write=prices[0], read=prices[1])
        far = Level(name="far", write=prices[2], read=prices[3], backend="directory")
        platform = Platform((ram, far), working_memory=tape)
        handed = replace(chain, handed=STATES | TAPES)
        copied = makespan(replace(planner(chain, platform), chain=handed), platform)
        planned = makespan(planner(handed, platform), platform)
        assert planned <= copied * (1 + 1e-9), f"seed {seed}"


# Where it is written down


def test_it_is_read_back_from_every_file() -> None:
    chain = replace(CHAIN, handed=STATES | TAPES)
    schedule = Schedule(chain, [Record(0, 9), Reverse(0, 9)])
    text = dumps(schedule)
    assert loads(text).schedule == schedule
    assert text.startswith("# ckio schedule 5\n")
    plain = Schedule(replace(chain, handed=()), schedule.actions)
    assert dumps(plain).startswith("# ckio schedule 1\n")
    platform = Platform((PRICED,), models={"mine": replace(chain, steps=None)})
    assert Platform.loads(platform.dumps()) == platform
    assert chain.with_steps(4).handed == chain.handed
    assert chain != replace(chain, handed=TAPES)
    manifest = replace(MANIFEST, chain=replace(MANIFEST.chain, handed=TAPES))
    assert Manifest.loads(manifest.dumps(), source="run.json") == manifest


def test_a_kind_that_there_is_not_is_refused() -> None:
    text = dumps(Schedule(CHAIN, [Record(0, 9)]))
    for kinds in ("t x q", "tape"):
        with pytest.raises(BadInput, match="handed KIND"):
            loads(text.replace("# handed t\n", f"# handed {kinds}\n"))
    platform = Platform((PRICED,), models={"mine": replace(CHAIN, steps=None)})
    with pytest.raises(BadInput, match="handed = "):
        Platform.loads(platform.dumps().replace('"tape"', '"tapes"'))
    with pytest.raises(BadInput, match="kinds of checkpoints"):
        replace(CHAIN, handed=("tape",))  # type: ignore[arg-type]


def test_what_a_model_hands_over_is_measured_with_its_costs() -> None:
    assert measure_model(lambda: Growth(50), repeats=1).handed == TAPES
    assert measure_model(lambda: Copying(Growth(50)), repeats=1).handed == frozenset()


def test_a_model_that_gives_memory_of_its_own_needs_no_slots_for_it() -> None:
    ram, disk = Level(name="ram", capacity=40), Level(name="disk", options={"path": "d"})
    platform = Platform((ram, disk), 4)
    chain = replace(CHAIN, handed=STATES)
    schedule = hrevolve(chain, platform)
    exchanging, own = CountingModel(chain), CountingModel(chain)
    own.exchanges = False  # type: ignore[attr-defined]
    (near, far), (nearer, farther) = (slots_of(schedule, platform, it) for it in (exchanging, own))
    assert near[8] == 5
    assert not nearer.get(8)
    assert far == farther
