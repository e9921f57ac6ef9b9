"""Make observations by a run from a start that is known."""

import numpy as np
from altimetry import NOISE, STEPS, observe

from ckio.models.vorticity import Vorticity


def run(start=None):
    """Return the vorticity at the start and the stream function after STEPS steps."""
    ocean = Vorticity(grid=64, dt=3600.0)
    if start is not None:
        ocean.control["zeta"][...] = start
    ocean.advance(0, STEPS)
    return ocean.control["zeta"], ocean.state_arrays()["psi"]


if __name__ == "__main__":
    psi = observe(run()[1])
    noise = np.random.default_rng(1).standard_normal(psi.shape)
    np.save("observed.npy", psi + NOISE * noise)
    print(f"{psi.size} observations of {psi.std():.0f} m2/s, with errors of {NOISE:.0f} m2/s")
