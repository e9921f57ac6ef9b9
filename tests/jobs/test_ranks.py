"""Jobs of many ranks: killed and resumed, with one gradient in which the parts fit together."""

import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from cli.jobs import MPIEXEC, Job, answer, needs_mpi, write_platform
from jobs.inversion import arrays, equal

pytestmark = needs_mpi

MODELS = """
import time

import numpy as np

from ckio import ArrayModel
from ckio.model.comm import SOLO, share
from ckio.models.wave import Wave


class Slow(Wave):
    def adjoint_step(self, adjoint, tape, i):
        time.sleep(0.06)  # so that the way back lasts for seconds, on a busy machine too
        super().adjoint_step(adjoint, tape, i)


class Parts(ArrayModel):
    "Ranks that need nothing of each other, with parts of different size; nobody gathers them."

    def __init__(self, *, comm=SOLO):
        u = np.linspace(1.0, 2.0, 11)[np.array(share(11, comm))]
        self.comm = comm
        super().__init__({"u": u, "J": 0.0}, control={"u": u}, tape=["u"], units={"u": "m"})

    def step(self, state, i):
        state["J"] += np.sum(state["u"] ** 2)
        state["u"] *= 0.9

    def adjoint_step(self, adjoint, tape, i):
        adjoint["u"] *= 0.9
        adjoint["u"] += 2 * tape["u"] * adjoint["J"]

    @property
    def functional(self):
        return sum(self.comm.gather(super().functional))
"""


@pytest.mark.slow
def test_a_job_on_two_ranks_is_killed_and_resumed_to_the_same_gradient(tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(MODELS)
    words = ("run", "models.py:Slow", "--set", "grid=32", "--steps", 60, "--resume")
    words = (*words, "--platform", write_platform(tmp_path, "models.py:Slow"), "--every", "0.02")
    answer(2, *words, "--into", "whole", at=tmp_path)
    job = Job(2, *words, "--into", "run", "--log", "log", at=tmp_path)
    job.wait_for(tmp_path, "log", text="reverse")
    for rank in (0, 1):
        job.kill(rank)
    job.ended(status=None)
    assert not (tmp_path / "run" / "gradient.h5").exists()
    answer(2, *words, "--into", "run", at=tmp_path)
    whole, run = (arrays(tmp_path / name / "gradient.h5") for name in ("whole", "run"))
    assert equal(whole, run)
    rows = [run[f"parts/{rank}/gradient/m"] for rank in (0, 1)]
    assert np.array_equal(np.concatenate(rows), run["gradient/m"])
    # The result is read back with the part of each rank.
    again = answer(2, *words, "--into", "run", at=tmp_path)
    assert again["gradient_digest"]


SCRIPT = """
import sys
import ckio
from ckio.adapters.mpi import world
from models import Parts

comm = world()
job = ckio.Job("run", model=Parts, steps=20, ram="1kB", disk="scratch", planner="hrevolve")
first = job.run()
again = ckio.Job("run", model=Parts).run()
same = all((first.gradient[name] == again.gradient[name]).all() for name in first.gradient)
other = job.again("other", {"u": 2 * first.control["u"]}).run()
lines = comm.gather(f"{same} {first.gradient['u'].shape} {other.functional / first.functional}")
if comm.rank == 0:
    print("\\n".join(lines))
"""


@pytest.mark.slow
def test_each_rank_of_a_script_gets_its_part(tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(MODELS)
    done = subprocess.run(
        [MPIEXEC, "-n", "2", sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["True (5,) 4.0", "True (6,) 4.0"]
    with h5py.File(tmp_path / "run" / "gradient.h5") as file:
        gradient = file["gradient/u"]
        assert gradient.shape == (11,)
        assert gradient.attrs["offsets"].tolist() == [0, 5]
        assert gradient.attrs["shapes"].tolist() == [[5], [6]]
        expected = 2 * np.linspace(1.0, 2.0, 11) * sum(0.81**k for k in range(20))
        assert np.allclose(gradient[()], expected, rtol=1e-12)
        assert file["control/u"].attrs["units"] == "m"
