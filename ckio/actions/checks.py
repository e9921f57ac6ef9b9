"""Checks of the numbers and names that users and files give."""

import math
import re
from typing import Final, TypeGuard

import numpy as np

from ckio.errors import BadInput

_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""The characters that end a line, steer a terminal, or turn the direction of a text."""


def check_cost(what: str, seconds: object, /) -> float:
    """`seconds` as a float; raises BadInput unless it is a finite number >= 0."""
    number = as_float(seconds)
    if number is None:
        raise BadInput(f"{what} = {seconds!r}; it must be a number of seconds")
    if not math.isfinite(number) or number < 0:
        raise BadInput(f"{what} = {number}; it must be finite and >= 0")
    return number


def check_size(what: str, nbytes: object, /) -> int:
    """`nbytes` as a plain number; raises BadInput unless it is a whole one >= 0."""
    if not is_whole(nbytes) or nbytes < 0:
        raise BadInput(f"{what} = {nbytes!r}; it must be a whole number of bytes >= 0")
    return int(nbytes)


def check_line(what: str, text: str, /) -> str:
    """`text`; raises BadInput where it has control characters, which could steer a terminal."""
    if _CONTROL.search(text):
        raise BadInput(f"{what} = {text[:80]!r}; it must have no control characters")
    return text


def as_float(value: object, /) -> float | None:
    """A number, and not a truth value, as a float, infinite where it is too large; else None."""
    if not isinstance(value, int | float | np.floating | np.integer) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def told(value: object, /) -> str:
    """Return a rejected value for a message: a number itself, an array's shape, or the type."""
    match value:
        case np.ndarray():
            return f"an array of shape {value.shape}"
        case None | int() | float() | np.number():
            return repr(value)
        case _:
            name = type(value).__name__
            return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"


def is_whole(value: object, /) -> TypeGuard[int]:
    """Whether `value` is a whole number, and not a truth value."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
