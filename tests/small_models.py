"""Models of a few lines that several tests run."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ckio.model import ArrayModel
from ckio.model.arrays import Arrays


class Growth(ArrayModel):
    """Logistic growth, x' = x + rate x (1 - x), with J = Σ x² over all steps."""

    def __init__(
        self, cells: int = 40, *, more: Mapping[str, Any] | None = None, **options: Any
    ) -> None:
        x = np.linspace(0.1, 0.5, cells)
        state, control = {"x": x, **(more or {}), "J": 0.0}, {"x": x, "rate": np.array(0.3)}
        super().__init__(state, control=control, tape=["x"], **options)

    def disturb(self, state: Arrays, i: int, /) -> None:
        """Change the state after a step in a way that no adjoint knows of."""

    def step(self, state: Arrays, i: int, /) -> None:
        x = state["x"]
        state["J"] += (x**2).sum()
        x *= 1 + self.control["rate"] * (1 - x)
        self.disturb(state, i)

    def adjoint_step(self, adjoint: Arrays, tape: Arrays, i: int, /) -> None:
        x, rate = tape["x"], self.control["rate"]
        self.gradient["rate"] += (x * (1 - x) * adjoint["x"]).sum()
        adjoint["x"] *= 1 + rate * (1 - 2 * x)
        adjoint["x"] += 2 * x * adjoint["J"]


class Decay(ArrayModel):
    """x' = 0.9 x, for a given number of steps."""

    def __init__(self, size: int = 10, *, steps: int | None = None) -> None:
        self.steps = steps
        super().__init__({"x": np.ones(size), "J": 0.0}, control={"x": np.ones(size)})

    def step(self, state: Arrays, i: int, /) -> None:
        state["x"] *= 0.9

    def adjoint_step(self, adjoint: Arrays, tape: Arrays, i: int, /) -> None:
        adjoint["x"] *= 0.9

    def finished(self, state: Arrays, i: int, /) -> bool:
        return i == self.steps


def reverse_all(model: Any, steps: int) -> Any:
    """Record all steps, and reverse them; returns the model."""
    assert model.record(0, steps) == steps
    model.reverse(0, steps)
    return model


def digest(model: Any) -> tuple[float, dict[str, bytes]]:
    """What a model has computed, bit by bit: J and each gradient."""
    found = {name: np.asarray(array).tobytes() for name, array in model.gradient.items()}
    return model.functional, found
