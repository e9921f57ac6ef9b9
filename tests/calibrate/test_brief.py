"""The brief calibration for one run computes few steps of a slow model."""

import time
from pathlib import Path

import pytest

from ckio import ArrayModel
from ckio.backends.directory import Directory
from ckio.backends.ram import Ram
from ckio.calibrate import calibrate


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
