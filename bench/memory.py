"""Does a process need the memory that `ckio run` expects?

Runs models of the repository, on one and two ranks, with every kind of level, with overlap and
without, each in a process of its own, and prints what was expected before the run beside the peak
that the system has measured. Costs are measured once and known from then on, so that the peak is
not that of the calibration.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench import ROOT, record

EXAMPLES: Final = ROOT / "examples"

OFF, SLACK = 0.10, 30 << 20
"""How far a peak may be from the expected one: a tenth, or 30 MiB."""

GROWTH: Final = """
import ckio, numpy as np

def step(x, p, i):
    return x + p * x * (1 - x), (x**2).sum()

def adjoint(xbar, x, p, i):
    return (1 + p * (1 - 2 * x)) * xbar + 2 * x, (x * (1 - x) * xbar).sum()

Growth = ckio.functions(step, adjoint, np.linspace(0.1, 0.4, 250_000), 0.3)
"""

WAVES: Final = """
import jax.numpy as jnp, numpy as np
from ckio.adapters.jax import JaxModel

def step(state, params, i):
    u, v = state
    v = v + 0.1 * (jnp.roll(u, 1) + jnp.roll(u, -1) - 2 * u)
    return u + 0.1 * v, v

def Waves():
    u = np.sin(np.linspace(0, 20, 200_000))
    return JaxModel(step, (u, 0 * u), lambda state: (state[0] ** 2).sum(), 100)
"""

Case = tuple[str, int, tuple[str, ...]]
"""A name, the number of ranks, and the arguments of `ckio run`."""


def cases(small: bool = False) -> list[Case]:
    """Return the runs; small ones show only that the bench works."""
    grid, steps = ("32", "20") if small else ("256", "300")
    vorticity = ("vorticity", "--set", f"grid={grid}", "--steps", steps)
    if small:
        return [("vorticity", 1, (*vorticity, "--ram", "1MiB"))]
    return [
        ("vorticity, memory", 1, (*vorticity, "--ram", "200MiB")),
        ("vorticity, memory and files", 1, (*vorticity, "--ram", "64MiB", "--disk", "scratch")),
        ("vorticity, archive", 1, (*vorticity, "--ram", "8MiB", "--archive", "a.h5")),
        (
            "vorticity, overlap",
            1,
            (*vorticity, "--ram", "64MiB", "--disk", "scratch", "--overlap", "all"),
        ),
        ("vorticity, checked", 1, (*vorticity, "--ram", "64MiB", "--check-gradient")),
        (
            "wave",
            1,
            ("wave", "--set", "grid=500", "--steps", "200", "--ram", "300MiB"),
        ),
        (
            "wave, 2 ranks",
            2,
            ("wave", "--set", "grid=500", "--steps", "200", "--ram", "150MiB"),
        ),
        ("burgers", 1, ("burgers", "--set", "grid=20000", "--steps", "500", "--ram", "50MiB")),
        ("ocean", 1, (f"{EXAMPLES}/ocean/ocean.py", "--steps", "200", "--ram", "100MiB")),
        (
            "permafrost",
            1,
            (f"{EXAMPLES}/permafrost/permafrost.py", "--steps", "200", "--ram", "20MiB"),
        ),
        (
            "shallow water",
            1,
            (f"{EXAMPLES}/shallow_water/shallow_water.py", "--steps", "300", "--ram", "100MiB"),
        ),
        ("two functions", 1, ("growth.py:Growth", "--steps", "200", "--ram", "150MiB")),
        ("JaxModel", 1, ("waves.py:Waves", "--steps", "100", "--ram", "100MiB")),
    ]


def row(where: Path, case: Case) -> list[str]:
    """Run a case twice, the second time with known costs; return its row."""
    name, ranks, arguments = case
    mpi = [] if ranks == 1 else ["mpiexec", "-n", str(ranks)]
    environment = {**os.environ, "CKIO_CACHE": str(where / "cache"), "CKIO_HISTORY": "off"}
    for into in ("first", "second"):
        line = ["-m", "ckio", "run", *arguments, "--into", f"{name}-{into}".replace(" ", "-")]
        done = subprocess.run(
            [*mpi, sys.executable, *line, "--json"],
            cwd=where,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"{name}: {done.stderr}")
    memory = json.loads(done.stdout.splitlines()[-1])["memory"]
    expected, measured = memory["expected"], memory["measured"]
    off = abs(expected - measured)
    verdict = "" if off <= max(OFF * measured, SLACK) else "TOO FAR"
    mib = (f"{nbytes / 2**20:.0f}" for nbytes in (expected, measured))
    return [name, *mib, f"{expected / measured - 1:+.0%}", verdict]


def table(runs: Sequence[Case] | None = None) -> str:
    """Return the table of these runs, or of all."""
    with tempfile.TemporaryDirectory(prefix="ckio-bench-") as folder:
        where = Path(folder)
        (where / "growth.py").write_text(GROWTH)
        (where / "waves.py").write_text(WAVES)
        rows = [row(where, case) for case in runs or cases()]
    header = ["run", "expected, MiB", "measured, MiB", "off by", ""]
    far = sum(bool(it[-1]) for it in rows)
    return (
        f"{record.columns(header, rows)}\n\n{len(rows) - far} of {len(rows)} within 10 % or 30 MiB"
    )


if __name__ == "__main__":
    record.main("memory", table)
