"""Solvers as people write them, each of them a program, with inputs to run them on."""

from typing import Any

import numpy as np

from ckio.programs.compiled import CompiledProgram, program

# An embedded Runge-Kutta method, whose dense output is asked afterwards

A = (
    (),
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
E = np.array([71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40])
C = [0.0, 0.2, 0.3, 0.8, 8 / 9, 1.0, 1.0]


def oscillator(t, y, *, mu=1.0):
    """Van der Pol's."""
    return np.stack([y[1], mu * (1.0 - y[0] ** 2) * y[1] - y[0] + 0.1 * np.sin(t)])


@program
def rk45(y0, mu, /, t_end=0.8, *, rtol: float = 1e-4, atol: float = 1e-6):
    """Dormand and Prince's, with a PI controller."""
    t, h, err_old = 0.0, 0.1, 1e-4
    y = y0
    ts, dense = [t], []
    accepted = rejected = 0
    while t < t_end:
        h = min(h, t_end - t)
        k: list[Any] = []
        for row, c in zip(A, C, strict=True):
            dy = sum([a * ki for a, ki in zip(row, k, strict=True)], np.zeros_like(y0))
            k.append(oscillator(t + c * h, y + h * dy, mu=mu))
        new = y + h * dy
        scale = atol + rtol * np.maximum(np.abs(y), np.abs(new))
        e = h * (E @ np.stack(k))
        err = np.sqrt(np.mean((e / scale) ** 2))
        if err < 1.0:
            dense.append((t, h, y, (k[0], k[-1])))
            t, y = t + h, new
            ts.append(t)
            accepted += 1
            fac = 0.9 * err**-0.17 * err_old**0.04
            err_old = max(err, 1e-4)
        else:
            rejected += 1
            fac = max(0.2, 0.9 * err**-0.2)
        h *= min(5.0, fac)
    out = []
    for at in (0.25, 0.5):
        for t0, h0, y_, (f0, f1) in dense:
            if t0 <= at < t0 + h0:
                s = (at - t0) / h0
                out.append(y_ + s * h0 * (f0 * (1.0 - s) + f1 * s))
    return y, ts, {"dense": out, "steps": (accepted, rejected)}


# Leapfrog with ghost cells


def halo(f, periodic):
    if periodic:
        f[0, :], f[-1, :] = f[-2, :], f[1, :]
        f[:, 0], f[:, -1] = f[:, -2], f[:, 1]
    else:
        f[0], f[-1] = 0.0, 0.0
        f[:, [0, -1]] = f[:, [1, -2]]


@program
def leapfrog(eta0, speed, steps=5, periodic=True):
    """A wave equation on a grid with ghost cells, filtered as Robert and Asselin did."""
    ny, nx = eta0.shape
    old = np.zeros((ny + 2, nx + 2))
    now, new = np.zeros_like(old), np.empty_like(old)
    new[:] = 0.0
    core = slice(1, -1), slice(1, -1)
    old[core] = now[core] = eta0
    interior = now[1:-1, 1:-1]
    for step in range(steps):
        halo(now, periodic)
        lap = now[:-2, 1:-1] + now[2:, 1:-1] + now[1:-1, :-2] + now[1:-1, 2:] - 4 * interior
        new[core] = 2 * interior - old[core] + speed**2 * lap
        if step % 2:
            now += 0.05 * (new - 2 * now + old)
        old, now, new = now, new, old
        interior = now[1:-1, 1:-1]
    return now[core], interior[::2, ::-1]


# Multigrid


def smooth(u, f, h, sweeps):
    for _ in range(sweeps):
        u[1:-1:2] = 0.5 * (u[:-2:2] + u[2::2] + h * h * f[1:-1:2])
        u[2:-1:2] = 0.5 * (u[1:-2:2] + u[3::2] + h * h * f[2:-1:2])


def restricted(r):
    c = np.zeros_like(r, shape=(len(r) + 1) // 2)
    c[1:-1] = 0.25 * (r[1:-2:2] + 2 * r[2:-1:2] + r[3::2])
    return c


@program
def vcycle(u, f, h):
    """One cycle; u is changed in place."""
    if len(u) <= 3:
        u[1] = 0.5 * h * h * f[1]
        return
    smooth(u, f, h, 2)
    r = np.zeros_like(u)
    r[1:-1] = f[1:-1] + (u[:-2] - 2 * u[1:-1] + u[2:]) / h**2
    coarse = np.zeros((len(u) + 1) // 2)
    vcycle(coarse, restricted(r), 2 * h)
    u[::2] += coarse
    u[1::2] += 0.5 * (coarse[:-1] + coarse[1:])
    smooth(u, f, h, 1)


@program
def multigrid(f, *, tol=1e-3):
    u = np.zeros(len(f))
    h = 1.0 / (len(f) - 1)
    norms = []
    while True:
        vcycle(u, f, h=h)
        res = f[1:-1] + (u[:-2] - 2 * u[1:-1] + u[2:]) / h**2
        norms += [np.linalg.norm(res)]
        if not (norms[-1] > tol * np.linalg.norm(f) and len(norms) < 8):
            return u, norms


# A mesh that is made finer where it is steep


@program
def adaptive_mesh(left, nu, steps=3):
    """Diffusion on cells that are split and merged: arrays have another length every step."""
    x = np.linspace(0.0, 1.0, 6)
    u = np.tanh((x - left) * 6.0)
    sizes = []
    for _ in range(steps):
        jump = np.abs(np.diff(u))
        where = [i for i, j in enumerate(jump > 0.4) if j and x[i + 1] - x[i] > 0.04]
        points, values = [x[:1]], [u[:1]]
        for i in range(len(jump)):
            if i in where:
                points.append(0.5 * (x[i] + x[i + 1 : i + 2]))
                values.append(0.5 * (u[i : i + 1] + u[i + 1]))
            points.append(x[i + 1 : i + 2])
            values.append(u[i + 1 : i + 2])
        x, u = np.concatenate(points), np.concatenate(values)
        sizes.append(u.size)
        h = np.diff(x)
        slope = np.diff(u) / h
        dt = 0.3 * np.min(h) ** 2 / nu
        u[1:-1] += dt * nu * np.diff(slope) / (0.5 * (h[1:] + h[:-1]))
    return u, sizes


# Branch and bound


@program
def knapsack(values, weights, room, i=0, memo=None):
    """The best of a load, whose parts are remembered."""
    if memo is None:
        memo = {}
    key = f"{i}/{room}"
    if key in memo:
        return memo[key]
    if i == len(weights):
        return 0.0 * values[0]
    best = knapsack(values, weights, room, i + 1, memo=memo)
    if weights[i] <= room:
        taken = values[i] + knapsack(values, weights, room - weights[i], i + 1, memo)
        if taken > best:  # noqa: PLR1730
            best = taken
    memo[key] = best
    return best


SIDE = np.linspace(0.0, 1.0, 9)
BUMP = np.exp(-((SIDE - 0.4) ** 2) * 20.0)

SOLVERS: list[tuple[CompiledProgram, tuple[Any, ...]]] = [
    (rk45, (np.array([1.2, -0.3]), 1.5)),
    (leapfrog, (np.outer(BUMP[:4], BUMP[1:6]), 0.3)),
    (leapfrog, (np.outer(BUMP[:4], BUMP[1:6]).T, 0.3, 4, False)),
    (multigrid, (np.sin(3.0 * SIDE),)),
    (adaptive_mesh, (0.37, 0.2)),
    (knapsack, (np.array([6.1, 5.2, 8.3, 3.4]), (3, 2, 4, 1), 6)),
]
