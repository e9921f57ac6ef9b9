"""The best distances between far checkpoints, m_X and m_X^rr, and the cost to reverse a period.

The first state of a period of n steps is stored on the far level. To reverse the period, this
state is read q + 1 times. The n steps are cut into q + 1 segments. The last segment is reversed
first. Each segment is reversed by Revolve in c near slots that cost nothing. If d segments come
after a segment, its steps are advanced over d additional times, on the way to these segments.

For n steps, Revolve needs T n - beta(c + 1, T - 1) advances, where T is the number with
beta(c, T - 1) < n <= beta(c, T), and beta(c, t) = C(c + t, c), or 0 for t < 0. This is convex in n.
Therefore the number of advances is least if one more step needs the same number T of advances in
each segment: T - d by Revolve in segment d, and d on the way to later segments. This gives

    B_q(T) = sum_{d=0..q} beta(c, T - d)
    A_q(n) = T n - sum_{d=0..q} beta(c + 1, T - 1 - d)        for B_q(T - 1) < n <= B_q(T)
    D(n) = min_q  q r + A_q(n) u_f                            1D-Revolve; q = 0 is Revolve

For example, let c = 1. Then beta(1, t) = t + 1. Six steps without a second read (q = 0) need T = 5
and 5 * 6 - beta(2, 4) = 15 advances. With q = 1, B_1(2) = 3 + 2 = 5 < 6 <= B_1(3) = 7, so that
T = 3 and A_1(6) = 3 * 6 - beta(2, 2) - beta(2, 1) = 18 - 6 - 3 = 9 advances. If a read takes
r = 2 s and a step u_f = 1 s, D(6) is therefore at most 2 + 9 = 11 s. This is the minimum:

>>> reread(np.array([6]), 1, advance=1, read=2)
(array([11.]), array([1]))

A_q(n) is convex in q, too. Therefore the search for the best q ends at the first q that brings no
gain. In the long run, the best periods are

    m_X    = argmin_m (w + r + D(m)) / m                      of Per-Disk-Revolve
    m_X^rr = argmin_m (w + r + A_0(m) u_f) / m                of Per-Rev-Revolve

and the largest of them if there are several. Here w is the seconds to write a far checkpoint and to
discard it later, r the seconds to read it, and u_f the seconds to advance one step.

Sources: Herrmann & Pallez (2020), "H-Revolve", ACM TOMS, sections 2.4.2 and 3.2; Aupy & Herrmann
(2017), "Periodicity in optimal hierarchical checkpointing schemes". Both assume u_f = 1. Here w and
r are measured in steps (w / u_f and r / u_f), so that Theorem 4 and Conjecture 1 hold for every
u_f > 0.
"""

from collections.abc import Iterator
from fractions import Fraction
from math import inf

import numpy as np

from ckio.planners.base import Ints, Seconds
from ckio.planners.binomial import beta, least


def reread(lengths: Ints, slots: int, /, *, advance: float, read: float) -> tuple[Seconds, Ints]:
    """Return D, in seconds, and q for each of these lengths.

    If several q are equally good, the result is the smallest.
    """
    seconds, rereads = np.full(len(lengths), np.inf), np.zeros(len(lengths), np.int64)
    for q, advances in enumerate(_advances(lengths, slots)):
        here = q * read + advances * advance
        better = here < seconds
        if not better.any():
            break
        seconds[better], rereads[better] = here[better], q
    return seconds, rereads


def read_once(lengths: Ints, slots: int, /) -> Ints:
    """Return A_0, the advances of Revolve, for each of these lengths."""
    return next(_advances(lengths, slots))


def longest_chains(slots: int, steps: int, /) -> list[int]:
    """Return beta(c, t) for t = 0, 1, .. until it is at least `steps`."""
    found = [1]
    while found[-1] < steps:
        found.append(beta(slots, len(found)))
    return found


def _advances(lengths: Ints, slots: int) -> Iterator[Ints]:
    """Yield A_0, A_1 and so on, for each of these lengths."""
    longest = int(lengths.max())
    segment = np.array(longest_chains(slots, longest))  # beta(c, T)
    spared = np.cumsum(segment)  # beta(c + 1, T)
    reach = segment.copy()  # B_q(T)
    saved = np.concatenate(([0], spared[:-1]))  # the sum in A_q
    for q in range(1, longest + 2):
        heights = np.searchsorted(reach, lengths)
        yield heights * lengths - saved[heights]
        size = 1 + int(np.searchsorted(reach, longest))
        reach, saved = reach[:size], saved[:size]
        reach[q:] += segment[: max(0, size - q)]
        saved[q + 1 :] += spared[: max(0, size - q - 1)]


def segments(steps: int, slots: int, rereads: int, /) -> list[int]:
    """Return the lengths of q + 1 segments that need A_q(steps) advances, the last segment first.

    Several cuts need the same number of advances. This function returns the cut with the longest
    first segment, as in the listings of Herrmann & Pallez (2020).
    """

    def reach(height: int) -> int:
        return beta(slots + 1, height) - beta(slots + 1, height - rereads - 1)

    height = least(lambda t: reach(t) >= steps)
    lengths = [beta(slots, height - 1 - d) for d in range(rereads + 1)]
    left = steps - sum(lengths)
    for d in reversed(range(rereads + 1)):
        more = min(left, beta(slots, height - d) - lengths[d])
        lengths[d] += more
        left -= more
    return lengths


def cut_1d(steps: int, slots: int, advance: float, read: float, /) -> list[int]:
    """Return the lengths of the segments of 1D-Revolve, the last segment first."""
    _, rereads = reread(np.array([steps]), slots, advance=advance, read=read)
    return segments(steps, slots, int(rereads[0]))


def period_read_once(slots: int, /, *, write: float, read: float, advance: float, most: int) -> int:
    """Return m_X^rr in closed form, but at most `most`.

        m_X^rr = beta(c, t)  with  beta(c + 1, t - 1) u_f <= w + r < beta(c + 1, t) u_f

    This is Theorem 4 of Herrmann & Pallez (2020). The result is `most` if advancing takes no time,
    or if an access takes infinitely long.

    For example, let c = 2, w = 2 s, r = 1 s and u_f = 1 s. Because beta(3, 0) = 1 <= 3 < beta(3, 1)
    = 4, t = 1 and m_X^rr = beta(2, 1) = 3:

    >>> period_read_once(2, write=2, read=1, advance=1, most=100)
    3
    """
    if advance == 0 or inf in (write, read):
        return most
    trip = (Fraction(write) + Fraction(read)) / Fraction(advance)
    return min(most, beta(slots, least(lambda t: beta(slots + 1, t) > trip)))


def period_reread(slots: int, /, *, write: float, read: float, advance: float, most: int) -> int:
    """Return m_X in closed form, but at most `most`.

        m_X = f(x, y),  f(x, y) = beta(c + 1, x + y - 1) - beta(c + 1, y - 1) = B_{x-1}(x + y - 1)
        beta(c + 1, y' - 1) u_f <= r < beta(c + 1, y') u_f,  y = y' or y' + 1
        sum_{j=1..x-1} f(j, y) u_f <= w < sum_{j=1..x} f(j, y) u_f,  x >= 1

    This is Conjecture 1 of Herrmann & Pallez (2020). They do not say which of the two y is right:
    both are evaluated here. Their last line has < and <= instead of <= and <. With their signs, the
    result would be a smaller m_X if there are several, and there would be no result for w = 0. The
    result is `most` if advancing takes no time, or if an access takes infinitely long.

    For example, let c = 2, w = 10 s, r = 2 s and u_f = 1 s. Because beta(3, 0) = 1 <= 2 < beta(3,
    1) = 4, y' = 1. For y = 1, f(1, 1) = 3 and f(2, 1) = 9, so that x = 2 and m_X could be 9. For y
    = 2, f(1, 2) = 6 and f(2, 2) = 16, so that x = 2 and m_X could be 16. Seconds per step decide:

    >>> period_reread(2, write=10, read=2, advance=1, most=100)
    16
    """
    if advance == 0 or inf in (write, read):
        return most
    w, r = Fraction(write) / Fraction(advance), Fraction(read) / Fraction(advance)

    def steps(x: int, y: int) -> int:
        return beta(slots + 1, x + y - 1) - beta(slots + 1, y - 1)

    def sum_of_steps(x: int, y: int) -> int:
        top, below = beta(slots + 2, x + y - 1), beta(slots + 2, y - 1)
        return top - below - x * beta(slots + 1, y - 1)

    def per_step(x: int, y: int) -> Fraction:
        saved = beta(slots + 2, x + y - 2) - beta(slots + 2, y - 2)
        return x + y - 1 + (w + x * r - saved) / steps(x, y)

    def longest(y: int) -> tuple[int, int]:
        return least(lambda x: x > 0 and sum_of_steps(x, y) > w), y

    first = least(lambda y: beta(slots + 1, y) > r)
    candidates = [longest(first), longest(first + 1)]
    best = min(per_step(*candidate) for candidate in candidates)
    return min(most, max(steps(*found) for found in candidates if per_step(*found) == best))
