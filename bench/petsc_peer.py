"""One gradient by a TS of PETSc: its own trajectory beside ckio, with the same memory for states.

The program is examples/petsc, the Gray-Scott equations, with explicit steps (`rk`, the classical
method) and with implicit ones (`beuler`, `cn`). PETSc's `TSAdjointSolve` takes its states from a
TSTrajectory in memory; ckio takes them from `TSModel` and a level in memory, and needs none.

A unit is the memory of one state. What PETSc stores of a step counts one unit for the solution and
one for each stage, but for the last stage of an implicit step, which is the solution. PETSc with
"solution" stores states alone, and with "stages" whichever of both its schedule wants (CAMS; Zhang
& Constantinescu 2023). For that, PETSc is configured with --download-cams; without it, only the
rows with all states are there. Beside the units, each has the vectors of one step.

All rows run in turns in this process. Their seconds begin with a TS at x_0, and include planning.
A solve is a step of the TS, whoever asks for it; calls are those of the right-hand side and of its
Jacobian, in steps and in adjoint steps.

    python bench/petsc_peer.py [--grid 64] [--steps 100] [--units 10] [--rounds 5] [--record]
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import record
from mpi4py import MPI  # loads the library of MPI, which petsc4py needs  # noqa: F401
from petsc4py import PETSc

from ckio.backends.ram import Ram
from ckio.model import sizes_of
from ckio.planners import auto, hrevolve
from ckio.planners.compiled import prepare
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.runner import run
from ckio.schedule import Schedule

sys.path.insert(0, str(Path(__file__).parent.parent / "examples" / "petsc"))

from reaction import GrayScott, half_sum

TOLERANCE = 1e-12

NO_SUPPORT = 56
"""PETSc's number of the error that it was configured without something."""

Found = tuple[dict[str, float], np.ndarray]
"""Figures of a gradient, and the derivatives with respect to the start and to the rates."""


@dataclass(frozen=True)
class Task:
    """A gradient: points along each side, the type of the TS, steps, and states in memory."""

    grid: int
    method: str
    steps: int
    units: int


class Counted(GrayScott):
    """The example, which counts its calls and its solves."""

    def __init__(self, task: Task) -> None:
        self.calls: Counter[str] = Counter()
        self.seconds = {"seconds": 0.0, "cpu": 0.0}
        super().__init__(grid=task.grid, method=task.method)
        if task.method != "rk":
            self.ts.getSNES().setMonitor(self._iterated)

    def _iterated(self, _snes: Any, iteration: int, _norm: float) -> None:
        self.calls["solves"] += iteration == 1

    def _rhs(self, *arguments: Any) -> None:
        self.calls["rhs"] += 1
        super()._rhs(*arguments)

    def _jacobian(self, *arguments: Any) -> None:
        self.calls["jacobian"] += 1
        super()._jacobian(*arguments)

    @contextmanager
    def timed(self) -> Iterator[None]:
        start, cpu = time.perf_counter(), time.process_time()
        yield
        self.seconds["seconds"] = time.perf_counter() - start
        self.seconds["cpu"] = time.process_time() - cpu

    def found(self, *gradient: np.ndarray) -> Found:
        """Let PETSc have its memory back, and return what was counted, and the gradient."""
        self.ts.destroy()
        stages = 4  # of the classical method, each with one call
        solves = {"solves": self.calls["solves"] or self.calls["rhs"] / stages}
        return self.seconds | self.calls | solves, np.concatenate(gradient)


def petsc(task: Task, kind: str, *, stages: bool) -> Found:
    """By TSAdjointSolve, with all states ("petsc"), or with a schedule of this kind."""
    options = PETSc.Options("ts_")
    given = {
        "adapt_type": "none",  # or PETSc has no schedule, and keeps all states
        "trajectory_type": "memory",
        "trajectory_memory_type": kind,
        "trajectory_solution_only": not stages,
    }
    if kind != "petsc":
        given["trajectory_max_units_ram"] = task.units
    for name, value in given.items():
        options[name] = value
    model = Counted(task)
    ts, state = model.ts, model.initial()
    of_state, of_rates = state.duplicate(), model.rates.duplicate()
    of_rates.set(0)
    ts.setCostGradients(of_state, of_rates)
    ts.setFromOptions()
    ts.setTime(0.0)
    ts.setTimeStep(model.dt)
    ts.setMaxSteps(task.steps)
    for name in given:
        options.delValue(name)
    with model.timed():
        ts.solve(state)
        half_sum(state, of_state)
        ts.adjointSolve()
    return model.found(of_state.array_r, of_rates.array_r)


def ckio(task: Task, planner: Callable[..., Schedule]) -> Found:
    """By a schedule of this planner, which is told that all steps take equally long."""
    model = Counted(task)
    with model.timed():
        costs = {"advance": 1.0, "record": 1.0, "record_only": 0.0, "reverse": 1.0}
        chain = Chain(steps=task.steps, **costs, **sizes_of(model))
        level = Level(name="ram", capacity=task.units * chain.restart)
        platform = Platform((level,), working_memory=chain.tape)
        run(planner(chain, platform), platform, model, [Ram(capacity=level.capacity)])
    return model.found(model.gradient["u"], model.gradient["p"])


def rows_of(method: str) -> dict[str, Callable[[Task], Found]]:
    rows = {
        "PETSc, all states": partial(petsc, kind="petsc", stages=True),
        "PETSc, solution": partial(petsc, kind="cams", stages=False),
        "PETSc, stages": partial(petsc, kind="cams", stages=True),
        "ckio, hrevolve": partial(ckio, planner=hrevolve),
        "ckio, auto": partial(ckio, planner=auto),
    }
    for name, row in list(rows.items()):
        try:
            row(Task(4, method, 12, 6))  # also loads what a row needs
        except PETSc.Error as error:
            if error.ierr != NO_SUPPORT:
                raise
            del rows[name]
    return rows


def table(task: Task, rounds: int) -> str:
    """All rows, with the distance of their gradients from PETSc's own."""
    rows = rows_of(task.method)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in rows}
    expected: np.ndarray | None = None
    for _ in range(rounds):
        for name, row in rows.items():
            figures, gradient = row(task)
            expected = gradient if expected is None else expected
            figures["error"] = float(np.abs(gradient - expected).max() / np.abs(expected).max())
            assert figures["error"] <= TOLERANCE, f"{name}: {figures['error']:.1e} away"
            found[name].append(figures)
    cells = [
        [
            name,
            *(f"{figures[0][key]:.0f}" for key in ("solves", "rhs", "jacobian")),
            *(f"{min(it[key] for it in figures):.2f}" for key in ("seconds", "cpu")),
            f"{max(it['error'] for it in figures):.0e}",
        ]
        for name, figures in found.items()
    ]
    header = task.method, "solves", "rhs calls", "Jacobians", "seconds", "cpu s", "error"
    return record.columns(header, cells)


def tables(grid: int, steps: int, units: int, rounds: int) -> str:
    prepare()
    version = ".".join(map(str, PETSc.Sys.getVersion()))
    parts = [
        f"Gray-Scott, {grid} x {grid} points, {steps} steps, {units} units of"
        f" {16 * grid * grid / 1e6:.2f} MB; the least seconds of {rounds} rounds; PETSc {version}",
        *(table(Task(grid, method, steps, units), rounds) for method in ("rk", "beuler", "cn")),
    ]
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--grid", type=int, default=64)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--units", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--record", action="store_true", help="keep it in bench/results")
    given = parser.parse_args()
    text = tables(given.grid, given.steps, given.units, given.rounds)
    if given.record:
        record.save("petsc_peer", text)
    else:
        print(f"{record.machine()}\n\n{text}")


if __name__ == "__main__":
    main()
