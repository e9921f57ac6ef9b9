"""The minimum cut of a network that is nearest to its sink, exact for weights of up to 60 bits.

scipy finds maximum flows, but with capacities of 32 bits, and larger ones it takes modulo 2**32
without a word. Here the capacities are whole numbers of a unit, of up to 60 bits, and the flow is
found a few bits at a time: in the residual network r, with a bound B on what can still flow,

    1. find a maximum flow f for the capacities  min(r, B + 1) >> k,  which have 30 bits;
    2. r := r - (f << k). The arcs across the minimum cut of step 1 have now less than 2**k left
       each, and that is a new B, smaller by about 30 bits less those of the number of arcs;
    3. end after k = 0; else again, with the k that B asks for.

In the last turn no arc is at its bound B + 1, because no more than B can flow, so the flow is a
maximum one; and arcs of infinite weight are never full. The cut is then found from the residual
network: the nodes from which the sink can be reached. All minimum cuts have these on the side of
the sink, whichever maximum flow was found, so the answer does not depend on how scipy finds it.
"""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

_EXACT: Final = 60
"""Bits of the bound on the flow, in units."""

_ROUNDED: Final = 1 + 2.0**-30
"""The bound is a sum of floats, and may have lost more than a unit for each."""

_INFINITE: Final = 1 << 62

CAPACITY: Final = 30
"""Bits of a capacity: scipy adds that of an arc to that of its reverse, in 32 bits with a sign."""


class Arcs(NamedTuple):
    """The arcs of a network.

    Attributes
    ----------
    tails, heads : int32 array
        From and to which node; no pair twice.
    weights : float64 array
        What it takes to cut each, at least 0; infinite where it cannot be cut.
    """

    tails: NDArray[np.int32]
    heads: NDArray[np.int32]
    weights: NDArray[np.float64]


class Cut(NamedTuple):
    """A minimum cut.

    Attributes
    ----------
    beyond : bool array
        Whether each node is on the side of the sink; of all minimum cuts the one with the fewest.
    weight : float
        The maximum flow, which is what the arcs across weigh.
    """

    beyond: NDArray[np.bool_]
    weight: float


def cut_nearest_sink(
    arcs: Arcs, nodes: int, /, *, source: int, sink: int, bound: float, bits: int = CAPACITY
) -> Cut:
    """The minimum cut nearest to the sink; some cut must weigh no more than `bound`.

    The weights are taken in units of a power of two. Where all are multiples of one that is at
    least 2**-60 of the bound, as bytes are, nothing is rounded. Otherwise the unit is at most
    2**-59 of the bound and each weight is off by half a unit at most, so that the cut that is found
    weighs no more than the lightest and one unit for each arc. `bits` are those of the capacities
    that scipy is given; they must be more than one above those of the number of arcs.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_flow

    units, unit = in_units(arcs.weights, bound)
    residual = csr_array((units, (arcs.tails, arcs.heads)), shape=(nodes, nodes))
    left, whole = int(bound * _ROUNDED / unit) + len(units) + 1, 0
    while True:
        shift = max(0, (left + 1).bit_length() - bits)
        capacities = _at_most(residual, left + 1, shift)
        found = maximum_flow(capacities.astype(np.int32), source, sink)
        residual = residual - found.flow.astype(np.int64) * (1 << shift)
        pushed = int(found.flow_value) << shift
        whole += pushed
        beyond = _reaching(_at_most(residual, left + 1, shift), sink)
        if shift == 0:
            return Cut(beyond, whole * unit)
        left = min(left - pushed, _across(residual, beyond, left))


def in_units(weights: NDArray[np.float64], bound: float, /) -> tuple[NDArray[np.int64], float]:
    """Weights in whole units, and the unit, which is a power of two.

    What weighs more than twice the bound is never cut, and comes out as about that much.
    """
    finite = np.isfinite(weights)
    if bound == 0:  # what weighs anything stays
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
    """Capacities of what is left, without the arcs that are full."""
    capacities = residual.copy()
    capacities.data = np.minimum(residual.data, most) >> shift
    capacities.eliminate_zeros()
    return capacities


def _reaching(capacities: Any, sink: int) -> NDArray[np.bool_]:
    """The nodes from which there is a way to the sink."""
    from scipy.sparse.csgraph import breadth_first_order

    found = np.zeros(capacities.shape[0], np.bool_)
    back = capacities.T.tocsr()
    found[breadth_first_order(back, sink, return_predecessors=False)] = True
    return found


def _across(residual: Any, beyond: NDArray[np.bool_], most: int) -> int:
    """What is left on the arcs to those beyond, each counted with `most` at most."""
    tails = np.repeat(np.arange(len(beyond)), np.diff(residual.indptr))
    crossing = ~beyond[tails] & beyond[residual.indices]
    return sum(np.minimum(residual.data[crossing], most).tolist())
