"""The example programs with inputs to run them on, in plain Python and in JAX.

`bench/papers/programs.py` uses this, too.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import unknown_length as programs
from numpy.typing import NDArray


class Example(NamedTuple):
    """A program and its inputs."""

    program: Any
    x: tuple[Any, ...]


def wave(cells: int, length: float = 0.0) -> NDArray[np.float64]:
    """Velocities on a ring: a wave of so many cells (all, if 0) on a current that carries it."""
    return 1.0 + np.sin(2.0 * np.pi * np.arange(cells) / (length or cells))


def covariance(size: int) -> NDArray[np.float64]:
    """A matrix that is symmetric, and positive definite."""
    part = np.random.default_rng(size).normal(size=(size, size))
    return part @ part.T + size * np.eye(size)


PLAIN: dict[str, Example] = {
    "listing1": Example(programs.listing1, (3.0, 20)),
    "listing1, eps": Example(programs.listing1, (3.0, 20, 1e-3)),
    "tree": Example(programs.tree, (0.7, 6)),
    "burgers": Example(programs.adaptive_burgers, (wave(24), 0.3, 1e-3)),
    "burgers, in place": Example(programs.burgers_in_place, (wave(24), 0.3, 1e-3)),
    "nested scans": Example(programs.nested_scans, (covariance(4),)),
    "rod": Example(programs.radiating_rod, (np.linspace(1.0, 2.0, 5), 0.5, 4)),
}
"""Programs of unknown length."""

IN_JAX = "listing1", "burgers"
"""What there is in JAX, too."""


def in_jax(name: str, mode: Any = None) -> Example:
    """One of the programs in JAX, where double precision has to be enabled."""
    from ckio.programs.jaxed import JaxProgram

    function, x = _FUNCTIONS[name]()
    return Example(JaxProgram(function, x, mode), x)


def listing1_in_jax(n: int, eps: float) -> Callable[[Any], Any]:
    """Listing 1 as two `while` loops, the inner of which ends where the data says."""
    import jax.numpy as jnp
    from jax import lax

    def duration(x: Any, i: Any) -> Any:
        scale = jnp.floor(3.0 ** lax.stop_gradient(x)).astype(jnp.int64) * 1007 % n
        zeros = lax.clz(1 + scale * i % n) - lax.clz(jnp.int64(n))
        return jnp.int64(1) << zeros

    def body(y: Any, x: Any) -> Any:
        y = y * y
        return jnp.sqrt(y + eps * jnp.sin(y) * x)

    def listing1(x: Any) -> Any:
        def outer(state: Any) -> Any:
            i, y = state
            most = duration(x, i)
            _, y = lax.while_loop(
                lambda inner: inner[0] < most,
                lambda inner: (inner[0] + 1, body(inner[1], x)),
                (jnp.int64(0), y),
            )
            return i + 1, y

        return lax.while_loop(lambda state: state[0] <= n, outer, (jnp.int64(1), x))[1]

    return listing1


def burgers_in_jax(tolerance: float) -> Callable[[Any, Any], Any]:
    """Adaptive Burgers: one `while`, in which a step is taken or not."""
    import jax.numpy as jnp
    from jax import lax

    def rate(u: Any, viscosity: Any) -> Any:
        left, right = jnp.roll(u, 1), jnp.roll(u, -1)
        return viscosity * (left - 2.0 * u + right) - 0.25 * (right * right - left * left)

    def burgers(u0: Any, viscosity: Any) -> Any:
        def step(state: Any) -> Any:
            u, t, dt = state
            dt = jnp.minimum(dt, 1.0 - t)
            slope = rate(u, viscosity)
            ahead = rate(u + dt * slope, viscosity)
            error = 0.5 * dt * jnp.max(jnp.abs(ahead - slope))
            u, t = lax.cond(
                error <= tolerance,
                lambda: (u + 0.5 * dt * (slope + ahead), t + dt),
                lambda: (u, t),
            )
            longer = jnp.clip(0.98 * jnp.sqrt(tolerance / error), 0.25, 2.0)
            return u, t, dt * longer

        start = u0, jnp.float64(0.0), jnp.float64(0.5)
        return lax.while_loop(lambda state: state[1] < 1.0, step, start)[0]

    return burgers


_FUNCTIONS: dict[str, Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]] = {
    "listing1": lambda: (listing1_in_jax(20, 1e-3), (3.0,)),
    "burgers": lambda: (burgers_in_jax(1e-3), (wave(16), 0.3)),
}
