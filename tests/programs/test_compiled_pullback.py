"""Cotangents taken back through programs: over any ticks, in pieces, and through changed arrays."""

import math
from typing import Any

import numpy as np
import pytest

from ckio.errors import BadInput
from ckio.programs.compiled import CompiledProgram, program
from ckio.programs.heap import leaves, rebuild
from ckio.programs.interface import primops
from ckio.programs.tape import stop_gradient

from .running import copied, picture
from .solvers import SOLVERS
from .written import tree


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
    pairs = list(zip(table, rows, strict=True))
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


@program
def pendulum(angle, speed, steps):
    y = np.array([angle, speed])
    for _ in range(steps):
        y = y + 0.1 * np.array([y[1], -np.sin(y[0])])
    return y


@program
def made_arrays(x, u):
    """`np.array` of numbers that are being taped, as people write it."""
    rows = np.asarray([u, 2.0 * u, np.array([x, 1.0, x * x])])
    cube = np.array([[[x, 2.0], [3.0, x]]] * 2)
    full = np.full(3, x) + np.full((2, 3), 2.0)
    copied, same = np.array(u), np.asarray(u)
    copied[0] = 7.0
    same[1] = same[1] * x
    whole = np.asarray([1, 2, 3]) + np.array((4, 5, 6))
    return rows.sum(axis=0) * u + cube.sum() * copied + full[1] * whole + u


U = np.sin(np.linspace(0.0, 6.0, 9)) + 1.5
Z = np.array([0.3 + 0.2j, -0.5 + 0.1j])

CASES: list[tuple[CompiledProgram, tuple[Any, ...]]] = [
    (tree, (np.float64(0.7), 4)),
    (tree, (U, 3)),
    (burgers, (U, 0.3)),
    (burgers, (np.repeat(U, 2)[::2], 0.3)),
    (arrays_of_its_own, (0.8, 4)),
    (arrays_anywhere, (0.8, 3)),
    (mixed, (Z, U[:3], np.array([3]))),
    (unset_and_plain, (1.5, 3)),
    (pendulum, (0.5, 0.2, 8)),
    (made_arrays, (1.3, np.array([0.2, 0.4, 0.9]))),
    *SOLVERS,
]


def seeds(tree: Any, name: str, wave: Any = np.cos) -> dict[str, np.ndarray]:
    """Numbers for everything that has a derivative."""
    found = {path: np.asarray(leaf) for path, leaf in leaves(tree, name).items()}
    return {
        path: np.asarray(wave(np.arange(leaf.size) + 1.0 + n).reshape(leaf.shape), leaf.dtype)
        for n, (path, leaf) in enumerate(found.items())
        if leaf.dtype.kind in "fc"
    }


def slope(p: CompiledProgram, x: Any, ybar: dict[str, np.ndarray], way: Any) -> float:
    """The derivative of the functional in a direction, by differences."""

    def functional(h: float) -> float:
        moved = rebuild(copied(x), "x", lambda at, v: v + h * way[at] if at in way else v)
        y = leaves(p.function(*moved), "y")
        return sum(float(np.vdot(bar, y[name]).real) for name, bar in ybar.items())

    return (functional(1e-6) - functional(-1e-6)) / 2e-6


def close(a: dict[str, np.ndarray], b: dict[str, np.ndarray], rtol: float) -> None:
    assert a.keys() == b.keys()
    for name, one in a.items():
        assert (one.shape, one.dtype) == (b[name].shape, b[name].dtype)
        np.testing.assert_allclose(one, b[name], rtol=rtol, atol=rtol)


@pytest.mark.parametrize(
    ("p", "x"), CASES, ids=[f"{p.function.__name__}-{n}" for n, (p, _) in enumerate(CASES)]
)
def test_it_is_the_derivative_and_the_same_in_pieces(
    p: CompiledProgram, x: tuple[Any, ...]
) -> None:
    y, ticks = primops(p, *copied(x))
    ybar = seeds(y, "y")
    found = p.pullback(p.start(*x), ticks, ybar)
    for name, bar in found.items():
        leaf = np.asarray(leaves(x, "x")[name])
        assert (bar.shape, bar.dtype) == (leaf.shape, leaf.dtype)
    for factor in (1.0, 1j if x[0] is Z else -2.0):
        way = {
            name: wave * (factor if wave.dtype.kind == "c" else 1.0)
            for name, wave in seeds(x, "x", np.sin).items()
        }
        wanted = slope(p, x, ybar, way)
        mine = sum(float(np.vdot(found[name], way[name]).real) for name in found)
        assert mine == pytest.approx(wanted, rel=2e-5, abs=1e-6)
    for base in (1, 3):
        states = [p.start(*x)]
        while not p.advance(states[-1], 0)[2]:
            states.append(p.advance(states[-1], base)[0])
        cotangent: Any = ybar
        for state in reversed(states[:-1]):
            before = picture(p, state)
            cotangent = p.pullback(state, base, cotangent)
            assert picture(p, state) == before
        close(found, cotangent, 1e-9)


def test_taking_it_back_over_no_ticks_changes_nothing() -> None:
    end, _, _ = burgers.advance(burgers.start(U, 0.3))
    ybar = seeds(burgers.result(end), "y")
    close(burgers.pullback(end, 3, ybar), ybar, 0.0)
    state, _, _ = burgers.advance(burgers.start(U, 0.3), 3)
    cotangent = {"0.inner": np.arange(9.0), "0.t": np.array(2.0)}
    close(burgers.pullback(state, 0, cotangent), cotangent, 0.0)


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
    if how == 2:
        return x * np.array([x, 2.0], dtype=int)
    return TABLE[0] + x


TABLE = np.ones(3)


def test_a_derivative_is_not_lost_in_silence() -> None:
    for how in range(3):
        with pytest.raises(BadInput, match="derivative"):
            loses.pullback(loses.start(2.5, how), 10, {"y": np.array(1.0)})
    assert loses.pullback(loses.start(2.0, 3), 10, {"y": np.array(1.0)}) == {"x.0": 1.0}
