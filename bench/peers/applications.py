r"""What does ckio cost in programs of other frameworks, beside their own checkpointing and none?

    python -m bench.peers.applications --dolfinx PYTHON --devito PYTHON --jax-cfd PYTHON \
        --firedrake PYTHON
    python -m bench.peers.applications --jax-cfd PYTHON      # only that program

PYTHON is the interpreter of an environment that has these packages; `.ci/applications --firedrake
DIRECTORY` makes them. Each program of examples/ computes its gradient with the checkpoints of ckio,
with those of the framework, and with all states in memory: three times, each time in a process of
its own. The table has the error of the gradient against that with all states, the order of a Taylor
test, the median of the seconds, and the most memory of the process.
"""

import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench import ROOT, record

EXAMPLES = ROOT / "examples"
ROUNDS = 3

_END = """
import json, sys
import numpy as np
np.save("gradient.npy", gradient)
print(json.dumps({"seconds": seconds, "rate": float(rate)}))
"""

BURGERS = """
import sys, time
import numpy as np
import burgers
import dolfinx_adjoint
begun = time.perf_counter()
energy = burgers.record(steps=200, cells=2000, slots=10, checkpoints=sys.argv[1])
gradient = energy.derivative().x.array.copy()
seconds = time.perf_counter() - begun
start = energy.controls[0].control
direction = dolfinx_adjoint.Function(start.function_space)
direction.interpolate(lambda x: np.cos(5 * x[0]))
rate = burgers.taylor_test(energy, start, direction)
"""

HEAT = """
import sys, time
import heat
from pyadjoint import taylor_test
begun = time.perf_counter()
misfit, plate = heat.misfit(steps=100, cells=48, slots=10, checkpoints=sys.argv[1])
gradient = misfit.derivative().x.array.copy()
seconds = time.perf_counter() - begun
direction = plate.bumps((0.4, 0.6, 1.0))
rate = taylor_test(misfit, misfit.controls[0].control, direction)
"""

FIREDRAKE_BURGERS = """
import sys, time
import burgers, firedrake as fd
burgers.record(2, 48, 1, "none")  # compiles the kernels
begun = time.perf_counter()
energy, _ = burgers.record(steps=100, cells=48, slots=10, checkpoints=sys.argv[1])
gradient = energy.derivative().dat.data_ro.copy()
seconds = time.perf_counter() - begun
start = energy.controls[0].control
x, y = fd.SpatialCoordinate(start.function_space().mesh())
direction = fd.Function(start.function_space())
direction.interpolate(fd.as_vector((fd.sin(3 * x * y), fd.cos(5 * x) * y)))
rate = burgers.taylor_test(energy, start, direction)
"""

FIREDRAKE_WAVE = """
import sys, time
import basin, firedrake as fd
basin.record(2, 32, 1, "none")  # compiles the kernels
begun = time.perf_counter()
energy, _ = basin.record(steps=300, cells=32, slots=10, checkpoints=sys.argv[1])
gradient = energy.derivative().dat.data_ro.copy()
seconds = time.perf_counter() - begun
depth = energy.controls[0].control
x, y = fd.SpatialCoordinate(depth.function_space().mesh())
direction = fd.Function(depth.function_space()).interpolate(fd.cos(5 * x) * y)
rate = basin.taylor_test(energy, depth, direction)
"""

DEVITO = """
import sys, time
import numpy as np
from fwi import Misfit, Survey, true_model
survey = Survey(201, 800)
true, guess = true_model(survey)
misfit = Misfit(survey, 0.0, sys.argv[1], slots=20)
misfit(true)
misfit.observed = survey.traces.data.copy()
begun = time.perf_counter()
first, gradient = misfit(guess)
seconds = time.perf_counter() - begun
side = np.linspace(-500, 500, 201)
direction = 1e-3 * np.exp(-((np.hypot(*np.meshgrid(side, side)) / 100) ** 2)).ravel()
left = [abs(misfit(guess.ravel() + e * direction)[0] - first - e * gradient @ direction)
        for e in (1.0, 0.5)]
rate = np.log2(left[0] / left[1])
"""

JAX_CFD = """
import sys, time
import jax
import numpy as np
from kolmogorov import Flow, misfit, sum_of, taylor_test
flow, steps = Flow(64), 900
true, other = flow.start(0), flow.start(1)
guess = sum_of(0.9, true, 0.1, other)
observed = jax.jit(lambda v: flow.end(v, steps, "nested"))(true)
compute = misfit(flow, observed, steps, checkpoints=sys.argv[1])
jax.block_until_ready(compute(guess))
begun = time.perf_counter()
_, gradient = jax.block_until_ready(compute(guess))
seconds = time.perf_counter() - begun
gradient = np.ravel(jax.tree.leaves(gradient))
rate = taylor_test(compute, guess, other)
"""


class Application(NamedTuple):
    """A program: its folder of examples/, who manages its checkpoints, and its gradient."""

    name: str
    folder: str
    managers: tuple[str, ...]
    program: str


APPLICATIONS = (
    Application("dolfinx: Burgers by Picard", "dolfinx", ("none", "revolve", "ckio"), BURGERS),
    Application("dolfinx: nonlinear heat", "dolfinx", ("none", "revolve", "ckio"), HEAT),
    Application("Firedrake: Burgers", "firedrake", ("none", "revolve", "ckio"), FIREDRAKE_BURGERS),
    Application(
        "Firedrake: shallow water", "firedrake", ("none", "revolve", "ckio"), FIREDRAKE_WAVE
    ),
    Application("Devito: one shot", "devito", ("none", "pyrevolve", "storages", "ckio"), DEVITO),
    Application("jax-cfd: Kolmogorov flow", "jax_cfd", ("none", "nested", "ckio"), JAX_CFD),
)


def measured(
    application: Application, manager: str, python: str
) -> tuple[dict[str, Any], np.ndarray]:
    """Run a program once; return its figures, with the peak memory in bytes, and its gradient."""
    own = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    own["PYTHONPATH"] = os.pathsep.join([str(EXAMPLES / application.folder), str(EXAMPLES.parent)])
    words = [python, "-c", application.program + _END, manager]
    with tempfile.TemporaryDirectory() as place, (Path(place) / "out").open("w+") as out:
        process = subprocess.Popen(words, cwd=place, env=own, stdout=out)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"{application.name} with {manager} failed")
        out.seek(0)
        figures = json.loads(out.read().splitlines()[-1])
        figures["memory"] = usage.ru_maxrss * 1024
        return figures, np.load(Path(place) / "gradient.npy")


def rows_of(application: Application, python: str, rounds: int) -> list[list[str]]:
    """Return a row for each manager, with medians of some rounds that alternate."""
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in application.managers}
    gradients = dict[str, np.ndarray]()
    for _ in range(rounds):
        for manager in application.managers:
            figures, gradients[manager] = measured(application, manager, python)
            runs[manager].append(figures)
    right = gradients["none"]
    rows = []
    for manager, figures in runs.items():
        error = np.linalg.norm(gradients[manager] - right) / np.linalg.norm(right)
        seconds, memory = (statistics.median(it[name] for it in figures) for name in
                           ("seconds", "memory"))  # fmt: skip
        rows.append([
            f"{application.name}, {manager}", f"{error:.1e}", f"{figures[0]['rate']:.2f}",
            f"{seconds:.2f}", f"{memory / 1e6:.0f}",
        ])  # fmt: skip
    return rows


def table(*, dolfinx: str, devito: str, jax_cfd: str, firedrake: str, rounds: int = ROUNDS) -> str:
    """The programs whose interpreters are given."""
    own = {"dolfinx": dolfinx, "firedrake": firedrake, "devito": devito, "jax_cfd": jax_cfd}
    rows = []
    for application in APPLICATIONS:
        if python := own[application.folder]:
            rows += rows_of(application, python, rounds)
    header = ["program, checkpoints of", "error", "Taylor", "seconds", "MB"]
    return record.columns(header, rows)


if __name__ == "__main__":
    record.main(
        "applications", table, dolfinx="", devito="", jax_cfd="", firedrake="", rounds=ROUNDS
    )
