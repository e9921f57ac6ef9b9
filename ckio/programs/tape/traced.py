"""`Traced`: a number or an array that is computed as always, while a tape takes notes."""

import operator
from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np

from ckio.errors import BadInput
from ckio.programs.tape import apply, dispatch, methods, writes
from ckio.programs.tape.arguments import plain
from ckio.programs.tape.values import Value


class Traced(Value):
    """A value, and where its cotangent is gathered.

    Every operation is done on the plain values, exactly as without a tape. Arrays that share memory
    share a `cell`. Of what has no derivative (comparisons, integers, shapes) results are plain.

    Attributes
    ----------
    value : the plain number or array; an array is not to be written into
    """

    __slots__ = ()

    @property  # type: ignore[misc]  # so that isinstance goes the same way as without a tape
    def __class__(self) -> Any:
        return type(self.held)

    # What numpy asks for.

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method == "__call__" and not kwargs and ufunc is not np.power:
            known = apply.OPERATIONS.get(ufunc)
            if known is not None:
                return known(*inputs)
        return dispatch.ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return dispatch.function(function, args, kwargs)

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise BadInput(
            "a traced value would lose its derivative as a plain array: use np.stack to build, "
            "write into one made by np.zeros_like(u) or within a @program, "
            "or say stop_gradient(x)"
        )

    # What would lose the derivative.

    def __float__(self) -> NoReturn:
        raise _loses("float() or a function of math", "use the function of numpy")

    def __complex__(self) -> NoReturn:
        raise _loses("complex() or a function of cmath", "use the function of numpy")

    def __int__(self) -> NoReturn:
        raise _loses("int()", "use np.floor")

    def __index__(self) -> NoReturn:
        if type(self.held) in (float, complex) or isinstance(self.held, np.inexact):
            raise TypeError(f"{type(self.held).__name__!r} cannot be interpreted as an integer")
        raise _loses("an index", "index by a plain integer")

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise _loses("pickling", "store plain values")

    # What is plain.

    def __bool__(self) -> bool:
        return bool(self.value)

    def __len__(self) -> int:
        return len(self.value)

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return f"Traced({self.value!r})"

    def __str__(self) -> str:
        return str(self.value)

    def __format__(self, spec: str) -> str:
        return format(self.value, spec)

    def __round__(self, digits: int | None = None) -> Any:
        return apply.constant(round(self.value, digits), self.tape)

    def __floor__(self) -> Any:
        return self.value.__floor__()

    def __ceil__(self) -> Any:
        return self.value.__ceil__()

    def __trunc__(self) -> Any:
        return self.value.__trunc__()

    def __contains__(self, item: Any) -> bool:
        return plain(item) in self.value

    # Parts and attributes.

    def __getitem__(self, index: Any) -> Any:
        return apply.getitem(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        writes.setitem(self, index, value)

    def __iter__(self) -> Iterator[Any]:
        iter(self.value)  # raises where the plain value cannot be iterated over
        return (self[i] for i in range(len(self.value)))

    def __copy__(self) -> Any:
        return dispatch.function(np.copy, (self,), {}) if self.cell is not None else self

    def __deepcopy__(self, memo: Any) -> Any:
        return self.__copy__()

    def __getattr__(self, name: str) -> Any:
        return methods.attribute(self, name)

    @property
    def real(self) -> Any:
        """The real part, of an array in the same memory."""
        return methods.attribute(self, "real")

    @real.setter
    def real(self, value: Any) -> None:
        self.real[...] = value

    @property
    def imag(self) -> Any:
        """The imaginary part, of an array in the same memory."""
        return methods.attribute(self, "imag")

    @imag.setter
    def imag(self, value: Any) -> None:
        self.imag[...] = value

    def __divmod__(self, other: Any) -> Any:
        return apply.divided(self, other)

    def __rdivmod__(self, other: Any) -> Any:
        return apply.divided(other, self)

    def __matmul__(self, other: Any) -> Any:
        return apply.call(operator.matmul, np.matmul, (self, other), {})

    def __rmatmul__(self, other: Any) -> Any:
        return apply.call(operator.matmul, np.matmul, (other, self), {})

    def __imatmul__(self, other: Any) -> Any:
        self[...] = self @ other
        return self


def _loses(how: str, instead: str) -> BadInput:
    return BadInput(f"{how} would lose the derivative of a traced value: {instead}, "
                    "or say stop_gradient(x) if it is to have none")  # fmt: skip


def _binary(name: str, ufunc: np.ufunc) -> None:
    """Give Traced one of python's operators, forward, reflected and in place."""
    function = getattr(operator, name)
    operation = apply.binary(function, ufunc)
    setattr(Traced, f"__{name}__", operation)
    if ufunc in _REFLECTED:
        setattr(Traced, f"__r{name}__", lambda self, other: operation(other, self))
        inplace = writes.inplace(getattr(operator, "i" + name), operation, ufunc)
        setattr(Traced, f"__i{name}__", inplace)


def _unary(name: str, ufunc: np.ufunc) -> None:
    setattr(Traced, f"__{name}__", apply.unary(getattr(operator, name), ufunc))


_REFLECTED: dict[np.ufunc, str] = {
    np.add: "add", np.subtract: "sub", np.multiply: "mul", np.divide: "truediv",
    np.power: "pow", np.remainder: "mod", np.floor_divide: "floordiv",
}  # fmt: skip

for _key, _name in _REFLECTED.items():
    _binary(_name, _key)
for _name in ("lt", "le", "eq", "ne", "gt", "ge"):
    _binary(_name, {"lt": np.less, "le": np.less_equal, "eq": np.equal, "ne": np.not_equal,
                    "gt": np.greater, "ge": np.greater_equal}[_name])  # fmt: skip
_unary("neg", np.negative)
_unary("pos", np.positive)
_unary("abs", np.absolute)
