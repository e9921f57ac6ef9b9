"""Writing in place: values as numpy has them to the bit, derivatives as central differences say."""

# ruff: noqa: E501, RUF005 - tables with one small program a line

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckio.errors import BadInput
from ckio.programs.tape import Tape, Traced, stop_gradient

from .taping import check

U = np.array([0.3, -0.7, 0.9, 0.4, -0.2, 0.6])
V = np.array([0.5, 0.8, -0.6, 0.7, 0.1, -0.9])


def value(x):
    return x.value if type(x) is Traced else x


def weighted(arrays):
    return sum(np.sum(value(a) * np.cos(np.arange(np.size(value(a))).reshape(np.shape(value(a)))))
               for a in arrays)  # fmt: skip


def zeros(like):
    return np.zeros_like(like)


def shapes(u, v):
    m = u.reshape(2, 3)
    m.T[0] = v[:2] ** 2
    m.reshape(-1)[3] = v[5] * u[0]
    m[:, ::-1][1] *= v[:3]
    u.ravel()[:2] += m[1, :2]
    np.add(m, m, out=m)
    np.multiply(u, v, out=u[::-1])
    np.exp(v, out=m.reshape(-1))
    m[...] = m * m
    return u, m, m.T


def fancy(u, v):
    u[[0, 2, 2]] = v[:3]
    u[np.array([1, 1])] += v[:2]
    u[u > 0.5] = v[0]
    u[u < 0] *= v[1]
    np.add.at(u, [3, 3, 4], v[:3] * v[:3])
    np.subtract.at(u[1:], [0, 0], v[1])
    w = u[[0, 0, 1]]
    w *= v[:3]
    np.copyto(u[2:4], w[:2])
    np.copyto(u, v, where=np.arange(6) % 2 == 0)
    return u, w


def constants(u, v):
    a, b, c = zeros(u), np.ones_like(v), np.full_like(u, 2.0)
    a[1:3] = u[:2] * v[0]
    b *= 3.0
    b[2] = u[2]
    c[:] = a
    a[:] = 7.0
    a[0] = c[1] * b[2]
    a.fill(v[3])
    c.sort()
    return a, b, c


def reductions(u, v):
    out = zeros(u)[:1].reshape(())
    np.sum(u * v, out=out)
    w = zeros(u)
    np.cumsum(u * u, out=w)
    np.maximum(w, v, out=w)
    w[v > 0] = np.maximum(w[v > 0], u[v > 0])
    w[0] = out
    return w, u


def outs_by_place(u, v):
    w, m, s = zeros(u), zeros(u).reshape(2, 3), zeros(u)[0:1].reshape(())
    np.sum(u.reshape(2, 3), 0, None, w[:3])
    np.clip(u, -0.5, 0.5, w[::-1])
    u.cumsum(0, None, m.reshape(-1))
    np.dot(u, v, s)
    (u * v).max(0, s)
    return w, m, s


def same_memory(u, v):
    w = u.conj()
    w *= v
    w.conjugate()[0] = v[1]
    return u, w


@pytest.mark.parametrize(
    "program", [outs_by_place, same_memory, shapes, fancy, constants, reductions]
)
def test_in_place(program):
    check(program, U, V)


def test_parts_of_complex_memory():
    def program(u, v):
        z = np.zeros_like(u, shape=3, dtype=complex)
        z.real = u[:3]
        z.imag[1:] = v[:2] * u[0]
        z *= z
        z.imag *= 2
        r = z.real
        r += z.imag
        return r, z.imag

    check(program, U, V)


def test_what_was_given_is_left_alone():
    x = U.copy()
    tape = Tape()
    u = tape.input(x)
    y = u * u
    u += 1.0
    u[:] = 3.0
    assert x.tobytes() == U.tobytes()
    (found,) = tape.backward([(y, np.ones(6))], [u])
    np.testing.assert_array_equal(found, 2 * U)


def test_plain_operands_are_copied_once():
    tape = Tape()
    u, c = tape.input(U), V.copy()
    y = u * c
    y = y * c
    before = tape.nbytes
    y = y * c
    assert tape.nbytes == before
    c *= 5.0
    (found,) = tape.backward([(y, np.ones(6))], [u])
    np.testing.assert_allclose(found, V**3)


def test_views_of_a_given_memory():
    memory = np.arange(6.0)
    tape = Tape()
    cell = tape.input(memory)
    inner, across = tape.view(cell, memory[1:-1]), tape.view(cell, memory.reshape(2, 3).T)
    inner *= 2.0
    across[0] = 1.0
    assert cell.value.tolist() == [1, 2, 4, 1, 8, 5]
    assert np.shares_memory(across.value, cell.value)
    late = tape.view(cell, memory[2:4])
    assert late.value.tolist() == [4, 1]
    (found,) = tape.backward([(inner, np.array([1.0, 2.0, 3.0, 4.0]))], [cell])
    assert found.tolist() == [0, 2, 4, 0, 8, 0]


def test_seeds_of_a_view_or_of_a_part_of_its_memory():
    for seed in ("view", "memory"):
        memory = np.arange(6.0)
        tape = Tape()
        cell = tape.input(memory)
        part = tape.view(cell, memory[1:3])
        part *= 3.0
        match seed:
            case "view":
                given = (part, np.array([1.0, 2.0]))
            case _:
                given = (part, np.array([1.0, 2.0, 0.0]), cell.value[1:4])
        (found,) = tape.backward([given], [cell])
        assert found.tolist() == [0, 3, 6, 0, 0, 0]


def test_lift():
    tape = Tape()
    x = tape.input(2.0)
    a = np.zeros(3)
    one, (two, three), ints = tape.lift((a, [a[1:], {"k": a}], np.arange(3)))
    assert type(ints) is np.ndarray
    two[0] = x
    assert three["k"].value.tolist() == [0, 2, 0]
    assert tape.lift(a[1:]).value.tolist() == [2, 0]
    assert a.tolist() == [0, 0, 0]
    (found,) = tape.backward([(one, np.ones(3))], [x])
    assert found == 1.0
    untouched = [1, 2.0, "a", None]
    assert tape.lift(untouched) is untouched


def test_stop_gradient_is_a_copy():
    tape = Tape()
    u = tape.input(U)
    s = stop_gradient(u)
    u += 1.0
    np.testing.assert_array_equal(s, U)
    assert type(stop_gradient(tape.input(0.5))) is float
    assert stop_gradient(U) is not U


LOSING = {
    "float": lambda x, u: float(x), "int": lambda x, u: int(x), "complex": lambda x, u: complex(x),
    "math": lambda x, u: __import__("math").sqrt(x), "asarray": lambda x, u: np.asarray(u),
    "float64": lambda x, u: np.float64(x), "array": lambda x, u: np.array([x, x]),
    "array of arrays": lambda x, u: np.array([u, u]), "full": lambda x, u: np.full(3, x),
    "into plain": lambda x, u: np.zeros(3).__setitem__(0, x), "plain copyto": lambda x, u: np.copyto(np.zeros(6), u),
    "plain +=": lambda x, u: np.zeros(6).__iadd__(u), "plain slice": lambda x, u: np.zeros(6).__setitem__(slice(6), u),
    "plain out": lambda x, u: np.sin(u, out=np.zeros(6)), "item": lambda x, u: u.item(0), "tolist": lambda x, u: u.tolist(),
    "arange": lambda x, u: np.arange(0.0, x), "list in a write": lambda x, u: u.__setitem__(slice(2), [x, x]),
    "list operand": lambda x, u: u[:2] + [x, x], "plain sum": lambda x, u: np.zeros(6).sum(out=u[0:1].reshape(())) if False else float(u[0]),
    "fromiter": lambda x, u: np.fromiter(u, float), "array.array": lambda x, u: __import__("array").array("d", [x]),
    "as_strided": lambda x, u: np.lib.stride_tricks.as_strided(u, (2,)), "pickle": lambda x, u: __import__("pickle").dumps(u),
    "add.at plain": lambda x, u: np.add.at(np.zeros(6), [0], x), "fsum": lambda x, u: __import__("math").fsum(u),
    "index plain": lambda x, u: [1, 2][x], "where out": lambda x, u: np.add(u, 1, where=u > 0),
    "asanyarray": lambda x, u: np.asanyarray(u), "ascontiguous": lambda x, u: np.ascontiguousarray(u),
    "int plain": lambda x, u: np.zeros(3, int).__setitem__(0, x), "statistics": lambda x, u: __import__("statistics").fmean([x, x]),
    "struct": lambda x, u: struct.pack("d", x), "concat out": lambda x, u: np.concatenate([u, u], out=np.zeros(12)),
    "asfarray": lambda x, u: np.asarray([u]), "two tapes": lambda x, u: x * Tape().input(1.0),
    "frombuffer": lambda x, u: np.frombuffer(u), "astype object": lambda x, u: u.astype(object),
    "asfortran": lambda x, u: np.asfortranarray(u), "plain fill": lambda x, u: np.zeros(3).fill(x),
    "vectorize": lambda x, u: np.vectorize(lambda t: t)(u), "piecewise": lambda x, u: np.piecewise(u, [u.value > 0], [lambda t: t]),
    "put": lambda x, u: np.put(u, [0], x), "list copied": lambda x, u: np.copyto(u[:2], [x, x]),
    "list added": lambda x, u: np.add.at(u, [0, 1], [x, x]), "full list": lambda x, u: np.full_like(u, [x] * 6),
    "fix into": lambda x, u: np.fix(u, u[::-1]), "is into": lambda x, u: np.isposinf(u, np.zeros_like(u)),
    "nan in place": lambda x, u: np.nan_to_num(u, copy=False), "conj into": lambda x, u: u.conj(u[::-1]),
    "complex sign": lambda x, u: np.sign(u * 1j), "polyval": lambda x, u: np.polyval([1.0, x], 0.5),
    "random": lambda x, u: np.random.default_rng(0).normal(x), "select": lambda x, u: np.select([u > 0], [u]),
    "linspace list": lambda x, u: np.linspace([x, x], 1.0, 3), "convolve": lambda x, u: np.convolve(u, [1.0, 2.0]),
}  # fmt: skip


def test_nothing_loses_the_derivative_silently():
    for name, lose in LOSING.items():
        tape = Tape()
        x, u = tape.input(0.5), tape.input(U)
        with pytest.raises((BadInput, TypeError, ValueError, struct.error)) as caught:
            lose(x, u)
        if caught.type is ValueError:  # numpy says so instead, of what looks like a sequence
            assert isinstance(caught.value.__cause__, BadInput), name


def test_full_like_of_a_traced_number():
    tape = Tape()
    x, u = tape.input(0.5), tape.input(U)
    y = np.full_like(u, x) + np.full_like(u, fill_value=x)
    (found,) = tape.backward([(y, np.ones(6))], [x])
    assert found == 12.0


def test_powers_of_numpy_numbers_are_those_of_the_operator():
    base = np.random.default_rng(1).uniform(0.1, 3.0, 5000)
    for exponent in (2.0, 0.5):
        x = Tape().input(exponent)
        for c in base:
            assert (c**x).value.tobytes() == (c**exponent).tobytes()


@pytest.mark.slow
def test_deep_tapes_and_their_size():
    tape = Tape()
    x = y = tape.input(1.0)
    for _ in range(100_000):
        y = y * 1.0 + 0.0
    assert tape.nodes == 200_000
    (found,) = tape.backward([(y, np.array(1.0))], [x])
    assert found == 1.0
    assert tape.nodes == 0
    with pytest.raises(BadInput, match="reversed already"):
        x * 2.0


def test_nodes_keep_what_they_need():
    tape = Tape()
    u = tape.input(np.ones(1000))
    y = u + u
    y = np.roll(y, 1) - y
    y = y.reshape(10, 100).T
    assert tape.nbytes == 0
    y = np.exp(y)
    assert tape.nbytes == 8000
    y = y * y
    assert tape.nbytes == 8000


OPERATIONS = st.lists(
    st.tuples(st.sampled_from(range(14)), st.integers(0, 9), st.integers(0, 9), st.integers(0, 5)),
    min_size=1, max_size=12,
)  # fmt: skip


def perform(pool, operations, look):  # noqa: PLR0912, one for each operation
    """Views, writes and reads on a growing pool of arrays of six entries, or fewer."""
    for kind, i, j, k in operations:
        a, b = pool[i % len(pool)], pool[j % len(pool)]
        n = min(len(a), len(b))
        match kind:
            case 0:
                pool.append(a[::-1])
            case 1:
                pool.append(a[k % len(a) :])
            case 2:
                pool.append(np.sin(a))
            case 3:
                a += 0.5
            case 4:
                a[:n] *= b[:n]
            case 5:
                a[:n] = b[-n:]
            case 6:
                a[k % len(a)] = b[k % len(b)] * 0.7
            case 7:
                np.multiply(a[:n], b[:n], out=b[:n])
            case 8:
                a[[0, -1, 0][: len(a)]] = b[0]
            case 9:
                a[a > 0.1] -= 0.3
            case 10:
                pool.append(np.tanh(a[:n] + b[:n] * b[:n]))
            case 11:
                np.add.at(a, [0, 0], b[-1])
            case 12:
                pool.append(np.cumsum(a) * 0.3)
            case _:
                pool.append(zeros(a))
        look(pool)
    return pool


def differ(operations):
    states = []
    perform(
        [U.copy(), V.copy()], operations, lambda pool: states.append([it.tobytes() for it in pool])
    )
    tape = Tape()
    inputs = [tape.input(U), tape.input(V)]
    seen = iter(states)

    def look(pool):
        assert [it.value.tobytes() for it in pool] == next(seen)

    pool = perform(list(inputs), operations, look)
    saved = [(it, it.copy()) for node in tape._nodes for it in node[2] if type(it) is np.ndarray]
    found = tape.backward([(it, np.cos(np.arange(len(it)))) for it in pool], inputs)
    assert all(np.array_equal(it, copy) for it, copy in saved)

    def ends(number, index, h):
        args = [U.copy(), V.copy()]
        args[number][index] += h
        return weighted(perform(args, operations, lambda _: None))

    for number in (0, 1):
        for index in range(6):
            slopes = [
                (ends(number, index, h) - ends(number, index, -h)) / (2 * h) for h in (1e-5, 1e-6)
            ]
            if abs(slopes[0] - slopes[1]) > 1e-5 * (1 + abs(slopes[1])):
                continue  # a mask changes here
            mine = 0.0 if found[number] is None else found[number][index]
            assert abs(mine - slopes[1]) <= 1e-5 * (1 + abs(slopes[1]))


@given(OPERATIONS)
def test_in_place_campaign(operations):
    differ(operations)


def test_an_array_with_another_shape_is_copied_once_more():
    tape = Tape()
    u, v, c = tape.input(U), tape.input(U.reshape(2, 3)), V.copy()
    y = u * c
    c.shape = (2, 3)
    z = v * c
    found = tape.backward([(y, np.ones(6)), (z, np.ones((2, 3)))], [u, v])
    np.testing.assert_array_equal(found[0], V)
    np.testing.assert_array_equal(found[1], V.reshape(2, 3))
