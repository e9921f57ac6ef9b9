"""Annealing of a whole chain, item by item. Needs numba.

Near slots are few where transfers are slow, and then the best schedules are no trees any more: the
next segment is begun while this one is taken back, at the very moment when a write ends. So a
schedule is taken as an order of items (`orders`), and items are moved, made and left out at random.
What takes longer by the engine is kept with a chance that falls from trial to trial. Random numbers
are the same each time.

The order is annealed in stretches, one after the other, as a trial takes as long as what is
simulated: what a change does can be seen not far from it. What comes of a stretch stays in the
order where the whole chain does not take longer.
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
    Ends,
    Order,
    Routes,
    copied,
    empty,
    order_of,
    routed,
    routes,
    whole,
    without_left_out,
    written,
)
from ckio.planners.overlapped.programs import Seconds
from ckio.planners.overlapped.segments import Machine, Room, Terms, room, took
from ckio.planners.overlapped.stretches import replaced, stretch
from ckio.planners.overlapped.tables import Table

# mypy: disable-error-code="no-any-return"

_LENGTH, _BESIDE = 60, 30
"""Items of a stretch that are changed, and that are simulated with them on each side."""

_TRIALS = 100
"""Changes that are tried for each item, each time its stretch is annealed; it is in two of them."""

_ITEMS, _TIMES = 20_000, 12
"""Items that are annealed in all, some twenty seconds; so many times each at the most, or once."""

_BEGIN, _END = 0.15, 0.02
"""Advances by which a schedule may become longer with a chance of 1/e, first and last."""

_NEW, _TOGETHER, _SHIFTED, _ELSEWHERE, _MOVED = 0.2, 0.25, 0.5, 0.6, 0.9
"""Of all changes, up to the first part store one state more, then shift the states of a few items
together, then that of one item, then store it on the other level, then do it earlier or later; the
rest leave it out.
"""

_BOTH = 0.3
"""Of the changes that store one state more, or do it earlier or later: another change with it."""

_ROWS = 6
"""Of a schedule for each item, at the most."""

_NEARBY = 15
"""Items away at the most: what is left out for a state that is stored instead."""


class Trial(NamedTuple):
    """What is needed to see what an order takes."""

    ends: Ends
    routes: Routes
    room: Room
    terms: Terms


class Orders(NamedTuple):
    """The order that is changed, what is tried, and the best so far."""

    now: Order
    tried: Order
    best: Order


def annealed(machine: Machine, found: Found) -> Found:
    """A plan after many changes, one stretch after the other."""
    start = order_of(found.rows, found.count)
    terms = Terms(machine.costs, machine.policy(found.horizon))
    ends, most = whole((machine.near, machine.far)), 2 * len(start.step) + 8
    chain = _trial(ends, most, machine.length + 1, terms)
    seconds = _seconds(chain, start, len(start.step))
    if seconds == inf:
        return found
    order, random = _left(start, chain.routes), np.random.default_rng(0)
    times = min(max(1, _ITEMS // len(order.step)), _TIMES)
    for begin in list(_begins(order)) * times:
        tried = _changed_at(begin, order, chain, random)
        taken = _seconds(chain, tried, len(tried.step)) if len(tried.step) <= most else inf
        if taken <= seconds:
            order, seconds = _left(tried, chain.routes), taken
    count = _written(chain, order, len(order.step))
    return Found(chain.room.rows, count, seconds, found.horizon)


def _trial(ends: Ends, items: int, steps: int, terms: Terms) -> Trial:
    rows = _ROWS * (items + 1) + len(ends.given.step)
    return Trial(ends, routes(items, steps), room(rows, sum(ends.slots), steps), terms)


def _begins(order: Order) -> range:
    """Where stretches begin: half of each is the next one's too.

    The first sweep is left as it was planned, but for its end.
    """
    sweep = int((order.does == BACK).argmax())
    return range(max(0, sweep - _LENGTH), len(order.step), _LENGTH // 2)


def _outer(order: Order, begin: int, end: int) -> tuple[int, int]:
    """The same items with others beside them, from one step taken back to another."""
    cuts = np.concatenate(([0], np.flatnonzero(order.does == BACK) + 1))
    low = np.searchsorted(cuts, max(0, begin - _BESIDE), side="right") - 1
    high = min(int(np.searchsorted(cuts, end + _BESIDE)), len(cuts) - 1)
    return int(cuts[low]), int(cuts[high])


def _changed_at(begin: int, order: Order, chain: Trial, random: np.random.Generator) -> Order:
    """A whole chain's order, of which the items from there on were changed again and again."""
    routed(order, len(order.step), chain.ends, chain.routes)
    begin = min(begin, len(order.step) - 1)
    end = min(begin + _LENGTH, len(order.step))
    low, high = _outer(order, begin, end)
    part = stretch(order, chain.routes, low, high, chain.ends.slots)
    items = high - low
    most = 2 * items + 8
    policy = chain.terms.policy._replace(room=part.ends.slots[NEAR])
    trial = _trial(part.ends, most, part.steps, chain.terms._replace(policy=policy))
    orders = Orders(empty(most), empty(most), empty(most))
    copied(part.order, items, orders.now)
    draws = random.random((_TRIALS * (end - begin), 7))
    items = _anneal(trial, orders, items, (begin - low, high - end), draws)
    best = Order(orders.best.step[:items], orders.best.does[:items])
    return replaced(order, low, high, part._replace(order=best))


def _left(order: Order, routes: Routes) -> Order:
    """The items that were written down last."""
    left = empty(len(order.step))
    items = without_left_out(order, len(order.step), routes, left)
    return Order(left.step[:items], left.does[:items])


@kernel
def _seconds(trial: Trial, order: Order, items: int) -> float:
    count = _written(trial, order, items)
    return took(trial.room, count, trial.terms) if count else inf


@kernel
def _written(trial: Trial, order: Order, items: int) -> int:
    return written(order, items, trial.ends, trial.routes, trial.room.rows)


@kernel
def _anneal(trial: Trial, orders: Orders, items: int, fixed: tuple[int, int], random: Table) -> int:
    """Change the order again and again, but for what is `fixed` at its begin and end.

    How many items the best one has.
    """
    now, tried, best = orders
    advance = trial.terms.costs.advance
    seconds = _seconds(trial, now, items)
    copied(now, items, best)
    least, most = seconds, items
    for number in range(len(random)):
        draw = random[number]
        copied(now, items, tried)
        there = _changed(tried, items, fixed, draw)
        taken = _seconds(trial, tried, there) if there else inf
        if taken == inf:
            continue
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
def _changed(order: Order, items: int, fixed: tuple[int, int], draw: Seconds) -> int:
    """Change an order; how many items it has then, or 0 if nothing was changed."""
    item, what = fixed[0] + int(draw[0] * (items - fixed[0] - fixed[1])), draw[1]
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
