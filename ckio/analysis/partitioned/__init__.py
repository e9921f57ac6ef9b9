"""The tape of a step: which of its values are stored, and which computed again; as running code.

A step is a `StraightLine` program, declared by hand for a model in numpy, or what `trace` finds in
a function written in JAX. Its values, the bytes they have and the seconds they take make a graph
of which `ckio.analysis.dag` finds the least choice for a level; a `Partition` is the step in the
two halves that follow: `forward`, which leaves what is stored, and `backward`, which computes the
rest again and runs the adjoint.

In v = e**u, u' = u + k v, the adjoint reads v and k. The step does not overwrite k:

>>> import numpy as np
>>> def backward(values, cotangent):
...     of_u = cotangent["u"]
...     return {
...         "u": of_u * (1 + values["k"] * values["v"]),
...         "k": cotangent["k"] + of_u * values["v"],
...     }
>>> step = StraightLine(
...     inputs=["u", "k"],
...     assignments=[
...         Assignment(["v"], ["u"], np.exp),
...         Assignment(["u'"], ["u", "k", "v"], lambda u, k, v: u + k * v),
...     ],
...     outputs={"u": "u'"},
...     required=["v", "k"],
...     backward=backward,
... )
>>> x = {"u": np.zeros(5), "k": np.ones(5)}
>>> halves = partition(step, x)
>>> halves.stored, halves.begins, halves.tape
(('v',), ('k',), 40)
>>> after, tape = halves.forward(x)
>>> after["u"], halves.backward(tape, {"u": np.ones(5), "k": np.zeros(5)}, after)["u"]
(array([1., 1., 1., 1., 1.]), array([2., 2., 2., 2., 2.]))
"""

from typing import get_args

from ckio.analysis.dag import Price, price_on, solve
from ckio.analysis.partitioned.model import PartitionedModel
from ckio.analysis.partitioned.program import Assignment, Backward, Compute, StraightLine, Values
from ckio.analysis.partitioned.split import Partition
from ckio.analysis.partitioned.traced import Function, flow_of, repeated, trace
from ckio.analysis.partitioned.weighed import Location, Seconds, weigh
from ckio.errors import BadInput
from ckio.platform import Level
from ckio.platform.clock import Clock, WallClock

__all__ = [
    "Assignment",
    "Backward",
    "Compute",
    "Function",
    "Location",
    "Partition",
    "PartitionedModel",
    "Seconds",
    "StraightLine",
    "Values",
    "flow_of",
    "partition",
    "repeated",
    "trace",
]


def partition(
    step: StraightLine | Function,
    state: Values,
    level: Level | None = None,
    /,
    *,
    seconds: Seconds = "measured",
    clock: Clock | None = None,
) -> Partition:
    """A step in two halves, with the tape that takes least.

    Parameters
    ----------
    step : StraightLine or callable
        A function is traced, see `trace`.
    state : mapping of str to array
        An x_i as it is in practice: bytes and seconds are those of a step on it.
    level : Level or None
        Where the tape goes. The seconds that its bytes take there, written, read and discarded,
        are weighed against the seconds to compute values again. What an access takes at least is
        left out: a tape is one checkpoint, however many values are in it. Without a level the
        tape has as few bytes as can be.
    seconds : {"measured", "declared"}
        "measured": each assignment that does not declare what it takes is called a few times.
        "declared": nothing is measured, and with a level every assignment has to declare it.
    clock : Clock, optional
        By which is measured; this machine's.

    Raises
    ------
    BadInput
        Where seconds are missing or the step cannot be traced.
    """
    if seconds not in get_args(Seconds):
        raise BadInput(
            f"partition: seconds = {seconds!r}; it must be one of {', '.join(get_args(Seconds))}"
        )
    program = step if isinstance(step, StraightLine) else trace(step, state)
    graph = weigh(
        program, state, seconds=seconds, clock=clock or WallClock(), priced=level is not None
    )
    price = None if level is None else _price_of_bytes(level)
    return Partition(program, graph, solve(graph, price=price))


def _price_of_bytes(level: Level) -> Price:
    """What each value adds to a tape that is written and read as one."""
    price = price_on(level)
    least = price(0)
    return lambda nbytes: max(0.0, price(nbytes) - least)
