"""What calibration finds on levels and models whose prices are known."""

from pathlib import Path

import pytest

from ckio.backends.compressed import Compressed
from ckio.backends.directory import Directory
from ckio.backends.ram import Ram
from ckio.calibrate import MARGIN, Sample, calibrate, fit
from ckio.chain import Chain
from ckio.clock import VirtualClock
from ckio.compression import Zstd
from ckio.errors import BadInput
from ckio.platforms import Affine, Level
from ckio.testing import CountingModel, Throttled

CHAIN = Chain(
    steps=24, advance=0.75, record=1.5, reverse=2.5, restart=5000, tape=3000, adjoint=7000
)
RAM = Level(name="ram", write=Affine(0.5, 1e-4), read=Affine(0.25, 2e-4), discard=Affine(0.125))
FAR = Level(name="far", write=Affine(2.0, 1e-3), read=Affine(3.0, 5e-4), discard=Affine(0.5))


def test_it_finds_the_prices_of_levels_and_models() -> None:
    clock = VirtualClock()
    backends = {level.name: Throttled(Ram(), level, clock) for level in (RAM, FAR)}
    models = {"counting": lambda: CountingModel(CHAIN, clock)}
    found = calibrate(backends, models=models, repeats=2, clock=clock)
    for level, known in zip(found.levels, (RAM, FAR), strict=True):
        for access in ("write", "read", "discard"):
            cost, real = getattr(level, access), getattr(known, access)
            assert cost.latency == pytest.approx(real.latency, rel=1e-6)
            assert cost.per_byte == pytest.approx(real.per_byte, rel=1e-6, abs=1e-12)
    costs = found.models["counting"].with_steps(24)
    assert (costs.restart, costs.tape, costs.adjoint) == (5000, 3000, 7000)
    assert costs.advance == pytest.approx(0.75)
    assert costs.record == pytest.approx(1.5)
    assert costs.reverse == pytest.approx(2.5)
    assert found.working_memory == 3000


def test_a_level_is_tried_only_with_what_it_can_hold() -> None:
    tried: list[str] = []
    calibrate(
        {"ram": Ram()},
        [100, 1000],
        repeats=1,
        capacities={"ram": 500},
        progress=lambda what, total: tried.append(f"{what} of {total}"),
    )
    assert tried == ["ram, 100 bytes of 1"]
    with pytest.raises(BadInput, match="level 'ram': its capacity of 50 bytes holds none"):
        calibrate({"ram": Ram()}, [100, 1000], repeats=1, capacities={"ram": 50})


def test_nothing_is_left_on_a_level(tmp_path: Path) -> None:
    level = Directory(tmp_path / "level")
    calibrate({"nvme": level}, [1000], repeats=1)
    assert list(level.keys()) == []


def test_files_are_read_hot_and_cold(tmp_path: Path) -> None:
    found = calibrate({"nvme": Directory(tmp_path / "level")}, [1000, 9000], repeats=1)
    assert found.levels[0].read_cold is not None


def test_a_level_that_compresses_counts_what_it_stores() -> None:
    models = {"counting": lambda: CountingModel(CHAIN)}
    found = calibrate({"ram": Compressed(Ram(), Zstd())}, models=models, repeats=1)
    assert found.levels[0].ratio < 0.5
    noise = calibrate({"ram": Compressed(Ram(), Zstd())}, [5000], repeats=1)
    assert 1.0 <= noise.levels[0].ratio <= 1.1 * MARGIN


def samples(*pairs: tuple[int, float], model: bool = False) -> list[Sample]:
    return [Sample("l", "read", n, s, 0.0, 1.0, model) for n, s in pairs]


def test_costs_are_never_negative() -> None:
    assert fit(samples((10, 1.0), (1000, 0.1))).per_byte == 0.0
    assert fit(samples((1000, 0.001), (10_000, 0.02))).latency == 0.0


def test_a_models_own_size_comes_out_right() -> None:
    # A law that is not affine: the fit has to be wrong somewhere, and not at the model's size.
    found = fit(samples((10, 1.0), (100, 1.1), (10_000, 9.0)) + samples((1000, 5.0), model=True))
    assert found(1000) == pytest.approx(5.0, rel=0.02)
