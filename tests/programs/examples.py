"""Listing 1 in JAX.

`bench/papers/programs.py` uses this, too.
"""

from collections.abc import Callable
from typing import Any


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
