"""Annealing of a whole chain, item by item. Needs numba.

Near slots are few where transfers are slow, and then the best schedules are no trees any more: the
next segment is begun while this one is taken back, at the very moment when a write ends. So a
schedule is taken as an order of items (`orders`), and items are moved, made and left out at random.
What takes longer by the engine is kept with a chance that falls from trial to trial. Random numbers
are the same each time.
"""

from math import exp, inf, log
from typing import NamedTuple

import numpy as np

from ckio.planners.compiled import kernel
from ckio.planners.overlapped.chains import Found
from ckio.planners.overlapped.orders import (
    BACK,
    FAR,
    NEAR,
    Order,
    Routes,
    copied,
    empty,
    order_of,
    routes,
    without_left_out,
    written,
)
from ckio.planners.overlapped.programs import Seconds
from ckio.planners.overlapped.segments import ROWS, Machine, Room, Terms, room, took
from ckio.planners.overlapped.tables import Table

# mypy: disable-error-code="no-any-return"

LONGEST = 2_000
"""Steps that a chain may have: for longer ones there is no time for trials enough."""

_WORK = 15 * 10**7
"""Steps that are simulated in all: some twenty seconds."""

_TRIALS, _LEAST_TRIALS = 300, 20_000
"""So many changes are tried for each step at the most; in all at the least."""

_BEGIN, _END = 0.15, 0.02
"""Advances by which a schedule may become longer with a chance of 1/e, first and last."""

_NEW, _TOGETHER, _SHIFTED, _ELSEWHERE, _MOVED = 0.2, 0.25, 0.5, 0.6, 0.9
"""Of all changes, up to the first part store one state more, then shift the states of a few items
together, then that of one item, then store it on the other level, then do it earlier or later; the
rest leave it out.
"""

_BOTH = 0.3
"""Of the changes that store one state more, or do it earlier or later: another change with it."""

_NEARBY = 15
"""Items away at the most: what is left out for a state that is stored instead."""


class Trial(NamedTuple):
    """What is needed to see what an order takes."""

    slots: tuple[int, int]
    routes: Routes
    room: Room
    terms: Terms


class Orders(NamedTuple):
    """The order that is changed, what is tried, and the best so far."""

    now: Order
    tried: Order
    best: Order


def annealed(machine: Machine, found: Found) -> Found | None:
    """A plan after many changes, or None if the chain is too long for that."""
    if machine.length > LONGEST:
        return None
    start = order_of(found.rows, found.count)
    items = len(start.step)
    most = 2 * items + 8
    trial = Trial(
        (machine.near, machine.far),
        routes(most, machine.length + 1),
        room(ROWS * (machine.length + 2), machine.near + machine.far, machine.length),
        Terms(machine.costs, machine.policy(found.horizon)),
    )
    orders = Orders(empty(most), empty(most), empty(most))
    copied(start, items, orders.now)
    trials = min(max(_LEAST_TRIALS, _TRIALS * machine.length), _WORK // machine.length)
    random = np.random.default_rng(0).random((trials, 7))
    items = _anneal(trial, orders, items, random)
    count = written(orders.best, items, trial.slots, trial.routes, trial.room.rows)
    seconds = _seconds(trial, count)
    return Found(trial.room.rows, count, seconds, found.horizon)


@kernel
def _seconds(trial: Trial, count: int) -> float:
    return took(trial.room, count, trial.terms) if count else inf


@kernel
def _anneal(trial: Trial, orders: Orders, items: int, random: Table) -> int:
    """Change the order again and again; how many items the best one has."""
    now, tried, best = orders
    rows, advance = trial.room.rows, trial.terms.costs.advance
    seconds = _seconds(trial, written(now, items, trial.slots, trial.routes, rows))
    copied(now, items, best)
    least, most = seconds, items
    for number in range(len(random)):
        draw = random[number]
        copied(now, items, tried)
        there = _changed(tried, items, draw)
        count = written(tried, there, trial.slots, trial.routes, rows) if there else 0
        if count == 0:
            continue
        taken = _seconds(trial, count)
        worse = (taken - seconds) / (advance * _warmth(number / len(random)))
        if worse <= 0 or draw[6] < exp(-worse):
            items, seconds = without_left_out(tried, there, trial.routes, now), taken
            if seconds < least:
                least, most = seconds, items
                copied(now, items, best)
    return most


@kernel
def _warmth(part: float) -> float:
    """How many advances longer a schedule may become, when this part of all trials is done."""
    return _BEGIN * (_END / _BEGIN) ** part


@kernel
def _away(draw: float, ends: float) -> int:
    """1, 2, ..., ending at each with this chance."""
    return 1 + int(log(1 - draw) / log(1 - ends))


@kernel
def _changed(order: Order, items: int, draw: Seconds) -> int:
    """Change an order; how many items it has then, or 0 if nothing was changed."""
    item, what = int(draw[0] * items), draw[1]
    if what < _NEW:
        return _with_one_more(order, items, item, draw)
    if what < _TOGETHER:
        return _shifted(order, items, item, draw)
    return 0 if order.does[item] == BACK else _otherwise(order, items, item, draw)


@kernel
def _otherwise(order: Order, items: int, item: int, draw: Seconds) -> int:
    """The same for a single item that stores a state."""
    what = draw[1]
    if what >= _MOVED:
        return _without(order, items, item)
    changed = True
    if what < _SHIFTED:
        changed = _stepped(order, item, draw[2], draw[3])
    elif what < _ELSEWHERE:
        order.does[item] = FAR if order.does[item] == NEAR else NEAR
    else:
        to = item + _signed(_away(draw[2], 0.08), draw[3])
        changed = 0 <= to < items
        if changed:
            _move(order, item, to)
        if changed and draw[4] < _BOTH:
            changed = _stepped(order, to, draw[4] / _BOTH, draw[5])
    return items if changed else 0


@kernel
def _signed(count: int, draw: float) -> int:
    return count if draw < 0.5 else -count


@kernel
def _stepped(order: Order, item: int, draw: float, sign: float) -> bool:
    """Let an item store another state, often the next; whether there is one."""
    order.step[item] += _signed(_away(draw, 0.5), sign)
    return order.step[item] >= 0


@kernel
def _shifted(order: Order, items: int, item: int, draw: Seconds) -> int:
    """Let all items store the state before, or after, that store one not far from an item's."""
    low = order.step[item] - _away(draw[2], 0.05)
    high = order.step[item] + _away(draw[3], 0.05)
    by = _signed(1, draw[4])
    for other in range(items):
        if order.does[other] != BACK and low <= order.step[other] <= high:
            order.step[other] = max(0, order.step[other] + by)
    return items


@kernel
def _with_one_more(order: Order, items: int, item: int, draw: Seconds) -> int:
    """Before an item store another state as well, and perhaps leave out something nearby."""
    step = order.step[item] - _away(draw[2], 0.1) + (draw[3] < 0.5)
    if items + 1 >= len(order.step) or step < 0:
        return 0
    order.step[items], order.does[items] = step, NEAR if draw[4] < 0.5 else FAR
    _move(order, items, item)
    items += 1
    if draw[5] < _BOTH:
        other = item - _NEARBY + int(draw[5] / _BOTH * (2 * _NEARBY + 1))
        if 0 <= other < items and other != item and order.does[other] != BACK:
            return _without(order, items, other)
    return items


@kernel
def _without(order: Order, items: int, item: int) -> int:
    _move(order, item, items - 1)
    return items - 1


@kernel
def _move(order: Order, item: int, to: int) -> None:
    """Let an item be elsewhere in the order; those between make room."""
    step, does = order.step[item], order.does[item]
    by = 1 if item < to else -1
    for at in range(item, to, by):
        order.step[at], order.does[at] = order.step[at + by], order.does[at + by]
    order.step[to], order.does[to] = step, does
