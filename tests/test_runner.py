"""The runner performs exactly what was planned, and says what stood in the way."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given

from ckio.actions import (
    Advance,
    Buffers,
    Discard,
    Field,
    Key,
    Kind,
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
    IllegalAction,
    LevelFull,
    MissingCheckpoint,
    RunFailed,
)
from ckio.planners.binomial import revolve
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.platform.clock import VirtualClock
from ckio.runner import run
from ckio.schedule import Schedule, makespan
from ckio.schedule.timeline import Event
from ckio.sim.engine import simulate
from ckio.testing import CountingModel
from ckio.testing.strategies import legal_schedules
from tests.runner.throttled import opened, roomy

CHAIN = Chain(steps=9, advance=1.0, record=1.5, reverse=2.5, restart=100, tape=50, adjoint=70)
PLATFORM = Platform((Level(name="ram", capacity=300),), working_memory=50)
X0, X2 = Key(Kind.RESTART, 0), Key(Kind.RESTART, 2)


@given(legal_schedules())
def test_run_equals_simulate_equals_makespan(case: tuple[Schedule, Platform]) -> None:
    schedule, platform = case[0], roomy(case[1])
    clock = VirtualClock()
    backends = opened(schedule, platform, clock)
    measured = run(schedule, platform, CountingModel(schedule.chain, clock), backends, clock=clock)
    assert measured == simulate(schedule, platform)
    assert measured.makespan == makespan(schedule, platform)


def test_every_event_is_watched() -> None:
    schedule, seen = revolve(CHAIN, PLATFORM), []
    timeline = run(schedule, PLATFORM, CountingModel(CHAIN), [Ram()], watch=seen.append)
    assert seen == list(timeline)


def test_an_illegal_schedule_is_refused_before_anything_is_done() -> None:
    model = CountingModel(CHAIN)
    with pytest.raises(IllegalAction, match=r"#2 Read\(x_2, level 0\)"):
        run(Schedule(CHAIN, [Write(X0, 0), Advance(0, 2), Read(X2, 0)]), PLATFORM, model, [Ram()])
    assert model.state == 0


def test_levels_and_backends_must_be_as_many() -> None:
    with pytest.raises(BadInput, match="0 open levels for a platform of 1"):
        run(revolve(CHAIN, PLATFORM), PLATFORM, CountingModel(CHAIN), [])


def test_the_model_must_have_the_sizes_that_were_planned() -> None:
    other = Chain(steps=9, advance=1, record=1, reverse=1, restart=99, tape=50, adjoint=70)
    with pytest.raises(
        BadInput, match="plans 100 bytes for a restart checkpoint; the model's has 99"
    ):
        run(revolve(CHAIN, PLATFORM), PLATFORM, CountingModel(other), [Ram()])


def test_the_model_must_have_the_sizes_of_every_step() -> None:
    chain = replace(CHAIN, restart=[100, *range(90, 98)])
    x1 = Key(Kind.RESTART, 1)
    schedule = Schedule(chain, [Write(X0, 0), Advance(0, 1), Write(x1, 0)])
    assert [event.nbytes for event in run(schedule, PLATFORM, CountingModel(chain), [Ram()])] == [
        100,
        0,
        90,
    ]
    with pytest.raises(BadInput, match="plans 90 bytes for x_1; the model's has 100"):
        run(schedule, PLATFORM, CountingModel(CHAIN), [Ram()])


def test_keys_that_the_schedule_starts_with_must_be_stored() -> None:
    schedule = Schedule(CHAIN, [Read(X2, 0)], [[X2]])
    with pytest.raises(BadInput, match="starts with x_2 on level 'ram'; it is not stored there"):
        run(schedule, PLATFORM, CountingModel(CHAIN), [Ram()])


def test_too_little_room_is_seen_before_the_start() -> None:
    model = CountingModel(CHAIN)
    with pytest.raises(BadInput, match="level 'ram' has no room for this plan"):
        run(revolve(CHAIN, PLATFORM), PLATFORM, model, [Ram(capacity=200)])
    assert model.state == 0


@pytest.mark.parametrize("tape", [1 << 50, [1] * 8 + [1 << 50]])
def test_a_tape_beyond_the_memory_of_the_machine_is_seen_before_the_start(tape: Any) -> None:
    chain = replace(CHAIN, tape=tape)
    schedule = Schedule(chain, [Record(0, 9), Reverse(0, 9)])
    with pytest.raises(BadInput, match="holds the tape of 9 steps in memory"):
        run(schedule, Platform(()), CountingModel(chain), [])


class _Forgetful(Ram):
    """A level that loses what it is given."""

    def read(self, key, into, /):  # type: ignore[no-untyped-def]
        raise MissingCheckpoint(f"{key} is gone")


def test_a_storage_error_names_the_level_and_the_action() -> None:
    with pytest.raises(
        MissingCheckpoint, match=r"^#\d+ Read\(x_\d, level 0\) on 'ram': x_\d is gone$"
    ):
        run(revolve(CHAIN, PLATFORM), PLATFORM, CountingModel(CHAIN), [_Forgetful()])


class _Short(CountingModel):
    def advance(self, begin: int, end: int, /) -> int:
        return super().advance(begin, end) - 1


def test_a_model_that_finishes_early_is_reported() -> None:
    with pytest.raises(RunFailed, match="finished at step"):
        run(revolve(CHAIN, PLATFORM), PLATFORM, _Short(CHAIN), [Ram()])


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

    with pytest.raises(
        RunFailed, match=rf"advance from .* returned {words}; it must return the step"
    ):
        run(revolve(CHAIN, PLATFORM), PLATFORM, Vague(CHAIN), [Ram()])


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

    with pytest.raises(BadInput, match=r"layout of .* is .*; it must be a tuple of Field\("):
        run(revolve(CHAIN, PLATFORM), PLATFORM, Vague(CHAIN), [Ram()])


class _Broken(CountingModel):
    """A model that raises whatever it was given when it reverses step 5."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(CHAIN)
        self.error = error

    def reverse(self, begin: int, end: int, /) -> None:
        if begin == 5:
            raise self.error
        super().reverse(begin, end)


def test_what_a_model_raises_is_the_cause_and_the_action_is_named() -> None:
    error = ZeroDivisionError("by depth")
    with pytest.raises(
        RunFailed, match=r"^#\d+ Reverse\[5, 6\): ZeroDivisionError: by depth$"
    ) as e:
        run(revolve(CHAIN, PLATFORM), PLATFORM, _Broken(error), [Ram()])
    assert e.value.__cause__ is error


def test_an_error_of_ours_keeps_its_class() -> None:
    with pytest.raises(BadInput, match=r"^#\d+ Reverse\[5, 6\): too deep$"):
        run(revolve(CHAIN, PLATFORM), PLATFORM, _Broken(BadInput("too deep")), [Ram()])


def test_what_the_watcher_raises_ends_the_run_as_it_is() -> None:
    def watch(event: Event) -> None:
        raise TimeoutError(str(event.action))

    with pytest.raises(TimeoutError, match=r"^Write\(x_0, level 0\)$"):
        run(revolve(CHAIN, PLATFORM), PLATFORM, CountingModel(CHAIN), [Ram()], watch=watch)


@pytest.mark.parametrize("stop", range(1, 14))
def test_an_interrupt_leaves_whole_checkpoints(stop: int, tmp_path: Path) -> None:
    """Whether it comes in a step or in a write: what is listed afterwards can be read."""

    class Interrupted(CountingModel):
        count = 0

        def dump(self, key: Key, /) -> Buffers:
            self._tick()
            return super().dump(key)

        def advance(self, begin: int, end: int, /) -> int:
            self._tick()
            return super().advance(begin, end)

        def _tick(self) -> None:
            self.count += 1
            if self.count == stop:
                raise KeyboardInterrupt

    class Files(SystemFiles):
        count = 0

        def pwritev(self, fd: int, data: Buffers, offset: int, /) -> int:
            self.count += 1
            if self.count == stop:
                raise KeyboardInterrupt
            return super().pwritev(fd, data, offset)

    schedule, stored = revolve(CHAIN, PLATFORM), 0
    tries = ((Interrupted(CHAIN), SystemFiles()), (CountingModel(CHAIN), Files()))
    for number, (model, files) in enumerate(tries):
        place = tmp_path / str(number)
        level = Directory(place, files=files)
        with pytest.raises(KeyboardInterrupt):
            run(schedule, PLATFORM, model, [level])
        level.close()
        level = Directory(place)
        for key in sorted(level.keys(), key=str):
            with CountingModel(CHAIN).load(key, level.layout(key)) as buffers:
                level.read(key, buffers)
            stored += 1
        level.close()
    assert stored or stop == 1


def test_what_an_earlier_run_left_is_seen_before_the_start() -> None:
    level = Ram()
    run(Schedule(CHAIN, [Write(X0, 0)]), PLATFORM, CountingModel(CHAIN), [level])
    model = CountingModel(CHAIN)
    with pytest.raises(BadInput, match="level 'ram' already holds x_0, which the schedule writes"):
        run(revolve(CHAIN, PLATFORM), PLATFORM, model, [level])
    assert model.state == 0
    run(Schedule(CHAIN, [Read(X0, 0)], [[X0]]), PLATFORM, CountingModel(CHAIN), [level])


def test_tapes_of_no_bytes_are_written_and_read() -> None:
    chain, tape = replace(CHAIN, steps=1, tape=0), Key(Kind.TAPE, 0)
    schedule = Schedule(chain, [Record(0, 1), Write(tape, 0), Read(tape, 0), Reverse(0, 1)])
    timeline = run(schedule, PLATFORM, CountingModel(chain), [Ram()])
    assert [event.nbytes for event in timeline] == [0, 0, 0, 0]


def test_restart_and_tape_of_one_size_share_the_reservation() -> None:
    chain = Chain(steps=3, advance=1, record=1, reverse=1, restart=50, tape=50, adjoint=50)
    t1 = Key(Kind.TAPE, 1)
    schedule = Schedule(
        chain,
        [
            *(Write(X0, 0), Advance(0, 1), Record(1, 2), Write(t1, 0)),
            *(Record(2, 3), Reverse(2, 3), Read(t1, 0), Reverse(1, 2)),
            *(Read(X0, 0), Record(0, 1), Reverse(0, 1)),
        ],
    )
    platform = Platform((Level(name="ram", capacity=100),), working_memory=50)
    run(schedule, platform, CountingModel(chain), [Ram(capacity=100)])


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

    platform = Platform((Level(name="archive"),), working_memory=50)
    run(schedule, platform, CountingModel(chain), [archive], watch=watch)
    archive.close()
    assert before == [{"restart-0": 1, "tape-0": 2}] * len(schedule)


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
    schedule = Schedule(
        chain,
        [
            *(Write(X0, 0), Advance(0, 4), Read(X0, 0), Discard(X0, 0)),
            *(*forward, Record(3, 4), Reverse(3, 4), *back),
        ],
    )
    platform = Platform((Level(name="ram", capacity=120),), working_memory=40)
    run(schedule, platform, CountingModel(chain), [Ram(capacity=120)])


def test_a_level_that_fills_in_mid_run_says_so() -> None:
    class Shrinking(Ram):
        def reserve(self, sizes, /):  # type: ignore[no-untyped-def]
            del sizes

    with pytest.raises(LevelFull, match=r"^#\d+ Write\(x_\d, level 0\) on 'ram': "):
        run(revolve(CHAIN, PLATFORM), PLATFORM, CountingModel(CHAIN), [Shrinking(capacity=150)])
