"""Solvers as people write them, each of them a program."""

from typing import Any

import numpy as np

from ckio.programs.compiled import program

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


# Conjugate gradients


@program
def cg(matrix, b, x0=None, maxiter=10, tol=1e-2):
    x = np.zeros_like(b) if x0 is None else x0.copy()
    r = b - matrix @ x
    p = r
    rr = r @ r
    for _ in range(maxiter):
        if rr < tol**2:
            break
        ap = matrix @ p
        alpha = rr / (p @ ap)
        x += alpha * p
        r = r - alpha * ap
        rr, before = r @ r, rr
        p = r + rr / before * p
    return x


# Newton and Krylov


def reaction(u, *, lam, load):
    flux = np.concatenate([u[:1] * 0.0, u, u[-1:] * 0.0])
    return 3.0 * u - flux[2:] - flux[:-2] + lam * u**3 - load


def jacobian(u, v, *, lam):
    flux = np.concatenate([v[:1] * 0.0, v, v[-1:] * 0.0])
    return 3.0 * v - flux[2:] - flux[:-2] + 3 * lam * u**2 * v


@program
def krylov(u, rhs, *, lam, rtol):
    """Conjugate gradients without a matrix."""
    x, r = 0.0 * rhs, rhs
    p, rr, first = r, r @ r, r @ r
    while rr > rtol * first:
        q = jacobian(u, v=p, lam=lam)
        alpha = rr / (p @ q)
        x, r = x + alpha * p, r - alpha * q
        rr, old = r @ r, rr
        p = r + (rr / old) * p
    return x


@program
def newton(load, lam, tol=1e-10):
    u = load * 0.2
    for _ in range(20):
        res = reaction(u, load=load, lam=lam)
        if np.max(np.abs(res)) < tol:
            break
        u = u - krylov(u, rhs=res, rtol=1e-16, lam=lam)
    else_ = u.sum()
    return u, else_


# An ice sheet


def diffusivity(h, dx, gamma):
    slope = np.diff(h) / dx
    mean = 0.5 * (h[1:] + h[:-1])
    return gamma * mean**5 * slope**2


@program
def picard(h_old, dt, dx, gamma, balance):
    """An implicit step; how often the diffusivity is renewed depends on the ice."""
    h = h_old
    for count in range(1, 30):
        d = diffusivity(h, dx, gamma) * (dt / dx**2)
        n = len(h)
        main = np.ones(n)
        main[:-1] += d
        main[1:] += d
        matrix = np.diag(main) - np.diag(d, 1) - np.diag(d, -1)
        new = np.maximum(np.linalg.solve(matrix, h_old + dt * balance), 0.0)
        change, h = np.max(np.abs(new - h)), new
        if change < 1e-6:
            return h, count
    return h, count


@program
def ice_sheet(h0, gamma, years=1.0):
    dx = 1.0
    x = np.arange(len(h0)) - (len(h0) - 1) / 2
    balance = 0.1 - 0.02 * np.abs(x)
    h, t, dt = h0.copy(), 0.0, 0.4
    while t < years:
        dt = min(dt, years - t)
        h, count = picard(h, dt=dt, dx=dx, gamma=gamma, balance=balance)
        t += dt
        dt *= 1.5 if count < 6 else 0.7
    volume = np.sum(h) * dx
    return {"h": h, "volume": volume}
