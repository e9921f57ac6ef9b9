"""The gradient of Burgers' equation by Firedrake, with the checkpoints of three managers.

    python burgers.py [--checkpoints ckio|revolve|none] [--implicit] [--taylor] [--into result.npz]

Each step is semi-implicit: the velocity that advects is that of the step before. With `--implicit`
it is the velocity that the step computes. The functional is the kinetic energy at the end, and the
control is the initial velocity.
"""

import argparse
import json
import time

import firedrake as fd
import numpy as np
from firedrake.adjoint import (
    Control,
    ReducedFunctional,
    Tape,
    continue_annotation,
    pause_annotation,
    set_working_tape,
    taylor_test,
)

DIRECT = {"ksp_type": "preonly", "pc_type": "lu", "snes_rtol": 1e-12}


def managed(tape: Tape, checkpoints: str, steps: int, slots: int, state: int) -> None:
    """Choose who manages the checkpoints of a tape, `slots` states of `state` bytes at a time."""
    match checkpoints:
        case "ckio":
            from ckio.adapters.pyadjoint import enable

            enable(tape, steps=steps, ram=slots * state)
        case "revolve":
            from checkpoint_schedules import Revolve

            tape.enable_checkpointing(Revolve(steps, slots))
        case _:
            pass


def record(
    steps: int, cells: int, slots: int, checkpoints: str, *, implicit: bool = False
) -> tuple[ReducedFunctional, fd.Function]:
    """Record the steps; return the energy as a functional of the start, and the last velocity."""
    tape = Tape()
    set_working_tape(tape)
    continue_annotation()
    square = fd.UnitSquareMesh(cells, cells)
    space = fd.VectorFunctionSpace(square, "CG", 1)
    managed(tape, checkpoints, steps, slots, 2 * 8 * space.dim())

    x, y = fd.SpatialCoordinate(square)
    bump = fd.exp(-30 * ((x - 0.35) ** 2 + (y - 0.4) ** 2)) * fd.sin(fd.pi * x) * fd.sin(fd.pi * y)
    start = fd.Function(space, name="start").interpolate(fd.as_vector((2 * bump, bump)))
    before, u = fd.Function(space, name="before"), fd.Function(space, name="u")
    before.assign(start)
    walls = fd.DirichletBC(space, fd.Constant((0, 0)), "on_boundary")
    test, advecting = fd.TestFunction(space), u if implicit else before
    dt, viscosity = 0.5 / steps, 0.005
    residual = fd.inner((u - before) / dt + fd.dot(advecting, fd.nabla_grad(u)), test)
    residual += viscosity * fd.inner(fd.grad(u), fd.grad(test))
    problem = fd.NonlinearVariationalProblem(residual * fd.dx, u, bcs=walls)
    solver = fd.NonlinearVariationalSolver(problem, solver_parameters=DIRECT)
    for _ in tape.timestepper(iter(range(steps))):
        solver.solve()
        before.assign(u)
    energy = fd.assemble(fd.inner(before, before) / 2 * fd.dx)
    pause_annotation()
    return ReducedFunctional(energy, Control(start)), before


def main() -> None:
    """Compute the gradient, and print the functional and the seconds as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoints", choices=["ckio", "revolve", "none"], default="ckio")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--cells", type=int, default=32)
    parser.add_argument("--slots", type=int, default=5)
    parser.add_argument("--implicit", action="store_true", help="advect with the new velocity")
    parser.add_argument("--taylor", action="store_true", help="check the gradient by a Taylor test")
    parser.add_argument("--into", help="a file for the fields, as .npz")
    given = parser.parse_args()

    begun = time.perf_counter()
    energy, last = record(
        given.steps, given.cells, given.slots, given.checkpoints, implicit=given.implicit
    )
    end = last.dat.data_ro.copy()
    gradient = energy.derivative()
    figures = {"J": float(energy.functional), "seconds": time.perf_counter() - begun}
    start = energy.controls[0].control
    if given.into:
        np.savez(
            given.into,
            points=start.function_space().mesh().coordinates.dat.data_ro,
            start=start.dat.data_ro,
            end=end,
            derivative=gradient.dat.data_ro,
            gradient=gradient.riesz_representation("L2").dat.data_ro,
        )
    if given.taylor:
        direction = fd.Function(start.function_space())
        x, y = fd.SpatialCoordinate(start.function_space().mesh())
        direction.interpolate(fd.as_vector((fd.sin(3 * x * y), fd.cos(5 * x) * y)))
        figures["rate"] = taylor_test(energy, start, direction)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
