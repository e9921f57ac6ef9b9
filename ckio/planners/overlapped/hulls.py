"""Sums of functions of the lengths of segments, each replaced by its lower convex hull. Numba.

The least sum for a length of all together is that of the least slopes, whichever they are of.
"""

import numpy as np

from ckio.planners.compiled import kernel
from ckio.planners.overlapped.programs import Ints, Seconds

# mypy: disable-error-code="no-any-return"


class Merged:
    """The slopes of the hulls of some functions in one, the least first, and their sums.

    Attributes
    ----------
    length : int
        The most slopes that are of use.
    slopes, sums : float64 arrays
    base : float
        What they are at 0 together.
    """

    def __init__(self, length: int, slopes: Seconds | None = None, base: float = 0.0) -> None:
        self.length, self.base = length, base
        self.slopes = np.empty(0) if slopes is None else slopes[:length]
        self.sums = np.concatenate(([0.0], np.cumsum(self.slopes)))

    @classmethod
    def of(cls, values: Ints | Seconds, /) -> "Merged":
        """One function, by its values at 0, 1, 2, ..."""
        return cls(len(values) - 1, slopes(values), float(values[0]))

    def joined(self, other: "Merged") -> "Merged":
        """With those of another."""
        both = np.concatenate((self.slopes, other.slopes))
        both.sort(kind="stable")
        return Merged(self.length, both, self.base + other.base)

    def times(self, count: int) -> "Merged":
        """So many of these."""
        return Merged(self.length, np.repeat(self.slopes, count), count * self.base)

    def least(self, other: "Merged", steps: int) -> float:
        """The least of the sum of all, at so many steps."""
        pairs = self.slopes, self.sums, other.slopes, other.sums
        return self.base + other.base + _least_sum(*pairs, steps)


def slopes(values: Ints | Seconds, /) -> Seconds:
    """The slopes of the lower convex hull of values at 0, 1, 2, ..., from each to the next."""
    ends, slopes = np.zeros(len(values), np.int64), np.zeros(len(values) - 1)
    _hull(values, ends, slopes)
    return slopes


@kernel
def _hull(values: Ints | Seconds, ends: Ints, slopes: Seconds) -> None:
    top = 0
    for x in range(1, len(values)):
        while top and (values[ends[top]] - values[ends[top - 1]]) * (x - ends[top]) >= (
            values[x] - values[ends[top]]
        ) * (ends[top] - ends[top - 1]):
            top -= 1
        top += 1
        ends[top] = x
    for piece in range(top):
        begin, end = ends[piece], ends[piece + 1]
        for x in range(begin, end):
            slopes[x] = (values[end] - values[begin]) / (end - begin)


@kernel
def _least_sum(a: Seconds, sum_a: Seconds, b: Seconds, sum_b: Seconds, count: int) -> float:
    """The sum of the `count` least of two sorted arrays; infinite where they are fewer."""
    low, high = max(0, count - len(b)), min(count, len(a))
    if low > high:
        return np.inf
    while low < high:
        middle = (low + high) >> 1
        if count > middle and a[middle] < b[count - middle - 1]:
            low = middle + 1
        else:
            high = middle
    return sum_a[low] + sum_b[count - low]
