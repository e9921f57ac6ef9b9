"""Store or recompute by other means than the minimum cut of `ckio.analysis.dag`.

**An integer program**, for HiGHS: slower than the cut, and written differently.

    minimise    sum_o saving(o) s_o + sum_v weight(v) u_v + sum_v again(v) r_v
    where       r_v <= s_o               (v, o) in E_b
                r_v <= r_q + u_q         v is computed from q
                1   <= r_v + u_v         v is required

with s_o, u_v and r_v in {0, 1}: o is saved, v is stored, v is available again without being stored.
What cannot be done has no variable but 0.

**The published search**: start from a simple choice, and change S by whole bicliques.
Cole-Mullen, Lyons and Utke, *Storing versus recomputation on multiple DAGs*, Algorithms 1 and 2. It
finds a sufficient choice, seldom a least one, and it knows nothing of the seconds to compute a
value again. It is there to be compared with.

Where the text leaves a choice, or cannot be meant as printed, it is read as follows. Reading 1 is
at `choose`, 9 at `cover`; 12 and 13 are about figures, and are in the tests.

2.  Equation (4) prints S ∪ O_B⁻ where r⁺ is the largest ratio. O_B⁻ is a part of S, so that would
    change nothing: it is S ∪ O_B⁺.
3.  Line 09 of Algorithm 2 updates U "using Alg. 2": Algorithm 1.
4.  Line 11 resets S "to the value it had before line 07", but it is line 08 that changes it; and
    U, which line 09 changed, is reset too.
5.  Lines 01 and 02: O are the locations of the minimal values of the reduced DAGs alone; with
    S = {} U is not R but what Algorithm 1 finds, never more; equal sizes begin with S = {}.
6.  A and R, initialised to be empty, are lists of accepted and rejected bicliques that nothing
    reads; R stands for the required values everywhere else. They are left out.
7.  A step that changes nothing is accepted (c ≥ |S| + |U|). Of equal ratios the first is taken, in
    the order of the cover, r⁺ before r⁻.
8.  r⁻ is 0 where O_B⁻ is empty, as r⁺ is where O_B⁺ is. The text has r⁻ = 1/4 for o₅ of Fig. 6(b)
    with S = {}; that is not what (3) says, and it changes nothing.
10. Line 04 adds to O_B all locations of V_B. What results is no biclique and no cover any more;
    V_B stays as it is.
11. Line 01 of Algorithm 1: V_S also has the minimal values that nothing overwrites.
14. v_B in the ratios (3) is V_B, the values of the biclique.

The paper counts |S| + |U|; here S, U and the sides of bicliques weigh what they weigh, which is the
same where everything weighs 1.

A biclique (V_B, O_B) has an edge from each of its values to each of its locations. It is maximal if
O_B is all that V_B has in common, and V_B all values that have O_B.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ckio.analysis.cut import SINK, SOURCE, nearest_cut
from ckio.analysis.dag import Cost, Name, StoredValues, ValueGraph, choose, seconds_for, solve
from ckio.errors import BadInput

Bools: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int32]

Method: TypeAlias = Literal["cut", "paper", "milp"]


class NumberedGraph(NamedTuple):
    """The part of a graph before its required values, the paper's G*_R, in numbers.

    Attributes
    ----------
    values, locations : sequences of names
        The names for the numbers. The values are in the order in which they are computed.
    arguments : int32 array (2, pairs)
        An argument, and the value that is computed from it.
    overwrites : int32 array (2, pairs)
        E_b: a minimal value, and a location that overwrites it.
    required : int32 array
        R, for all DAGs together.
    weight : float64 array (values)
        The bytes of each value or, with a cost, the seconds to store it. Infinite for a value that
        cannot be stored.
    saving : float64 array (locations)
        The bytes or seconds of the data that are overwritten at each location.
    again : float64 array (values)
        The seconds to compute each value again. Without a cost 0, or infinite for a value that
        cannot be computed again.
    """

    values: Sequence[Name]
    locations: Sequence[Name]
    arguments: Ints
    overwrites: Ints
    required: Ints
    weight: Floats
    saving: Floats
    again: Floats


def numbered(graph: ValueGraph, cost: Cost | None, /) -> NumberedGraph:
    """The part of a graph before its required values, weighted by bytes or a cost."""
    needed = graph.needed()
    values = [name for name in graph.arguments if name in needed]
    value_number = {name: i for i, name in enumerate(values)}
    pairs = [(name, place) for name in values for place in graph.overwrites.get(name, ())]
    locations = list(dict.fromkeys(place for _, place in pairs))
    location_number = {place: i for i, place in enumerate(locations)}
    again = np.array([graph.recompute.get(name, 0.0) for name in values], np.float64)
    if cost is None:
        again[np.isfinite(again)] = 0.0

    def weights(sizes: Iterable[int]) -> Floats:
        return np.array([seconds_for(cost, it) if cost else it for it in sizes], np.float64)

    weight, never = weights(graph.nbytes.get(name, 1) for name in values), set(graph.unstorable)
    weight[np.array([name in never for name in values], np.bool_)] = inf

    return NumberedGraph(
        values=values,
        locations=locations,
        arguments=_columns(
            (value_number[a], i) for i, v in enumerate(values) for a in graph.arguments[v]
        ),
        overwrites=_columns((value_number[name], location_number[place]) for name, place in pairs),
        required=np.array([value_number[name] for name in graph.required], np.int32),
        weight=weight,
        saving=weights(graph.locations[place] for place in locations),
        again=again,
    )


def _columns(pairs: Iterable[tuple[int, int]]) -> Ints:
    return np.array(list(pairs), np.int32).reshape(-1, 2).T


class Answer(NamedTuple):
    """S by location and U by value."""

    saved: Bools
    stored: Bools


def solve_by(
    method: Method, graph: ValueGraph, /, *, cost: Cost | None = None, delta: float = 0.0
) -> StoredValues:
    """The choice by one of the methods; the search knows no seconds to compute a value again.

    `delta`, between 0 and 1, is how far below 1 a ratio may be that the search still tries.
    """
    if method == "cut":
        return solve(graph, cost=cost)
    solve(graph, cost=cost)  # raises where there is no choice
    numbers = numbered(graph, cost)
    if method == "milp":
        answer = integer_program(numbers)
    elif np.isinf([*numbers.weight, *numbers.saving, *numbers.again]).any():
        raise BadInput("the published search stores and computes every value if it has to")
    else:
        answer = search(numbers, delta=delta)
    return choose(
        graph,
        saved=[numbers.locations[i] for i in np.flatnonzero(answer.saved)],
        stored=[numbers.values[i] for i in np.flatnonzero(answer.stored)],
        cost=cost,
    )


def integer_program(graph: NumberedGraph, /) -> Answer:
    """A least choice, as good as HiGHS can tell in floats. One must be possible."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array, vstack

    values, locations = len(graph.values), len(graph.locations)
    size = locations + 2 * values
    if not values:
        return Answer(np.zeros(0, np.bool_), np.zeros(0, np.bool_))  # HiGHS wants a variable
    saved, stored, again = 0, locations, locations + values
    value, location = graph.overwrites
    argument, result = graph.arguments

    def rows(*terms: tuple[float, Ints]) -> csr_array:
        """A row for each of these numbers: the sum of coefficient times variable."""
        count = len(terms[0][1])
        number = np.tile(np.arange(count), len(terms))
        coefficients = np.repeat([coefficient for coefficient, _ in terms], count)
        columns = np.concatenate([variables for _, variables in terms])
        return csr_array((coefficients, (number, columns)), shape=(count, size))

    at_least = vstack(
        [
            rows((1, saved + location), (-1, again + value)),
            rows((1, again + argument), (1, stored + argument), (-1, again + result)),
            rows((1, again + graph.required), (1, stored + graph.required)),
        ]
    )
    least = np.zeros(at_least.shape[0])
    least[len(least) - len(graph.required) :] = 1
    weights = np.concatenate([graph.saving, graph.weight, graph.again])
    possible = np.isfinite(weights)
    weights[~possible] = 0
    found = milp(
        weights / max(weights.max(initial=0), 1e-300),
        constraints=LinearConstraint(at_least, least, np.inf),
        integrality=np.ones(size),
        bounds=Bounds(0, possible.astype(float)),
        options={"mip_rel_gap": 0},
    )
    chosen = found.x > 0.5
    return Answer(saved=chosen[:stored], stored=chosen[stored:again])


def restore(graph: NumberedGraph, saved: Bools, /) -> Answer:
    """Algorithm 1: the U that S leaves to be stored, for all DAGs at once, as they share no values.

    Values of V_S are there again. What reaches R from the other minimal values is separated from
    them by a minimal vertex cut, of several the one nearest to R.
    """
    weights = graph.weight.tolist()
    arcs = [
        *(
            (SOURCE, ("in", v), inf)
            for v in {v for v, o in graph.overwrites.T.tolist() if not saved[o]}
        ),
        *((("in", v), ("out", v), weight) for v, weight in enumerate(weights)),
        *((("out", q), ("in", v), inf) for q, v in graph.arguments.T.tolist()),
        *((("out", r), SINK, inf) for r in graph.required.tolist()),
    ]
    beyond = nearest_cut(arcs, bound=float(graph.weight[graph.required].sum()))
    stored = [("out", v) in beyond and ("in", v) not in beyond for v in range(len(weights))]
    return Answer(saved, np.array(stored, np.bool_))


def search(graph: NumberedGraph, /, *, delta: float) -> Answer:
    """Algorithm 2: the pair (S, U) where no biclique that is left promises a gain of 1 - delta."""
    everything = np.ones(len(graph.locations), np.bool_)
    tbr = graph.saving.sum() < graph.weight[graph.required].sum()
    best = restore(graph, everything if tbr else ~everything)
    left = bicliques(graph)
    while left:
        step = largest(graph, left, best.saved)
        if step.ratio < 1 - delta:
            break
        tried = restore(graph, step.saved)
        if _weight(graph, tried) <= _weight(graph, best):
            best = tried
        del left[step.which]
    return best


def bicliques(graph: NumberedGraph, /) -> list[tuple[Ints, Bools]]:
    """Lines 03 and 04: V_B, and the locations of O_B with all others of V_B."""
    locations_of: dict[int, set[int]] = {}
    for value, location in graph.overwrites.T.tolist():
        locations_of.setdefault(value, set()).add(location)
    found = []
    for values, common in cover({v: frozenset(o) for v, o in locations_of.items()}):
        places = np.zeros(len(graph.locations), np.bool_)
        places[sorted(common.union(*(locations_of[value] for value in values)))] = True
        found.append((np.array(sorted(values), np.int32), places))
    return found


class Step(NamedTuple):
    """A change of S: by which biclique, with which ratio, to what."""

    ratio: float
    which: int
    saved: Bools


def largest(graph: NumberedGraph, left: list[tuple[Ints, Bools]], saved: Bools, /) -> Step:
    """Lines 06 and 08: the biclique of the largest ratio (3), and S as (4) changes it."""
    steps = []
    for which, (values, places) in enumerate(left):
        size = float(graph.weight[values].sum())
        inside, outside = places & saved, places & ~saved
        added = _ratio(size, float(graph.saving[outside].sum())) if outside.any() else 0.0
        removed = _ratio(float(graph.saving[inside].sum()), size)
        steps += [Step(added, which, saved | outside), Step(removed, which, saved & ~inside)]
    return max(steps, key=lambda step: step.ratio)


def _ratio(numerator: float, denominator: float) -> float:
    """A quotient of weights; of two that are 0 it is 0."""
    if denominator == 0:
        return inf if numerator > 0 else 0.0
    return numerator / denominator


def _weight(graph: NumberedGraph, answer: Answer) -> float:
    """|S| + |U|."""
    return float(graph.saving[answer.saved].sum() + graph.weight[answer.stored].sum())


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
