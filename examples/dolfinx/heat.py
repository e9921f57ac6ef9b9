"""Find the initial temperature from the temperature at a later time, by dolfinx-adjoint and ckio.

    python heat.py [--checkpoints ckio|revolve|none] [--iterations 20] [--into result.npz]
    mpiexec -n 4 python heat.py --iterations 0 --disk /local/scratch --overlap

A plate cools nonlinearly: its conductivity is 1 + u**2, so that the gradient needs the temperature
of every step. Each implicit step is solved by Newton's method. The misfit compares the temperature
at the end with that of a true start, and L-BFGS changes the start. On many ranks, each has a part
of the plate, and stores it in a directory of its own.
"""

import argparse
import resource
import time

import dolfinx_adjoint as adjoint
import numpy as np
import ufl
from burgers import DIRECT, managed
from dolfinx import fem, mesh
from mpi4py import MPI
from pyadjoint import (
    Control,
    ReducedFunctional,
    Tape,
    continue_annotation,
    minimize,
    pause_annotation,
    set_working_tape,
    stop_annotating,
)


class Plate:
    """The heat equation on a square plate with cold edges.

    Attributes
    ----------
    space : FunctionSpace
        Temperatures at the vertices of a grid of triangles.
    """

    def __init__(self, cells: int, steps: int) -> None:
        square = mesh.create_unit_square(MPI.COMM_WORLD, cells, cells)
        self.space = fem.functionspace(square, ("Lagrange", 1))
        self.steps = steps
        square.topology.create_connectivity(1, 2)
        edges = mesh.exterior_facet_indices(square.topology)
        self._edges = fem.locate_dofs_topological(self.space, 1, edges)

    def bumps(self, *bumps: tuple[float, float, float]) -> adjoint.Function:
        """Return the sum of bumps, each with its centre and its height."""
        u = adjoint.Function(self.space)

        def value(x: np.ndarray) -> np.ndarray:
            hot = sum(h * np.exp(-60 * ((x[0] - a) ** 2 + (x[1] - b) ** 2)) for a, b, h in bumps)
            return hot * np.sin(np.pi * x[0]) * np.sin(np.pi * x[1])

        u.interpolate(value)
        return u

    def cooled(self, initial: adjoint.Function, times) -> adjoint.Function:
        """Return the temperature after all steps."""
        before, u = adjoint.Function(self.space), adjoint.Function(self.space)
        adjoint.assign(initial, before)
        adjoint.assign(initial, u)
        walls = adjoint.dirichletbc(adjoint.Function(self.space), self._edges)
        test, dt = ufl.TestFunction(self.space), 0.004 / self.steps
        residual = (u - before) / dt * test
        residual += (1 + u**2) * ufl.inner(ufl.grad(u), ufl.grad(test))
        self._problem = adjoint.NonlinearProblem(  # its blocks use it again
            residual * ufl.dx,
            u,
            bcs=[walls],
            petsc_options_prefix="heat_",
            petsc_options=DIRECT | {"snes_rtol": 1e-12},
            adjoint_petsc_options=DIRECT,
        )
        for _ in times:
            self._problem.solve()
            adjoint.assign(u, before)
        return before


def misfit(
    steps: int, cells: int, slots: int, checkpoints: str, **options
) -> tuple[ReducedFunctional, Plate]:
    """Record the misfit of a first guess, and return it as a functional of the start."""
    plate = Plate(cells, steps)
    with stop_annotating():
        measured = plate.cooled(plate.bumps((0.35, 0.4, 2.0), (0.7, 0.65, 1.5)), range(steps))
    tape = Tape()
    set_working_tape(tape)
    continue_annotation()
    part = plate.space.dofmap.index_map
    nbytes = MPI.COMM_WORLD.allreduce(8 * (part.size_local + part.num_ghosts), MPI.MAX)
    managed(tape, checkpoints, steps, slots, nbytes, **options)
    initial = plate.bumps()
    u = plate.cooled(initial, tape.timestepper(iter(range(steps))))
    value = adjoint.assemble_scalar((u - measured) ** 2 * ufl.dx)
    pause_annotation()
    return ReducedFunctional(value, Control(initial)), plate


def gathered(u: fem.Function) -> np.ndarray:
    """Return the values of all ranks on each of them, in the order of the points of the plate."""
    space, owned = u.function_space, u.function_space.dofmap.index_map.size_local
    points = space.tabulate_dof_coordinates()[:owned, :2].round(9)
    rows = np.column_stack([points, u.x.array[:owned]])
    return np.array(sorted(map(tuple, np.concatenate(MPI.COMM_WORLD.allgather(rows)))))


def main() -> None:
    """Invert, and print how far the misfit fell, or the norm of the gradient."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoints", choices=["ckio", "revolve", "none"], default="ckio")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--cells", type=int, default=24)
    parser.add_argument("--slots", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--disk", help="a directory for the states, instead of memory")
    parser.add_argument("--overlap", action="store_true", help="write and read beside the steps")
    parser.add_argument("--into", help="a file for the fields, as .npz")
    given = parser.parse_args()

    options = {"disk": given.disk, "overlap": given.overlap}
    begun = time.perf_counter()
    functional, plate = misfit(given.steps, given.cells, given.slots, given.checkpoints, **options)
    first = float(functional.functional)
    gradient = gathered(functional.derivative())
    seconds = time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    peaks = MPI.COMM_WORLD.allgather(peak)
    first_rank = MPI.COMM_WORLD.rank == 0
    if first_rank:
        print(f"the gradient has norm {np.linalg.norm(gradient[:, 2]):.12e}, after {seconds:.1f} s")
        print(f"the ranks needed at most {max(peaks)} MiB of memory")
    begun = time.perf_counter()
    found = functional.controls[0].control
    if given.iterations:
        found = minimize(functional, options={"maxiter": given.iterations})
        last = float(functional(found))
        if first_rank:
            print(
                f"the misfit fell from {first:.3e} to {last:.3e} in"
                f" {time.perf_counter() - begun:.1f} s"
            )
    true, found = gathered(plate.bumps((0.35, 0.4, 2.0), (0.7, 0.65, 1.5))), gathered(found)
    if given.into and first_rank:
        np.savez(
            given.into,
            points=true[:, :2],
            true=true[:, 2],
            found=found[:, 2],
            gradient=gradient[:, 2],
        )


if __name__ == "__main__":
    main()
