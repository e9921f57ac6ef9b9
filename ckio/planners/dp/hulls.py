"""Lower convex hulls of functions of whole lengths, and the least sum of two of them (kernels).

For example, the values 0, 3, 4 and 9 for the lengths 0 to 3 have a hull with the vertices 0, 2 and
3: it has the slope 4 / 2 up to length 2, where it is 2 at length 1, below the value 3.

All results are exact. The slope of an edge is a fraction; fractions are compared by whole part and
remainder, so that no product exceeds the square of a length.
"""

from typing import NamedTuple

import numpy as np

from ckio.planners.base import Ints
from ckio.planners.compiled import inner_kernel

# mypy: disable-error-code="no-any-return"

Place = tuple[int, int, int]
"""An i, an edge of `inner` that contains total - i, and an edge of `outer` that contains i."""


class Curve(NamedTuple):
    """A function of the lengths from a first one, with its lower convex hull.

    Attributes
    ----------
    y : int64 array
        The value at each length.
    begin : int
        The first length of the hull.
    hull : int64 array
        The lengths of the vertices of the hull, ascending; edge p is from vertex p to p + 1. No
        vertex is inside a straight piece; each end of a straight piece on the hull is a vertex,
        so that the lengths of edges are the periods of the curve.
    size : int64 array of one element
        The number of vertices.
    """

    y: Ints
    begin: int
    hull: Ints
    size: Ints


class Sums(NamedTuple):
    """All sums inner(total - i) + outer(i) with 0 <= i < total; each curve has at least one edge.

    `inner` begins at length 1, `outer` at 0.
    """

    inner: Curve
    outer: Curve
    total: int


def curve(size: int, /, *, begin: int) -> Curve:
    """Return a curve of this many unknown values, without a hull."""
    return Curve(np.full(size, -1), begin, np.zeros(size, np.int64), np.zeros(1, np.int64))


@inner_kernel
def steeper(rise: int, run: int, other_rise: int, other_run: int) -> bool:
    """Return whether rise / run > other_rise / other_run."""
    slope, other = rise // run, other_rise // other_run
    if slope != other:
        return slope > other
    return (rise - slope * run) * other_run > (other_rise - other * other_run) * run


@inner_kernel
def rise(curve: Curve, p: int) -> int:
    """Return the rise of edge p."""
    return curve.y[curve.hull[p + 1]] - curve.y[curve.hull[p]]


@inner_kernel
def run(curve: Curve, p: int) -> int:
    """Return the number of lengths along edge p."""
    return curve.hull[p + 1] - curve.hull[p]


@inner_kernel
def push(curve: Curve, at: int) -> None:
    """Add a length to the right of all vertices to the hull."""
    y, hull, size = curve.y, curve.hull, curve.size
    count = size[0]
    top = hull[count - 1] if count else 0
    if count > 1 and top == at - 1 and y[at] - y[top] == y[top] - y[top - 1]:
        count -= 1  # `top` is inside a straight piece
    while count > 1:
        left, top = hull[count - 2], hull[count - 1]
        if not steeper(y[top] - y[left], top - left, y[at] - y[top], at - top):
            break
        count -= 1
    hull[count] = at
    size[0] = count + 1


@inner_kernel
def enclose(curve: Curve, end: int) -> None:
    """Compute the hull of a known curve up to `end`, inclusive."""
    y, begin = curve.y, curve.begin
    curve.size[0] = 0
    for at in range(begin, end + 1):
        if not begin < at < end or y[at + 1] - y[at] != y[at] - y[at - 1]:
            push(curve, at)


@inner_kernel
def edge(curve: Curve, near: int, at: int) -> int:
    """Return an edge that contains the length `at`; the search starts from edge `near`."""
    hull, last = curve.hull, curve.size[0] - 2
    p = min(near, last)
    while p > 0 and hull[p] > at:
        p -= 1
    while p < last and hull[p + 1] < at:
        p += 1
    return p


@inner_kernel
def to_the_right(curve: Curve, p: int, at: int) -> int:
    """Return the edge to the right of `at`, which edge p contains; or the last edge."""
    return p + 1 if p < curve.size[0] - 2 and curve.hull[p + 1] == at else p


@inner_kernel
def to_the_left(curve: Curve, p: int, at: int) -> int:
    """Return the edge to the left of `at`, which edge p contains; or the first edge."""
    return p - 1 if p > 0 and curve.hull[p] == at else p


@inner_kernel
def least_sum(sums: Sums, place: Place) -> int:
    """Return the sum of the hulls at a place, rounded up.

    No sum of two values is between the hulls' sum and this number, because values are whole.
    """
    i, p, q = place
    whole, rest, of = _on_edge(sums.inner, p, sums.total - i)
    other_whole, other_rest, other_of = _on_edge(sums.outer, q, i)
    rests, unit = rest * other_of + other_rest * of, of * other_of
    return whole + other_whole + (rests > 0) + (rests > unit)


@inner_kernel
def _on_edge(curve: Curve, p: int, at: int) -> tuple[int, int, int]:
    """Return the hull at a length of edge p as (whole, rest, of): whole + rest / of, rest < of."""
    left, right = curve.hull[p], curve.hull[p + 1]
    if at in (left, right):
        return curve.y[at], 0, 1
    of = right - left
    slope = rise(curve, p) // of
    rest = (rise(curve, p) - slope * of) * (at - left)
    return curve.y[left] + slope * (at - left) + rest // of, rest % of, of


@inner_kernel
def to_greater(sums: Sums, place: Place) -> Place:
    """Return the next place with greater i at which one of the hulls has a vertex."""
    i, p, q = place
    a = sums.total - i
    p, q = to_the_left(sums.inner, p, a), to_the_right(sums.outer, q, i)
    return i + min(sums.outer.hull[q + 1] - i, a - sums.inner.hull[p]), p, q


@inner_kernel
def to_smaller(sums: Sums, place: Place) -> Place:
    """Return the next place with smaller i at which one of the hulls has a vertex."""
    i, p, q = place
    a = sums.total - i
    p, q = to_the_right(sums.inner, p, a), to_the_left(sums.outer, q, i)
    return i - min(i - sums.outer.hull[q], sums.inner.hull[p + 1] - a), p, q


@inner_kernel
def descend(sums: Sums, i: int, p: int, q: int) -> Place:
    """Return the place where the hulls' sum is least; the search starts from i and nearby edges.

    The sum is convex in i, so that the search continues as long as the sum falls.
    """
    inner, outer = sums.inner, sums.outer
    place = i, edge(inner, p, sums.total - i), edge(outer, q, i)
    while place[0] + 1 < sums.total:
        i, p, q = to_greater(sums, place)
        if not steeper(rise(inner, p), run(inner, p), rise(outer, q), run(outer, q)):
            break
        place = i, p, q
    while place[0] > 0:
        i, p, q = to_smaller(sums, place)
        if not steeper(rise(outer, q), run(outer, q), rise(inner, p), run(inner, p)):
            break
        place = i, p, q
    return place


@inner_kernel
def window(sums: Sums, least: Place, below: int, part: tuple[int, int]) -> tuple[int, int]:
    """Return the `part` begin <= i < end without ends at which the sum is not less than `below`.

    The search goes outwards from the place where the hulls' sum is `least`.
    """
    begin, end = part
    place = least
    while place[0] + 1 < end:
        place = to_greater(sums, place)
        if least_sum(sums, place) >= below:
            end = min(end, place[0])
    place = least
    while place[0] > begin:
        place = to_smaller(sums, place)
        if least_sum(sums, place) >= below:
            begin = max(begin, place[0] + 1)
    return begin, end
