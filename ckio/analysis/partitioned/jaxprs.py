"""The equations of a jaxpr as assignments: all that knows what JAX writes into one."""

import importlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

from ckio.analysis.partitioned.program import Assignment, Compute
from ckio.errors import BadInput

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

SAME: Final = frozenset(
    {"convert_element_type", "copy", "copy_p", "name", "optimization_barrier", "reshape"}
)
"""Primitives whose results are their arguments, where these have the same types and shapes."""


class Held(NamedTuple):
    """A literal, which is no value: a number written in the code."""

    array: Any


Place: TypeAlias = str | Held


@cache
def jax() -> Any:
    """The package; raises BadInput where it is not installed."""
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
    """The equations of a jaxpr and of the functions in it, each different one once.

    Attributes
    ----------
    fresh : callable
        From a word to a name that nothing has.
    assignments : list of Assignment
        In order.
    constants : dict of str to array
        Closed-over arrays, each once, and what follows from them alone.
    """

    fresh: Callable[[str], str]
    assignments: list[Assignment] = field(default_factory=list)
    constants: dict[str, Any] = field(default_factory=dict)
    _named: dict[int, str] = field(default_factory=dict)
    _computed: dict[Hashable, list[Place]] = field(default_factory=dict)

    def add(self, jaxpr: Any, consts: Sequence[Any], inputs: Sequence[Place]) -> list[Place]:
        """Add a jaxpr whose inputs are there; returns where its outputs are."""
        literal = jax().extend.core.Literal
        known: dict[Any, Place] = dict(zip(jaxpr.constvars, map(self._held, consts), strict=True))
        known |= dict(zip(jaxpr.invars, inputs, strict=True))

        def place(atom: Any) -> Place:
            return Held(atom.val) if isinstance(atom, literal) else known[atom]

        for equation in jaxpr.eqns:
            given = [place(atom) for atom in equation.invars]
            inner = equation.params.get(BODIES.get(equation.primitive.name, ""))
            if inner is not None:
                body, held = getattr(inner, "jaxpr", inner), getattr(inner, "consts", ())
                results = self.add(body, held, given)
            elif _changes_nothing(equation):
                results = given
            else:
                results = self._one(jaxpr, equation, known, given)
            known.update(zip(equation.outvars, results, strict=True))
        return [place(atom) for atom in jaxpr.outvars]

    def _held(self, array: Any) -> str:
        """The name of a closed-over array, which is kept, so that nothing else gets its id."""
        name = self._named.get(id(array))
        if name is None:
            self._named[id(array)] = name = self.fresh("constant")
            self.constants[name] = array
        return name

    def _is_constant(self, assignment: Assignment) -> bool:
        """Whether it can be computed once for all steps, and takes no more room than it is from."""
        names = assignment.arguments
        if not names or not self.constants.keys() >= set(names):
            return False
        room = sum(int(self.constants[name].nbytes) for name in names)
        return sum(assignment.nbytes or ()) <= room

    def _one(
        self, jaxpr: Any, equation: Any, known: Mapping[Any, Place], given: Sequence[Place]
    ) -> list[Place]:
        _check_pure(equation)
        key = _identity(equation, given)
        if key is not None and key in self._computed:
            return self._computed[key]
        names = [self.fresh(equation.primitive.name) for _ in equation.outvars]
        assignment = _assignment(jaxpr, equation, known, names)
        if self._is_constant(assignment):
            arrays = assignment(self.constants[name] for name in assignment.arguments)
            self.constants.update(zip(names, arrays, strict=True))
        else:
            self.assignments.append(assignment)
        if key is not None:
            self._computed[key] = list(names)
        return list(names)


def _changes_nothing(equation: Any) -> bool:
    """Whether the results are the arguments; types are weak or not, which changes no number."""
    before, after = ([(x.aval.shape, x.aval.dtype) for x in atoms] for atoms in _atoms(equation))
    return equation.primitive.name in SAME and before == after


def _atoms(equation: Any) -> tuple[Sequence[Any], Sequence[Any]]:
    return equation.invars, equation.outvars


def _identity(equation: Any, given: Sequence[Place]) -> Hashable | None:
    """What another equation has to be like to have the same results; None where nobody can tell.

    Functions inside are the same where they are one object.
    """
    arguments = [
        place if isinstance(place, str) else (repr(atom.aval), _bits(place.array))
        for place, atom in zip(given, equation.invars, strict=True)
    ]
    # As numbers 1, 1.0 and True are equal, and 0.0 and -0.0.
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


def _bits(number: Any) -> Hashable:
    array = jax().numpy.asarray(number)
    return str(array.dtype), array.tobytes()


def _assignment(
    jaxpr: Any, equation: Any, known: Mapping[Any, Place], results: Sequence[str]
) -> Assignment:
    """One equation, as a jaxpr of its own that JAX knows how to call, in every version."""
    core = jax().extend.core
    held: dict[Any, Any] = {}
    named: dict[Any, str] = {}
    for atom in equation.invars:
        if not isinstance(atom, core.Literal):
            match known[atom]:
                case Held(array):
                    held[atom] = array
                case name:
                    named[atom] = name
    alone = jaxpr.replace(
        constvars=list(held), invars=list(named), outvars=equation.outvars, eqns=[equation]
    )
    call: Compute = core.jaxpr_as_fun(core.ClosedJaxpr(alone, list(held.values())))
    compute = call if len(results) > 1 else lambda *arrays: call(*arrays)[0]
    nbytes = [atom.aval.size * atom.aval.dtype.itemsize for atom in equation.outvars]
    return Assignment(results, named.values(), compute, kind=str(alone), nbytes=nbytes)


def _check_pure(equation: Any) -> None:
    """Raise BadInput for an equation that does more than compute, at any depth."""
    name = equation.primitive.name
    if equation.effects or "callback" in name:
        what = ", ".join(sorted({type(effect).__name__ for effect in equation.effects}))
        raise BadInput(
            f"trace: the step has {name!r}{what and f' with the effect {what}'}: what is computed"
            " again must do nothing but compute; take it out of the step"
        )
    for inner in jax().extend.core.jaxprs_in_params(equation.params):
        for each in inner.eqns:
            _check_pure(each)
