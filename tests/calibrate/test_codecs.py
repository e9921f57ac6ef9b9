"""Codecs are tried on levels with a model's own checkpoints, and the right one is taken."""

from pathlib import Path

import numpy as np
import pytest

from ckio.actions import Buffers, Key, Layout
from ckio.backends.compressed import Compressed
from ckio.backends.directory import Directory
from ckio.backends.ram import Ram
from ckio.calibrate import MARGIN, calibrate
from ckio.calibrate.codecs import decide
from ckio.calibrate.probe import Checkpoint, MakeModel, copy_checkpoints, late_checkpoints
from ckio.compression import Zstd
from ckio.errors import BadInput
from ckio.model import ArrayModel
from ckio.model.arrays import Arrays
from ckio.platform import Affine, Level
from ckio.platform.clock import VirtualClock
from ckio.testing import Throttled


class Spreading(ArrayModel):
    """Noise that fills one more part in a hundred of the state with each step."""

    def __init__(self, size: int = 100_000, *, full: bool = False) -> None:
        self.noise = np.random.default_rng(0).integers(0, 256, 8 * size, np.uint8)
        x = np.zeros(size)
        x.view(np.uint8)[...] = self.noise if full else 0
        super().__init__({"x": x, "J": 0.0}, control={"rate": 0.0}, tape=["x"])

    def step(self, state: Arrays, i: int, /) -> None:
        filled = min(8 * state["x"].size, 8 * (state["x"].size // 100) * (i + 1))
        state["x"].view(np.uint8)[:filled] = self.noise[:filled]

    def adjoint_step(self, adjoint: Arrays, tape: Arrays, i: int, /) -> None: ...


def noise() -> Spreading:
    return Spreading(full=True)


CODECS = {"zstd": Zstd()}


def late(make: MakeModel = Spreading) -> list[Checkpoint]:
    """The checkpoints that a calibration comes to last."""
    return copy_checkpoints(late_checkpoints(make, 24))


def throttled(level: Level, clock: VirtualClock) -> Throttled:
    """A level with prices by the byte that reaches it; codecs take no time on this clock."""
    return Throttled(Ram(capacity=level.capacity), level, clock)


class Counting(Ram):
    """Counts what is written to it."""

    writes = 0

    def write(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        self.writes += 1
        return super().write(key, layout, data)


def test_noise_is_written_once_and_then_nothing_is_measured() -> None:
    level = Counting()
    found = decide("ram", level, CODECS, late(noise), step=1.0)
    assert (found.codec, found.sentence[:32]) == ("", "no codec: none shrinks all check")
    assert level.writes == 2  # a state and a tape


def test_where_bytes_cost_time_a_codec_is_chosen() -> None:
    clock = VirtualClock()
    priced = Level(name="slow", write=Affine(per_byte=1e-6), read=Affine(per_byte=1e-6))
    level = throttled(priced, clock)
    found = decide("slow", level, CODECS, late(), step=1.0, repeats=1, clock=clock)
    assert found.codec == "zstd"


def test_where_bytes_cost_nothing_a_codec_is_chosen_for_its_slots_only() -> None:
    clock = VirtualClock()
    room = 10 * 800_008
    free = throttled(Level(name="ram", capacity=room), clock)
    found = decide("ram", free, CODECS, late(), step=1.0, capacity=room, repeats=1, clock=clock)
    assert found.codec == "zstd"
    endless = throttled(Level(name="ram"), clock)
    found = decide("ram", endless, CODECS, late(), step=1.0, repeats=1, clock=clock)
    assert found.codec == ""


def test_nothing_is_left_on_the_level_and_it_stays_open(tmp_path: Path) -> None:
    level = Directory(tmp_path / "level")
    assert decide("nvme", level, CODECS, late(), step=1.0, repeats=1).sentence
    assert list(level.keys()) == []
    level.remove()
    assert not list(tmp_path.rglob("*.ckio"))


def test_choosing_takes_the_model_no_step() -> None:
    checkpoints = late()
    steps: list[int] = []

    class Counted(Spreading):
        def step(self, state: Arrays, i: int, /) -> None:
            steps.append(i)
            super().step(state, i)

    for each in (copy_checkpoints(late_checkpoints(Counted, 24)), checkpoints, checkpoints):
        decide("ram", Ram(), CODECS, each, step=1.0, repeats=1)
        assert len(steps) == 24


def test_what_is_kept_of_a_model_is_not_changed_by_a_trial() -> None:
    checkpoints = late()
    before = [b"".join(data) for _, _, data in checkpoints]
    decide("ram", Ram(), CODECS, checkpoints, step=1.0)
    assert [b"".join(data) for _, _, data in checkpoints] == before


def test_a_lossy_codec_is_never_chosen_unasked() -> None:
    class Lossy(Zstd):
        lossless = False

    with pytest.raises(BadInput, match="level 'ram': codec 'coarse' is lossy"):
        decide("ram", Ram(), {"coarse": Lossy()}, late(), step=1.0)


def test_a_level_without_room_for_one_checkpoint_is_refused() -> None:
    with pytest.raises(BadInput, match="level 'ram': its capacity of 1000 bytes holds no check"):
        decide("ram", Ram(capacity=1000), CODECS, late(), step=1.0, capacity=1000)


def ratio(capacity: int | None = None) -> float:
    found = calibrate(
        {"ram": Compressed(Ram(capacity=capacity), Zstd())},
        models={"spreading": Spreading},
        capacities={"ram": capacity},
        repeats=1,
    )
    return found.levels[0].ratio


@pytest.mark.slow
def test_a_ratio_is_that_of_the_last_checkpoint_however_few_slots_were_tried() -> None:
    # x_23 is noise in 23 parts of 100; the tape of the last step, too.
    assert ratio() == pytest.approx(0.23 * MARGIN, rel=0.05)
    assert ratio(capacity=2 * 800_008) == pytest.approx(ratio(), rel=1e-6)


def test_what_comes_late_is_the_last_state_and_the_last_tape() -> None:
    kinds = []
    for key, layout, data in late_checkpoints(Spreading, 5):
        kinds.append(str(key))
        x = next(v for field, v in zip(layout, data, strict=True) if field.name == "x")
        assert np.count_nonzero(np.frombuffer(x)) == pytest.approx(4 * 1000, rel=0.01)
    assert kinds == ["x_4", "t_4"]
