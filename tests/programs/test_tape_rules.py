"""Each derivative rule against central differences, each value against plain numpy."""

# ruff: noqa: E501, PLW0108 - tables with one small program a line

import numpy as np
import pytest

from ckio.errors import BadInput
from ckio.programs.tape import Tape, Traced

from .taping import check

RNG = np.random.default_rng(3)


def real(*shape):
    return RNG.uniform(0.2, 0.9, shape) * RNG.choice([-1, 1], shape)


def positive(*shape):
    return RNG.uniform(0.3, 0.9, shape)


def cplx(*shape):
    return real(*shape) + 1j * real(*shape)


UNARY = """
negative positive absolute fabs square reciprocal exp exp2 expm1 sin cos tan arcsin arccos arctan
sinh cosh tanh arcsinh arctanh cbrt deg2rad radians rad2deg degrees floor ceil rint trunc sign
conjugate
"""
POSITIVE = "sqrt log log2 log10 log1p arccosh"
BINARY = """
add subtract multiply divide remainder fmod arctan2 hypot maximum minimum fmax fmin logaddexp
floor_divide
"""
COMPLEX = "negative absolute square reciprocal exp sin cos tan sinh cosh tanh sqrt log conjugate"


def test_unary():
    for name in UNARY.split():
        for x in (real(3, 4), real(), 0.37, np.float64(-0.4), real(2, 3).T, real(0)):
            check(getattr(np, name), x)
    for name in POSITIVE.split():
        shift = 1.2 if name == "arccosh" else 0.0
        for x in (positive(3, 4) + shift, 0.37 + shift, positive(6)[::2] + shift):
            check(getattr(np, name), x)
    for name in COMPLEX.split():
        check(getattr(np, name), cplx(3))
        check(getattr(np, name), 0.3 + 0.4j)


def test_binary():
    for name in BINARY.split():
        function = getattr(np, name)
        for x, y in (
            *((real(3, 4), real(3, 4)), (real(3, 1), real(4)), (real(2, 1, 3), 0.3)),
            *((0.31, real(2)), (0.33, 0.57), (np.float64(-0.2), real())),
            (real(1, 3), real(2, 0, 3)),
        ):
            check(function, x, y)
        row = real(3)
        check(lambda x, f=function, y=row: f(x, y), real(2, 3))
        check(lambda x, f=function, y=row: f(y, x), real(2, 3))
    for name in ("add", "subtract", "multiply", "divide", "power"):
        check(getattr(np, name), cplx(2, 3) + 2, cplx(3))
        check(getattr(np, name), positive(2, 3), cplx(3))


def test_operators():
    check(lambda x, y: (x + y, x - y, x * y, x / y, x % y, x // y, x**y), positive(3), positive(3))
    check(lambda x: (2.0 + x, 2 - x, 2 * x, 2 / x, 2.0**x, x**2, x**3, x**-1, x**0, x**0.5),
          positive(3))  # fmt: skip
    check(lambda x: (2.0 + x, 2 - x, 2 * x, 2 / x, 2.0**x, x**2, x**3, x**-1, x**0, x**0.5), 0.7)
    check(lambda x: (abs(x), -x, +x, x // 0.3, 1.0 % x), 0.7)
    check(lambda x, y: (x @ y, x @ x, np.ones(3) @ y), real(3, 3), real(3, 2))
    check(lambda x: (np.float64(1.3) * x, np.ones(3) * x, np.ones(3) / x), 0.3)


def test_power_at_zero():
    tape = Tape()
    x = tape.input(np.array([0.0, 0.0, 2.0]))
    y = x ** np.array([0, 1, 2]) + x**2 + x**1
    (found,) = tape.backward([(y, np.ones(3))], [x])
    assert found.tolist() == [1.0, 2.0, 9.0]
    tape = Tape()
    x = tape.input(0.0)
    (found,) = tape.backward([(x**2 + x**0 + np.power(x, 2), np.array(1.0))], [x])
    assert found == 0


def test_ties_are_shared():
    tape = Tape()
    x, y = tape.input(np.array([1.0, 1.0, 0.5])), tape.input(np.ones(3))
    found = tape.backward([(np.maximum(x, y), np.ones(3)), (np.max(x), 1.0)], [x, y])
    assert found[0].tolist() == [1.0, 1.0, 0.0]
    assert found[1].tolist() == [0.5, 0.5, 1.0]


A, B = [0, 2, 1], np.array([True, False, True])
REDUCED = {
    "sum": lambda x: (np.sum(x), x.sum(0), x.sum((0, 1)), np.sum(x, axis=-1, keepdims=True)),
    "mean": lambda x: (np.mean(x), x.mean(1), x.mean(axis=(0, -1), keepdims=True)),
    "var": lambda x: (np.var(x), x.var(0), np.var(x, axis=1, ddof=1, keepdims=True)),
    "std": lambda x: (np.std(x), x.std(0), np.std(x, axis=(0, 1), ddof=1)),
    "prod": lambda x: (np.prod(x), x.prod(0), np.prod(x, axis=(0, 1), keepdims=True)),
    "max": lambda x: (np.max(x), x.max(0), np.amax(x, axis=1, keepdims=True)),
    "min": lambda x: (np.min(x), x.min(0), np.amin(x, axis=(0, 1))),
    "cumsum": lambda x: (np.cumsum(x), x.cumsum(0), np.cumsum(x, axis=-1)),
    "cumprod": lambda x: (np.cumprod(x), x.cumprod(0), np.cumprod(x, axis=-1)),
    "clip": lambda x: (
        np.clip(x, -0.4, 0.5),
        x.clip(0.1),
        np.clip(x, x * x, None),
        x.clip(max=0.2),
    ),
    "norm": lambda x: (
        np.linalg.norm(x),
        np.linalg.norm(x, axis=0),
        np.linalg.norm(x, axis=(1, 0), keepdims=True),
    ),
}
MOVED = {
    "reshape": lambda x: (x.reshape(4, 3), np.reshape(x, -1), x.T.reshape(-1), x.reshape((2, 6))),
    "ravel": lambda x: (x.ravel(), x.T.ravel(), x.flatten(), np.ravel(x, order="F")),
    "transpose": lambda x: (x.T, np.transpose(x), x.transpose(1, 0), x.swapaxes(0, 1)),
    "axes": lambda x: (np.moveaxis(x, 0, 1), np.expand_dims(x, 1), np.squeeze(x[None]), x[None].squeeze()),
    "broadcast": lambda x: np.broadcast_to(x, (2, 3, 4)) * 2,
    "flip": lambda x: (np.flip(x), np.flip(x, 0), np.fliplr(x), np.rot90(x), np.rot90(x, 2)),
    "roll": lambda x: (np.roll(x, 1), np.roll(x, -2, axis=1), np.roll(x, (1, 2), (0, 1))),
    "tile": lambda x: (np.tile(x, 2), np.tile(x, (2, 1)), np.repeat(x, 2), x.repeat([1, 0, 2], 0)),
    "join": lambda x: (np.concatenate([x, x[:1], np.ones((1, 4))]), np.stack([x, 2 * x], 1),
                       np.append(x, x[0]), np.block([[x, x], [x, np.zeros((3, 4))]])),
    "stacks": lambda x: (np.hstack([x, x]), np.vstack([x, x[0]]), np.column_stack([x[:, 0], x])),
    "scalars": lambda x: (np.stack([x[0, 0], x[1, 1]]), np.hstack([x[0, 0], 1.0]), np.atleast_1d(x[0, 1])),
    "split": lambda x: [2 * it for it in (*np.split(x, 2, 1), *np.array_split(x, 2), *np.hsplit(x, 2))],
    "pad": lambda x: [np.pad(x, 2, mode=m) for m in ("constant", "edge", "wrap", "reflect")],
    "pad more": lambda x: np.pad(x, ((1, 0), (0, 2)), constant_values=3.0),
    "take": lambda x: (np.take(x, A), x.take([0, 0, 2], axis=0), np.take_along_axis(x, np.argsort(x.value if type(x) is Traced else x), 1)),
    "sort": lambda x: (np.sort(x), np.sort(x, axis=0), np.sort(x, axis=None)),
    "where": lambda x: (np.where(x > 0, x, x * x), np.where(B[:, None], x, 0.0), np.where(x < 0, 1.0, x[0])),
    "triangles": lambda x: (np.tril(x), np.triu(x, 1), np.trace(x), np.diag(x), np.diag(x[0]), np.diagonal(x, 1)),
    "index": lambda x: (x[0], x[:, 1], x[1, 2], x[A], x[A, A], x[:, [0, 0]], x[x > 0], x[B], x[..., None], x[-1][-1]),
    "diff": lambda x: (np.diff(x), np.diff(x, axis=0), np.diff(x, 2)),
    "gradient": lambda x: (np.gradient(x, 0.1, axis=0), np.gradient(x, axis=1), np.gradient(x[0], 0.5)),
    "trapezoid": lambda x: (np.trapezoid(x), np.trapezoid(x, dx=0.1, axis=0), np.trapezoid(x, np.arange(4.0))),
    "shifts": lambda x: (np.fft.fftshift(x), np.fft.ifftshift(x, axes=0), np.delete(x, 1, 0)),
    "iteration": lambda x: [sum(row) for row in x],
    "casts": lambda x: (x.astype(complex) * 2, x.copy() * 3, np.copy(x), np.real(x), x.real * 2),
    "rounding": lambda x: (np.round(x, 1), x.round(2), np.fix(x)),
}  # fmt: skip


def test_reductions():
    for function in REDUCED.values():
        check(function, real(3, 4))
        check(function, real(4, 3).T)


def test_moved():
    for name, function in MOVED.items():
        check(function, real(3, 4))
        if name not in ("where", "sort", "take", "index", "gradient", "trapezoid", "rounding"):
            check(function, cplx(3, 4))


def test_products_with_zeros():
    x = real(3, 4)
    x[1, 1] = x[1, 2] = x[0, 3] = 0.0
    check(lambda x: (np.prod(x), np.prod(x, axis=0), np.cumprod(x, axis=1), np.cumprod(x)), x)


@pytest.mark.parametrize("make", [real, cplx])
def test_products(make):
    for a, b in (((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)),
                 ((5, 1, 2, 3), (4, 3, 2)), ((3,), (5, 3, 2)), ((5, 2, 3), (3,))):  # fmt: skip
        check(np.matmul, make(*a), make(*b))
        if len(a) < 3:
            check(np.dot, make(*a), make(*b))
    check(lambda x, y: (np.vdot(x, y), np.outer(x, y), x.dot(y)), make(3), make(3))
    check(lambda x, y: np.cross(x, y), make(2, 3), make(2, 3))


def test_einsum():
    for subscripts in ("ij,jk->ik", "ij,jk", "ij,kj->i", "ij,ab->", "ij,jk->kij"):
        shape = (3, 4) if "jk" in subscripts else (3, 3)
        check(lambda x, y, to=subscripts: np.einsum(to, x, y), real(2, 3), real(*shape))


def test_einsum_of_one():
    check(lambda x: np.einsum("ij->j", x), real(3, 3))
    check(lambda x: np.einsum("aij,aj->ai", x, x[:, 0]), real(2, 3, 3))
    check(lambda x: np.einsum("ij,ij,j->i", x, x, x[0]), cplx(3, 3))


def spd(x):
    return x @ x.T + 3.0 * np.eye(3)


@pytest.mark.parametrize("make", [real, cplx])
def test_linear_algebra(make):
    eye = 3.0 * np.eye(3)
    check(lambda a, b: np.linalg.solve(a + eye, b), make(3, 3), make(3))
    check(lambda a, b: np.linalg.solve(a + eye, b), make(2, 3, 3), make(3, 2))
    check(lambda a: (np.linalg.inv(a + eye), np.linalg.det(a), np.linalg.norm(a)), make(2, 3, 3))
    if make is real:
        check(lambda a: np.linalg.cholesky(spd(a)), make(3, 3))
        check(lambda a: np.linalg.cholesky(a + 9 * eye), make(3, 3))


def test_grids():
    check(lambda x: np.broadcast_to(x, (2, 3)) * np.ones((2, 3)), 0.3)
    check(
        lambda x: (
            np.gradient(x[0]),
            np.gradient(x, 0.1, axis=0),
            np.gradient(x, axis=(1,)),
        ),
        real(3, 4),
    )
    check(
        lambda x, t: np.gradient(x, t, axis=1),
        real(2, 4),
        np.array([0.0, 0.1, 0.4, 0.5]),
    )


def test_interpolation_on_nodes_that_move():
    xp = np.array([-1.0, -0.35, 0.1, 0.95])
    check(lambda x, xp, fp: np.interp(x, xp, fp), real(5), xp, real(4))


def test_singular_determinant():
    check(np.linalg.det, np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [0.5, 1.0, -1.0]]))


def test_fourier():
    fft = np.fft
    for n in (4, 5):
        check(
            lambda x: (fft.fft(x), fft.ifft(x), fft.fft(x, axis=0), fft.fft(x, 3), fft.ifft(x, 7)),
            cplx(3, n),
        )
        check(
            lambda x: (
                fft.fft(x),
                fft.rfft(x),
                fft.rfft(x, 3),
                fft.rfft(x, 8),
                fft.rfft(x, axis=0),
            ),
            real(3, n),
        )
        check(
            lambda x: (
                fft.irfft(x),
                fft.irfft(x, 5),
                fft.irfft(x, 4, norm="ortho"),
                fft.irfft(x, 12),
            ),
            cplx(3, n),
        )
        check(lambda x: (fft.fft2(x), fft.ifft2(x, norm="ortho"), fft.fftn(x), fft.ifftn(x, axes=(0,)),
                         fft.fftn(x, s=(2, 6), axes=(0, 1))), cplx(3, n))  # fmt: skip


def test_complex_parts():
    check(lambda z: (z.real, z.imag, np.real(z), np.imag(z), np.conj(z), z.conj(), abs(z)), cplx(3))
    check(lambda z: (z.real, z.imag, z.conjugate(), abs(z)), 0.3 + 0.4j)
    check(lambda z: (z.real * z.imag, z.T.imag[1:] ** 2), cplx(2, 3))
    check(
        lambda z: (np.clip(z.real, -0.4, 0.4), np.trapezoid(z.imag), np.std(z.T.real)), cplx(2, 3)
    )


def test_interpolation():
    xp = np.array([-1.0, -0.35, 0.1, 0.95])
    check(lambda x, fp: np.interp(x, xp, fp), real(5) * 1.5, real(4))
    check(lambda x, fp: np.interp(x, xp, fp, left=0.5), 0.3, real(4))
    check(lambda x, y: np.trapezoid(y, x), np.sort(positive(4)), real(4))


def test_float32_stays_float32():
    x = real(4).astype(np.float32)
    tape = Tape()
    traced, number = tape.input(x), tape.input(np.float32(0.5))
    y = np.sum(traced * 2.0 * number) + np.sin(number)
    assert y.dtype == np.float32
    found = tape.backward([(y, np.float32(1.0))], [traced, number])
    assert [it.dtype for it in found] == [np.float32, np.float32]
    np.testing.assert_allclose(found[0], np.full(4, 1.0), rtol=1e-6)
    np.testing.assert_allclose(found[1], 2 * x.sum() + np.cos(0.5), rtol=1e-5)


def test_comparisons_and_facts_are_plain():
    tape = Tape()
    x, y = tape.input(real(3)), tape.input(0.5)
    assert type(x > 0) is np.ndarray
    assert type(y < 1) is bool
    assert isinstance(y, float)
    assert isinstance(x, np.ndarray)
    assert (x.shape, x.ndim, x.size, x.dtype, len(x), np.shape(y)) == ((3,), 1, 3, float, 3, ())
    assert type(np.argmax(x)) is np.int64
    assert np.isfinite(x).all()
    assert np.allclose(x, x.value)
    assert f"{y:.2f}" == "0.50"
    assert max(y, 1.0) == 1.0
    assert tape.nodes == 0


MASK = np.array([True, False, True])
AROUND = {
    "where= of a sum": (lambda u, v: np.sum(u, where=MASK), lambda u, v: np.sum(np.where(MASK, u, 0))),
    "where= of a mean": (lambda u, v: np.mean(u, where=MASK), lambda u, v: np.mean(u[MASK])),
    "where= of a ufunc": (lambda u, v: into(np.divide, u, v), lambda u, v: masked(np.divide, u, v)),
    "initial= of a sum": (lambda u, v: np.sum(u, initial=0.5), lambda u, v: np.sum(u) + 0.5),
    "initial= of a maximum": (lambda u, v: np.max(u, initial=0.5), lambda u, v: np.maximum(np.max(u), 0.5)),
    "initial= of a product": (lambda u, v: u.prod(initial=3.0), lambda u, v: u.prod() * 3.0),
    "mean= of a variance": (lambda u, v: np.var(u, mean=v[:1]), lambda u, v: np.mean((u - v[0]) ** 2)),
    "np.average": (lambda u, v: np.average(u, weights=v), lambda u, v: np.sum(v * u) / np.sum(v)),
    "np.ptp": (lambda u, v: np.ptp(u), lambda u, v: np.max(u) - np.min(u)),
    "np.nansum": (lambda u, v: np.nansum(u), lambda u, v: np.sum(np.where(np.isnan(u), 0.0, u))),
    "np.kron": (lambda u, v: np.kron(u[None], v[None]),
                lambda u, v: np.einsum("ij,kl->ikjl", u[None], v[None]).reshape(1, -1)),
    "np.meshgrid": (lambda u, v: np.meshgrid(u, v)[0] * np.meshgrid(u, v)[1],
                    lambda u, v: u[None, :] * v[:, None]),
    "np.broadcast_arrays": (lambda u, v: np.broadcast_arrays(u[None], v[:, None])[0] * 2,
                            lambda u, v: np.broadcast_to(u[None], (3, 3)) * 2),
    "np.maximum.accumulate": (lambda u, v: np.maximum.accumulate(u), lambda u, v: running(u)),
    "np.divmod": (lambda u, v: np.divmod(u, v)[1], lambda u, v: u % v),
    "divmod": (lambda u, v: divmod(u[0], v[0])[1], lambda u, v: u[0] % v[0]),
    "prepend=": (lambda u, v: np.diff(u, prepend=0.0), lambda u, v: np.diff(np.concatenate([[0.0], u]))),
    "ord=2": (lambda u, v: np.linalg.norm(u, 2), lambda u, v: np.linalg.norm(u)),
    "ord=3": (lambda u, v: np.linalg.norm(u, 3), lambda u, v: np.sum(np.abs(u) ** 3) ** (1 / 3)),
    "ord=inf": (lambda u, v: np.linalg.norm(u, np.inf), lambda u, v: np.max(np.abs(u))),
    "np.linspace": (lambda u, v: np.linspace(u, v, 4),
                    lambda u, v: u + (v - u) * np.linspace(0, 1, 4)[:, None]),
    "np.polyval": (lambda u, v: np.polyval(u, v), lambda u, v: (u[0] * v + u[1]) * v + u[2]),
    "np.sinc": (lambda u, v: np.sinc(u), lambda u, v: np.sin(np.pi * u) / (np.pi * u)),
    "np.angle": (lambda u, v: np.angle(u + 1j * v),
                 lambda u, v: np.arctan2((u + 1j * v).imag, (u + 1j * v).real)),
    "edge_order=": (lambda u, v: np.gradient(u, 0.1, edge_order=2)[0],
                    lambda u, v: (4 * u[1] - 3 * u[0] - u[2]) / (2 * 0.1)),
    "np.gradient": (lambda u, v: np.gradient(u[:, None] * v, 0.1)[1],
                    lambda u, v: np.gradient(u[:, None] * v, 0.1, axis=1)),
    "np.linalg.slogdet": (lambda u, v: np.linalg.slogdet(u[:, None] * v + np.eye(3))[1],
                          lambda u, v: np.log(np.abs(np.linalg.det(u[:, None] * v + np.eye(3))))),
    "einsum of ii": (lambda u, v: np.einsum("ii", np.outer(u, v)),
                     lambda u, v: np.einsum("i->", np.diagonal(np.outer(u, v)))),
    "einsum of ...": (lambda u, v: np.einsum("...i,i->...", u[None], v),
                      lambda u, v: np.einsum("ai,i->a", u[None], v)),
    "np.logaddexp2": (lambda u, v: np.logaddexp2(u, v), lambda u, v: np.log2(2.0**u + 2.0**v)),
    "slogdet of a positive definite matrix": (
        lambda u, v: np.linalg.slogdet(u[:, None] * u + np.eye(3))[1],
        lambda u, v: 2 * np.sum(np.log(np.diagonal(np.linalg.cholesky(u[:, None] * u + np.eye(3)))))),
    "np.pad": (lambda u, v: np.pad(u, 1, mode="mean"),
               lambda u, v: np.concatenate([[np.mean(u)], u, [np.mean(u)]])),
    "np.inner": (lambda u, v: np.inner(u, v), lambda u, v: u @ v),
    "np.tensordot": (lambda u, v: np.tensordot(u, v, 1), lambda u, v: np.einsum("i,i", u, v)),
    "np.dot of a number": (lambda u, v: np.dot(u, v[0]), lambda u, v: u * v[0]),
    "np.nan_to_num": (lambda u, v: np.nan_to_num(u), lambda u, v: np.where(np.isfinite(u), u, 0.0)),
    "np.copysign": (lambda u, v: np.copysign(u, v),
                    lambda u, v: np.where(v < 0, -np.abs(u), np.abs(u))),
    "np.float_power": (lambda u, v: np.float_power(np.abs(u), v), lambda u, v: np.abs(u) ** v),
    "np.ldexp": (lambda u, v: np.ldexp(u, 3), lambda u, v: u * 2.0**3),
    "np.add.reduce": (lambda u, v: np.add.reduce(u), lambda u, v: np.sum(u)),
    "np.add.accumulate": (lambda u, v: np.add.accumulate(u), lambda u, v: np.cumsum(u)),
}  # fmt: skip
"""What is refused, and what the user writes instead."""


def into(function, u, v):
    w = np.zeros_like(u)
    function(u, v, out=w, where=MASK)
    return w


def masked(function, u, v):
    w = np.zeros_like(u)
    w[MASK] = function(u[MASK], v[MASK])
    return w


def running(u):
    return np.stack([u[0], np.maximum(u[0], u[1]), np.maximum(np.maximum(u[0], u[1]), u[2])])


@pytest.mark.parametrize("name", AROUND)
def test_what_is_refused_has_a_way_around(name):
    """No value and no derivative comes from the refused call; the other gives both."""
    refused, other = AROUND[name]
    u, v = real(3), real(3)
    np.testing.assert_allclose(other(u, v), refused(u, v), rtol=1e-14)
    tape = Tape()
    with pytest.raises(BadInput, match=r"rule for derivatives; [a-z]+ "):
        refused(tape.input(u), tape.input(v))
    check(other, u, v)
