"""Steps written in JAX, as straight-line programs: all that knows what a jaxpr looks like."""

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import count
from typing import Any, Final, NamedTuple, TypeAlias

from ckio.analysis.partitioned.program import (
    Assignment,
    Compute,
    StraightLine,
    Values,
    computed,
    leading_to,
)
from ckio.errors import BadInput
from ckio.flows import Flow, Step

Function: TypeAlias = Callable[[Any], Mapping[str, Any]]
"""From the arrays of x_i, by name, to those of x_{i+1}; what it leaves out is not overwritten."""

BODIES: Final = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
    "remat": "jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
}
"""Primitives that stand for the code in one of their parameters, by their names in all versions."""


class _Held(NamedTuple):
    """What is no value, because it does not depend on the state: a literal, a closed-over array."""

    array: Any


_Place: TypeAlias = str | _Held


def trace(step: Function, state: Values, /) -> StraightLine:
    """A step and its adjoint as JAX sees them on a state like this one.

    The values are the results of single primitives; those in a `jit`, a `jax.checkpoint` or a
    function with derivatives of its own are values as all others are, and a `scan`, a `while` or
    a `cond` is one assignment. The cotangents are those of real and complex arrays; of whole
    numbers there are none.

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
        types, or it does more than compute: callbacks and other effects.
    """
    jax = _jax()
    before = _checked(state)
    smooth = [name for name, array in before.items() if _is_smooth(array)]

    def joint(state: Values, cotangent: Values) -> tuple[Values, Values]:
        def differentiated(moving: Values) -> tuple[Values, Values]:
            after = _after(step, {**state, **moving})
            return {name: after[name] for name in moving}, after

        moving = {name: state[name] for name in smooth}
        _, pull, after = jax.vjp(differentiated, moving, has_aux=True)
        return after, pull(cotangent)[0]

    closed = jax.make_jaxpr(joint)(before, {name: before[name] for name in smooth})
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


@cache
def _jax() -> Any:
    try:
        importlib.import_module("jax.extend.core")
        return importlib.import_module("jax")
    except ImportError as error:
        raise BadInput(
            f"tracing a step needs jax, which cannot be imported ({error});"
            " install it: pip install 'ckio[jax]'"
        ) from error


def _checked(state: object) -> dict[str, Any]:
    """The arrays of a state, in the order in which JAX takes them."""
    if not isinstance(state, Mapping) or not all(isinstance(name, str) for name in state):
        raise BadInput("trace: a state must be a dict of arrays by name")
    return {name: _array(f"{name!r} in the state", state[name]) for name in sorted(state)}


def _array(what: str, value: Any) -> Any:
    if hasattr(value, "dtype") or isinstance(value, bool | int | float | complex):
        return _jax().numpy.asarray(value)
    raise BadInput(
        f"trace: {what} is a {type(value).__name__}, not an array; give every array a name of its"
        " own in one dict"
    )


def _is_smooth(array: Any) -> bool:
    """Whether it has a derivative; numpy does not know all types that JAX has."""
    numpy = _jax().numpy
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


def _program(closed: Any, names: tuple[str, ...], smooth: tuple[str, ...]) -> StraightLine:
    """The jaxpr of (x_i, cotangent of x_{i+1}) -> (x_{i+1}, cotangent of x_i)."""
    fresh = _naming(names)
    marks = {name: fresh("cotangent") for name in smooth}
    found, places = _flat(closed.jaxpr, closed.consts, [*names, *marks.values()], fresh)
    after, gradient = places[: len(names)], dict(zip(smooth, places[len(names) :], strict=True))

    first, then = _halves(found, marks.values())
    outputs = dict.fromkeys(names, "")
    for name, place in zip(names, after, strict=True):
        if isinstance(place, _Held):
            constant = _constant(place.array, fresh("constant"))
            first.append(constant)
            outputs[name] = constant.results[0]
        else:
            outputs[name] = place

    wanted = [place for place in gradient.values() if isinstance(place, str)]
    adjoint, read = leading_to(wanted, then)
    required = sorted(read - set(marks.values()))

    def backward(values: Values, cotangent: Values) -> dict[str, Any]:
        given = {mark: cotangent[name] for name, mark in marks.items()}
        known = computed(adjoint, {**values, **given})
        return {
            name: place.array if isinstance(place, _Held) else known[place]
            for name, place in gradient.items()
        }

    assignments, _ = leading_to([*outputs.values(), *required], first)
    return StraightLine(
        inputs=names,
        assignments=assignments,
        outputs=outputs,
        required=required,
        backward=backward,
        compiled=_jax().jit,
    )


def _naming(taken: Iterable[str]) -> Callable[[str], str]:
    """Names for values: a word and a number, none of them taken."""
    names, numbers = frozenset(taken), count()

    def fresh(word: str) -> str:
        return next(name for number in numbers if (name := f"{word}.{number}") not in names)

    return fresh


def _constant(array: Any, name: str) -> Assignment:
    return Assignment((name,), (), lambda: array, seconds=0.0)


def _halves(
    assignments: Iterable[Assignment], marks: Iterable[str]
) -> tuple[list[Assignment], list[Assignment]]:
    """What does not depend on the cotangents, and what does; constants are in both."""
    later, constant = set(marks), set[str]()
    first: list[Assignment] = []
    then: list[Assignment] = []
    for assignment in assignments:
        depends = not later.isdisjoint(assignment.arguments)
        if depends:
            later.update(assignment.results)
        else:
            first.append(assignment)
        if constant.issuperset(assignment.arguments):
            constant.update(assignment.results)
            then.append(assignment)
        elif depends:
            then.append(assignment)
    return first, then


def _flat(
    jaxpr: Any, consts: Sequence[Any], inputs: Sequence[_Place], fresh: Callable[[str], str]
) -> tuple[list[Assignment], list[_Place]]:
    """The equations, also those of inner functions, and where the outputs are."""
    literal = _jax().extend.core.Literal
    known: dict[Any, _Place] = dict(zip(jaxpr.constvars, map(_Held, consts), strict=True))
    known |= dict(zip(jaxpr.invars, inputs, strict=True))

    def place(atom: Any) -> _Place:
        return _Held(atom.val) if isinstance(atom, literal) else known[atom]

    found: list[Assignment] = []
    for equation in jaxpr.eqns:
        inner = equation.params.get(BODIES.get(equation.primitive.name, ""))
        if inner is not None:
            given = [place(atom) for atom in equation.invars]
            body, held = getattr(inner, "jaxpr", inner), getattr(inner, "consts", ())
            more, results = _flat(body, held, given, fresh)
            found += more
        else:
            names = [fresh(equation.primitive.name) for _ in equation.outvars]
            found.append(_assignment(jaxpr, equation, known, names))
            results = list(names)
        known.update(zip(equation.outvars, results, strict=True))
    return found, [place(atom) for atom in jaxpr.outvars]


def _assignment(
    jaxpr: Any, equation: Any, known: Mapping[Any, _Place], results: Sequence[str]
) -> Assignment:
    """One equation, as a jaxpr of its own that JAX knows how to call, in every version."""
    core = _jax().extend.core
    _check_pure(equation)
    held: dict[Any, Any] = {}
    named: dict[Any, str] = {}
    for atom in equation.invars:
        if not isinstance(atom, core.Literal):
            match known[atom]:
                case _Held(array):
                    held[atom] = array
                case name:
                    named[atom] = name
    alone = jaxpr.replace(
        constvars=list(held), invars=list(named), outvars=equation.outvars, eqns=[equation]
    )
    call: Compute = core.jaxpr_as_fun(core.ClosedJaxpr(alone, list(held.values())))
    compute = call if len(results) > 1 else lambda *arrays: call(*arrays)[0]
    # What depends on nothing is as good as a literal.
    seconds = None if named else 0.0
    nbytes = [atom.aval.size * atom.aval.dtype.itemsize for atom in equation.outvars]
    return Assignment(results, named.values(), compute, seconds, kind=str(alone), nbytes=nbytes)


def _check_pure(equation: Any) -> None:
    """Raise BadInput for an equation that does more than compute, at any depth."""
    name = equation.primitive.name
    if equation.effects or "callback" in name:
        what = ", ".join(sorted({type(effect).__name__ for effect in equation.effects}))
        raise BadInput(
            f"trace: the step has {name!r}{what and f' with the effect {what}'}: what is computed"
            " again must do nothing but compute; take it out of the step"
        )
    for inner in _jax().extend.core.jaxprs_in_params(equation.params):
        for each in inner.eqns:
            _check_pure(each)
