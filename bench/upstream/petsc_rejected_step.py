"""To be reported to PETSc: a cost integral is wrong after a rejected step of Runge-Kutta.

TSRollBack_RK subtracts the integral over the rejected step from the solution of the quadrature TS.
TSForwardCostIntegral is called after an accepted step only, so that it was never added. The
integral of 1 over a time of 3 is 2.27 with PETSc 3.25.5, which rejects 9 steps here, instead of 3.
Gradients by TSAdjointSolve are right, as they do not read the value. ckio computes such a step
once more (`ckio.adapters.petsc`).
"""

import numpy as np
from mpi4py import MPI  # loads the library of MPI, which petsc4py needs  # noqa: F401
from petsc4py import PETSc


def oscillate(ts: PETSc.TS, t: float, u: PETSc.Vec, change: PETSc.Vec) -> None:
    """Set the change to that of a van der Pol oscillator with a force."""
    x, y = u.array_r
    change.array[:] = y, 2 * (1 - x**2) * y - x + np.cos(t) / 2


def main() -> None:
    """Integrate 1 from time 0 to 3, by the default method, which adapts its steps."""
    ts, state = PETSc.TS().create(PETSc.COMM_SELF), PETSc.Vec().createSeq(2)
    state.array[:] = 1.0, 0.3
    ts.setType("rk")
    ts.setRHSFunction(oscillate)
    ts.setTolerances(rtol=1e-5, atol=1e-5)
    quadrature = ts.createQuadratureTS(True)
    quadrature.setRHSFunction(lambda ts, t, u, value: value.set(1.0), PETSc.Vec().createSeq(1))
    unused = PETSc.Mat().createDense((2, 2)), PETSc.Mat().createDense((2, 1))
    for solver, matrix in zip((ts, quadrature), unused, strict=True):
        matrix.setUp()  # TSSetUp wants Jacobians, which no forward step reads
        solver.setRHSJacobian(lambda *_: None, matrix, matrix)
    ts.setTimeStep(0.3)
    ts.setMaxTime(3.0)
    ts.setExactFinalTime(ts.ExactFinalTime.MATCHSTEP)
    ts.solve(state)
    rejected, integral = ts.getStepRejections(), ts.getCostIntegral().array_r[0]
    print(f"time {ts.getTime()}, {rejected} steps rejected, integral of 1: {integral}")


if __name__ == "__main__":
    main()
