"""A TS of petsc4py as a model: PETSc steps and takes adjoint steps, and ckio stores the states.

PETSc needs no trajectory then, and a run with ckio can be planned, resumed, and checked as any
other. The vectors of PETSc use the memory of the model's arrays, so that no state is copied.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Buffers, Key, Kind, Layout
from ckio.errors import BadInput, RunFailed
from ckio.model import ArrayModel, Arrays
from ckio.model.arrays import Array
from ckio.model.comm import SOLO, Comm

Cost = Callable[[Any, Any], float]

_THETA: Final = "beuler", "cn", "theta"
_METHODS: Final = "rk", "arkimex", *_THETA

_NO_END: Final = 2**31 - 2
"""More steps than any run has; PETSc wants a limit, and takes 2**31 - 1 for none."""


class TSModel(ArrayModel):
    """A time integration of PETSc, with a cost of its last state and integrals along the way.

    The TS needs what PETSc's own adjoint needs: a right-hand side with its Jacobian, and for the
    gradient with respect to parameters also `setRHSJacobianP`. Explicit Runge-Kutta methods,
    `arkimex` and the theta methods (`beuler`, `cn`, `theta`) have adjoint steps in PETSc. Linear
    solvers must be as accurate as the gradient is to be, for example `-ksp_rtol 1e-12`.

    If the TS has a quadrature TS (`createQuadratureTS`), its integral is a part of J, and is in
    `state["J"]`.

    Parameters
    ----------
    ts : petsc4py.PETSc.TS
        The integrator. Its type, right-hand side and Jacobians are set. The model sets its time,
        its time step and its solution, and must be its only user.
    start : petsc4py.PETSc.Vec
        The state x_0, which is copied. It is the control "u" of the gradient.
    dt : float
        The time step: step i leads from time i dt to (i + 1) dt. With `until`, the first one that
        PETSc tries.
    until : float, optional
        The end time of a run from time 0 in which PETSc adapts its steps, as the options
        `ts_adapt_...` say; the model decides its number of steps. Time and next time step are a
        part of the state, so that a step that is computed once more has the same length. The
        gradient takes the lengths of steps as constant, as that of PETSc's own adjoint does.
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
        If steps of a theta method are to be adapted, or a quadrature TS does not integrate forward
        or belongs to `arkimex`.
    RunFailed
        If the TS does not converge, or adapts its steps without `until`.
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
        until: float | None = None,
        parameters: Any = None,
        comm: Comm = SOLO,
    ) -> None:
        self._quadrature = _quadrature(ts)
        _check_method(ts, until, integrates=self._quadrature is not None)
        self.comm, self.ts, self._dt, self._until, self._cost = comm, ts, dt, until, cost
        self._u, self._of_u = start.duplicate(), start.duplicate()
        self._p = parameters
        self._of_p = None if parameters is None else parameters.duplicate()
        values = np.asarray(start.array_r)
        if values.dtype != np.float64:
            raise BadInput(f"petsc4py has numbers of type {values.dtype}; TSModel needs float64")
        control = {"u": values} | ({} if parameters is None else {"p": parameters.array_r})
        state: dict[str, Any] = {"u": values}
        if self._quadrature is not None:
            state["J"] = 0.0
        ts.removeTrajectory()  # or it would save states too
        ts.setSolution(self._u)
        ts.setMaxSteps(_NO_END)
        if until is None:
            ts.setMaxTime(float(_NO_END) * abs(dt))
            ts.setExactFinalTime(ts.ExactFinalTime.STEPOVER)
        else:
            state["clock"] = _bits(0.0, min(dt, until))
            ts.setMaxTime(until)
            ts.setExactFinalTime(ts.ExactFinalTime.MATCHSTEP)
        super().__init__(state, control=control, tape=[n for n in state if n != "J"])
        ts.setCostGradients(self._of_u, self._of_p)
        # These methods have no stage but the states before and after the step.
        in_ends = ts.getType() in _THETA and (ts.getTheta() == 1 or ts.getThetaEndpoint())
        self._end = np.empty_like(values) if in_ends else None
        self._reversed: int | None = None  # i if `_end` is x_i, and the adjoint is dJ/dx_i
        self._stages: int | None = None  # i if the TS has the stages of step i
        self._after = 0.0  # the time after the step that the TS has computed last

    def load(self, key: Key, layout: Layout, /) -> AbstractContextManager[Buffers]:
        if key.kind is Kind.ADJOINT:
            self._reversed = None
        return super().load(key, layout)

    def finished(self, state: Arrays, i: int, /) -> bool:
        return self._until is not None and self._clock(state, i)[0] >= self._until

    def step(self, state: Arrays, i: int, /) -> None:
        with _placed(self._u, state["u"]):
            self._step_of_ts(i, state)
        if self._quadrature is not None:
            state["J"] += self._quadrature.getSolution().array_r[0]
        if self._until is not None:
            state["clock"][...] = _bits(self._after, self.ts.getTimeStep())

    def adjoint_step(self, adjoint: Arrays, tape: Arrays, i: int, /) -> None:
        x, state = tape["u"], self._state["u"]
        if self._stages == i and self._step == i + 1 and not self._due:
            end = state  # the TS has just computed this step
        elif self._end is not None and self._reversed == i + 1:
            end = self._end
            self._begin_step_of_ts(i, tape)
        else:
            end = x if self._end is None else self._end
            np.copyto(end, x)
            with _placed(self._u, end):
                self._step_of_ts(i, tape)
        self._adjoint_of_ts(i, end, adjoint, tape)
        if self._end is not None:
            np.copyto(self._end, x)  # the state after step i - 1, which is reversed next
            self._reversed = i

    def adjoint_seed(self, state: Arrays, adjoint: Arrays, n: int, /) -> float:
        with _placed(self._u, state["u"]), _placed(self._of_u, adjoint["u"]):
            return float(self._cost(self._u, self._of_u))

    def _clock(self, state: Arrays, i: int) -> tuple[float, float]:
        """Return the time of x_i, and the time step that is tried next."""
        if self._until is None:
            return i * self._dt, self._dt
        time, dt = state["clock"].view(np.float64)
        return float(time), float(dt)

    def _adjoint_of_ts(self, i: int, end: Array, adjoint: Arrays, tape: Arrays) -> None:
        """Take dJ/dx_{i+1} to dJ/dx_i, where `end` is x_{i+1}."""
        time, dt = self._clock(tape, i)
        if self._until is not None:
            dt = self._after - time
        self._set_parameters()
        self.ts.setUp()  # a run that is resumed may begin with an adjoint step
        self.ts.setTime(time + dt if self._until is None else self._after)
        self.ts.setStepNumber(i + 1)
        if self._of_p is not None:
            self._of_p.set(0)
        with _placed(self._u, end), _placed(self._of_u, adjoint["u"]):
            self.ts.setTimeStep(-dt)
            self.ts.setSaveTrajectory()  # an adjoint step needs the object, not what is in it
            self.ts.adjointStep()
            self.ts.removeTrajectory()
            self._check_converged(i)
        if self._of_p is not None:
            self.gradient["p"][...] += self._of_p.array_r

    def _set_parameters(self) -> None:
        """Let the right-hand side read the control, also in a run that begins with a checkpoint."""
        if self._p is not None:
            self._p.array[:] = self.control["p"]

    def _begin_step_of_ts(self, i: int, tape: Arrays) -> None:
        """Let the TS have x_i as the state before its step, without solving for that after it.

        The step has a solver that is content with x_i as the solution. Its result is not read.
        """
        snes = self.ts.getSNES()
        _, tolerance, _, _ = snes.getTolerances()
        snes.setTolerances(atol=np.finfo(np.float64).max)
        try:
            self._u.array[:] = tape["u"]
            self._step_of_ts(i, tape)
        finally:
            snes.setTolerances(atol=tolerance)

    def _step_of_ts(self, i: int, state: Arrays) -> None:
        """Let the TS step from x_i, which is in its vector already.

        After a rejected step of Runge-Kutta, PETSc's integral is wrong: PETSc subtracts that over
        the rejected step, which it has not added. Then the step is computed once more, with the
        length that was accepted.
        """
        time, dt = self._clock(state, i)
        may_repeat = self._until is not None and self._quadrature is not None
        before = self._u.array_r.copy() if may_repeat else None
        self._set_parameters()
        self._stages = None
        self._try_step_of_ts(i, time, dt)
        while before is not None and self._after != time + dt:
            dt = self._after - time
            self._u.array[:] = before
            self._try_step_of_ts(i, time, dt)
        if self._until is None and self._after != time + dt:
            raise RunFailed(
                f"step {i}: PETSc's TS adapted its step, and went from time {time} to"
                f" {self._after} instead of by {dt}; give TSModel the end time as `until`, or set"
                " the option ts_adapt_type to none, or a smaller dt"
            )
        self._stages = i

    def _try_step_of_ts(self, i: int, time: float, dt: float) -> None:
        self.ts.setTime(time)
        self.ts.setTimeStep(dt)
        self.ts.setStepNumber(i)
        self.ts.restartStep()  # methods and adaptors would use whichever step came before
        if self._quadrature is None:
            self.ts.step()
        else:  # only TSSolve integrates
            self._quadrature.getSolution().set(0)
            self.ts.setMaxSteps(i + 1)
            self.ts.solve(self.ts.getSolution())
            self.ts.setMaxSteps(_NO_END)
        self._check_converged(i)
        self._after = self.ts.getTime()

    def _check_converged(self, i: int) -> None:
        if (reason := self.ts.getConvergedReason()) < 0:
            raise RunFailed(f"step {i}: PETSc's TS did not converge (reason {reason})")


def _quadrature(ts: Any) -> Any:
    """Return the quadrature TS, or None. Raises BadInput if it does not integrate forward."""
    forward, quadrature = ts.getQuadratureTS()
    if not quadrature:
        return None
    if not forward:
        raise BadInput(
            "the quadrature TS integrates in PETSc's own adjoint solve, which is not called here;"
            " create it by ts.createQuadratureTS(True)"
        )
    return quadrature


def _check_method(ts: Any, until: float | None, *, integrates: bool) -> None:
    method = ts.getType()
    if method not in _METHODS:
        raise BadInput(
            f"the TS is of type {method}; TSModel knows the adjoint steps of"
            f" {', '.join(_METHODS)} only: choose one of them by ts.setType"
        )
    if until is not None and method in _THETA:
        raise BadInput(
            f"the TS is of type {method}, which estimates its error from the two states before a"
            " step, and petsc4py sets only one of them; leave out `until`, or choose rk or arkimex"
        )
    if until is not None and until <= 0:
        raise BadInput(f"the end time until = {until} must be after time 0, at which a run begins")
    if integrates and method == "arkimex":
        raise BadInput(
            "the TS is of type arkimex, for which PETSc has no cost integral; make the integral a"
            " part of the state"
        )


def _bits(time: float, dt: float) -> NDArray[np.int64]:
    """Return two times as integers, which have no adjoint: the gradient takes them as constant."""
    return np.array([time, dt]).view(np.int64)


@contextmanager
def _placed(vector: Any, array: Array) -> Iterator[None]:
    """Let a vector use the memory of an array within this context."""
    vector.placeArray(array)
    try:
        yield
    finally:
        vector.resetArray()
