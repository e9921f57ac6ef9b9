"""Store or recompute: which values of straight-line programs are kept for their adjoint.

The tape of a step need not hold all that the adjoint reads. Some of it can be computed again from
other values; these must then be there: in variables that were not overwritten, or stored when they
were computed (U), or saved where the program overwrites them (S). The least choice for several DAGs
at once is a minimum cut of one network (`cut`).

Two DAGs read the variable a, in y = sin a and in z = a**3, before a = 0 overwrites it:

>>> graph = ValueGraph(
...     arguments={"a in y": (), "cos a": ("a in y",), "a in z": (), "3 a**2": ("a in z",)},
...     required=["cos a", "3 a**2"],
...     overwrites={"a in y": ["a = 0"], "a in z": ["a = 0"]},
... )
>>> choice = solve(graph)
>>> choice.saved, choice.stored, choice.recomputed
(('a = 0',), (), ('cos a', '3 a**2'))

Where bytes alone count, computing again is free. With the seconds that a level takes for so many
bytes as the `price`, they are weighed against the seconds to `recompute`. What comes out
describes steps of a `Chain`: `nbytes` is their tape, and their `reverse` takes `recomputing`
seconds more.
"""

from typing import Literal, TypeAlias, assert_never, get_args

import numpy as np

from ckio.analysis.dag.choice import Choice, Price, check_solvable, choose, price_on
from ckio.analysis.dag.cut import minimum_cut
from ckio.analysis.dag.graph import Name, ValueGraph, joined
from ckio.analysis.dag.milp import integer_program
from ckio.analysis.dag.numbered import Answer, Numbered, numbered
from ckio.analysis.dag.paper import search
from ckio.errors import BadInput

__all__ = [
    "Choice",
    "Method",
    "Name",
    "Price",
    "ValueGraph",
    "choose",
    "joined",
    "price_on",
    "solve",
]

Method: TypeAlias = Literal["cut", "paper", "milp"]


def solve(
    graph: ValueGraph,
    /,
    *,
    price: Price | None = None,
    method: Method = "cut",
    delta: float = 0.0,
) -> Choice:
    """The choice of S and U that takes least, for all DAGs of the graph together.

    Parameters
    ----------
    graph : ValueGraph
        Values, what is required of them, and where they are overwritten.
    price : callable or None
        Seconds to store so many bytes and have them back, such as `price_on(level)`. What is least
        is then the sum of these and of the seconds to compute values again; without a price it is
        the bytes that are stored, and computing again is free.
    method : {"cut", "paper", "milp"}
        "cut" is exact, up to rounding (see `flow`), and of equals takes the one that saves fewest
        locations and computes fewest values again. "milp" is the same as an integer program, for
        comparison. "paper" is the published search, which knows no seconds to compute a value
        again and no values that cannot be stored or computed.
    delta : float
        For "paper": between 0 and 1, how far below 1 a ratio may be that still is tried.

    Raises BadInput where a required value can neither be stored nor be computed again, and for a
    method or a delta that do not exist.
    """
    if method not in get_args(Method):
        raise BadInput(
            f"solve: method = {method!r}; it must be one of {', '.join(get_args(Method))}"
        )
    if not 0 <= delta <= 1:
        raise BadInput(f"solve: delta = {delta!r}; it must be between 0 and 1")
    check_solvable(graph)
    numbers = numbered(graph, price)
    answer = _answer(numbers, method, delta)
    return choose(
        graph,
        saved=[numbers.locations[i] for i in np.flatnonzero(answer.saved)],
        stored=[numbers.values[i] for i in np.flatnonzero(answer.stored)],
        price=price,
    )


def _answer(graph: Numbered, method: Method, delta: float) -> Answer:
    match method:
        case "cut":
            return minimum_cut(graph)
        case "milp":
            return integer_program(graph)
        case "paper":
            refused = np.isinf(graph.weight).any() or np.isinf(graph.saving).any()
            if refused or np.isinf(graph.again).any():
                raise BadInput(
                    "solve: method 'paper' stores and computes every value if it has to, and here"
                    " some cannot be; take method 'cut'"
                )
            return search(graph, delta=delta)
        case _:
            assert_never(method)
