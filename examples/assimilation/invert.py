"""Find the vorticity at the start by L-BFGS. Each evaluation is a run that can be resumed."""

import sys
from pathlib import Path

import numpy as np
from altimetry import STEPS
from scipy.ndimage import gaussian_filter
from scipy.optimize import minimize

import ckio

INTO = Path("inversion")


def smooth(v):
    """Take the unknowns of the optimiser to a smooth vorticity; this is its own transpose."""
    return 1e-5 * gaussian_filter(v.reshape(65, 65), 2.0, mode="constant")


def main():
    """Invert, and print the misfits."""
    first = ckio.Job(INTO / "000", model="altimetry.py", steps=STEPS, platform="node.toml")
    guess = first.run()  # at the controls of the model itself
    count = 0

    def misfit(v):
        nonlocal count
        count += 1
        control = {**guess.control, "zeta": guess.control["zeta"] + smooth(v)}
        result = first.again(INTO / f"{count:03d}", control).run(walltime="3h55m")
        if count % 5 == 1:
            print(f"evaluation {count:2d}: J = {result.functional:.4g}", flush=True)
        return result.functional, smooth(result.gradient["zeta"]).ravel()

    options = {"maxfun": 40, "maxcor": 20}
    optimum = minimize(misfit, np.zeros(65 * 65), jac=True, method="L-BFGS-B", options=options)
    print(f"J fell from {guess.functional:.4g} to {optimum.fun:.4g}")


if __name__ == "__main__":
    try:
        main()
    except ckio.Halted as halted:
        print(halted, file=sys.stderr)
        sys.exit(75)  # to be run again
