"""Cotangents taken back through programs: over any ticks, in pieces, and through changed arrays."""

import math
from typing import Any

import numpy as np
import pytest

from ckio.errors import BadInput
from ckio.programs.compiled import CompiledProgram, program
from ckio.programs.heap import leaves, rebuild
from ckio.programs.interface import metered
from ckio.programs.tape import stop_gradient


@program
def nested(x, n):
    y = x
    for i in range(1, n + 1):
        for _ in range((7 * i) % 5):
            y = y * y
            y = np.sqrt(y + 1e-3 * np.sin(y) * x)
    return y


@program
def tree(x, depth):
    if depth == 0:
        return np.sin(x)
    a = tree(x * 1.1, depth - 1)
    return a * x + tree(x + 0.1, depth - 2 if depth > 1 else 0)


@program
def burgers(u, nu):
    """In place, with a step that depends on the state, and with views."""
    t = 0.0
    left, right = np.zeros_like(u), np.zeros(u.shape)
    inner = u[1:-1]
    while t < 0.2:
        left[1:] = u[:-1]
        left[0] = u[-1]
        right[:-1] = u[1:]
        right[-1] = u[0]
        slope = nu * (left - 2.0 * u + right) - u * (right - left) * 0.5
        dt = min(0.07, 0.1 / stop_gradient(np.max(np.abs(slope))))
        u += dt * slope
        inner *= 0.99
        t += dt
    return np.sum(u * u), {"u": u, "inner": inner[::2]}


@program
def arrays_of_its_own(x, n):
    table = np.zeros(n)
    rows = [np.zeros(2) for _ in range(n)]
    for i in range(n):
        table[i] = x * (i + 1)
        rows[i][1] = table[i] * x
        fill(rows[i], x, empty(1) if i > 1 else np.ones(1))
    pairs = zip(table, rows, strict=True)
    total = 0.0
    for value, row in pairs:
        total += value * row[0] + row[1]
    for k, value in enumerate(table):
        total += k * value
    return total, table


@program
def arrays_anywhere(x, n):
    """Made in arguments, from whole numbers, and found again under other names."""
    rows, named = [], {}
    for i in range(n):
        rows.append(np.zeros(2))
        rows.append(np.arange(2) * 0.5)
        row = rows[-1]
        row[1] *= x
        same = named.setdefault(i % 2, np.ones(2) if i else -np.ones(2))
        same[0] = x * i
        rows[2 * i][0] += named[i % 2][0] * same[0]
        left, right = (np.arange(3) / 2.0, [np.eye(2)[0]])
        left[0] = right[0][0] = x
        rows[0][1] += left[0] * right[0][0] + kept(rows[-1:], np.arange(2) / 3.0)
    return rows, named


def kept(rows, more):
    more[0] = rows[0][1]
    rows.append(more)
    return sum(row[0] for row in rows)


@program
def fill(row, x, by):
    row[0] = x
    by[0] = x * x
    row *= by[0]


@program
def empty(n):
    return np.zeros(n)


@program
def mixed(z, u, k):
    """Complex numbers, whole numbers, single precision, and a result that is an input."""
    w = z.copy()
    for i in range(k[0]):
        w = w * z + u[i]
        parts = w.real
        parts *= 2.0
    return w, u, (k, 2.0, [np.abs(w).sum() * u[0]])


@program
def unset_and_plain(x, n):
    for i in range(n):
        if i == 1:
            late = x * i
        early = 2.0 * x
    if n > 1:
        early = early + late
    return early


U = np.sin(np.linspace(0.0, 6.0, 9)) + 1.5
Z = np.array([0.3 + 0.2j, -0.5 + 0.1j])

CASES: list[tuple[CompiledProgram, tuple[Any, ...]]] = [
    (nested, (1.3, 6)),
    (nested, (np.float64(1.3), 3)),
    (nested, (U, 3)),
    (tree, (0.7, 4)),
    (burgers, (U, 0.3)),
    (burgers, (np.repeat(U, 2)[::2], 0.3)),
    (arrays_of_its_own, (0.8, 4)),
    (arrays_anywhere, (0.8, 3)),
    (mixed, (Z, U[:3], np.array([3]))),
    (unset_and_plain, (1.5, 3)),
]
each = pytest.mark.parametrize(
    ("p", "x"), CASES, ids=[f"{p.function.__name__}-{n}" for n, (p, _) in enumerate(CASES)]
)


def differs(leaf: Any) -> bool:
    return np.asarray(leaf).dtype.kind in "fc"


def seeds(y: Any) -> dict[str, np.ndarray]:
    """A cotangent of everything that has one."""
    found = {name: np.asarray(leaf) for name, leaf in leaves(y, "y").items() if differs(leaf)}
    return {
        name: np.asarray(np.cos(np.arange(leaf.size) + 1.0 + n).reshape(leaf.shape), leaf.dtype)
        for n, (name, leaf) in enumerate(found.items())
    }


def functional(p: CompiledProgram, x: Any, ybar: dict[str, np.ndarray]) -> float:
    y = leaves(
        p.function(*(rebuild(x, "x", lambda _, v: v.copy() if hasattr(v, "copy") else v))), "y"
    )
    return sum(float(np.sum(ct * y[name]).real) for name, ct in ybar.items())


def close(a: dict[str, np.ndarray], b: dict[str, np.ndarray], rtol: float) -> None:
    assert a.keys() == b.keys()
    for name, one in a.items():
        assert (one.shape, one.dtype) == (b[name].shape, b[name].dtype)
        np.testing.assert_allclose(one, b[name], rtol=rtol, atol=rtol)


@each
def test_it_is_the_derivative(p: CompiledProgram, x: tuple[Any, ...]) -> None:
    end, ticks, _ = p.advance(p.start(*x))
    ybar = seeds(p.result(end))
    found = p.pullback(p.start(*x), ticks, ybar)
    names = {name for name, leaf in leaves(x, "x").items() if differs(leaf)}
    assert found
    assert set(found) <= names
    for name, leaf in leaves(x, "x").items():
        if name not in found:
            continue
        assert (found[name].shape, found[name].dtype) == (np.shape(leaf), np.asarray(leaf).dtype)
        for direction in (1.0, 1.0j) if found[name].dtype.kind == "c" else (1.0,):
            for place in np.ndindex(np.shape(leaf)):
                values = []
                for h in (1e-6, -1e-6):
                    moved = np.array(leaf)
                    moved[place] += h * direction
                    new = moved if np.ndim(leaf) else type(leaf)(moved)
                    there = rebuild(x, "x", lambda at, v: new if at == name else v)  # noqa: B023
                    values.append(functional(p, there, ybar))
                expected = (values[0] - values[1]) / 2e-6
                assert (found[name][place] * direction).real == pytest.approx(expected, 1e-5, 1e-6)


@each
@pytest.mark.parametrize("base", [1, 2, 5])
def test_in_pieces_it_is_the_same(p: CompiledProgram, x: tuple[Any, ...], base: int) -> None:
    states = [p.start(*x)]
    while not p.advance(states[-1], 0)[2]:
        states.append(p.advance(states[-1], base)[0])
    ybar = seeds(p.result(states[-1]))
    whole = p.pullback(states[0], 10**6, ybar)
    cotangent: Any = ybar
    for state in reversed(states[:-1]):
        before = p.pack(state)[1]
        cotangent = p.pullback(state, base, cotangent)
        assert p.pack(state)[1] == before
    close(whole, cotangent, 1e-13)


def test_taking_it_back_over_no_ticks_changes_nothing() -> None:
    end, _, _ = burgers.advance(burgers.start(U, 0.3))
    ybar = seeds(burgers.result(end))
    close(burgers.pullback(end, 3, ybar), ybar, 0.0)
    state, _, _ = burgers.advance(burgers.start(U, 0.3), 3)
    cotangent = {"0.inner": np.arange(9.0), "0.t": np.array(2.0)}
    close(burgers.pullback(state, 0, cotangent), cotangent, 0.0)


def test_a_taped_run_passes_through_the_same_states() -> None:
    """Values on the tape are the plain ones: the branches taken, and the ticks, are the same."""
    _, ticks, _ = burgers.advance(burgers.start(U, 0.3))
    for n in range(ticks):
        state, _, _ = burgers.advance(burgers.start(U, 0.3), n)
        found = burgers.pullback(state, 1, {})
        assert found == {}


def test_the_tape_is_metered() -> None:
    sizes = []
    for ticks in (5, 10):
        with metered() as meter:
            nested.pullback(nested.start(U, 6), ticks, {})
        sizes.append((meter.nodes, meter.nbytes))
    assert 0 < sizes[0][0] < sizes[1][0]
    assert 0 < sizes[0][1] < sizes[1][1]


def test_the_result_twice_adds_up() -> None:
    end, ticks, _ = twice.advance(twice.start(U))
    one = np.ones(9)
    found = twice.pullback(twice.start(U), ticks, {"y.0": one, "y.1": one, "y.2": one[1:-1]})
    expected = np.full(9, 4.0)
    expected[1:-1] += 2.0
    np.testing.assert_array_equal(found["x.0"], expected)
    assert end.ticks == ticks


@program
def twice(u):
    v = u * 2.0
    return v, v, v[1:-1]


@program
def loses(x, how):
    if how == 0:
        return math.sqrt(x)
    if how == 1:
        return float(x)
    return TABLE[0] + x


TABLE = np.ones(3)


@pytest.mark.parametrize("how", [0, 1])
def test_a_derivative_is_not_lost_in_silence(how: int) -> None:
    with pytest.raises(BadInput, match="derivative"):
        loses.pullback(loses.start(2.0, how), 10, {"y": np.array(1.0)})
    assert loses.pullback(loses.start(2.0, 2), 10, {"y": np.array(1.0)}) == {"x.0": 1.0}
