"""A function of JAX as the program that was traced from it.

A Python function may read an attribute, a global variable or a variable of an outer function, which
may change between two calls. Therefore a compiled program must not be found by the function. It is
found by the operations that JAX traces from the function in each call.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun, subjaxprs

_CUSTOM: Final = ("custom_jvp_call", "custom_vjp_call")
"""Operations with a derivative of their own, which a Python function computes."""


class TracedFunction:
    """A program of JAX, traced from a function when this is created.

    Two of them are equal if they have the same operations and derivatives. They may differ in
    `consts`, so that a function that was compiled with one of them serves the other, too.

    Parameters
    ----------
    function : callable
    *args : pytree of arrays
        Arguments, or their shapes and dtypes.

    Attributes
    ----------
    consts : list of arrays
        What the function reads in addition to its arguments. Arrays of NumPy are copied.
    after : pytree of jax.ShapeDtypeStruct
        Shapes and dtypes of the result.
    has_effects : bool
        Whether the function does more than to compute, for example calls Python.
    """

    def __init__(self, function: Callable[..., Any], /, *args: Any) -> None:
        # A new function, because JAX finds an earlier trace by the function.
        trace = jax.make_jaxpr(partial(function), return_shape=True)
        closed, self.after = trace(*args)
        with jax.ensure_compile_time_eval():
            arrays = (it if isinstance(it, jax.Array) else jnp.array(it) for it in closed.consts)
            self.consts = list(arrays)
        self.has_effects = bool(closed.effects)
        self._jaxpr: Any = closed.jaxpr
        self._operations = _describe(closed.jaxpr)
        if _has_own_derivative(closed.jaxpr):
            self._operations += (self._derivative(),)
        self._hash = hash(self._operations)

    def __call__(self, consts: Sequence[Any], /, *args: Any) -> Any:
        """Return the result, computed with these arrays in place of `consts`."""
        leaves = self._of(consts, jax.tree.leaves(args))
        return jax.tree.unflatten(jax.tree.structure(self.after), leaves)

    def _of(self, consts: Sequence[Any], leaves: Sequence[Any]) -> list[Any]:
        return jaxpr_as_fun(ClosedJaxpr(self._jaxpr, consts))(*leaves)  # type: ignore[no-any-return]

    def _derivative(self) -> Any:
        """Return the operations of the derivative, or a unique object if there is none."""

        def pulled(leaves: list[Any]) -> Any:
            def moved(moving: list[Any]) -> list[Any]:
                moving = list(moving)
                every = [moving.pop(0) if is_smooth(leaf) else leaf for leaf in leaves]
                return [leaf for leaf in self._of(self.consts, every) if is_smooth(leaf)]

            after, pull = jax.vjp(moved, [leaf for leaf in leaves if is_smooth(leaf)])
            return pull(after)

        like: Any = jax.ShapeDtypeStruct
        leaves = [like(var.aval.shape, var.aval.dtype) for var in self._jaxpr.invars]
        try:
            return _describe(jax.make_jaxpr(pulled)(leaves).jaxpr)
        except Exception:  # the function may be called without its derivative
            return object()

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TracedFunction) and self._operations == other._operations


def is_smooth(leaf: Any, /) -> bool:
    """Return whether an array has a cotangent, because its numbers are real or complex."""
    return bool(jnp.issubdtype(leaf.dtype, jnp.inexact))


def _describe(value: Any) -> Any:
    """Return a value that is equal for all traces of the same operations.

    An object without a value of its own is described by its identity. It belongs to the program,
    which lives as long as its description is compared.
    """
    match value:
        case Jaxpr():
            return _operations(value)
        case ClosedJaxpr():
            return _operations(value.jaxpr), _describe(value.consts)
        case dict():
            return tuple((key, _describe(it)) for key, it in value.items())
        case tuple() | list():
            return tuple(map(_describe, value))
        case np.ndarray():
            return value.dtype, value.shape, value.tobytes()
        case _:
            return value if isinstance(value, Hashable) else id(value)


def _operations(jaxpr: Any) -> Any:
    numbers: Any = defaultdict(lambda: len(numbers))

    def known(atom: Any) -> Any:
        if isinstance(atom, Literal):
            return _describe(np.asarray(atom.val)), atom.aval
        return numbers[atom], atom.aval

    def named(atoms: Any) -> Any:
        return tuple(map(known, atoms))

    inputs = named([*jaxpr.constvars, *jaxpr.invars])
    lines = (
        (line.primitive, named(line.invars), named(line.outvars), _describe(_options(line)))
        for line in jaxpr.eqns
    )
    return inputs, tuple(lines), named(jaxpr.outvars)


def _options(line: Any) -> dict[str, Any]:
    """Return the options of an operation without the functions of its derivative."""
    custom = line.primitive.name in _CUSTOM
    return {"call_jaxpr": line.params["call_jaxpr"]} if custom else line.params


def _has_own_derivative(jaxpr: Any) -> bool:
    own = (line.primitive.name in _CUSTOM for line in jaxpr.eqns)
    return any(own) or any(map(_has_own_derivative, subjaxprs(jaxpr)))
