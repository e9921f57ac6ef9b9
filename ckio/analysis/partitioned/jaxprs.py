"""Convert steps that are written in JAX to straight-line programs.

A step and its adjoint are traced together as one jaxpr. Each equation becomes an assignment, and
the assignments that do not depend on a cotangent are the values of the step.

    >>> from pytest import importorskip
    >>> numpy = importorskip("jax.numpy")
    >>> program = trace(lambda x: {"u": numpy.sin(x["u"]) * x["k"]}, {"u": 1.0, "k": 2.0})
    >>> program.overwritten, [list(each.results) for each in program.assignments]
    (('u',), [['sin.2'], ['cos.3'], ['mul.4']])
    >>> program.required
    ('cos.3', 'k', 'sin.2')
"""

import importlib
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import count
from typing import Any, Final, NamedTuple, TypeAlias

from ckio.analysis.partitioned.program import (
    Assignment,
    Compute,
    StraightLine,
    Values,
    compute_all,
    leading_to,
)
from ckio.errors import BadInput

BODIES: Final = {
    "jit": "jaxpr",
    "closed_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "remat2": "jaxpr",
}
"""Primitives that stand for the code in one of their parameters."""

SAME: Final = frozenset({"convert_element_type", "copy", "name", "optimization_barrier", "reshape"})
"""Primitives whose results are their arguments, if both have the same types and shapes."""

Function: TypeAlias = Callable[[Any], Mapping[str, Any]]
"""A function from the arrays of x_i, by name, to those of x_{i+1}. Omitted arrays are not
overwritten.
"""


class Literal(NamedTuple):
    """A number written in the code. It is not a value."""

    array: Any


Operand: TypeAlias = str | Literal
"""The name of a value, or a literal."""


@cache
def jax() -> Any:
    """Return the package; raise BadInput if it is not installed."""
    try:
        importlib.import_module("jax.extend.core")
        return importlib.import_module("jax")
    except ImportError as error:
        raise BadInput(
            f"tracing a step needs jax, which cannot be imported ({error});"
            " install it: pip install 'ckio[jax]'"
        ) from error


@dataclass(frozen=True)
class Equations:
    """The equations of a jaxpr and of the functions in it; equal ones occur once.

    Attributes
    ----------
    fresh : callable
        A function from a word to a name that is not used yet.
    assignments : list of Assignment
        The assignments, in order.
    constants : dict of str to array
        The arrays in the closure of the step, each once.
    """

    fresh: Callable[[str], str]
    assignments: list[Assignment] = field(default_factory=list)
    constants: dict[str, Any] = field(default_factory=dict)
    _named: dict[int, str] = field(default_factory=dict)
    _computed: dict[Hashable, list[Operand]] = field(default_factory=dict)

    def add(self, jaxpr: Any, consts: Sequence[Any], inputs: Sequence[Operand]) -> list[Operand]:
        """Add a jaxpr with these inputs, and return its outputs."""
        literal = jax().extend.core.Literal
        names = [*map(self._constant, consts), *inputs]
        known = dict(zip((*jaxpr.constvars, *jaxpr.invars), names, strict=True))

        def operand(atom: Any) -> Operand:
            return Literal(atom.val) if isinstance(atom, literal) else known[atom]

        for equation in jaxpr.eqns:
            given = [operand(atom) for atom in equation.invars]
            inner = equation.params.get(BODIES.get(equation.primitive.name, ""))
            if inner is not None:
                body, constants = getattr(inner, "jaxpr", inner), getattr(inner, "consts", ())
                results = self.add(body, constants, given)
            elif _changes_nothing(equation):
                results = given
            else:
                results = self._one(jaxpr, equation, known, given)
            known.update(zip(equation.outvars, results, strict=True))
        return [operand(atom) for atom in jaxpr.outvars]

    def _constant(self, array: Any) -> str:
        """Return the name of an array in the closure, and store the array, so that its id stays
        unique.
        """
        name = self._named.get(id(array))
        if name is None:
            self._named[id(array)] = name = self.fresh("constant")
            self.constants[name] = array
        return name

    def _one(
        self, jaxpr: Any, equation: Any, known: Mapping[Any, Operand], given: Sequence[Operand]
    ) -> list[Operand]:
        key = _identity(equation, given)
        if key is not None and key in self._computed:
            return self._computed[key]
        names = [self.fresh(equation.primitive.name) for _ in equation.outvars]
        self.assignments.append(_assignment(jaxpr, equation, known, names))
        if key is not None:
            self._computed[key] = list(names)
        return list(names)


def _changes_nothing(equation: Any) -> bool:
    """Return whether the results are the arguments. Weak types do not matter."""
    sides = (equation.invars, equation.outvars)
    before, after = ([(x.aval.shape, x.aval.dtype) for x in atoms] for atoms in sides)
    return equation.primitive.name in SAME and before == after


def _identity(equation: Any, given: Sequence[Operand]) -> Hashable | None:
    """Return a key that equations with the same results share, or None if this cannot be decided.

    Functions in the equation are equal if they are the same object.
    """

    def bits(number: Any) -> Hashable:
        array = jax().numpy.asarray(number)
        return str(array.dtype), array.tobytes()

    arguments = [
        each if isinstance(each, str) else (repr(atom.aval), bits(each.array))
        for each, atom in zip(given, equation.invars, strict=True)
    ]
    # The type and the text are needed, because 1 == 1.0 == True, and 0.0 == -0.0.
    params = [
        (name, type(it), it, repr(it)) if isinstance(it, float) else (name, type(it), it)
        for name, it in sorted(equation.params.items())
    ]
    key = (equation.primitive, *arguments, *params)
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _assignment(
    jaxpr: Any, equation: Any, known: Mapping[Any, Operand], results: Sequence[str]
) -> Assignment:
    """Return one equation as a separate jaxpr that can be called."""
    core = jax().extend.core
    literals: dict[Any, Any] = {}
    named: dict[Any, str] = {}
    for atom in equation.invars:
        if not isinstance(atom, core.Literal):
            match known[atom]:
                case Literal(array):
                    literals[atom] = array
                case name:
                    named[atom] = name
    alone = jaxpr.replace(
        constvars=list(literals), invars=list(named), outvars=equation.outvars, eqns=[equation]
    )
    call: Compute = core.jaxpr_as_fun(core.ClosedJaxpr(alone, list(literals.values())))
    compute = call if len(results) > 1 else lambda *arrays: call(*arrays)[0]
    nbytes = [atom.aval.size * atom.aval.dtype.itemsize for atom in equation.outvars]
    return Assignment(results, tuple(named.values()), compute, kind=str(alone), nbytes=nbytes)


def check_pure(where: str, jaxpr: Any, /) -> None:
    """Raise BadInput for an equation with an effect or a callback, at any depth."""
    for equation in jaxpr.eqns:
        for each in jax().extend.core.jaxprs_in_params(equation.params):
            check_pure(where, each)  # first, so that the message names the innermost equation
        name = equation.primitive.name
        if equation.effects or "callback" in name:
            what = ", ".join(sorted({type(effect).__name__ for effect in equation.effects}))
            raise BadInput(
                f"{where} {name!r}{what and f' with the effect {what}'}; it must do"
                " nothing but compute, because parts of it are computed again: remove it"
            )


def trace(step: Function, state: Values, /) -> StraightLine:
    """Trace a step and its adjoint with JAX, on a state with these shapes and types.

    The values are the results of single primitives, also inside `jit`, `jax.checkpoint` and
    functions with derivative rules of their own. A `scan`, a `while` or a `cond` is one assignment.
    A value that is computed twice from the same arguments is one value. Arrays in the closure of
    the step are constants: they are never on a tape, and are copied at most once. Only real and
    complex arrays have cotangents, and integers have none.

    Parameters
    ----------
    step : callable
        A function from x_i to x_{i+1}, as dicts of arrays. An array that it returns unchanged, or
        does not return, is not overwritten.
    state : mapping of str to array
        Only its shapes and types matter.

    Raises
    ------
    BadInput
        If JAX is not installed, if a state is not a dict of arrays, if the step changes shapes or
        types, if it has callbacks or other side effects, or if it has no adjoint, for example
        because of a `while_loop`.
    """
    before = _checked(state)
    inexact = jax().numpy.inexact  # numpy does not know all types of JAX
    smooth = [name for name, x in before.items() if jax().numpy.issubdtype(x.dtype, inexact)]

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
        jax().make_jaxpr(step)(before)  # if the step itself is wrong, this raises its own error
        sentence = str(error).strip().partition("\n")[0] or type(error).__name__
        raise BadInput(f"trace: JAX has no adjoint of this step: {sentence}") from error
    check_pure("trace: the step has", closed.jaxpr)
    return _program(closed, tuple(before), tuple(smooth))


def _checked(state: object) -> dict[str, Any]:
    """Return the arrays of a state, in the order in which JAX takes them."""
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


def _after(step: Function, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return all of x_{i+1}, which must have the types and shapes of x_i."""
    new: object = step(dict(state))
    if not isinstance(new, Mapping):
        raise BadInput(f"trace: a step must return a dict of arrays, not {type(new).__name__}")
    arrays = {name: _array(f"{name!r} of the step", value) for name, value in new.items()}
    for name, array in arrays.items():
        if name not in state:
            raise BadInput(f"trace: the step returns {name!r}, which the state does not have")
        old = state[name]
        if (array.shape, array.dtype) != (old.shape, old.dtype):
            raise BadInput(
                f"trace: the step makes {name!r} {array.dtype}{list(array.shape)} from"
                f" {old.dtype}{list(old.shape)}; an array must keep its type and shape"
            )
    return {**state, **arrays}


def _program(closed: Any, names: tuple[str, ...], smooth: tuple[str, ...]) -> StraightLine:
    """Return the program of a jaxpr (x_i, cotangent of x_{i+1}) -> (x_{i+1}, cotangent of x_i)."""
    fresh = _naming(names)
    marks = {name: fresh("cotangent") for name in smooth}
    equations = Equations(fresh)
    results = equations.add(closed.jaxpr, closed.consts, [*names, *marks.values()])
    after, gradient = results[: len(names)], dict(zip(smooth, results[len(names) :], strict=True))

    first, then = _halves(equations, marks.values())
    outputs = dict.fromkeys(names, "")
    for name, result in zip(names, after, strict=True):
        if isinstance(result, Literal):
            first.append(_number(result.array, fresh("constant")))
            outputs[name] = first[-1].results[0]
        else:
            outputs[name] = result

    wanted = [result for result in gradient.values() if isinstance(result, str)]
    adjoint, read = leading_to(wanted, then)
    required = sorted(read - set(marks.values()))

    def backward(values: Values, cotangent: Values) -> dict[str, Any]:
        given = {mark: cotangent[name] for name, mark in marks.items()}
        known = compute_all(adjoint, {**values, **given})
        return {
            name: result.array if isinstance(result, Literal) else known[result]
            for name, result in gradient.items()
        }

    assignments, start = leading_to([*outputs.values(), *required], first)
    return StraightLine(
        inputs=names,
        assignments=assignments,
        outputs=outputs,
        required=required,
        backward=backward,
        constants={
            name: _strong(array)
            for name, array in equations.constants.items()
            if name in start or name in read
        },
        compiled=_compiled,
    )


def _compiled(function: Compute) -> Compute:
    """Return a function compiled by JAX, which gets its own copies of arrays.

    JAX reads NumPy's arrays in the background without a copy, and may return results in their
    memory. The program could therefore change them too early. A Python number would be compiled
    twice.
    """
    fast = jax().jit(function)
    return lambda *given: fast(*jax().tree.map(_strong, given))


def _strong(value: Any) -> Any:
    """Return an array of JAX that shares no memory with one of NumPy, and has no weak type."""
    numpy = jax().numpy
    if isinstance(value, jax().Array):
        return numpy.asarray(value, dtype=value.dtype) if value.aval.weak_type else value
    return numpy.array(value, dtype=numpy.result_type(value))


def _number(array: Any, name: str) -> Assignment:
    return Assignment((name,), (), lambda: array, seconds=0.0)


def _naming(taken: Iterable[str]) -> Callable[[str], str]:
    """Return a function that makes new names: a word and a number."""
    names, numbers = frozenset(taken), count()

    def fresh(word: str) -> str:
        return next(name for number in numbers if (name := f"{word}.{number}") not in names)

    return fresh


def _halves(
    equations: Equations, marks: Iterable[str]
) -> tuple[list[Assignment], list[Assignment]]:
    """Return the assignments that do not depend on the cotangents, and those that do.

    An assignment that depends on nothing is in both. It is treated like a literal: it takes no
    time, so that it is on no tape.
    """
    later, constant = set(marks), set(equations.constants)
    first: list[Assignment] = []
    then: list[Assignment] = []
    for each in equations.assignments:
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
