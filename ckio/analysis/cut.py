"""Find the minimum cut of a network that is nearest to its sink.

An arc from a to b with weight w is cut if a remains on the side of the source and b is on the side
of the sink. Minimum cuts form a lattice. The one nearest to the sink has the fewest nodes on its
side, and all other minimum cuts have these nodes on that side, too.

For example, the two arcs from 1 weigh as much as the one to 1, so that both cuts are minimum cuts:

    >>> from math import inf
    >>> arcs = [(SOURCE, 1, 3.0), (1, 2, 1.0), (1, 3, 2.0), (2, SINK, inf), (3, SINK, inf)]
    >>> sorted(nearest_cut(arcs, bound=3.0) - {SINK})
    [2, 3]

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
from itertools import count
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int32]
Floats: TypeAlias = NDArray[np.float64]

Arc: TypeAlias = tuple[Hashable, Hashable, float]
"""The nodes at which an arc begins and ends, and its weight: at least 0; infinite if it cannot be
cut.
"""

SOURCE: Final = "source"
SINK: Final = "sink"

BITS: Final = 30
"""The bits of the bound, in units: scipy's capacities have a sign and 31 bits."""


def nearest_cut(arcs: Sequence[Arc], /, *, bound: float) -> set[Hashable]:
    """Return the nodes on the sink's side of the minimum cut that is nearest to the sink.

    No two arcs have the same nodes. At least one cut must weigh no more than `bound`.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    nodes = list(dict.fromkeys((SOURCE, SINK, *(node for arc in arcs for node in arc[:2]))))
    number = dict(zip(nodes, count()))
    tails = np.array([number[tail] for tail, _, _ in arcs], np.int32)
    heads = np.array([number[head] for _, head, _ in arcs], np.int32)
    units = in_units(np.array([weight for *_, weight in arcs], np.float64), bound)
    capacities = csr_array((units, (tails, heads)), shape=(len(nodes), len(nodes)))
    residual = capacities - maximum_flow(capacities, number[SOURCE], number[SINK]).flow
    residual.eliminate_zeros()
    reaching = breadth_first_order(residual.T.tocsr(), number[SINK], return_predecessors=False)
    return {nodes[node] for node in reaching.tolist()}


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
