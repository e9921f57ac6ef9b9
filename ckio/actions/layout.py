"""What a layout is, and how many bytes it describes."""

import math
from typing import TypeGuard

import numpy as np

from ckio.actions import Field, Layout


def field_nbytes(field: Field, /) -> int:
    """Bytes of one array."""
    return np.dtype(field.dtype).itemsize * math.prod(field.shape)


def nbytes_of(layout: Layout, /) -> int:
    """Bytes of a whole checkpoint."""
    return sum(map(field_nbytes, layout))


def is_layout(value: object, /) -> TypeGuard[Layout]:
    """Whether something is a layout, of dtypes and shapes that there are."""
    if not isinstance(value, tuple) or not all(isinstance(field, Field) for field in value):
        return False
    try:
        nbytes_of(value)
    except (TypeError, ValueError):
        return False
    return True
