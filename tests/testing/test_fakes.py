"""The fakes that ship with ckio are honest: a throttled level is a level, and takes its price."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ckio.testing
from ckio.backends.directory import Directory
from ckio.backends.ram import Ram
from ckio.errors import LevelFull, MissingCheckpoint, StorageError
from ckio.platform import Affine, Level
from ckio.platform.chain import Chain
from ckio.testing import (
    BackendTests,
    CountingModel,
    Throttled,
    VirtualClock,
    a,
    get,
    put,
    raw,
    t,
    x,
)

LEVEL = Level(
    name="slow",
    write=Affine(2.0, 1 / 1024),
    read=Affine(1.0, 1 / 4096),
    discard=Affine(0.5, 1 / 8192),
)
CHAIN = Chain(steps=4, advance=1.0, record=3.0, reverse=7.0, restart=100, tape=33, adjoint=1)


@pytest.mark.slow
class TestThrottledRam(BackendTests):
    def make(self, tmp_path: Path, /, **limits: Any) -> Throttled:
        return Throttled(Ram(**limits), LEVEL, VirtualClock())


def test_a_throttled_level_takes_its_price_once() -> None:
    clock = VirtualClock()
    level = Throttled(Ram(capacity=4096), LEVEL, clock)
    put(level, x(0), raw(4096))
    assert clock.now() == 2.0 + 4.0
    get(level, x(0), raw(4096))
    assert clock.now() == 6.0 + 1.0 + 1.0
    with pytest.raises(LevelFull):
        put(level, x(2), raw(1))
    with pytest.raises(MissingCheckpoint):
        level.discard(x(2))
    assert clock.now() == 8.0
    level.discard(x(0))
    assert clock.now() == 8.0 + 0.5 + 0.5
    level.close()
    with pytest.raises(StorageError, match="closed"):
        put(level, x(0), raw(1))


def test_a_counting_model_takes_its_seconds_and_counts_its_steps() -> None:
    clock = VirtualClock()
    model = CountingModel(CHAIN, clock)
    assert model.advance(0, 2) == 2
    assert model.record(2, 4) == 4
    model.reverse(3, 4)
    model.reverse(2, 3)
    assert clock.now() == 2 * 1.0 + 2 * 3.0 + 7.0 + 7.0
    assert (model.state, model.tape, model.adjoint, model.forward_steps) == (4, None, 2, 4)


def test_a_counting_model_refuses_a_wrong_order() -> None:
    model = CountingModel(CHAIN)
    model.advance(0, 3)
    with pytest.raises(AssertionError, match="the state is x_3"):
        model.advance(2, 3)
    with pytest.raises(AssertionError, match="past the end"):
        model.record(3, 5)
    with pytest.raises(AssertionError, match="the tape in memory is None"):
        model.reverse(3, 4)
    with pytest.raises(AssertionError, match="not in the memory of the model"):
        model.dump(x(2))
    model.record(3, 4)
    with pytest.raises(AssertionError, match="the adjoint is at 4"):
        model.reverse(2, 3)


def test_the_adjoint_starts_only_where_the_end_was_reached() -> None:
    ahead = CountingModel(CHAIN)
    ahead.advance(0, 3)
    ahead.record(3, 4)
    tape, end = t(3), a(4)
    model = CountingModel(CHAIN)
    with model.load(tape, model.layout(tape)) as buffers:
        buffers[0][:] = ahead.dump(tape)[0]
    with pytest.raises(AssertionError, match="never reached"):
        model.reverse(3, 4)
    with model.load(end, model.layout(end)) as buffers:
        buffers[0][:] = ahead.dump(end)[0]
    model.reverse(3, 4)


def test_a_counting_model_notices_the_bytes_of_another_key() -> None:
    model = CountingModel(CHAIN)
    model.advance(0, 3)
    of_3 = bytes(model.dump(x(3))[0])
    with (
        pytest.raises(AssertionError, match="its bytes are wrong"),
        model.load(x(2), model.layout(x(2))) as buffers,
    ):
        buffers[0][:] = of_3
    assert model.state == 3
    with pytest.raises(RuntimeError), model.load(x(3), model.layout(x(3))):
        raise RuntimeError
    with model.load(x(3), model.layout(x(3))) as buffers:
        buffers[0][:] = of_3
    assert model.state == 3


def test_it_evicts_and_removes_what_the_level_underneath_keeps(tmp_path: Path) -> None:
    level = Level(name="nvme", capacity=None)
    assert not Throttled(Ram(), level, VirtualClock()).cached
    backend = Throttled(Directory(tmp_path / "level"), level, VirtualClock())
    original = put(backend, x(0), raw(100))
    assert backend.cached
    backend.evict()
    assert get(backend, x(0), raw(100)) == original
    backend.remove()
    assert list(tmp_path.iterdir()) == []


def test_the_fakes_need_neither_pytest_nor_hypothesis() -> None:
    script = """
import sys
sys.modules["pytest"] = sys.modules["hypothesis"] = None  # as if they were not installed
from ckio.testing import CountingModel, Throttled, VirtualClock, get, put, raw
try:
    from ckio.testing import BackendTests
except ImportError:
    print("no suite")
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "no suite\n"


def test_everything_it_names_is_there() -> None:
    names = ckio.testing.__all__
    assert [name for name in names if not getattr(ckio.testing, name, None)] == []
