"""Levels of a CUDA device, and models of JAX whose checkpoints are there. They need a device."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckio import Affine, Chain, Level, Platform
from ckio.backends.directory import Directory
from ckio.backends.hdf5 import Hdf5
from ckio.backends.ram import Ram
from ckio.errors import LevelFull, StorageError
from ckio.model import handed_by, sizes_of
from ckio.planners.dp import hrevolve
from ckio.runner import run
from ckio.runner.space import levels_for
from ckio.schedule.policy import Overlap
from ckio.testing import BackendTests, raw, x

cuda = pytest.importorskip("ckio.adapters.cuda")
try:
    cuda.stream_of(0)
except Exception as error:
    pytest.skip(f"no CUDA device: {error}"[:100], allow_module_level=True)

jax = pytest.importorskip("jax")

from ckio.adapters.jax import JaxModel  # noqa: E402  (after the skip)

STEPS = 60
CELLS = 1 << 14
EXAMPLE = Path(__file__).parents[2] / "examples/wave3d"


class TestDeviceMemory(BackendTests):
    def make(self, tmp_path: Path, /, **limits: Any) -> Any:
        return cuda.DeviceMemory(**limits)


class TestPinnedMemory(BackendTests):
    def make(self, tmp_path: Path, /, **limits: Any) -> Any:
        return cuda.PinnedMemory(**limits)


class TestDirectoryBehindPinnedMemory(BackendTests):
    durable = True

    def make(self, tmp_path: Path, /, **limits: Any) -> Any:
        return cuda.ThroughPinned(Directory(tmp_path / "level", **limits))

    def reopen(self, tmp_path: Path, /, **limits: Any) -> Any:
        return self.make(tmp_path, **limits)


def step(state: Any, rate: Any, i: Any) -> Any:
    u, v = state["u"], state["v"]
    around = jax.numpy.roll(u, 1) + jax.numpy.roll(u, -1) - 2 * u
    return {"u": 2 * u - v + rate * around * (1 + 0.01 * jax.numpy.sin(i * u)), "v": u}


def functional(state: Any) -> Any:
    return (state["u"] ** 2).sum()


def model() -> Any:
    u = jax.numpy.exp(-(jax.numpy.linspace(-4, 4, CELLS) ** 2))
    rate = jax.numpy.full(CELLS, 0.2)
    return JaxModel(step, {"u": u, "v": u}, functional, STEPS, params=rate)


def chain() -> Chain:
    costs = sizes_of(model())
    whole = Chain(steps=STEPS, advance=1e-6, record=1e-6, reverse=3e-6, **costs)
    return replace(whole, handed=handed_by(model()))


@pytest.fixture(scope="module")
def kept() -> dict[str, bytes]:
    """The bits of the gradient of a run that stores every state in the model itself."""
    whole = model()
    whole.record(0, STEPS)
    whole.reverse(0, STEPS)
    return bits(whole)


def bits(done: Any) -> dict[str, bytes]:
    return {name: np.asarray(array).tobytes() for name, array in done.gradient.items()}


FAR: dict[str, Callable[[Path, int], Any]] = {
    "device": lambda _, capacity: cuda.DeviceMemory(capacity=capacity),
    "pinned": lambda _, capacity: cuda.PinnedMemory(capacity=capacity),
    "ram": lambda _, capacity: Ram(capacity=capacity),
    "directory": lambda place, capacity: Directory(place / "level", capacity=capacity),
    "direct": lambda place, capacity: Directory(place / "level", capacity=capacity, checksum=False),
    "hdf5": lambda place, capacity: Hdf5(place / "level.h5", capacity=capacity),
}


@pytest.mark.parametrize("overlap", [Overlap(), Overlap(1, 1), Overlap(None, None)], ids=str)
@pytest.mark.parametrize("far", FAR)
def test_each_level_and_overlap_gives_the_bits_of_a_run_that_keeps_all(
    far: str, overlap: Overlap, tmp_path: Path, kept: dict[str, bytes]
) -> None:
    size = chain().restart
    near, further = 4 * size, 12 * size
    cost = Affine(0.0, 1e-6 / size)
    platform = Platform(
        (
            Level(name="near", backend="device", capacity=near),
            Level(name="far", backend=far, capacity=further, write=cost, read=cost),
        )
    )
    schedule = hrevolve(chain(), platform)
    assert {getattr(action, "level", 0) for action in schedule.actions} == {0, 1}
    levels = [cuda.DeviceMemory(capacity=near), FAR[far](tmp_path, further)]
    done = model()
    assert done.space is not None
    timeline = run(schedule, platform, done, levels, overlap=overlap)
    assert bits(done) == kept
    assert bool(len(timeline.transfers)) == bool(overlap)
    for level in levels:
        assert not list(level.keys())
        level.close()


def test_a_state_on_the_device_is_stored_without_a_copy() -> None:
    level, first = cuda.DeviceMemory(), model()
    data = first.give(x(0), level.slot)
    level.keep(x(0), first.layout(x(0)), data)
    first.advance(0, 5)
    (stored, *_) = level.kept(x(0))
    assert stored.address == data[0].address
    first.take(x(0), level.layout(x(0)), level.kept(x(0)))
    assert first.dump(x(0))[0].address == data[0].address


def test_only_levels_of_the_host_are_behind_page_locked_memory() -> None:
    given = [cuda.DeviceMemory(), cuda.PinnedMemory(), Ram()]
    near, pinned, host = levels_for(model(), given)
    assert [near, pinned] == given[:2]
    assert isinstance(host, cuda.ThroughPinned)
    assert list(levels_for(model(), [host])) == [host]


def test_more_than_the_device_has_is_refused_with_a_remedy() -> None:
    level = cuda.DeviceMemory()
    with pytest.raises(LevelFull, match="lower the capacity"):
        level.lend(1 << 45)
    with pytest.raises(LevelFull, match="capacity is 100"):
        cuda.DeviceMemory(capacity=100).reserve({200: 1})


def test_a_device_that_does_not_exist_is_an_error_of_the_level() -> None:
    with pytest.raises(StorageError, match="CUDA device 99"):
        cuda.PinnedMemory(device=99)


def test_memory_that_was_lent_is_used_again() -> None:
    level = cuda.DeviceMemory()
    first = level.slot(1 << 20)
    address = first.address
    del first
    assert level.slot(1 << 20).address == address


def test_a_run_that_was_killed_is_resumed_from_files_to_the_same_bits(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(RUN)
    whole, killed, resumed = (
        subprocess.run(
            [sys.executable, str(program), str(tmp_path / run), str(tmp_path / disk), kill],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(EXAMPLE), *sys.path])},
        )
        for run, disk, kill in (
            ("one", "disk1", ""),
            ("two", "disk2", "kill"),
            ("two", "disk2", ""),
        )
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    first, second = json.loads(whole.stdout), json.loads(resumed.stdout)
    assert first["digest"] == second["digest"]
    assert second["steps"] < first["steps"]


RUN = """
import json, os, signal, sys
import numpy as np, xxhash
import ckio
from ckio.jobs.display import QUIET
from wave3d import wave

place, disk, kill = sys.argv[1], sys.argv[2], sys.argv[3] == "kill"
steps = 0


def make():
    model = wave(48, 120)
    reverse = model.reverse

    def counted(begin, end):
        global steps
        if kill and begin == 40:  # the calibration makes 24 steps
            os.kill(os.getpid(), signal.SIGKILL)
        steps += begin > 24
        reverse(begin, end)

    model.reverse = counted
    return model


size = 8 * 48**3
levels = (
    ckio.Level(name="device", backend="device", capacity=4 * size),
    ckio.Level(name="nvme", backend="directory", options={"path": disk},
               write=ckio.Affine(1e-4), read=ckio.Affine(1e-4)),
)
platform = ckio.Platform(levels)
job = ckio.Job(place, model=make, steps=120, platform=platform, overlap="all", every=0.02,
               display=QUIET)
result = job.run()
bits = np.ascontiguousarray(result.gradient["params"])
print(json.dumps({"digest": xxhash.xxh3_64_hexdigest(bits), "steps": steps}))
"""


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    jax.clear_caches()


def test_a_layout_of_any_size_is_stored(tmp_path: Path) -> None:
    level = cuda.PinnedMemory()
    for nbytes in (0, 1, 4097):
        level.write(x(nbytes), raw(nbytes), [memoryview(bytearray(range(256)) * 17)[:nbytes]])
        into = memoryview(bytearray(nbytes))
        level.read(x(nbytes), [into])
        assert bytes(into) == (bytes(range(256)) * 17)[:nbytes]
    level.close()
