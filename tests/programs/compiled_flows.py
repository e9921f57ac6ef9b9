"""More solvers as people write them: flows, particles, meshes and searches."""

from typing import Any, NamedTuple

import numpy as np

from ckio.programs.compiled import program
from ckio.programs.tape import stop_gradient

# Upwind advection with a limiter


@program
def upwind(q0, a, cells=1.0, t_end=0.6):
    dx = cells / q0.size
    q, t = q0.copy(), 0.0
    while t < t_end:
        dt = min(0.8 * dx / abs(a), t_end - t)
        d = np.roll(q, -1) - q
        b = np.roll(d, 1)
        r = np.where(np.abs(d) > 1e-12, b / np.where(np.abs(d) > 1e-12, d, 1.0), 0.0)
        phi = np.where(r > 0.0, (r + np.abs(r)) / (1.0 + np.abs(r)), 0.0)
        nu = a * dt / dx
        flux = a * (q + 0.5 * (1.0 - nu) * phi * d)
        q -= dt / dx * (flux - np.roll(flux, 1))
        t += dt
    return q


# Burgers' equation in Fourier space


@program
def spectral(u0, nu, steps=4, dt=0.01):
    """Integrating factor and Heun, with the upper third of the spectrum cut off."""
    n = len(u0)
    k = np.fft.rfftfreq(n, 1.0 / n)
    keep = k < n / 3
    uh = np.fft.rfft(u0)
    energy: list[Any] = []
    for i in range(steps):
        decay = np.exp(-nu * k**2 * dt)
        n0 = -0.5j * k * np.fft.rfft(np.fft.irfft(uh, n) ** 2) * keep
        first = decay * (uh + dt * n0)
        n1 = -0.5j * k * np.fft.rfft(np.fft.irfft(first, n=n) ** 2) * keep
        uh = decay * uh + 0.5 * dt * (decay * n0 + n1)
        if i % 2 == 0:
            energy.append(np.sum(np.abs(uh) ** 2) / n)
    return np.fft.irfft(uh, n), energy


# Particles


class Bodies(NamedTuple):
    x: Any
    v: Any
    m: Any


def gravity(x, m, eps):
    d = x[None, :, :] - x[:, None, :]
    r2 = (d**2).sum(axis=-1) + eps**2
    return np.einsum("ij,ijk->ik", m[None, :] / r2**1.5, d)


@program
def nbody(x0, v0, m, eps=0.3, t_end=0.5):
    """Kick, drift, kick, with steps as short as the closest encounter wants them."""
    s = Bodies(x0.copy(), v=v0.copy(), m=m)
    t, steps = 0.0, 0
    acc = gravity(s.x, s.m, eps)
    while t < t_end:
        dt = 0.15 * np.sqrt(eps / np.max(np.sqrt(np.sum(acc * acc, axis=1))))
        dt = t_end - t if t + dt > t_end else dt
        s.v[...] += 0.5 * dt * acc
        x = s.x
        x += dt * s.v
        acc = gravity(s.x, s.m, eps)
        s = s._replace(v=s.v + 0.5 * dt * acc)
        t, steps = t + dt, steps + 1
    return s, steps, t


# A ball that bounces: when it does is found by bisection


def fall(state, dt, g):
    y, v = state
    return y + v * dt - 0.5 * g * dt * dt, v - g * dt


@program
def impact(state, lo, hi, g):
    while hi - lo > 1e-6:
        mid = 0.5 * (lo + hi)
        if fall(state, mid, g)[0] > 0.0:
            lo = mid
        else:
            hi = mid
    y, v = fall(state, hi, g)
    return hi + y / (-v)  # one step of Newton, which has the derivative


@program
def bouncing(height, g, restitution, t_end=1.0):
    state, t, dt = (height, 0.0), 0.0, 0.13
    log = {"bounces": [], "count": 0}
    while t < t_end:
        step = min(dt, t_end - t)
        (y, v) = new = fall(state, step, g)
        if y < 0.0 and -v > 1e-3:
            hit = impact(state, 0.0, step, g=g)
            _, v = fall(state, hit, g)
            state = 1e-9, -restitution * v
            t = t + hit
            log["bounces"].append(t)
            log["count"] += 1
            continue
        state, t = new, t + step
    return state, log


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


@program
def branch(values, weights, room, *, found=0.0, so_far=0.0, i=0):
    """The same with a bound: what would fit if parts of things could be taken."""
    if i == len(weights) or room == 0:
        return so_far if so_far > found else found
    order = sorted(range(i, len(weights)), key=lambda j: -(stop_gradient(values[j]) / weights[j]))
    bound, left = so_far, room
    for j in order:
        part = min(1.0, left / weights[j])
        bound = bound + part * values[j]
        left -= min(left, weights[j])
    if bound <= found:
        return found
    if weights[i] <= room:
        found = branch(
            values, weights, room - weights[i], found=found, so_far=so_far + values[i], i=i + 1
        )
    return branch(values, weights, room, found=found, so_far=so_far, i=i + 1)
