"""What values weigh: their bytes, and the seconds that it takes to compute them again."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np

from ckio.analysis.dag import Name, ValueGraph
from ckio.analysis.partitioned.program import (
    Assignment,
    Compute,
    StraightLine,
    Values,
    computed,
    leading_to,
)
from ckio.errors import BadInput
from ckio.platform.clock import Clock

Seconds: TypeAlias = Literal["measured", "declared"]
"""Where the seconds of an assignment come from: those not declared are measured, or there are no
others."""

ROUNDS: Final = 5
"""What something takes is the median of so many, each of a few calls one behind the other."""
CALLS: Final = 10
"""In one round, at most,"""
ROUND: Final = 1e-3
"""and as many as take so many seconds."""


class Location(NamedTuple):
    """Where a step overwrites an array of the state."""

    array: str

    def __str__(self) -> str:
        return f"x[{self.array}]"


class Together(NamedTuple):
    """What has to be done once to have any of several values."""

    values: tuple[str, ...]


def weigh(
    program: StraightLine, state: Values, /, *, seconds: Seconds, clock: Clock, priced: bool
) -> ValueGraph:
    """The graph of what a step's adjoint reads, with the bytes and seconds of this very state.

    To measure, all values that precede what is required are in memory at once. Raises BadInput
    where seconds are needed for a price, and neither declared nor measured.
    """
    assignments, _ = leading_to(program.required, program.assignments)
    measured = seconds == "measured"
    computing = assignments if measured or any(it.nbytes is None for it in assignments) else ()
    run = program.compiled(lambda given: computed(computing, given))
    values = run({**program.constants, **{name: state[name] for name in program.inputs}})
    if measured:
        taken = _measured(program, assignments, values, clock)
    else:
        taken = [_declared(assignment, needed=priced) for assignment in assignments]
    nbytes = {name: _nbytes(value) for name, value in values.items()}
    for it in assignments:
        nbytes |= dict(zip(it.results, it.nbytes or (), strict=it.nbytes is not None))
    return _graph(program, assignments, nbytes, taken)


def _graph(
    program: StraightLine,
    assignments: Sequence[Assignment],
    nbytes: Mapping[Name, int],
    taken: Iterable[float],
) -> ValueGraph:
    arguments: dict[Name, Sequence[Name]] = dict.fromkeys((*program.inputs, *program.constants), ())
    recompute: dict[Name, float] = {}
    several: list[Name] = []
    for assignment, seconds in zip(assignments, taken, strict=True):
        results = assignment.results
        if len(results) == 1:
            arguments[results[0]] = assignment.arguments
            recompute[results[0]] = seconds
        else:  # what computes one of them again computes them all, once
            call = Together(results)
            several.append(call)
            arguments[call] = assignment.arguments
            recompute[call] = seconds
            arguments |= dict.fromkeys(results, (call,))
    return ValueGraph(
        arguments=arguments,
        required=program.required,
        overwrites={name: [Location(name)] for name in program.overwritten},
        nbytes=nbytes,
        recompute=recompute,
        unstorable=several,
    )


def _nbytes(value: Any) -> int:
    found = getattr(value, "nbytes", None)
    return int(np.asarray(value).nbytes if found is None else found)


def _declared(assignment: Assignment, *, needed: bool) -> float:
    if assignment.seconds is None and needed:
        raise BadInput(
            f"partition: nothing says what it takes to compute {assignment.results[0]!r} again;"
            " give the seconds of its assignment, or have them measured"
        )
    return assignment.seconds or 0.0


def _measured(
    program: StraightLine, assignments: Sequence[Assignment], values: Values, clock: Clock
) -> list[float]:
    """Seconds of each assignment as a part of one compiled function, which is how it is used.

    By itself it takes longer: there is a call of its own, of which as much is taken off as one
    takes that does nothing to speak of, and nothing is fused with what comes before and after. So
    those that are measured take no more in all than the function does that computes them all.
    """
    open_ = [number for number, it in enumerate(assignments) if it.seconds is None]
    some = _array(next(iter(values.values()), 0.0))
    idle = _seconds(program.compiled(lambda array: array.reshape(-1)[:1]), [some], clock)
    known: dict[Hashable, float] = {}
    found = [assignment.seconds or 0.0 for assignment in assignments]
    for number in open_:
        assignment = assignments[number]
        given = [values[name] for name in assignment.arguments]
        key = (assignment.kind or number, *((x.shape, x.dtype) for x in map(_array, given)))
        if key not in known:
            taken = _seconds(program.compiled(assignment.compute), given, clock)
            known[key] = max(0.0, taken - idle)
        found[number] = known[key]
    alone = sum(found[number] for number in open_)
    declared = sum(found) - alone
    most = max(0.0, _all_at_once(program, assignments, values, clock) - idle - declared)
    if alone > most:
        for number in open_:
            found[number] *= most / alone
    return found


def _all_at_once(
    program: StraightLine, assignments: Sequence[Assignment], values: Values, clock: Clock
) -> float:
    """Seconds to compute what is required from the state, and whatever that takes."""

    def required(state: Values) -> list[Any]:
        known = computed(assignments, state)
        return [known[name] for name in program.required]

    state = {name: values[name] for name in (*program.inputs, *program.constants)}
    return _seconds(program.compiled(required), [state], clock)


def _array(value: Any) -> Any:
    return value if hasattr(value, "dtype") else np.asarray(value)


def _seconds(call: Compute, given: Sequence[Any], clock: Clock) -> float:
    """The median of some rounds, after a call that compiles and another that is timed alone.

    In a round the calls follow each other without waiting, so that threads stay awake.
    """
    _finished(call(*given))
    start = clock.now()
    _finished(call(*given))
    once = clock.now() - start
    calls = CALLS if once * CALLS < ROUND else max(1, int(ROUND / once))
    return median(_round(call, given, calls, clock) for _ in range(ROUNDS))


def _round(call: Compute, given: Sequence[Any], calls: int, clock: Clock) -> float:
    start = clock.now()
    for _ in range(calls):
        result = call(*given)
    _finished(result)
    return (clock.now() - start) / calls


def _finished(result: Any) -> None:
    """Wait for arrays that are computed in the background."""
    for array in result if isinstance(result, list | tuple) else [result]:
        wait = getattr(array, "block_until_ready", None)
        if wait is not None:
            wait()
