"""Attributes and methods that arrays have, of traced values."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ckio.errors import BadInput
from ckio.programs.tape import apply
from ckio.programs.tape.arguments import refuse, with_named_out

_FACTS = frozenset(
    [
        "shape",
        "dtype",
        "ndim",
        "size",
        "nbytes",
        "itemsize",
        "strides",
        "argmax",
        "argmin",
        "argsort",
        "any",
        "all",
        "nonzero",
        "searchsorted",
        "is_integer",
    ]
)
"""Answered by the plain value."""

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
    """What the plain value has under this name, with its derivative."""
    value = x.value
    if name in _FACTS or name.startswith("__"):
        if name.startswith("__array_") or name in ("__buffer__", "__reduce__"):
            raise AttributeError(name)
        return getattr(value, name)
    getattr(value, name)  # raises what it raises without a tape
    if name in _VIEWS:
        return apply.call(lambda plain: getattr(plain, name), _VIEWS[name], (x,), {})
    if name in _METHODS:
        return partial(_method, name, x)
    known: dict[str, Callable[..., Any]] = {
        "astype": _astype, "fill": _fill, "sort": _sort, "view": _view,
    }  # fmt: skip
    if name in known:
        return partial(known[name], x)
    if name in ("item", "tolist"):
        return partial(_item, x, name)
    return refuse(f"{type(value).__name__}.{name}")


def _method(name: str, x: Any, *args: Any, **kwargs: Any) -> Any:
    key = _METHODS[name]
    (_, *args), kwargs = with_named_out(key, (x, *args), kwargs)  # type: ignore[assignment]
    if key is np.conj:
        if args or kwargs:
            refuse(f"ndarray.{name} with out=", "use np.conj(u, out=w)")
        if not np.iscomplexobj(x.value):
            return x if x.cell is None else x[...]  # the same memory, as numpy has it
        return apply.unary(lambda plain: getattr(plain, name)(), np.conjugate)(x)
    if key is np.round:
        if kwargs.get("out") is not None:
            refuse(f"ndarray.{name} with out=", "write by an index, u[k] = v")
        return apply.constant(getattr(x.value, name)(*args, **kwargs), x.tape)

    def perform(plain: Any, *rest: Any, **named: Any) -> Any:
        return getattr(plain, name)(*rest, **named)

    return apply.call(perform, key, (x, *args), kwargs)


def _astype(x: Any, dtype: Any, *args: Any, **kwargs: Any) -> Any:
    def perform(plain: Any) -> Any:
        return plain.astype(dtype, *args, **kwargs)

    return apply.call(perform, np.copy, (x,), {})


def _fill(x: Any, value: Any) -> None:
    x[...] = value


def _sort(x: Any, axis: int = -1, kind: Any = None) -> None:
    x[...] = np.sort(x, axis=axis, kind=kind)


def _view(x: Any, *args: Any, **kwargs: Any) -> Any:
    if args or kwargs:
        raise BadInput("a view of a traced array as another dtype would lose the derivative")
    return x if x.cell is None else x[...]


def _item(x: Any, name: str, *args: Any) -> Any:
    raise BadInput(
        f".{name}() would lose the derivative of a traced value: index it, u[k], or say "
        "stop_gradient(x) if it is to have none"
    )
