"""Kernels with an adjoint written by hand, and values without a derivative."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from ckio.errors import BadInput
from ckio.programs.tape import apply
from ckio.programs.tape.arguments import common_tape, differentiable, leaves_of, plain, traced

F = TypeVar("F", bound=Callable[..., Any])


def stop_gradient(x: Any, /) -> Any:
    """The value of x without its derivative; arrays are copied, also where nothing is taped."""
    value = plain(x)
    return value.copy() if isinstance(value, np.ndarray) else value


def primitive(*, vjp: Callable[..., Callable[..., Any]]) -> Callable[[F], F]:
    """Give a function of arrays, which may be anything inside, its adjoint.

    Parameters
    ----------
    vjp : vjp(result, *args, **kwargs) -> pullback
        `pullback(cotangent)` returns one cotangent for each positional argument, None for none
        (one argument: a tuple of one, or the cotangent itself). Where the function returns a
        tuple, `cotangent` is a tuple.

    Returns
    -------
    decorator
        The function becomes one that also takes traced values as positional arguments; called on
        plain ones it is as it was. It must not write into its arguments.

    Raises
    ------
    BadInput
        By calls with traced keyword arguments; on the way back where cotangents do not fit.

    Examples
    --------
    >>> @primitive(vjp=lambda result, x: lambda g: (3 * g,))
    ... def thrice(x):
    ...     return x + x + x
    >>> thrice(2.0)
    6.0
    """

    def decorate(function: F) -> F:
        @wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            if not any(traced(it) for it in args):
                if any(True for _ in leaves_of((args, kwargs))):
                    raise BadInput(_nested(function))
                return function(*args, **kwargs)
            return _call(function, vjp, args, kwargs)

        return called  # type: ignore[return-value]

    return decorate


def _nested(function: Any) -> str:
    return (
        f"{function.__name__} takes traced values as positional arguments only, "
        "not by keyword nor in lists, tuples and dicts"
    )


def _call(function: Any, vjp: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    operands = [it for it in args if traced(it)]
    if sum(1 for _ in leaves_of((args, kwargs))) != len(operands):
        raise BadInput(_nested(function))
    tape = common_tape(operands)
    values = [it.value if traced(it) else tape.safe(it) for it in args]
    wanted = [i for i, it in enumerate(args) if traced(it) and it.place is not None]
    tape.keep([it.value for it in operands])
    result = function(*values, **kwargs)
    several = isinstance(result, tuple)
    results = [_own(it, values) for it in (result if several else (result,))]
    if not wanted or not any(differentiable(it) for it in results):
        return apply.constant(type(result)(results) if several else results[0], tape)
    made = [apply.new(tape, it) if differentiable(it) else it for it in results]
    shapes = [(np.shape(it), np.asarray(it).dtype) for it in results]
    again = tuple(results) if several else results[0]
    pull = _Pull(function.__name__, vjp, kwargs, several=several, wanted=wanted, shapes=shapes)
    out = tuple(it.place for it in made if traced(it))
    pull.derived = [i for i, it in enumerate(made) if traced(it)]
    tape.record(out, pull, (again, values), tuple(args[i].place for i in wanted))
    if not several:
        return made[0]
    return type(result)(*made) if hasattr(result, "_fields") else tuple(made)


def _own(result: Any, values: list[Any]) -> Any:
    """A result in memory of its own."""
    if isinstance(result, np.ndarray) and any(
        isinstance(it, np.ndarray) and np.may_share_memory(result, it) for it in values
    ):
        return result.copy()
    return result


class _Pull:
    """What takes cotangents through a kernel."""

    __slots__ = ("derived", "kwargs", "name", "several", "shapes", "vjp", "wanted")

    def __init__(
        self, name: str, vjp: Any, kwargs: Any, *, several: bool, wanted: list[int], shapes: Any
    ) -> None:
        self.name = name
        self.vjp = vjp
        self.kwargs = kwargs
        self.several = several
        self.wanted = wanted
        self.shapes = shapes
        self.derived: list[int] = []

    def __call__(self, given: list[Any], result: Any, values: list[Any]) -> tuple[Any, ...]:
        full: list[Any] = [np.zeros(shape, dtype)[()] for shape, dtype in self.shapes]
        for i, g in zip(self.derived, given, strict=True):
            full[i] = full[i] if g is None else g
        pullback = self.vjp(result, *values, **self.kwargs)
        found = pullback(tuple(full) if self.several else full[0])
        if len(values) == 1 and not isinstance(found, tuple | list):
            found = (found,)
        if not isinstance(found, tuple | list) or len(found) != len(values):
            raise BadInput(
                f"the pullback of {self.name} must return one cotangent for each of its "
                f"{len(values)} arguments, or None"
            )
        for i in self.wanted:
            if found[i] is not None and np.shape(found[i]) != np.shape(values[i]):
                raise BadInput(
                    f"the pullback of {self.name} returned a cotangent of shape "
                    f"{np.shape(found[i])} for argument {i}, of shape {np.shape(values[i])}"
                )
        return tuple(found[i] for i in self.wanted)
