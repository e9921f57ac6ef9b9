"""Means and differences of neighbours on a staggered grid, each with its transpose.

A field of cells x cells has cells - 1 places between them along each axis: what lies there is an
array shorter by one. Walls have no place in it; on them such a field is 0, so that a transpose
reaches no further than the cells. With <a, b> = Σ a b, the transpose of L is the L' for which
<c, L a> = <L' c, a>. The axes are those of numpy: `X` runs along a row.
"""

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Field = NDArray[Any]

X: Final = 1
Y: Final = 0

WAVES: Final = 6
"""Random fields have up to this many half waves along each side."""


def mean(a: Field, axis: int, out: Field, /) -> Field:
    """M a: the mean of neighbours, between them."""
    np.add(_lower(a, axis), _upper(a, axis), out=out)
    out *= 0.5
    return out


def spread(c: Field, factor: float, axis: int, onto: Field, /) -> None:
    """Adds factor M' c: half to each neighbour. Spends c."""
    c *= 0.5 * factor
    lower, upper = _lower(onto, axis), _upper(onto, axis)
    lower += c
    upper += c


def slope(a: Field, factor: float, axis: int, out: Field, /) -> Field:
    """Factor D a: the difference of neighbours, between them."""
    np.subtract(_upper(a, axis), _lower(a, axis), out=out)
    out *= factor
    return out


def gather(c: Field, factor: float, axis: int, onto: Field, /) -> None:
    """Adds factor D' c: what flows along the axis is taken from one, given to the next. Spends c.

    This is minus the divergence of a flux c through walls that let nothing pass.
    """
    c *= factor
    lower, upper = _lower(onto, axis), _upper(onto, axis)
    lower -= c
    upper += c


def inner(a: Field, b: Field, work: Field, /) -> float:
    """<a, b>, by a sum that does not depend on where the arrays lie."""
    return float(np.add.reduce(np.multiply(a, b, out=work), axis=None))


def random_surface(cells: int, random: np.random.Generator, /, *, size: float) -> Field:
    """A random field in the cells, of mean 0 and this root mean square; the same on every grid."""
    x = (np.arange(cells) + 0.5) / cells
    return _waves(np.cos(np.pi * np.outer(np.arange(WAVES + 1), x)), random, size=size)


def random_eddies(
    cells: int, random: np.random.Generator, /, *, speed: float
) -> tuple[Field, Field]:
    """A random flow u = D_y' ψ, v = -D_x' ψ, which has no divergence; the same on every grid."""
    x = np.arange(1, cells) / cells
    psi = _waves(np.sin(np.pi * np.outer(np.arange(WAVES + 1), x)), random, size=1.0)
    u, v = np.zeros((cells, cells - 1)), np.zeros((cells - 1, cells))
    gather(psi.copy(), 1.0, Y, u)
    gather(psi, -1.0, X, v)
    factor = speed * cells / math.sqrt(np.sum(u**2) + np.sum(v**2))
    return factor * u, factor * v


def _waves(shapes: Field, random: np.random.Generator, *, size: float) -> Field:
    """A random sum of products of shapes, longer ones larger, of this root mean square."""
    wave = np.arange(len(shapes))
    amplitudes = random.standard_normal((len(shapes), len(shapes)))
    amplitudes *= np.exp(-(wave[:, None] ** 2 + wave**2) / 9.0)
    amplitudes[0, 0] = 0
    field: Field = np.einsum("lk,ly,kx->yx", amplitudes, shapes, shapes)
    return field * (size / math.sqrt(np.mean(field**2)))


def _lower(a: Field, axis: int) -> Field:
    return a[:-1] if axis == Y else a[:, :-1]


def _upper(a: Field, axis: int) -> Field:
    return a[1:] if axis == Y else a[:, 1:]
