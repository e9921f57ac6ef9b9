"""Patterns of the Gray-Scott equations on a grid of PETSc, as a model of ckio.

Two substances u and v diffuse and react on a periodic square: u is fed at the rate F, and v decays
at the rate F + k. The functional is half the sum of v**2 at the end. Controls are the
concentrations at the start, and the rates F and k.
"""

import numpy as np
from mpi4py import MPI  # loads the library of MPI, which petsc4py needs  # noqa: F401
from petsc4py import PETSc

from ckio.adapters.petsc import TSModel
from ckio.model.comm import SOLO, Comm

SIDE, DIFFUSION = 2.5, np.array([8e-5, 4e-5])


class GrayScott(TSModel):
    """The Gray-Scott equations by the classical method of Runge and Kutta, or another TS.

    Parameters
    ----------
    grid : int
        Points along each side.
    feed, kill : float
        The rates F and k.
    method : str
        "rk", or an implicit method: "beuler" or "cn".
    dt : float
        The time step.
    tolerance : float
        The relative tolerance of linear and nonlinear solvers, for implicit methods.
    """

    def __init__(
        self,
        *,
        grid: int = 64,
        feed: float = 0.024,
        kill: float = 0.06,
        method: str = "rk",
        dt: float = 1.0,
        tolerance: float = 1e-12,
        comm: Comm = SOLO,
    ) -> None:
        world = getattr(comm, "mpi", PETSc.COMM_SELF)
        periodic = PETSc.DM.BoundaryType.PERIODIC
        self._grid = PETSc.DMDA().create(
            [grid, grid], dof=2, stencil_width=1, boundary_type=[periodic] * 2, comm=world
        )
        self._h, self.dt = SIDE / grid, dt
        first = comm.rank == 0
        self.rates = PETSc.Vec().createMPI((2 if first else 0, 2), comm=world)
        self.rates.array[:] = (feed, kill) if first else ()
        self._all_rates = PETSc.Scatter.toAll(self.rates)
        self._block()

        ts = PETSc.TS().create(world)
        ts.setDM(self._grid)
        ts.setType(method)
        if method == "rk":
            ts.setRKType("4")
        ts.setRHSFunction(self._rhs)
        jacobian, of_rates = self._matrices(world)
        ts.setRHSJacobian(self._jacobian, jacobian, jacobian)
        ts.setRHSJacobianP(self._of_rates, of_rates)
        options = PETSc.Options()
        options["ksp_rtol"] = options["snes_rtol"] = tolerance
        ts.setFromOptions()
        super().__init__(ts, self.initial(), dt, half_sum, parameters=self.rates, comm=comm)

    def field(self) -> np.ndarray:
        """Return v on the grid points of this rank."""
        return self._state["u"].reshape(self._shape)[..., 1]

    def initial(self) -> PETSc.Vec:
        """Return u = 1 and v = 0, but for a square in the middle that is disturbed."""
        vector = self._grid.createGlobalVec()
        (x0, x1), (y0, y1) = self._grid.getRanges()
        y, x = np.meshgrid(np.arange(y0, y1) * self._h, np.arange(x0, x1) * self._h, indexing="ij")
        inside = (abs(x - SIDE / 2) < SIDE / 8) & (abs(y - SIDE / 2) < SIDE / 8)
        v = np.where(inside, np.sin(4 * np.pi * x) ** 2 * np.sin(4 * np.pi * y) ** 2 / 4, 0)
        vector.array[:] = np.stack([1 - 2 * v, v], axis=-1).ravel()
        return vector

    def _block(self) -> None:
        """Find the rows and columns of the Jacobian: each point, and its four neighbours."""
        (x0, x1), (y0, y1) = self._grid.getRanges()
        self._shape = y1 - y0, x1 - x0, 2
        ghosted = self._shape[0] + 2, self._shape[1] + 2, 2
        self._ghosted = ghosted
        number = self._grid.getLGMap().getIndices().reshape(ghosted)
        own = number[1:-1, 1:-1]
        near = [number[2:, 1:-1], number[:-2, 1:-1], number[1:-1, 2:], number[1:-1, :-2]]
        other = own[..., ::-1]
        self._rows = np.concatenate([own.ravel()] * 6)
        self._columns = np.concatenate([it.ravel() for it in (own, *near, other)])

    def _matrices(self, world: object) -> tuple[PETSc.Mat, PETSc.Mat]:
        own = self._rows[: np.prod(self._shape)]
        size = (own.size, None)
        jacobian = PETSc.Mat().createAIJ((size, size), comm=world)
        jacobian.setPreallocationCOO(self._rows, self._columns)
        of_rates = PETSc.Mat().createDense((size, (self.rates.getLocalSize(), 2)), comm=world)
        of_rates.setUp()
        return jacobian, of_rates

    def _parts(self, vector: PETSc.Vec) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the concentrations with those of neighbours, the own ones, and the rates."""
        local = self._grid.getLocalVec()
        self._grid.globalToLocal(vector, local)
        around = local.array_r.reshape(self._ghosted).copy()
        self._grid.restoreLocalVec(local)
        scatter, rates = self._all_rates
        scatter.scatter(self.rates, rates, False, PETSc.Scatter.Mode.FORWARD)
        return around, around[1:-1, 1:-1], rates.array_r.copy()

    def _rhs(self, ts: PETSc.TS, t: float, vector: PETSc.Vec, change: PETSc.Vec) -> None:
        around, own, (feed, kill) = self._parts(vector)
        near = around[2:, 1:-1] + around[:-2, 1:-1] + around[1:-1, 2:] + around[1:-1, :-2]
        u, v = own[..., 0], own[..., 1]
        d = DIFFUSION * (near - 4 * own) / self._h**2
        d[..., 0] += feed * (1 - u) - u * v**2
        d[..., 1] += u * v**2 - (feed + kill) * v
        change.array[:] = d.ravel()

    def _jacobian(
        self, ts: PETSc.TS, t: float, vector: PETSc.Vec, matrix: PETSc.Mat, _: PETSc.Mat
    ) -> None:
        _, own, (feed, kill) = self._parts(vector)
        u, v = own[..., 0], own[..., 1]
        near = np.broadcast_to(DIFFUSION / self._h**2, self._shape).ravel()
        of_own = np.stack([-feed - v**2, 2 * u * v - feed - kill], axis=-1).ravel() - 4 * near
        of_other = np.stack([-2 * u * v, v**2], axis=-1).ravel()
        matrix.setValuesCOO(np.concatenate([of_own, near, near, near, near, of_other]))

    def _of_rates(self, ts: PETSc.TS, t: float, vector: PETSc.Vec, matrix: PETSc.Mat) -> None:
        _, own, _ = self._parts(vector)
        u, v = own[..., 0], own[..., 1]
        columns = np.stack([np.stack([1 - u, -v], -1).ravel(), np.stack([0 * u, -v], -1).ravel()])
        rows = np.arange(*matrix.getOwnershipRange(), dtype=PETSc.IntType)
        matrix.setValues(rows, np.arange(2, dtype=PETSc.IntType), columns.T.copy())
        matrix.assemble()


def half_sum(state: PETSc.Vec, gradient: PETSc.Vec) -> float:
    """Return half the sum of v**2, and its derivative."""
    gradient.array[:] = 0
    gradient.array[1::2] = state.array_r[1::2]
    return gradient.dot(gradient) / 2
