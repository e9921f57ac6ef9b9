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
