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

**Flows.** scipy computes maximum flows, but with capacities of 32 bits. Therefore weights are
counted in units of a power of two, and rounded up, so that nothing of positive weight is free. The
unit is 2**-30 to 2**-29 of an upper bound on the lightest cut. Weights that are multiples of the
unit, as bytes often are, are not rounded. Otherwise the cut weighs at most one unit for each of its
arcs more than the lightest one.

The cut follows from the residual network: its nodes are those from which the sink can be reached.
For every maximum flow, these nodes are on the sink's side of all minimum cuts. Therefore the result
does not depend on scipy's algorithm.
"""

from collections.abc import Hashable, Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Ints: TypeAlias = NDArray[np.int32]
Bools: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float64]

BITS: Final = 30
"""The bits of the bound, in units: scipy's capacities have a sign and 31 bits."""


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
        The bytes of each value or, with a cost, the seconds to store it. Infinite for a value that
        cannot be stored.
    saving : float64 array (locations)
        The bytes or seconds of the data that are overwritten at each location.
    again : float64 array (values)
        The seconds to compute each value again. Without a cost 0, or infinite for a value that
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
    # The cheapest of three cuts: all arcs, all arcs of the source, or all required values.
    bound = min(
        arcs.weights[np.isfinite(arcs.weights)].sum(),
        arcs.weights[arcs.tails == source].sum(),
        graph.weight[graph.required].sum(),
    )
    beyond = cut_nearest_sink(arcs, sink + 1, source=source, sink=sink, bound=float(bound))
    return beyond[first:source], beyond[values:first] & ~beyond[:values]


def _arcs(*groups: tuple[ArrayLike, ArrayLike, ArrayLike]) -> Arcs:
    """Return groups of arcs as one; a number in a group is used for all arcs of this group."""
    columns = [np.broadcast_arrays(*group) for group in groups]
    tails, heads, weights = (np.concatenate(column) for column in zip(*columns, strict=True))
    return Arcs(tails.astype(np.int32), heads.astype(np.int32), weights.astype(np.float64))


def cut_nearest_sink(arcs: Arcs, nodes: int, /, *, source: int, sink: int, bound: float) -> Bools:
    """Return the sink's side of the minimum cut that is nearest to the sink.

    Of all minimum cuts, this one has the fewest nodes on the sink's side. At least one cut must
    weigh no more than `bound`.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    units = in_units(arcs.weights, bound)
    capacities = csr_array((units, (arcs.tails, arcs.heads)), shape=(nodes, nodes))
    residual = capacities - maximum_flow(capacities, source, sink).flow
    residual.eliminate_zeros()
    beyond = np.zeros(nodes, np.bool_)
    beyond[breadth_first_order(residual.T.tocsr(), sink, return_predecessors=False)] = True
    return beyond


def in_units(weights: Floats, bound: float, /) -> Ints:
    """Return the weights in whole units, of which the bound has at most 2**BITS.

    An arc that weighs more than the bound is never cut. Its weight is larger than that of a cut
    within the bound, even if each arc of this cut is rounded up.

    >>> in_units(np.array([0.0, 3.0, 1e-20, 8.0, np.inf]), 8.0)
    array([        0, 201326592,         1, 536870912, 536870918], dtype=int32)
    """
    exponent = BITS - int(np.frexp(bound)[1])
    light = np.minimum(weights, bound or 1.0)
    units = np.ceil(np.ldexp(light, exponent)).astype(np.int32)
    return np.where(weights > bound, units.max(initial=0) + len(weights) + 1, units)
