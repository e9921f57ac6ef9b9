"""A TS of petsc4py as a model: PETSc steps and takes adjoint steps, and ckio stores the states.

PETSc needs no trajectory then, and a run with ckio can be planned, resumed, and checked as any
other. The vectors of PETSc use the memory of the model's arrays, so that no state is copied.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from ckio.errors import BadInput, RunFailed
from ckio.model import ArrayModel, Arrays
from ckio.model.arrays import Array
from ckio.model.comm import SOLO, Comm

Cost = Callable[[Any, Any], float]

_METHODS: Final = "rk", "beuler", "cn", "theta"

_NO_END: Final = 2**31 - 2
"""More steps than any run has; PETSc wants a limit, and takes 2**31 - 1 for none."""


class TSModel(ArrayModel):
    """A time integration of PETSc with steps of equal length, and a cost of its last state.

    The TS needs what PETSc's own adjoint needs: a right-hand side with its Jacobian, and for the
    gradient with respect to parameters also `setRHSJacobianP`. Explicit Runge-Kutta methods and
    the theta methods (`beuler`, `cn`, `theta`) have adjoint steps in PETSc. Linear solvers must be
    as accurate as the gradient is to be, for example `-ksp_rtol 1e-12`.

    Parameters
    ----------
    ts : petsc4py.PETSc.TS
        The integrator. Its type, right-hand side and Jacobians are set. The model sets its time,
        its time step and its solution, and must be its only user.
    start : petsc4py.PETSc.Vec
        The state x_0, which is copied. It is the control "u" of the gradient.
    dt : float
        The time step. Step i leads from time i dt to (i + 1) dt.
    cost : callable
        `cost(u, gradient)` returns J for the last state `u`, the same on all ranks, and sets the
        vector `gradient` to dJ/du. Both vectors have the layout of `start`.
    parameters : petsc4py.PETSc.Vec, optional
        The parameters p of the right-hand side, which reads them from this vector. They are the
        control "p". Each rank has its own part.
    comm : Comm
        The ranks, as ckio gives them to a model that has this argument.

    Attributes
    ----------
    ts : petsc4py.PETSc.TS
        The integrator.

    Raises
    ------
    BadInput
        If the TS is of another type, or petsc4py has other numbers than those of double precision.
    RunFailed
        If the TS does not converge, or takes a step of another length because it adapts its steps.
    """

    records_late = True  # an adjoint step computes the stages of its step itself
    shared_controls = ()  # vectors of PETSc are distributed, also if their parts are equal

    def __init__(
        self,
        ts: Any,
        start: Any,
        dt: float,
        cost: Cost,
        *,
        parameters: Any = None,
        comm: Comm = SOLO,
    ) -> None:
        if ts.getType() not in _METHODS:
            raise BadInput(
                f"the TS is of type {ts.getType()}; TSModel knows the adjoint steps of"
                f" {', '.join(_METHODS)} only: choose one of them by ts.setType"
            )
        self.comm, self.ts, self._dt, self._cost = comm, ts, dt, cost
        self._u, self._of_u = start.duplicate(), start.duplicate()
        self._p = parameters
        self._of_p = None if parameters is None else parameters.duplicate()
        values = np.asarray(start.array_r)
        if values.dtype != np.float64:
            raise BadInput(f"petsc4py has numbers of type {values.dtype}; TSModel needs float64")
        control = {"u": values} | ({} if parameters is None else {"p": parameters.array_r})
        super().__init__({"u": values}, control=control, tape=["u"])
        ts.setSolution(self._u)
        ts.setMaxSteps(_NO_END)
        ts.setMaxTime(float(_NO_END) * abs(dt))
        ts.setExactFinalTime(ts.ExactFinalTime.STEPOVER)
        ts.setSaveTrajectory()  # an adjoint step needs the object, which `step` never fills
        ts.setCostGradients(self._of_u, self._of_p)

    def start(self, state: Arrays, /) -> None:
        super().start(state)
        if self._p is not None:
            self._p.array[:] = self.control["p"]

    def step(self, state: Arrays, i: int, /) -> None:
        with self._at(i, self._u, state["u"]):
            self._step_of_ts(i)

    def adjoint_step(self, adjoint: Arrays, tape: Arrays, i: int, /) -> None:
        with self._at(i, self._u, tape["u"]), _placed(self._of_u, adjoint["u"]):
            self._step_of_ts(i)  # computes the stages of this step again
            if self._of_p is not None:
                self._of_p.set(0)
            self.ts.setTimeStep(-self._dt)
            self.ts.adjointStep()
            if self._of_p is not None:
                self.gradient["p"][...] += self._of_p.array_r

    def adjoint_seed(self, state: Arrays, adjoint: Arrays, n: int, /) -> float:
        with _placed(self._u, state["u"]), _placed(self._of_u, adjoint["u"]):
            return float(self._cost(self._u, self._of_u))

    def _step_of_ts(self, i: int) -> None:
        self.ts.step()
        if (reached := self.ts.getTime()) != i * self._dt + self._dt:
            raise RunFailed(
                f"step {i}: PETSc's TS adapted its step, and went from time {i * self._dt} to"
                f" {reached} instead of by {self._dt}; set the option ts_adapt_type to none, or a"
                " smaller dt"
            )

    @contextmanager
    def _at(self, i: int, vector: Any, array: Array) -> Iterator[None]:
        """Let the TS be at step i, and its solution be this array."""
        self.ts.setTime(i * self._dt)
        self.ts.setTimeStep(self._dt)
        self.ts.setStepNumber(i)
        self.ts.restartStep()  # some methods would use the stages of whichever step came before
        with _placed(vector, array):
            yield
            if (reason := self.ts.getConvergedReason()) < 0:
                raise RunFailed(f"step {i}: PETSc's TS did not converge (reason {reason})")


@contextmanager
def _placed(vector: Any, array: Array) -> Iterator[None]:
    """Let a vector use the memory of an array within this context."""
    vector.placeArray(array)
    try:
        yield
    finally:
        vector.resetArray()
