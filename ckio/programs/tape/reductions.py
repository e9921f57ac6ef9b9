"""Sums, products, extremes along axes, and what is made of them."""

# ruff: noqa: PLR0917 - rules have the signatures of numpy's functions

from typing import Any

import numpy as np

from ckio.programs.tape.memory import Array
from ckio.programs.tape.rules import RULES, Parts, add, by_name, refused

_NOTHING = np._NoValue  # noqa: SLF001, numpy's own default


def _spread(g: Any, shape: tuple[int, ...], axis: Any, keepdims: Any) -> Any:
    """The cotangent of a reduced array, for each entry that was reduced."""
    g = np.asarray(g)
    if axis is not None and (keepdims is _NOTHING or not keepdims):
        axes = axis if isinstance(axis, tuple) else (axis,)
        g = np.expand_dims(g, tuple(it % len(shape) for it in axes)) if shape else g
    elif axis is None and g.ndim and g.ndim != len(shape):
        g = g.reshape(())
    return np.broadcast_to(g, shape)


def _masked(g: Any, where: Any) -> Any:
    return g if where is _NOTHING or where is True else np.where(where, g, 0)


def _sum(result: Any, a: Any, axis: Any = None, dtype: Any = None, out: Any = None,
         keepdims: Any = _NOTHING, initial: Any = _NOTHING,
         where: Any = _NOTHING) -> Parts:  # fmt: skip
    shape = np.shape(a)
    return {"a": (lambda g, where: _masked(_spread(g, shape, axis, keepdims), where), where),
            "initial": (lambda g: g,)}  # fmt: skip


def _count(shape: tuple[int, ...], axis: Any) -> int:
    axes = range(len(shape)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return int(np.prod([shape[it] for it in axes])) if shape else 1


def _mean(result: Any, a: Any, axis: Any = None, dtype: Any = None, out: Any = None,
          keepdims: Any = _NOTHING, *, where: Any = _NOTHING) -> Parts:  # fmt: skip
    if where is not _NOTHING and where is not True:
        raise refused("np.mean with where=")
    shape = np.shape(a)
    count = _count(shape, axis)
    return {"a": (lambda g: _spread(g, shape, axis, keepdims) / count,)}


def _deviation(a: Any, axis: Any) -> Any:
    return np.conj(a - np.mean(a, axis=axis, keepdims=True))


def _var(result: Any, a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0,
         keepdims: Any = _NOTHING, **others: Any) -> Parts:  # fmt: skip
    if others:
        raise refused(f"np.var with {', '.join(others)}")
    shape = np.shape(a)
    count = _count(shape, axis) - ddof

    def pull(g: Any, a: Any) -> Any:
        return 2.0 * _spread(g, shape, axis, keepdims) * _deviation(a, axis) / count

    return {"a": (pull, a)}


def _std(result: Any, a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0,
         keepdims: Any = _NOTHING, **others: Any) -> Parts:  # fmt: skip
    if others:
        raise refused(f"np.std with {', '.join(others)}")
    shape = np.shape(a)
    count = _count(shape, axis) - ddof

    def pull(g: Any, a: Any, r: Any) -> Any:
        scaled = np.where(np.equal(r, 0), 0, g / np.where(np.equal(r, 0), 1, r))
        return _spread(scaled, shape, axis, keepdims) * _deviation(a, axis) / count

    return {"a": (pull, a, result)}


def _extreme(result: Any, a: Any, axis: Any = None, out: Any = None, keepdims: Any = _NOTHING,
             initial: Any = _NOTHING, where: Any = _NOTHING) -> Parts:  # fmt: skip
    if initial is not _NOTHING or (where is not _NOTHING and where is not True):
        raise refused("np.max and np.min with initial= or where=")
    shape = np.shape(a)

    def pull(g: Any, a: Any, r: Any) -> Any:
        there = np.equal(a, _spread(r, shape, axis, keepdims))
        count = np.sum(there, axis=axis, keepdims=True)
        return np.where(there, _spread(g, shape, axis, keepdims) / np.maximum(count, 1), 0)

    return {"a": (pull, a, result)}


def _others(a: Array) -> Array:
    """For each entry of the last axis the product of all the others there."""
    before, after = np.ones_like(a), np.ones_like(a)
    np.cumprod(a[..., :-1], axis=-1, out=before[..., 1:])
    np.cumprod(a[..., :0:-1], axis=-1, out=after[..., -2::-1])
    return before * after


def _prod(result: Any, a: Any, axis: Any = None, dtype: Any = None, out: Any = None,
          keepdims: Any = _NOTHING, initial: Any = _NOTHING,
          where: Any = _NOTHING) -> Parts:  # fmt: skip
    if initial is not _NOTHING or (where is not _NOTHING and where is not True):
        raise refused("np.prod with initial= or where=")
    shape = np.shape(a)
    axes = range(len(shape)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    last = tuple(it % len(shape) for it in axes) if shape else ()

    def pull(g: Any, a: Any) -> Any:
        if not a.size:
            return np.zeros(shape)
        behind = tuple(range(len(shape) - len(last), len(shape)))
        moved = np.moveaxis(np.asarray(a), last, behind)
        rows = moved.reshape(*moved.shape[: len(shape) - len(last)], -1)
        rest = np.moveaxis(_others(rows).reshape(moved.shape), behind, last)
        return _spread(g, shape, axis, keepdims) * rest

    return {"a": (pull, np.asarray(a))}


def _backwards(g: Array, axis: int) -> Array:
    return np.flip(np.cumsum(np.flip(g, axis), axis), axis)


def _cumsum(result: Any, a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Parts:
    shape = np.shape(a)
    return {"a": (lambda g: _backwards(g, 0 if axis is None else axis).reshape(shape),)}


def _cumprod(result: Any, a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Parts:
    shape = np.shape(a)

    def pull(g: Any, a: Any, r: Any) -> Any:
        along = 0 if axis is None else axis
        factors = np.moveaxis(a.reshape(-1) if axis is None else np.asarray(a), along, 0)
        given, products = np.moveaxis(g, along, 0), np.moveaxis(r, along, 0)
        found, rest = np.zeros_like(factors), np.zeros_like(factors[:1])[0]
        for i in range(len(factors) - 1, -1, -1):
            rest = rest + given[i]
            found[i] = rest * products[i - 1] if i else rest
            rest = rest * factors[i]
        return np.moveaxis(found, 0, along).reshape(shape)

    return {"a": (pull, np.asarray(a), result)}


def _running(result: Any, a: Any, axis: Any = 0, dtype: Any = None, out: Any = None) -> Parts:
    """Of equal entries the latest so far has the derivative."""
    axis = 0 if axis is None else axis

    def pull(g: Any, a: Any, r: Any) -> Any:
        shape = [1] * a.ndim
        shape[axis] = -1
        steps = np.arange(a.shape[axis]).reshape(shape)
        source = np.maximum.accumulate(np.where(np.equal(a, r), steps, 0), axis=axis)
        found = np.zeros(a.shape, g.dtype)
        index = list(np.indices(a.shape, sparse=True))
        index[axis] = source
        np.add.at(found, tuple(index), g)
        return found

    return {"a": (pull, np.asarray(a), result)}


def _clip(result: Any, a: Any, a_min: Any = None, a_max: Any = None, out: Any = None, *,
          min: Any = None, max: Any = None) -> Parts:  # noqa: A002  # fmt: skip
    low = min if a_min is None or a_min is _NOTHING else a_min
    high = max if a_max is None or a_max is _NOTHING else a_max

    def below(a: Any, low: Any) -> Any:
        return False if low is None else np.less(a, low)

    def above(a: Any, low: Any, high: Any) -> Any:
        return False if high is None else np.greater(a if low is None else np.maximum(a, low), high)

    def inner(g: Any, a: Any, low: Any, high: Any) -> Any:
        return np.where(below(a, low) | np.asarray(above(a, low, high)), 0, g)

    def lower(g: Any, a: Any, low: Any, high: Any) -> Any:
        return np.where(below(a, low) & ~np.asarray(above(a, low, high)), g, 0)

    def upper(g: Any, a: Any, low: Any, high: Any) -> Any:
        return np.where(above(a, low, high), g, 0)

    saved = a, low, high
    parts = (inner, *saved), (lower, *saved), (upper, *saved)
    return dict(zip(("a", "a_min", "a_max"), parts, strict=True)) | {
        "min": parts[1], "max": parts[2],
    }  # fmt: skip


def _nan_to_num(result: Any, x: Any, copy: Any = True, nan: Any = 0.0, posinf: Any = None,
                neginf: Any = None) -> Parts:  # fmt: skip
    return {"x": (lambda g, finite: np.where(finite, g, 0), np.isfinite(x))}


add({
    np.sum: _sum, np.mean: _mean, np.var: _var, np.std: _std, np.prod: _prod,
    np.max: _extreme, np.amax: _extreme, np.min: _extreme, np.amin: _extreme,
    np.cumsum: _cumsum, np.cumprod: _cumprod, np.clip: _clip, np.nan_to_num: _nan_to_num,
})  # fmt: skip
for _extremum in (np.maximum, np.minimum):
    RULES[_extremum.accumulate] = by_name(_running, f"np.{_extremum.__name__}.accumulate")
