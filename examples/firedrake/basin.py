"""The gradient of a wave in shallow water with respect to the depth, by Firedrake.

    python basin.py [--checkpoints ckio|revolve|none] [--taylor] [--into result.npz]

A hump of water in a closed basin spreads as a linear wave. Each step is the implicit midpoint rule,
for the current and the height of the surface together. The functional is the potential energy at
the end, in one corner of the basin, and the control is the depth. The gradient needs the current of
every step.
"""

import argparse
import json
import time

import firedrake as fd
import numpy as np
from burgers import DIRECT, managed
from firedrake.adjoint import (
    Control,
    ReducedFunctional,
    Tape,
    continue_annotation,
    pause_annotation,
    set_working_tape,
    taylor_test,
)


def record(
    steps: int, cells: int, slots: int, checkpoints: str
) -> tuple[ReducedFunctional, fd.Function]:
    """Record the steps; return the energy as a functional of the depth, and the last state."""
    tape = Tape()
    set_working_tape(tape)
    continue_annotation()
    basin = fd.UnitSquareMesh(cells, cells)
    heights = fd.FunctionSpace(basin, "CG", 1)
    space = fd.VectorFunctionSpace(basin, "DG", 0) * heights
    managed(tape, checkpoints, steps, slots, 2 * 8 * space.dim())

    x, y = fd.SpatialCoordinate(basin)
    depth = fd.Function(heights, name="depth").interpolate(1 - x / 2)
    before, after = fd.Function(space, name="before"), fd.Function(space, name="after")
    before.subfunctions[1].interpolate(fd.exp(-60 * ((x - 0.3) ** 2 + (y - 0.3) ** 2)))
    (u, h), (v, q), (u_before, h_before) = (
        fd.TrialFunctions(space),
        fd.TestFunctions(space),
        fd.split(before),
    )
    dt, u_mid, h_mid = 1 / steps, (u + u_before) / 2, (h + h_before) / 2
    step = fd.inner(u - u_before, v) + (h - h_before) * q
    step += dt * (fd.inner(fd.grad(h_mid), v) - depth * fd.inner(u_mid, fd.grad(q)))
    problem = fd.LinearVariationalProblem(
        fd.lhs(step * fd.dx), fd.rhs(step * fd.dx), after, constant_jacobian=True
    )
    solver = fd.LinearVariationalSolver(problem, solver_parameters=DIRECT)
    for _ in tape.timestepper(iter(range(steps))):
        solver.solve()
        before.assign(after)
    corner = fd.conditional(fd.And(x > 0.5, y > 0.5), 1, 0)
    energy = fd.assemble(corner * fd.split(before)[1] ** 2 / 2 * fd.dx)
    pause_annotation()
    return ReducedFunctional(energy, Control(depth)), before


def main() -> None:
    """Compute the gradient, and print the functional and the seconds as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoints", choices=["ckio", "revolve", "none"], default="ckio")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--cells", type=int, default=32)
    parser.add_argument("--slots", type=int, default=10)
    parser.add_argument("--taylor", action="store_true", help="check the gradient by a Taylor test")
    parser.add_argument("--into", help="a file for the fields, as .npz")
    given = parser.parse_args()

    begun = time.perf_counter()
    energy, last = record(given.steps, given.cells, given.slots, given.checkpoints)
    recorded = time.perf_counter()
    surface = last.subfunctions[1].dat.data_ro.copy()
    gradient = energy.derivative()
    figures = {
        "J": float(energy.functional),
        "forward": recorded - begun,
        "adjoint": time.perf_counter() - recorded,
    }
    depth = energy.controls[0].control
    if given.into:
        np.savez(
            given.into,
            points=depth.function_space().mesh().coordinates.dat.data_ro,
            surface=surface,
            derivative=gradient.dat.data_ro,
            gradient=gradient.riesz_representation("L2").dat.data_ro,
        )
    if given.taylor:
        direction = fd.Function(depth.function_space())
        x, y = fd.SpatialCoordinate(depth.function_space().mesh())
        direction.interpolate(fd.cos(5 * x) * y)
        figures["rate"] = taylor_test(energy, depth, direction)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
