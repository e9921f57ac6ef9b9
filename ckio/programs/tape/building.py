"""Arrays built of numbers that are being taped, where NumPy would ask each for a plain value."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ckio.programs.tape.traced import Traced


def build(lift: Callable[[Any], Any], function: Any, /, *args: Any, **kwargs: Any) -> Any:
    """What function(*args, **kwargs) builds of traced values: their values, and then they.

    Any other call is made as it is.
    """
    place: tuple[Any, ...]
    if function is np.full and len(args) > 1 and type(args[1]) is Traced:
        place, parts, at = (...,), args[1], 1
    elif args and function in (np.array, np.asarray):
        place, parts, at = (), args[0], 0
    else:
        return function(*args, **kwargs)
    found = [(place or where, part) for where, part in _traced(parts, ())]
    if not found:
        return function(*args, **kwargs)
    plain = function(*args[:at], _plain(parts), *args[at + 1 :], **kwargs)
    if type(parts) is Traced and plain is parts.value:
        return parts
    made = lift(plain)
    for where, part in found:
        made[where] = part
    return made


def _traced(parts: Any, place: tuple[int, ...]) -> Iterator[tuple[Any, Traced]]:
    """Each traced value, and where it comes to lie."""
    if type(parts) is Traced:
        yield place, parts
    elif isinstance(parts, list | tuple):
        for number, part in enumerate(parts):
            yield from _traced(part, (*place, number))


def _plain(parts: Any) -> Any:
    if type(parts) is Traced:
        return parts.value
    return [_plain(part) for part in parts] if isinstance(parts, list | tuple) else parts
