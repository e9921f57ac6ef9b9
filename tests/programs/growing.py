"""Programs whose states grow: by recursion, by a list, by a mesh that is refined."""

from typing import Any

import numpy as np

from ckio.programs import program


@program
def deep(x: Any, depth: int) -> Any:
    """As many frames as it is deep."""
    if depth == 0:
        return np.sin(x)
    return deep(1.001 * x, depth - 1) * x


@program
def history(x: Any, steps: int) -> Any:
    """All values so far are needed in the end."""
    before = []
    for _ in range(steps):
        x = 1.1 * np.sin(x)
        before.append(x)
    total = 0.0
    for value in before:
        total = total + value * value
    return total


@program
def refined(u: Any, steps: int, every: int) -> Any:
    """A mesh that is twice as fine after so many steps, and again after as many."""
    for step in range(steps):
        u = u + 0.01 * np.sin(u)
        if (step + 1) % every == 0:
            u = np.repeat(u, 2)
    return np.sum(u)


GROWING: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "deep": (deep, (0.3, 60)),
    "history": (history, (0.3, 150)),
    "refined": (refined, (np.linspace(0.0, 1.0, 4), 150, 20)),
}
