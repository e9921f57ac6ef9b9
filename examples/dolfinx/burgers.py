"""The gradient of Burgers' equation by dolfinx-adjoint, with the checkpoints of three managers.

    python burgers.py [--checkpoints ckio|revolve|none] [--taylor] [--save gradient.npy]

Each implicit step is solved by Picard iterations: the velocity that advects is that of the iterate
before, and the first iterate is the last one of the step before. The functional is the kinetic
energy at the end, and the control is the initial velocity.
"""

import argparse
import json
import time

import dolfinx_adjoint as adjoint
import numpy as np
import ufl
from dolfinx import fem, mesh
from mpi4py import MPI
from pyadjoint import (
    Control,
    ReducedFunctional,
    Tape,
    continue_annotation,
    pause_annotation,
    set_working_tape,
    taylor_test,
)

DIRECT = {"ksp_type": "preonly", "pc_type": "lu"}


def managed(
    tape: Tape,
    checkpoints: str,
    steps: int,
    slots: int,
    state: int,
    *,
    disk: str | None = None,
    overlap: bool = False,
) -> None:
    """Choose who manages the checkpoints of a tape, `slots` states of `state` bytes at a time.

    ckio stores them in memory, or else in a directory of the disk; its transfers may overlap.
    """
    match checkpoints:
        case "ckio":
            from ckio.adapters.pyadjoint import enable
            from ckio.schedule.policy import SYNCHRONOUS, Overlap

            level = {"disk": f"{disk}:{slots * state}"} if disk else {"ram": slots * state}
            beside = Overlap(write_behind=1, read_ahead=1) if overlap else SYNCHRONOUS
            enable(tape, steps=steps, **level, overlap=beside)
        case "revolve":
            from checkpoint_schedules import Revolve

            tape.enable_checkpointing(Revolve(steps, slots))
        case _:
            pass


def record(steps: int, cells: int, slots: int, checkpoints: str) -> ReducedFunctional:
    """Record the steps on a tape, and return the energy as a functional of the initial velocity."""
    tape = Tape()
    set_working_tape(tape)
    continue_annotation()
    managed(tape, checkpoints, steps, slots, 2 * 8 * (cells + 1))

    line = mesh.create_interval(MPI.COMM_WORLD, cells, [0, 1])
    space = fem.functionspace(line, ("Lagrange", 1))
    line.topology.create_connectivity(0, 1)
    ends = fem.locate_dofs_topological(space, 0, mesh.exterior_facet_indices(line.topology))
    walls = adjoint.dirichletbc(adjoint.Function(space), ends)

    initial = adjoint.Function(space, name="initial")
    initial.interpolate(lambda x: np.sin(2 * np.pi * x[0]))
    before, advecting, u = (adjoint.Function(space, name=name) for name in ("before", "w", "u"))
    adjoint.assign(initial, before)
    trial, test = ufl.TrialFunction(space), ufl.TestFunction(space)
    dt, viscosity = 1 / steps, 0.01
    left = trial / dt * test + advecting * trial.dx(0) * test
    left += viscosity * trial.dx(0) * test.dx(0)
    problem = adjoint.LinearProblem(
        left * ufl.dx,
        before / dt * test * ufl.dx,
        u=u,
        bcs=[walls],
        petsc_options_prefix="burgers_",
        petsc_options=DIRECT,
        adjoint_petsc_options=DIRECT,
    )
    for _ in tape.timestepper(iter(range(steps))):
        for _ in range(2):
            problem.solve()
            adjoint.assign(u, advecting)
        adjoint.assign(u, before)
    energy = adjoint.assemble_scalar(before**2 / 2 * ufl.dx)
    pause_annotation()
    functional = ReducedFunctional(energy, Control(initial))
    functional.problem = problem  # its blocks use it again
    return functional


def main() -> None:
    """Compute the gradient, and print the functional and the seconds as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoints", choices=["ckio", "revolve", "none"], default="ckio")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--cells", type=int, default=64)
    parser.add_argument("--slots", type=int, default=5)
    parser.add_argument("--taylor", action="store_true", help="check the gradient by a Taylor test")
    parser.add_argument("--save", help="a file for the gradient, as .npy")
    given = parser.parse_args()

    begun = time.perf_counter()
    energy = record(given.steps, given.cells, given.slots, given.checkpoints)
    gradient = energy.derivative()
    figures = {"J": float(energy.functional), "seconds": time.perf_counter() - begun}
    if given.save:
        np.save(given.save, gradient.x.array)
    if given.taylor:
        initial = energy.controls[0].control
        direction = adjoint.Function(initial.function_space)
        direction.interpolate(lambda x: np.cos(5 * x[0]))
        figures["rate"] = taylor_test(energy, initial, direction)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
