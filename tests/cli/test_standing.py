"""A run that is stopped early comes to its end all the same, however little room there is.

What it stores of where it stands is whole and right: of whole checkpoints, and by variable.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from example_models.permafrost import Permafrost
from small_models import digest, reverse_all

from ckio.actions import Buffers, Key, Kind, Layout
from ckio.actions.variables import Variables
from ckio.backends.base import Backend
from ckio.backends.directory import Directory
from ckio.backends.ram import Ram
from ckio.errors import LevelFull, RunFailed, Stopped, StorageError
from ckio.jobs.adjoints import AdjointPolicy, next_plan
from ckio.jobs.stopping import (
    WALLTIME,
    Halted,
    StopPoint,
    halted,
    keys_to_discard,
    seconds_to_stop,
    store_stop_point,
)
from ckio.model import sizes_of
from ckio.planners.dp import hrevolve
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.runner.perform import perform

STEPS, THAW = 24, range(12, 16)


def permafrost() -> Permafrost:
    """T and J change in each step, K in those of the thaw alone; it is dead until they are done."""
    return Permafrost(grid=4, steps=STEPS, change=THAW.start, thaw=len(THAW))


BY_VARIABLE = Chain(
    steps=STEPS,
    advance=1,
    record=1,
    reverse=1,
    **sizes_of(permafrost()),
    variables=permafrost().variables,
)
WHOLE = replace(BY_VARIABLE, variables=None)
VARIABLES = BY_VARIABLE.variables or Variables({}, ())
RESTART, ADJOINT = WHOLE.largest("restart"), WHOLE.largest("adjoint")


@pytest.fixture(scope="module")
def truth() -> tuple[object, ...]:
    return digest(reverse_all(permafrost(), STEPS))


def machine(at: Path, ram: int, *far: int) -> Platform:
    """Levels with room for so many bytes, beside two adjoints on each durable one."""
    levels = (
        Level(
            name=f"far{number}",
            capacity=2 * ADJOINT + capacity,
            write=Affine(0.5 + number),
            read=Affine(0.5 + number),
            backend="directory",
            options={"path": str(at)},
        )
        for number, capacity in enumerate(far)
    )
    return Platform((Level(name="ram", capacity=ram), *levels), working_memory=WHOLE.tape)


def process(chain: Chain, platform: Platform, at: Path, steps: int) -> StopPoint | Permafrost:
    """What one process does that is stopped after so many steps, forward and back."""
    model, done = permafrost(), 0
    backends: list[Backend] = [Ram(capacity=platform.levels[0].capacity)]
    backends += [Directory(at / it.name, capacity=it.capacity) for it in platform.levels[1:]]

    def tick(_step: int) -> None:
        nonlocal done
        done += 1

    model.on_step = tick
    try:
        survivors = [frozenset(backend.keys()) for backend in backends]
        schedule, _ = next_plan(chain, platform, survivors, model, AdjointPolicy("far0", 4.0))
        try:
            for _ in perform(schedule, platform, model, backends, stop=lambda: done >= steps):
                pass
        except Stopped as stopped:
            args = stopped, model, backends, platform, schedule.chain
            standing = store_stop_point(*args, before=schedule.stored)
            for key, level in standing.stored:
                held = set(backends[int(level[-1]) + 1].keys())
                parts = VARIABLES.parts(key, STEPS) if chain.variables else [key]
                assert {part for part in parts if part.step} <= held
            return standing
        return model
    finally:
        for backend in backends:
            backend.close()


@pytest.mark.campaign
@pytest.mark.parametrize("steps", [12, 18])
@pytest.mark.parametrize(
    ("ram", "far"), [(RESTART, 4 * RESTART), (RESTART, 6 * RESTART), (3 * RESTART, 6 * RESTART)]
)
def test_each_process_comes_further_until_the_run_is_done(
    tmp_path: Path, truth: tuple[object, ...], ram: int, far: int, steps: int
) -> None:
    comes_to_its_end(WHOLE, machine(tmp_path, ram, far), tmp_path, steps, truth)


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("ram", "far"),
    [(RESTART, [3 * RESTART]), (RESTART // 2, [RESTART, 2 * RESTART]), (3 * RESTART, [RESTART])],
)
def test_each_process_by_variable_comes_further_until_the_run_is_done(
    tmp_path: Path, truth: tuple[object, ...], ram: int, far: list[int]
) -> None:
    comes_to_its_end(BY_VARIABLE, machine(tmp_path, ram, *far), tmp_path, 13, truth)


def comes_to_its_end(
    chain: Chain, platform: Platform, at: Path, steps: int, truth: tuple[object, ...]
) -> None:
    count = 0
    while isinstance(end := process(chain, platform, at, steps), StopPoint):
        assert end.further, end
        count += 1
        assert count < 100, "it does not end"
    assert count > 1
    assert digest(end) == truth


@pytest.mark.campaign
@pytest.mark.parametrize("steps", [2, 5])
def test_where_there_is_hardly_room_or_time_a_run_ends_or_it_is_said_that_it_does_not(
    tmp_path: Path, steps: int
) -> None:
    for far in (2, 3, 4, 10):  # an adjoint is of some two checkpoints
        at = tmp_path / str(far)
        platform = machine(at, 3 * RESTART, far * RESTART - 2 * ADJOINT)
        for _ in range(500):
            end = process(WHOLE, platform, at, steps)
            if not isinstance(end, StopPoint) or not end.further:
                break
        else:
            raise AssertionError(f"with room for {far} checkpoints it goes on for ever")


def x(step: int, name: str = "") -> Key:
    return Key(Kind.RESTART, step, name)


def a(step: int) -> Key:
    return Key(Kind.ADJOINT, step)


def gone(
    held: dict[Key, int],
    lacking: int,
    loss: float,
    *parts: Key,
    reversing: int,
    made: dict[Key, tuple[Key, ...]] | None = None,
) -> list[Key] | None:
    """What goes from a full level for something of so many bytes, and for these that it has."""
    new = Key(Kind.TAPE, 99)
    made = {key: (key,) for key in held} if made is None else made
    space = {**held, new: lacking}, sum(held.values())
    return keys_to_discard(made, [new, *parts], *space, reversing=reversing, loss=loss)


def test_what_is_cheapest_goes_and_only_if_it_is_worth_less() -> None:
    held = {x(10): 100, x(14): 100, x(40): 100, a(50): 200}
    assert gone(held, 100, 9, reversing=50) == [x(14)]
    assert gone(held, 100, 3, reversing=50) is None
    assert gone(held, 200, 14, reversing=50) == [x(10), x(14)]
    assert gone(held, 100, 0, reversing=40) == [x(40)]  # of no use any more
    assert gone(held, 400, 1000, reversing=50) is None  # adjoints stay
    assert gone(held, 0, 0, reversing=50) == []


def test_what_no_checkpoint_needs_goes_first_and_what_several_share_with_the_last_of_them() -> None:
    held = {x(3, "T"): 10, x(8, "T"): 10, x(2, "K"): 30, x(1, "K"): 30, a(20): 9}
    made = {x(3): (x(3, "T"), x(2, "K")), x(8): (x(8, "T"), x(2, "K")), a(20): (a(20),)}
    options = {"reversing": 20, "made": made}
    assert gone(held, 30, 0, **options) == [x(1, "K")]
    assert gone(held, 40, 9, **options) == [x(1, "K"), x(3, "T")]
    assert gone(held, 80, 9, **options) == [x(1, "K"), x(2, "K"), x(3, "T"), x(8, "T")]
    assert gone(held, 80, 4, **options) is None  # it saves more
    assert gone(held, 20, 9, x(1, "K"), **options) == [x(2, "K"), x(3, "T"), x(8, "T")]
    assert gone(held, 50, 9, x(2, "K"), **options) == [x(1, "K"), x(3, "T"), x(8, "T")]


class Broken(Directory):
    """A level that has failed, and does not even say what it holds."""

    def keys(self) -> list[Key]:
        raise StorageError("the device has gone")

    def write(self, *_: object) -> int:
        raise StorageError("the device has gone")


class Refusing(Ram):
    """It is full as soon as it holds so many keys."""

    durable = True

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def write(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        if len(self.keys()) >= self._most:
            raise LevelFull("it is")
        return super().write(key, layout, data)


def stands(
    at: Path, state: int, backends: Sequence[Backend], chain: Chain = BY_VARIABLE
) -> StopPoint:
    """What a run stores that is stopped on its way forward, on these levels."""
    model = permafrost()
    model.advance(0, state)
    platform = Platform(machine(at, 0, *(0 for _ in backends)).levels[1:])
    stopped = Stopped("", action=0, state=state, adjoint=STEPS)
    before = tuple(() for _ in backends)
    return store_stop_point(stopped, model, backends, platform, chain, before=before)


def test_a_level_that_has_failed_does_not_keep_a_run_from_storing_where_it_stands(
    tmp_path: Path,
) -> None:
    backends = Broken(tmp_path / "near"), Directory(tmp_path / "far")
    assert stands(tmp_path, 20, backends, WHOLE).text() == "x_20 is stored on far1"
    for backend in backends:
        backend.close()


def test_where_it_stands_goes_to_one_level_or_to_none(tmp_path: Path) -> None:
    for most, where in (((1, 9), "far1"), ((9, 9), "far0"), ((1, 2), "")):
        backends = [Refusing(count) for count in most]
        standing = stands(tmp_path, 20, backends)
        assert [level for _, level in standing.stored] == [where] * bool(where)
        assert standing.further == bool(where)
        assert sum(len(backend.keys()) for backend in backends) == 3 * bool(where)


def test_what_is_dead_where_it_stands_is_not_stored(tmp_path: Path) -> None:
    """Nobody knows what it holds: in the thaw, K may still be as it was read for another step."""
    backend, state = Refusing(9), THAW.start + 2
    stands(tmp_path, state, [backend])
    assert set(backend.keys()) == {x(state, "T"), x(state, "J")}
    assert state in VARIABLES.complete(backend.keys(), Kind.RESTART, STEPS)


def test_a_walltime_that_brings_nothing_is_an_error_and_a_signal_is_not() -> None:
    nothing = StopPoint(7, 24, [], "it is full", further=False)
    assert isinstance(halted(WALLTIME, nothing), RunFailed)
    assert str(halted(WALLTIME, nothing)).startswith("walltime is too short: ")
    assert isinstance(halted("SIGTERM", nothing), Halted)
    assert isinstance(halted(WALLTIME, StopPoint(7, 24, [(x(7), "far")], "")), Halted)


def test_stopping_in_time_counts_an_access_for_each_array() -> None:
    levels = tuple(Level(name=name, write=Affine(7.0)) for name in ("near", "far"))
    platform = Platform(levels, working_memory=WHOLE.tape)
    plan = hrevolve(WHOLE, platform)
    by_variable = seconds_to_stop(replace(plan, actions=(), chain=BY_VARIABLE), platform)
    assert by_variable - seconds_to_stop(replace(plan, actions=()), platform) == 2 * 2 * 7.0
