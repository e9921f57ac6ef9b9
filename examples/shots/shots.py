"""Many shots at once on Dask: each worker computes the gradient of one shot after the other.

    python shots.py survey --shots 8 --workers 2 --evaluations 3

A shot has its own source, here of its own frequency. The misfit of the survey is the sum over its
shots, and so is the gradient, which L-BFGS gets. Each shot of each evaluation is a run in a
directory of its own. If a worker is killed, Dask gives its shot to another one, which resumes it
from the checkpoints on disk. Give the same line again after a kill of everything: shots that have
ended are read back.
"""

import argparse
from contextlib import suppress
from pathlib import Path

import numpy as np
from distributed import Client, LocalCluster
from numpy.typing import NDArray
from scipy.optimize import minimize

import ckio
from ckio.models.wave import Wave

Misfit = tuple[float, NDArray[np.float64]]


class Shot(Wave):
    """Waves of a source with a frequency in Hz, in ground whose anomaly is to be found."""

    same_costs = ("frequency",)  # the costs that one shot has measured are those of all

    def __init__(self, *, frequency: float = 6.0, grid: int = 64) -> None:
        super().__init__(grid=grid, deep=1800.0, layers=2, frequency=frequency, dt=0.003)


def one_shot(shot: int, speeds: NDArray[np.float64], steps: int, into: Path) -> Misfit:
    """Return misfit and gradient of a shot. It runs on a worker; a run that was killed resumes."""
    job = ckio.Job(
        into / f"shot-{shot}",
        model=Shot,
        settings={"frequency": 5.0 + shot / 2},
        control={"m": speeds},
        steps=steps,
        ram="1MiB",
        disk=into.parent / "checkpoints",
        planner="hrevolve",
    )
    with ckio.lease(ram="64MiB", node={"ram": "1GiB"}):
        result = job.run()
    return result.functional, np.asarray(result.gradient["m"])


def survey(client: Client, shots: int, m: NDArray[np.float64], steps: int, into: Path) -> Misfit:
    """Return misfit and gradient of all shots, added up in their order."""
    each = client.map(
        one_shot, range(shots), speeds=m, steps=steps, into=into, retries=3, pure=False
    )
    misfits, gradients = zip(*client.gather(each), strict=True)
    return sum(misfits), sum(gradients)


def invert(client: Client, shots: int, evaluations: int, steps: int, into: Path) -> list[float]:
    """Return the misfits of so many evaluations by L-BFGS, in Pa2 s."""
    guess = np.asarray(Shot().control["m"])
    scale, misfits = float(guess.mean()), list[float]()

    def misfit(x: NDArray[np.float64]) -> Misfit:
        if len(misfits) == evaluations:
            raise StopIteration
        m = (x * scale).reshape(guess.shape)
        value, gradient = survey(client, shots, m, steps, into / f"evaluation-{len(misfits):03d}")
        misfits.append(value)
        print(f"evaluation {len(misfits):3d}: misfit {value:.6g} Pa2 s", flush=True)
        return value / misfits[0], gradient.ravel() * scale / misfits[0]

    least = float(guess.min()) / scale  # slower ground than in the guess: the step stays stable
    with suppress(StopIteration):
        bounds = [(least, 2.0)] * guess.size
        minimize(misfit, guess.ravel() / scale, jac=True, method="L-BFGS-B", bounds=bounds)
    return misfits


def main() -> None:
    """Invert a survey, and print by how much its misfit fell."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("into", type=Path, help="a directory for the runs")
    parser.add_argument("--shots", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--evaluations", type=int, default=3)
    parser.add_argument("--steps", type=int, default=250)
    given = parser.parse_args()
    with (
        LocalCluster(n_workers=given.workers, threads_per_worker=1) as cluster,
        Client(cluster) as client,
    ):
        misfits = invert(client, given.shots, given.evaluations, given.steps, given.into.absolute())
    print(f"the misfit fell from {misfits[0]:.4g} to {min(misfits):.4g} Pa2 s")


if __name__ == "__main__":
    main()
