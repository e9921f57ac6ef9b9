"""The runner with overlap does what the runner does, and computes meanwhile."""

import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ckio.actions import Advance, Discard, Key, Read, Record, Reverse, Write, nbytes_of
from ckio.backends.base import Backend
from ckio.backends.compressed import Compressed
from ckio.backends.directory import Directory
from ckio.backends.hdf5 import Hdf5
from ckio.backends.ram import Ram
from ckio.compression import Zstd
from ckio.errors import BadInput
from ckio.model import sizes_of
from ckio.planners.base import Planner
from ckio.planners.dp import hrevolve, mixed
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.runner import run
from ckio.runner.overlapped import overlapped
from ckio.schedule import Schedule
from ckio.schedule.policy import Overlap
from ckio.testing import CountingModel, x

from .failing import Logistic
from .overlapping import Memory, Watched, opened, perform, random_case, synchronous

CHAIN = Chain(steps=9, advance=1.0, record=1.5, reverse=2.5, restart=100, tape=50, adjoint=70)
FAR = Level(name="disk", backend="directory")
PATIENCE = 60.0
"""Seconds that a level waits for what ought to happen meanwhile, before a test fails."""


pytestmark = pytest.mark.usefixtures("watchdog")


def contents(backend: Backend) -> dict[Key, bytes]:
    """What lies on a level."""
    plain = backend.backend if isinstance(backend, Watched) else backend
    keys, found = plain.keys(), {}
    for key in keys:
        into = bytearray(nbytes_of(plain.layout(key)))
        plain.read(key, [memoryview(into)])
        found[key] = bytes(into)
    return found


@pytest.mark.parametrize(
    "seeds", [range(30), pytest.param(range(30, 2000), marks=pytest.mark.slow)], ids=len
)
def test_overlap_leaves_the_levels_as_a_run_does(seeds: range) -> None:
    for seed in seeds:
        check(seed)


def check(seed: int) -> None:
    """A random case: all that the docstring of `Traffic` promises of what levels are asked for."""
    schedule, platform, overlap = random_case(seed, complete=seed % 2 == 0)
    backends, others = opened(schedule, platform), synchronous(schedule, platform)
    moves = perform(schedule, platform, backends, overlap)
    rows = [row for row, *_ in moves]
    assert len(set(rows)) == len(rows)
    by_channel: dict[str, set[int]] = defaultdict(set)
    for number, (mine, other) in enumerate(zip(backends, others, strict=True)):
        assert contents(mine) == contents(other)
        if isinstance(mine, Memory):
            assert mine.threads <= {threading.get_ident()}
            assert (mine.capacity, mine.lent) == (platform.levels[number].capacity, 0)
            continue
        assert isinstance(other, Watched)
        assert not mine.threads & {threading.get_ident()}
        by_channel[platform.levels[number].channel] |= mine.threads
        here = [
            action
            for row, action in enumerate(schedule.actions)
            if row in set(rows) and isinstance(action, Write | Discard) and action.level == number
        ]
        changes = [(type(action), action.key) for action in here]
        assert [entry for entry in mine.log if entry[0] is not Read] == changes
    assert all(len(idents) <= 1 for idents in by_channel.values())


# Real levels, and a gradient


DEVICES: dict[str, Callable[[Path], Backend]] = {
    "directory": Directory,
    "synced": lambda path: Directory(path, durability="fdatasync"),
    "hdf5": lambda path: Hdf5(path.with_suffix(".h5")),
    "compressed": lambda path: Compressed(Directory(path), Zstd(1), threads=1),
}
POLICIES = [Overlap(1, 0), Overlap(0, 1), Overlap(2, 2), Overlap(None, None)]


@pytest.mark.campaign
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("planner", [hrevolve, mixed])
def test_the_gradient_is_that_of_a_run_to_the_last_bit(
    device: str, planner: Planner, tmp_path: Path
) -> None:
    sizes = sizes_of(Logistic(3000))
    chain = Chain(steps=23, advance=1, record=1, reverse=2, **sizes)
    price = Affine(latency=0.5)
    far = Level(name="far", capacity=6 * sizes["restart"], write=price, read=price, backend="x")
    near = Level(name="ram", capacity=2 * sizes["restart"])
    platform = Platform((near, far), working_memory=sizes["tape"])
    schedule = planner(chain, platform)
    assert any(isinstance(a, Write) and a.level == 1 for a in schedule.actions)
    run(schedule, platform, expected := Logistic(3000), [Ram(), Ram()])
    for number, overlap in enumerate(POLICIES):
        memory, disk = Memory(capacity=near.capacity), DEVICES[device](tmp_path / f"far{number}")
        list(overlapped(schedule, platform, found := Logistic(3000), [memory, disk], overlap))
        assert found.functional == expected.functional
        for name, value in expected.gradient.items():
            assert found.gradient[name].tobytes() == value.tobytes(), overlap
        if planner is hrevolve:  # all of one size: no memory is there but that of the level
            assert memory.mapped <= 2 * (sizes["restart"] + 64)
        disk.close()


def test_staged_memory_goes_past_the_page_cache_as_it_is(tmp_path: Path) -> None:
    try:
        far = Directory(tmp_path / "far", durability="direct")
    except BadInput:
        pytest.skip("no direct I/O here")
    sizes = sizes_of(Logistic(1 << 15))
    chain = Chain(steps=9, advance=1, record=1, reverse=2, **sizes)
    actions = [Write(x(0), 1), Advance(0, 4), Write(x(4), 1), Advance(4, 8)]
    actions += [Record(8, 9), Reverse(8, 9), Read(x(4), 1)]
    actions += [Discard(x(4), 1), Advance(4, 7), Record(7, 8), Reverse(7, 8)]
    schedule, platform = Schedule(chain, actions), Platform((Level(name="ram"), FAR))
    near = Ram()
    list(overlapped(schedule, platform, Logistic(1 << 15), [near, far], Overlap(2, 2)))
    assert list(far.keys()) == [x(0)]
    loans = [near.lend(sizes["restart"]) for _ in range(3)]
    assert all(np.frombuffer(loan.memory, "u1").ctypes.data % 4096 == 0 for loan in loans)
    far.close()


# It does go on meanwhile


class Gate(CountingModel):
    """A model that says when it begins to move."""

    def __init__(self, chain: Chain) -> None:
        super().__init__(chain)
        self.moving = threading.Event()

    def advance(self, begin: int, end: int, /) -> int:
        self.moving.set()
        return super().advance(begin, end)


def test_a_write_ends_while_the_model_computes() -> None:
    """The level does not end it before the model has gone on: without overlap, never."""
    model = Gate(CHAIN)
    far = Watched(Ram(), lambda *_: _wait(model.moving))
    schedule = Schedule(CHAIN, [Write(x(0), 1), Advance(0, 5)])
    platform = Platform((Level(name="ram"), FAR))
    moves: list[tuple[int, float, float, int]] = []
    take = lambda *move: moves.append(move)  # noqa: E731
    times = overlapped(schedule, platform, model, [Ram(), far], Overlap(1), moved=take)
    (_, write_stop, _), (advance_start, _, nbytes) = times
    assert write_stop <= advance_start
    ((row, start, stop, moved),) = moves
    assert (row, moved, nbytes) == (0, 100, 0)
    assert start <= stop
    assert stop >= advance_start
    assert list(far.keys()) == [x(0)]


def test_a_read_begins_while_the_model_computes() -> None:
    model = Gate(CHAIN)

    def before(access: object, _: Key) -> None:
        if access is Read:
            _wait(model.moving)

    far = Watched(Ram(), before)
    actions = [Write(x(0), 1), Record(0, 1), Advance(1, 5), Read(x(0), 1)]
    platform = Platform((Level(name="ram"), FAR))
    list(overlapped(Schedule(CHAIN, actions), platform, model, [Ram(), far], Overlap(0, 1)))
    assert far.log == [(Write, x(0)), (Read, x(0))]
    assert model.state == 0


def test_two_channels_move_at_one_time() -> None:
    meet = threading.Barrier(2)
    far = [Watched(Ram(), lambda *_: meet.wait(PATIENCE)) for _ in range(2)]
    levels = (Level(name="ram"), FAR, Level(name="tape", backend="directory"))
    schedule = Schedule(CHAIN, [Write(x(0), 1), Write(x(0), 2)])
    list(overlapped(schedule, Platform(levels), CountingModel(CHAIN), [Ram(), *far], Overlap(2)))
    assert [list(level.keys()) for level in far] == [[x(0)], [x(0)]]


def _wait(event: threading.Event) -> None:
    if not event.wait(PATIENCE):
        raise AssertionError("the model does not move meanwhile")


# Details


def test_a_lossy_level_is_read_itself() -> None:
    """What was not encoded yet is not what a later read gives: a run must not depend on it."""

    class Lossy(Ram):
        lossless = False

    far = Watched(Lossy())
    schedule = Schedule(CHAIN, [Write(x(0), 1), Advance(0, 3), Read(x(0), 1)])
    platform = Platform((Level(name="ram"), FAR))
    list(overlapped(schedule, platform, CountingModel(CHAIN), [Ram(), far], Overlap(None, None)))
    assert far.log == [(Write, x(0)), (Read, x(0))]


def test_what_is_discarded_while_it_is_staged_is_never_written() -> None:
    gate = threading.Event()
    far = Watched(Ram(), lambda *_: _wait(gate))
    actions = [Write(x(0), 1), Advance(0, 3), Write(x(3), 1), Advance(3, 4), Discard(x(3), 1)]

    class Opens(CountingModel):
        def record(self, begin: int, end: int, /) -> int:
            gate.set()
            return super().record(begin, end)

    schedule = Schedule(CHAIN, [*actions, Record(4, 5)])
    platform = Platform((Level(name="ram"), FAR))
    list(overlapped(schedule, platform, Opens(CHAIN), [Ram(), far], Overlap(None)))
    assert far.log == [(Write, x(0))]


def test_what_lies_there_at_the_start_must_have_the_size_that_was_planned() -> None:
    other = CountingModel(replace(CHAIN, restart=99))
    far = Ram()
    far.write(x(0), other.layout(x(0)), other.dump(x(0)))
    schedule = Schedule(CHAIN, [Read(x(0), 1)], [[], [x(0)]])
    platform = Platform((Level(name="ram"), FAR))
    with pytest.raises(BadInput, match="plans 100 bytes for x_0; the level's has 99"):
        overlapped(schedule, platform, CountingModel(CHAIN), [Ram(), far], Overlap(1, 1))
