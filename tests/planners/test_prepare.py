"""Compiled code is loaded before a plan, and its seconds are not those of the plan."""

import subprocess
import sys
from pathlib import Path

import pytest

from ckio.planners import compiled

READY = """
import sys
from ckio.platform.chain import Chain
from ckio.planners import compiled
from ckio.planners.overlap import plan, prepare
from ckio.platform import Affine, Level, Platform

def kernels():
    return {
        f"{name}.{key}": list(map(str, value.signatures))
        for name, module in list(sys.modules.items())
        if name.startswith("ckio.planners.")
        for key, value in vars(module).items()
        if hasattr(value, "py_func") and value.__module__ == name
    }

def machine(*far):
    slow = Affine(latency=2.0)
    levels = [Level(name=f"f{n}", capacity=n, write=slow, read=slow, backend="hdf5") for n in far]
    return Platform((Level(name="ram", capacity=5), *levels))

chain = Chain(steps=40, advance=1.0, record=1.0, reverse=2.0, restart=1, tape=1, adjoint=1)
prepare(machine(40))
loading = compiled.seconds_of_loading()
before = kernels()
for platform in machine(40), machine(9, 20):
    print(plan(chain, platform).makespan)
print(kernels() == before, compiled.seconds_of_loading() == loading > 0)
print(bool(before["ckio.planners.overlap.engine.perform"]))
"""


SLOW = """
import time
calls = []
def warm_up():
    calls.append(1)
    time.sleep(0.02)
"""


@pytest.mark.slow
def test_what_is_prepared_is_all_that_a_plan_for_overlap_calls() -> None:
    done = subprocess.run([sys.executable, "-c", READY], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[2:] == ["True True", "True"]


def test_seconds_of_loading_are_counted_once_for_each_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(compiled, "_taken", {})
    for name in ("first_kernels", "other_kernels"):
        (tmp_path / f"{name}.py").write_text(SLOW)
    assert compiled.seconds_of_loading() == 0
    for modules in (("first_kernels",), ("first_kernels",), ("other_kernels",)):
        compiled.prepare(*modules)
    assert compiled.seconds_of_loading() >= 0.04
    for name in ("first_kernels", "other_kernels"):
        assert sys.modules[name].calls == [1]
