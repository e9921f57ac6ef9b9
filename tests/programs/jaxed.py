"""What the tests of programs made of functions of JAX have in common."""

import io
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ckio.programs.heap import leaves, rebuild
from ckio.programs.jaxed import JaxProgram

MODES = ("blocks", "switch")


def whole(program: JaxProgram, x: tuple[Any, ...]) -> tuple[Any, int]:
    """The finished state and the number of ticks."""
    state, ticks, finished = program.advance(program.start(*x))
    assert finished
    return state, ticks


def through_bytes(program: JaxProgram, state: Any) -> Any:
    """A state after it has been stored as bytes and as text."""
    arrays, meta = program.pack(state)
    file = io.BytesIO()
    np.savez(file, **arrays)
    file.seek(0)
    with np.load(file) as stored:
        return program.unpack(dict(stored), json.loads(json.dumps(meta)))


def gradient(program: JaxProgram, x: tuple[Any, ...], seeds: Any, piece: float = math.inf) -> Any:
    """The cotangents of the leaves of x, going back over pieces of so many ticks."""
    states, finished = [(program.start(*x), 0)], False
    while not finished:
        state, ticks, finished = program.advance(states[-1][0], piece)
        states.append((state, ticks))
    cotangent = {name: np.asarray(it) for name, it in seeds.items()}
    for (before, _), (_, ticks) in zip(reversed(states[:-1]), reversed(states[1:]), strict=True):
        cotangent = program.pullback(before, ticks, cotangent)
    return cotangent


def assert_same(found: Any, wanted: Any, rtol: float = 0.0) -> None:
    """Two structures have the same leaves: to the last bit, or but for rounding."""
    found, wanted = leaves(found, "y"), leaves(wanted, "y")
    assert found.keys() == wanted.keys()
    for name, it in wanted.items():
        one, other = np.asarray(found[name]), np.asarray(it)
        assert (one.dtype, one.shape) == (other.dtype, other.shape), name
        if rtol:
            scale = float(np.max(np.abs(other), initial=0.0))
            assert np.all(np.isfinite(one)), name
            np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol * scale, err_msg=name)
        else:
            assert one.tobytes() == other.tobytes(), name


def assert_derivative(
    program: JaxProgram, function: Callable[..., Any], x: tuple[Any, ...], rtol: float = 1e-11
) -> None:
    """The result and its cotangents are those of JAX, in one piece and in pieces of ticks."""
    import jax
    import jax.numpy as jnp

    x = rebuild(x, "x", lambda _, leaf: jnp.asarray(leaf))
    y, pull = jax.vjp(function, *x)
    state, ticks = whole(program, x)
    assert_same(program.result(state), y, 10 * rtol)

    random = np.random.default_rng(ticks)

    def seed(_: str, leaf: Any) -> Any:
        if not jnp.issubdtype(leaf.dtype, jnp.inexact):
            return np.zeros(leaf.shape, jax.dtypes.float0)
        real = random.normal(size=leaf.shape)
        complex_ = jnp.issubdtype(leaf.dtype, jnp.complexfloating)
        made = real + 1j * random.normal(size=leaf.shape) if complex_ else real
        return jnp.asarray(made, leaf.dtype)

    seeds = rebuild(y, "y", seed)
    wanted = {
        name: np.conj(it)
        for name, it in leaves(pull(seeds), "x").items()
        if it.dtype != jax.dtypes.float0
    }
    assert np.any(wanted["x.0"])  # else nothing would be compared
    given = {
        n: np.conj(it) for n, it in leaves(seeds, "y").items() if it.dtype != jax.dtypes.float0
    }
    for piece in (math.inf, max(1, ticks // 3)):
        found = gradient(program, x, given, piece)
        assert found.keys() <= wanted.keys()
        zeros = {name: np.zeros_like(it) for name, it in wanted.items() if name not in found}
        assert_same(found | zeros, wanted, rtol)


def assert_dual(
    program: JaxProgram, function: Callable[..., Any], x: tuple[Any, ...], rtol: float = 1e-11
) -> None:
    """<seeds, J t> by forward mode, which JAX has for any loop, is <pulled-back seeds, t>."""
    import jax
    import jax.numpy as jnp

    random = np.random.default_rng(0)
    x = rebuild(x, "x", lambda _, leaf: jnp.asarray(leaf))
    tangents = rebuild(x, "x", lambda _, leaf: jnp.asarray(random.normal(size=leaf.shape)))
    _, dy = jax.jvp(function, x, tangents)
    moved = {n: it for n, it in leaves(dy, "y").items() if it.dtype != jax.dtypes.float0}
    seeds = {name: np.cos(np.arange(it.size)).reshape(it.shape) for name, it in moved.items()}
    wanted = sum(float(np.vdot(seeds[name], it)) for name, it in moved.items())
    _, ticks = whole(program, x)
    for piece in (math.inf, max(1, ticks // 3)):
        back = gradient(program, x, seeds, piece)
        parts = [np.vdot(back[name], t) for name, t in leaves(tangents, "x").items()]
        size = sum(float(np.abs(it).sum()) for it in back.values())
        assert size > 0
        assert abs(wanted - sum(parts)) <= rtol * max(1.0, size)
