"""How long a block of steps takes, for planners that weigh it against levels with prices."""

import threading
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ckio.adapters.jax.blocks import Back, Blocks, Given, is_key, zeros
from ckio.adapters.jax.drive import drive_of


def measured(blocks: Blocks, /) -> tuple[float, float]:
    """Seconds of a block, forward and back: the least of three, with zeros for content.

    In a thread of its own, as whoever asks may be tracing.
    """
    found: list[float] = []
    thread = threading.Thread(target=lambda: found.extend(map(_seconds, _timed(blocks))))
    thread.start()
    thread.join()
    forward, back = found
    return forward, back


def _timed(blocks: Blocks) -> list[Callable[[], Any]]:
    x, params, rows = (
        [
            jnp.zeros(a.shape, a.dtype)
            if not is_key(a)
            else jax.random.split(jax.random.key(0), a.shape)
            for a in leaves
        ]
        for leaves in blocks.shapes.leaves
    )
    given, drive, length = Given(params, rows), drive_of(blocks), blocks.length(0)

    def reverse() -> Back:
        return drive.reverse(length, x, given, 0, Back(zeros(x), zeros(params), zeros(rows)))

    return [lambda: drive.advance(x, given, 0, 1), reverse]


_wait: Any = jax.block_until_ready


def _seconds(call: Callable[[], Any]) -> float:
    _wait(call())  # compiled now
    least = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        _wait(call())
        least = min(least, time.perf_counter() - start)
    return least
