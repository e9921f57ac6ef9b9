"""Rules of reductions along axes, of linear algebra, and of Fourier transforms.

For example, let y = sum(x, axis=0) for x of shape (2, 3). The cotangent of each row of x is that of
y, so ybar is broadcast from shape (3,) to shape (2, 3). For y = a @ b, abar = ybar @ b.T.
"""

from typing import Any

import numpy as np

from ckio.programs.tape.cells import Array
from ckio.programs.tape.rules import RULES, NumpyCall, Parts, Pulled, add, by_name, refusal

# Along axes


def _axes(shape: tuple[int, ...], axis: Any) -> tuple[int, ...]:
    axes = range(len(shape)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return tuple(it % len(shape) for it in axes) if shape else ()


def _count(shape: tuple[int, ...], axis: Any) -> int:
    return int(np.prod([shape[it] for it in _axes(shape, axis)]))


def _spread(g: Any, shape: tuple[int, ...], axis: Any, keepdims: Any) -> Any:
    """Broadcast the cotangent of a reduced array to the shape before the reduction."""
    g = np.asarray(g)
    if axis is not None and not keepdims:
        g = np.expand_dims(g, _axes(shape, axis)) if shape else g
    elif axis is None and g.ndim and g.ndim != len(shape):
        g = g.reshape(())
    return np.broadcast_to(g, shape)


def _sum(
    result: Any, a: Any, *, axis: Any = None, dtype: Any = None, keepdims: Any = False
) -> Parts:
    shape = np.shape(a)
    return {"a": (lambda g: _spread(g, shape, axis, keepdims),)}


def _mean(
    result: Any, a: Any, *, axis: Any = None, dtype: Any = None, keepdims: Any = False
) -> Parts:
    shape, count = np.shape(a), _count(np.shape(a), axis)
    return {"a": (lambda g: _spread(g, shape, axis, keepdims) / count,)}


def _extreme(result: Any, a: Any, *, axis: Any = None, keepdims: Any = False) -> Parts:
    shape = np.shape(a)

    def pull(g: Any, a: Any, r: Any) -> Any:
        largest = np.equal(a, _spread(r, shape, axis, keepdims))
        count = np.sum(largest, axis=axis, keepdims=True)
        return np.where(largest, _spread(g, shape, axis, keepdims) / np.maximum(count, 1), 0)

    return {"a": (pull, a, result)}


def _prod(
    result: Any, a: Any, *, axis: Any = None, dtype: Any = None, keepdims: Any = False
) -> Parts:
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
    """Return for each entry the product of all other entries along the last axis."""
    before, after = np.ones_like(a), np.ones_like(a)
    np.cumprod(a[..., :-1], axis=-1, out=before[..., 1:])
    np.cumprod(a[..., :0:-1], axis=-1, out=after[..., -2::-1])
    return before * after


def _cumsum(result: Any, a: Any, *, axis: Any = None, dtype: Any = None) -> Parts:
    shape, along = np.shape(a), 0 if axis is None else axis
    return {"a": (lambda g: np.flip(np.cumsum(np.flip(g, along), along), along).reshape(shape),)}


def _cumprod(result: Any, a: Any, *, axis: Any = None, dtype: Any = None) -> Parts:
    shape, along = np.shape(a), 0 if axis is None else axis

    def pull(g: Any, a: Any, r: Any) -> Any:
        factors = np.moveaxis(a.reshape(-1) if axis is None else np.asarray(a), along, 0)
        given, products = np.moveaxis(g, along, 0), np.moveaxis(r, along, 0)
        bars, rest = np.zeros_like(factors), np.zeros(factors.shape[1:], factors.dtype)
        for i in range(len(factors) - 1, -1, -1):
            rest = rest + given[i]
            bars[i] = rest * products[i - 1] if i else rest
            rest = rest * factors[i]
        return np.moveaxis(bars, 0, along).reshape(shape)

    return {"a": (pull, np.asarray(a), result)}


def _varying(root: bool) -> Any:
    """Return the rule of the variance, or of its square root, whose derivative at 0 is 0."""

    def rule(
        result: Any, a: Any, *, axis: Any = None, dtype: Any = None, ddof: Any = 0,
        keepdims: Any = False,
    ) -> Parts:  # fmt: skip
        shape, count = np.shape(a), _count(np.shape(a), axis) - ddof

        def pull(g: Any, a: Any, r: Any) -> Any:
            g = np.where(np.equal(r, 0), 0, g / np.where(np.equal(r, 0), 1, r)) if root else 2.0 * g
            deviation = np.conj(a - np.mean(a, axis=axis, keepdims=True))
            return _spread(g, shape, axis, keepdims) * deviation / count

        return {"a": (pull, a, result if root else None)}

    return rule


def _clip(
    result: Any,
    a: Any,
    *,
    a_min: Any = None,
    a_max: Any = None,
    min: Any = None,  # noqa: A002
    max: Any = None,  # noqa: A002
) -> Parts:
    low, high = (min if a_min is None else a_min), (max if a_max is None else a_max)
    below = np.asarray(False if low is None else np.less(a, low))
    above = np.asarray(
        False if high is None else np.greater(a if low is None else np.maximum(a, low), high)
    )

    def chosen(g: Any, mask: Any) -> Any:
        return np.where(mask, g, 0)

    lower, upper = (chosen, below & ~above), (chosen, above)
    inner = chosen, ~(below | above)
    return {"a": inner, "a_min": lower, "min": lower, "a_max": upper, "max": upper}


def _diff(result: Any, a: Any, *, n: int = 1, axis: int = -1) -> Parts:
    def pull(g: Any) -> Any:
        for _ in range(n):
            longer = list(g.shape)
            longer[axis] += 1
            whole = np.zeros(longer, g.dtype)
            turned, part = np.moveaxis(whole, axis, -1), np.moveaxis(g, axis, -1)
            turned[..., 1:] += part
            turned[..., :-1] -= part
            g = whole
        return g

    return {"a": (pull,)}


def _norm(
    result: Any,
    x: Any,
    *,
    ord: Any = None,  # noqa: A002
    axis: Any = None,
    keepdims: Any = False,
) -> Parts:
    """Return the rule of the norm of all entries along the axes. Its derivative at 0 is 0."""
    if ord is not None:
        raise refusal(
            f"np.linalg.norm with ord={ord!r}",
            "leave out a 2 and 'fro', which are the default; otherwise write np.max(np.abs(u)), or"
            " np.sum(np.abs(u) ** p) ** (1 / p)",
        )
    shape = np.shape(x)

    def pull(g: Any, x: Any, r: Any) -> Any:
        return _spread(g / np.where(np.equal(r, 0), 1, r), shape, axis, keepdims) * np.conj(x)

    return {"x": (pull, x, result)}


add({
    np.sum: _sum, np.mean: _mean, np.prod: _prod, np.cumsum: _cumsum, np.cumprod: _cumprod,
    np.max: _extreme, np.amax: _extreme, np.min: _extreme, np.amin: _extreme,
    np.var: _varying(root=False), np.std: _varying(root=True), np.clip: _clip, np.diff: _diff,
    np.linalg.norm: _norm,
})  # fmt: skip


# Linear algebra, and Fourier transforms


def _transpose(a: Any) -> Any:
    return np.swapaxes(a, -1, -2)


def _left(g: Any, b: Any, ndim: int) -> Any:
    """Return the cotangent of a in a @ b, where a has `ndim` dimensions."""
    if b.ndim == 1:
        return np.asarray(g)[..., None] * b
    if ndim == 1:
        return (np.asarray(g)[..., None, :] @ _transpose(b))[..., 0, :]
    return g @ _transpose(b)


def _right(g: Any, a: Any, ndim: int) -> Any:
    """Return the cotangent of b in a @ b, where b has `ndim` dimensions."""
    if a.ndim == 1:
        return g * a if ndim == 1 else a[:, None] * np.asarray(g)[..., None, :]
    if ndim == 1:
        return (_transpose(a) @ np.asarray(g)[..., None])[..., 0]
    return _transpose(a) @ g


def _matmul(result: Any, a: Any, b: Any) -> Parts:
    a, b = np.asarray(a), np.asarray(b)
    return {"a": (_left, b, a.ndim), "b": (_right, a, b.ndim)}


def _dot(result: Any, a: Any, b: Any) -> Parts:
    """Return the rule of np.matmul, where np.dot is the same."""
    if 0 in (np.ndim(a), np.ndim(b)) or (np.ndim(a) > 1 and np.ndim(b) > 2):
        raise refusal("np.dot of a number, or of two stacks,", "write u * v, or use np.einsum")
    return _matmul(result, a, b)


def _einsum(call: NumpyCall) -> Pulled:
    if not call.args or not isinstance(call.args[0], str):
        raise refusal("np.einsum without a string of subscripts", "write np.einsum('ij,j', u, v)")
    if "..." in call.args[0]:
        raise refusal("np.einsum with '...'", "write a letter for each axis")
    inputs, arrow, output = call.args[0].replace(" ", "").partition("->")
    terms = inputs.split(",")
    if any(len(set(term)) < len(term) for term in terms):
        raise refusal("np.einsum with a letter twice in one operand", "give it np.diagonal(u)")
    if not arrow:
        output = "".join(sorted(c for c in set(inputs) - {","} if inputs.count(c) == 1))
    operands = [np.asarray(it) for it in call.args[1:]]
    wanted = [int(path[0]) - 1 for path in call.paths]
    needed = [len(wanted) > 1 or number not in wanted for number in range(len(operands))]
    kept = [it if keep else None for it, keep in zip(operands, needed, strict=True)]
    return _einsum_pull, ((terms, output, [it.shape for it in operands], wanted), kept)


def _einsum_pull(g: Any, about: Any, kept: Any) -> Any:
    terms, output, shapes, wanted = about
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for letter, length in zip(term, shape, strict=True):
            sizes[letter] = max(sizes.get(letter, 1), length) if length != 0 else 0
    bars = []
    for number in wanted:
        own = terms[number]
        others = [(t, k) for i, (t, k) in enumerate(zip(terms, kept, strict=True)) if i != number]
        known = set(output).union(*(t for t, _ in others))
        missing = [c for c in own if c not in known]
        subscripts = ",".join([output, *(t for t, _ in others), *missing])
        ones = [np.ones(sizes[c]) for c in missing]
        operands = g, *(k for _, k in others), *ones
        bars.append(np.einsum(f"{subscripts}->{own}", *operands, optimize=True))
    return tuple(bars)


def _solve(result: Any, a: Any, b: Any) -> Parts:
    a, vector = np.asarray(a), np.ndim(b) == 1

    def right(g: Any, a: Any) -> Any:
        return np.linalg.solve(_transpose(a), g)

    def matrix(g: Any, a: Any, x: Any) -> Any:
        if vector:
            solution = np.linalg.solve(_transpose(a), np.broadcast_to(g, x.shape)[..., None])
            return -solution * x[..., None, :]
        return -np.linalg.solve(_transpose(a), g) @ _transpose(x)

    return {"a": (matrix, a, result), "b": (right, a)}


def _inv(result: Any, a: Any) -> Parts:
    return {"a": (lambda g, r: -_transpose(r) @ g @ _transpose(r), result)}


def _det(result: Any, a: Any) -> Parts:
    def pull(g: Any, a: Any) -> Any:
        u, s, v = np.linalg.svd(a)
        rest = np.stack([np.prod(np.delete(s, i, -1), -1) for i in range(s.shape[-1])], -1)
        phase = np.linalg.det(u) * np.linalg.det(v)
        cofactors = np.conj(u) @ (rest[..., None] * np.conj(v))
        return (np.asarray(g) * phase)[..., None, None] * cofactors

    return {"a": (pull, np.asarray(a))}


def _cholesky(result: Any, a: Any, *, upper: bool = False) -> Parts:
    """Return the rule of the lower triangle, because NumPy reads no other entries."""
    if upper or np.iscomplexobj(a):
        raise refusal("np.linalg.cholesky with upper=True, or of a complex matrix,")

    def pull(g: Any, r: Any) -> Any:
        inner = np.tril(_transpose(r) @ g)
        i = np.arange(r.shape[-1])
        inner[..., i, i] *= 0.5
        inverse = np.linalg.inv(r)
        whole = _transpose(inverse) @ inner @ inverse
        both = np.tril(whole + _transpose(whole))
        both[..., i, i] *= 0.5
        return both

    return {"a": (pull, result)}


def _crop(g: Array, length: int, axis: int) -> Array:
    """Return the first `length` entries along an axis, with zeros appended if there are fewer."""
    have = g.shape[axis]
    if have > length:
        return g[(slice(None),) * (axis % g.ndim) + (slice(length),)]
    wide = [(0, 0)] * g.ndim
    wide[axis] = (0, length - have)
    return np.pad(g, wide)


def _transforms(transform: Any, default: Any) -> Any:
    """Return the rule of a Fourier transform along some axes.

    A transform is a symmetric matrix, applied after zeros are appended or entries are removed.
    """

    def rule(
        result: Any, a: Any, *, s: Any = None, axes: Any = default, axis: Any = None,
        n: Any = None, norm: Any = None,
    ) -> Parts:  # fmt: skip
        shape = np.shape(a)
        axes = axes if axis is None else (axis,)
        if axes is None:
            axes = range(len(shape)) if s is None else range(-len(s), 0)
        over = tuple(axes)

        def pull(g: Any) -> Any:
            g = transform(g, None, over, norm)
            for along in over:
                g = _crop(g, shape[along], along)
            return g

        return {"a": (pull,)}

    return rule


def _rfft(result: Any, a: Any, *, n: Any = None, axis: Any = -1, norm: Any = None) -> Parts:
    length = np.shape(a)[axis]
    count = length if n is None else n

    def pull(g: Any) -> Any:
        return _crop(np.fft.fft(_crop(g, count, axis), None, axis, norm).real, length, axis)

    return {"a": (pull,)}


def _irfft(result: Any, a: Any, *, n: Any = None, axis: Any = -1, norm: Any = None) -> Parts:
    length = np.shape(a)[axis]
    count = 2 * (length - 1) if n is None else n

    def pull(g: Any) -> Any:
        half = _crop(np.fft.ifft(g, None, axis, norm), count // 2 + 1, axis)
        weight = np.full(count // 2 + 1, 2.0)
        weight[0] = 1.0
        if count % 2 == 0:
            weight[-1] = 1.0
        shape = [1] * half.ndim
        shape[axis] = -1
        return _crop(half * weight.reshape(shape), length, axis)

    return {"a": (pull,)}


_la, _fft = np.linalg, np.fft
_one, _two = (-1,), (-2, -1)

add({
    np.dot: _dot, _la.solve: _solve, _la.inv: _inv, _la.det: _det, _la.cholesky: _cholesky,
    _fft.fft: _transforms(_fft.fftn, _one), _fft.ifft: _transforms(_fft.ifftn, _one),
    _fft.fft2: _transforms(_fft.fftn, _two), _fft.ifft2: _transforms(_fft.ifftn, _two),
    _fft.fftn: _transforms(_fft.fftn, None), _fft.ifftn: _transforms(_fft.ifftn, None),
    _fft.rfft: _rfft, _fft.irfft: _irfft,
})  # fmt: skip
RULES[np.einsum] = _einsum
RULES[np.matmul] = by_name(_matmul, "np.matmul", ("a", "b"))
