"""Functions of numpy whose derivatives are those of equivalent simpler functions.

numpy's own function computes the value. In the reverse sweep, the equivalent is computed from the
arguments on a small tape of its own, and this tape is reversed. The last functions of this module
return several arrays. They are composed of simpler functions already in the forward sweep.
"""

# ruff: noqa: PLR0917 - rules have the signatures of numpy's functions

from collections.abc import Callable
from typing import Any

import numpy as np

from ckio.errors import BadInput
from ckio.programs.tape.cells import conjugate
from ckio.programs.tape.dispatch import COMPOSED
from ckio.programs.tape.operations import call, plain
from ckio.programs.tape.rules import RULES, NumpyCall, Path, Pulled, Rule, at, refused, replaced
from ckio.programs.tape.tape import Tape


def _equivalent(function: Callable[..., Any], check: Callable[..., None] | None = None) -> Rule:
    """Return the rule of a function that returns the same as this one.

    `check` raises BadInput first if the equivalent does not support the arguments.
    """

    def rule(call: NumpyCall) -> Pulled:
        if any(len(path) > 1 for path in call.paths):
            raise BadInput("a list of traced values would lose their derivatives; use np.stack")
        if check is not None:
            if any(path not in ((0,), ("x",), ("a",), ("weights",), (2,)) for path in call.paths):
                raise refused("a traced option of a function of arrays")
            check(*call.args, **call.kwargs)
        return _pull, (function, call.paths, call.args, call.kwargs)

    return rule


def _pull(g: Any, function: Any, paths: list[Path], args: Any, kwargs: Any) -> Any:
    tape = Tape()
    inputs = [tape.input(at(path, args, kwargs)) for path in paths]
    given = replaced(dict(zip(paths, inputs, strict=True)), args, kwargs)
    bars = tape.backward([(function(*given[0], **given[1]), conjugate(g))], inputs)
    return conjugate(bars)


def _diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    parts = []
    for part in (prepend, a, append):
        if part is not None and part is not np._NoValue:  # noqa: SLF001
            shape = list(np.shape(a))
            shape[axis] = 1
            parts.append(np.broadcast_to(part, tuple(shape)) if np.ndim(part) == 0 else part)
    a = np.concatenate(parts, axis=axis) if len(parts) > 1 else a
    for _ in range(n):
        axis %= np.ndim(a)
        ahead: tuple[Any, ...] = (slice(None),) * axis
        a = a[(*ahead, slice(1, None))] - a[(*ahead, slice(None, -1))]
    return a


def _trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    y, x = _arrays(y, x)
    y = np.moveaxis(y, axis, -1)
    if x is None:
        widths = dx
    else:
        widths = np.diff(x) if np.ndim(x) == 1 else np.diff(np.moveaxis(x, axis, -1))
    return np.sum(widths * (y[..., 1:] + y[..., :-1]) / 2.0, axis=-1)


def _gradient(f: Any, *spacing: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """Return the gradient along one axis."""
    h: Any = _arrays(spacing[0])[0] if spacing else 1.0
    h = np.float64(h) if isinstance(h, int | float) and not hasattr(h, "value") else h
    axis = 0 if axis is None else axis
    f = np.moveaxis(f, axis, -1)
    if np.ndim(h):
        h = np.diff(h)
        before, after = h[:-1], h[1:]
    else:
        before = after = h
    a, c = -after / (before * (before + after)), before / (after * (before + after))
    inner = a * f[..., :-2] - (a + c) * f[..., 1:-1] + c * f[..., 2:]
    ends = (h[0], h[-1]) if np.ndim(h) else (h, h)
    first, last = (f[..., 1] - f[..., 0]) / ends[0], (f[..., -1] - f[..., -2]) / ends[1]
    if edge_order == 2:
        one, two = (h[0], h[1]) if np.ndim(h) else (h, h)
        first = (
            -(2.0 * one + two) / (one * (one + two)) * f[..., 0]
            + (one + two) / (one * two) * f[..., 1]
            - one / (two * (one + two)) * f[..., 2]
        )
        one, two = (h[-2], h[-1]) if np.ndim(h) else (h, h)
        last = (
            two / (one * (one + two)) * f[..., -3]
            - (two + one) / (one * two) * f[..., -2]
            + (2.0 * two + one) / (two * (one + two)) * f[..., -1]
        )
    whole = np.concatenate([first[..., None], inner, last[..., None]], axis=-1)
    return np.moveaxis(whole, -1, axis)


def _cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1,
           axis: int | None = None) -> Any:  # fmt: skip
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = np.moveaxis(a, axisa, -1), np.moveaxis(b, axisb, -1)
    if np.shape(a)[-1] != 3 or np.shape(b)[-1] != 3:
        raise refused("np.cross of vectors of two components")
    parts = [a[..., i] * b[..., j] - a[..., j] * b[..., i] for i, j in ((1, 2), (2, 0), (0, 1))]
    return np.moveaxis(np.stack(parts, axis=-1), -1, axisc)


def _kron(a: Any, b: Any) -> Any:
    a, b = _arrays(a, b)
    ndim = max(np.ndim(a), np.ndim(b))
    one = (1,) * (ndim - np.ndim(a)) + np.shape(a)
    two = (1,) * (ndim - np.ndim(b)) + np.shape(b)
    left = np.reshape(a, tuple(n for length in one for n in (length, 1)))
    right = np.reshape(b, tuple(n for length in two for n in (1, length)))
    return np.reshape(left * right, tuple(p * q for p, q in zip(one, two, strict=True)))


def _tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    a, b = _arrays(a, b)
    first, second = np.ndim(a), np.ndim(b)
    if not first or not second:
        return (
            a * b
            if not first and not second
            else np.reshape(np.ravel(a)[:, None] * np.ravel(b), np.shape(a) + np.shape(b))
        )
    if isinstance(axes, int):
        axes = range(first - axes, first), range(axes)
    over, under = ([it] if isinstance(it, int) else list(it) for it in axes)
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    left = list(letters[:first])
    right = list(letters[first : first + second])
    for i, j in zip(over, under, strict=True):
        right[j] = left[i]
    shared = set(left) & set(right)
    output = [it for it in left + right if it not in shared]
    return np.einsum(f"{''.join(left)},{''.join(right)}->{''.join(output)}", a, b)


def _arrays(*values: Any) -> Any:
    """Return the values with lists and tuples replaced by arrays."""
    return tuple(np.array(it) if type(it) in (list, tuple) else it for it in values)


def _dot(a: Any, b: Any, out: Any = None) -> Any:
    a, b = _arrays(a, b)
    if np.ndim(a) == 0 or np.ndim(b) == 0:
        return a * b
    return _tensordot(a, b, ((-1,), (-2 if np.ndim(b) > 1 else -1,)))


def _inner(a: Any, b: Any) -> Any:
    a, b = _arrays(a, b)
    return a * b if np.ndim(a) == 0 or np.ndim(b) == 0 else _tensordot(a, b, ((-1,), (-1,)))


def _outer(a: Any, b: Any, out: Any = None) -> Any:
    a, b = _arrays(a, b)
    return np.ravel(a)[:, None] * np.ravel(b)[None, :]


def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:  # noqa: A002
    """Return the norm. Its derivative at 0 is 0."""
    flat = axis is None and (ord is None or np.ndim(x) == 1)
    matrix = not flat and (np.ndim(x) == 2 if axis is None else isinstance(axis, tuple))
    if ord in (None, "fro") or (ord == 2 and not matrix):
        square = np.sum(np.real(x) ** 2, axis=axis, keepdims=keepdims)
        if np.iscomplexobj(x):
            square = square + np.sum(np.imag(x) ** 2, axis=axis, keepdims=keepdims)
        zero = square == 0
        return np.where(zero, 0.0, np.sqrt(np.where(zero, 1.0, square)))
    size = np.abs(x)
    by: Any = {1: np.max, np.inf: np.max, -1: np.min, -np.inf: np.min}
    if matrix:
        row, column = (0, 1) if axis is None else (it % np.ndim(x) for it in axis)
        over, then = (row, column) if abs(ord) == 1 else (column, row)
        norm = by[ord](np.sum(size, axis=over, keepdims=True), axis=then, keepdims=True)
        return norm if keepdims else np.squeeze(norm, axis=(row, column))
    if abs(ord) == np.inf:
        return by[ord](size, axis=axis, keepdims=keepdims)
    return np.sum(size**ord, axis=axis, keepdims=keepdims) ** (1.0 / ord)


def _norm_known(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> None:  # noqa: A002
    if isinstance(axis, np.ndarray | float):
        raise refused("np.linalg.norm along such an axis")
    matrix = np.ndim(x) == 2 if axis is None else isinstance(axis, tuple)
    plain = isinstance(ord, int | float) and ord != 0
    if not (ord is None or ord == "fro" or (plain and (not matrix or abs(ord) in (1, np.inf)))):
        raise refused(f"np.linalg.norm with ord={ord!r}")


def _sinc(x: Any) -> Any:
    """Return sinc(x). For small x it is computed by its series."""
    small = np.abs(x) < 1e-3
    y = np.pi * np.where(small, 0.5, x)
    z = (np.pi * x) ** 2
    return np.where(small, 1.0 - z / 6.0 * (1.0 - z / 20.0), np.sin(y) / y)


def _polyval(p: Any, x: Any) -> Any:
    (x,) = _arrays(x)
    y = 0.0 * x
    for i in range(len(p)):
        y = y * x + p[i]
    return y


def _interp(
    x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None
) -> Any:
    """Return the interpolation. At a node its slope is that of the interval to the right."""
    xp = xp if hasattr(xp, "value") else np.asarray(xp, float)
    plain_x = getattr(x, "value", x)
    piece = np.clip(np.searchsorted(xp, plain_x, side="right") - 1, 0, len(xp) - 2)
    low = np.take(xp, piece)
    inside = np.take(fp, piece) + (x - low) * (
        (np.take(fp, piece + 1) - np.take(fp, piece)) / (np.take(xp, piece + 1) - low)
    )
    left = np.take(fp, 0) if left is None else left
    right = np.take(fp, len(xp) - 1) if right is None else right
    return np.where(plain_x < xp[0], left, np.where(plain_x > xp[-1], right, inside))


def _linspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False,
              dtype: Any = None, axis: int = 0, **others: Any) -> Any:  # fmt: skip
    if retstep or axis or others:
        raise refused("np.linspace with retstep= or axis=")
    steps = np.linspace(0.0, 1.0, num, endpoint=endpoint)
    steps = steps.reshape((-1,) + (1,) * max(np.ndim(start), np.ndim(stop)))
    return start * (1.0 - steps) + stop * steps


def _average(a: Any, axis: Any = None, weights: Any = None, **others: Any) -> Any:
    if weights is None:
        return np.mean(a, axis=axis)
    if np.shape(weights) != np.shape(a):
        shape = [1] * np.ndim(a)
        shape[axis] = -1
        weights = np.broadcast_to(np.reshape(weights, tuple(shape)), np.shape(a))
    return np.sum(a * weights, axis=axis) / np.sum(weights, axis=axis)


def _average_known(a: Any, axis: Any = None, weights: Any = None, **others: Any) -> None:
    if others or (weights is not None and np.shape(weights) != np.shape(a) and np.ndim(axis)):
        raise refused("np.average with other options than weights along one axis")


def _ptp(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False) -> Any:
    options = {"axis": axis, "keepdims": keepdims is True}
    return np.max(a, **options) - np.min(a, **options)


def _nansum(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False
) -> Any:
    return np.sum(np.where(np.isnan(a), 0.0, a), axis=axis, keepdims=keepdims is True)


def _angle(z: Any, deg: bool = False) -> Any:
    angle = np.arctan2(np.imag(z), np.real(z))
    return np.degrees(angle) if np.any(deg) else angle


_EQUIVALENTS: dict[Any, Any] = {
    np.trace: lambda a, offset=0, axis1=0, axis2=1, dtype=None, out=None: np.sum(
        np.diagonal(a, offset, axis1, axis2), axis=-1
    ),
    np.linalg.trace: lambda x, offset=0, dtype=None: np.sum(
        np.diagonal(x, offset, -2, -1), axis=-1
    ),
    np.real: lambda val: (val + np.conj(val)) / 2.0,
    np.imag: lambda val: (val - np.conj(val)) / 2.0j,
    np.vdot: lambda a, b: np.sum(np.conj(np.ravel(a)) * np.ravel(b)),
    np.diff: _diff, np.trapezoid: _trapezoid, np.gradient: _gradient, np.cross: _cross,
    np.kron: _kron, np.tensordot: _tensordot, np.dot: _dot, np.inner: _inner, np.outer: _outer,
    np.interp: _interp, np.polyval: _polyval, np.sinc: _sinc, np.linspace: _linspace,
    np.angle: _angle, np.ptp: _ptp, np.nansum: _nansum,
    np.linalg.cross: _cross, np.linalg.outer: _outer,
}  # fmt: skip
RULES.update({function: _equivalent(other) for function, other in _EQUIVALENTS.items()})
RULES[np.average] = _equivalent(_average, _average_known)
RULES[np.linalg.norm] = _equivalent(_norm, _norm_known)


def _copy(call: NumpyCall) -> Pulled:
    if len(call.paths) > 1:
        raise refused("np.copy by options that have derivatives")
    return (lambda g: (g,)), ()


def _plain_diff(call: NumpyCall) -> Pulled:
    """Apply a rule for np.diff without prepend and append that is faster than the equivalent."""
    if len(call.args) > 3 or call.kwargs.keys() - {"n", "axis"}:
        return _equivalent(_diff)(call)
    return _differences, (np.shape(call.argument(0, "a")), call.argument(1, "n", 1),
                          call.argument(2, "axis", -1))  # fmt: skip


def _differences(g: Any, shape: tuple[int, ...], n: int, axis: int) -> Any:
    for _ in range(n):
        longer = list(g.shape)
        longer[axis] += 1
        whole = np.zeros(longer, g.dtype)
        turned, part = np.moveaxis(whole, axis, -1), np.moveaxis(g, axis, -1)
        turned[..., 1:] += part
        turned[..., :-1] -= part
        g = whole
    return (g,)


RULES.update({np.copy: _copy, np.diff: _plain_diff})


def _gradients(f: Any, *spacing: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """Return the gradients along each axis."""
    ndim = np.ndim(plain(f))
    axes = range(ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    one = isinstance(axis, int) or len(axes) == 1
    apart = [1.0] * len(axes) if not spacing else spacing * (len(axes) if len(spacing) == 1 else 1)
    if len(apart) != len(axes) or (len(spacing) == 1 and np.ndim(plain(spacing[0])) and not one):
        refused: Any = np.gradient
        refused(plain(f), *plain(spacing), axis=axis, edge_order=edge_order)  # raises
    parts = [
        _along(f, *((h,) if spacing else ()), axis=i, edge_order=edge_order)
        for h, i in zip(apart, axes, strict=True)
    ]
    return parts[0] if one else tuple(parts)


def _along(f: Any, *spacing: Any, axis: int, edge_order: int) -> Any:
    """Return np.gradient along one axis."""
    named = {"axis": axis, "edge_order": edge_order}
    return call(np.gradient, np.gradient, (f, *spacing), named)


def _broadcast_arrays(*arrays: Any, subok: bool = False) -> Any:
    shape = np.broadcast_shapes(*(np.shape(plain(it)) for it in arrays))
    return tuple(np.broadcast_to(it, shape) for it in arrays)


def _meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    spread = []
    for number, x in enumerate(xi):
        shape = [1] * len(xi)
        shape[number] = -1
        spread.append(np.reshape(x, tuple(shape)))
    if indexing == "xy" and len(xi) > 1:
        spread = [np.swapaxes(it, 0, 1) for it in spread]
    if not sparse:
        spread = list(_broadcast_arrays(*spread))
    return tuple(np.copy(it, order="C") if copy else it for it in spread)


COMPOSED.update({
    np.gradient: _gradients, np.broadcast_arrays: _broadcast_arrays, np.meshgrid: _meshgrid,
})  # fmt: skip
