"""Steps written in JAX, as straight-line programs."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import count
from typing import Any, TypeAlias

from ckio.actions.variables import Flow, Step
from ckio.analysis.partitioned.jaxprs import Equations, Held, jax
from ckio.analysis.partitioned.program import (
    Assignment,
    Compute,
    StraightLine,
    Values,
    computed,
    leading_to,
)
from ckio.errors import BadInput

Function: TypeAlias = Callable[[Any], Mapping[str, Any]]
"""From the arrays of x_i, by name, to those of x_{i+1}; what it leaves out is not overwritten."""


def trace(step: Function, state: Values, /) -> StraightLine:
    """A step and its adjoint as JAX sees them on a state like this one.

    The values are the results of single primitives; those in a `jit`, a `jax.checkpoint` or a
    function with derivatives of its own are values as all others are, and a `scan`, a `while` or
    a `cond` is one assignment. What is computed twice from the same is one value. Arrays that the
    step closes over are constants: they are on no tape, and copied once at most. The cotangents
    are those of real and complex arrays; of whole numbers there are none.

    Parameters
    ----------
    step : callable
        From x_i to x_{i+1}, as a dict of arrays. An array that it gives back as it got it, or not
        at all, is not overwritten.
    state : mapping of str to array
        Only its shapes and types matter.

    Raises
    ------
    BadInput
        Where JAX is not installed, a state is no dict of arrays, the step changes their shapes or
        types, it does more than compute (callbacks and other effects), or it has no adjoint, as a
        `while_loop` has none.
    """
    before = _checked(state)
    smooth = [name for name, array in before.items() if _is_smooth(array)]

    def joint(state: Values, cotangent: Values) -> tuple[Values, Values]:
        def differentiated(moving: Values) -> tuple[Values, Values]:
            after = _after(step, {**state, **moving})
            return {name: after[name] for name in moving}, after

        moving = {name: state[name] for name in smooth}
        _, pull, after = jax().vjp(differentiated, moving, has_aux=True)
        return after, pull(cotangent)[0]

    try:
        closed = jax().make_jaxpr(joint)(before, {name: before[name] for name in smooth})
    except BadInput:
        raise
    except Exception as error:
        jax().make_jaxpr(step)(before)  # what the step does wrong by itself, it says itself
        raise BadInput(f"trace: JAX has no adjoint of this step: {_sentence(error)}") from error
    return _program(closed, tuple(before), tuple(smooth))


def flow_of(step: Function, state: Values, /, *, wanted: Iterable[str] | None = None) -> Step:
    """What a chain of such steps uses and overwrites; nothing has to be declared.

    Parameters
    ----------
    step, state
        As for `trace`, with the same errors.
    wanted : names or None
        What the functional, and the start of the adjoint, read of the last state; all if not given.

    Returns
    -------
    Step
        Its forward flow uses what the arrays that matter are computed from: those that are wanted,
        those that a tape is made of, and those that a later step uses for any of these. Its
        recording flow uses what the tape is made of, and the adjoint step reads nothing else.
    """
    program = trace(step, state)
    out = program.overwritten
    live = frozenset(program.inputs if wanted is None else wanted)
    if unknown := live - set(program.inputs):
        raise BadInput(
            f"flow_of: {', '.join(sorted(unknown))} is wanted, but the state has only"
            f" {', '.join(program.inputs)}"
        )
    tape = program.reached(program.required)
    live |= tape
    while True:
        use = program.reached(program.outputs[name] for name in out if name in live)
        if use <= live:
            return Step(Flow(use, out, out), Flow(tape, out, out))
        live |= use


def repeated(step: Function, times: int, /) -> Function:
    """So many steps as one, whose values are then chosen together."""

    def steps(state: Any) -> Mapping[str, Any]:
        for _ in range(times):
            state = {**state, **step(state)}
        return dict(state)

    return steps


def _checked(state: object) -> dict[str, Any]:
    """The arrays of a state, in the order in which JAX takes them."""
    if not isinstance(state, Mapping) or not all(isinstance(name, str) for name in state):
        raise BadInput("trace: a state must be a dict of arrays by name")
    return {name: _array(f"{name!r} in the state", state[name]) for name in sorted(state)}


def _array(what: str, value: Any) -> Any:
    if hasattr(value, "dtype") or isinstance(value, bool | int | float | complex):
        return jax().numpy.asarray(value)
    raise BadInput(
        f"trace: {what} is a {type(value).__name__}, not an array; give every array a name of its"
        " own in one dict"
    )


def _is_smooth(array: Any) -> bool:
    """Whether it has a derivative; numpy does not know all types that JAX has."""
    numpy = jax().numpy
    return bool(numpy.issubdtype(array.dtype, numpy.inexact))


def _after(step: Function, state: Mapping[str, Any]) -> dict[str, Any]:
    """x_{i+1} in whole, which must look like x_i."""
    new: object = step(dict(state))
    if not isinstance(new, Mapping):
        raise BadInput(f"trace: a step gives a dict of arrays, not {type(new).__name__}")
    arrays = {name: _array(f"{name!r} of the step", value) for name, value in new.items()}
    for name, array in arrays.items():
        if name not in state:
            raise BadInput(f"trace: the step gives {name!r}, which the state does not have")
        old = state[name]
        if (array.shape, array.dtype) != (old.shape, old.dtype):
            raise BadInput(
                f"trace: the step makes {name!r} {array.dtype}{list(array.shape)} of"
                f" {old.dtype}{list(old.shape)}; an array keeps its type and shape"
            )
    return {**state, **arrays}


def _sentence(error: Exception) -> str:
    """The first line of what an exception says."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _program(closed: Any, names: tuple[str, ...], smooth: tuple[str, ...]) -> StraightLine:
    """The jaxpr of (x_i, cotangent of x_{i+1}) -> (x_{i+1}, cotangent of x_i)."""
    fresh = _naming(names)
    marks = {name: fresh("cotangent") for name in smooth}
    found = Equations(fresh)
    places = found.add(closed.jaxpr, closed.consts, [*names, *marks.values()])
    after, gradient = places[: len(names)], dict(zip(smooth, places[len(names) :], strict=True))

    first, then = _halves(found, marks.values())
    outputs = dict.fromkeys(names, "")
    for name, place in zip(names, after, strict=True):
        if isinstance(place, Held):
            number = _number(place.array, fresh("constant"))
            first.append(number)
            outputs[name] = number.results[0]
        else:
            outputs[name] = place

    wanted = [place for place in gradient.values() if isinstance(place, str)]
    adjoint, read = leading_to(wanted, then)
    required = sorted(read - set(marks.values()))

    def backward(values: Values, cotangent: Values) -> dict[str, Any]:
        given = {mark: cotangent[name] for name, mark in marks.items()}
        known = computed(adjoint, {**values, **given})
        return {
            name: place.array if isinstance(place, Held) else known[place]
            for name, place in gradient.items()
        }

    assignments, there = leading_to([*outputs.values(), *required], first)
    return StraightLine(
        inputs=names,
        assignments=assignments,
        outputs=outputs,
        required=required,
        backward=backward,
        constants={
            name: _strong(array)
            for name, array in found.constants.items()
            if name in there or name in read
        },
        compiled=_compiled,
    )


def _compiled(function: Compute) -> Compute:
    """Compiled by JAX, for arrays that are its own.

    It reads those of NumPy in the background, where they lie, so that they could be changed under
    it, and also under what it returns. A Python number would be compiled for twice.
    """
    fast = jax().jit(function)
    return lambda *given: fast(*jax().tree.map(_strong, given))


def _strong(value: Any) -> Any:
    """An array of JAX that shares no memory with one of NumPy, and is not of a weak type."""
    numpy = jax().numpy
    if isinstance(value, jax().Array):
        return numpy.asarray(value, dtype=value.dtype) if value.aval.weak_type else value
    return numpy.array(value, dtype=numpy.result_type(value))


def _number(array: Any, name: str) -> Assignment:
    return Assignment((name,), (), lambda: array, seconds=0.0)


def _naming(taken: Iterable[str]) -> Callable[[str], str]:
    """Names for values: a word and a number, none of them taken."""
    names, numbers = frozenset(taken), count()

    def fresh(word: str) -> str:
        return next(name for number in numbers if (name := f"{word}.{number}") not in names)

    return fresh


def _halves(found: Equations, marks: Iterable[str]) -> tuple[list[Assignment], list[Assignment]]:
    """What does not depend on the cotangents, and what does; what depends on nothing is in both.

    That is as good as a literal: it takes no time, so that it is on no tape.
    """
    later, constant = set(marks), set(found.constants)
    first: list[Assignment] = []
    then: list[Assignment] = []
    for each in found.assignments:
        fixed = constant.issuperset(each.arguments)
        assignment = replace(each, seconds=0.0) if fixed else each
        depends = not later.isdisjoint(assignment.arguments)
        if depends:
            later.update(assignment.results)
        else:
            first.append(assignment)
        if fixed:
            constant.update(assignment.results)
            then.append(assignment)
        elif depends:
            then.append(assignment)
    return first, then
