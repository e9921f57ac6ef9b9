"""What numpy hands over: its ufuncs and functions, of arguments of which some are traced."""

import operator
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ckio.errors import BadInput
from ckio.programs.tape.apply import OPERATIONS, call, constant, divided, operation
from ckio.programs.tape.arguments import (
    leaves_of,
    name_of,
    plain,
    refuse,
    single,
    traced,
    with_named_out,
)
from ckio.programs.tape.composed import COMPOSED
from ckio.programs.tape.functions import CONSTANT_FUNCTIONS, PLAIN
from ckio.programs.tape.ufuncs import CONSTANT, PULLS
from ckio.programs.tape.writes import at_entries, copyto, into_array

REDUCTIONS: dict[tuple[Any, str], Any] = {
    (np.add, "reduce"): np.sum, (np.multiply, "reduce"): np.prod,
    (np.maximum, "reduce"): np.max, (np.minimum, "reduce"): np.min,
    (np.add, "accumulate"): np.cumsum, (np.multiply, "accumulate"): np.cumprod,
    (np.maximum, "accumulate"): np.maximum.accumulate,
    (np.minimum, "accumulate"): np.minimum.accumulate,
}  # fmt: skip


def ufunc(function: np.ufunc, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A ufunc, or one of its methods, as numpy hands it over."""
    out = kwargs.pop("out", (None,))
    if method == "__call__" and all(it is None for it in out):
        return _called(function, inputs, kwargs)
    if method == "__call__" and function.nout > 1:
        refuse(f"np.{function.__name__} with out=", "write by an index, u[k] = v")
    if method == "__call__":
        return _called_into(function, inputs, out[0], kwargs)
    if method == "at":
        return at_entries(function, *inputs)
    known = REDUCTIONS.get((function, method))
    if known is None:
        refuse(f"np.{function.__name__}.{method}")
    kwargs = {key: it for key, it in kwargs.items() if key != "dtype" or it is not None}
    axis = kwargs.pop("axis", 0) if len(inputs) < 2 else inputs[1]
    if out[0] is not None:
        kwargs["out"] = out[0]
    return call(getattr(function, method), known, inputs[:1], {"axis": axis} | kwargs)


def _called(function: np.ufunc, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A ufunc that makes something new; `c ** x` comes as np.power, which at 2 is another one."""
    if kwargs.get("where", True) is not True:
        raise BadInput(f"np.{function.__name__} with where= needs out=, of traced values")
    if function is np.divmod and not kwargs:
        return divided(*inputs)
    if function not in PULLS and function not in CONSTANT:
        return call(function, function, inputs, kwargs)
    number = type(inputs[0]) is np.float64 and not isinstance(inputs[1], np.ndarray)
    if number and function is np.power and not kwargs:
        return _power(*inputs)
    if not kwargs:
        return OPERATIONS[function](*inputs)
    return operation(partial(function, **plain(kwargs)), function)(*inputs)


_power = operation(operator.pow, np.power)


def _called_into(
    function: np.ufunc, inputs: tuple[Any, ...], out: Any, kwargs: dict[str, Any]
) -> Any:
    """A ufunc that writes into an array."""
    if function in CONSTANT and not traced(out) and out.dtype.kind not in "fc":
        return function(*plain(inputs), out=out, **plain(kwargs))
    if function not in PULLS and function not in CONSTANT:
        return call(function, function, inputs, kwargs | {"out": out})
    return into_array(function, function, inputs, out, kwargs)


def function(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """A function of numpy, as numpy hands it over."""
    args, kwargs = with_named_out(function, args, kwargs)
    if function in PLAIN and not traced(kwargs.get("out")):
        return function(*plain(args), **plain(kwargs))
    if function is np.copyto:
        return copyto(*args, **kwargs)
    if function in INTO_ARGUMENTS:
        refuse(name_of(function), "write by an index, u[k] = v")
    if function is np.nan_to_num and not (args[1] if len(args) > 1 else kwargs.get("copy", True)):
        refuse("np.nan_to_num with copy=False", "write u[...] = np.nan_to_num(u)")
    if function in CONSTANT_FUNCTIONS or function in PLAIN:
        if kwargs.get("out") is not None:
            refuse(f"{name_of(function)} with out=", "write by an index, u[k] = v")
        if function is np.full_like:
            return _filled(*args, **kwargs)
        like = next(leaves_of((args, kwargs)))[1]
        return constant(function(*plain(args), **plain(kwargs)), like.tape)
    if function in COMPOSED:
        return COMPOSED[function](*args, **kwargs)
    return call(function, function, args, kwargs)


INTO_ARGUMENTS = frozenset((np.put_along_axis, np.put, np.place, np.putmask, np.fill_diagonal))


def _filled(a: Any, fill_value: Any, *args: Any, **kwargs: Any) -> Any:
    """As np.full_like."""
    single(fill_value)
    like = fill_value if traced(fill_value) else a
    made = constant(np.full_like(plain(a), plain(fill_value), *args, **kwargs), like.tape)
    if traced(made) and traced(fill_value):
        made[...] = fill_value
    return made
