"""What segments cost at the least where near slots are also for what is on its way. Needs numba.

A transfer needs a near slot all the time, or the program stands still. So no transfer takes place
while the program computes and all near slots hold checkpoints: with a weight μ, such seconds cost
1 + μ (`bound` says why), and the last slot of the near level's recurrence

    S_1(l) = (1 + μ) (l (l + 1)/2 u_f + l u_b) + l r_1

where S_s(l) is for l steps whose first state is near, with s slots for it and what comes after.

And each far read needs a slot for r_2 seconds before its use. One channel does one read at a time,
so if t seconds of reading are to be done before the end of a segment, those that are used right
there among them, and the program does not stand still, ⌈t'/r_2⌉ slots hold them when t - t' seconds
are left. By S_s(l, t) for that, F_s(l, t) if the first state is in the register only, and D_m(l, t)
if it is far, with m slots there, all with the seconds u_b of each of the l + 1 steps:

    S_s(0, t) = F_s(0, t) = u_b + max(0, t - s r_2),    F_s(l, t) = w_1 + S_s(l, t),
    S_s(l, t) = min_j j u_f + F_s-1(l - j, t - S_s(j - 1, t)) + r_1 + S_s(j - 1, t),
    D_m(l, t) = min(F_c(l, t), min_j j u_f + G(l - j, t - D_m(j - 1, t) + r_2) + μ r_2
                                       + D_m(j - 1, t)),    G = min(F_c, μ w_2 + D_m-1),

where t < 0 is 0, and none is more than b above what it is for t - b: to stand still for b seconds
is always possible. As costs are never less than the seconds that pass, t is never too great. It is
counted in whole buckets, rounded down, for short segments and a few reads; beyond, windows are left
out, or only r_2 is counted. A far read follows each segment but the last one to be taken back.

That the next segment may be begun before this one is done with does not help: its state, or what
is computed from it, then takes a slot for even longer, or another read.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ckio.planners.compiled import kernel
from ckio.planners.hrevolve.runs import (
    FAR,
    Runs,
    agree,
    joined,
    layer,
    minimum,
    part,
    plus,
    runs_of,
    values,
)
from ckio.planners.overlapped.programs import Ints

# mypy: disable-error-code="no-any-return"

Cube = NDArray[np.int64]

MOST_SLOTS = 16
"""With more near slots, a window that has one less makes no difference that is worth the time."""

_LONGEST = 120
"""Of the segments that are solved with windows; longer ones are as if they had none."""

_BUCKETS = 64
"""Of all that may be read ahead."""

_READS = 4
"""Reads ahead that are looked at together."""

_FAR_SLOTS = 20
"""With more of them free, segments with windows are solved as if there was no end of slots."""


class Prices(NamedTuple):
    """Costs in whole parts of an advance, each rounded down.

    Attributes
    ----------
    advance, back, near_write, near_read : int
        As they are; `back` is for a Record and a Reverse.
    far_write, far_read : int
        As they are weighted.
    full_advance, full_back : int
        Where all slots are taken.
    window : int
        A far read as it is.
    """

    advance: int
    back: int
    near_write: int
    near_read: int
    far_write: int
    far_read: int
    full_advance: int
    full_back: int
    window: int


@dataclass(frozen=True)
class Segments:
    """What segments cost at the least, by length, without all their Records and Reverses.

    Attributes
    ----------
    near : tuple of Runs
        S_s for s = 1, 2, ..., also for all greater s.
    before_read : Runs
        S_c, if a far read follows.
    far : tuple of Runs
        The first state is far, with m = 1, 2, ... slots there, also for all greater m; a far read
        follows.
    last : Runs
        The same with all far slots, if nothing follows.
    """

    near: tuple[Runs, ...]
    before_read: Runs
    far: tuple[Runs, ...]
    last: Runs


def segments(length: int, near: int, far: int, prices: Prices) -> Segments:
    """For all lengths up to `length`, which is at least 1, with at least one slot of each level."""
    advance, back = prices.advance, prices.back
    stored = _near(length, near, prices)
    fresh = _from_register(stored[-1], prices.near_write)
    before_read, low = stored[-1], fresh
    if near > MOST_SLOTS or not prices.window:
        layers = list(_layers(low, low, far, (prices.far_write, prices.far_read), advance))
    else:
        tables = _tables(near, min(length, _LONGEST), prices)
        _solve_near(tables, prices)
        steps, read = np.arange(1, tables.longest + 2), prices.window // tables.bucket
        before_read = _raised(before_read, tables.stored[near, :, read] - back * steps)
        low = _raised(low, tables.fresh[near, :, read] - back * steps)
        layers = list(_with_windows(low, far, tables, prices))
    inner, _ = layers[min(far, len(layers)) - 1]
    last = layer(fresh, inner, advance=advance, read=prices.far_read).stored
    return Segments(stored, before_read, tuple(whole for _, whole in layers), last)


def _near(length: int, slots: int, prices: Prices) -> tuple[Runs, ...]:
    """S_1, S_2, ... without windows; Records and Reverses only where they cost more."""
    steps = np.arange(length + 1)
    full = steps * (steps + 1) // 2 * prices.full_advance
    more = steps * (prices.full_back - prices.back + prices.near_read)
    first, nothing = runs_of(full + more), np.full(length + 1, FAR)
    nothing[0] = 0
    inner = _from_register(first, prices.near_write)
    access = prices.near_write, prices.near_read
    layers = _layers(runs_of(nothing), inner, slots - 1, access, prices.advance)
    return first, *(whole for _, whole in layers)


def _from_register(stored: Runs, write: int) -> Runs:
    """F, where the first state has to be written first; one step is reversed without."""
    found = values(stored) + write
    found[0] = 0
    return runs_of(found)


def _layers(
    low: Runs, inner: Runs, slots: int, access: tuple[int, int], advance: int
) -> Iterator[tuple[Runs, Runs]]:
    """For 1, 2, ... slots: what is right of a checkpoint, and the layer; until nothing changes."""
    write, read = access
    longest = int(low.x[-1])
    before, equal = None, 0
    for _ in range(slots):
        made = layer(low, inner, advance=advance, read=read, before=before, equal=equal)
        before = joined(before, made)
        yield inner, before
        after = minimum(inner, _from_register(before, write))
        same = agree(after, inner)
        if same >= longest:
            return
        inner, equal = after, max(0, same + 1)


def _raised(runs: Runs, least: Ints) -> Runs:
    """A function that is also at least this, where that is known."""
    found = values(runs)
    np.maximum(found[: len(least)], least, out=found[: len(least)])
    return runs_of(found)


class Tables(NamedTuple):
    """Costs by length and by what is to be read afterwards, in buckets: with all `back`.

    Attributes
    ----------
    bucket : int
        Its size, in parts.
    stored, fresh : int64 arrays (slots + 1, lengths, buckets)
        S_s(l, t) and F_s(l, t).
    far : int64 array (2, lengths, buckets)
        D_m(l, t) for the last two m.
    """

    bucket: int
    stored: Cube
    fresh: Cube
    far: Cube

    @property
    def longest(self) -> int:
        return self.far.shape[1] - 1


def _tables(slots: int, length: int, prices: Prices) -> Tables:
    """Still empty."""
    most = min(slots, _READS) * prices.window
    bucket = -(-most // _BUCKETS)
    shape = length + 1, most // bucket + 1
    near = (slots + 1, *shape)
    return Tables(bucket, np.full(near, FAR), np.full(near, FAR), np.full((2, *shape), FAR))


def _with_windows(
    low: Runs, slots: int, tables: Tables, prices: Prices
) -> Iterator[tuple[Runs, Runs]]:
    """As `_layers` for the far level, with windows where they are known."""
    longest, read = int(low.x[-1]), prices.window // tables.bucket
    steps = np.arange(1, tables.longest + 2)
    inner, whole, equal, known = low, low, 0, np.empty(0, np.int64)
    for m in range(slots):
        row = min(m, _FAR_SLOTS) % 2
        if m <= _FAR_SLOTS:
            _solve_far(tables, prices, row, row if m == _FAR_SLOTS else 1 - row)
        before, known = known, tables.far[row, :, read] - prices.back * steps
        short = (part(runs, 0, tables.longest + 1) for runs in (low, inner))
        plain = layer(*short, advance=prices.advance, read=prices.far_read).stored
        known = np.maximum(known, values(plain))
        again = np.array_equal(before, known)
        if not again:
            whole, equal = runs_of(known), tables.longest
        made = layer(
            low, inner, advance=prices.advance, read=prices.far_read, before=whole, equal=equal
        )
        whole = joined(whole, made)
        yield inner, whole
        after = minimum(inner, plus(whole, prices.far_write))
        same = agree(after, inner)
        if same >= longest and again:
            return
        inner, equal = after, min(max(tables.longest, same + 1), longest)


@kernel
def _solve_near(tables: Tables, prices: Prices) -> None:
    """S_s(l, t) and F_s(l, t)."""
    bucket, stored, fresh, _ = tables
    slots, lengths, buckets = stored.shape
    for s in range(slots):
        for length in range(lengths):
            for t in range(buckets):
                if length == 0:
                    # a part may have been lost by rounding
                    still = max(0, t * bucket - s * (prices.window + 1))
                    stored[s, 0, t] = prices.back + still
                    fresh[s, 0, t] = (prices.back if s else prices.full_back) + still
                elif s > 0:
                    best = stored[s, length, t - 1] + bucket if t else FAR
                    best = min(best, _near_one(tables, prices, (s, length, t)))
                    stored[s, length, t] = best
                    fresh[s, length, t] = best + prices.near_write


@kernel
def _near_one(tables: Tables, prices: Prices, at: tuple[int, int, int]) -> int:
    """S_s(l, t), if the program does not stand still without need."""
    bucket, stored, fresh, _ = tables
    s, length, t = at
    advance = prices.advance if s > 1 else prices.full_advance
    best = FAR
    for j in range(1 if s > 1 else length, length + 1):
        left = stored[s, j - 1, t]
        before = max(0, t * bucket - left) // bucket
        value = j * advance + fresh[s - 1, length - j, before] + prices.near_read + left
        best = min(best, value)
    return best


@kernel
def _solve_far(tables: Tables, prices: Prices, row: int, other: int) -> None:
    """D_m(l, t) in this row, from D_m-1 in the other; for any number of slots, if that is this."""
    bucket, _, fresh, far = tables
    _, lengths, buckets = far.shape
    for length in range(lengths):
        for t in range(buckets):
            best = fresh[-1, length, t]
            if t:
                best = min(best, far[row, length, t - 1] + bucket)
            for j in range(1, length + 1):
                left = far[row, j - 1, t]
                need = max(0, t * bucket - left) + prices.window
                before = min(need // bucket, buckets - 1)
                right = min(
                    fresh[-1, length - j, before],
                    far[other, length - j, before] + prices.far_write,
                )
                best = min(best, j * prices.advance + right + prices.far_read + left)
            far[row, length, t] = best
