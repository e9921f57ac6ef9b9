"""Sums, products, extremes along axes, and what is made of them.

For example, of y = sum(x, axis=0) and x of shape (2, 3), the cotangent of y, of shape (3,), is that
of each of the two rows of x: it is spread to shape (2, 3).
"""

from typing import Any

import numpy as np

from ckio.programs.tape.cells import Array
from ckio.programs.tape.rules import RULES, Parts, add, by_name, refused

_NOTHING = np._NoValue  # noqa: SLF001, numpy's own default


def _axes(shape: tuple[int, ...], axis: Any) -> tuple[int, ...]:
    axes = range(len(shape)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return tuple(it % len(shape) for it in axes) if shape else ()


def _count(shape: tuple[int, ...], axis: Any) -> int:
    return int(np.prod([shape[it] for it in _axes(shape, axis)]))


def _spread(g: Any, shape: tuple[int, ...], axis: Any, keepdims: Any) -> Any:
    """Return the cotangent of a reduced array, for each entry that was reduced."""
    g = np.asarray(g)
    if axis is not None and (keepdims is _NOTHING or not keepdims):
        g = np.expand_dims(g, _axes(shape, axis)) if shape else g
    elif axis is None and g.ndim and g.ndim != len(shape):
        g = g.reshape(())
    return np.broadcast_to(g, shape)


def _all(what: str, **others: Any) -> None:
    """Refuse a reduction of some entries only, or that begins with a value."""
    if any(it is not _NOTHING and it is not True for it in others.values()):
        raise refused(what)


def _sum(
    result: Any, a: Any, *, axis: Any = None, keepdims: Any = _NOTHING, where: Any = True, **_: Any
) -> Parts:
    def pull(g: Any, where: Any) -> Any:
        g = _spread(g, shape, axis, keepdims)
        return g if where is _NOTHING or where is True else np.where(where, g, 0)

    shape = np.shape(a)
    return {"a": (pull, where), "initial": (lambda g: g,)}


def _mean(
    result: Any, a: Any, *, axis: Any = None, keepdims: Any = _NOTHING, where: Any = True, **_: Any
) -> Parts:
    _all("np.mean with where=", where=where)
    shape, count = np.shape(a), _count(np.shape(a), axis)
    return {"a": (lambda g: _spread(g, shape, axis, keepdims) / count,)}


def _var(
    result: Any, a: Any, *, axis: Any = None, ddof: Any = 0, keepdims: Any = _NOTHING, **others: Any
) -> Parts:
    _known("np.var", others)
    shape, count = np.shape(a), _count(np.shape(a), axis) - ddof

    def pull(g: Any, a: Any) -> Any:
        return 2.0 * _spread(g, shape, axis, keepdims) * _deviation(a, axis) / count

    return {"a": (pull, a)}


def _std(
    result: Any, a: Any, *, axis: Any = None, ddof: Any = 0, keepdims: Any = _NOTHING, **others: Any
) -> Parts:
    _known("np.std", others)
    shape, count = np.shape(a), _count(np.shape(a), axis) - ddof

    def pull(g: Any, a: Any, r: Any) -> Any:
        scaled = np.where(np.equal(r, 0), 0, g / np.where(np.equal(r, 0), 1, r))
        return _spread(scaled, shape, axis, keepdims) * _deviation(a, axis) / count

    return {"a": (pull, a, result)}


def _known(name: str, others: dict[str, Any]) -> None:
    if unknown := others.keys() - {"dtype", "out"}:
        raise refused(f"{name} with {', '.join(unknown)}")


def _deviation(a: Any, axis: Any) -> Any:
    return np.conj(a - np.mean(a, axis=axis, keepdims=True))


def _extreme(
    result: Any, a: Any, *, axis: Any = None, keepdims: Any = _NOTHING, initial: Any = _NOTHING,
    where: Any = True, **_: Any,
) -> Parts:  # fmt: skip
    _all("np.max and np.min with initial= or where=", initial=initial, where=where)
    shape = np.shape(a)

    def pull(g: Any, a: Any, r: Any) -> Any:
        largest = np.equal(a, _spread(r, shape, axis, keepdims))
        count = np.sum(largest, axis=axis, keepdims=True)
        return np.where(largest, _spread(g, shape, axis, keepdims) / np.maximum(count, 1), 0)

    return {"a": (pull, a, result)}


def _prod(
    result: Any, a: Any, *, axis: Any = None, keepdims: Any = _NOTHING, initial: Any = _NOTHING,
    where: Any = True, **_: Any,
) -> Parts:  # fmt: skip
    _all("np.prod with initial= or where=", initial=initial, where=where)
    shape = np.shape(a)
    last = _axes(shape, axis)
    first = len(shape) - len(last)

    def pull(g: Any, a: Any) -> Any:
        if not a.size:
            return np.zeros(shape)
        behind = tuple(range(first, len(shape)))
        moved = np.moveaxis(np.asarray(a), last, behind)
        rows = moved.reshape(*moved.shape[:first], -1)
        rest = np.moveaxis(_others(rows).reshape(moved.shape), behind, last)
        return _spread(g, shape, axis, keepdims) * rest

    return {"a": (pull, np.asarray(a))}


def _others(a: Array) -> Array:
    """Return for each entry of the last axis the product of all the others there."""
    before, after = np.ones_like(a), np.ones_like(a)
    np.cumprod(a[..., :-1], axis=-1, out=before[..., 1:])
    np.cumprod(a[..., :0:-1], axis=-1, out=after[..., -2::-1])
    return before * after


def _cumsum(result: Any, a: Any, *, axis: Any = None, **_: Any) -> Parts:
    shape, along = np.shape(a), 0 if axis is None else axis
    return {"a": (lambda g: np.flip(np.cumsum(np.flip(g, along), along), along).reshape(shape),)}


def _cumprod(result: Any, a: Any, *, axis: Any = None, **_: Any) -> Parts:
    shape, along = np.shape(a), 0 if axis is None else axis

    def pull(g: Any, a: Any, r: Any) -> Any:
        factors = np.moveaxis(a.reshape(-1) if axis is None else np.asarray(a), along, 0)
        given, products = np.moveaxis(g, along, 0), np.moveaxis(r, along, 0)
        bars, rest = np.zeros_like(factors), np.zeros_like(factors[:1])[0]
        for i in range(len(factors) - 1, -1, -1):
            rest = rest + given[i]
            bars[i] = rest * products[i - 1] if i else rest
            rest = rest * factors[i]
        return np.moveaxis(bars, 0, along).reshape(shape)

    return {"a": (pull, np.asarray(a), result)}


def _running(result: Any, a: Any, *, axis: Any = 0, **_: Any) -> Parts:
    """The derivative goes to the latest of equal entries so far."""
    axis = 0 if axis is None else axis

    def pull(g: Any, a: Any, r: Any) -> Any:
        shape = [1] * a.ndim
        shape[axis] = -1
        steps = np.arange(a.shape[axis]).reshape(shape)
        index = list(np.indices(a.shape, sparse=True))
        index[axis] = np.maximum.accumulate(np.where(np.equal(a, r), steps, 0), axis=axis)
        bars = np.zeros(a.shape, g.dtype)
        np.add.at(bars, tuple(index), g)
        return bars

    return {"a": (pull, np.asarray(a), result)}


def _clip(
    result: Any, a: Any, *, a_min: Any = None, a_max: Any = None, min: Any = None, max: Any = None,  # noqa: A002
    **_: Any,
) -> Parts:  # fmt: skip
    low = min if a_min is None or a_min is _NOTHING else a_min
    high = max if a_max is None or a_max is _NOTHING else a_max

    def masks(a: Any, low: Any, high: Any) -> tuple[Any, Any]:
        below = np.asarray(False if low is None else np.less(a, low))
        raised = a if low is None else np.maximum(a, low)
        return below, np.asarray(False if high is None else np.greater(raised, high))

    def inner(g: Any, *saved: Any) -> Any:
        below, above = masks(*saved)
        return np.where(below | above, 0, g)

    def lower(g: Any, *saved: Any) -> Any:
        below, above = masks(*saved)
        return np.where(below & ~above, g, 0)

    def upper(g: Any, *saved: Any) -> Any:
        return np.where(masks(*saved)[1], g, 0)

    saved = a, low, high
    parts = {"a": (inner, *saved), "a_min": (lower, *saved), "a_max": (upper, *saved)}
    return parts | {"min": parts["a_min"], "max": parts["a_max"]}


def _nan_to_num(result: Any, x: Any, **_: Any) -> Parts:
    return {"x": (lambda g, finite: np.where(finite, g, 0), np.isfinite(x))}


add({
    np.sum: _sum, np.mean: _mean, np.var: _var, np.std: _std, np.prod: _prod,
    np.max: _extreme, np.amax: _extreme, np.min: _extreme, np.amin: _extreme,
    np.cumsum: _cumsum, np.cumprod: _cumprod, np.clip: _clip, np.nan_to_num: _nan_to_num,
})  # fmt: skip
for _extremum in (np.maximum, np.minimum):
    _name = f"np.{_extremum.__name__}.accumulate"
    RULES[_extremum.accumulate] = by_name(_running, _name, ("a", "axis"))
