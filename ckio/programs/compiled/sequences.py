"""What a `for` in a program goes over: something of which the third item can be asked for."""

from itertools import repeat
from types import GeneratorType
from typing import Any, Final

from ckio.errors import BadInput

_ROWS: Final = (range, list, tuple, str, bytes)
_VIEWS: Final[tuple[type, ...]] = (dict, type({}.keys()), type({}.values()), type({}.items()))


def items(value: Any, /) -> Any:
    """The items of what a loop goes over, by number: itself where it has them, or else a list.

    Raises BadInput for what may never end, or comes in another order in another process.
    """
    if isinstance(value, _ROWS):
        return value
    rest = iter(value)
    if hasattr(value, "__array_ufunc__"):
        return value
    if isinstance(value, set | frozenset):
        raise BadInput(
            "a program's loop over a set would go in another order elsewhere; sort it first"
        )
    if _ends(value):
        return list(rest)
    raise BadInput(
        f"a program cannot store where it is in a {type(value).__name__}, which may not end;"
        " loop with `while` and a number, or make a list of it before the loop"
    )


def together(*inside: bool) -> bool:
    """Whether rows that must end together have an item; raises ValueError, as `zip` does."""
    if any(inside) and not all(inside):
        ends = next(number for number, one in enumerate(inside, 1) if one != inside[0])
        more, less = ("shorter", "longer")[inside[-1] or not inside[0]], "argument"
        raise ValueError(f"zip() {less} {ends} is {more} than {less} {ends - 1}")
    return all(inside)


def _ends(value: Any) -> bool:
    """Whether this comes to an end for certain."""
    if isinstance(value, zip | map | enumerate | filter):
        parts = [part for part in value.__reduce__()[1] if hasattr(part, "__next__")]
        return any(map(_ends, parts))
    if isinstance(value, repeat):
        return "," in repr(value)
    if isinstance(value, GeneratorType):  # of a traced array, which ends as the plain one does
        return value.gi_code.co_qualname.startswith("Traced.__iter__")
    return hasattr(value, "__length_hint__") or isinstance(value, _VIEWS)
