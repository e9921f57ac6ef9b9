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


@program
def burgers_in_place(u0: Field, viscosity: Real, tolerance: float) -> Field:
    """The same velocities, to the last bit, by a code that has one field and two work arrays.

    A rejected step is taken back by copying what was kept. What is given stays as it is.
    """
    u = u0.copy()
    kept = np.empty_like(u)
    slope = np.empty_like(u)
    t, dt = 0.0, 0.5
    while t < 1.0:
        dt = min(dt, 1.0 - t)
        kept[:] = u
        slope[:] = burgers_rate(u, viscosity)
        u += dt * slope
        ahead = burgers_rate(u, viscosity)
        error = 0.5 * dt * np.max(np.abs(ahead - slope))
        u[:] = kept
        if error > tolerance:
            dt = longer(dt, error, tolerance)
            continue
        slope += ahead
        slope *= 0.5 * dt
        u += slope
        t += dt
        dt = longer(dt, error, tolerance)
    return u


@program
def nested_scans(covariance: Field) -> Real:
    """Half the logarithm of a covariance matrix' determinant, by Cholesky's three nested loops.

    It reads the lower triangle alone. The derivative is half the inverse on the diagonal, and the
    inverse itself below it.
    """
    factor = np.zeros_like(covariance)
    total = 0.0
    for i in range(len(covariance)):
        for j in range(i + 1):
            rest = covariance[i, j]
            for k in range(j):
                rest = rest - factor[i, k] * factor[j, k]
            if i == j:
                factor[i, i] = np.sqrt(rest)
                total = total + np.log(factor[i, i])
            else:
                factor[i, j] = rest / factor[j, j]
    return total


def imbalance(new: Field, old: Field, conductivity: Real, dt: float) -> Field:
    """What is missing in T - dt (κ T″ - T⁴) = T_old on a rod whose ends are insulated."""
    flux = conductivity * np.diff(new)
    gain = np.concatenate([flux, np.zeros(1)]) - np.concatenate([np.zeros(1), flux])
    return new - old - dt * (gain - new**4)


def steepness(new: Field, conductivity: Real, dt: float) -> Field:
    """The derivative of `imbalance` by T, a matrix."""
    size = len(new)
    ends = np.eye(size, k=1) + np.eye(size, k=-1)
    spread = ends - np.diag(ends.sum(axis=0))
    return np.diag(1.0 + 4.0 * dt * new**3) - dt * conductivity * spread


@program
def radiating_rod(temperature: Field, conductivity: Real, steps: int) -> Field:
    """Temperatures of a rod that radiates, ∂T/∂t = κ ∂²T/∂x² - T⁴, at time 1.

    Time steps are implicit, of equal length; in each Newton's method goes on until it has
    converged.
    """
    dt = 1.0 / steps
    for _ in range(steps):
        old = temperature
        while True:
            missing = imbalance(temperature, old, conductivity, dt)
            if np.max(np.abs(missing)) < 1e-11:
                break
            matrix = steepness(temperature, conductivity, dt)
            temperature = temperature - np.linalg.solve(matrix, missing)
    return temperature
