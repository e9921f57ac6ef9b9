"""Kernels with adjoints of their own, and JAX as a peer."""

from typing import NamedTuple

import numpy as np
import pytest

from ckio.errors import BadInput
from ckio.programs.tape import Tape, Traced, primitive, stop_gradient


class Pair(NamedTuple):
    product: object
    total: object


@primitive(vjp=lambda result, x, y, scale=1.0: lambda g: (scale * g * y, scale * g * x))
def product(x, y, scale=1.0):
    assert type(x) is not Traced
    return scale * x * y


@primitive(vjp=lambda result, x, k: lambda g: (g[0] * k + 2 * x * g[1], None))
def pair(x, k):
    return Pair(k * x, np.sum(x * x))


def test_on_plain_values_it_is_the_function():
    assert product(2.0, 3.0, scale=2.0) == 12.0
    assert product.__name__ == "product"


def test_a_result_is_copied_only_if_it_is_in_the_memory_of_an_argument():
    new, x = np.ones(2), np.array([1.0, 2.0])

    @primitive(vjp=lambda result, x, k: lambda g: (g, None))
    def same(x, k):
        return x if k else new

    assert same(Tape().input(x), 0).value is new
    assert not np.shares_memory(same(Tape().input(x), 1).value, x)


def test_cotangents_go_through():
    tape = Tape()
    u = tape.input(np.array([1.0, 2.0]))
    y = product(u, np.array([3.0, 4.0]), scale=2.0)
    z = product(y, y)
    (found,) = tape.backward([(z, np.ones(2))], [u])
    np.testing.assert_allclose(found, 8 * np.array([9.0, 32.0]))


def test_several_results():
    for seeded in ((0, 1), (0,), (1,), ()):
        tape = Tape()
        u = tape.input(np.array([1.0, 2.0]))
        result = pair(u, 3)
        assert type(result) is Pair
        seeds = [(result.product, np.array([1.0, -1.0])), (result.total, np.array(2.0))]
        (found,) = tape.backward([seeds[i] for i in seeded], [u])
        expected = np.zeros(2)
        if 0 in seeded:
            expected += [3.0, -3.0]
        if 1 in seeded:
            expected += [4.0, 8.0]
        assert (found is None and not seeded) or found.tolist() == expected.tolist()


def test_what_is_written_later_is_not_seen_by_the_pullback():
    tape = Tape()
    u, c = tape.input(np.array([1.0, 2.0])), np.array([3.0, 4.0])
    y = product(u, c)
    c[:] = 0.0
    u[:] = 0.0
    start = tape.input(1.0)
    z = np.sum(y * start)
    found = tape.backward([(z, np.array(1.0))], [start, u])
    assert found[0] == 11.0
    assert found[1].tolist() == [3.0, 4.0]


def test_an_identity_has_memory_of_its_own():
    same = primitive(vjp=lambda result, x: lambda g: g)(lambda x: x)
    tape = Tape()
    u = tape.input(np.array([1.0, 2.0]))
    w = same(u)
    w += 1.0
    assert u.value.tolist() == [1.0, 2.0]
    (found,) = tape.backward([(w * w, np.ones(2))], [u])
    assert found.tolist() == [4.0, 6.0]


def test_wrong_pullbacks_are_named():
    def run(kernel):
        tape = Tape()
        u = tape.input(np.ones(3))
        tape.backward([(kernel(u, 2.0), np.ones(3))], [u])

    def wrong(x, k):
        return k * x

    for vjp in (lambda r, x, k: lambda g: (g[:2], None), lambda r, x, k: lambda g: (g,)):
        with pytest.raises(BadInput, match="wrong"):
            run(primitive(vjp=vjp)(wrong))
    x = Tape().input(1.0)
    with pytest.raises(BadInput, match="positional"):
        product(x, 2.0, scale=x)
    with pytest.raises(BadInput, match="positional"):
        product([x], 2.0)


def test_stop_gradient_on_the_way():
    tape = Tape()
    x = tape.input(3.0)
    (found,) = tape.backward([(x * stop_gradient(x), np.array(1.0))], [x])
    assert found == 3.0


def burgers(np, u, viscosity):
    for _ in range(3):
        left, right = np.roll(u, 1), np.roll(u, -1)
        u = u - 0.05 * (u * (right - left) / 2 - viscosity * (left - 2 * u + right))
    return np.sum(u**3) + np.sqrt(np.mean(np.abs(u) ** 2.5))


def network(np, a, b):
    h = np.tanh(a @ b + np.maximum(a[0], 0.1))
    s = np.exp(h - np.max(h, axis=1, keepdims=True))
    s = s / np.sum(s, axis=1, keepdims=True)
    return np.sum(np.log(s) * np.linalg.solve(a + 4 * np.eye(4), h.T).T) + np.linalg.det(a)


def spectral(np, z, k):
    w = np.fft.fft(z * np.exp(1j * k)) * k
    v = np.fft.irfft(w[:3]) + np.real(np.fft.ifft2(w[None] * z[:, None]))[0, :4]
    return np.sum(np.abs(w) ** 2) + np.sum(np.sin(v)) + np.imag(z[1] ** 3 / z[0])


def statistics(np, a, b):
    c = np.where(a > b, a * b, np.cumsum(b, axis=0))
    c = np.concatenate([c, np.stack([c[0], c[-1]])], axis=0)
    return (
        np.std(c) * np.var(a)
        + np.sum(np.cumprod(c, axis=1))
        + np.einsum("ij,ij->", c, c)
        + np.prod(a[0])
    )


RNG = np.random.default_rng(5)
A, B = RNG.normal(size=(4, 4)), RNG.normal(size=(4, 4))
CASES = [
    (burgers, (RNG.normal(size=16), 0.3)),
    (network, (A, B)),
    (spectral, (RNG.normal(size=6) + 1j * RNG.normal(size=6), RNG.normal(size=6))),
    (statistics, (A, B)),
]


@pytest.mark.campaign
@pytest.mark.parametrize(("function", "inputs"), CASES)
def test_as_jax_does_it(function, inputs):
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        value, back = jax.vjp(jax.jit(lambda *x: function(jax.numpy, *x)), *inputs)
        expected = back(jax.numpy.ones_like(value))
        expected = [np.conj(it) for it in expected]  # ours is the direction of steepest ascent
    tape = Tape()
    traced = [tape.input(it) for it in inputs]
    result = function(np, *traced)
    np.testing.assert_allclose(result.value, value, rtol=1e-12)
    for mine, other in zip(tape.backward([(result, np.array(1.0))], traced), expected, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-12, atol=1e-12 * np.max(np.abs(other)))
