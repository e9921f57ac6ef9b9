"""What segments cost as functions of their lengths, by what the channel's states are worth. Numba.

Matrices of `inner` become functions by numbers g, one for each state:

    a(x) = min_{y, z} A(x)[y, z] + g(z) - g(y),

whose sum over segments, with g of the first state, is no more than what their product is. By the
same numbers a segment whose first state is far needs no matrix: with F_c(x), J for an advance, P
where a far checkpoint is passed and R where one is used, W(x) is no more than its product with g,

    W(x) = min(F_c(x) * g,  min_j  J^j * min(F_c(x - j) * g, P * W(x - j)) + r(j - 1)),
    r(x) = min_y (R * W(x))[y] - g[y],

each with all that standing still may bring; far slots have no end. The last segment of all is
followed by nothing: by 0 in place of g. Those g serve best with which
segments of the usual length cost most. They fall with each checkpoint that was read ahead or waits
to be written, and along a transfer to what is there at its end: by how much is searched for.
"""

from math import ceil
from typing import Final, NamedTuple

import numpy as np
from scipy.optimize import minimize

from ckio.planners.compiled import kernel
from ckio.planners.overlapped.hulls import slopes
from ckio.planners.overlapped.inner import Inner, Rules
from ckio.planners.overlapped.lengths import Lengths, least_near
from ckio.planners.overlapped.programs import Seconds
from ckio.planners.overlapped.progress import Steps
from ckio.planners.overlapped.transfers import (
    NEVER,
    WAITING,
    Matrix,
    Times,
    before,
    states,
    stood_still,
)

_SEARCH: Final = {"maxfev": 400, "xtol": 0.02, "ftol": 1e-4}
_USUAL: Final = 60.0
"""Steps of segments for which g is searched at the most: longer ones are made of shorter ones."""


class Far(NamedTuple):
    """Segments whose first state is far, by x.

    Attributes
    ----------
    whole : float64 array (x, states)
        W(x).
    used : float64 array (x, states)
        R * W(x).
    onward : float64 array (x, states)
        The least of F_c(x) * g and P * W(x).
    read : float64 array
        r(x - 1).
    """

    whole: Matrix
    used: Matrix
    onward: Matrix
    read: Seconds


def worth_of(tables: Inner, steps: Steps, rules: Rules, times: Times, usual: float) -> Seconds:
    """g, for segments that are about so long."""
    every, last = states(times), len(steps.seconds) - 1
    usual = min(usual, _USUAL)
    longest = min(last, ceil(2.5 * usual) + 8)
    read = np.zeros(len(every))
    waits, written = np.zeros((2, len(every)))
    for number, (waiting, ahead, doing) in enumerate(every):
        read[number], waits[number] = ahead, waiting
        if doing is not None and doing.writes:
            written[number] = doing.since / times.write
            waits[number] += 1 - written[number]
        elif doing is not None:
            read[number] += doing.since / times.read

    def worth(falls: Seconds) -> Seconds:
        waiting, ahead = (
            np.append(0.0, np.cumsum(part)) for part in np.split(falls, [WAITING + 1])
        )
        found: Seconds = np.interp(read, np.arange(len(ahead)), ahead) - times.price * written
        found += np.interp(waits, np.arange(len(waiting)), waiting)
        found -= found.min()
        return found

    def gain(falls: Seconds) -> float:
        found = segments(tables, steps, rules, worth(falls), longest).read[1:]
        hull = found[0] + np.append(0.0, np.cumsum(slopes(found)))
        return -float(np.interp(usual, np.arange(longest + 1), hull))

    start = [-times.price / 4] * (WAITING + 1) + [-times.read_seconds / 2] * times.slots
    return worth(minimize(gain, start, method="Powell", options=_SEARCH).x)


def segments(tables: Inner, steps: Steps, rules: Rules, worth: Seconds, longest: int) -> Far:
    """For x up to `longest`."""
    far = _near_first(tables, steps, rules, worth, longest)
    _solve(far, far.onward, steps, rules, worth)
    return far


def last_segments(tables: Inner, steps: Steps, rules: Rules, worth: Seconds, others: Far) -> Far:
    """The same, but nothing follows; for no longer ones than there are matrices of."""
    far = _near_first(tables, steps, rules, np.zeros_like(worth), tables.longest)
    _solve(far, others.onward, steps, rules, worth)
    return far


def _near_first(tables: Inner, steps: Steps, rules: Rules, worth: Seconds, longest: int) -> Far:
    """With F_c(x) * g, and nothing else yet."""
    short = min(tables.longest, longest)
    near = np.full((longest + 1, len(worth)), NEVER)
    near[0] = np.min(tables.fresh[-1] + worth, axis=-1)
    last = tables.stored[-1, 1 : short + 1] + rules.near_write
    near[1 : short + 1] = np.min(last + worth, axis=-1)
    if longest > short:
        lower = least_near(tables.slots, steps, rules)[short + 1 : longest + 1]
        near[short + 1 :] = lower[:, np.newaxis] + worth.min()
    others = np.full((2, *near.shape), NEVER)
    return Far(near, others[0], others[1], np.full(longest + 2, NEVER))


def lengths_of(tables: Inner, steps: Steps, rules: Rules, worth: Seconds) -> Lengths:
    """All functions, for lengths up to that of the chain."""
    length = len(steps.seconds) - 1
    far = segments(tables, steps, rules, worth, length)
    first = np.min(np.minimum(far.whole, far.used) - worth, axis=1) - worth.max()
    last = last_segments(tables, steps, rules, worth, far)
    first[: len(last.whole)] = np.min(np.minimum(last.whole, last.used) - worth, axis=1)
    stored = [
        np.min(matrices + worth - worth[:, np.newaxis], axis=(-2, -1)) for matrices in tables.stored
    ]
    for s in range(1, len(stored) if length > tables.longest else 0):
        longer = least_near(s, steps, rules)[tables.longest + 1 :] - np.ptp(worth)
        stored[s] = np.append(stored[s], longer)
    return Lengths(tuple(stored), np.min(far.whole - worth, axis=1), far.read[1:], first)


@kernel
def _solve(far: Far, followed: Matrix, steps: Steps, rules: Rules, worth: Seconds) -> None:
    """W(x) from F_c(x) * g, which is there, and what is `onward` of segments that are followed."""
    whole, used, onward, read = far
    channel, quantum = rules.channel, rules.quantum
    states = len(worth)
    for x in range(len(whole)):
        row, then = onward[x], used[x]  # until they are known
        row[:] = NEVER
        for j in range(x, 0, -1):
            right, left = followed[x - j], read[j]
            for state in range(states):
                row[state] = min(row[state], right[state] + left)
            more = rules.advance
            for _ in range(steps.quanta[j] - steps.quanta[j - 1]):
                before(row, channel.ticks, more, then)
                row, then, more = then, row, 0.0
        for state in range(states):
            near = whole[x, state]
            whole[x, state] = min(near, row[state])
            onward[x, state] = near
        stood_still(whole[x], channel.ticks, quantum)
        before(whole[x], channel.passes, 0.0, used[x])
        for state in range(states):
            onward[x, state] = min(onward[x, state], used[x, state])
        stood_still(onward[x], channel.ticks, quantum)
        before(whole[x], channel.reads, 0.0, used[x])
        least = NEVER
        for state in range(states):
            least = min(least, used[x, state] - worth[state])
        read[x + 1] = least
