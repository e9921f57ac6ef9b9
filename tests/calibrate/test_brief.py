"""The brief calibration for one run computes few steps of a slow model."""

import time
from pathlib import Path

import numpy as np
import pytest

from ckio import ArrayModel, sizes_of
from ckio.backends.directory import Directory
from ckio.backends.ram import Ram
from ckio.calibrate import calibrate


@pytest.mark.parametrize("steps", [1, 2, 3, 10])
def test_a_slow_run_is_not_measured_for_longer_than_it_computes(tmp_path: Path, steps: int) -> None:
    """Of a run of n steps that take 0.3 s, 0.3 s and 0.6 s, and of what it writes."""
    spent, stored = [0.0], list[int]()

    class Slow(ArrayModel):
        def __init__(self) -> None:
            x = np.ones(1 << 10)
            super().__init__({"x": x, "J": 0.0}, control={"x": x}, tape=())

        def step(self, state, i, /):
            time.sleep(0.3)
            spent[0] += 0.3

        def adjoint_step(self, adjoint, tape, i, /):
            time.sleep(0.6)
            spent[0] += 0.6

    class Counted(Ram):
        def write(self, key, layout, data, /):
            stored.append(sum(map(len, data)))
            time.sleep(0.2)
            return super().write(key, layout, data)

    nbytes = sizes_of(Slow())["restart"]
    platform = calibrate({"ram": Counted()}, models={"slow": Slow}, run_steps=steps)
    assert spent[0] <= steps * 0.9 + max(1, steps - 1) * 0.3
    assert stored.count(nbytes) <= max(2, steps)
    chain = platform.models["slow"]
    assert chain.advance == pytest.approx(0.3, rel=0.5)
    assert chain.reverse == pytest.approx(0.6, rel=0.5)


@pytest.mark.parametrize(("seconds", "many"), [(0.0, True), (0.05, False)])
def test_levels_are_measured_between_steps_only_where_these_are_quick(
    tmp_path: Path, seconds: float, many: bool
) -> None:
    computed = []

    class Slow(ArrayModel):
        def __init__(self) -> None:
            super().__init__({"x": 1.0, "J": 0.0}, control={"x": 1.0}, tape=())

        def step(self, state, i, /):
            time.sleep(seconds)
            computed.append(i)
            state["x"] *= 0.5

        def adjoint_step(self, adjoint, tape, i, /):
            adjoint["x"] *= 0.5

    levels = {"ram": Ram(), "disk": Directory(tmp_path / "disk")}
    platform = calibrate(levels, models={"slow": Slow}, run_steps=50)
    assert (len(computed) > 60) == many
    chain = platform.models["slow"]
    assert chain.advance >= seconds
    assert all(level.write(chain.restart) > 0 for level in platform.levels)
    assert not any(list(level.keys()) for level in levels.values())
