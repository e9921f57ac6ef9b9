"""A level fails on the way to an end that is not known, and the gradient is as if it had not."""

from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from ckio.actions import Advance, Buffers, Key, Layout, Read
from ckio.backends.base import Backend
from ckio.backends.directory import Directory
from ckio.backends.ram import Ram
from ckio.errors import (
    CorruptCheckpoint,
    LevelFull,
    MissingCheckpoint,
    RunFailed,
    Stopped,
    StorageError,
)
from ckio.platform import Platform
from ckio.runner.failover import run_forward
from ckio.schedule.timeline import Event
from ckio.testing import x

from .failing import (
    THOROUGH,
    Ending,
    Faults,
    Faulty,
    Unknown,
    Unready,
    chain_of,
    memory,
    platform_of,
    some,
    truth,
)

STEPS = 7
ERRORS = (StorageError, LevelFull, MissingCheckpoint, CorruptCheckpoint)
CASES = list(product(ERRORS, (False, True)))
"""Once, or from then on."""


PLATFORM = platform_of(chain_of(STEPS), 2, 3)
TRUTH = truth(STEPS)


def calls(platform: Platform = PLATFORM, steps: int = STEPS) -> int:
    """How often the levels are called on the way forward, if nothing fails."""
    faults = Faults({})
    Unknown(platform, memory(faults, platform), steps=steps).forward()
    return faults.count


@pytest.mark.parametrize(
    ("steps", "slots", "thorough"),
    [
        (STEPS, (2, 3), False),
        *(
            pytest.param(steps, slots, True, marks=pytest.mark.slow)
            for steps in (STEPS, 33)
            for slots in ((1, 1), (2, 3), (2, 4), (3, 2, 4), (2, 1, None), (1, 2, 2))
        ),
    ],
)
def test_any_call_may_fail_once_or_from_then_on(
    steps: int, slots: tuple[int | None, ...], thorough: bool
) -> None:
    platform, expected = platform_of(chain_of(steps), *slots), truth(steps)
    for number in range(calls(platform, steps)):
        for error, ever in some(CASES, number, thorough=thorough):
            faults = Faults({number: error}, ever=ever)
            run = Unknown(platform, memory(faults, platform), steps=steps)
            assert run.back(run.forward()) == expected, (number, error, ever)
            assert len(run.said) == len(set(run.said)) > 0
            level, verb, _ = faults.raised[0]
            assert f"level {platform.levels[level].name!r}" in run.said[0]
            assert f"this {verb} was to fail" in run.said[0]


def test_a_level_that_is_full_keeps_what_it_holds_and_gets_no_more() -> None:
    platform = platform_of(chain_of(STEPS), None)
    run = Unknown(platform, memory(Faults({3: LevelFull}), platform))
    done = run.forward()
    held = 3 * chain_of(STEPS).restart
    assert [platform.levels[0].capacity for platform in run.platforms] == [None, held]
    assert done.platform == run.platforms[-1]
    assert "bytes from now on: #6 Write(x_3, level 0)" in run.said[0]
    done.backends[0].reserve({10**15: 1})  # nothing is asked of the level
    assert run.back(done) == TRUTH


def test_it_goes_on_from_the_furthest_state_that_is_left() -> None:
    """While checkpoints move, the register holds an older one, and then a level goes."""
    run = Unknown(PLATFORM, memory(Faults({}), PLATFORM))
    run.forward()
    moved = next(n for n, event in enumerate(run.seen) if isinstance(event.action, Read)) + 1
    number = sum(not isinstance(event.action, Advance) for event in run.seen[:moved])
    again = Unknown(PLATFORM, memory(Faults({number: StorageError}, ever=True), PLATFORM))
    done = again.forward()
    assert "fails, and is given up: #12 Write(x_0, level 1)" in again.said[0]
    assert again.seen[moved].action == Read(x(3), 0)  # x_4 was on the level that has gone
    assert again.seen[moved + 1].action == Advance(3, 4)
    assert again.back(done) == TRUTH


def test_memory_that_is_of_use_only_now_may_have_less_room_than_it_said() -> None:
    """The second level is asked to make room once the first has gone: it has none."""
    platform = platform_of(chain_of(STEPS), None, 4, 3)
    run = Unknown(platform, [Faulty(Ram(), 0, Faults({2: StorageError})), Ram(capacity=100), Ram()])
    assert [level.number for level in run.rule(platform, ()).levels] == [0]
    assert run.back(run.forward()) == TRUTH
    assert ["given up" in run.said[0], "is full" in run.said[1]] == [True, True]


def test_with_no_level_left_it_says_so_and_what_is_durable_is_intact(tmp_path: Path) -> None:
    level = Directory(tmp_path / "level")
    faults = Faults({4: StorageError}, ever=True)
    run = Unknown(platform_of(chain_of(STEPS), 4), [Faulty(level, 0, faults)])
    with pytest.raises(StorageError, match="and there is no way to continue") as caught:
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
    again = Unknown(run.platform, [Directory(tmp_path / "level")])
    done = again.forward([stored])
    read = again.seen[0].action
    assert read == Read(max(stored, key=lambda key: key.step), 0)
    assert again.back(done) == TRUTH
    for backend in again.backends:
        backend.remove()  # type: ignore[attr-defined]


class _Killed(Exception):
    pass


def broken_off(faults: Faults, actions: int) -> tuple[Unknown, list[set[Key]]]:
    """A run of which so many actions are done, to be gone on with; and what is stored."""
    run = Unknown(PLATFORM, memory(faults, PLATFORM))

    def watch(_: Event) -> None:
        if len(run.seen) == actions:
            raise _Killed

    run.watch = watch
    with suppress(_Killed):
        run.forward()
    run.watch = None
    run.seen.clear()
    return run, [set(level.keys()) for level in run.backends]


@THOROUGH
def test_a_run_that_goes_on_may_lose_what_it_goes_on_from(thorough: bool) -> None:
    for actions, number in product((10, 19), range(5)):
        for error, ever in some(CASES, actions + number, thorough=thorough):
            faults = Faults({}, ever=ever)
            run, stored = broken_off(faults, actions)
            faults.errors = {faults.count + number: error}
            done = run.forward(stored)
            assert isinstance(run.seen[0].action, Read) or number == 0
            assert run.back(done) == TRUTH, (actions, number, error, ever)
            assert bool(faults.raised) == bool(run.said)


class Half(Ram):
    """Memory of which a write fails, and leaves something else there."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left

    def write(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        self.left -= 1
        if self.left:
            return super().write(key, layout, data)
        super().write(key, layout, [memoryview(bytes(view.nbytes)) for view in data])
        raise LevelFull("half of it is there")


def test_what_a_level_lists_that_it_failed_to_write_is_not_relied_on() -> None:
    for number in range(1, STEPS):
        run = Unknown(platform_of(chain_of(STEPS), None, None), [Half(number), Ram()])
        assert run.back(run.forward()) == TRUTH, number
        assert "half of it is there" in run.said[0]


def test_it_stops_where_it_stands_also_after_a_failure() -> None:
    run = Unknown(PLATFORM, memory(Faults({6: StorageError}), PLATFORM))
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
        run = Unknown(platform, memory(Faults({1: StorageError}, ever=ever), platform), steps=0)
        with pytest.raises(RunFailed, match="finished at step 0"):
            run.forward()


def test_what_a_model_raises_is_no_level_s_failure() -> None:
    class Broken(Ending):
        def step(self, state: Any, i: int, /) -> None:
            if i == 5:
                raise StorageError("the wind is not there")
            super().step(state, i)

    run = Unknown(PLATFORM, memory(Faults({}), PLATFORM))
    with pytest.raises(StorageError, match="the wind is not there"):
        run_forward(run.rule, PLATFORM, Broken(), run.backends, warn=pytest.fail)


# --- at the turn


@pytest.mark.parametrize("error", [StorageError, LevelFull])
@pytest.mark.parametrize("verb", ["keys", "reserve"])
@pytest.mark.parametrize("role", [0, 1])
def test_a_level_may_fail_at_the_turn(verb: str, error: type[StorageError], role: int) -> None:
    backends: list[Backend] = [Ram(), Ram()]
    backends[role] = level = Unready(verb, error, times=0)
    run = Unknown(PLATFORM, backends)
    done = run.forward()
    level.times = 1000
    assert run.back(done) == TRUTH
    assert "was to fail" in run.said[0]
    assert len(run.said) == 1


def test_at_the_turn_there_may_be_no_way_back() -> None:
    level = Unready("reserve", StorageError, times=0)
    run = Unknown(platform_of(chain_of(STEPS), 3), [level])
    done = run.forward()
    level.times = 1
    with pytest.raises(StorageError, match="was to fail; and there is no way to continue"):
        run.back(done)
