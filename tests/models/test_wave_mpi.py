"""Waves on the ranks of MPI: what each of them finds is what one process finds."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from models.fewslots import store_all

from ckio.models.wave import Wave

pytest.importorskip("mpi4py")

MPIEXEC = Path(sys.executable).parent / "mpiexec"
STEPS = 120

PROGRAM = f"""
import hashlib, json
import numpy as np
from ckio.adapters.mpi import world
from ckio.models.wave import Wave

comm = world()
model = Wave(grid=64, comm=comm.apart())
model.record(0, {STEPS})
model.reverse(0, {STEPS})
gradient = model.gathered("m", model.gradient["m"])
found = {{
    "ranks": comm.size,
    "functional": model.functional,
    "norm": float(np.linalg.norm(gradient)),
    "digest": hashlib.sha256(gradient.tobytes()).hexdigest(),
}}
assert comm.gather(found) == [found] * comm.size
if comm.rank == 0:
    print(json.dumps(found))
"""


def on_ranks(count: int, path: Path) -> dict[str, object]:
    """What all of so many processes find."""
    (path / "program.py").write_text(PROGRAM)
    command = [MPIEXEC, "-n", str(count), sys.executable, "program.py"]
    done = subprocess.run(
        command, cwd=path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.campaign
@pytest.mark.skipif(not MPIEXEC.exists(), reason="no mpiexec beside this Python")
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_so_many_ranks_find_the_functional_and_gradient_of_one_process(ranks, tmp_path):
    model = store_all(Wave(grid=64), STEPS)
    found = on_ranks(ranks, tmp_path)
    assert found["ranks"] == ranks
    assert found["functional"] == pytest.approx(model.functional, rel=1e-10) != 0
    gradient = model.gradient["m"]
    assert found["norm"] == pytest.approx(np.linalg.norm(gradient), rel=1e-10) != 0
    assert found["digest"] == hashlib.sha256(gradient.tobytes()).hexdigest()
