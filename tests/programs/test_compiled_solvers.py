"""Solvers are what they were, can be interrupted after every tick, and have their gradient."""

from typing import Any

import numpy as np
import pytest

from ckio.programs.compiled import CompiledProgram
from ckio.programs.heap import leaves, rebuild

from .compiled_flows import adaptive_mesh, bouncing, branch, knapsack, nbody, spectral, upwind
from .compiled_solvers import cg, ice_sheet, leapfrog, multigrid, newton, rk45
from .compiled_zoo import copied, resumed_from_every_tick

RNG = np.random.default_rng(1)
SIDE = np.linspace(0.0, 1.0, 9)
BUMP = np.exp(-((SIDE - 0.4) ** 2) * 20.0)
SPD = np.eye(5) * 4.0 + np.cos(
    np.arange(25.0).reshape(5, 5) % 7 + np.arange(25.0).reshape(5, 5).T % 7
)
VALUES, WEIGHTS = np.array([6.1, 5.2, 8.3, 3.4]), (3, 2, 4, 1)

SOLVERS: list[tuple[CompiledProgram, tuple[Any, ...]]] = [
    (rk45, (np.array([1.2, -0.3]), 1.5)),
    (leapfrog, (np.outer(BUMP[:4], BUMP[1:6]), 0.3)),
    (leapfrog, (np.outer(BUMP[:4], BUMP[1:6]).T, 0.3, 4, False)),
    (multigrid, (np.sin(3.0 * SIDE),)),
    (cg, (SPD, BUMP[:5])),
    (newton, (BUMP[:6] + 0.5, 0.7)),
    (ice_sheet, (1.0 + np.sin(np.pi * SIDE), 0.05)),
    (upwind, (BUMP, 0.9)),
    (spectral, (1.0 + np.sin(2 * np.pi * np.arange(8) / 8) + 0.1 * np.arange(8) ** 0.5, 0.1)),
    (nbody, (RNG.normal(size=(3, 2)), RNG.normal(size=(3, 2)), np.array([1.0, 2.0, 0.5]))),
    (bouncing, (0.9, 9.81, 0.8)),
    (adaptive_mesh, (0.37, 0.2)),
    (knapsack, (VALUES, WEIGHTS, 6)),
    (branch, (VALUES, WEIGHTS, 6)),
]  # fmt: skip
each = pytest.mark.parametrize(
    ("p", "x"), SOLVERS, ids=[f"{p.function.__name__}-{n}" for n, (p, _) in enumerate(SOLVERS)]
)


@each
def test_it_is_resumed_after_any_tick(p: CompiledProgram, x: tuple[Any, ...]) -> None:
    resumed_from_every_tick(p, x)


def differentiable(tree: Any, name: str) -> dict[str, Any]:
    return {
        path: leaf
        for path, leaf in leaves(tree, name).items()
        if np.asarray(leaf).dtype.kind in "fc"
    }


def seeds(y: Any) -> dict[str, np.ndarray]:
    return {
        name: np.cos(np.arange(np.size(leaf)) + n).reshape(np.shape(leaf))
        for n, (name, leaf) in enumerate(differentiable(y, "y").items())
    }


@each
def test_it_has_its_gradient(p: CompiledProgram, x: tuple[Any, ...]) -> None:
    """Along a direction against differences, and in pieces of three ticks the same as in one."""
    end, ticks, _ = p.advance(p.start(*x))
    ybar = seeds(p.result(end))
    found = p.pullback(p.start(*x), ticks, ybar)
    way = {
        name: np.sin(np.arange(np.size(leaf)) + 1.0 + n).reshape(np.shape(leaf))
        for n, (name, leaf) in enumerate(differentiable(x, "x").items())
    }

    def functional(h: float) -> float:
        moved = rebuild(copied(x), "x", lambda at, v: v + h * way[at] if at in way else v)
        y = differentiable(p.function(*moved), "y")
        return sum(float(np.sum(bar * y[name])) for name, bar in ybar.items())

    slope = (functional(1e-6) - functional(-1e-6)) / 2e-6
    assert sum(float(np.sum(found[name] * way[name])) for name in found) == pytest.approx(
        slope, rel=2e-5, abs=1e-7
    )
    cotangent: Any = ybar
    for n in reversed(range(0, ticks, 3)):
        cotangent = p.pullback(p.advance(p.start(*x), n)[0], 3, cotangent)
    assert cotangent.keys() == found.keys()
    for name, whole in found.items():
        np.testing.assert_allclose(cotangent[name], whole, rtol=1e-9, atol=1e-12)
