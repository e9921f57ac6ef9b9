"""A TS of petsc4py as a model: PETSc steps and takes adjoint steps, and ckio stores the states.

PETSc needs no trajectory then, and a run with ckio can be planned, resumed, and checked as any
other. The vectors of PETSc use the memory of the model's arrays, so that no state is copied.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

import numpy as np

from ckio.actions import Buffers, Key, Kind, Layout
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

    records_late = True  # an adjoint step computes what it needs of its step itself
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
        # These methods have no stage but the states before and after the step.
        in_ends = ts.getType() != "rk" and (ts.getTheta() == 1 or ts.getThetaEndpoint())
        self._end = np.empty_like(values) if in_ends else None
        self._reversed: int | None = None  # i if `_end` is x_i, and the adjoint is dJ/dx_i
        self._stages: int | None = None  # i if the TS has the stages of step i

    def load(self, key: Key, layout: Layout, /) -> AbstractContextManager[Buffers]:
        if key.kind is Kind.ADJOINT:
            self._reversed = None
        return super().load(key, layout)

    def step(self, state: Arrays, i: int, /) -> None:
        with _placed(self._u, state["u"]):
            self._step_of_ts(i)

    def adjoint_step(self, adjoint: Arrays, tape: Arrays, i: int, /) -> None:
        x, state = tape["u"], self._state["u"]
        if self._stages == i and self._step == i + 1 and not self._due:
            end = state  # the TS has just computed this step
        elif self._end is not None and self._reversed == i + 1:
            end = self._end
            self._begin_step_of_ts(i, x)
        else:
            end = x if self._end is None else self._end
            np.copyto(end, x)
            with _placed(self._u, end):
                self._step_of_ts(i)
        self._adjoint_of_ts(i, end, adjoint)
        if self._end is not None:
            np.copyto(self._end, x)  # the state after step i - 1, which is reversed next
            self._reversed = i

    def adjoint_seed(self, state: Arrays, adjoint: Arrays, n: int, /) -> float:
        with _placed(self._u, state["u"]), _placed(self._of_u, adjoint["u"]):
            return float(self._cost(self._u, self._of_u))

    def _adjoint_of_ts(self, i: int, end: Array, adjoint: Arrays) -> None:
        """Take dJ/dx_{i+1} to dJ/dx_i, where `end` is x_{i+1}."""
        self._set_parameters()
        self.ts.setUp()  # a run that is resumed may begin with an adjoint step
        self.ts.setTime(i * self._dt + self._dt)
        self.ts.setStepNumber(i + 1)
        if self._of_p is not None:
            self._of_p.set(0)
        with _placed(self._u, end), _placed(self._of_u, adjoint["u"]):
            self.ts.setTimeStep(-self._dt)
            self.ts.adjointStep()
            self._check_converged(i)
        if self._of_p is not None:
            self.gradient["p"][...] += self._of_p.array_r

    def _set_parameters(self) -> None:
        """Let the right-hand side read the control, also in a run that begins with a checkpoint."""
        if self._p is not None:
            self._p.array[:] = self.control["p"]

    def _begin_step_of_ts(self, i: int, x: Array) -> None:
        """Let the TS have x_i as the state before its step, without solving for that after it.

        The step has a solver that is content with x_i as the solution. Its result is not read.
        """
        snes = self.ts.getSNES()
        _, tolerance, _, _ = snes.getTolerances()
        snes.setTolerances(atol=np.finfo(np.float64).max)
        try:
            self._u.array[:] = x
            self._step_of_ts(i)
        finally:
            snes.setTolerances(atol=tolerance)

    def _step_of_ts(self, i: int) -> None:
        self._set_parameters()
        self._stages = None
        self.ts.setTime(i * self._dt)
        self.ts.setTimeStep(self._dt)
        self.ts.setStepNumber(i)
        self.ts.restartStep()  # some methods would use the stages of whichever step came before
        self.ts.step()
        self._check_converged(i)
        if (reached := self.ts.getTime()) != i * self._dt + self._dt:
            raise RunFailed(
                f"step {i}: PETSc's TS adapted its step, and went from time {i * self._dt} to"
                f" {reached} instead of by {self._dt}; set the option ts_adapt_type to none, or a"
                " smaller dt"
            )
        self._stages = i

    def _check_converged(self, i: int) -> None:
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
