"""`Traced` values, whose operations a tape records, and functions with their own adjoints.

`build` makes arrays from traced numbers, `primitive` gives a function an adjoint of the user's, and
`stop_gradient` removes a derivative.
"""

import math
import operator
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, NoReturn, TypeVar

import numpy as np

from ckio.errors import BadInput
from ckio.programs.tape import dispatch, operations
from ckio.programs.tape.cells import conjugate
from ckio.programs.tape.operations import common_tape, differentiable, leaves_of, plain, traced
from ckio.programs.tape.rules import refusal
from ckio.programs.tape.tape import Tape, Value

F = TypeVar("F", bound=Callable[..., Any])


class Traced(Value):
    """A number or an array on a tape, with a slot for its cotangent.

    Every operation is computed on the plain values, exactly as without a tape. Arrays that share
    memory share a `cell`. Results without a derivative (comparisons, integers, shapes) are plain.

    Attributes
    ----------
    value : the plain number or array; an array must not be changed
    """

    __slots__ = ()

    @property  # type: ignore[misc]  # so that isinstance returns the same as without a tape
    def __class__(self) -> Any:
        return type(self.held)

    # Methods that numpy and Python call.

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method == "__call__" and not kwargs and ufunc is not np.power:
            known = operations.OPERATIONS.get(ufunc)
            if known is not None:
                return known(*inputs)
        return dispatch.ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return dispatch.function(function, args, kwargs)

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise BadInput(
            "a traced value would lose its derivative as a plain array; build arrays by np.stack, "
            "or write into an array that np.zeros_like(u) or a @program created, "
            "or use stop_gradient(x)"
        )

    def __index__(self) -> NoReturn:
        if type(self.held) in (float, complex) or isinstance(self.held, np.inexact):
            raise TypeError(f"{type(self.held).__name__!r} cannot be interpreted as an integer")
        raise _loses("an index", "index by a plain integer")

    def __repr__(self) -> str:
        return f"Traced({self.value!r})"

    def __format__(self, spec: str) -> str:
        return format(self.value, spec)

    def __round__(self, digits: int | None = None) -> Any:
        return operations.constant(round(self.value, digits), self.tape)

    def __contains__(self, item: Any) -> bool:
        return plain(item) in self.value

    # Parts and attributes.

    def __getitem__(self, index: Any) -> Any:
        return operations.getitem(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        dispatch.setitem(self, index, value)

    def __iter__(self) -> Iterator[Any]:
        iter(self.value)  # raises if the plain value cannot be iterated over
        return (self[i] for i in range(len(self.value)))

    def __copy__(self) -> Any:
        return dispatch.function(np.copy, (self,), {}) if self.cell is not None else self

    def __deepcopy__(self, memo: Any) -> Any:
        return self.__copy__()

    def __getattr__(self, name: str) -> Any:
        return dispatch.attribute(self, name)

    @property
    def real(self) -> Any:
        """The real part. That of an array is in the same memory."""
        return dispatch.attribute(self, "real")

    @real.setter
    def real(self, value: Any) -> None:
        self.real[...] = value

    @property
    def imag(self) -> Any:
        """The imaginary part. That of an array is in the same memory."""
        return dispatch.attribute(self, "imag")

    @imag.setter
    def imag(self, value: Any) -> None:
        self.imag[...] = value

    def __divmod__(self, other: Any) -> NoReturn:
        raise refusal("np.divmod")

    __rdivmod__ = __divmod__

    def __matmul__(self, other: Any) -> Any:
        return operations.call(operator.matmul, np.matmul, (self, other), {})

    def __rmatmul__(self, other: Any) -> Any:
        return operations.call(operator.matmul, np.matmul, (other, self), {})

    def __imatmul__(self, other: Any) -> Any:
        self[...] = self @ other
        return self


def _loses(how: str, instead: str) -> BadInput:
    return BadInput(f"{how} would lose the derivative of a traced value; {instead}, "
                    "or use stop_gradient(x) if it must have none")  # fmt: skip


def _losing(how: str, instead: str) -> Callable[..., NoReturn]:
    def method(self: Any, *args: Any) -> NoReturn:
        raise _loses(how, instead)

    return method


_LOSING = {
    "float": ("float() or a function of math", "use the function of numpy"),
    "complex": ("complex() or a function of cmath", "use the function of numpy"),
    "int": ("int()", "use np.floor"),
    "reduce_ex": ("pickling", "store plain values"),
}
_PLAIN: dict[str, Callable[[Any], Any]] = {
    "bool": bool, "len": len, "hash": hash, "str": str,
    "floor": math.floor, "ceil": math.ceil, "trunc": math.trunc,
}  # fmt: skip
_UNARY: dict[str, np.ufunc] = {"neg": np.negative, "pos": np.positive, "abs": np.absolute}
_ARITHMETIC = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.divide, "pow": np.power,
    "mod": np.remainder, "floordiv": np.floor_divide,
}  # fmt: skip
_COMPARED = {
    "lt": np.less, "le": np.less_equal, "eq": np.equal, "ne": np.not_equal, "gt": np.greater,
    "ge": np.greater_equal,
}  # fmt: skip


def _reflected(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda self, other: operation(other, self)


def _of_value(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda self: function(self.value)


for _name, _losses in _LOSING.items():
    setattr(Traced, f"__{_name}__", _losing(*_losses))
for _name, _function in _PLAIN.items():
    setattr(Traced, f"__{_name}__", _of_value(_function))
for _name, _ufunc in _UNARY.items():
    setattr(Traced, f"__{_name}__", operations.unary(getattr(operator, _name), _ufunc))
for _name, _ufunc in (_ARITHMETIC | _COMPARED).items():
    _operation = operations.binary(getattr(operator, _name), _ufunc)
    setattr(Traced, f"__{_name}__", _operation)
    if _name in _ARITHMETIC:
        _inplace = dispatch.inplace(getattr(operator, "i" + _name), _operation, _ufunc)
        setattr(Traced, f"__r{_name}__", _reflected(_operation))
        setattr(Traced, f"__i{_name}__", _inplace)

Tape.kind = Traced


def build(lift: Callable[[Any], Any], function: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Call a function that may build an array from traced values, which NumPy itself cannot do.

    The function builds an array of the plain values, and the traced values are then written into
    it. Any other call is performed without a change.
    """
    place: tuple[Any, ...]
    if function is np.full and len(args) > 1 and type(args[1]) is Traced:
        place, parts, at = (...,), args[1], 1
    elif args and function in (np.array, np.asarray):
        place, parts, at = (), args[0], 0
    else:
        return function(*args, **kwargs)
    traced_parts = [(place or where, part) for where, part in _parts(parts, ())]
    if not traced_parts:
        return function(*args, **kwargs)
    plain = function(*args[:at], _values(parts), *args[at + 1 :], **kwargs)
    if type(parts) is Traced and plain is parts.value:
        return parts
    built = lift(plain)
    for where, part in traced_parts:
        built[where] = part
    return built


def _parts(parts: Any, place: tuple[int, ...]) -> Iterator[tuple[Any, Traced]]:
    """Yield the index in the array and the value of each traced part."""
    if type(parts) is Traced:
        yield place, parts
    elif isinstance(parts, list | tuple):
        for number, part in enumerate(parts):
            yield from _parts(part, (*place, number))


def _values(parts: Any) -> Any:
    if type(parts) is Traced:
        return parts.value
    return [_values(part) for part in parts] if isinstance(parts, list | tuple) else parts


def stop_gradient(x: Any, /) -> Any:
    """Return the value of x without its derivative. Arrays are copied, also without a tape."""
    value = plain(x)
    return value.copy() if isinstance(value, np.ndarray) else value


def primitive(*, vjp: Callable[..., Callable[..., Any]]) -> Callable[[F], F]:
    """Return a decorator that gives a function of arrays its adjoint.

    The function may compute in any way, for example in Fortran.

    Parameters
    ----------
    vjp : callable
        `vjp(result, *args, **kwargs)` returns a function `pullback`. `pullback(cotangent)` returns
        a tuple with one cotangent for each positional argument, or None for an argument without a
        derivative. For a single argument it may return the cotangent itself. If the function
        returns a tuple, `cotangent` is a tuple. Complex cotangents are those of `Tape`.

    Returns
    -------
    decorator
        The decorated function also accepts traced values as positional arguments. With plain
        arguments it is unchanged. The function must not write into its arguments.

    Raises
    ------
    BadInput
        If a keyword argument is traced, or if a cotangent does not fit its argument.

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
        f"{function.__name__} accepts traced values only as positional arguments, not as keyword "
        "arguments and not in lists, tuples and dicts; pass each as a positional argument"
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
    derived = [i for i, it in enumerate(results) if differentiable(it)]
    if not wanted or not derived:
        return operations.constant(type(result)(results) if several else results[0], tape)
    zeros = [(np.shape(it), np.asarray(it).dtype) for it in results]

    def pull(given: list[Any], result: Any, values: list[Any]) -> tuple[Any, ...]:
        bars: list[Any] = [np.zeros(shape, dtype)[()] for shape, dtype in zeros]
        for i, g in zip(derived, given, strict=True):
            bars[i] = bars[i] if g is None else conjugate(g)
        pullback = vjp(result, *values, **kwargs)
        cotangents = pullback(tuple(bars) if several else bars[0])
        return tuple(conjugate(_check_cotangents(function.__name__, cotangents, values, wanted)))

    plain_results = tuple(results) if several else results[0]
    for i in derived:
        new = tape.result if type(results[i]) is np.ndarray else tape.number
        results[i] = new(results[i], tape.slot())
    out = tuple(results[i].place for i in derived)
    tape.record(out, pull, (plain_results, values), tuple(args[i].place for i in wanted))
    if not several:
        return results[0]
    return type(result)(*results) if hasattr(result, "_fields") else tuple(results)


def _own(result: Any, values: list[Any]) -> Any:
    """Return a result in memory of its own. Copy it if it shares memory with an argument."""
    if isinstance(result, np.ndarray) and any(
        isinstance(it, np.ndarray) and np.may_share_memory(result, it) for it in values
    ):
        return result.copy()
    return result


def _check_cotangents(name: str, bars: Any, values: list[Any], wanted: list[int]) -> list[Any]:
    """Return the cotangents of the arguments `wanted`. Raise BadInput if one does not fit."""
    if len(values) == 1 and not isinstance(bars, tuple | list):
        bars = (bars,)
    if not isinstance(bars, tuple | list) or len(bars) != len(values):
        raise BadInput(
            f"the pullback of {name} must return one cotangent for each of its "
            f"{len(values)} arguments, or None"
        )
    for i in wanted:
        if bars[i] is not None and np.shape(bars[i]) != np.shape(values[i]):
            raise BadInput(
                f"the pullback of {name} returned a cotangent of shape {np.shape(bars[i])} for "
                f"argument {i} of shape {np.shape(values[i])}; it must return the same shape"
            )
    return [bars[i] for i in wanted]
