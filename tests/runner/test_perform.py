"""The runner performs exactly what was planned, stops where it is told to, and says what failed."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import h5py
import numpy as np
import pytest
from drawing import legal_schedules
from hypothesis import given
from hypothesis import strategies as st

from ckio.actions import (
    Advance,
    Buffers,
    Discard,
    Field,
    Key,
    Kind,
    Layout,
    Read,
    Record,
    Reverse,
    Write,
)
from ckio.backends.directory import Directory
from ckio.backends.files import Files as SystemFiles
from ckio.backends.hdf5 import Hdf5
from ckio.backends.ram import Ram
from ckio.errors import (
    BadInput,
    CkioError,
    IllegalAction,
    LevelFull,
    MissingCheckpoint,
    RunFailed,
    Stopped,
    UnsupportedKind,
)
from ckio.model import ArrayModel, sizes_of
from ckio.planners.binomial import revolve
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.platform.clock import VirtualClock
from ckio.platform.profile import Profile
from ckio.runner import perform, run
from ckio.runner.perform import PIECE
from ckio.schedule import Schedule, makespan
from ckio.schedule.machine import Machine
from ckio.schedule.timeline import Event
from ckio.sim.engine import simulate
from ckio.testing import CountingModel
from tests.runner.throttled import opened, roomy
from tests.single import perform_one

from .failing import Forgetful

CHAIN = Chain(steps=9, advance=1.0, record=1.5, reverse=2.5, restart=100, tape=50, adjoint=70)
PLATFORM = Platform((Level(name="ram", capacity=300),), working_memory=50)
UNLIMITED = replace(PLATFORM, working_memory=None)
REVOLVE = revolve(CHAIN, PLATFORM)
X0, X1, X2 = (Key(Kind.RESTART, step) for step in range(3))


def performed(
    model: CountingModel | None = None,
    *levels: Any,
    schedule: Schedule = REVOLVE,
    platform: Platform = PLATFORM,
    **options: Any,
) -> Any:
    return run(schedule, platform, model or CountingModel(CHAIN), levels or [Ram()], **options)


def delayed(platform: Platform, random: Random) -> Platform:
    """Levels of which some make writes wait where too many bytes do."""

    def profile() -> Profile | None:
        drawn = Profile(dirty=random.randint(0, 30), drained=random.uniform(0.5, 9.0))
        return drawn if random.random() < 0.7 else None

    return replace(
        platform, levels=tuple(replace(level, profile=profile()) for level in platform.levels)
    )


@given(legal_schedules(), st.integers(0, 99))
def test_run_equals_simulate_equals_makespan(case: tuple[Schedule, Platform], seed: int) -> None:
    """Also an action at a time; a write may wait where too many bytes are on their way."""
    schedule, platform = case[0], roomy(case[1])
    model = partial(CountingModel, schedule.chain, schedule=schedule)
    for priced in (platform, delayed(platform, Random(seed))):
        clock = VirtualClock()
        levels = opened(schedule, priced, clock)
        measured = run(schedule, priced, model(clock), levels, clock=clock)
        assert measured == simulate(schedule, priced)
        assert measured.makespan >= makespan(schedule, platform)
    clock = VirtualClock()
    levels, single = opened(schedule, platform, clock), model(clock)
    timeline = simulate(schedule, platform)
    assert timeline.makespan == makespan(schedule, platform)
    for event in timeline:
        assert perform_one(event.action, single, levels) == event.nbytes
        assert clock.now() == event.stop


def test_perform_gives_each_event_as_it_has_happened() -> None:
    clock, seen = VirtualClock(), []
    model, machine = CountingModel(CHAIN, clock), Machine(CHAIN, PLATFORM)
    levels = opened(REVOLVE, PLATFORM, clock)
    times = perform(REVOLVE, PLATFORM, model, levels, clock=clock)
    for action, (_, stop, _) in zip(REVOLVE.actions, times, strict=True):
        machine.apply(action)
        assert stop == clock.now()
        assert (model.state, model.adjoint) == (machine.state, machine.adjoint)
        assert set(levels[0].keys()) == machine.stored[0]
    assert machine.count == len(REVOLVE)
    assert list(performed(watch=seen.append)) == seen


# --- What is refused before the start


ILLEGAL = Schedule(CHAIN, [Write(X0, 0), Advance(0, 2), Read(X2, 0)])


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda model: performed(model, schedule=ILLEGAL), IllegalAction, r"#2 Read\(x_2"),
        (
            lambda model: performed(model, schedule=Schedule(CHAIN, [Read(X2, 0)], [[X2]])),
            *(BadInput, "starts with x_2 on level 'ram'"),
        ),
        (lambda model: run(REVOLVE, PLATFORM, model, []), BadInput, "0 open levels .* 1"),
        (lambda model: perform(REVOLVE, PLATFORM, model, []), BadInput, "0 open levels .* 1"),
        (lambda model: performed(model, Ram(capacity=200)), BadInput, "'ram' has no space"),
    ],
)
def test_what_cannot_be_performed_is_refused_before_anything_is_done(
    call: Callable[[CountingModel], object], error: type[CkioError], words: str
) -> None:
    model = CountingModel(CHAIN)
    with pytest.raises(error, match=words) as caught:
        call(model)
    assert model.state == 0
    assert caught.value.action is None or error is IllegalAction


def test_the_model_must_have_the_sizes_that_were_planned_for_every_step() -> None:
    with pytest.raises(BadInput, match="100 bytes for a restart checkpoint; the model's has 99"):
        performed(CountingModel(replace(CHAIN, restart=99)))
    chain = replace(CHAIN, restart=[100, *range(90, 98)])
    schedule = Schedule(chain, [Write(X0, 0), Advance(0, 1), Write(X1, 0)])
    timeline = performed(CountingModel(chain), schedule=schedule)
    assert timeline.nbytes.tolist() == [100, 0, 90]
    with pytest.raises(BadInput, match="plans 90 bytes for x_1; the model's has 100"):
        performed(CountingModel(CHAIN), schedule=schedule)


@pytest.mark.parametrize("tape", [1 << 50, [1] * 8 + [1 << 50]])
def test_a_tape_beyond_the_memory_of_the_machine_is_seen_before_the_start(tape: Any) -> None:
    chain = replace(CHAIN, tape=tape)
    schedule = Schedule(chain, [Record(0, 9), Reverse(0, 9)])
    with pytest.raises(BadInput, match="memory for the tape of 9 steps"):
        run(schedule, Platform(()), CountingModel(chain), [])


# --- What goes wrong on the way


@pytest.mark.parametrize(
    ("reached", "words"),
    [
        *((value, repr(value)) for value in (None, -1, 10, 2.0)),
        (np.ones(3), r"an array of shape \(3,\)"),
        ([9], "a list"),
    ],
    ids=str,
)
def test_a_model_that_does_not_say_where_it_stands_is_told_to(reached: object, words: str) -> None:
    class Vague(CountingModel):
        def advance(self, begin, end, /):  # type: ignore[no-untyped-def]
            super().advance(begin, end)
            return reached

    with pytest.raises(RunFailed, match=rf"advance .* returned {words}; .* return the step"):
        performed(Vague(CHAIN))


@pytest.mark.parametrize(
    "layout",
    [
        None,
        [Field("u", "<f8", (3,))],
        (("u", "<f8", (3,)),),
        (Field("u", "float65", (3,)),),
        (Field("u", "<f8", 3),),  # type: ignore[arg-type]
    ],
    ids=str,
)
def test_a_model_whose_layout_is_none_is_told_what_it_must_be(layout: object) -> None:
    class Vague(CountingModel):
        def layout(self, key, /):  # type: ignore[no-untyped-def]
            return layout

    with pytest.raises(BadInput, match=r"layout of .*; it must be a tuple of Field\("):
        performed(Vague(CHAIN))


class Broken(CountingModel):
    """A model that raises whatever it was given when it reverses step 5."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(CHAIN)
        self.error = error

    def reverse(self, begin: int, end: int, /) -> None:
        if begin == 5:
            raise self.error
        super().reverse(begin, end)


class Short(CountingModel):
    """A model that never gets as far as it is asked to."""

    def advance(self, begin: int, end: int, /) -> int:
        return super().advance(begin, end) - 1


class Shrinking(Ram):
    """A level whose room is found to be too little only when it is written to."""

    def reserve(self, sizes, /):  # type: ignore[no-untyped-def]
        del sizes


class Hides(CountingModel):
    """A model that would go on with a state that was not read."""

    @contextmanager
    def load(self, key: Key, layout: Layout, /) -> Iterator[Buffers]:
        with suppress(MissingCheckpoint), super().load(key, layout) as into:
            yield into


DIVISION, NO_TAPE = ZeroDivisionError("by depth"), UnsupportedKind("no such tape")
ACTIONS = list(REVOLVE.actions)
FIRST = {
    kind: ACTIONS.index(next(filter(kind.__instancecheck__, ACTIONS))) for kind in (Advance, Read)
}
FIFTH = ACTIONS.index(Reverse(5, 6))


@pytest.mark.parametrize(
    ("model", "level", "error", "words", "action"),
    [
        (None, Forgetful(), MissingCheckpoint, r"Read\(.* on 'ram': x_\d is gone$", FIRST[Read]),
        (Hides(CHAIN), Forgetful(), MissingCheckpoint, r"Read\(.* on 'ram': x", FIRST[Read]),
        (None, Shrinking(capacity=150), LevelFull, r"Write\(x_\d, level 0\) on 'ram': ", None),
        (Short(CHAIN), Ram(), RunFailed, r"Advance\[.*finished at step", FIRST[Advance]),
        (Broken(DIVISION), Ram(), RunFailed, r"Reverse\[5, 6\): Zero.*by depth$", FIFTH),
        (Broken(BadInput("deep")), Ram(), BadInput, r"Reverse\[5, 6\): deep$", FIFTH),
        (Broken(NO_TAPE), Ram(), UnsupportedKind, r"Reverse\[5, 6\): no", FIFTH),
    ],
)
def test_an_error_keeps_its_class_and_names_the_action_and_the_level(
    model: CountingModel | None, level: Ram, error: type[CkioError], words: str, action: int | None
) -> None:
    with pytest.raises(error, match=rf"^#\d+ {words}") as caught:
        performed(model, level)
    told = caught.value
    assert action is None or told.action == action
    assert getattr(told, "level", None) == (0 if "on 'ram'" in words else None)
    assert error is not RunFailed or told.__cause__ in (DIVISION, None)


def test_what_the_watcher_raises_ends_the_run_as_it_is() -> None:
    def watch(event: Event) -> None:
        raise TimeoutError(str(event.action))

    with pytest.raises(TimeoutError, match=r"^Write\(x_0, level 0\)$"):
        performed(watch=watch)


@pytest.mark.parametrize("stop", [1, 2, 3, 6, 11, pytest.param(13, marks=pytest.mark.slow)])
def test_an_interrupt_leaves_whole_checkpoints(stop: int, tmp_path: Path) -> None:
    """Whether it comes in a step or in a write: what is listed afterwards can be read."""
    calls = itertools.count(1)

    def tick() -> None:
        if next(calls) == stop:
            raise KeyboardInterrupt

    class Interrupted(CountingModel):
        def dump(self, key: Key, /) -> Buffers:
            tick()
            return super().dump(key)

        def advance(self, begin: int, end: int, /) -> int:
            tick()
            return super().advance(begin, end)

    class Files(SystemFiles):
        def pwritev(self, fd: int, data: Buffers, offset: int, /) -> int:
            tick()
            return super().pwritev(fd, data, offset)

    stored = 0
    tries = ((Interrupted(CHAIN), SystemFiles()), (CountingModel(CHAIN), Files()))
    for number, (model, files) in enumerate(tries):
        calls = itertools.count(1)
        level = Directory(tmp_path / str(number), files=files)
        with pytest.raises(KeyboardInterrupt):
            performed(model, level)
        level.close()
        level = Directory(tmp_path / str(number))
        for key in sorted(level.keys(), key=str):
            with CountingModel(CHAIN).load(key, level.layout(key)) as buffers:
                level.read(key, buffers)
            stored += 1
        level.close()
    assert stored or stop == 1


# --- What is reserved


def test_tapes_of_no_bytes_are_written_and_read() -> None:
    chain, tape = replace(CHAIN, steps=1, tape=0), Key(Kind.TAPE, 0)
    schedule = Schedule(chain, [Record(0, 1), Write(tape, 0), Read(tape, 0), Reverse(0, 1)])
    assert performed(CountingModel(chain), schedule=schedule).nbytes.tolist() == [0] * 4


def test_different_sizes_that_peak_at_different_times_fit() -> None:
    # x_0 (100 bytes) lies there first, then three tapes of 40 take its place: never above 120.
    chain = Chain(steps=4, advance=1, record=1, reverse=1, restart=100, tape=40, adjoint=1)
    tapes = [Key(Kind.TAPE, step) for step in range(3)]
    forward = [action for t in tapes for action in (Record(t.step, t.step + 1), Write(t, 0))]
    back = [
        action
        for t in reversed(tapes)
        for action in (Read(t, 0), Discard(t, 0), Reverse(t.step, t.step + 1))
    ]
    actions = [*(Write(X0, 0), Advance(0, 4), Read(X0, 0), Discard(X0, 0))]
    schedule = Schedule(chain, [*actions, *forward, Record(3, 4), Reverse(3, 4), *back])
    platform = Platform((Level(name="ram", capacity=120),), working_memory=40)
    performed(CountingModel(chain), Ram(capacity=120), schedule=schedule, platform=platform)


def test_groups_of_an_archive_are_made_before_the_first_action(tmp_path: Path) -> None:
    chain = Chain(steps=3, advance=1, record=1, reverse=1, restart=50, tape=50, adjoint=50)
    t1, t2 = Key(Kind.TAPE, 1), Key(Kind.TAPE, 2)
    schedule = Schedule(
        chain,
        [
            *(Write(X0, 0), Advance(0, 1), Record(1, 2), Write(t1, 0), Record(2, 3), Write(t2, 0)),
            *(Reverse(2, 3), Read(t1, 0), Reverse(1, 2)),
            *(Read(X0, 0), Record(0, 1), Reverse(0, 1)),
        ],
    )
    archive, before = Hdf5(tmp_path / "archive.h5"), []

    def watch(_: Event) -> None:
        with h5py.File(archive.path) as file:
            before.append({name: len(it["keys"]) for name, it in file.items() if name != "README"})

    model, platform = CountingModel(chain), Platform((Level(name="archive"),), working_memory=50)
    performed(model, archive, schedule=schedule, platform=platform, watch=watch)
    archive.close()
    assert before == [{"restart-0": 1, "tape-0": 2}] * len(schedule)
    # In memory, restart data and tapes of one size share what is reserved.
    ram = Ram(capacity=150)
    performed(CountingModel(chain), ram, schedule=schedule, platform=platform)


# --- Stops


class After:
    """Says stop when it has been asked so many times; notes when it was, on a clock."""

    def __init__(self, count: float, clock: VirtualClock | None = None) -> None:
        self.left, self.clock = count, clock or VirtualClock()
        self.asked: list[float] = []

    def __call__(self) -> bool:
        self.asked.append(self.clock.now())
        self.left -= 1
        return self.left <= 0

    @property
    def gaps(self) -> list[float]:
        return [after - before for before, after in itertools.pairwise(self.asked)]


@given(legal_schedules(), st.integers(1, 60))
def test_a_run_that_is_stopped_says_where_the_model_stands(
    case: tuple[Schedule, Platform], count: int
) -> None:
    schedule, platform = case[0], roomy(case[1])
    clock, done, stop = VirtualClock(), list[Event](), After(count)
    model, levels = CountingModel(schedule.chain, clock), opened(schedule, platform, clock)
    stopped = None
    try:
        run(schedule, platform, model, levels, clock=clock, watch=done.append, stop=stop)
    except Stopped as error:
        stopped = error
    if stopped is None:
        assert len(done) == len(schedule)
        assert len(stop.asked) < count
    else:
        assert (stopped.state, stopped.adjoint) == (model.state, model.adjoint)
        assert (stopped.action, len(stop.asked)) == (len(done), count)


def test_a_stop_within_an_action_leaves_it_done_in_part() -> None:
    model, schedule = CountingModel(CHAIN), Schedule(CHAIN, [Record(0, 9), Reverse(2, 9)])
    with pytest.raises(Stopped, match=r"before action #1 of 2: .* the adjoint is at 8$"):
        performed(model, schedule=schedule, platform=UNLIMITED, stop=After(3))
    assert (model.adjoint, model.tape) == (8, (0, 8))
    model = CountingModel(CHAIN)
    with pytest.raises(Stopped, match="the state is x_1, the adjoint is at 9") as caught:
        performed(model, schedule=Schedule(CHAIN, [Advance(0, 9)]), stop=After(2))
    assert (caught.value.action, model.state) == (0, 1)


def asked(chain: Chain, actions: list[Any]) -> tuple[list[float], After]:
    """When each action ended, and a `stop` that was asked and never said so."""
    clock = VirtualClock()
    stop, schedule = After(float("inf"), clock), Schedule(chain, actions)
    model = CountingModel(chain, clock)
    timeline = performed(model, schedule=schedule, platform=UNLIMITED, clock=clock, stop=stop)
    return timeline.stop.tolist(), stop


@pytest.mark.parametrize("seconds", [2**-12, 2**-6, 0.25, 2.0])
def test_stop_is_asked_again_soon_within_long_actions(seconds: float) -> None:
    chain = replace(CHAIN, steps=4096, advance=seconds, record=seconds, reverse=seconds)
    actions = [Write(X0, 0), Advance(0, 4096), Read(X0, 0), Record(0, 4096), Reverse(0, 4096)]
    ends, stop = asked(chain, actions)
    assert ends == [seconds * steps for steps in (0, 4096, 4096, 8192, 12288)]
    gaps = stop.gaps
    gaps.remove(4096 * seconds)  # the Record, which nobody can cut
    assert max(gaps) <= max(seconds, PIECE)
    # Asked more often than is of use only while the pieces grow, four times from one to the next.
    pieces = 2 * 4096 / max(1, PIECE / seconds)
    assert len(stop.asked) <= pieces + 2 * 8 + len(actions)


def test_pieces_shrink_again_where_steps_become_slower() -> None:
    slower = replace(CHAIN, steps=4096, advance=[2**-10] * 2048 + [1.0] * 2048)
    gaps = asked(slower, [Advance(0, 2048), Advance(2048, 4096)])[1].gaps
    assert gaps.count(1.0) > 1500
    assert sum(gap > 1.0 for gap in gaps) == 1
    one_is_fast = replace(CHAIN, steps=101, advance=[2**-20] + [0.25] * 100)
    assert max(asked(one_is_fast, [Advance(0, 101)])[1].gaps) <= 1.0


def test_what_stop_raises_ends_the_run_as_it_is() -> None:
    calls = itertools.count(1)

    def stop() -> bool:
        if next(calls) == 2:
            raise TimeoutError("now")
        return False

    model = CountingModel(CHAIN)
    with pytest.raises(TimeoutError, match=r"^now$"):
        performed(model, schedule=Schedule(CHAIN, [Advance(0, 9)]), stop=stop)
    assert model.state == 1


def test_x_0_is_computed_before_the_time_of_a_run_begins() -> None:
    clock = VirtualClock()

    class SlowToStart(ArrayModel):
        def start(self, state: Any) -> None:
            clock.sleep(7.0)
            super().start(state)

        def step(self, state: Any, i: int) -> None:
            clock.sleep(1.0)
            state["J"] += 1

        def adjoint_step(self, adjoint: Any, tape: Any, i: int) -> None: ...

    model = SlowToStart({"u": np.ones(3), "J": 0.0}, control={"u": np.ones(3)}, tape=["u"])
    chain = Chain(steps=1, advance=1.0, record=1.0, reverse=0.0, **sizes_of(model))
    schedule = revolve(chain, Platform((), working_memory=chain.tape))
    timeline = run(schedule, Platform((), working_memory=chain.tape), model, [], clock=clock)
    assert timeline.makespan == 1.0
    assert clock.now() == 8.0
