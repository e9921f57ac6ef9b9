"""The published search: start from a simple choice, and change S by whole bicliques.

Cole-Mullen, Lyons and Utke, *Storing versus recomputation on multiple DAGs*, Algorithms 1 and 2. It
finds a sufficient choice, seldom a least one, and it knows nothing of the seconds to compute a
value again. It is there to be compared with.

Where the text leaves a choice, or cannot be meant as printed, it is read as follows. Reading 1 is
in `choice`, 9 in `bicliques`; 12 and 13 are about figures, and are in the tests.

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
"""

from math import inf
from typing import NamedTuple

import numpy as np

from ckio.analysis.dag.bicliques import cover
from ckio.analysis.dag.cut import separate
from ckio.analysis.dag.flow import Arcs
from ckio.analysis.dag.numbered import Answer, Bools, Ints, Numbered


def restore(graph: Numbered, saved: Bools, /) -> Answer:
    """Algorithm 1: the U that S leaves to be stored, for all DAGs at once, as they share no values.

    Values of V_S are there again. What reaches R from the other minimal values is separated from
    them by a minimal vertex cut, of several the one nearest to R.
    """
    value, location = graph.overwrites
    lost = np.zeros(len(graph.values), np.bool_)
    lost[value[~saved[location]]] = True
    heads = np.flatnonzero(lost).astype(np.int32)
    source = np.full(len(heads), 2 * len(graph.values), np.int32)
    _, stored = separate(graph, Arcs(source, heads, np.full(len(heads), np.inf)))
    return Answer(saved, stored)


def search(graph: Numbered, /, *, delta: float) -> Answer:
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


def bicliques(graph: Numbered, /) -> list[tuple[Ints, Bools]]:
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


def largest(graph: Numbered, left: list[tuple[Ints, Bools]], saved: Bools, /) -> Step:
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


def _weight(graph: Numbered, answer: Answer) -> float:
    """|S| + |U|."""
    return float(graph.saving[answer.saved].sum() + graph.weight[answer.stored].sum())
