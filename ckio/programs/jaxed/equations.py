"""Jaxprs: equations as functions, which of them are divided, refused or differentiable."""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np

from ckio.analysis.partitioned.jaxprs import BODIES, jax
from ckio.errors import BadInput

LOOPS: Final = frozenset({"while", "scan"})
OPENED: Final = {name: where for name, where in BODIES.items() if not name.startswith("custom")}
"""Calls of functions without rules of their own, and where the code is; others stay whole."""


def inner(equation: Any) -> list[Any]:
    """The jaxprs, closed or not, in the parameters of an equation."""
    core = jax().extend.core
    values = (it if isinstance(it, tuple | list) else (it,) for it in equation.params.values())
    bodies = core.ClosedJaxpr | core.Jaxpr
    return [each for several in values for each in several if isinstance(each, bodies)]


def opened(jaxpr: Any) -> tuple[Any, Sequence[Any]]:
    """A jaxpr and its constants."""
    return getattr(jaxpr, "jaxpr", jaxpr), getattr(jaxpr, "consts", ())


def has_loop(equation: Any) -> bool:
    """Whether an equation is divided, because there is a loop in what may be taken apart."""
    name = equation.primitive.name
    if name in LOOPS:
        return True
    if name != "cond" and name not in OPENED:
        return False
    return any(has_loop(each) for body in inner(equation) for each in opened(body)[0].eqns)


def compute(jaxpr: Any, equations: Sequence[Any], inputs: Any, outputs: Any) -> Callable[..., Any]:
    """Some equations of a jaxpr as a function of their free variables."""
    core = jax().extend.core
    alone = jaxpr.replace(constvars=[], invars=list(inputs), outvars=list(outputs), eqns=equations)
    call: Callable[..., Any] = core.jaxpr_as_fun(core.ClosedJaxpr(alone, []))
    return call


def check(jaxpr: Any) -> None:
    """Raise BadInput for an equation that does more than compute, at any depth."""
    for equation in jaxpr.eqns:
        for each in inner(equation):  # which names what is at fault, rather than what calls it
            check(opened(each)[0])
        name = equation.primitive.name
        if equation.effects or "callback" in name:
            what = ", ".join(sorted({type(effect).__name__ for effect in equation.effects}))
            raise BadInput(
                f"jax_program: there is {name!r}{what and f' with the effect {what}'} in the"
                " function, parts of which are computed again: it must do nothing but compute;"
                " take it out, or do it between two calls of advance"
            )


def fingerprint(closed: Any) -> str:
    """A digest of a closed jaxpr: its text and the bits of all its numbers, at any depth.

    The adjoints of functions with rules of their own are part of it.
    """
    digest = hashlib.sha256()
    for each in (closed, *_rules(closed.jaxpr)):
        text = each.jaxpr.pretty_print(source_info=False, name_stack=False, use_color=False)
        # Rules are functions, which are shown with their address.
        digest.update(" ".join(re.sub(r" at 0x[0-9a-f]+", "", text).split()).encode())
        for number in _numbers(each):
            array = np.asarray(number)
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            digest.update(array.tobytes())
    return digest.hexdigest()[:32]


def _rules(jaxpr: Any) -> Iterator[Any]:
    """The adjoints of what has rules of its own, as closed jaxprs, at any depth."""
    for equation in jaxpr.eqns:
        if equation.primitive.name.startswith("custom"):
            # One that cannot be traced now cannot be taken back later, and JAX says why then.
            with suppress(Exception):
                yield _rule(jaxpr, equation)
        for each in inner(equation):
            yield from _rules(opened(each)[0])


def _rule(jaxpr: Any, equation: Any) -> Any:
    core, package = jax().extend.core, jax()
    atoms = [atom for atom in equation.invars if not isinstance(atom, core.Literal)]
    atoms = list(dict.fromkeys(atoms))
    results = [v for v in equation.outvars if is_smooth(v.aval) and not isinstance(v, core.DropVar)]
    call = compute(jaxpr, [equation], atoms, results)
    # What it closes over comes first, and has no derivative in a rule.
    closed_over = set(equation.invars[: equation.params.get("num_consts", 0)])
    by = [i for i, atom in enumerate(atoms) if is_smooth(atom.aval) and atom not in closed_over]

    def adjoint(given: list[Any], bars: list[Any]) -> Any:
        def of(*smooth: Any) -> Any:
            now = dict(enumerate(given)) | dict(zip(by, smooth, strict=True))
            return call(*now.values())

        return package.vjp(of, *(given[i] for i in by))[1](bars)

    known = [
        [package.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in vs]
        for vs in (atoms, results)
    ]
    return package.make_jaxpr(adjoint)(*known)


def is_smooth(aval: Any, /) -> bool:
    """Whether numbers of this kind have derivatives."""
    numpy = jax().numpy
    return bool(numpy.issubdtype(aval.dtype, numpy.inexact))


def reached(jaxpr: Any, sources: Sequence[frozenset[str]]) -> list[frozenset[str]]:
    """Return for each output of a jaxpr the names of the inputs by which it has derivatives."""
    literal, nothing = jax().extend.core.Literal, frozenset[str]()
    known = dict(zip(jaxpr.invars, sources, strict=True))

    def of(atom: Any) -> frozenset[str]:
        return nothing if isinstance(atom, literal) else known.get(atom, nothing)

    for equation in jaxpr.eqns:
        given, name = [of(atom) for atom in equation.invars], equation.primitive.name
        if name in OPENED:
            results = reached(opened(equation.params[OPENED[name]])[0], given)
        else:
            either = nothing.union(*given) if name != "stop_gradient" else nothing
            results = [either] * len(equation.outvars)
        for variable, names in zip(equation.outvars, results, strict=True):
            known[variable] = names if is_smooth(variable.aval) else nothing
    return [of(atom) for atom in jaxpr.outvars]


def used_by(jaxpr: Any) -> set[Any]:
    """Return the variables that the outputs of a jaxpr depend on."""
    literal = jax().extend.core.Literal
    used = {atom for atom in jaxpr.outvars if not isinstance(atom, literal)}
    for equation in reversed(jaxpr.eqns):
        if not used.isdisjoint(equation.outvars):
            used |= {atom for atom in equation.invars if not isinstance(atom, literal)}
    return used


def _numbers(body: Any) -> Iterator[Any]:
    literal = jax().extend.core.Literal
    jaxpr, constants = opened(body)
    for constant in constants:
        yield bits(constant)
    for equation in jaxpr.eqns:
        yield from (bits(atom.val) for atom in equation.invars if isinstance(atom, literal))
        for each in inner(equation):
            yield from _numbers(each)
    yield from (bits(atom.val) for atom in jaxpr.outvars if isinstance(atom, literal))


def is_key(aval: Any) -> bool:
    """Whether this is a typed key of a random number generator."""
    dtypes = jax().dtypes
    return bool(dtypes.issubdtype(aval.dtype, dtypes.extended))


def bits(array: Any) -> Any:
    """A key as whole numbers; all else as it is."""
    return jax().random.key_data(array) if is_key(jax().typeof(array)) else array
