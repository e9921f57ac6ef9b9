"""What a level and the computation cost each other."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ckio.actions import Advance, Discard, Key, Kind, Read, Write
from ckio.arrays import Arrays
from ckio.backends.base import Backend
from ckio.backends.compressed import Compressed
from ckio.backends.directory import Directory
from ckio.backends.ram import Ram
from ckio.calibrate import calibrate
from ckio.calibrate.beside import Beside, excess, losses
from ckio.calibrate.probe import Try
from ckio.chain import Chain
from ckio.columns import ADVANCE, DISCARD, READ, REVERSE, WRITE, Actions
from ckio.compression import Zstd
from ckio.model import ArrayModel
from ckio.platforms import Affine
from ckio.testing import CountingModel
from ckio.timeline import Timeline

CHAIN = Chain(
    steps=24, advance=1e-4, record=1e-4, reverse=1e-4, restart=5000, tape=3000, adjoint=7000
)


def timeline(*seconds: float) -> Timeline:
    """A checkpoint, two stretches of two steps, a discard and the same; a read nothing follows."""
    x = Key(Kind.RESTART, 0)
    steps = [Advance(i, i + 1) for i in range(4)]
    actions = Actions.of([Write(x, 1), *steps, Discard(x, 1), *steps, Read(x, 1)])
    stop = np.cumsum(seconds)
    return Timeline(actions, stop - seconds, stop, np.zeros(len(actions), np.int64))


def test_a_loss_is_what_the_access_and_its_stretch_take_beyond_the_next() -> None:
    taken = timeline(0.5, 3, 2, 2, 2, 0.25, 2, 4, 2, 3, 9)
    assert losses([taken], WRITE, 2, ADVANCE).tolist() == [1.5]
    assert losses([taken], READ, 2, ADVANCE).tolist() == []
    assert losses([taken], DISCARD, 2, ADVANCE).tolist() == [1.25]
    assert losses([taken], DISCARD, 2, ADVANCE, storing=False).tolist() == [1.0]
    assert losses([taken, taken], WRITE, 2, ADVANCE).tolist() == [1.5, 1.5]
    assert losses([], WRITE, 2, ADVANCE).tolist() == []
    assert losses([taken], WRITE, 2, REVERSE).tolist() == []


def test_what_may_be_chance_is_no_loss() -> None:
    near = np.array([1.0, 1.1, 0.9, 1.0])
    assert excess(near + 5, near) == pytest.approx(5.0)
    assert excess(near - 5, near) == 0.0
    assert excess(np.array([0.0, 3.0, -2.0, 4.0]), np.array([1.0, 0.5, -1.0, 0.0])) == 0.0


def probe(backend: Backend, slots: int = 9, chain: Chain = CHAIN) -> Mapping[str, float]:
    beside = Beside(
        level="far",
        backend=backend,
        tried=Try(lambda: CountingModel(chain), chain.restart, chain.length, own=True),
        step=1e-4,
        access=1e-4,
        copies=(Affine(), Affine()),
        slots=slots,
        repeats=2,
    )
    return {sample.access: sample.seconds for sample in beside.samples()}


@pytest.mark.parametrize("kind", ["ram", "directory", "compressed"])
def test_transfers_beside_the_computation_are_measured_and_nothing_stays(
    kind: str, tmp_path: Path
) -> None:
    level: Backend = Ram() if kind != "directory" else Directory(tmp_path / "far")
    level = Compressed(level, Zstd()) if kind == "compressed" else level
    found = probe(level)
    assert set(found) == {"write_beside", "read_beside", "hinders", "hinders_reverse", "handoff"}
    assert min(found["write_beside"], found["read_beside"]) > 0 <= found["hinders"]
    assert list(level.keys()) == []


def test_tapes_that_are_too_large_are_not_held_for_it() -> None:
    found = probe(Ram(), chain=replace(CHAIN, tape=1 << 40))
    assert set(found) == {"write_beside", "read_beside", "hinders", "handoff"}


def test_no_more_is_stored_than_the_level_holds() -> None:
    assert set(probe(Ram(capacity=2 * CHAIN.restart), slots=2)) >= {"write_beside", "hinders"}


def test_a_profile_is_part_of_what_calibration_finds(tmp_path: Path) -> None:
    backends: dict[str, Backend] = {"ram": Ram(), "nvme": Directory(tmp_path / "nvme")}
    found = calibrate(backends, models={"counting": lambda: CountingModel(CHAIN)}, repeats=2)
    ram, nvme = (level.profile for level in found.levels)
    assert ram is not None
    assert nvme is not None
    assert (ram.write_beside, ram.cached, ram.dirty) == (None, None, None)
    prices = (nvme.first, nvme.write_beside, nvme.read_beside)
    assert all(price is not None and price(5000) > 0 for price in prices)
    assert nvme.cached
    assert set(nvme.spread) == {"write", "read", "read_cold", "discard"}
    assert set(found.spreads["counting"]) == {"advance", "record", "reverse"}


class Short(ArrayModel):
    """It finishes after a few steps."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        super().__init__({"x": np.ones(10), "J": 0.0}, control={"x": np.ones(10)})

    def step(self, state: Arrays, i: int, /) -> None:
        state["x"] *= 0.9

    def adjoint_step(self, adjoint: Arrays, tape: Arrays, i: int, /) -> None:
        adjoint["x"] *= 0.9

    def finished(self, state: Arrays, i: int, /) -> bool:
        return i == self.steps


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5])
def test_short_programs_are_measured_with_what_they_have(steps: int, tmp_path: Path) -> None:
    backends: dict[str, Backend] = {"ram": Ram(), "nvme": Directory(tmp_path / "nvme")}
    found = calibrate(backends, models={"short": lambda: Short(steps)}, repeats=1)
    assert found.levels[1].profile is not None
