"""The misfit between a stream function after six days and observations of it."""

import numpy as np

from ckio.models.vorticity import Vorticity

STEPS = 144  # of an hour: six days
NOISE = 2000.0  # standard deviation of an observation, in m2 s-1


def observe(psi):
    """Return a view of the stream function at every fourth grid point."""
    return psi[4:-4:4, 4:-4:4]


class Altimetry(Vorticity):
    """The vorticity model with a misfit; its start is a first guess, a gyre in the basin."""

    def __init__(self, observed="observed.npy"):
        super().__init__(grid=64, dt=3600.0)
        x = np.linspace(0, np.pi, 65)
        self.control["zeta"][...] = 1e-6 * np.outer(np.sin(x), np.sin(x))
        self.observed = np.load(observed)

    def adjoint_seed(self, state, adjoint, n):
        residual = (observe(state["psi"]) - self.observed) / NOISE
        observe(adjoint["psi"])[...] = residual / NOISE
        adjoint["J"][...] = 0  # without the energy, which Vorticity sums in state["J"]
        return 0.5 * float((residual**2).sum())
