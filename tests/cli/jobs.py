"""Jobs of many ranks, as a user starts them: real processes of a real MPI, and what they leave."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from models.threaded import on_ranks

from ckio.model.comm import Comm
from ckio.models.wave import Wave
from ckio.parallel.agreed import AgreedModel
from ckio.parallel.group import RankGroup

HERE = Path(sys.executable).parent
MPIEXEC, CKIO = HERE / "mpiexec", HERE / "ckio"

needs_mpi = pytest.mark.skipif(
    not MPIEXEC.exists() or not find_spec("mpi4py"),
    reason="no mpi4py, or no mpiexec beside this Python",
)

MARK = "CKIO_TEST_JOB"
"""Tells the processes of a job from those of others."""

PLATFORM = """\
working_memory = 1000000

[[level]]
name = "ram"
capacity = 40000
write = {{ latency = 1e-5, per_byte = 1e-9 }}
read = {{ latency = 1e-5, per_byte = 1e-9 }}
discard = {{ latency = 1e-6, per_byte = 0.0 }}

[[level]]
name = "nvme"
capacity = 400000
backend = "directory"
options = {{ path = "{place}" }}
write = {{ latency = 1e-4, per_byte = 1e-9 }}
read = {{ latency = 1e-4, per_byte = 1e-9 }}
discard = {{ latency = 1e-5, per_byte = 0.0 }}

[[level]]
name = "archive"
capacity = 4000000
backend = "hdf5"
options = {{ path = "{archive}" }}
write = {{ latency = 1e-3, per_byte = 1e-8 }}
read = {{ latency = 1e-3, per_byte = 1e-8 }}
discard = {{ latency = 1e-4, per_byte = 0.0 }}
"""
"""Three levels; on four ranks a wave of 32 points has checkpoints of some 5 kB."""

COSTS = """
[models."{name} grid=32{ranks}"]
advance = 0.001
record = 0.001
reverse = 0.002
restart = {restart}
tape = {tape}
adjoint = {adjoint}
"""


@cache
def sizes(ranks: int) -> dict[str, int]:
    """Bytes of the checkpoints of a rank of a wave of 32 points."""

    def largest(comm: Comm) -> dict[str, int]:
        return dict(AgreedModel(Wave(grid=32, comm=comm), RankGroup(comm)).largest_sizes)

    return on_ranks(ranks, largest)[0]


def write_platform(at: Path, *models: str) -> Path:
    """A platform whose files lie in a directory, and what steps of waves take, and of others."""
    costs = [
        COSTS.format(name=name, ranks=f" on {n} ranks" if n > 1 else "", **sizes(n))
        for name in ("wave", *models)
        for n in (1, 2, 3, 4)
    ]
    path = at / "node.toml"
    levels = PLATFORM.format(place=at / "scratch", archive=at / "archive.h5")
    path.write_text(levels + "".join(costs))
    return path


class Job:
    """A job that has been started: `ckio` with these words on so many ranks."""

    def __init__(
        self,
        ranks: int,
        *words: object,
        at: Path,
        environ: Mapping[str, str] | None = None,
        wrapped: Sequence[object] = (),
    ) -> None:
        self._process = subprocess.Popen(
            [MPIEXEC, "-n", str(ranks), *map(str, wrapped), CKIO, *map(str, words)],
            cwd=at,
            env={**os.environ, **(environ or {}), MARK: str(id(self))},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def processes(self) -> dict[int, int]:
        """The processes of its ranks that run now."""
        found = {}
        for entry in Path("/proc").glob("[0-9]*/environ"):
            try:
                words = entry.read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            environ = dict(word.split("=", 1) for word in words if "=" in word)
            if environ.get(MARK) == str(id(self)) and "PMI_RANK" in environ:
                found[int(environ["PMI_RANK"])] = int(entry.parent.name)
        return found

    def kill(self, rank: int, number: int = signal.SIGKILL) -> None:
        """Send a signal to the process of one rank."""
        os.kill(self.processes()[rank], number)

    def wait_for(self, path: Path, pattern: str, *, text: str = "") -> None:
        """Wait until there is such a file, with this text in it, as long as the job runs."""
        while not any(not text or text in file.read_text() for file in path.glob(pattern)):
            assert self._process.poll() is None, self._process.communicate()
            time.sleep(0.02)

    def ended(self, *, status: int | None = 0) -> tuple[str, str]:
        """What it printed; it ends by itself, with this exit status."""
        try:
            out, err = self._process.communicate(timeout=90)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            raise
        assert status is None or self._process.returncode == status, err
        assert "Traceback" not in err
        return out, err


def answer(ranks: int, *words: object, at: Path, **more: Any) -> dict[str, Any]:
    """The one line of JSON that a job prints, alone on stdout."""
    out, _ = Job(ranks, *words, "--json", at=at, **more).ended()
    (line,) = out.splitlines()
    return json.loads(line)
