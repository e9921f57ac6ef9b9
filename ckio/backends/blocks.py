"""The blocks that fields are cut into: each is compressed by itself, as a chunk of HDF5 is.

A block is whole in the last axes of its field, a part of one axis, and one element in the axes
before: so it is contiguous where the field is. The last part of an axis may be short; it is filled
up with zeros, so that all blocks of a field are alike.
"""

import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Field, Layout
from ckio.backends.forms import Form, form_of
from ckio.errors import StorageError

BLOCK: Final = 1 << 20
"""Bytes that a block has at most, if one element has no more."""

_MOST_AXES: Final = 64
"""Of an array of numpy."""


def block_shape(shape: tuple[int, ...], itemsize: int, /) -> tuple[int, ...]:
    """The shape of the blocks of a field; no axis is longer than the field's, none is 0.

    The axis that is cut is cut evenly: little is filled up.
    """
    room = max(1, BLOCK // max(1, itemsize))
    block = [1] * len(shape)
    for axis in reversed(range(len(shape))):
        length = max(1, shape[axis])
        parts = -(-length // room)
        block[axis] = -(-length // parts)
        if parts > 1:
            break
        room //= length
    return tuple(block)


@dataclass(frozen=True, slots=True)
class Grid:
    """How one field is cut.

    Attributes
    ----------
    dtype : dtype
        Of an element.
    shape : tuple of int
        Of a block.
    size : int
        Elements of a block.
    count : int
        Blocks of the field, which are numbered in C order.
    rows, step : int
        Elements along the axis that is cut: of the field, and of a block.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    size: int
    count: int
    rows: int
    step: int

    @property
    def nbytes(self) -> int:
        """Bytes of a block."""
        return self.dtype.itemsize * self.size

    def elements(self, view: memoryview, number: int, /) -> NDArray[Any]:
        """What the field has of a block, without a copy, in one axis; the last may be short."""
        outer, part = divmod(number, -(-self.rows // self.step))
        row, first = self.size // self.step, part * self.step
        begin, count = outer * self.rows + first, min(self.step, self.rows - first)
        return np.frombuffer(view, self.dtype, count * row, begin * row * self.dtype.itemsize)

    def block(self, view: memoryview, number: int, /) -> NDArray[Any]:
        """A block; a copy, filled up with zeros, where it is short."""
        elements = self.elements(view, number)
        if elements.size == self.size:
            return elements.reshape(self.shape)
        block = np.zeros(self.shape, self.dtype)
        block.reshape(-1)[: elements.size] = elements
        return block


def _grid(field: Field) -> Grid:
    dtype = np.dtype(field.dtype)
    # An element that is itself an array: as many axes more.
    dtype, shape = dtype.base, (*field.shape, *dtype.shape)
    if len(shape) > _MOST_AXES:
        raise StorageError(
            f"field {field.name!r} has {len(shape)} axes; a level that compresses takes"
            f" {_MOST_AXES} at most"
        )
    block = block_shape(shape, dtype.itemsize)
    cut = next((axis for axis, length in enumerate(block) if length > 1), len(shape) - 1)
    rows, step = (shape[cut], block[cut]) if shape else (1, 1)
    count = math.prod(shape[: max(cut, 0)]) * -(-rows // step)
    if dtype.itemsize == 0 or 0 in shape:
        count = 0
    return Grid(dtype, block, math.prod(block), count, rows, step)


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """All blocks of a checkpoint: those of its first field, then of its second, and so on.

    Attributes
    ----------
    form : Form
        Of the checkpoint.
    grids : tuple of Grid
        One for each field.
    firsts : tuple of int
        The number of each field's first block; and of one behind the last.
    """

    form: Form
    grids: tuple[Grid, ...]
    firsts: tuple[int, ...]

    @property
    def count(self) -> int:
        """How many there are."""
        return self.firsts[-1]

    def find(self, number: int, /) -> tuple[int, int]:
        """The field of a block, and which of that field's it is."""
        field = bisect_right(self.firsts, number) - 1
        return field, number - self.firsts[field]


@lru_cache(256)
def blocks_of(layout: Layout, /) -> Blocks:
    """The blocks of a checkpoint; raises StorageError where its fields are no plain bytes."""
    form = form_of(layout)
    grids = tuple(map(_grid, layout))
    firsts = accumulate((grid.count for grid in grids), initial=0)
    return Blocks(form, grids, tuple(firsts))
