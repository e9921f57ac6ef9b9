"""The ufuncs, functions and methods of numpy for traced values, and writes into arrays.

numpy itself performs a write. The cotangent of the changed part of the array becomes the cotangent
of the value that was written.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ckio.errors import BadInput
from ckio.programs.tape.operations import (
    OPERATIONS,
    Operation,
    basic,
    call,
    common_tape,
    constant,
    fixed_index,
    leaves_of,
    operation,
    plain,
    same,
    single,
    target_of,
    traced,
    unary,
    viewing_index,
    with_named_out,
)
from ckio.programs.tape.rules import name_of, refusal
from ckio.programs.tape.tape import Value
from ckio.programs.tape.ufuncs import CONSTANT, PULLS

_PLAIN = frozenset((
    np.shape, np.ndim, np.size, np.argmax, np.argmin, np.argsort, np.nonzero, np.flatnonzero,
    np.argwhere, np.count_nonzero, np.searchsorted, np.digitize, np.isclose, np.allclose,
    np.array_equal, np.array_equiv, np.any, np.all, np.isreal, np.iscomplex, np.isrealobj,
    np.iscomplexobj, np.isposinf, np.isneginf, np.may_share_memory, np.shares_memory,
    np.result_type, np.can_cast, np.min_scalar_type, np.common_type, np.array_repr, np.array_str,
    np.array2string, np.lexsort, np.isin, np.linalg.matrix_rank, np.nanargmax, np.nanargmin,
    np.argpartition,
))  # fmt: skip
"""Functions whose results are plain, because they are indices, shapes or truth values."""

_CONSTANT = frozenset((
    np.zeros_like, np.ones_like, np.empty_like, np.full_like, np.round, np.around, np.fix,
))  # fmt: skip
"""Functions whose results have no derivative, but can be written into."""

_INTO = frozenset((np.put_along_axis, np.put, np.place, np.putmask, np.fill_diagonal))
"""Functions that write into their arguments."""


def ufunc(function: np.ufunc, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Perform a ufunc or one of its methods. The arguments are those of `__array_ufunc__`."""
    out = kwargs.pop("out", (None,))
    if method == "__call__" and kwargs.get("where", True) is not True:
        operands = "u[mask], v[mask]" if function.nin > 1 else "u[mask]"
        name = f"np.{function.__name__}"
        raise refusal(f"{name} with where=", f"write w[mask] = {name}({operands})")
    if method == "__call__" and all(it is None for it in out):
        return _call_new(function, inputs, kwargs)
    if method == "__call__" and function.nout > 1:
        raise refusal(f"np.{function.__name__} with out=", "write by an index, u[k] = v")
    if method == "__call__":
        return _call_into(function, inputs, out[0], kwargs)
    if method == "at":
        return _at_entries(function, *inputs)
    raise refusal(f"np.{function.__name__}.{method}")


def _call_new(function: np.ufunc, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Perform a ufunc that returns a new value.

    For a number c of numpy, `c ** x` calls np.power, whose values may differ from those of `**`.
    """
    if function not in PULLS and function not in CONSTANT:
        return call(function, function, inputs, kwargs)
    number = type(inputs[0]) is np.float64 and not isinstance(inputs[1], np.ndarray)
    if number and function is np.power and not kwargs:
        return _power(*inputs)
    if not kwargs:
        return OPERATIONS[function](*inputs)
    return operation(partial(function, **plain(kwargs)), function)(*inputs)


_power = operation(operator.pow, np.power)


def _call_into(
    function: np.ufunc, inputs: tuple[Any, ...], out: Any, kwargs: dict[str, Any]
) -> Any:
    if function in CONSTANT and not traced(out) and out.dtype.kind not in "fc":
        return function(*plain(inputs), out=out, **plain(kwargs))
    new = any(map(traced, inputs))
    result = _call_new(function, inputs, kwargs) if new else function(*inputs, **plain(kwargs))
    return _write(target_of(out), result)


def function(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Perform a function of numpy. The arguments are those of `__array_function__`."""
    args, kwargs = with_named_out(function, args, kwargs)
    if function in _PLAIN and not traced(kwargs.get("out")):
        return function(*plain(args), **plain(kwargs))
    if function is np.copyto:
        return _copyto(*args, **kwargs)
    if function in _INTO:
        raise refusal(name_of(function), "write by an index, u[k] = v")
    if function in _CONSTANT or function in _PLAIN:
        if kwargs.get("out") is not None:
            raise refusal(f"{name_of(function)} with out=", "write by an index, u[k] = v")
        if function is np.full_like:
            return _full_like(*args, **kwargs)
        like = next(leaves_of((args, kwargs)))
        return constant(function(*plain(args), **plain(kwargs)), like.tape)
    return call(function, function, args, kwargs)


def _full_like(a: Any, fill_value: Any, *args: Any, **kwargs: Any) -> Any:
    """Perform np.full_like."""
    single(fill_value)
    like = fill_value if traced(fill_value) else a
    filled = constant(np.full_like(plain(a), plain(fill_value), *args, **kwargs), like.tape)
    if traced(filled) and traced(fill_value):
        filled[...] = fill_value
    return filled


# Writes


def inplace(perform: Callable[..., Any], otherwise: Operation, key: np.ufunc) -> Operation:
    """Return an operator in place. It changes an array, and returns a new number for a number.

    After an addition, the derivative of the values before remains. Any other result is written.
    """
    sign = 1 if key is np.add else -1 if key is np.subtract else 0

    def operation(x: Any, y: Any) -> Any:
        cell, tape = x.cell, x.tape
        if cell is None:
            return otherwise(x, y)
        if not sign or x.place is None:
            return _write(x, otherwise(x, y))
        other = None
        if isinstance(y, Value):
            other = y.place
            if y.tape is not tape:
                common_tape((x, y))
        tape.own(cell)
        perform(x.value, y.value if isinstance(y, Value) else y)
        if other is not None:
            tape.record(tape.written(x, add=sign), same, (), other)
        return x

    return operation


def setitem(x: Any, index: Any, value: Any) -> None:
    """Write into a part of an array."""
    cell, tape = x.cell, x.tape
    if cell is None:
        x.value[plain(index)] = plain(value)  # raises the error of numpy or Python
        return
    simple = basic(index)
    if not simple:
        index = plain(index)
        simple = basic(index)
    place, safe, part = None, None, x
    if simple:
        part = tape.viewing(cell, x.value[viewing_index(index)])
    else:
        safe = fixed_index(tape, index)
    if isinstance(value, Value):
        if value.tape is not tape:
            common_tape((x, value))
        if simple and value.cell is cell and value.memory_view is part.memory_view:
            return
        place = value.place
    if place is not None or cell.slot is not None:
        part.memory_view  # noqa: B018, computed now because the memory may move
    tape.own(cell)
    x.value[index] = value.value if isinstance(value, Value) else value
    _written(part, place, index=safe)


def _write(x: Any, value: Any) -> Any:
    """Write into a whole array, and return it."""
    place = _place_of(value)
    if place is not None:
        common_tape((x, value))
    x.tape.own(x.cell)
    x.value[...] = plain(value)
    _written(x, place)
    return x


def _at_entries(function: np.ufunc, x: Any, index: Any, value: Any = None) -> None:
    """Perform np.add.at or np.subtract.at, in which an entry may occur several times."""
    if function not in (np.add, np.subtract):
        raise refusal(f"np.{function.__name__}.at")
    tape = target_of(x).tape
    index = fixed_index(tape, plain(index))
    place = _place_of(value)
    tape.own(x.cell)
    function.at(x.value, index, plain(value))
    if place is not None:
        sign = 1 if function is np.add else -1
        tape.record(tape.written(x, index, sign), same, (), place)


def _copyto(dst: Any, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    """Perform np.copyto. numpy has checked the casting in the run without a tape."""
    value = single(src)
    _write(target_of(dst), value if where is True else np.where(plain(where), value, dst))


def _place_of(value: Any) -> Any:
    return value.place if traced(single(value)) else None


def _written(part: Any, place: Any, index: Any = None) -> None:
    """Record that entries were copied from `place`, or that they have plain values now."""
    if place is not None:
        part.tape.record(part.tape.written(part, index), same, (), place)
    elif part.cell.slot is not None:
        part.tape.record(part.tape.written(part, index), lambda _: (), (), ())


# Attributes and methods of arrays

_FACTS = frozenset((
    *("shape", "dtype", "ndim", "size", "nbytes", "itemsize", "strides", "is_integer"),
    *("argmax", "argmin", "argsort", "any", "all", "nonzero", "searchsorted"),
))  # fmt: skip
"""Attributes that are those of the plain value."""

_METHODS: dict[str, Any] = {
    name: getattr(np, name)
    for name in (
        *("sum", "mean", "max", "min", "prod", "cumsum", "cumprod", "std", "var", "clip", "dot"),
        *("reshape", "ravel", "transpose", "swapaxes", "squeeze", "take", "repeat", "diagonal"),
        *("trace", "copy", "compress"),
    )
} | {"flatten": np.ravel, "conj": np.conj, "conjugate": np.conj, "round": np.round}

_VIEWS = {"T": np.transpose, "mT": np.matrix_transpose, "real": np.real, "imag": np.imag}


def attribute(x: Any, name: str) -> Any:
    """Return the attribute of the plain value with this name, with its derivative."""
    value = x.value
    if name in _FACTS or name.startswith("__"):
        if name.startswith("__array_") or name in ("__buffer__", "__reduce__"):
            raise AttributeError(name)
        return getattr(value, name)
    getattr(value, name)  # raises the same error as without a tape
    if name in _VIEWS:
        return call(operator.attrgetter(name), _VIEWS[name], (x,), {})
    if name in _METHODS:
        return partial(_method, name, x)
    if name in _OTHERS:
        return partial(_OTHERS[name], x)
    if name in ("item", "tolist"):
        return partial(_item, name)
    raise refusal(f"{type(value).__name__}.{name}")


def _method(name: str, x: Any, *args: Any, **kwargs: Any) -> Any:
    key = _METHODS[name]
    (_, *args), kwargs = with_named_out(key, (x, *args), kwargs)  # type: ignore[assignment]
    if key is np.conj:
        if args or kwargs:
            raise refusal(f"ndarray.{name} with out=", "use np.conj(u, out=w)")
        if not np.iscomplexobj(x.value):
            return x if x.cell is None else x[...]  # in the same memory, like numpy
        return unary(operator.methodcaller(name), np.conjugate)(x)
    if key is np.round:
        if kwargs.get("out") is not None:
            raise refusal(f"ndarray.{name} with out=", "write by an index, u[k] = v")
        return constant(getattr(x.value, name)(*args, **kwargs), x.tape)

    def perform(plain: Any, *rest: Any, **named: Any) -> Any:
        return getattr(plain, name)(*rest, **named)

    return call(perform, key, (x, *args), kwargs)


def _astype(x: Any, *args: Any, **kwargs: Any) -> Any:
    return call(operator.methodcaller("astype", *args, **kwargs), np.copy, (x,), {})


def _fill(x: Any, value: Any) -> None:
    x[...] = value


def _sort(x: Any, axis: int = -1, kind: Any = None) -> None:
    x[...] = np.sort(x, axis=axis, kind=kind)


def _view(x: Any, *args: Any, **kwargs: Any) -> Any:
    if args or kwargs:
        raise BadInput(
            "a view of a traced array as another dtype would lose the derivative; use astype, or"
            " stop_gradient(x)"
        )
    return x if x.cell is None else x[...]


_OTHERS: dict[str, Callable[..., Any]] = {
    "astype": _astype, "fill": _fill, "sort": _sort, "view": _view,
}  # fmt: skip


def _item(name: str, *args: Any) -> Any:
    raise BadInput(
        f".{name}() would lose the derivative of a traced value; index it, u[k], or use "
        "stop_gradient(x) if it must have none"
    )
