"""The same gradient by PETSc's own adjoint, which keeps the trajectory in memory.

python by_petsc.py [--steps 200] [--grid 64] [--method rk]
"""

import argparse
import time

import numpy as np
from mpi4py import MPI  # loads the library of MPI, which petsc4py needs  # noqa: F401
from petsc4py import PETSc
from reaction import GrayScott, half_sum


def gradient(
    steps: int, kind: str = "memory", **settings: object
) -> tuple[float, np.ndarray, np.ndarray]:
    """Return the functional, and the gradient with respect to the start and to the rates.

    `kind` is that of PETSc's trajectory: "memory", or "basic" for a file for each state.
    """
    PETSc.Options()["ts_trajectory_type"] = kind
    model = GrayScott(**settings)
    ts, state = model.ts, model.initial()
    of_state, of_rates = state.duplicate(), model.rates.duplicate()
    of_rates.set(0)
    ts.setCostGradients(of_state, of_rates)
    ts.setSaveTrajectory()
    ts.setFromOptions()
    ts.setTime(0.0)
    ts.setTimeStep(model.dt)
    ts.setMaxSteps(steps)
    ts.solve(state)
    functional = half_sum(state, of_state)
    ts.adjointSolve()
    return functional, of_state.array_r.copy(), of_rates.array_r.copy()


def main() -> None:
    """Compute the gradient, and print the functional, norms and seconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--grid", type=int, default=64)
    parser.add_argument("--method", default="rk")
    given = parser.parse_args()
    begun = time.perf_counter()
    functional, of_state, of_rates = gradient(given.steps, grid=given.grid, method=given.method)
    print(f"J = {functional:.12g}, |dJ/du| = {np.linalg.norm(of_state):.12g}")
    print(f"dJ/dF = {of_rates[0]:.12g}, dJ/dk = {of_rates[1]:.12g}")
    print(f"{time.perf_counter() - begun:.2f} s")


if __name__ == "__main__":
    main()
