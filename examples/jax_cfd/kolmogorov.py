"""Kolmogorov flow of jax-cfd, whose states are checkpointed on levels of ckio.

    python kolmogorov.py [--checkpoints ckio|nested|none] [--steps 900] [--into result.npz]

A force that varies as a sine drives a flow in a periodic square, and a drag slows it down. The
misfit compares the velocity at the end with that of a true start. Its gradient with respect to the
velocity at the start needs the states of all steps.
"""

import argparse
import math
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax_cfd.base as cfd
import numpy as np

from ckio.adapters.jax import checkpointed_scan

jax.config.update("jax_enable_x64", True)

Velocity = Any
"""Both components on their faces of the cells, as jax-cfd has them."""


class Flow:
    """The forced Navier-Stokes equations in a square with sides of 2π.

    Parameters
    ----------
    cells : int
        Number of cells along each side.
    convect : callable, optional
        The convection of jax-cfd. Linear interpolation has a derivative everywhere. The default of
        jax-cfd, None, has limiters with kinks, and remainders of a Taylor test scatter.
    """

    def __init__(self, cells: int, convect: Any = cfd.advection.convect_linear) -> None:
        side = (0.0, 2 * math.pi)
        self.grid = cfd.grids.Grid((cells, cells), domain=(side, side))
        self.fastest, viscosity, courant = 3.0, 1e-2, 0.1
        self.step = cfd.equations.semi_implicit_navier_stokes(
            density=1.0,
            viscosity=viscosity,
            dt=cfd.equations.stable_time_step(self.fastest, courant, viscosity, self.grid),
            grid=self.grid,
            convect=convect,
            forcing=self._force,
        )

    def _force(self, v: Velocity) -> Velocity:
        """Return the force of Kolmogorov's flow, and a drag that is proportional to the speed."""
        push = cfd.forcings.kolmogorov_forcing(self.grid, k=4)
        drag = cfd.forcings.linear_forcing(self.grid, -0.1)
        return tuple(a + b for a, b in zip(push(v), drag(v), strict=True))

    def start(self, seed: int) -> Velocity:
        """Return a random velocity without divergence, with eddies of about a quarter side."""
        key = jax.random.key(seed)
        return cfd.initial_conditions.filtered_velocity_field(key, self.grid, self.fastest, 4)

    def end(self, v: Velocity, steps: int, checkpoints: str = "ckio", slots: int = 4) -> Velocity:
        """Return the velocity after some steps."""
        match checkpoints:
            case "ckio":
                ram = slots * sum(u.data.nbytes for u in v)
                return checkpointed_scan(self._ith, v, steps, ram=ram, disk="states", segment=100)
            case "nested":
                length = next(k for k in range(math.isqrt(steps), 0, -1) if steps % k == 0)
                block = jax.checkpoint(lambda v: self._scan(v, self.step, length))
                return self._scan(v, block, steps // length)
            case _:
                return self._scan(v, self.step, steps)

    def _ith(self, v: Velocity, params: None, i: int) -> Velocity:
        return self.step(v)

    def _scan(self, v: Velocity, step: Callable[[Velocity], Velocity], n: int) -> Velocity:
        return jax.lax.scan(lambda v, _: (step(v), None), v, length=n)[0]

    def vorticity(self, v: Velocity) -> np.ndarray:
        """Return the curl of a velocity."""
        return np.asarray(cfd.finite_differences.curl_2d(v).data)


def misfit(flow: Flow, observed: Velocity, steps: int, **options: Any) -> Callable[..., Any]:
    """Return the function of a start that returns its misfit and the gradient of it."""

    def value(v: Velocity) -> Any:
        pairs = zip(flow.end(v, steps, **options), observed, strict=True)
        return sum(jnp.sum((a.data - b.data) ** 2) for a, b in pairs) / 2

    return jax.jit(jax.value_and_grad(value))


def sum_of(a: float, v: Velocity, b: float, w: Velocity) -> Velocity:
    """Return a v + b w."""
    return jax.tree.map(lambda x, y: a * x + b * y, v, w)


def taylor_test(compute: Callable[..., Any], v: Velocity, direction: Velocity) -> float:
    """Return the order at which the misfit approaches its tangent, which is two."""
    value, gradient = compute(v)
    pairs = zip(jax.tree.leaves(gradient), jax.tree.leaves(direction), strict=True)
    slope = sum(float(jnp.vdot(a, b)) for a, b in pairs)
    left = [
        abs(float(compute(sum_of(1.0, v, e, direction))[0] - value) - e * slope)
        for e in (1e-4, 5e-5)
    ]
    return math.log2(left[0] / left[1])


def main() -> None:
    """Compute a gradient twice, and print its seconds and the order of the Taylor test."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoints", choices=["ckio", "nested", "none"], default="ckio")
    parser.add_argument("--cells", type=int, default=64)
    parser.add_argument("--steps", type=int, default=900)
    parser.add_argument("--slots", type=int, default=4, help="states of ckio in memory")
    parser.add_argument("--into", help="a file for the fields, as .npz")
    given = parser.parse_args()

    flow = Flow(given.cells)
    true, other = flow.start(0), flow.start(1)
    guess = sum_of(0.9, true, 0.1, other)
    observed = jax.jit(lambda v: flow.end(v, given.steps, "none"))(true)
    options = {"checkpoints": given.checkpoints, "slots": given.slots}
    compute = misfit(flow, observed, given.steps, **options)
    for which in ("first", "second"):
        begun = time.perf_counter()
        value, gradient = jax.block_until_ready(compute(guess))
        print(f"the {which} gradient took {time.perf_counter() - begun:.2f} s")
    print(f"misfit {value:.6g}, Taylor test of order {taylor_test(compute, guess, other):.3f}")
    if given.into:
        fields = {"guess": guess, "observed": observed, "gradient": gradient}
        np.savez(given.into, **{name: flow.vorticity(v) for name, v in fields.items()})


if __name__ == "__main__":
    main()
