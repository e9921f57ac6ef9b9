"""A whole chain as an order of what is stored and what is taken back. Needs numba.

An item stores the state of a step, near or far, or takes a step back. How the program comes by a
state is not chosen: it goes on from the nearest one before that it has, in the register or stored,
and each checkpoint is discarded after its last use. So a change of one item is a whole schedule
again, if there are the slots for it, and any state may be made long before it is needed, while
others are taken back: that is what the pieces of `pieces` cannot say.
"""

from typing import NamedTuple

import numpy as np

from ckio.columns import ADVANCE, DISCARD, READ, RECORD, REVERSE, WRITE
from ckio.planners.compiled import kernel
from ckio.planners.overlapped.programs import Ints
from ckio.planners.overlapped.tables import Rows, access, move

# mypy: disable-error-code="no-any-return"

NEAR, FAR, BACK, UNUSED = range(4)
"""What an item does with its step: store it near, or far, take it back; or nothing any more."""

_REGISTER, _LEFT_OUT = -1, -2
"""Where an item's source is, but for NEAR and FAR; or the item changes nothing."""

_GIVEN = -1
"""In place of the item that stored a state, where it is stored from the beginning."""

_MARGIN = 6


class Order(NamedTuple):
    """Items: a step each, and what is done with it."""

    step: Ints
    does: Ints


class Ends(NamedTuple):
    """Between what an order goes on: it may be a stretch of a longer one.

    Attributes
    ----------
    given, kept : Order
        What is stored when it begins, and what has to be stored when it ends.
    at, stop : int
        The state in the register when it begins, or -1; the last step that it takes back.
    slots : tuple of int
        Near and far.
    """

    given: Order
    kept: Order
    at: int
    stop: int
    slots: tuple[int, int]


class Routes(NamedTuple):
    """How the program comes by the state of each item.

    Attributes
    ----------
    source, level : int64 arrays
        By item: the state that it goes on from, and where that is.
    made, last : int64 arrays (2, steps)
        By level and state: 1 more than the item that stored it, _GIVEN, or 0; the last item that
        read it, or as many as there are items if it is kept.
    """

    source: Ints
    level: Ints
    made: Ints
    last: Ints


def empty(items: int) -> Order:
    """Room for so many items."""
    return Order(np.zeros(items, np.int64), np.zeros(items, np.int64))


def whole(slots: tuple[int, int]) -> Ends:
    """The ends of a whole chain."""
    return Ends(empty(0), empty(0), 0, 0, slots)


def routes(items: int, steps: int) -> Routes:
    """Room for orders of so many items, for a chain of so many steps."""
    by_item = (np.zeros(items, np.int64) for _ in range(2))
    by_state = (np.zeros((2, steps), np.int64) for _ in range(2))
    return Routes(*by_item, *by_state)


def order_of(rows: Rows, count: int) -> Order:
    """The order of a schedule of so many rows."""
    op = rows.op[:count]
    items = np.flatnonzero((op == WRITE) | (op == REVERSE))
    does = np.where(op[items] == WRITE, rows.level[items], BACK)
    return Order(rows.begin[items].copy(), does)


@kernel
def copied(order: Order, items: int, out: Order) -> None:
    """Copy so many items."""
    for item in range(items):
        out.step[item], out.does[item] = order.step[item], order.does[item]


@kernel
def without_left_out(order: Order, items: int, routes: Routes, out: Order) -> int:
    """Copy the items that were written down last; how many they are."""
    left = 0
    for item in range(items):
        if routes.level[item] != _LEFT_OUT:
            out.step[left], out.does[left] = order.step[item], order.does[item]
            left += 1
    return left


@kernel
def written(order: Order, items: int, ends: Ends, routes: Routes, rows: Rows) -> int:
    """Write an order down: how many rows there are.

    None where the rows do not fit, where a state cannot be come by, where something else is left
    stored than what is kept, or where there are more checkpoints than near and far slots. Items
    that store what is never read become UNUSED.
    """
    while True:
        again = routed(order, items, ends, routes)
        if again < 0:
            return 0
        if again == 0:
            return _written(order, items, ends, routes, rows)


@kernel
def routed(order: Order, items: int, ends: Ends, routes: Routes) -> int:
    """Find out how each item comes by its state; how many checkpoints nobody reads, or -1."""
    source, level, made, last = routes
    at, adjoint, unused = ends.at, made.shape[1] - 1, 0
    _begun(items, ends, routes)
    for item in range(items):
        step, does = order.step[item], order.does[item]
        level[item] = _LEFT_OUT
        if does == UNUSED or step > adjoint or (does != BACK and made[does, step]):
            continue
        if does != BACK and step < ends.stop and max(last[NEAR, step], last[FAR, step]) < items:
            return -1
        state = step
        while state != at and state >= 0 and not made[NEAR, state] and not made[FAR, state]:
            state -= 1
        if state < 0:
            return -1
        source[item], level[item] = state, _REGISTER
        if state != at:
            level[item] = NEAR if made[NEAR, state] else FAR
            last[level[item], state] = max(item, last[level[item], state])
        at = step
        if does != BACK:
            made[does, step] = item + 1
            continue
        at, adjoint = -1, adjoint - 1
        for kept in (NEAR, FAR):
            if made[kept, step] > 0 and last[kept, step] < 0:
                order.does[made[kept, step] - 1] = UNUSED
                unused += 1
    return unused if adjoint < ends.stop and _kept(ends.kept, made) else -1


@kernel
def _begun(items: int, ends: Ends, routes: Routes) -> None:
    """Note what is given, and what is kept."""
    made, last = routes.made, routes.last
    made[:], last[:] = 0, -1
    for number in range(len(ends.given.step)):
        made[ends.given.does[number], ends.given.step[number]] = _GIVEN
    for number in range(len(ends.kept.step)):
        last[ends.kept.does[number], ends.kept.step[number]] = items


@kernel
def _kept(kept: Order, made: Ints) -> bool:
    """Whether all that has to be stored in the end was."""
    missing = 0
    for number in range(len(kept.step)):
        missing += made[kept.does[number], kept.step[number]] == 0
    return missing == 0


@kernel
def _written(order: Order, items: int, ends: Ends, routes: Routes, rows: Rows) -> int:
    given, slots = ends.given, ends.slots
    source, level, _, last = routes
    count, near, far = 0, 0, 0
    for number in range(len(given.step)):
        near, far = near + (given.does[number] == NEAR), far + (given.does[number] == FAR)
        if given.does[number] == NEAR:
            count = access(rows, count, WRITE, NEAR, given.step[number])
    for item in range(items):
        kept, state, step, does = level[item], source[item], order.step[item], order.does[item]
        if kept == _LEFT_OUT:
            continue
        if count + _MARGIN > len(rows.op):
            return 0
        if kept != _REGISTER:
            count = access(rows, count, READ, kept, state)
            if last[kept, state] == item:
                count = access(rows, count, DISCARD, kept, state)
                near, far = near - (kept == NEAR), far - (kept == FAR)
        if step > state:
            count = move(rows, count, ADVANCE, state, step)
        if does == BACK:
            count = move(rows, count, RECORD, step, step + 1)
            count = move(rows, count, REVERSE, step, step + 1)
        else:
            near, far = near + (does == NEAR), far + (does == FAR)
            if near > slots[0] or far > slots[1]:
                return 0
            count = access(rows, count, WRITE, does, step)
    return count
