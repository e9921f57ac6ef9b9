"""Checks of numbers and names from users and files."""

import math
import re
from typing import Final, TypeGuard

import numpy as np

from ckio.errors import BadInput

_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Characters that end a line, control a terminal, or change the direction of a text."""


def check_cost(what: str, seconds: object, /) -> float:
    """Return `seconds` as a float; raise BadInput unless it is a finite number >= 0."""
    number = as_float(seconds)
    if number is None:
        raise BadInput(f"{what} = {seconds!r}; it must be a number of seconds")
    if not math.isfinite(number) or number < 0:
        raise BadInput(f"{what} = {number}; it must be finite and >= 0")
    return number


def check_size(what: str, nbytes: object, /) -> int:
    """Return `nbytes` as an int; raise BadInput unless it is a whole number >= 0."""
    if not is_whole(nbytes) or nbytes < 0:
        raise BadInput(f"{what} = {nbytes!r}; it must be a whole number of bytes >= 0")
    return int(nbytes)


def check_line(what: str, text: str, /) -> str:
    """Return `text`; raise BadInput if it has control characters, which may control a terminal."""
    if _CONTROL.search(text):
        raise BadInput(f"{what} = {text[:80]!r}; it must have no control characters")
    return text


def as_float(value: object, /) -> float | None:
    """Return a number as a float, infinite if it is too large, or None for any other value.

    A truth value is not a number here.
    """
    if not isinstance(value, int | float | np.floating | np.integer) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def describe(value: object, /) -> str:
    """Return a rejected value as words for a message: a number, an array's shape, or a type."""
    match value:
        case np.ndarray():
            return f"an array of shape {value.shape}"
        case None | int() | float() | np.number():
            return repr(value)
        case _:
            name = type(value).__name__
            return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"


def is_whole(value: object, /) -> TypeGuard[int]:
    """Return whether `value` is a whole number. A truth value is not a whole number here."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
