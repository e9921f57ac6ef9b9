"""Waves in a cube, on an accelerator: the gradient with respect to the speed at every point.

The scheme is of second order in time and of eighth order in space. J is half the sum of u² over all
steps and over one plane of receivers. With JAX, the same program runs on a CPU and on a GPU:

    ckio run wave3d.py:wave --set grid=64 --steps 200 --check-gradient
"""

import jax
import jax.numpy as jnp
from jax import lax

from ckio.adapters.jax import JaxModel

WEIGHTS = (-205 / 72, 8 / 5, -1 / 5, 8 / 315, -1 / 560)
"""Weights of the second derivative of eighth order, from the centre outwards."""

RADIUS = len(WEIGHTS) - 1

COURANT = 0.4
"""Steps of time times speed over the distance of points; the scheme is stable below 0.49."""


@jax.custom_vjp
def laplacian(u):
    """Return the sum of the second derivatives, with zeros around the cube."""
    padded = lax.optimization_barrier(jnp.pad(u, RADIUS))  # to be stored, not computed 25 times
    inner = [slice(RADIUS, -RADIUS)] * 3

    def shifted(axis, k):
        begin = RADIUS + k
        parts = list(inner)
        parts[axis] = slice(begin, begin + u.shape[axis])
        return padded[tuple(parts)]

    total = 3 * WEIGHTS[0] * u
    for axis in range(3):
        for k in range(1, RADIUS + 1):
            total = total + WEIGHTS[k] * (shifted(axis, k) + shifted(axis, -k))
    return total


# The matrix of the Laplacian is symmetric, so that its transpose is the Laplacian, too.
laplacian.defvjp(lambda u: (laplacian(u), None), lambda _, bar: (laplacian(bar),))


def step(x, c2, i):
    """Take u_i and u_{i-1} to u_{i+1} and u_i; c2 is the squared Courant number at each point."""
    del i
    u = 2 * x["u"] - x["v"] + c2 * laplacian(x["u"])
    return {"u": u, "v": x["u"], "J": x["J"] + 0.5 * jnp.sum(u[:, :, RADIUS] ** 2)}


def functional(x):
    """Return J."""
    return x["J"]


def start(grid):
    """Return x_0, a pulse in the middle, and c2, with a slow ball below it."""
    points = jnp.linspace(-1, 1, grid, dtype=jnp.float32)
    a, b, c = jnp.meshgrid(points, points, points, indexing="ij", sparse=True)
    u = jnp.exp(-60 * (a**2 + b**2 + c**2))
    slow = jnp.where((a - 0.3) ** 2 + b**2 + (c + 0.4) ** 2 < 0.05, 0.8, 1.0)
    c2 = ((COURANT * slow) ** 2).astype(jnp.float32)
    return {"u": u, "v": u, "J": jnp.float32(0)}, c2


def wave(grid: int = 64, steps: int = 200, block: int = 1) -> JaxModel:
    """Return the model with `grid` points along each side of the cube.

    `steps` are time steps. A step of the schedule is a block of them, which JAX computes at once.
    """
    x, c2 = start(grid)
    return JaxModel(step, x, functional, steps, params=c2, segment=block)
