"""A level fails on the way to an end that is not known, and the gradient is as if it had not."""

import resource
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from ckio.actions import Advance, Buffers, Discard, Key, Layout, Read, Write
from ckio.backends.base import Backend
from ckio.backends.compressed import Compressed
from ckio.backends.directory import Directory
from ckio.backends.hdf5 import Hdf5
from ckio.backends.ram import Ram
from ckio.compression import Zstd
from ckio.errors import (
    CorruptCheckpoint,
    LevelFull,
    MissingCheckpoint,
    NoSchedule,
    RunFailed,
    Stopped,
    StorageError,
)
from ckio.planners.online import Online
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.runner.failover import Forward, failover, ready_for_the_way_back, run_forward
from ckio.schedule import Schedule
from ckio.schedule.replay import validate
from ckio.schedule.timeline import Event
from ckio.testing import x
from tests.backends.common import in_child, mount_small, with_own_mounts

from .failing import (
    Faults,
    Faulty,
    Logistic,
    Result,
    chain_of,
    finished,
    platform_of,
    result,
    truth,
)

STEPS = 7
ERRORS = (StorageError, LevelFull, MissingCheckpoint, CorruptCheckpoint)


class Ending(Logistic):
    """A program that says itself when it is finished."""

    def __init__(self, size: int = 8, steps: int = STEPS) -> None:
        super().__init__(size)
        self.steps = steps

    def finished(self, state: Any, i: int, /) -> bool:
        return i >= self.steps


@dataclass
class Run:
    """A run of unknown length on levels that fail, and what it said."""

    platform: Platform
    backends: Sequence[Backend]
    size: int = 8
    steps: int = STEPS
    said: list[str] = field(default_factory=list)
    seen: list[Event] = field(default_factory=list)
    platforms: list[Platform] = field(default_factory=list)
    watch: Callable[[Event], None] | None = None
    stop: Callable[[], bool] | None = None

    @property
    def chain(self) -> Chain:
        return chain_of(self.steps, self.size)

    def rule(self, platform: Platform, stored: Sequence[Collection[Key]]) -> Online:
        self.platforms.append(platform)
        assert len(self.platforms) < 200, "it does not end"
        return Online(replace(chain_of(1, self.size), steps=None), platform)

    def told(self, event: Event) -> None:
        self.seen.append(event)
        if self.watch is not None:
            self.watch(event)

    def forward(self, stored: Sequence[Collection[Key]] = ()) -> Forward:
        model = Ending(self.size, self.steps)
        return run_forward(
            self.rule, self.platform, model, self.backends,
            say=self.said.append, stored=stored, watch=self.told, stop=self.stop,
        )  # fmt: skip

    def ready(self, done: Forward) -> tuple[Schedule, Forward]:
        def plan(platform: Platform, stored: Sequence[Collection[Key]]) -> Schedule:
            return finished(self.chain, platform, tuple(map(frozenset, stored)))

        return ready_for_the_way_back(plan, self.chain, done, say=self.said.append)

    def back(self, done: Forward) -> Result:
        """The way back by a fresh model, as the command line goes it."""
        assert done.steps == self.steps
        plan, done = self.ready(done)
        _, model = failover(
            plan, done.platform, Logistic(self.size), done.backends,
            fresh=lambda: Logistic(self.size), replan=finished, say=self.said.append,
        )  # fmt: skip
        return result(model)


PLATFORM = platform_of(chain_of(STEPS), 2, 3)
TRUTH = truth(STEPS)


def memory(faults: Faults, platform: Platform = PLATFORM) -> list[Faulty]:
    return [Faulty(Ram(), number, faults) for number in range(len(platform.levels))]


def calls(platform: Platform = PLATFORM) -> int:
    """How often the levels are called on the way forward, if nothing fails."""
    faults = Faults({})
    Run(platform, memory(faults, platform)).forward()
    return faults.count


def test_the_way_forward_uses_every_level_in_every_way() -> None:
    run = Run(PLATFORM, memory(Faults({})))
    done = run.forward()
    used = {
        (type(event.action), event.action.level)
        for event in run.seen
        if not isinstance(event.action, Advance)
    }
    assert used == {(verb, level) for verb in (Write, Read, Discard) for level in (0, 1)}
    assert list(done.timeline) == run.seen
    assert (done.platform, done.backends) == (PLATFORM, run.backends)
    assert len(run.platforms) == 1
    assert run.back(done) == TRUTH
    assert run.said == []


@pytest.mark.campaign
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("ever", [False, True])
def test_any_call_may_fail_once_or_from_then_on(error: type[StorageError], ever: bool) -> None:
    for number in range(calls()):
        faults = Faults({number: error}, ever=ever)
        run = Run(PLATFORM, memory(faults))
        done = run.forward()
        assert run.back(done) == TRUTH
        assert len(run.said) == len(set(run.said)) > 0
        level, verb, _ = faults.raised[0]
        assert f"level {PLATFORM.levels[level].name!r}" in run.said[0]
        assert f"this {verb} was to fail" in run.said[0]


@pytest.mark.parametrize("error", [StorageError, LevelFull, CorruptCheckpoint])
@pytest.mark.parametrize(
    "apart", [(4,), pytest.param((1, 2, 3, 5, 6, 8, 13), marks=pytest.mark.slow)]
)
def test_a_second_call_may_fail_later(apart: tuple[int, ...], error: type[StorageError]) -> None:
    platform = platform_of(chain_of(STEPS), 2, 2, 3)
    for number in range(0, calls(platform), 3):
        for later in apart:
            faults = Faults({number: LevelFull, number + later: error})
            run = Run(platform, memory(faults, platform))
            assert run.back(run.forward()) == TRUTH
            assert run.said


@pytest.mark.slow
@pytest.mark.parametrize("slots", [(1, 1), (2, 4), (3, 2, 4), (2, 1, None), (1, 2, 2)])
@pytest.mark.parametrize("error", ERRORS)
def test_any_call_may_fail_on_any_platform(
    error: type[StorageError], slots: tuple[int | None, ...]
) -> None:
    for steps in (7, 33):
        platform, expected = platform_of(chain_of(steps), *slots), truth(steps)
        for ever in (False, True):
            for number in range(1, calls(platform)):
                faults = Faults({number: error}, ever=ever)
                run = Run(platform, memory(faults, platform), steps=steps)
                assert run.back(run.forward()) == expected


def test_a_level_that_is_full_keeps_what_it_holds_and_gets_no_more() -> None:
    platform = platform_of(chain_of(STEPS), None)
    run = Run(platform, memory(Faults({3: LevelFull}), platform))
    done = run.forward()
    held = 3 * chain_of(STEPS).restart
    assert [platform.levels[0].capacity for platform in run.platforms] == [None, held]
    assert done.platform == run.platforms[-1]
    assert "is full, and gets no more room: #6 Write(x_3, level 0)" in run.said[0]
    done.backends[0].reserve({10**15: 1})  # nothing is asked of the level
    assert run.back(done) == TRUTH


def test_it_goes_on_from_the_furthest_state_that_is_left() -> None:
    """While checkpoints move, the register holds an older one, and then a level goes."""
    run = Run(PLATFORM, memory(Faults({})))
    run.forward()
    moved = next(n for n, event in enumerate(run.seen) if isinstance(event.action, Read)) + 1
    number = sum(not isinstance(event.action, Advance) for event in run.seen[:moved])
    again = Run(PLATFORM, memory(Faults({number: StorageError}, ever=True)))
    done = again.forward()
    assert "fails, and is given up: #12 Write(x_0, level 1)" in again.said[0]
    assert again.seen[moved].action == Read(x(3), 0)  # x_4 was on the level that has gone
    assert again.seen[moved + 1].action == Advance(3, 4)
    assert again.back(done) == TRUTH


def test_memory_that_is_of_use_only_now_may_have_less_room_than_it_said() -> None:
    """The second level is asked to make room once the first has gone: it has none."""
    platform = platform_of(chain_of(STEPS), None, 4, 3)
    run = Run(platform, [Faulty(Ram(), 0, Faults({2: StorageError})), Ram(capacity=100), Ram()])
    assert {far.room.number for far in run.rule(platform, ()).levels.far} == set()
    assert run.back(run.forward()) == TRUTH
    assert ["given up" in run.said[0], "is full" in run.said[1]] == [True, True]


def test_with_no_level_left_it_says_so_and_what_is_durable_is_intact(tmp_path: Path) -> None:
    level = Directory(tmp_path / "level")
    faults = Faults({4: StorageError}, ever=True)
    run = Run(platform_of(chain_of(STEPS), 4), [Faulty(level, 0, faults)])
    with pytest.raises(StorageError, match="and there is no way to go on") as caught:
        run.forward()
    text = str(caught.value)
    assert "level 'level0' fails, and is given up: #" in text
    assert "resume the run" in text
    assert caught.value.level == 0
    assert caught.value.__cause__ is not None
    assert run.said == []
    stored = set(level.keys())
    assert x(0) in stored
    level.close()
    again = Run(run.platform, [Directory(tmp_path / "level")])
    done = again.forward([stored])
    read = again.seen[0].action
    assert read == Read(max(stored, key=lambda key: key.step), 0)
    assert again.back(done) == TRUTH
    for backend in again.backends:
        backend.remove()  # type: ignore[attr-defined]


class _Killed(Exception):
    pass


def broken_off(faults: Faults, actions: int) -> tuple[Run, list[set[Key]]]:
    """A run of which so many actions are done, to be gone on with; and what is stored."""
    run = Run(PLATFORM, memory(faults))

    def watch(_: Event) -> None:
        if len(run.seen) == actions:
            raise _Killed

    run.watch = watch
    with suppress(_Killed):
        run.forward()
    run.watch = None
    run.seen.clear()
    return run, [set(level.keys()) for level in run.backends]


@pytest.mark.campaign
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("ever", [False, True])
def test_a_run_that_goes_on_may_lose_what_it_goes_on_from(
    error: type[StorageError], ever: bool
) -> None:
    for actions in (10, 19):
        for number in range(5):
            faults = Faults({}, ever=ever)
            run, stored = broken_off(faults, actions)
            faults.errors = {faults.count + number: error}
            done = run.forward(stored)
            assert isinstance(run.seen[0].action, Read) or number == 0
            assert run.back(done) == TRUTH
            assert bool(faults.raised) == bool(run.said)


@pytest.mark.parametrize("number", range(1, STEPS))
def test_what_a_level_lists_that_it_failed_to_write_is_not_relied_on(number: int) -> None:
    class Half(Ram):
        writes = 0

        def write(self, key: Key, layout: Layout, data: Buffers, /) -> int:
            self.writes += 1
            if self.writes != number:
                return super().write(key, layout, data)
            super().write(key, layout, [memoryview(bytes(view.nbytes)) for view in data])
            raise LevelFull("half of it is there")

    platform = platform_of(chain_of(STEPS), None, None)
    run = Run(platform, [Half(), Ram()])
    assert run.back(run.forward()) == TRUTH
    assert "half of it is there" in run.said[0]


def test_it_stops_where_it_stands_also_after_a_failure() -> None:
    run = Run(PLATFORM, memory(Faults({6: StorageError})))
    run.stop = lambda: bool(run.said)
    with pytest.raises(Stopped) as caught:
        run.forward()
    last = [event.action for event in run.seen][-1]
    assert caught.value.state == max(
        e.action.end for e in run.seen if isinstance(e.action, Advance)
    ), last


def test_a_program_without_a_step_is_told_also_if_levels_fail() -> None:
    for ever in (False, True):
        platform = platform_of(chain_of(STEPS), 2, 2)
        run = Run(platform, memory(Faults({1: StorageError}, ever=ever), platform), steps=0)
        with pytest.raises(RunFailed, match="finished at step 0"):
            run.forward()


def test_what_a_model_raises_is_no_level_s_failure() -> None:
    class Broken(Ending):
        def step(self, state: Any, i: int, /) -> None:
            if i == 5:
                raise StorageError("the wind is not there")
            super().step(state, i)

    run = Run(PLATFORM, memory(Faults({})))
    with pytest.raises(StorageError, match="the wind is not there"):
        run_forward(run.rule, PLATFORM, Broken(), run.backends, say=pytest.fail)


# --- at the turn


class Unready(Ram):
    """Memory that fails when it is asked what it holds, or for room, so many times."""

    def __init__(self, verb: str, error: type[StorageError], times: int) -> None:
        super().__init__()
        self.verb, self.error, self.times = verb, error, times

    def fail(self, verb: str) -> None:
        if verb == self.verb and self.times > 0:
            self.times -= 1
            raise self.error("it is not ready")

    def keys(self) -> list[Key]:
        self.fail("keys")
        return super().keys()

    def reserve(self, sizes: Mapping[int, int], /) -> None:
        self.fail("reserve")
        super().reserve(sizes)


@pytest.mark.parametrize("error", [StorageError, LevelFull])
@pytest.mark.parametrize("verb", ["keys", "reserve"])
@pytest.mark.parametrize("role", [0, 1])
def test_a_level_may_fail_at_the_turn(verb: str, error: type[StorageError], role: int) -> None:
    backends: list[Backend] = [Ram(), Ram()]
    backends[role] = level = Unready(verb, error, 0)
    run = Run(PLATFORM, backends)
    done = run.forward()
    level.times = 1000
    plan, left = run.ready(done)
    assert len(run.said) == 1
    assert "it is not ready" in run.said[0]
    if verb == "keys":
        level.times = 0  # a level that was given up may come to itself again
    assert validate(plan, left.platform).adjoint == 0
    assert run.back(left) == TRUTH
    assert len(run.said) == 1


def test_at_the_turn_there_may_be_no_way_back() -> None:
    level = Unready("reserve", StorageError, 0)
    run = Run(platform_of(chain_of(STEPS), 3), [level])
    done = run.forward()
    level.times = 1
    with pytest.raises(StorageError, match="it is not ready; and there is no way to go on"):
        run.ready(done)
    with pytest.raises(NoSchedule):  # nothing failed: it is the plan that there is none of
        run.ready(done._replace(platform=platform_of(chain_of(STEPS), 0), backends=[Ram()]))


# --- levels that really fail

SIZE = 20_000


def deleted(place: Path) -> None:
    for file in [place] if place.is_file() else list(place.iterdir()):
        file.unlink()


def used_up(place: Path) -> None:
    """No room is left on the file system."""
    with (place.parent / "other").open("wb", buffering=0) as other, suppress(OSError):
        while other.write(bytes(4096)):
            pass


def struck(place: Path, level: Backend, role: int, moment: int, fault: Callable[[], None]) -> Run:
    """A run whose level in this role is struck at a moment on the way forward."""
    platform = platform_of(chain_of(STEPS, SIZE), 2, 3)
    levels = [level if number == role else Ram() for number in range(2)]
    run = Run(platform, levels, size=SIZE)
    run.watch = lambda _: fault() if len(run.seen) == moment else None
    try:
        assert run.back(run.forward()) == truth(STEPS, SIZE)
    finally:
        with suppress(StorageError):
            level.remove()  # type: ignore[attr-defined]
        (place.parent / "other").unlink(missing_ok=True)
    return run


KINDS = pytest.mark.parametrize("kind", [Directory, Hdf5])
MOMENTS = (4, 9, 17)


@pytest.mark.campaign
@KINDS
@pytest.mark.parametrize("role", [0, 1])
def test_a_level_is_deleted_under_the_run(kind: Any, role: int, tmp_path: Path) -> None:
    said = list[str]()
    for moment in MOMENTS:
        place = tmp_path / ("level" if kind is Directory else "level.h5")
        said += struck(place, kind(place), role, moment, lambda p=place: deleted(p)).said
    assert any(f"level{role}" in text for text in said)


@pytest.mark.campaign
@KINDS
def test_the_disk_becomes_full(kind: Any, tmp_path: Path) -> None:
    def body() -> None:
        mount_small(tmp_path, "size=4m")
        said = list[str]()
        for moment in MOMENTS:
            place = tmp_path / ("level" if kind is Directory else "level.h5")
            level = Compressed(kind(place), Zstd(1), ratio=0.05)
            said += struck(place, level, 1, moment, lambda p=place: used_up(p)).said
        assert any(" is full" in text and "No space left on device" in text for text in said)

    with_own_mounts(body)


@pytest.mark.campaign
@KINDS
def test_files_may_not_grow_any_more(kind: Any, tmp_path: Path) -> None:
    def body() -> None:
        limit, (_, hard) = resource.RLIMIT_FSIZE, resource.getrlimit(resource.RLIMIT_FSIZE)
        said = list[str]()
        for moment in MOMENTS:
            place = tmp_path / ("level" if kind is Directory else "level.h5")
            level = Compressed(kind(place), Zstd(1), ratio=0.05)
            small = lambda: resource.setrlimit(limit, (200_000, hard))  # noqa: E731
            said += struck(place, level, 1, moment, small).said
            resource.setrlimit(limit, (resource.RLIM_INFINITY, hard))
        assert any("File too large" in text for text in said)

    in_child(body)
