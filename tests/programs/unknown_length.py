"""Small programs of unknown length, from physics, for tests and `bench/papers/programs.py`.

Plain Python and numpy; `@program` makes each of them one that can be interrupted and resumed. How
many steps they take depends on their inputs, and no loop of theirs is marked in any way. What
they call that is no program (a right-hand side, a kernel) is done within one tick.
"""

import math
from typing import Any, TypeAlias

import numpy as np

from ckio.programs import program, stop_gradient

Real: TypeAlias = Any
"""A float, or one that is being taped."""

Field: TypeAlias = Any
"""An array of floats, or one that is being taped."""


def duration(x: Real, i: int, n: int) -> int:
    """How often the inner loop of Listing 1 runs: l(x, i), a power of two that varies wildly.

    l(x, i) = 2 ** (⌊lg n⌋ - ⌊lg(1 + (1007 ⌊3^x⌋ i mod n))⌋)

    It is piecewise constant in x, so that it adds nothing to any derivative.
    """
    scale: int = math.floor(3.0 ** float(stop_gradient(x)))
    return 1 << (n.bit_length() - (1 + 1007 * scale * i % n).bit_length())


@program
def listing1(x: Real, n: int, eps: float = 0.0) -> Real:
    """Listing 1 of Siskind and Pearlmutter (2016): loops of which nobody knows how long they are.

    With eps = 0 it is theirs, y = x for x > 0, whose derivative is 1; otherwise every pass through
    the inner loop changes y a little, and x comes in each time.
    """
    y = x
    for i in range(1, n + 1):
        for _ in range(duration(x, i, n)):
            y = y * y
            y = np.sqrt(y + eps * np.sin(y) * x)
    return y


@program
def tree(x: Real, depth: int) -> Real:
    """A wave that splits in two at every scatterer: recursion, twice within one expression."""
    if depth <= 0:
        return np.sin(x)
    return tree(1.1 * x, depth - 1) * x + tree(x + 0.1, depth - 2)


def burgers_rate(u: Field, viscosity: Real) -> Field:
    """∂u/∂t of Burgers' equation on a ring of cells of width 1: -∂(u²/2)/∂x + ν ∂²u/∂x²."""
    left, right = np.roll(u, 1), np.roll(u, -1)
    return viscosity * (left - 2.0 * u + right) - 0.25 * (right * right - left * left)


def longer(dt: Real, error: Real, tolerance: float) -> Real:
    """The next step of a method of first order with an error estimate: at most twice as long."""
    return dt * min(2.0, max(0.25, 0.98 * np.sqrt(tolerance / error)))


@program
def adaptive_burgers(u0: Field, viscosity: Real, tolerance: float) -> Field:
    """Velocities at time 1, by steps of Heun whose length keeps the error of Euler's small.

    A step of which the estimated error is above the tolerance is rejected and tried again, shorter.
    Steps depend on the flow, and the derivative goes through their length, too.
    """
    u, t, dt = u0, 0.0, 0.5
    while t < 1.0:
        dt = min(dt, 1.0 - t)
        slope = burgers_rate(u, viscosity)
        ahead = burgers_rate(u + dt * slope, viscosity)
        error = 0.5 * dt * np.max(np.abs(ahead - slope))
        if error <= tolerance:
            u = u + 0.5 * dt * (slope + ahead)
            t = t + dt
        dt = longer(dt, error, tolerance)
    return u
