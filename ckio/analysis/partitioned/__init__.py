"""Divide a step into its tape and the values that are computed again, as code that can be run.

A step is a `StraightLine` program. You declare it by hand for a model in numpy, or `trace` makes it
from a function in JAX. Its values, with their bytes and seconds, form a graph, for which
`ckio.analysis.dag` finds the cheapest choice on a level. A `Partition` is the step in two halves:
`forward` returns the new state and the stored values, and `backward` computes the other values
again and runs the adjoint.

For example, let the step be v = e**u, u' = u + k v. Its adjoint reads v and k. The step does not
overwrite k, so that the tape consists of the 40 bytes of v:

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

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Any, Final, NamedTuple

import numpy as np

from ckio.analysis.dag import Cost, Name, StoredValues, ValueGraph, cost_on, solve
from ckio.analysis.partitioned.jaxprs import Function, trace
from ckio.analysis.partitioned.program import (
    Assignment,
    Backward,
    Compute,
    StraightLine,
    Values,
    compute_all,
    leading_to,
)
from ckio.platform import Level
from ckio.platform.clock import Clock, WallClock

__all__ = [
    "Assignment",
    "Backward",
    "Compute",
    "Function",
    "Location",
    "Partition",
    "StraightLine",
    "Values",
    "cost_of_tape",
    "partition",
    "trace",
    "weigh",
]

ROUNDS: Final = 5
"""The number of rounds of successive calls. Their median is the time of a call."""
CALLS: Final = 10
"""The most calls in one round."""
ROUND: Final = 1e-3
"""The seconds of a round: there are fewer calls if CALLS would take longer."""


class Location(NamedTuple):
    """The location at which a step overwrites an array of the state."""

    array: str

    def __str__(self) -> str:
        return f"x[{self.array}]"


@dataclass(frozen=True, eq=False)
class Partition:
    """One step, its tape, and its adjoint.

    Attributes
    ----------
    program : StraightLine
        The step.
    graph : ValueGraph
        The values that its adjoint reads, with the bytes and seconds that determined the choice.
    choice : StoredValues
        The values that are stored, and those that are computed again.
    """

    program: StraightLine
    graph: ValueGraph
    choice: StoredValues

    @property
    def tape(self) -> int:
        """Bytes of the tape of a step, as in `Chain.tape`."""
        return self.choice.nbytes

    @property
    def recomputing(self) -> float:
        """Seconds to compute values again, by which `Chain.reverse` becomes longer.

        Those that were neither declared nor measured count as 0.
        """
        return self.choice.recomputing

    @cached_property
    def stored(self) -> tuple[str, ...]:
        """The names of all saved values: arrays with their values in x_i, and other values."""
        arrays = [where.array for where in self.choice.saved if isinstance(where, Location)]
        values = [name for name in self.choice.stored if isinstance(name, str)]
        return (*arrays, *values)

    @cached_property
    def begins(self) -> tuple[str, ...]:
        """The arrays that the adjoint reads from the state. The step does not overwrite them."""
        _, names = leading_to(self.program.required, self.program.assignments, self.stored)
        return tuple(name for name in self.program.inputs if name in names)

    def forward(self, state: Values, /) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return x_{i+1} and the tape, from x_i. Raise KeyError if an array is missing.

        The tape shares no memory with either state, so both states may be changed in place.
        """
        given = _select("forward: the state", state, self.program.inputs)
        new, saved = self._forward(self.program.constants, given)
        after = {**state, **new}
        return after, {
            name: _separate(x, (*given.values(), *new.values())) for name, x in saved.items()
        }

    def backward(self, saved: Values, cotangent: Values, state: Values, /) -> dict[str, Any]:
        """Return the cotangent of x_i, from the tape and the cotangent of x_{i+1}.

        Only the arrays `begins` of the state are read. The state may be x_i or any later one in
        which they are not overwritten. Raises KeyError if a value is missing on the tape or in the
        state.
        """
        given = _select("backward: the tape", saved, self.stored)
        given |= _select("backward: the state", state, self.begins)
        return dict(self._backward(self.program.constants, given, dict(cotangent)))

    @cached_property
    def _forward(self) -> Callable[[Values, Values], tuple[dict[str, Any], dict[str, Any]]]:
        program, stored = self.program, self.stored
        new = {name: program.outputs[name] for name in program.overwritten}
        assignments, _ = leading_to([*new.values(), *stored], program.assignments)

        def forward(constants: Values, state: Values) -> tuple[dict[str, Any], dict[str, Any]]:
            values = compute_all(assignments, {**constants, **state})
            after = {name: values[value] for name, value in new.items()}
            return after, {name: values[name] for name in stored}

        return program.compiled(forward)

    @cached_property
    def _backward(self) -> Callable[[Values, Values, Values], Mapping[str, Any]]:
        program = self.program
        assignments, _ = leading_to(program.required, program.assignments, self.stored)

        def backward(constants: Values, given: Values, cotangent: Values) -> Mapping[str, Any]:
            values = compute_all(assignments, {**constants, **given})
            return program.backward({name: values[name] for name in program.required}, cotangent)

        return program.compiled(backward)


def _select(where: str, given: Values, names: Sequence[str]) -> dict[str, Any]:
    for name in names:
        if name not in given:
            raise KeyError(f"{where} has no {name!r}; it must have {', '.join(names)}")
    return {name: given[name] for name in names}


def _separate(array: Any, others: Iterable[Any]) -> Any:
    """Return the array, or a copy of it if it shares memory with one of the others."""
    if isinstance(array, np.ndarray) and any(
        isinstance(other, np.ndarray) and np.may_share_memory(array, other) for other in others
    ):
        return array.copy()
    return array


def partition(
    step: StraightLine | Function, state: Values, level: Level | None = None, /
) -> Partition:
    """Divide a step into two halves, with the cheapest tape.

    Parameters
    ----------
    step : StraightLine or callable
        The step. A function is traced: see `trace`.
    state : mapping of str to array
        A typical state x_i, which determines bytes and seconds.
    level : Level or None
        The level for the tape. The seconds to write, read and discard its bytes are compared with
        the seconds to compute values again. Latency does not count, because a tape is one
        checkpoint, however many values it contains. Each assignment that does not declare its
        seconds is called a few times to measure them. Without a level the tape has the fewest
        bytes, and nothing is measured.

    Raises
    ------
    BadInput
        If the step cannot be traced.
    """
    program = step if isinstance(step, StraightLine) else trace(step, state)
    graph = weigh(program, state, None if level is None else WallClock())
    cost = None if level is None else cost_of_tape(level)
    return Partition(program, graph, solve(graph, cost=cost))


def cost_of_tape(level: Level, /) -> Cost:
    """Return the cost of a value on a tape, without latency, because a tape is one access."""
    cost = cost_on(level)
    least = cost(0)
    return lambda nbytes: max(0.0, cost(nbytes) - least)


def weigh(program: StraightLine, state: Values, clock: Clock | None = None, /) -> ValueGraph:
    """Return the graph of the values that a step's adjoint reads, weighted for this state.

    With a clock, seconds that are not declared are measured. All values before the required ones
    are then in memory at the same time. Otherwise they count as 0.
    """
    assignments, _ = leading_to(program.required, program.assignments)
    computing = assignments if clock or any(each.nbytes is None for each in assignments) else ()
    run = program.compiled(lambda given: compute_all(computing, given))
    values = run({**program.constants, **{name: state[name] for name in program.inputs}})
    taken = [assignment.seconds or 0.0 for assignment in assignments]
    if clock and any(each.seconds is None for each in assignments):
        taken = _measured(program, assignments, values, clock)

    nbytes: dict[Name, int] = {name: int(_array(value).nbytes) for name, value in values.items()}
    arguments: dict[Name, Sequence[Name]] = dict.fromkeys((*program.inputs, *program.constants), ())
    recompute: dict[Name, float] = {}
    calls: list[Name] = []
    for assignment, seconds_taken in zip(assignments, taken, strict=True):
        results = assignment.results
        # If one of several results is computed again, one call computes all of them. The tuple of
        # the results is its name.
        call = results[0] if len(results) == 1 else tuple(results)
        arguments[call], recompute[call] = assignment.arguments, seconds_taken
        if call != results[0]:
            calls.append(call)
            arguments |= dict.fromkeys(results, (call,))
        nbytes |= dict(zip(results, assignment.nbytes or (), strict=assignment.nbytes is not None))
    return ValueGraph(
        arguments=arguments,
        required=program.required,
        overwrites={name: [Location(name)] for name in program.overwritten},
        nbytes=nbytes,
        recompute=recompute,
        unstorable=calls,
    )


def _array(value: Any) -> Any:
    return value if hasattr(value, "nbytes") else np.asarray(value)


def _measured(
    program: StraightLine, assignments: Sequence[Assignment], values: Values, clock: Clock
) -> list[float]:
    """Return the seconds of each assignment as a part of one compiled function.

    An assignment alone takes longer. It needs its own call, and it is not fused with its
    neighbours. Therefore the time of a call that does almost nothing is subtracted. In addition,
    the measured assignments are scaled so that they take no more in total than the function that
    computes all of them.
    """
    undeclared = [number for number, each in enumerate(assignments) if each.seconds is None]
    some = _array(next(iter(values.values()), 0.0))
    idle = _seconds(program.compiled(lambda array: array.reshape(-1)[:1]), [some], clock)
    known: dict[Hashable, float] = {}
    taken = [assignment.seconds or 0.0 for assignment in assignments]
    for number in undeclared:
        assignment = assignments[number]
        given = [values[name] for name in assignment.arguments]
        key = (assignment.kind or number, *((x.shape, x.dtype) for x in map(_array, given)))
        if key not in known:
            alone = _seconds(program.compiled(assignment.compute), given, clock)
            known[key] = max(0.0, alone - idle)
        taken[number] = known[key]

    def required(state: Values) -> list[Any]:
        known = compute_all(assignments, state)
        return [known[name] for name in program.required]

    state = {name: values[name] for name in (*program.inputs, *program.constants)}
    together = _seconds(program.compiled(required), [state], clock)
    apart = sum(taken[number] for number in undeclared)
    most = max(0.0, together - idle - (sum(taken) - apart))
    if apart > most:
        for number in undeclared:
            taken[number] *= most / apart
    return taken


def _seconds(call: Compute, given: Sequence[Any], clock: Clock) -> float:
    """Return the median of some rounds, after one call that compiles and one that is timed alone.

    In a round, the calls follow each other without a pause, so that threads remain active.
    """

    def took(calls: int) -> float:
        start = clock.now()
        for _ in range(calls):
            result = call(*given)
        for array in result if isinstance(result, list | tuple) else [result]:
            if hasattr(array, "block_until_ready"):  # JAX computes it in the background
                array.block_until_ready()
        return (clock.now() - start) / calls

    took(1)
    once = took(1)
    calls = CALLS if once * CALLS < ROUND else max(1, int(ROUND / once))
    return median(took(calls) for _ in range(ROUNDS))
