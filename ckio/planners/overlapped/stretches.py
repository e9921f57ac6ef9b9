"""A stretch of a whole chain's order, as the order of a shorter chain. Needs numba.

What is stored before a stretch and read in it is given to it, and what is read after it has to be
kept; whatever lies there all the time, and is not read, only takes slots.
"""

from typing import NamedTuple

import numpy as np

from ckio.planners.overlapped.orders import BACK, FAR, NEAR, Ends, Order, Routes


class Stretch(NamedTuple):
    """Items of an order.

    Attributes
    ----------
    order : Order
        With steps that are counted from `base`.
    base, steps : int
        The first step that its items go on from; as many may be touched.
    ends : Ends
        Whose slots are for all but what lies there all the time.
    """

    order: Order
    base: int
    steps: int
    ends: Ends


def stretch(order: Order, routes: Routes, begin: int, end: int, slots: tuple[int, int]) -> Stretch:
    """The items from `begin` to `end` of a whole chain's order, which was just `routed`.

    It begins with the chain, or after a step was taken back; it ends after another was.
    """
    back = order.does == BACK
    adjoint = routes.made.shape[1] - 1 - int(back[:begin].sum())
    stop = adjoint + 1 - int(back[begin:end].sum())
    base = min(int(routes.source[begin:end].min()), int(order.step[begin:end].min()))
    given, kept = _stored(routes, begin), _stored(routes, end)
    below = given.step < base
    held = np.bincount(given.does[below], minlength=2)
    left = slots[NEAR] - int(held[NEAR]), slots[FAR] - int(held[FAR])
    return Stretch(
        Order(order.step[begin:end] - base, order.does[begin:end]),
        base,
        adjoint + 1 - base,
        Ends(_above(given, base), _above(kept, base), -1 if begin else 0, stop - base, left),
    )


def replaced(order: Order, begin: int, end: int, part: Stretch) -> Order:
    """An order with other items in place of those from `begin` to `end`."""
    step, does = part.order.step + part.base, part.order.does
    return Order(
        np.concatenate((order.step[:begin], step, order.step[end:])),
        np.concatenate((order.does[:begin], does, order.does[end:])),
    )


def _stored(routes: Routes, at: int) -> Order:
    """What is stored before an item and read from there on."""
    does, step = np.nonzero((routes.made > 0) & (routes.made <= at) & (routes.last >= at))
    return Order(step, does)


def _above(stored: Order, base: int) -> Order:
    there = stored.step >= base
    return Order(stored.step[there] - base, stored.does[there])
