"""The best way to finish from stored restart keys, by a recurrence over a stack of those kept.

What is right of the last key that is kept, x_e, is finished in the room that all kept ones leave;
how much that is depends on the others only by their number on each level, the vector u. So it is
enough to know G_i(u, m), the least seconds to finish [0, m) where the last key kept is number i of
all, and H_i(u, m), the least of G_0 .. G_i:

    G_i(u, e + x) = min over 0 < j < x:   r + j u_f + P(x - j, u) + G_i(u, e + j)
                             0 <= j < x:  r + j u_f + P(x - j, u - 1_i) + H_{i-1}(u - 1_i, e + j)
                                          H_{i-1}(u - 1_i, e + x)
    H_i(u, m)     = min(H_{i-1}(u, m), d_i + G_i(u, m)),  with H_{-1}(0, 0) = 0 and no other

where r are the seconds to read x_e, P(l, u) those to finish l steps in the room that u leaves (the
recurrence of `mixed`), and 1_i is one key on the level of number i. The three lines keep x_e after
they read it; drop it after they read it, and finish less than there is right of it; and drop it
unread. A key that may be moved to another level comes a second time, on that level, with the
seconds of moving it as its d; so does, on every level, the state that the register holds.

Where tapes are stored, t_{m-1} may be read instead: G_i(u, m) <= r + G_i(u, m - 1) - record.
Time is O(q n^2) for each vector u and q keys.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ckio.planners.stored.rooms import Rooms, Seconds

_Numbers = NDArray[np.intp]


class Item(NamedTuple):
    """A restart key that may be kept, on one level.

    Attributes
    ----------
    step : int
        e of x_e.
    place : int
        Of the level, among those of the recurrence.
    level : int
        Its number in the platform.
    read : float
        Seconds to read it there.
    source : int or None
        The level on which it lies at the start; None if it is the state that the register holds.
        If it lies elsewhere, it is brought first.
    extra : float
        d, the seconds for that.
    """

    step: int
    place: int
    level: int
    read: float
    source: int | None
    extra: float = 0.0


class Use(NamedTuple):
    """Read an item (None: the state is in the register), go to `begin` and reverse [begin, end).

    With a `place`, x_begin is also on that level. Without a room, the tape of this step is read.
    """

    item: Item | None
    begin: int
    end: int
    room: int | None
    place: int | None = None


@dataclass(frozen=True)
class _Layer:
    """G_i, without d_i, for one item.

    Attributes
    ----------
    rows, before : arrays of int
        The vectors u that count the item, and for each u - 1_i.
    seconds, below : float64 arrays
        G_i(u, m), and H_{i-1}(u - 1_i, m); a row for each of these u, a column for each m from the
        step of the item on.
    """

    item: Item
    rows: _Numbers
    before: _Numbers
    seconds: Seconds
    below: Seconds


class Stack:
    """The recurrence over the items, in the order of their steps.

    `seconds` is P by length and room. `jump` has the seconds of going from each m to m - 1 by
    reading a tape, infinite where there is none.
    """

    def __init__(
        self, items: Sequence[Item], rooms: Rooms, seconds: Seconds, jump: Seconds, advance: float
    ) -> None:
        self.seconds, self.jump, self.end = seconds, jump, len(jump) - 1
        self.ahead = np.arange(len(jump)) * advance
        counts = [sum(item.place == place for item in items) for place in range(rooms.places)]
        self.shape = [min(count, rooms.slots(place)) + 1 for place, count in enumerate(counts)]
        self.vectors = np.indices(self.shape).reshape(len(self.shape), -1)
        self.room = np.array([rooms.after(u) for u in self.vectors.T.tolist()], np.intp)
        least = np.full((prod(self.shape), len(jump)), np.inf)
        least[0, 0] = 0.0
        least[0, 1:] = np.cumsum(jump[1:])
        self.least = [least]
        self.layers: list[_Layer] = []
        for item in items:
            self._push(item)

    def _push(self, item: Item) -> None:
        stride = prod(self.shape[item.place + 1 :])
        if self.shape[item.place] == 1:
            stride, rows = 0, np.arange(len(self.room))
        else:
            rows = np.flatnonzero(self.vectors[item.place] > 0)
        below = self.least[-1][rows - stride, item.step :]
        rows, below = rows[keep := np.isfinite(below).any(axis=1)], below[keep]
        layer = _Layer(
            item=item,
            rows=rows,
            before=rows - stride,
            seconds=np.empty_like(below),
            below=below,
        )
        self._fill(layer)
        least = self.least[-1].copy()
        here = rows, slice(item.step, None)
        least[here] = np.minimum(least[here], item.extra + layer.seconds)
        self.least.append(least)
        self.layers.append(layer)

    def _fill(self, layer: _Layer) -> None:
        seconds, below, read = layer.seconds, layer.below, layer.item.read
        most = self.end - layer.item.step
        ahead, jump = self.ahead[: most + 1], self.jump[layer.item.step :]
        # Backwards, so that the candidates for each x are a slice of each:
        kept = np.ascontiguousarray(self.seconds[most:0:-1, self.room[layer.rows]].T)
        dropped = np.ascontiguousarray(self.seconds[most:0:-1, self.room[layer.before]].T)
        again, once = np.empty_like(seconds), below + ahead
        seconds[:, 0] = below[:, 0]
        for x in range(1, most + 1):
            best = (dropped[:, most - x :] + once[:, :x]).min(axis=1)
            if x > 1:
                np.minimum(best, (kept[:, most - x + 1 :] + again[:, 1:x]).min(axis=1), out=best)
            best += read
            np.minimum(best, below[:, x], out=best)
            np.minimum(best, jump[x] + seconds[:, x - 1], out=best)
            seconds[:, x] = best
            again[:, x] = best + ahead[x]

    # The way that leads to the least seconds

    def best(self, state: int | None, /) -> list[Use]:
        """How to finish in the least seconds, with this state in the register, if possible."""
        end, least = self.end, self.least[-1]
        u = int(least[:, end].argmin())
        seconds, first = float(least[u, end]), None
        if state is not None:
            fresh = self.seconds[end - state : 0 : -1, self.room].T
            candidates = self.ahead[: end - state] + fresh + least[:, state:end]
            if candidates.min() < seconds:
                u, x = (int(number) for number in divmod(int(candidates.argmin()), end - state))
                seconds = float(candidates[u, x])
                first = Use(None, state + x, end, int(self.room[u]))
        if not np.isfinite(seconds):
            return []
        rest = self._uses(len(self.layers), u, end if first is None else first.begin)
        return [*rest] if first is None else [first, *rest]

    def _uses(self, items: int, u: int, end: int) -> Iterator[Use]:
        """The uses of the first so many items for H(u, end)."""
        while end:
            least = self.least[items][u, end]
            items = next(i for i in range(items + 1) if self.least[i][u, end] == least)
            if items == 0:
                yield from (Use(None, step, step + 1, None) for step in reversed(range(end)))
                return
            layer = self.layers[items - 1]
            row = int(np.searchsorted(layer.rows, u))
            kept = True
            while kept:
                use, end, kept = self._step(layer, row, end)
                if use is not None:
                    yield use
            items, u = items - 1, int(layer.before[row])

    def _step(self, layer: _Layer, row: int, m: int) -> tuple[Use | None, int, bool]:
        """What the item does first for G(u, m); the m that is left, and if it is still kept."""
        e = layer.item.step
        x = m - e
        best = layer.seconds[row, x]
        if best == layer.below[row, x]:
            return None, m, False
        if best == self.jump[m] + layer.seconds[row, x - 1]:
            return Use(None, m - 1, m, None), m - 1, True
        kept, dropped = (int(self.room[u]) for u in (layer.rows[row], layer.before[row]))
        drop = self.seconds[x:0:-1, dropped] + layer.below[row, :x] + self.ahead[:x]
        keep = self.seconds[x:0:-1, kept] + layer.seconds[row, :x] + self.ahead[:x]
        keep[0] = np.inf
        if keep.min() < drop.min():
            p = e + int(keep.argmin())
            return Use(layer.item, p, m, kept), p, True
        p = e + int(drop.argmin())
        return Use(layer.item, p, m, dropped), p, False
