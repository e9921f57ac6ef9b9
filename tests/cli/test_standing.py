"""A run that is stopped early comes to its end all the same, however little room there is."""

from pathlib import Path

import pytest

from ckio.actions import Key, Kind
from ckio.backends.directory import Directory
from ckio.backends.ram import Ram
from ckio.errors import RunFailed, Stopped, StorageError
from ckio.jobs.adjoints import Kept, next_plan
from ckio.jobs.stopping import WALLTIME, Halted, Standing, displaced, halted, store_standing
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.platform.clock import VirtualClock
from ckio.runner.perform import perform
from ckio.testing import CountingModel

CHAIN = Chain(steps=24, advance=1, record=1, reverse=1, restart=100, tape=100, adjoint=200)


def x(step: int) -> Key:
    return Key(Kind.RESTART, step)


def a(step: int) -> Key:
    return Key(Kind.ADJOINT, step)


def machine(at: Path, ram: int, far: int) -> Platform:
    return Platform(
        (
            Level(name="ram", capacity=ram),
            Level(
                name="far",
                capacity=far,
                write=Affine(0.5),
                read=Affine(0.5),
                backend="directory",
                options={"path": str(at)},
            ),
        ),
        working_memory=CHAIN.tape,
    )


def process(platform: Platform, at: Path, steps: int) -> Standing | None:
    """What one process does that is stopped after so many steps; None if it comes to the end."""
    clock = VirtualClock()
    model = CountingModel(CHAIN, clock)
    backends = (
        Ram(capacity=platform.levels[0].capacity),
        Directory(at, capacity=platform.levels[1].capacity),
    )
    try:
        survivors = [set[Key](), set(backends[1].keys())]
        kept = Kept("far", 4.0)
        schedule, _ = next_plan(CHAIN, platform, survivors, model, kept)
        events = perform(
            schedule,
            platform,
            model,
            backends,
            clock=clock,
            stop=lambda: model.forward_steps + CHAIN.length - model.adjoint >= done + steps,
        )
        done = CHAIN.length - min(
            (key.step for key in survivors[1] if key.kind is Kind.ADJOINT), default=CHAIN.length
        )
        try:
            assert all(events)
        except Stopped as stopped:
            args = stopped, model, backends, platform, CHAIN
            return store_standing(*args, before=schedule.stored)
        assert model.adjoint == 0
        return None
    finally:
        backends[1].close()


@pytest.mark.campaign
@pytest.mark.parametrize(("ram", "far"), [(100, 1000), (300, 1000), (100, 800)])
@pytest.mark.parametrize("steps", [9, 12])
def test_each_process_comes_further_until_the_run_is_done(
    tmp_path: Path, ram: int, far: int, steps: int
) -> None:
    platform, count = machine(tmp_path, ram, far), 0
    while (standing := process(platform, tmp_path, steps)) is not None:
        assert standing.further, standing
        count += 1
        assert count < 500, "it does not end"
    assert count > 1


@pytest.mark.campaign
@pytest.mark.parametrize("far", [200, 300, 400, 1000])
@pytest.mark.parametrize("steps", [2, 5])
def test_where_there_is_hardly_room_or_time_a_run_ends_or_it_is_said_that_it_does_not(
    tmp_path: Path, far: int, steps: int
) -> None:
    platform = machine(tmp_path, 300, far)
    for _ in range(500):
        standing = process(platform, tmp_path, steps)
        if standing is None or not standing.further:
            return
    raise AssertionError("it goes on for ever")


def test_what_is_cheapest_goes_and_only_if_it_is_worth_less() -> None:
    held = {x(10): 100, x(14): 100, x(40): 100, a(50): 200}
    assert displaced(held, 100, reversing=50, come=9) == [x(14)]
    assert displaced(held, 100, reversing=50, come=3) == []
    assert displaced(held, 200, reversing=50, come=14) == [x(14), x(10)]
    assert displaced(held, 100, reversing=40, come=0) == [x(40)]  # of no use any more
    assert displaced(held, 400, reversing=50, come=1000) == []  # adjoints stay


class Broken(Directory):
    """A level that has failed, and does not even say what it holds."""

    def keys(self) -> list[Key]:
        raise StorageError("the device has gone")

    def write(self, *_: object) -> int:
        raise StorageError("the device has gone")


def test_a_level_that_has_failed_does_not_keep_a_run_from_storing_where_it_stands(
    tmp_path: Path,
) -> None:
    model = CountingModel(CHAIN)
    model.record(0, 24)
    model.reverse(20, 24)
    levels = tuple(Level(name=name, capacity=1000) for name in ("near", "far"))
    backends = Broken(tmp_path / "near"), Directory(tmp_path / "far")
    stopped = Stopped("", action=3, state=24, adjoint=20)
    standing = store_standing(stopped, model, backends, Platform(levels), CHAIN)
    assert standing.told() == "a_20 is stored on far"
    for backend in backends:
        backend.close()


def test_a_walltime_that_brings_nothing_is_an_error_and_a_signal_is_not() -> None:
    nothing = Standing(7, 24, [], "it is full", further=False)
    assert isinstance(halted(WALLTIME, nothing), RunFailed)
    assert "--walltime is too short" in str(halted(WALLTIME, nothing))
    assert isinstance(halted("SIGTERM", nothing), Halted)
    assert isinstance(halted(WALLTIME, Standing(7, 24, [(x(7), "far")], "")), Halted)
