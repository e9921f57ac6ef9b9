"""Functions of numpy whose derivatives are those of equivalent simpler functions.

numpy's own function computes the value. In the reverse sweep, the equivalent is computed from the
arguments on a small tape of its own, and this tape is reversed.
"""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from ckio.errors import BadInput
from ckio.programs.tape.cells import conjugate
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
    y = np.moveaxis(y, axis, -1)
    if x is None:
        widths = dx
    else:
        widths = np.diff(x) if np.ndim(x) == 1 else np.diff(np.moveaxis(x, axis, -1))
    return np.sum(widths * (y[..., 1:] + y[..., :-1]) / 2.0, axis=-1)


def _gradient(f: Any, h: Any = 1.0, *, axis: Any = 0) -> Any:
    """Return the gradient along one axis, for a distance h or for coordinates h."""
    f = np.moveaxis(f, axis, -1)
    h = np.float64(h) if type(h) in (int, float) else h  # numpy divides by zero, Python raises
    widths = np.diff(h) if np.ndim(h) else None
    before, after = (h, h) if widths is None else (widths[:-1], widths[1:])
    a, c = -after / (before * (before + after)), before / (after * (before + after))
    inner = a * f[..., :-2] - (a + c) * f[..., 1:-1] + c * f[..., 2:]
    first = (f[..., 1] - f[..., 0]) / (h if widths is None else widths[0])
    last = (f[..., -1] - f[..., -2]) / (h if widths is None else widths[-1])
    whole = np.concatenate([first[..., None], inner, last[..., None]], axis=-1)
    return np.moveaxis(whole, -1, axis)


def _cross(a: Any, b: Any) -> Any:
    if np.shape(a)[-1] != 3 or np.shape(b)[-1] != 3:
        raise refusal("np.cross of vectors of two components")
    a, b = np.moveaxis(a, -1, 0), np.moveaxis(b, -1, 0)
    return np.stack([a[i] * b[j] - a[j] * b[i] for i, j in ((1, 2), (2, 0), (0, 1))], axis=-1)


def _interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None) -> Any:
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


_EQUIVALENTS: dict[Any, Any] = {
    np.trace: lambda a, offset=0, axis1=0, axis2=1: np.sum(
        np.diagonal(a, offset, axis1, axis2), axis=-1
    ),
    np.real: lambda val: (val + np.conj(val)) / 2.0,
    np.imag: lambda val: (val - np.conj(val)) / 2.0j,
    np.vdot: lambda a, b: np.sum(np.conj(np.ravel(a)) * np.ravel(b)),
    np.outer: lambda a, b: np.ravel(a)[:, None] * np.ravel(b)[None, :],
    np.trapezoid: _trapezoid, np.gradient: _gradient, np.cross: _cross, np.interp: _interp,
}  # fmt: skip
RULES.update({key: _equivalent(key, function) for key, function in _EQUIVALENTS.items()})


def _copy(call: NumpyCall) -> Pulled:
    if len(call.paths) > 1:
        raise refusal("np.copy by options that have derivatives")
    return (lambda g: (g,)), ()


RULES[np.copy] = _copy
