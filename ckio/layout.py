"""How many bytes a layout describes."""

import math

import numpy as np

from ckio.actions import Field, Layout


def field_nbytes(field: Field, /) -> int:
    """Bytes of one array."""
    return np.dtype(field.dtype).itemsize * math.prod(field.shape)


def nbytes_of(layout: Layout, /) -> int:
    """Bytes of a whole checkpoint."""
    return sum(map(field_nbytes, layout))
