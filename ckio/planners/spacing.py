"""How far apart far checkpoints are best: m_X, m_X^rr, and what going back through a period takes.

A period of n steps begins with its first state on the far level and is taken back in q + 1 reads of
it: its steps are cut into q + 1 segments, and the last of them is reversed first, each by Revolve
in c near slots that cost nothing. Segment d, counted from the end, is advanced over d more times on
the way to those after it. Revolve takes T n - beta(c + 1, T - 1) advances for n steps, where
beta(c, T - 1) < n <= beta(c, T) and beta(c, t) = C(c + t, c), 0 for t < 0. That is convex in n, so
that the fewest advances have all segments end at one height:

    B_q(T) = sum_{d=0..q} beta(c, T - d)
    A_q(n) = T n - sum_{d=0..q} beta(c + 1, T - 1 - d)        for B_q(T - 1) < n <= B_q(T)
    D(n) = min_q  q r + A_q(n) u_f                            1D-Revolve; q = 0 is Revolve

A_q(n) is convex in q too, so that the first q after which nothing is gained is the best. The
periods that are best in the long run are

    m_X    = argmin_m (w + r + D(m)) / m                      of Per-Disk-Revolve
    m_X^rr = argmin_m (w + r + A_0(m) u_f) / m                of Per-Rev-Revolve

and the largest of these where there are several. w, r and u_f are the seconds to write, and later
discard, a far checkpoint, to read it, and to advance a step. The definitions are those of Herrmann
and Pallez, "H-Revolve", ACM TOMS 2020, sections 2.4.2 and 3.2, and Aupy and Herrmann, "Periodicity
in optimal hierarchical checkpointing schemes", 2017. They take u_f = 1: here, w and r are counted
in steps, which makes Theorem 4 and Conjecture 1 hold for every u_f > 0.
"""

from collections.abc import Callable, Iterator
from fractions import Fraction
from math import comb, inf

import numpy as np
from numpy.typing import NDArray

from ckio.errors import BadInput

_Ints = NDArray[np.int64]
_Seconds = NDArray[np.float64]

_LONGEST_SEARCH = 1 << 22
"""Steps: beyond, a search takes too long and too much memory to be of use."""


def beta(c: int, t: int, /) -> int:
    """The longest chain for c slots, if no step is advanced over more than t times."""
    return comb(c + t, c) if t >= 0 else 0


def reread(lengths: _Ints, slots: int, /, *, advance: float, read: float) -> tuple[_Seconds, _Ints]:
    """D of each of these lengths, in seconds, and the q that it takes: the smallest, if several."""
    seconds, rereads = np.full(len(lengths), np.inf), np.zeros(len(lengths), np.int64)
    for q, advances in enumerate(_advances(lengths, slots)):
        here = q * read + advances * advance
        better = here < seconds
        if not better.any():
            break
        seconds[better], rereads[better] = here[better], q
    return seconds, rereads


def read_once(lengths: _Ints, slots: int, /) -> _Ints:
    """A_0 of each of these lengths: the advances of Revolve."""
    return next(_advances(lengths, slots))


def _advances(lengths: _Ints, slots: int) -> Iterator[_Ints]:
    """A_0, A_1 and so on, of each of these lengths."""
    longest = int(lengths.max())
    known = [1]
    while known[-1] < longest:
        known.append(beta(slots, len(known)))
    segment = np.array(known)  # beta(c, T)
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
    """The lengths of q + 1 segments that take A_q(steps) advances, the last segment first.

    Of many such cuts this is the one whose first segment is longest, as in the paper's listings.
    """

    def reach(height: int) -> int:
        return beta(slots + 1, height) - beta(slots + 1, height - rereads - 1)

    height = _least(lambda t: reach(t) >= steps)
    lengths = [beta(slots, height - 1 - d) for d in range(rereads + 1)]
    left = steps - sum(lengths)
    for d in reversed(range(rereads + 1)):
        more = min(left, beta(slots, height - d) - lengths[d])
        lengths[d] += more
        left -= more
    return lengths


def period_read_once(slots: int, /, *, write: float, read: float, advance: float, most: int) -> int:
    """m_X^rr, or `most` if that is less, in closed form; `most` if advancing takes no time,
    or an access for ever.

        m_X^rr = beta(c, t)  with  beta(c + 1, t - 1) u_f <= w + r < beta(c + 1, t) u_f

    This is Theorem 4 of Herrmann and Pallez.

    >>> period_read_once(2, write=2, read=1, advance=1, most=100)
    3
    """
    if advance == 0 or inf in (write, read):
        return most
    trip = (Fraction(write) + Fraction(read)) / Fraction(advance)
    return min(most, beta(slots, _least(lambda t: beta(slots + 1, t) > trip)))


def period_reread(slots: int, /, *, write: float, read: float, advance: float, most: int) -> int:
    """m_X, or `most` if that is less, in closed form; `most` if advancing takes no time,
    or an access for ever.

        m_X = f(x, y),  f(x, y) = beta(c + 1, x + y - 1) - beta(c + 1, y - 1) = B_{x-1}(x + y - 1)
        beta(c + 1, y' - 1) u_f <= r < beta(c + 1, y') u_f,  y = y' or y' + 1
        sum_{j=1..x-1} f(j, y) u_f <= w < sum_{j=1..x} f(j, y) u_f,  x >= 1

    This is Conjecture 1 of Herrmann and Pallez, who leave open which y: both are evaluated here.
    Their last line has < and <=, which finds a smaller m_X where there are several, and none for
    w = 0.

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
        return _least(lambda x: x > 0 and sum_of_steps(x, y) > w), y

    first = _least(lambda y: beta(slots + 1, y) > r)
    candidates = [longest(first), longest(first + 1)]
    best = min(per_step(*candidate) for candidate in candidates)
    return min(most, max(steps(*found) for found in candidates if per_step(*found) == best))


def searched_period(
    slots: int, /, *, write: float, read: float, advance: float, most: int, once: bool
) -> int:
    """m_X or, with `once`, m_X^rr, by search; `most` if that is less.

    No period takes less per step than Revolve does with one slot more, that of its first state (or
    with as many slots, if that is read `once`), and this bound only grows with the period: the
    search ends where it passes the best that was found. Raises BadInput where that is too far.
    """
    if advance == 0:
        return most
    longest = 64
    while longest <= _LONGEST_SEARCH:
        lengths = np.arange(1, longest + 1)
        taken = (
            read_once(lengths, slots) * advance
            if once
            else reread(lengths, slots, advance=advance, read=read)[0]
        )
        per_step = (write + read + taken) / lengths
        bound = read_once(lengths[-1:], slots + (not once))[0] * advance / longest
        if bound > per_step.min():
            return min(most, longest - int(per_step[::-1].argmin()))
        longest *= 2
    raise BadInput(
        f"with {slots} near slots, {write:g} s to write and {read:g} s to read a far checkpoint and"
        f" {advance:g} s a step, the search for the best period goes beyond {_LONGEST_SEARCH}"
        " steps: give a period, or do not certify it"
    )


def _least(holds: Callable[[int], bool]) -> int:
    """The smallest whole number from 0 on for which `holds`, if it does for all that are larger."""
    low, high = -1, 1
    while not holds(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle
    return high
