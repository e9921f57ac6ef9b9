"""Seismic inversion by L-BFGS, in which each evaluation is a run that can be killed and resumed.

    python invert.py inversion --evaluations 12

The control is the squared slowness of the ground. Each evaluation of the misfit and its gradient is
a job in a directory of its own. Give the same line again after a kill: evaluations that have ended
are read back, the one that was killed is resumed from its checkpoints, and the optimisation takes
the same path as without the kill.
"""

import argparse
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from survey import Survey

import ckio


def invert(into: Path, evaluations: int, steps: int) -> list[float]:
    """Return the misfits of so many evaluations, in Pa2 s."""
    first = ckio.Job(
        into / "evaluation-000",
        model=Survey,
        steps=steps,
        ram="2MiB",
        disk=into / "checkpoints",
    )
    start = first.run()
    guess: NDArray[Any] = start.control["m"]
    scale, misfits = float(guess.mean()), list[float]()

    def misfit(x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Return the misfit, relative to the first one, and its gradient."""
        if len(misfits) == evaluations:
            raise StopIteration
        control = {"m": (x * scale).reshape(guess.shape)}
        result = first.again(into / f"evaluation-{len(misfits) + 1:03d}", control).run()
        misfits.append(result.functional)
        print(f"evaluation {len(misfits):3d}: misfit {result.functional:.6g} Pa2 s", flush=True)
        gradient: NDArray[Any] = result.gradient["m"].ravel()
        return result.functional / start.functional, gradient * scale / start.functional

    least = float(guess.min()) / scale  # slower ground than in the guess: the step stays stable
    bounds = [(least, 2.0)] * guess.size
    with suppress(StopIteration):
        minimize(misfit, guess.ravel() / scale, jac=True, method="L-BFGS-B", bounds=bounds)
    return misfits


def main() -> None:
    """Invert, and print by how much the misfit fell."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("into", type=Path, help="a directory for the evaluations")
    parser.add_argument("--evaluations", type=int, default=12)
    parser.add_argument("--steps", type=int, default=250)
    options = parser.parse_args()
    misfits = invert(options.into, options.evaluations, options.steps)
    print(f"the misfit fell from {misfits[0]:.4g} to {min(misfits):.4g} Pa2 s")


if __name__ == "__main__":
    main()
