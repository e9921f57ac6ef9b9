"""The least that can be stored and computed again, as one minimum cut.

The network has two nodes for each value, v_in and v_out, and one for each location:

    source --saving(o)-->  o                 cut: what o overwrites is saved          (o in S)
    o      --infinite-->   v_in              (v, o) in E_b
    v_in   --weight(v)-->  v_out             cut: v is stored                         (v in U)
    source --again(v)-->   v_in              cut: v is needed and computed again
    q_out  --infinite-->   v_in              v is computed from q
    r_out  --infinite-->   sink              r is required

A node is beyond the cut, on the sink's side, if what it stands for has to be had again: r_out is;
with v_out is v_in, unless v is stored; with v_in are its arguments' q_out, and the locations that
overwrite it. So S, U and the values that they force to be computed again are cut, no less and no
more, and a minimum cut is a least choice. A minimal value that nothing overwrites has no way from
the source and costs nothing. The DAGs meet in their locations, and are solved as one.

Cuts of least weight form a lattice, and the one taken is nearest to the sink: whatever is saved in
S, and whatever is computed again, every other choice that takes as little saves and computes too.
This carries the tie-breaker of Algorithm 1, "minimal distance to R", over to the whole.
"""

import numpy as np
from numpy.typing import ArrayLike

from ckio.analysis.dag.flow import Arcs, cut_nearest_sink
from ckio.analysis.dag.numbered import Answer, Bools, Numbered


def minimum_cut(graph: Numbered, /) -> Answer:
    """The least choice. One must be possible, or this has no meaning."""
    locations = len(graph.locations)
    first = 2 * len(graph.values)
    source = first + locations
    value, location = graph.overwrites
    paid = np.flatnonzero(graph.again > 0)
    entries = _arcs(
        (source, first + np.arange(locations), graph.saving),
        (first + location, value, np.inf),
        (source, paid, graph.again[paid]),
    )
    beyond, stored = separate(graph, entries, more=locations)
    return Answer(saved=beyond[first:source], stored=stored)


def separate(graph: Numbered, entries: Arcs, /, *, more: int = 0) -> tuple[Bools, Bools]:
    """Which nodes are beyond the cut nearest to the required values, and which values are cut.

    Node v is v_in, and v + len(graph.values) is v_out. Then come `more` nodes of the caller, and
    then the source; `entries` lead from it to where values come from.
    """
    values = len(graph.values)
    source = 2 * values + more
    argument, value = graph.arguments
    arcs = _arcs(
        (entries.tails, entries.heads, entries.weights),
        (np.arange(values), values + np.arange(values), graph.weight),
        (values + argument, value, np.inf),
        (values + graph.required, source + 1, np.inf),
    )
    bound = min(
        arcs.weights[np.isfinite(arcs.weights)].sum(),
        arcs.weights[arcs.tails == source].sum(),
        graph.weight[graph.required].sum(),
    )
    cut = cut_nearest_sink(arcs, source + 2, source=source, sink=source + 1, bound=float(bound))
    return cut.beyond, cut.beyond[values : 2 * values] & ~cut.beyond[:values]


def _arcs(*groups: tuple[ArrayLike, ArrayLike, ArrayLike]) -> Arcs:
    """Groups of arcs as one; in each, what is given once holds for all of its arcs."""
    columns = [np.broadcast_arrays(*group) for group in groups]
    tails, heads, weights = (np.concatenate(column) for column in zip(*columns, strict=True))
    return Arcs(tails.astype(np.int32), heads.astype(np.int32), weights.astype(np.float64))
