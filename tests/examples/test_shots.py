"""Shots on Dask: a killed worker's shot is resumed, and the sums are those without a kill."""

import importlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from example_models import EXAMPLES

from ckio.actions.columns import ADVANCE, RECORD
from ckio.jobs.leftovers import find
from ckio.schedule.text import loads

distributed = pytest.importorskip("distributed", reason="dask's distributed is not installed")
pytestmark = pytest.mark.slow

SHOTS, STEPS = 8, 3000


@pytest.fixture
def shots(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of the example, which workers import, too."""
    monkeypatch.syspath_prepend(str(EXAMPLES / "shots"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    yield importlib.import_module("shots")
    sys.modules.pop("shots")


def gradient_of(shots: Any, into: Path, kill: bool) -> tuple[float, Any]:
    """Return misfit and gradient of all shots; with `kill`, the worker of shot 0 is killed."""
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1) as cluster,
        distributed.Client(cluster) as client,
    ):
        m = np.asarray(shots.Shot().control["m"])
        each = client.map(
            shots.one_shot, range(SHOTS), speeds=m, steps=STEPS, into=into, retries=3, pure=False
        )
        if kill:
            first = into / "shot-0"
            while not first.exists() or sum(len(it.checkpoints) for it in find(first)) < 20:
                time.sleep(0.02)
            (worker,) = [it for it, keys in client.processing().items() if each[0].key in keys]
            os.kill(client.run(os.getpid)[worker], signal.SIGKILL)
        misfits, gradients = zip(*client.gather(each), strict=True)
    return sum(misfits), sum(gradients)


def steps_of(plan: Path) -> int:
    """Return the forward steps of the plan in a file."""
    schedule = loads(plan.read_text()).schedule
    rows = np.isin(schedule.actions.op, (ADVANCE, RECORD))
    return int((schedule.actions.end - schedule.actions.begin)[rows].sum())


def test_a_killed_worker_costs_no_shot_and_no_bit(shots: Any, tmp_path: Path) -> None:
    whole = gradient_of(shots, tmp_path / "whole", kill=False)
    killed = gradient_of(shots, tmp_path / "killed", kill=True)
    assert killed[0] == whole[0]
    np.testing.assert_array_equal(killed[1], whole[1])
    at = tmp_path / "killed" / "shot-0"
    assert steps_of(at / "schedule.txt") < steps_of(at / "schedule-1.txt")  # the first process's
