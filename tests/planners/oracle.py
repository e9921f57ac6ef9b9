"""The least makespan of restart checkpoints, by a search through everything that could be done.

Written from the rules of the six actions alone, so that it shares no mistake with a planner:
Dijkstra over (state, adjoint, steps stored on each level), with no assumption on the form.
"""

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count

from ckio.chain import Chain
from ckio.platforms import Platform

Place = tuple[int | None, int, tuple[frozenset[int], ...]]


def least_makespan(chain: Chain, platform: Platform) -> float:
    """Seconds of the best schedule that leaves nothing stored; infinite if there is none."""
    start: Place = 0, chain.length, tuple(frozenset() for _ in platform.levels)
    reached = {start: 0.0}
    arrivals = count()  # keeps the heap from comparing places
    frontier = [(0.0, next(arrivals), start)]
    while frontier:
        seconds, _, place = heappop(frontier)
        if seconds > reached[place]:
            continue
        if place[1] == 0:
            return seconds
        for cost, then in moves(chain, platform, place):
            if seconds + cost < reached.get(then, float("inf")):
                reached[then] = seconds + cost
                heappush(frontier, (seconds + cost, next(arrivals), then))
    return float("inf")


def moves(chain: Chain, platform: Platform, place: Place) -> Iterator[tuple[float, Place]]:
    """What can be done next.

    Every write pays for its discard at once. Discarding is then free, so that a checkpoint goes
    when it is of no more use (its step is reversed) and otherwise only to make room for another.
    """
    state, adjoint, stored = place
    if state is not None:
        if state == adjoint - 1:
            kept = tuple(frozenset(step for step in keys if step < state) for keys in stored)
            yield chain.record + chain.reverse, (None, state, kept)
        else:
            yield chain.advance, (state + 1, adjoint, stored)
    for number, (level, keys) in enumerate(zip(platform.levels, stored, strict=True)):
        for step in keys - {state}:
            yield level.read(chain.restart), (step, adjoint, stored)
        if state is not None and state not in keys:
            full = level.capacity is not None and chain.restart * (len(keys) + 1) > level.capacity
            for kept in [keys - {step} for step in keys] if full else [keys]:
                if level.capacity is None or chain.restart * (len(kept) + 1) <= level.capacity:
                    then = (*stored[:number], kept | {state}, *stored[number + 1 :])
                    price = level.write(chain.restart) + level.discard(chain.restart)
                    yield price, (state, adjoint, then)
