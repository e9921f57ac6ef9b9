"""Hierarchical plans of `mixed`: one level at a time, in an order, on top of those before it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from ckio.planners.base import log
from ckio.planners.compiled import announce, available
from ckio.planners.integers import Whole, whole
from ckio.planners.mixed_full import Seconds, Table, table
from ckio.planners.mixed_space import Space
from ckio.planners.mixed_walk import Stage

_MOST_ORDERS = 24
"""Orders of the levels that are tried: all those of four levels."""

_MOST_SOLVED = 5e7
"""Lengths of layers that are solved before the order is settled: some ten seconds."""


@dataclass(frozen=True)
class Order:
    """The levels in an order, solved.

    Attributes
    ----------
    stages : tuple of Stage
        A level each.
    seconds : float
        Of the whole chain with all levels empty, without what every schedule takes.
    complete : bool
        Whether no order is better, and no cost was rounded.
    """

    stages: tuple[Stage, ...]
    seconds: float
    complete: bool


def by_level(given: Sequence[Space], unaided: Seconds, /, *, move: float) -> Order:
    """The best order; `unaided` is P(n) without any level, and moving takes `move` a step."""
    lengths = len(unaided) * sum(space.empty + 1 for space in given)
    most = min(_MOST_ORDERS, max(1, int(_MOST_SOLVED / lengths)))
    every = orders(given)
    solved = [_solved(order, unaided, move) for order in islice(every, most)]
    best = min(solved, key=lambda order: order.seconds)
    names = ", ".join(stage.spaces[0].name for stage in best.stages)
    log.info("mixed: levels in the order %s, of %d tried", names, len(solved))
    complete = best.complete and next(every, None) is None
    return Order(best.stages, best.seconds, complete)


def orders(given: Sequence[Space], /) -> Iterator[tuple[Space, ...]]:
    """Every order in which no level comes after one that it equals or beats in all three costs."""
    # A level that beats another in all has the smaller sum, so it can only stand before it here.
    by_sum = sorted(given, key=lambda space: (sum(space.costs), space.costs))
    if not by_sum:
        yield ()
    for place, first in enumerate(by_sum):
        if not any(
            all(cost <= other for cost, other in zip(earlier.costs, first.costs, strict=True))
            for earlier in by_sum[:place]
        ):
            for others in orders(by_sum[:place] + by_sum[place + 1 :]):
                yield first, *others


def _solved(order: Sequence[Space], unaided: Seconds, move: float) -> Order:
    """One order: as straight pieces where costs are whole numbers and numba is there, or tables."""
    costs = [cost for space in order for cost in space.costs]
    prices = whole(move, costs, length=len(unaided) - 1) if available() else None
    if prices is None:
        return _in_tables(order, unaided, move)
    return _in_runs(order, unaided, prices)


def _in_tables(order: Sequence[Space], unaided: Seconds, move: float) -> Order:
    stages: list[Table] = []
    for space in order:
        stages.append(table((space,), stages[-1].finish if stages else unaided, move=move))
    return Order(tuple(stages), float(stages[-1].finish[-1]), True)


def _in_runs(order: Sequence[Space], unaided: Seconds, prices: Whole) -> Order:
    from ckio.planners.mixed_runs import Layers, Level, layers
    from ckio.planners.runs import FAR

    announce()
    lower = np.where(np.isfinite(unaided[1:]), 0, FAR)
    others = iter(prices.others)
    stages: list[Layers] = []
    for space in order:
        write, read, tape = (next(others) for _ in space.costs)
        level = Level(space, lower, move=prices.advance, write=write, read=read, tape=tape)
        stages.append(layers(level))
        lower = stages[-1].finish
    least = int(lower[-1])
    seconds = prices.seconds(least) if least < FAR else np.inf
    return Order(tuple(stages), seconds, not prices.rounded)
