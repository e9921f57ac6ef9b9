"""One gradient by a TS of PETSc: its own trajectory beside ckio, with the same memory for states.

The program is examples/petsc, with explicit steps (`rk`, the classical method) and with implicit
ones (`beuler`, `cn`). A unit is the memory of one state. PETSc counts one for the solution of a
step and one for each stage, but for the last stage of an implicit step, which is the solution. Its
row "solution" stores states alone, and "stages" whichever of both its schedule wants (CAMS; Zhang &
Constantinescu 2023), which needs a PETSc configured with --download-cams. ckio stores states alone.
Beside the units, each has the vectors of one step.

All rows run in turns in this process. Seconds begin with a TS at x_0, and include planning. A solve
is a forward step, whoever asks for it; calls are those of forward and of adjoint steps.
"""

import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI  # loads the library of MPI, which petsc4py needs  # noqa: F401
from petsc4py import PETSc

from bench import ROOT, record
from ckio import Chain, Level, Platform, Ram, run, sizes_of
from ckio.planners import auto, hrevolve
from ckio.planners.compiled import prepare

sys.path.insert(0, str(ROOT / "examples" / "petsc"))

from reaction import GrayScott, half_sum

TOLERANCE = 1e-12
NO_SUPPORT = 56  # the number of PETSc's error that it was configured without something


class Task(NamedTuple):
    """Points along each side, the type of the TS, steps, and states in memory."""

    grid: int
    method: str
    steps: int
    units: int


class Counted(GrayScott):
    """The example, which counts its calls and its solves."""

    def __init__(self, task: Task) -> None:
        self.calls: Counter[str] = Counter()
        super().__init__(grid=task.grid, method=task.method)
        if task.method != "rk":
            self.ts.getSNES().setMonitor(self._iterated)

    def _iterated(self, _snes: Any, iteration: int, _norm: float) -> None:
        self.calls["solves"] += iteration == 1

    def _rhs(self, ts: Any, *arguments: Any) -> None:
        self.calls["rhs"] += 1
        self.calls["solves"] += ts.getType() == "rk" and self.calls["rhs"] % 4 == 0  # its stages
        super()._rhs(ts, *arguments)

    def _jacobian(self, *arguments: Any) -> None:
        self.calls["jacobian"] += 1
        super()._jacobian(*arguments)


def petsc(task: Task, kind: str, stages: bool) -> tuple[Counted, Callable[[], np.ndarray]]:
    """TSAdjointSolve, with all states ("petsc"), or with a schedule of this kind."""
    options = {
        "ts_adapt_type": "none",  # or PETSc has no schedule, and keeps all states
        "ts_trajectory_type": "memory",
        "ts_trajectory_memory_type": kind,
        "ts_trajectory_solution_only": not stages,
    }
    if kind != "petsc":
        options["ts_trajectory_max_units_ram"] = task.units
    for name, value in options.items():
        PETSc.Options()[name] = value
    model = Counted(task)
    ts, state = model.ts, model.initial()
    of_state, of_rates = state.duplicate(), model.rates.duplicate()
    ts.setCostGradients(of_state, of_rates)
    ts.setSaveTrajectory()
    ts.setFromOptions()
    ts.setTime(0.0)
    ts.setTimeStep(model.dt)
    ts.setMaxSteps(task.steps)
    for name in options:
        PETSc.Options().delValue(name)

    def gradient() -> np.ndarray:
        ts.solve(state)
        half_sum(state, of_state)
        ts.adjointSolve()
        return np.concatenate([of_state.array_r, of_rates.array_r])

    return model, gradient


def ckio(task: Task, planner: Any) -> tuple[Counted, Callable[[], np.ndarray]]:
    """A schedule of this planner, which is told that all steps take equally long."""
    model, costs = Counted(task), {"advance": 1, "record": 1, "record_only": 0, "reverse": 1}

    def gradient() -> np.ndarray:
        chain = Chain(steps=task.steps, **costs, **sizes_of(model))
        level = Level(name="ram", capacity=task.units * chain.restart)
        platform = Platform((level,), working_memory=chain.tape)
        run(planner(chain, platform), platform, model, [Ram(capacity=level.capacity)])
        return np.concatenate([model.gradient["u"], model.gradient["p"]])

    return model, gradient


ROWS: dict[str, Callable[[Task], tuple[Counted, Callable[[], np.ndarray]]]] = {
    "PETSc, all states": partial(petsc, kind="petsc", stages=True),
    "PETSc, solution": partial(petsc, kind="cams", stages=False),
    "PETSc, stages": partial(petsc, kind="cams", stages=True),
    "ckio, hrevolve": partial(ckio, planner=hrevolve),
    "ckio, auto": partial(ckio, planner=auto),
}


def table(task: Task, rounds: int) -> str:
    """All rows, in turns; each must find the gradient of PETSc with all states."""
    found: dict[str, list[tuple[float, ...]]] = {}
    expected: np.ndarray | None = None
    for _ in range(rounds):
        for name, row in ROWS.items():
            model, compute = row(task)
            start, cpu = time.perf_counter(), time.process_time()
            try:
                gradient = compute()
            except PETSc.Error as error:
                if error.ierr != NO_SUPPORT:
                    raise
                continue  # this PETSc has no CAMS
            taken = time.perf_counter() - start, time.process_time() - cpu
            expected = gradient if expected is None else expected
            away = np.abs(gradient - expected).max() / np.abs(expected).max()
            assert away <= TOLERANCE, f"{name}: {away:.1e} from the gradient"
            calls = (model.calls[key] for key in ("solves", "rhs", "jacobian"))
            found.setdefault(name, []).append((*calls, *taken))
            model.ts.destroy()
    cells = [
        [name, *(f"{x:.0f}" for x in rows[0][:3]), *(f"{x:.2f}" for x in np.min(rows, axis=0)[3:])]
        for name, rows in found.items()
    ]
    header = task.method, "solves", "rhs calls", "Jacobians", "seconds", "cpu s"
    return record.columns(header, cells)


def text(*, grid: int, steps: int, units: int, rounds: int) -> str:
    prepare()
    parts = [
        f"Gray-Scott, {grid} x {grid} points, {steps} steps, {units} units"
        f" of {16 * grid**2 / 1e6:.2f} MB; the least seconds of {rounds} rounds; all"
        f" gradients equal to {TOLERANCE}; PETSc {'.'.join(map(str, PETSc.Sys.getVersion()))}"
    ]
    for method in "rk", "beuler", "cn":
        table(Task(9, method, 12, 6), 1)  # loads what the rows need
        parts.append(table(Task(grid, method, steps, units), rounds))
    return "\n\n".join(parts)


if __name__ == "__main__":
    record.main("petsc_peer", text, grid=64, steps=100, units=10, rounds=5)
