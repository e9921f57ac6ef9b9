"""Functions of numpy whose derivatives are those of equivalent simpler functions.

numpy's own function computes the value. In the reverse sweep, the equivalent is computed from the
arguments on a small tape of its own, and this tape is reversed. The last functions of this module
return several arrays. They are composed of simpler functions already in the forward sweep.
"""

# ruff: noqa: PLR0917 - rules have the signatures of numpy's functions

import inspect
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from ckio.errors import BadInput
from ckio.programs.tape.cells import conjugate
from ckio.programs.tape.dispatch import COMPOSED
from ckio.programs.tape.operations import call, plain
from ckio.programs.tape.rules import (
    RULES,
    NumpyCall,
    Path,
    Pulled,
    Rule,
    at,
    check_keywords,
    name_of,
    refusal,
    replace,
)
from ckio.programs.tape.tape import Tape


def _equivalent(key: Any, function: Callable[..., Any]) -> Rule:
    """Return the rule of a function of numpy, `key`, that returns the same as this one."""

    def rule(call: NumpyCall) -> Pulled:
        if any(len(path) > 1 for path in call.paths):
            raise BadInput("a list of traced values would lose their derivatives; use np.stack")
        kwargs = check_keywords(name_of(key), function, call.kwargs)
        try:
            inspect.signature(function).bind(*call.args, **kwargs)
        except TypeError as error:
            raise refusal(f"{name_of(key)} with so many positional arguments") from error
        return _pull, (function, call.paths, call.args, kwargs)

    return rule


def _pull(g: Any, function: Any, paths: list[Path], args: Any, kwargs: Any) -> Any:
    tape = Tape()
    inputs = [tape.input(_without_gaps(at(path, args, kwargs))) for path in paths]
    given = replace(dict(zip(paths, inputs, strict=True)), args, kwargs)
    bars = tape.backward([(function(*given[0], **given[1]), conjugate(g))], inputs)
    return conjugate(bars)


def _without_gaps(value: Any) -> Any:
    """Return an array as a contiguous one, for example the real part of a complex array."""
    return np.asarray(value, order="C") if isinstance(value, np.ndarray) else value


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
    f = np.moveaxis(f, 0 if axis is None else axis, -1)
    h: Any = _arrays(spacing[0])[0] if spacing else 1.0
    h = np.float64(h) if type(h) in (int, float) else h  # numpy divides by zero, Python raises
    widths = np.diff(h) if np.ndim(h) else None
    before, after = (h, h) if widths is None else (widths[:-1], widths[1:])
    a, c = -after / (before * (before + after)), before / (after * (before + after))
    inner = a * f[..., :-2] - (a + c) * f[..., 1:-1] + c * f[..., 2:]
    first = _at_end(f, edge_order, (h, h) if widths is None else widths)
    last = _at_end(f[..., ::-1], edge_order, (-h, -h) if widths is None else -widths[::-1])
    whole = np.concatenate([first[..., None], inner, last[..., None]], axis=-1)
    return np.moveaxis(whole, -1, 0 if axis is None else axis)


def _at_end(f: Any, edge_order: int, widths: Any) -> Any:
    """Return the one-sided difference at the first entry."""
    h = widths[0]
    if edge_order == 1:
        return (f[..., 1] - f[..., 0]) / h
    k = widths[1]
    return (
        -(2.0 * h + k) / (h * (h + k)) * f[..., 0]
        + (h + k) / (h * k) * f[..., 1]
        - h / (k * (h + k)) * f[..., 2]
    )


def _cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1,
           axis: int | None = None) -> Any:  # fmt: skip
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = np.moveaxis(a, axisa, -1), np.moveaxis(b, axisb, -1)
    if np.shape(a)[-1] != 3 or np.shape(b)[-1] != 3:
        raise refusal("np.cross of vectors of two components")
    parts = [a[..., i] * b[..., j] - a[..., j] * b[..., i] for i, j in ((1, 2), (2, 0), (0, 1))]
    return np.moveaxis(np.stack(parts, axis=-1), -1, axisc)


def _tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    a, b = _arrays(a, b)
    over, under = (range(-axes, 0), range(axes)) if isinstance(axes, int) else axes
    over, under = np.ravel(over).tolist(), np.ravel(under).tolist()
    shared = len(over)
    a = np.moveaxis(a, over, range(-shared, 0)) if shared else a
    b = np.moveaxis(b, under, range(shared)) if shared else b
    rows, columns = np.shape(a)[: np.ndim(a) - shared], np.shape(b)[shared:]
    size = prod(np.shape(b)[:shared])
    left, right = np.reshape(a, (prod(rows), size)), np.reshape(b, (size, prod(columns)))
    return np.reshape(left @ right, rows + columns)


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


def _root(square: Any) -> Any:
    """Return the square root. Its derivative at 0 is 0."""
    zero = square == 0
    return np.where(zero, 0.0, np.sqrt(np.where(zero, 1.0, square)))


def _squared(x: Any) -> Any:
    return np.real(x) ** 2 + np.imag(x) ** 2 if np.iscomplexobj(x) else x**2


def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:  # noqa: A002
    """Return the norm. Its derivative at 0 is 0."""
    if ord in (None, 2, "fro"):
        return _root(np.sum(_squared(x), axis=axis, keepdims=keepdims))
    largest_or_sum = np.max if ord == np.inf else np.sum
    return largest_or_sum(np.abs(x), axis=axis, keepdims=keepdims)


def _norm_rule(call: NumpyCall) -> Pulled:
    if any(path not in ((0,), ("x",)) for path in call.paths):
        raise refusal("np.linalg.norm with an option that has a derivative")
    ord, axis = call.argument(1, "ord"), call.argument(2, "axis")  # noqa: A001
    vector = np.ndim(call.argument(0, "x")) == 1 if axis is None else isinstance(axis, int)
    if not (ord is None or (ord == "fro" and not vector) or (vector and ord in (1, 2, np.inf))):
        raise BadInput(
            f"np.linalg.norm with ord={ord!r} has no rule for derivatives; for vectors write"
            " np.sum(np.abs(u) ** p) ** (1 / p), for matrices take the vector norms along an axis"
        )
    return _equivalent(np.linalg.norm, _norm)(call)


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


def _linspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, *, dtype: Any = None
) -> Any:
    steps = np.linspace(0.0, 1.0, num, endpoint=endpoint)
    steps = steps.reshape((-1,) + (1,) * max(np.ndim(start), np.ndim(stop)))
    return start * (1.0 - steps) + stop * steps


def _angle(z: Any, deg: bool = False) -> Any:
    angle = np.arctan2(np.imag(z), np.real(z))
    return np.degrees(angle) if np.any(deg) else angle


_EQUIVALENTS: dict[Any, Any] = {
    np.trace: lambda a, offset=0, axis1=0, axis2=1, dtype=None, out=None: np.sum(
        np.diagonal(a, offset, axis1, axis2), axis=-1
    ),
    np.linalg.trace: lambda x, /, *, offset=0, dtype=None: np.sum(
        np.diagonal(x, offset, -2, -1), axis=-1
    ),
    np.real: lambda val: (val + np.conj(val)) / 2.0,
    np.imag: lambda val: (val - np.conj(val)) / 2.0j,
    np.vdot: lambda a, b: np.sum(np.conj(np.ravel(a)) * np.ravel(b)),
    np.trapezoid: _trapezoid, np.gradient: _gradient, np.cross: _cross,
    np.tensordot: _tensordot, np.dot: _dot, np.inner: _inner, np.outer: _outer,
    np.interp: _interp, np.polyval: _polyval, np.sinc: _sinc, np.linspace: _linspace,
    np.angle: _angle, np.linalg.cross: _cross, np.linalg.outer: _outer,
}  # fmt: skip
RULES.update({key: _equivalent(key, function) for key, function in _EQUIVALENTS.items()})
RULES[np.linalg.norm] = _norm_rule


def _copy(call: NumpyCall) -> Pulled:
    if len(call.paths) > 1:
        raise refusal("np.copy by options that have derivatives")
    return (lambda g: (g,)), ()


RULES[np.copy] = _copy


# Functions with several results


def _gradients(f: Any, *spacing: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """Return the gradients along each axis."""
    ndim = np.ndim(plain(f))
    axes = range(ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    one = isinstance(axis, int) or len(axes) == 1
    apart = [1.0] * len(axes) if not spacing else spacing * (len(axes) if len(spacing) == 1 else 1)
    if len(apart) != len(axes) or (len(spacing) == 1 and np.ndim(plain(spacing[0])) and not one):
        numpy: Any = np.gradient
        numpy(plain(f), *plain(spacing), axis=axis, edge_order=edge_order)  # raises
    parts = [
        _along(f, *((h,) if spacing else ()), axis=i, edge_order=edge_order)
        for h, i in zip(apart, axes, strict=True)
    ]
    return parts[0] if one else tuple(parts)


def _along(f: Any, *spacing: Any, axis: int, edge_order: int) -> Any:
    """Return np.gradient along one axis."""
    named = {"axis": axis, "edge_order": edge_order}
    return call(np.gradient, np.gradient, (f, *spacing), named)


def _slogdet(a: Any) -> Any:
    """Return the sign, which is constant, and the logarithm."""
    result = np.linalg.slogdet(plain(a))
    return result._replace(
        logabsdet=call(lambda a: np.linalg.slogdet(a)[1], np.linalg.slogdet, (a,), {})
    )


COMPOSED.update({np.gradient: _gradients, np.linalg.slogdet: _slogdet})
