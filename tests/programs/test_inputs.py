"""Gradients with respect to inputs of many kinds, against central differences."""

import time
from typing import Any, NamedTuple

import numpy as np
import pytest

from ckio.errors import BadInput, RunFailed
from ckio.programs import Options, as_chain, checkpoint_vjp, jax_program, program, vjp
from ckio.programs.compiled import CompiledProgram
from ckio.programs.heap import leaves, rebuild
from ckio.programs.interface import has_derivative
from ckio.programs.tape import primitive

U = np.array([0.1, 0.3, 0.5])
Z = np.array([0.1 + 0.2j, 0.3 - 0.4j, -0.5 + 0.1j])


class Fields(NamedTuple):
    u: Any
    k: Any


def copied(tree: Any) -> Any:
    return rebuild(tree, "", lambda _, v: v.copy() if isinstance(v, np.ndarray) else v)


def weights(y: Any) -> Any:
    """Return a cotangent for y."""

    def of(_: str, leaf: Any) -> Any:
        wave = np.cos(np.arange(1.0, np.size(leaf) + 1)).reshape(np.shape(leaf))
        return wave * (1 - 0.7j) if np.iscomplexobj(leaf) else wave

    return rebuild(y, "y", of)


def steepest(p: Any, x: Any, ybar: Any) -> dict[str, Any]:
    """Return dJ/dx, or dJ/da + i dJ/db for x = a + ib, by differences; J = Re <ybar, y>."""
    bars = leaves(ybar, "y")

    def functional(name: str, index: Any, step: complex) -> float:
        def moved(at: str, leaf: Any) -> Any:
            if at != name:
                return leaf
            array = np.array(leaf)
            array[index] += step if np.iscomplexobj(array) else step.real
            return array if isinstance(leaf, np.ndarray) else array[()]

        ys = leaves(p(*rebuild(copied(x), "x", moved)), "y")
        return sum(float(np.vdot(bars[n], y).real) for n, y in ys.items() if has_derivative(y))

    found = {}
    for name, leaf in leaves(x, "x").items():
        if has_derivative(leaf):
            found[name] = np.zeros(np.shape(leaf), np.asarray(leaf).dtype)
            for index in np.ndindex(np.shape(leaf)):
                for unit in (1, 1j)[: 1 + np.iscomplexobj(leaf)]:
                    ends = [functional(name, index, step * unit) for step in (1e-6, -1e-6)]
                    found[name][index] += unit * (ends[0] - ends[1]) / 2e-6
    return found


def check(p: CompiledProgram, x: tuple[Any, ...]) -> None:
    """All ways to the gradient return what differences return, and leave x alone."""
    given = copied(x)
    y = p.function(*copied(x))
    ybar = weights(y)
    wanted = steepest(p.function, x, ybar)
    assert any(np.any(each) for each in wanted.values())
    for options in (None, Options(base=1), Options(base=3)):
        if options is None:
            found, xbar = vjp(p, x, ybar)
        else:
            found, xbar = checkpoint_vjp(p, x, ybar, options)
        assert str(found) == str(y)
        compare(leaves(xbar, "x"), wanted)
    model: Any = as_chain(p, x, 2, ybar=ybar)
    steps = model.measure().steps
    model.record(0, steps)
    for step in reversed(range(steps)):
        model.reverse(step, step + 1)
    bars, ys = leaves(ybar, "y"), leaves(y, "y")
    parts = (np.vdot(bars[name], leaf).real for name, leaf in ys.items() if has_derivative(leaf))
    assert model.functional == pytest.approx(sum(parts))
    compare(model.gradient, wanted)
    assert str(x) == str(given)


def compare(found: Any, wanted: dict[str, Any]) -> None:
    for name, each in wanted.items():
        assert np.asarray(found[name]).dtype == each.dtype
        np.testing.assert_allclose(found[name], each, rtol=1e-6, atol=1e-8, err_msg=name)


# Items of an input that the program replaces


@program
def replaced(s):
    i = 0
    while i < 5:
        s["u"] = s["u"] * s["k"]
        i = i + 1
    return s, np.sum(s["u"] ** 2)


@program
def nested(s):
    inner = s["a"]
    i = 0
    while i < 5:
        inner["u"] = s["a"]["u"] * 0.9 + s["t"][1]
        s["t"] = (s["t"][1], inner["u"])
        i = i + 1
    return np.sum(s["a"]["u"] ** 2)


@program
def in_list(s):
    i = 0
    while i < 5:
        s[0], s[1] = s[1] * 0.9, s[0]
        s.append(s[0] * s[-1])
        s[1:2] = [s[2] * s[0]]
        i = i + 1
    return np.sum(s[-1] ** 2) + s[0]


@program
def popped(s):
    y = 0.0
    while s:
        y = y * 1.1 + s.pop() ** 2
    return y


@program
def updated(s):
    s.setdefault("w", s["u"] * 2)
    i = 0
    while i < 5:
        s |= {"u": s["u"] * s["k"]}
        s.update(w=s["w"] + s["u"])
        i = i + 1
    return np.sum(s.pop("w") ** 2)


@program
def fields(s):
    i = 0
    while i < 5:
        s.u[0] = s.u[0] * 0.9 + s.k
        s = s._replace(k=s.k * s.u[0])
        i = i + 1
    return np.sum(s.k)


@program
def in_place(u, v):
    i = 0
    while i < 5:
        u += v * u
        v = v * u[1:2]
        i = i + 1
    return np.sum(u**2)


ITEMS = [
    (replaced, ({"u": U, "k": 0.9, "n": 3},)),
    (nested, ({"a": {"u": U}, "t": (2.0, U + 1)},)),
    (in_list, ([U, 2 * U],)),
    (popped, ([0.1, 0.2, 0.3, 0.4],)),
    (updated, ({"u": U, "k": 0.5},)),
    (fields, (Fields([U], U + 1),)),
    (in_place, (U, U)),
]


@pytest.mark.parametrize(("p", "x"), ITEMS, ids=lambda value: getattr(value, "__name__", ""))
def test_replaced_items_of_an_input_have_the_derivative_of_what_was_given(
    p: CompiledProgram, x: tuple[Any, ...]
) -> None:
    check(p, x)


# Complex numbers


@program
def turned(z, c, k):
    i = 0
    while i < 5:
        z = z * np.exp(c * k) + 0.1 * np.conj(z) * np.abs(z)
        i = i + 1
    return z, np.sum(z.real * z.imag)


@program
def parts(z):
    """The parts are live without the array that they are parts of."""
    w = z * (1 + 0.3j)
    re, im = w.real, w.imag
    i = 0
    while i < 5:
        re += 0.9 * im * im
        im = 1.1 * im
        i = i + 1
    return np.sum(re * re * im)


@program
def transformed(z, a):
    i = 0
    while i < 3:
        z = np.fft.ifft(np.fft.fft(z) * np.array([1.0, 0.5j, -0.5j]))
        z = np.linalg.solve(a, z) + a @ np.conj(z) / (2 + np.abs(z))
        z[1:] += 1j * z[:-1].real
        i = i + 1
    return z, np.vdot(z, z**3)


@primitive(vjp=lambda result, z: lambda g: (np.conj(2 * z) * g,))
def squared(z):
    return z * z


@program
def by_primitive(z):
    i = 0
    while i < 2:
        z = squared(z) + 1j
        i = i + 1
    return z


A = np.eye(3) * (2 + 0.5j) + np.outer(Z, Z)
NUMBERS = [
    (turned, (Z, 0.3 - 0.2j, 0.7)),
    (parts, (Z,)),
    (transformed, (Z, A)),
    (by_primitive, (Z,)),
]


@pytest.mark.parametrize(("p", "x"), NUMBERS, ids=lambda value: getattr(value, "__name__", ""))
def test_complex_gradients_are_directions_of_steepest_ascent(
    p: CompiledProgram, x: tuple[Any, ...]
) -> None:
    check(p, x)


# Inputs that have no gradient


def test_keys_with_the_same_text_are_refused() -> None:
    for x in ({1: U, "1": 2 * U}, {"a.b": U, "a": {"b": U}}):
        with pytest.raises(BadInput, match="two values are called x"):
            vjp(replaced, (x,), 1.0)


MASKED = np.ma.array(U, mask=[True, False, False])


@pytest.mark.usefixtures("doubles_in_jax")
def test_masked_arrays_are_refused_because_the_mask_would_be_lost() -> None:
    doubled = jax_program(lambda u: 2 * u, U)
    for p in (in_place, doubled):
        x = (U, U) if p is in_place else (U,)
        for call in (vjp, checkpoint_vjp):
            with pytest.raises(BadInput, match=r"x\.0 is a masked array.*filled"):
                call(p, (MASKED, *x[1:]), 1.0)
        with pytest.raises(BadInput, match=r"x\.0 is a masked array"):
            as_chain(p, (MASKED, *x[1:]), 1)
    with pytest.raises(BadInput, match="ybar is a masked array"):
        vjp(doubled, (U,), MASKED)
    with pytest.raises(BadInput, match="MaskedArray; inputs"):
        jax_program(lambda u: 2 * u, MASKED)


@program
def halved(u, k, unused):
    i = 0
    while i < 4:
        u *= k
        i = i + 1
    return np.sum(u * u)


@pytest.mark.parametrize("dtype", [">f8", "f4", "f2", "c8"])
def test_a_gradient_has_the_dtype_and_shape_of_its_input(dtype: str) -> None:
    u = (10 * U).astype(dtype)
    u.flags.writeable = False
    for given in (u, u[:1], u[:0], np.array(u[0]), u[0]):
        for options in (Options(), Options(base=1)):
            bars = checkpoint_vjp(halved, (given, np.array(0.5), given), 1.0, options)[1]
            ubar, kbar, zeros = map(np.asarray, bars)
            assert ubar.dtype == zeros.dtype == np.asarray(given).dtype
            np.testing.assert_allclose(ubar, 2 * np.conj(given) * 0.5**8, rtol=2e-3)
            np.testing.assert_allclose(kbar, 8 * np.sum(given * given).real * 0.5**7, rtol=2e-3)
            assert not zeros.any()


# Programs that do not compute the same once more


class Hidden:
    """A function that counts its calls."""

    calls = 0

    def __call__(self, u: Any) -> Any:
        self.calls += 1
        return u * (1 + 1e-12 * self.calls)


hidden = Hidden()


@program
def counts(u):
    i = 0
    while i < 8:
        u = hidden(u)
        i = i + 1
    return np.sum(u)


@program
def tells_the_time(u):
    i = 0
    while i < 8:
        u = u * (1 + time.perf_counter())
        i = i + 1
    return np.sum(u)


@program
def own_generator(u):
    random = np.random.default_rng()
    i = 0
    while i < 8:
        u = u * random.random()
        i = i + 1
    return np.sum(u)


def with_zeros(s: Any) -> Any:
    s["v"] = np.zeros(3)
    return s


@program
def changed_and_returned(s):
    other = with_zeros(s)
    i = 0
    while i < 8:
        other["u"] = other["u"] * 0.9
        i = i + 1
    return np.sum(s["u"] ** 2)


@pytest.mark.parametrize("p", [counts, tells_the_time, own_generator, changed_and_returned])
def test_what_differs_when_it_is_run_once_more_ends_the_run(p: CompiledProgram) -> None:
    x = ({"u": U},) if p is changed_and_returned else (U,)
    with pytest.raises(RunFailed, match="not reproducible: y differed"):
        vjp(p, x, 1.0)
    for options in (Options(base=1), Options(base=4), Options(base=3, schedule="revolve", slots=1)):
        with pytest.raises(RunFailed, match=r"not reproducible: .* differed"):
            checkpoint_vjp(p, x, 1.0, options)
