"""Full-waveform inversion with Devito, whose wavefields are checkpointed on levels of ckio.

    python fwi.py [--checkpoints ckio|storages|pyrevolve|none] [--iterations 5] [--into result.npz]

A wavelet is fired at the top of a square, and receivers at the bottom record the pressure. The
misfit compares the traces with those of a true model that has a slow disk in its middle. The
gradient with respect to the squared slowness needs the wavefield of every step.
"""

import argparse
import time

import numpy as np
from devito import (
    CheckpointOperator,
    DevitoCheckpoint,
    Eq,
    Function,
    Grid,
    Inc,
    Operator,
    SparseTimeFunction,
    TimeFunction,
    configuration,
    solve,
)
from pyrevolve import MultiLevelRevolver, SingleLevelRevolver
from scipy.optimize import minimize

from ckio import Affine, Chain, Level, Platform, run, sizes_of
from ckio.adapters.devito import OperatorModel
from ckio.adapters.pyrevolve import storages
from ckio.planners import hrevolve

configuration["log-level"] = "ERROR"


class Survey:
    """One shot through a square of 1 km, with absorbing borders.

    Parameters
    ----------
    points : int
        Grid points along each side.
    steps : int
        Time steps.
    """

    def __init__(self, points: int, steps: int) -> None:
        self.steps = steps
        self.grid = Grid((points, points), extent=(1000.0, 1000.0), dtype=np.float64)
        self.dt = 0.4 * 1000.0 / points / 2.5  # ms; the fastest speed is 2.5 m/ms
        self.m = Function(name="m", grid=self.grid, space_order=4)
        self.damp = Function(name="damp", grid=self.grid)
        distance = np.minimum.outer(*[np.minimum(r := np.arange(points), r[::-1])] * 2)
        # Source and receivers lie outside of the border, where the adjoint of injection is simple.
        metres = distance * 1000.0 / (points - 1)
        self.damp.data[:] = 0.1 * np.clip(1 - metres / 120.0, 0, None) ** 2
        self.source = self._points("source", [[500.0, 150.0]])
        peak = 0.01 * (np.arange(steps + 1) * self.dt - 120.0)  # a Ricker wavelet of 10 Hz
        self.source.data[:, 0] = (1 - 2 * (np.pi * peak) ** 2) * np.exp(-((np.pi * peak) ** 2))
        across = np.linspace(150.0, 850.0, 29)
        self._places = np.stack([across, np.full(29, 850.0)], axis=1)
        self.traces = self._points("traces", self._places)
        self.gradient = Function(name="gradient", grid=self.grid)
        self.residual = self._points("residual", self._places)

    def _points(self, name: str, places: object) -> SparseTimeFunction:
        places = np.asarray(places)
        return SparseTimeFunction(
            name=name, grid=self.grid, npoint=len(places), nt=self.steps + 1, coordinates=places
        )

    def forward(self, u: TimeFunction) -> Operator:
        """Return the operator of the wave equation."""
        step = self.grid.stepping_dim.spacing
        update = solve(self.m * u.dt2 - u.laplace + self.damp * u.dt, u.forward)
        fire = self.source.inject(field=u.forward, expr=self.source * step**2 / self.m)
        return Operator([Eq(u.forward, update), fire, self.traces.interpolate(expr=u)])

    def backward(self, u: TimeFunction) -> Operator:
        """Return the operator of the adjoint, which adds up the gradient."""
        self.v = v = TimeFunction(name="v", grid=self.grid, time_order=2, space_order=4)
        step = self.grid.stepping_dim.spacing
        update = solve(self.m * v.dt2 - v.laplace + self.damp * v.dt.T, v.backward)
        fire = self.residual.inject(field=v.backward, expr=self.residual * step**2 / self.m)
        return Operator([Eq(v.backward, update), fire, Inc(self.gradient, -u.dt2 * v)])

    def begin(self, m: np.ndarray) -> None:
        """Set the squared slowness, and begin at rest."""
        self.m.data_with_halo[:] = np.pad(m.reshape(self.grid.shape), 4, mode="edge")
        for field in (self.gradient, self.traces, self.residual):
            field.data[:] = 0


class Misfit:
    """The misfit of the traces, and its gradient with respect to the squared slowness.

    Parameters
    ----------
    survey : Survey
        The shot.
    observed : array (steps + 1, receivers)
        The traces of the true model.
    checkpoints : str
        "ckio": ckio plans, and runs the operators. "storages": pyrevolve plans, and ckio stores.
        "pyrevolve": pyrevolve does both. "none": all wavefields stay in memory.
    slots : int
        Wavefields in memory.
    """

    def __init__(
        self, survey: Survey, observed: np.ndarray, checkpoints: str = "ckio", slots: int = 10
    ) -> None:
        self.survey, self.observed = survey, observed
        self.checkpoints, self.slots = checkpoints, slots
        options = {"save": survey.steps + 1} if checkpoints == "none" else {}
        self.u = TimeFunction(name="u", grid=survey.grid, time_order=2, space_order=4, **options)
        self.forward, self.backward = survey.forward(self.u), survey.backward(self.u)
        self.last = survey.steps - 1
        if checkpoints in ("ckio", "storages"):
            one, price = DevitoCheckpoint([self.u]).nbytes, Affine(latency=2.0)  # 2 steps
            ram = Level(name="ram", capacity=slots * one)
            disk = Level(name="disk", capacity=50 * one, backend="directory", write=price,
                         read=price, options={"path": "checkpoints"})  # fmt: skip
            self.platform = Platform((ram, disk), working_memory=2 * one)
        if checkpoints == "ckio":
            costs = {"advance": 1.0, "record": 1.0, "reverse": 2.0}
            chain = Chain(steps=self.last, **costs, **sizes_of(self.model()))
            self.schedule = hrevolve(chain, self.platform)

    def __call__(self, m: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the misfit of a model, and its gradient."""
        self.survey.begin(m)
        for field in (self.u, self.survey.v):
            field.data_with_halo[:] = 0
        match self.checkpoints:
            case "ckio":
                value = self._run()
            case "none":
                times = {"time_m": 1, "time_M": self.last, "dt": self.survey.dt}
                self.forward(**times)
                value = self._misfit()
                self.backward(**times)
            case _:
                revolver = self._revolver()
                revolver.apply_forward()
                value = self._misfit()
                revolver.apply_reverse()
        return value, np.array(self.survey.gradient.data).ravel()

    def _misfit(self) -> float:
        """Return the misfit, and set the residual that the backward operator injects."""
        self.survey.residual.data[:] = self.survey.traces.data - self.observed
        return float((self.survey.residual.data**2).sum() / 2)

    def _operators(self) -> tuple[CheckpointOperator, CheckpointOperator]:
        times = {"u": self.u, "dt": self.survey.dt, "time_m": 1}
        return (
            CheckpointOperator(self.forward, **times),
            CheckpointOperator(self.backward, v=self.survey.v, **times),
        )

    def model(self) -> OperatorModel:
        """Return the shot as a model of ckio."""
        survey = self.survey
        control, gradient = {"m": survey.m}, {"m": survey.gradient}
        return OperatorModel(
            *self._operators(),
            [self.u],
            [survey.v, survey.residual],
            control,
            gradient,
            self._misfit,
            records=[survey.traces],
        )

    def _run(self) -> float:
        """Run the schedule of ckio, and return the misfit."""
        model = self.model()
        run(self.schedule, self.platform, model)
        return model.functional

    def _revolver(self) -> SingleLevelRevolver | MultiLevelRevolver:
        """Return the revolver of pyrevolve, with its own storage or with levels of ckio."""
        checkpoint = DevitoCheckpoint([self.u])
        if self.checkpoints == "pyrevolve":
            return SingleLevelRevolver(checkpoint, *self._operators(), self.slots, self.last)
        levels = storages(self.platform, checkpoint.nbytes, self.last)
        return MultiLevelRevolver(checkpoint, *self._operators(), self.last, storage_list=levels)


def true_model(survey: Survey) -> tuple[np.ndarray, np.ndarray]:
    """Return the squared slowness of the true model, and that of the first guess."""
    side = np.linspace(-500.0, 500.0, survey.grid.shape[0])
    inside = np.hypot(*np.meshgrid(side, side)) < 150.0
    guess = np.full(survey.grid.shape, 2.5**-2)
    return np.where(inside, 2.0**-2, guess), guess


def main() -> None:
    """Invert, and print how far the misfit fell."""
    parser = argparse.ArgumentParser(description=__doc__)
    choices = ["ckio", "storages", "pyrevolve", "none"]
    parser.add_argument("--checkpoints", choices=choices, default="ckio")
    parser.add_argument("--points", type=int, default=71)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--slots", type=int, default=10)
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--into", help="a file for the models, as .npz")
    given = parser.parse_args()

    survey = Survey(given.points, given.steps)
    true, guess = true_model(survey)
    misfit = Misfit(survey, 0.0, given.checkpoints, given.slots)
    misfit(true)
    misfit.observed = survey.traces.data.copy()
    begun = time.perf_counter()
    first, gradient = misfit(guess)
    seconds = time.perf_counter() - begun
    unit = 0.1  # of the squared slowness, so that values and slopes are near 1

    def scaled(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = misfit(guess.ravel() + unit * x)
        return value / first, unit * slope / first

    options = {"maxiter": given.iterations, "gtol": 1e-9, "ftol": 1e-12}
    bounds = [(0.0, 1.5)] * guess.size
    found = minimize(
        scaled, np.zeros(guess.size), jac=True, method="L-BFGS-B", bounds=bounds, options=options
    )
    model = guess.ravel() + unit * found.x
    print(f"a gradient took {seconds:.2f} s")
    print(f"the misfit fell to {found.fun:.3f} of the first in {found.nfev} evaluations")
    if given.into:
        fields = {"true": true, "found": model, "gradient": gradient}
        np.savez(given.into, **{name: x.reshape(true.shape) for name, x in fields.items()})


if __name__ == "__main__":
    main()
