"""Derivatives of ufuncs, and of the equivalent operators.

A rule has one pull for each operand. It returns the cotangent of the operand from the cotangent `g`
of the result. Its other parameters are the operands `x` and `y` and the result `r`. Only those that
it names are saved. For example, the pulls of r = x * y are g * y and g * x. The tape then sums a
cotangent over axes that were broadcast, and takes its real part for a real operand. In rules, a
cotangent is the conjugate of that in `Cotangents`: a functional changes by Re(sum(g * dr)).

At points without a derivative, a value is defined: abs, hypot and norms have the derivative 0 at 0,
and maximum and minimum of equal operands have 1/2 for each. The derivative of sqrt at 0 is
infinite.
"""

# ruff: noqa: PLW0108 - the names of the parameters of a lambda define the saved values

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Function = Callable[..., Any]


class Pull(NamedTuple):
    """A pull, a function that saves its values, and the names of these values."""

    pull: Function
    save: Callable[[Any, Any, Any], tuple[Any, ...]]
    names: str


def _base(g: Any, x: Any, y: Any) -> Any:
    if type(y) is int and y == 2:
        return 2.0 * g * x
    if isinstance(y, int | float | complex):
        if y == 0:
            return g * 0.0
        try:
            return g * y * x ** (y - 1)
        except ZeroDivisionError:
            return g * y * np.float64(x) ** (y - 1)
    zero = np.equal(y, 0)
    return np.where(zero, 0, g * y * np.power(x, np.where(zero, 1, y) - 1.0))


def _exponent(g: Any, x: Any, r: Any) -> Any:
    zero = np.equal(x, 0)
    base = np.where(zero, 1, x)
    return g * r * np.log(base.astype(complex) if np.iscomplexobj(r) else base)


def _modulus(g: Any, x: Any) -> Any:
    if not np.iscomplexobj(x):
        return g * np.sign(x)
    size = np.abs(x)
    return g * np.conj(x) / np.where(size == 0, 1, size)


def _share(g: Any, x: Any, y: Any, r: Any) -> Any:
    """Return the cotangent of x if the result r is the maximum or the minimum of x and y."""
    mine, other = np.equal(x, r), np.equal(y, r)
    part = np.where(mine & other, 0.5, np.where(mine | other, mine, np.nan))
    return np.where(part == 0, 0, g * part)


def _leg(g: Any, x: Any, r: Any) -> Any:
    return g * np.where(np.equal(r, 0), 0, x / np.where(np.equal(r, 0), 1, r))


def _logadd(g: Any, x: Any, r: Any) -> Any:
    return g * np.where(np.equal(x, r), 1, np.exp(x - r))


def _sided(pull: Function) -> tuple[Function, Function]:
    """Return the pulls of a symmetric ufunc: this one, and the one with exchanged operands."""
    if "y" in _names(pull):
        return pull, lambda g, y, x, r: pull(g, y, x, r)
    return pull, lambda g, y, r: pull(g, y, r)


def _names(pull: Function) -> str:
    return "".join(pull.__code__.co_varnames[1 : pull.__code__.co_argcount])


_LN2, _LN10 = np.log(2.0), np.log(10.0)
_DEGREE = np.pi / 180.0
_half_each = _sided(_share)

_PULLS: dict[np.ufunc, tuple[Function, ...]] = {
    np.add: (lambda g: g, lambda g: g, lambda g: (g, g)),
    np.subtract: (lambda g: g, lambda g: -g, lambda g: (g, -g)),
    np.multiply: (lambda g, y: g * y, lambda g, x: g * x, lambda g, x, y: (g * y, g * x)),
    np.divide: (
        lambda g, y: g / y,
        lambda g, y, r: -g * r / y,
        lambda g, y, r: ((q := g / y), -q * r),
    ),
    np.power: (_base, _exponent),
    np.remainder: (lambda g: g, lambda g, x, y: -g * np.floor_divide(x, y)),
    np.fmod: (lambda g: g, lambda g, x, y: -g * np.trunc(np.divide(x, y))),
    np.negative: (lambda g: -g,),
    np.positive: (lambda g: g,),
    np.absolute: (_modulus,),
    np.fabs: (lambda g, x: g * np.sign(x),),
    np.conjugate: (lambda g: np.conj(g),),
    np.sqrt: (lambda g, r: g / (2.0 * r),),
    np.cbrt: (lambda g, r: g / (3.0 * r * r),),
    np.square: (lambda g, x: 2.0 * g * x,),
    np.reciprocal: (lambda g, r: -g * r * r,),
    np.exp: (lambda g, r: g * r,),
    np.exp2: (lambda g, r: g * r * _LN2,),
    np.expm1: (lambda g, r: g * (r + 1.0),),
    np.log: (lambda g, x: g / x,),
    np.log2: (lambda g, x: g / (x * _LN2),),
    np.log10: (lambda g, x: g / (x * _LN10),),
    np.log1p: (lambda g, x: g / (1.0 + x),),
    np.sin: (lambda g, x: g * np.cos(x),),
    np.cos: (lambda g, x: -g * np.sin(x),),
    np.tan: (lambda g, r: g * (1.0 + r * r),),
    np.arcsin: (lambda g, x: g / np.sqrt(1.0 - x * x),),
    np.arccos: (lambda g, x: -g / np.sqrt(1.0 - x * x),),
    np.arctan: (lambda g, x: g / (1.0 + x * x),),
    np.sinh: (lambda g, x: g * np.cosh(x),),
    np.cosh: (lambda g, x: g * np.sinh(x),),
    np.tanh: (lambda g, r: g * (1.0 - r * r),),
    np.arcsinh: (lambda g, x: g / np.sqrt(x * x + 1.0),),
    np.arccosh: (lambda g, x: g / (np.sqrt(x - 1.0) * np.sqrt(x + 1.0)),),
    np.arctanh: (lambda g, x: g / (1.0 - x * x),),
    np.deg2rad: (lambda g: g * _DEGREE,),
    np.radians: (lambda g: g * _DEGREE,),
    np.rad2deg: (lambda g: g / _DEGREE,),
    np.degrees: (lambda g: g / _DEGREE,),
    np.arctan2: (
        lambda g, x, y: g * y / (x * x + y * y),
        lambda g, x, y: -g * x / (x * x + y * y),
    ),
    np.hypot: (_leg, lambda g, y, r: _leg(g, y, r)),
    np.maximum: _half_each,
    np.minimum: _half_each,
    np.fmax: _half_each,
    np.fmin: _half_each,
    np.logaddexp: (_logadd, lambda g, y, r: _logadd(g, y, r)),
}

CONSTANT = frozenset((
    np.floor, np.ceil, np.rint, np.trunc, np.sign, np.floor_divide, np.signbit, np.isnan,
    np.isfinite, np.isinf, np.equal, np.not_equal, np.less, np.less_equal, np.greater,
    np.greater_equal, np.logical_and, np.logical_or, np.logical_not, np.logical_xor,
))  # fmt: skip
"""Ufuncs without a derivative: they are constant except at jumps, or return truth values."""


_SAVES: dict[str, Callable[[Any, Any, Any], tuple[Any, ...]]] = {
    "": lambda r, x, y: (),
    "x": lambda r, x, y: (x,),
    "y": lambda r, x, y: (y,),
    "r": lambda r, x, y: (r,),
    "xy": lambda r, x, y: (x, y),
    "xr": lambda r, x, y: (x, r),
    "yr": lambda r, x, y: (y, r),
    "xyr": lambda r, x, y: (x, y, r),
    "yxr": lambda r, x, y: (y, x, r),
}
"""Functions that return the operands and the result with these names, in this order."""


def _both(left: Function, right: Function) -> Pull:
    """Return one pull for both operands, which saves shared values once."""
    one, two = _names(left), _names(right)
    names = "".join(name for name in "xyr" if name in one + two)
    first, second = [names.index(it) for it in one], [names.index(it) for it in two]

    def pull(g: Any, *saved: Any) -> tuple[Any, Any]:
        return left(g, *[saved[i] for i in first]), right(g, *[saved[i] for i in second])

    return Pull(pull, _SAVES[names], names)


def _saving(pull: Function) -> Pull:
    return Pull(pull, _SAVES[_names(pull)], _names(pull))


PULLS: dict[np.ufunc, tuple[Pull | None, Pull | None, Pull | None]] = {}
"""The pulls of each ufunc: to its first operand, to its second, and to both together."""

for _ufunc, _pulls in _PULLS.items():
    _saved = [_saving(pull) for pull in _pulls]
    if len(_saved) == 2:
        _saved.append(_both(*_pulls))
    _left, _right, _all = [*_saved, None, None][:3]
    PULLS[_ufunc] = _left, _right, _all
