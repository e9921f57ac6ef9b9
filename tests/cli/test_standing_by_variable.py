"""A run by variable that is stopped early: what it stores of where it stands is whole and right."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from example_models.permafrost import Permafrost

from ckio.actions import Buffers, Key, Kind, Layout
from ckio.actions.variables import Variables
from ckio.backends.base import Backend
from ckio.backends.directory import Directory
from ckio.backends.ram import Ram
from ckio.errors import LevelFull, Stopped
from ckio.jobs.adjoints import Kept, next_plan
from ckio.jobs.stopping import Standing, displaced, seconds_to_stop, store_standing
from ckio.model import sizes_of
from ckio.planners.dp import hrevolve
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.runner.perform import perform

STEPS, THAW = 24, range(12, 16)


def permafrost() -> Permafrost:
    """T and J change in each step, K in those of the thaw alone; it is dead until they are done."""
    return Permafrost(grid=4, steps=STEPS, change=THAW.start, thaw=len(THAW))


def bits(model: Permafrost) -> tuple[object, ...]:
    return model.functional, *(np.asarray(it).tobytes() for it in model.gradient.values())


def chain_of(model: Permafrost) -> Chain:
    sizes = sizes_of(model)
    return Chain(steps=STEPS, advance=1, record=1, reverse=1, **sizes, variables=model.variables)


CHAIN = chain_of(permafrost())
VARIABLES = CHAIN.variables or Variables({}, ())
RESTART = CHAIN.restart


@pytest.fixture(scope="module")
def truth() -> tuple[object, ...]:
    model = permafrost()
    model.record(0, STEPS)
    model.reverse(0, STEPS)
    return bits(model)


def machine(at: Path, ram: int, *far: int) -> Platform:
    levels = (
        Level(
            name=f"far{number}",
            capacity=2 * CHAIN.adjoint + capacity,
            write=Affine(0.5 + number),
            read=Affine(0.5 + number),
            backend="directory",
            options={"path": str(at)},
        )
        for number, capacity in enumerate(far)
    )
    return Platform((Level(name="ram", capacity=ram), *levels), working_memory=CHAIN.tape)


def opened(platform: Platform, at: Path) -> list[Backend]:
    return [
        Directory(at / level.name, capacity=level.capacity)
        if level.name != "ram"
        else Ram(capacity=level.capacity)
        for level in platform.levels
    ]


def process(platform: Platform, at: Path, steps: int) -> Standing | Permafrost:
    """What one process does that is stopped after so many steps, forward and back."""
    model, backends = permafrost(), opened(platform, at)
    done = 0

    def tick(_step: int) -> None:
        nonlocal done
        done += 1

    model.on_step = tick
    try:
        survivors = [frozenset(backend.keys()) for backend in backends]
        schedule, _ = next_plan(CHAIN, platform, survivors, model, Kept("far0", 4.0))
        assert schedule.chain.variables is not None
        chain = schedule.chain
        try:
            for _ in perform(schedule, platform, model, backends, stop=lambda: done >= steps):
                pass
        except Stopped as stopped:
            args = stopped, model, backends, platform, chain
            standing = store_standing(*args, before=schedule.stored)
            for key, level in standing.stored:
                held = set(backends[int(level[-1]) + 1].keys())
                needed = {part for part in VARIABLES.parts(key, STEPS) if part.step}
                assert needed <= held
            return standing
        return model
    finally:
        for backend in backends:
            backend.close()


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("ram", "far"),
    [(RESTART, [3 * RESTART]), (RESTART // 2, [RESTART, 2 * RESTART]), (3 * RESTART, [RESTART])],
)
def test_each_process_comes_further_until_the_run_is_done(
    tmp_path: Path, truth: tuple[object, ...], ram: int, far: list[int]
) -> None:
    platform = machine(tmp_path, ram, *far)
    for _ in range(60):
        end = process(platform, tmp_path, steps=13)
        if isinstance(end, Permafrost):
            assert bits(end) == truth
            return
        assert end.further, end
    raise AssertionError("it does not end")


def x(step: int, name: str = "") -> Key:
    return Key(Kind.RESTART, step, name)


def test_what_no_checkpoint_needs_goes_first_and_what_several_share_with_the_last_of_them() -> None:
    held = {x(3, "T"): 10, x(8, "T"): 10, x(2, "K"): 30, x(1, "K"): 30, Key(Kind.ADJOINT, 20): 9}
    made = {x(3): (x(3, "T"), x(2, "K")), x(8): (x(8, "T"), x(2, "K")), x(1): ()}

    def gone(lacking: int, come: float, *stays: Key) -> list[Key]:
        return displaced(held, lacking, reversing=20, come=come, made=made, stays=stays)

    assert gone(30, 0) == [x(1, "K")]
    assert gone(40, 9) == [x(1, "K"), x(3, "T")]
    assert gone(80, 9) == [x(1, "K"), x(3, "T"), x(8, "T"), x(2, "K")]
    assert gone(80, 4) == []  # it saves more
    assert gone(20, 9, x(1, "K")) == [x(3, "T"), x(8, "T"), x(2, "K")]
    assert gone(50, 9, x(2, "K")) == [x(1, "K"), x(3, "T"), x(8, "T")]


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


@pytest.mark.parametrize(("most", "where"), [((1, 9), "far1"), ((9, 9), "far0"), ((1, 2), "")])
def test_where_it_stands_goes_to_one_level_or_to_none(
    tmp_path: Path, most: tuple[int, int], where: str
) -> None:
    model = permafrost()
    model.advance(0, 20)
    backends = [Refusing(count) for count in most]
    platform = Platform(machine(tmp_path, 0, 0, 0).levels[1:])
    stopped = Stopped("", action=0, state=20, adjoint=STEPS)
    standing = store_standing(stopped, model, backends, platform, CHAIN, before=((), ()))
    assert [level for _, level in standing.stored] == [where] * bool(where)
    assert standing.further == bool(where)
    assert sum(len(backend.keys()) for backend in backends) == 3 * bool(where)


def test_what_is_dead_where_it_stands_is_not_stored(tmp_path: Path) -> None:
    """Nobody knows what it holds: in the thaw, K may still be as it was read for another step."""
    model = permafrost()
    model.advance(0, THAW.start + 2)
    backend = Refusing(9)
    platform = Platform(machine(tmp_path, 0, 0).levels[1:])
    stopped = Stopped("", action=0, state=THAW.start + 2, adjoint=STEPS)
    store_standing(stopped, model, [backend], platform, CHAIN)
    assert set(backend.keys()) == {x(THAW.start + 2, "T"), x(THAW.start + 2, "J")}
    assert stopped.state in VARIABLES.complete(backend.keys(), Kind.RESTART, STEPS)


def test_stopping_in_time_counts_an_access_for_each_array() -> None:
    levels = tuple(Level(name=name, write=Affine(7.0)) for name in ("near", "far"))
    platform = Platform(levels, working_memory=CHAIN.tape)
    plan = hrevolve(replace(CHAIN, variables=None), platform)
    by_variable = seconds_to_stop(replace(plan, actions=(), chain=CHAIN), platform)
    assert by_variable - seconds_to_stop(replace(plan, actions=()), platform) == 2 * 2 * 7.0
