"""The model of Lorenz (1996): weather on one circle of latitude."""

import numpy as np

from ckio.errors import BadInput
from ckio.model.arraymodel import ArrayModel
from ckio.model.arrays import Arrays


class Lorenz96(ArrayModel):
    """dx_k/dt = (x_{k+1} - x_{k-2}) x_{k-1} - x_k + F in Euler steps; J = sum of dt |x|^2 / 2.

    Parameters
    ----------
    cells
        The number of x_k, at least 4.
    dt
        Length of a step.
    forcing
        F. The gradient is taken of it and of x_0.
    """

    def __init__(self, *, cells: int = 40, dt: float = 0.001, forcing: float = 8.0) -> None:
        if cells < 4:
            raise BadInput(f"lorenz96: cells = {cells}; it must be at least 4")
        x = forcing + np.sin(np.arange(cells))
        super().__init__({"x": x, "J": 0.0}, control={"x": x, "F": forcing}, tape=["x"])
        self._dt = dt

    def step(self, state: Arrays, i: int, /) -> None:
        x = state["x"]
        state["J"] += self._dt * (x @ x) / 2
        slope = (np.roll(x, -1) - np.roll(x, 2)) * np.roll(x, 1) - x + self.control["F"]
        x += self._dt * slope

    def adjoint_step(self, adjoint: Arrays, tape: Arrays, i: int, /) -> None:
        x, bar = tape["x"], self._dt * adjoint["x"]
        self.gradient["F"][...] += bar.sum()
        product = bar * np.roll(x, 1)
        adjoint["x"] += np.roll(product, 1) - np.roll(product, -2) - bar
        adjoint["x"] += np.roll(bar * (np.roll(x, -1) - np.roll(x, 2)), -1)
        adjoint["x"] += self._dt * x * adjoint["J"]
