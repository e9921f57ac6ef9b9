"""Products of matrices, linear algebra, Fourier transforms."""

from typing import Any

import numpy as np

from ckio.programs.tape.cells import Array
from ckio.programs.tape.rules import (
    RULES,
    SEVERAL,
    NumpyCall,
    Parts,
    Pulled,
    add,
    by_name,
    refused,
)


def _turned(a: Any) -> Any:
    return np.swapaxes(a, -1, -2)


def _left(g: Any, b: Any, ndim: int) -> Any:
    """The cotangent of a, of `ndim` dimensions, in a @ b."""
    if b.ndim == 1:
        return np.asarray(g)[..., None] * b
    if ndim == 1:
        return (np.asarray(g)[..., None, :] @ _turned(b))[..., 0, :]
    return g @ _turned(b)


def _right(g: Any, a: Any, ndim: int) -> Any:
    """The cotangent of b in a @ b."""
    if a.ndim == 1:
        return g * a if ndim == 1 else a[:, None] * np.asarray(g)[..., None, :]
    if ndim == 1:
        return (_turned(a) @ np.asarray(g)[..., None])[..., 0]
    return _turned(a) @ g


def _matmul(result: Any, a: Any, b: Any) -> Parts:
    a, b = np.asarray(a), np.asarray(b)
    return {"a": (_left, b, a.ndim), "b": (_right, a, b.ndim)}


def _letters(subscripts: str, shapes: list[tuple[int, ...]]) -> tuple[list[str], str]:
    """Subscripts of each operand and of the result, written out, without dots and spaces."""
    subscripts = subscripts.replace(" ", "")
    inputs, arrow, output = subscripts.partition("->")
    terms = inputs.split(",")
    spare = [c for c in "ZYXWVUTSRQPONMLKJIHGFEDCBA" if c not in subscripts]
    extra = max((len(s) - len(t) + 3 for t, s in zip(terms, shapes, strict=True) if "..." in t),
                default=0)  # fmt: skip
    dots = "".join(spare[:extra])
    full = [
        term.replace("...", dots[extra - (len(shape) - len(term) + 3) :] if "..." in term else "")
        for term, shape in zip(terms, shapes, strict=True)
    ]
    if not arrow:
        joined = inputs.replace(".", "").replace(",", "")
        output = ("..." if extra else "") + "".join(
            sorted(c for c in set(joined) if joined.count(c) == 1)
        )
    return full, output.replace("...", dots)


def _einsum(call: NumpyCall) -> Pulled:
    if not call.args or not isinstance(call.args[0], str):
        raise refused("np.einsum without a string of subscripts")
    operands = [np.asarray(it) for it in call.args[1:]]
    shapes = [it.shape for it in operands]
    terms, output = _letters(call.args[0], shapes)
    wanted = [int(path[0]) - 1 for path in call.paths]
    needed = [len(wanted) > 1 or number not in wanted for number in range(len(operands))]
    kept = [it if keep else None for it, keep in zip(operands, needed, strict=True)]
    return _einsum_pull, ((terms, output, shapes, wanted), kept)


def _einsum_pull(g: Any, about: Any, kept: Any) -> Any:
    terms, output, shapes, wanted = about
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for letter, length in zip(term, shape, strict=True):
            sizes[letter] = max(sizes.get(letter, 1), length) if length != 0 else 0
    bars = []
    for number in wanted:
        own = "".join(dict.fromkeys(terms[number]))
        others = [(t, k) for i, (t, k) in enumerate(zip(terms, kept, strict=True)) if i != number]
        known = set(output).union(*(t for t, _ in others))
        missing = [c for c in own if c not in known]
        subscripts = ",".join([output, *(t for t, _ in others), *missing])
        ones = [np.ones(sizes[c]) for c in missing]
        part = np.einsum(f"{subscripts}->{own}", g, *(k for _, k in others), *ones, optimize=True)
        if own != terms[number]:
            part = _on_diagonal(part, terms[number], own, shapes[number])
        bars.append(part)
    return tuple(bars)


def _on_diagonal(part: Array, term: str, own: str, shape: tuple[int, ...]) -> Array:
    full = np.zeros(shape, part.dtype)
    np.einsum(f"{term}->{own}", full)[...] = part
    return full


def _solve(result: Any, a: Any, b: Any) -> Parts:
    a, vector = np.asarray(a), np.ndim(b) == 1

    def right(g: Any, a: Any) -> Any:
        return np.linalg.solve(_turned(a), g)

    def matrix(g: Any, a: Any, x: Any) -> Any:
        if vector:
            solution = np.linalg.solve(_turned(a), np.broadcast_to(g, x.shape)[..., None])
            return -solution * x[..., None, :]
        return -np.linalg.solve(_turned(a), g) @ _turned(x)

    return {"a": (matrix, a, result), "b": (right, a)}


def _inv(result: Any, a: Any) -> Parts:
    return {"a": (lambda g, r: -_turned(r) @ g @ _turned(r), result)}


def _det(result: Any, a: Any) -> Parts:
    def pull(g: Any, a: Any) -> Any:
        u, s, v = np.linalg.svd(a)
        rest = np.stack([np.prod(np.delete(s, i, -1), -1) for i in range(s.shape[-1])], -1)
        phase = np.linalg.det(u) * np.linalg.det(v)
        cofactors = np.conj(u) @ (rest[..., None] * np.conj(v))
        return (np.asarray(g) * phase)[..., None, None] * cofactors

    return {"a": (pull, np.asarray(a))}


def _logdet(result: Any, a: Any) -> Parts:
    if np.iscomplexobj(a):
        raise refused("np.linalg.slogdet of a complex matrix")

    def pull(g: Any, a: Any) -> Any:
        return np.asarray(g)[..., None, None] * _turned(np.linalg.inv(a))

    return {"a": (pull, np.asarray(a))}


def _cholesky(result: Any, a: Any, *, upper: bool = False) -> Parts:
    """By the lower triangle, which alone is read."""
    if upper or np.iscomplexobj(a):
        raise refused("np.linalg.cholesky with upper=True, or of a complex matrix,")

    def pull(g: Any, r: Any) -> Any:
        inner = np.tril(_turned(r) @ g)
        i = np.arange(r.shape[-1])
        inner[..., i, i] *= 0.5
        inverse = np.linalg.inv(r)
        whole = _turned(inverse) @ inner @ inverse
        both = np.tril(whole + _turned(whole))
        both[..., i, i] *= 0.5
        return both

    return {"a": (pull, result)}


def _cropped(g: Array, length: int, axis: int) -> Array:
    """The first entries along an axis, or zeros behind them."""
    have = g.shape[axis]
    if have > length:
        return g[(slice(None),) * (axis % g.ndim) + (slice(length),)]
    wide = [(0, 0)] * g.ndim
    wide[axis] = (0, length - have)
    return np.pad(g, wide)


def _transforms(transform: Any, default: Any) -> Any:
    """Fft and ifft, along one axis or several, are symmetric matrices, behind zeros or a cut."""

    def rule(
        result: Any, a: Any, *, s: Any = None, axes: Any = default, axis: Any = None,
        norm: Any = None, **_: Any,
    ) -> Parts:  # fmt: skip
        shape = np.shape(a)
        axes = axes if axis is None else (axis,)
        if axes is None:
            axes = range(len(shape)) if s is None else range(-len(s), 0)
        over = tuple(axes)

        def pull(g: Any) -> Any:
            g = transform(g, None, over, norm)
            for along in over:
                g = _cropped(g, shape[along], along)
            return g

        return {"a": (pull,)}

    return rule


def _rfft(result: Any, a: Any, n: Any = None, axis: Any = -1, norm: Any = None, **_: Any) -> Parts:
    length = np.shape(a)[axis]
    count = length if n is None else n

    def pull(g: Any) -> Any:
        return _cropped(np.fft.fft(_cropped(g, count, axis), None, axis, norm).real, length, axis)

    return {"a": (pull,)}


def _irfft(result: Any, a: Any, n: Any = None, axis: Any = -1, norm: Any = None, **_: Any) -> Parts:
    length = np.shape(a)[axis]
    count = 2 * (length - 1) if n is None else n

    def pull(g: Any) -> Any:
        half = _cropped(np.fft.ifft(g, None, axis, norm), count // 2 + 1, axis)
        weight = np.full(count // 2 + 1, 2.0)
        weight[0] = 1.0
        if count % 2 == 0:
            weight[-1] = 1.0
        shape = [1] * half.ndim
        shape[axis] = -1
        return _cropped(half * weight.reshape(shape), length, axis)

    return {"a": (pull,)}


_la, _fft = np.linalg, np.fft
_one, _two = (-1,), (-2, -1)

add({
    _la.solve: _solve, _la.inv: _inv, _la.det: _det, _la.cholesky: _cholesky,
    _fft.fft: _transforms(_fft.fftn, _one), _fft.ifft: _transforms(_fft.ifftn, _one),
    _fft.fft2: _transforms(_fft.fftn, _two), _fft.ifft2: _transforms(_fft.ifftn, _two),
    _fft.fftn: _transforms(_fft.fftn, None), _fft.ifftn: _transforms(_fft.ifftn, None),
    _fft.rfft: _rfft, _fft.irfft: _irfft,
})  # fmt: skip
RULES[np.einsum] = _einsum
RULES[np.matmul] = by_name(_matmul, "np.matmul", ("a", "b"))
SEVERAL[np.linalg.slogdet] = None, by_name(_logdet, "np.linalg.slogdet", ("a",))
