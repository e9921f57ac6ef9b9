"""Hierarchical plans of `mixed`: one level at a time, in an order, on top of those before it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from ckio.errors import BadInput
from ckio.planners.base import log
from ckio.planners.compiled import available, prepare
from ckio.planners.integers import Whole, whole
from ckio.planners.mixed.full import Seconds, Table, columns, table
from ckio.planners.mixed.space import Space
from ckio.planners.mixed.walk import Segment, Stage

if TYPE_CHECKING:
    from ckio.planners.hrevolve.hulls import Ints
    from ckio.planners.mixed.runs import Layers

_MOST_ORDERS: Final = 24
"""Orders of the levels that are tried: all those of four levels."""

_MOST_SOLVED: Final = 5e7
"""Lengths of layers that are solved before the order is settled: some ten seconds."""

_LONG: Final = 20_000
"""Lengths for which numpy takes minutes."""

_MOST_KEPT: Final = 1 << 27
"""Numbers that numpy's tables may hold: a gigabyte."""


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
        Whether no order is better, and neither a cost nor a size was rounded.
    first : tuple of Segment
        The first sweep, where the stages are only for its segments.
    """

    stages: tuple[Stage, ...]
    seconds: float
    complete: bool
    first: tuple[Segment, ...] = ()

    @property
    def solved(self) -> int:
        """Lengths of layers that were solved for the whole chain."""
        spaces = [space for stage in self.stages for space in stage.spaces]
        return 0 if self.first else sum(space.empty + 1 for space in spaces)


def by_level(
    given: Sequence[Space], unaided: Seconds, /, *, move: float, insist: bool = False
) -> Order:
    """The best order; `unaided` is P(n) without any level, and moving takes `move` a step.

    Raises BadInput where numba is needed and cannot be used, as `mixed` says.
    """
    every, solved, layers = orders(given), list[Order](), 0
    while len(solved) < _MOST_ORDERS and layers * len(unaided) <= _MOST_SOLVED:
        order = next(every, None)
        if order is None:
            break
        solved.append(_solved(order, unaided, move, insist=insist))
        layers += solved[-1].solved
    best = min(solved, key=lambda order: order.seconds)
    names = ", ".join(stage.spaces[0].name for stage in best.stages)
    log.info("mixed: levels in the order %s, of %d tried", names, len(solved))
    complete = all(order.complete for order in solved) and next(every, None) is None
    return Order(best.stages, best.seconds, complete, best.first)


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


def _solved(order: Sequence[Space], unaided: Seconds, move: float, *, insist: bool) -> Order:
    """One order: as straight pieces where costs are whole numbers and numba is there, or tables."""
    costs = [cost for space in order for cost in space.costs]
    prices = whole(move, costs, length=len(unaided) - 1)
    if available() and prices is not None:
        return _in_runs(order, unaided, prices)
    _refuse_long(order, len(unaided) - 1, compiled=not available(), insist=insist)
    return _in_tables(order, unaided, move)


def _refuse_long(order: Sequence[Space], steps: int, *, compiled: bool, insist: bool) -> None:
    """Raise BadInput for a chain that is too long, or on too much room, to be planned in tables."""
    needed = (
        "compiled code: pip install ckio[fast]"
        if compiled
        else "whole numbers, and the costs are too large: leave out levels that are much slower"
        " than a step"
    )
    kept = 4 * steps * sum(columns([space]) for space in order)
    if kept > _MOST_KEPT:
        raise BadInput(
            f"mixed: {steps} steps with so much room are planned by {needed}; numpy's tables would"
            f" take {kept >> 27} GB"
        )
    if steps - 1 > _LONG and not insist:
        raise BadInput(
            f"mixed: {steps} steps are planned by {needed}; or insist on numpy (insist=True,"
            " --insist), which may take hours"
        )


def _in_tables(order: Sequence[Space], unaided: Seconds, move: float) -> Order:
    stages: list[Table] = []
    for space in order:
        stages.append(table((space,), stages[-1].finish if stages else unaided, move=move))
    return Order(tuple(stages), float(stages[-1].finish[-1]), all(space.exact for space in order))


def _in_runs(order: Sequence[Space], unaided: Seconds, prices: Whole) -> Order:
    from ckio.planners.hrevolve.runs import FAR
    from ckio.planners.mixed.segments import plan

    prepare()
    lower = np.where(np.isfinite(unaided[1:]), 0, FAR)

    def solve(spaces: Sequence[Space], length: int) -> "tuple[Layers, ...]":
        return stages_of(spaces, lower[: length + 1], prices)

    held, complete = int(np.count_nonzero(lower == 0)), not prices.rounded
    if found := plan(order, len(lower), held, solve):
        return Order(found.stages, prices.seconds(found.cost), complete, found.first)
    stages = solve(order, len(lower) - 1)
    least = int(stages[-1].finish[-1])
    complete = complete and all(space.exact for space in order)
    return Order(stages, prices.seconds(least) if least < FAR else np.inf, complete)


def stages_of(order: Sequence[Space], lower: "Ints", prices: Whole) -> "tuple[Layers, ...]":
    """The levels one by one, up to the length of `lower`, in units."""
    from ckio.planners.mixed.runs import Layers, Level, layers

    others = iter(prices.others)
    stages: list[Layers] = []
    for space in order:
        write, read, tape = (next(others) for _ in space.costs)
        level = Level(space, lower, move=prices.advance, write=write, read=read, tape=tape)
        stages.append(layers(level))
        lower = stages[-1].finish
    return tuple(stages)
