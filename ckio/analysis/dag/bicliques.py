"""Which values are overwritten together at which locations: covers of a bipartite graph.

A biclique (V_B, O_B) has an edge from each of its values to each of its locations. It is maximal if
O_B is all that V_B has in common, and V_B all values that have O_B.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

Biclique: TypeAlias = tuple[frozenset[int], frozenset[int]]
"""V_B and O_B, by number."""

MOST: Final = 20000
"""Intersections of sets of locations are sought until there are about so many of them."""


def cover(locations_of: Mapping[int, frozenset[int]], /) -> list[Biclique]:
    """Maximal bicliques that have every edge, each the one with the most that were not covered yet.

    Reading 9: the paper asks for a minimal biclique cover, which is NP-hard to find. A greedy one
    stands for it; of bicliques that cover as much, the one with fewer edges, and then with the
    first values and locations, is taken.
    """
    left = {(v, o) for v, locations in locations_of.items() for o in locations}
    bicliques = maximal(locations_of)
    chosen: list[Biclique] = []
    while left:
        best = min(bicliques, key=lambda biclique: _rank(biclique, left))
        chosen.append(best)
        left -= {(v, o) for v in best[0] for o in best[1]}
    return chosen


def maximal(locations_of: Mapping[int, frozenset[int]], /) -> list[Biclique]:
    """All maximal bicliques, or, where they are too many, enough to cover every edge.

    Their sets of locations are the intersections of those of single values.
    """
    single = {locations for locations in locations_of.values() if locations}
    closed, left = set(single), list(single)
    while left and len(closed) < MOST:
        some = left.pop()
        new = {some & other for other in single} - closed - {frozenset()}
        closed |= new
        left.extend(new)
    return [
        (frozenset(v for v, locations in locations_of.items() if common <= locations), common)
        for common in sorted(closed, key=sorted)
    ]


def _rank(biclique: Biclique, left: set[tuple[int, int]]) -> tuple[int, int, list[int], list[int]]:
    values, locations = biclique
    gain = sum((v, o) in left for v in values for o in locations)
    return -gain, len(values) * len(locations), sorted(values), sorted(locations)
