"""Seismic inversion by L-BFGS, in which each evaluation is a run that can be killed and resumed.

    python examples/inversion.py inversion-1 --evaluations 12

The model is the acoustic wave equation in two dimensions; its control is the squared slowness of
the ground. Each evaluation of the misfit and its gradient is a job in a directory of its own. Say
the same line again after a kill: evaluations that have ended are read back, the one that was
killed goes on from its checkpoints, and the optimisation takes the same path as without the kill.
"""

import argparse
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

import ckio

GROUND = {"grid": 64, "anomaly": -0.05, "layers": 2, "deep": 1800.0, "dt": 0.003}
"""The first guess: two layers and an anomaly, which the observed ground has not."""


def invert(into: Path, evaluations: int, steps: int) -> list[float]:
    """Return the misfits of so many evaluations, in Pa2 s."""
    first = ckio.Job(
        into / "evaluation-000",
        model="wave",
        settings=GROUND,
        steps=steps,
        ram="2MiB",
        disk=into / "checkpoints",
    )
    result = first.run()
    guess = result.control["m"]
    scale, misfits = float(guess.mean()), list[float]()

    def misfit(x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Return the misfit, relative to the first one, and its gradient."""
        if len(misfits) == evaluations:
            raise StopIteration
        control = {"m": (x * scale).reshape(guess.shape)}
        found = first.again(into / f"evaluation-{len(misfits) + 1:03d}", control).run()
        misfits.append(found.functional)
        print(f"evaluation {len(misfits):3d}: misfit {found.functional:.6g} Pa2 s", flush=True)
        whole = result.functional
        return found.functional / whole, scale * found.gradient["m"].ravel() / whole

    least = float(guess.min()) / scale  # slower ground than in the guess: the step stays stable
    bounds = [(least, 2.0)] * guess.size
    with suppress(StopIteration):
        minimize(misfit, guess.ravel() / scale, jac=True, method="L-BFGS-B", bounds=bounds)
    return misfits


def main() -> None:
    """Invert, and say by how much the misfit fell."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("into", type=Path, help="a directory for the evaluations")
    parser.add_argument("--evaluations", type=int, default=12)
    parser.add_argument("--steps", type=int, default=250)
    given = parser.parse_args()
    misfits = invert(given.into, given.evaluations, given.steps)
    print(f"the misfit fell from {misfits[0]:.4g} to {min(misfits):.4g} Pa2 s")


if __name__ == "__main__":
    main()
