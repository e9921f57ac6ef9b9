"""Find the cheapest set of values to store and to compute again, as one minimum cut.

The network has two nodes for each value, v_in and v_out, and one for each location:

    source --saving(o)-->  o                 cut: the old content is saved at o       (o in S)
    o      --infinite-->   v_in              (v, o) in E_b
    v_in   --weight(v)-->  v_out             cut: v is stored                         (v in U)
    source --again(v)-->   v_in              cut: v is needed and computed again
    q_out  --infinite-->   v_in              v is computed from q
    r_out  --infinite-->   sink              r is required

A node is on the sink's side of the cut if its value has to be available again. This is true for
r_out. If it is true for v_out, it is true for v_in, unless v is stored. If it is true for v_in, it
is true for the q_out of its arguments, and for the locations that overwrite v. Therefore a cut
consists of exactly S, U and the values that have to be computed again, and a minimum cut is a
cheapest choice. A minimal value that is never overwritten has no path from the source and costs
nothing. The DAGs share locations. Therefore they are solved together.

Minimum cuts form a lattice, and the one nearest to the sink is taken. Every other minimum cut also
saves the locations that it saves, and computes the values that it computes again. This extends the
tie-breaker of Algorithm 1 of Cole-Mullen, Lyons & Utke, "minimal distance to R", to all DAGs.

For example, u has 8 bytes, v = f(u) has 4 and w = g(v) has 16. If w is required and u is
overwritten, the cuts are to save u (8 bytes), to store v (4) or to store w (16):

    >>> graph = NumberedGraph(
    ...     values=["u", "v", "w"],
    ...     locations=["o"],
    ...     arguments=np.array([[0, 1], [1, 2]]),
    ...     overwrites=np.array([[0], [0]]),
    ...     required=np.array([2]),
    ...     weight=np.array([8.0, 4.0, 16.0]),
    ...     saving=np.array([8.0]),
    ...     again=np.zeros(3),
    ... )
    >>> saved, stored = minimum_cut(graph)
    >>> saved.tolist(), stored.tolist()
    ([False], [False, True, False])

**Flows.** scipy computes maximum flows, but with capacities of 32 bits. It takes larger capacities
modulo 2**32, without a warning. Here the capacities are multiples of a unit and have up to 60 bits.
Therefore the flow is computed a few bits at a time. In the residual network r, with a bound B on
the remaining flow,

    1. find a maximum flow f for the capacities  min(r, B + 1) >> k,  which have 30 bits;
    2. r := r - (f << k). The arcs across the minimum cut of step 1 have now less than 2**k left
       each, and that is a new B, smaller by about 30 bits less those of the number of arcs;
    3. end after k = 0; otherwise repeat, with the k that B requires.

In the last iteration no arc is at its bound B + 1, because at most B can flow. Therefore the flow
is maximum, and arcs of infinite weight are never full. The cut follows from the residual network:
its nodes are those from which the sink can be reached. For every maximum flow, these nodes are on
the sink's side of all minimum cuts. Therefore the result does not depend on scipy's algorithm.
"""

from collections.abc import Hashable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Ints: TypeAlias = NDArray[np.int32]
Bools: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float64]

_EXACT: Final = 60
"""The bits of the bound on the flow, in units."""

_ROUNDED: Final = 1 + 2.0**-30
"""The bound is a sum of floats. Rounding may make it too small by more than a unit for each term.
"""

_INFINITE: Final = 1 << 62

CAPACITY: Final = 30
"""The bits of a capacity: scipy adds those of an arc and of its reverse, in signed 32 bits."""


class Arcs(NamedTuple):
    """The arcs of a network.

    Attributes
    ----------
    tails, heads : int32 array
        The nodes at which each arc begins and ends; no pair occurs twice.
    weights : float64 array
        The weight of each arc, at least 0, and infinite for an arc that cannot be cut.
    """

    tails: Ints
    heads: Ints
    weights: Floats


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
        The bytes of each value or, with a price, the seconds to store it. Infinite for a value that
        cannot be stored.
    saving : float64 array (locations)
        The bytes or seconds of the data that are overwritten at each location.
    again : float64 array (values)
        The seconds to compute each value again. Without a price 0, or infinite for a value that
        cannot be computed again.
    """

    values: Sequence[Hashable]
    locations: Sequence[Hashable]
    arguments: Ints
    overwrites: Ints
    required: Ints
    weight: Floats
    saving: Floats
    again: Floats


def minimum_cut(graph: NumberedGraph, /) -> tuple[Bools, Bools]:
    """Return S (for each location) and U (for each value) of the cheapest choice.

    At least one choice must be possible. Node v is v_in, and v + len(graph.values) is v_out. The
    locations are the next nodes.
    """
    values, locations = len(graph.values), len(graph.locations)
    first, source = 2 * values, 2 * values + locations
    sink = source + 1
    argument, result = graph.arguments
    value, location = graph.overwrites
    paid = np.flatnonzero(graph.again > 0)
    arcs = _arcs(
        (source, first + np.arange(locations), graph.saving),
        (first + location, value, np.inf),
        (np.arange(values), values + np.arange(values), graph.weight),
        (source, paid, graph.again[paid]),
        (values + argument, result, np.inf),
        (values + graph.required, sink, np.inf),
    )
    bound = min(
        arcs.weights[np.isfinite(arcs.weights)].sum(),
        arcs.weights[arcs.tails == source].sum(),
        graph.weight[graph.required].sum(),
    )
    beyond, _ = cut_nearest_sink(arcs, sink + 1, source=source, sink=sink, bound=float(bound))
    return beyond[first:source], beyond[values:first] & ~beyond[:values]


def _arcs(*groups: tuple[ArrayLike, ArrayLike, ArrayLike]) -> Arcs:
    """Return groups of arcs as one; a number in a group is used for all arcs of this group."""
    columns = [np.broadcast_arrays(*group) for group in groups]
    tails, heads, weights = (np.concatenate(column) for column in zip(*columns, strict=True))
    return Arcs(tails.astype(np.int32), heads.astype(np.int32), weights.astype(np.float64))


def cut_nearest_sink(
    arcs: Arcs, nodes: int, /, *, source: int, sink: int, bound: float, bits: int = CAPACITY
) -> tuple[Bools, float]:
    """Return the sink's side of the minimum cut that is nearest to the sink, and the cut's weight.

    Of all minimum cuts, this one has the fewest nodes on the sink's side. At least one cut must
    weigh no more than `bound`.

    The weights are counted in units of a power of two. If all weights are multiples of a unit that
    is at least 2**-60 of the bound (as bytes are), nothing is rounded. Otherwise the unit is at
    most 2**-59 of the bound. The error of each weight is then at most half a unit, and the cut
    weighs at most one unit for each arc more than the lightest. `bits` is the number of bits of the
    capacities for scipy. It must be larger by more than one than the bits of the number of arcs.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_flow

    units, unit = in_units(arcs.weights, bound)
    residual = csr_array((units, (arcs.tails, arcs.heads)), shape=(nodes, nodes))
    left, whole = int(bound * _ROUNDED / unit) + len(units) + 1, 0
    while True:
        shift = max(0, (left + 1).bit_length() - bits)
        capacities = _at_most(residual, left + 1, shift)
        flow = maximum_flow(capacities.astype(np.int32), source, sink)
        residual = residual - flow.flow.astype(np.int64) * (1 << shift)
        pushed = int(flow.flow_value) << shift
        whole += pushed
        beyond = _reaching(_at_most(residual, left + 1, shift), sink)
        if shift == 0:
            return beyond, whole * unit
        left = min(left - pushed, _across(residual, beyond, left))


def in_units(weights: Floats, bound: float, /) -> tuple[NDArray[np.int64], float]:
    """Return the weights in whole units, and the unit, which is a power of two.

    An arc that weighs more than twice the bound is never cut. It gets about this weight.
    """
    finite = np.isfinite(weights)
    if bound == 0:  # no arc of positive weight is cut
        return np.where(finite, weights > 0, _INFINITE).astype(np.int64), 1.0
    light = np.minimum(weights[finite], 2 * bound)
    mantissas, exponents = np.frexp(light[light > 0])
    whole = np.ldexp(mantissas, 53).astype(np.int64)
    zeros = np.frexp((whole & -whole).astype(np.float64))[1] - 1
    common = int((exponents - 53 + zeros).min(initial=0))
    unit = max(common, int(np.frexp(bound)[1]) - _EXACT)
    units = np.full(len(weights), _INFINITE, np.int64)
    units[finite] = np.rint(np.ldexp(light, -unit)).astype(np.int64)
    return units, float(np.ldexp(1.0, unit))


def _at_most(residual: Any, most: int, shift: int) -> Any:
    """Return the remaining capacities, without the arcs that are full."""
    capacities = residual.copy()
    capacities.data = np.minimum(residual.data, most) >> shift
    capacities.eliminate_zeros()
    return capacities


def _reaching(capacities: Any, sink: int) -> Bools:
    """Return the nodes from which the sink can be reached."""
    from scipy.sparse.csgraph import breadth_first_order

    reaching = np.zeros(capacities.shape[0], np.bool_)
    reaching[breadth_first_order(capacities.T.tocsr(), sink, return_predecessors=False)] = True
    return reaching


def _across(residual: Any, beyond: Bools, most: int) -> int:
    """Return the remaining capacity of the arcs to the nodes beyond, each at most `most`."""
    tails = np.repeat(np.arange(len(beyond)), np.diff(residual.indptr))
    crossing = ~beyond[tails] & beyond[residual.indices]
    return sum(np.minimum(residual.data[crossing], most).tolist())
