"""Outputs, lanes and Hessian products of a loop in JAX: seconds and memory beside `lax.scan`.

`python bench/jax_second.py` prints, for each, the least seconds of some turns, the temporary memory
of the compiled program, and the largest difference. One state has 32 KiB, and levels are in memory
of the host, which is not counted.
"""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ckio.adapters.jax import checkpointed_scan

N, CELLS, TURNS = 1000, 64, 3


def step(u: Any, k: Any, i: Any) -> Any:
    near = jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1)
    u = u + k * (near - 4 * u) + 0.01 * jnp.sin(u)
    return u, u[::8, ::8]


def by_scan(u: Any, k: Any) -> Any:
    u, ys = jax.lax.scan(lambda u, i: step(u, k, i), u, jnp.arange(N, dtype=jnp.int32))
    return jnp.sum(u**2) + jnp.sum(ys**3)


def by_ckio(u: Any, k: Any) -> Any:
    u, ys = checkpointed_scan(step, u, N, params=k, outputs=True, ram="1MiB", segment=25)
    return jnp.sum(u**2) + jnp.sum(ys**3)


def product(value: Callable[..., Any]) -> Callable[..., Any]:
    def of(u: Any, k: Any) -> Any:
        return jax.grad(lambda *c: jax.jvp(value, c, (jnp.ones_like(u), 1.0))[1], (0, 1))(u, k)

    return of


def lanes(value: Callable[..., Any]) -> Callable[..., Any]:
    return jax.vmap(jax.grad(value, (0, 1)), (0, None))


def one_by_one(value: Callable[..., Any]) -> Callable[..., Any]:
    return lambda u, k: jax.lax.map(lambda u: jax.grad(value, (0, 1))(u, k), u)


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    u, k = jnp.sin(jnp.arange(CELLS))[:, None] * jnp.ones(CELLS), jnp.float64(0.1)
    eight = jnp.stack([u * (1 + i / 8) for i in range(8)])
    grad = lambda value: jax.grad(value, (0, 1))  # noqa: E731
    cases: dict[str, tuple[Any, Any, Any]] = {
        "gradient with outputs": (grad(by_scan), grad(by_ckio), u),
        "Hessian product": (product(by_scan), product(by_ckio), u),
        "8 lanes by vmap": (lanes(by_scan), lanes(by_ckio), eight),
        "8 lanes by lax.map": (one_by_one(by_scan), one_by_one(by_ckio), eight),
    }
    for name, (*both, x) in cases.items():
        compiled = [jax.jit(it).lower(x, k).compile() for it in both]
        temporary = [it.memory_analysis().temp_size_in_bytes / 2**20 for it in compiled]
        seconds, found = [float("inf")] * 2, [None] * 2
        for _ in range(TURNS):
            for which, one in enumerate(compiled):
                begin = time.perf_counter()
                found[which] = jax.block_until_ready(one(x, k))
                seconds[which] = min(seconds[which], time.perf_counter() - begin)
        pairs = zip(*map(jax.tree.leaves, found), strict=True)
        error = max(float(jnp.abs(a - b).max() / jnp.abs(a).max()) for a, b in pairs)
        print(
            f"{name:22} scan {seconds[0]:6.3f} s {temporary[0]:7.1f} MiB,"
            f" ckio {seconds[1]:6.3f} s {temporary[1]:7.1f} MiB, apart by {error:.0e}",
            flush=True,
        )


if __name__ == "__main__":
    main()
