"""Encoded checkpoints: fields are cut into blocks, and a codec encodes each block.

A block contains the whole of the last axes of its field, a part of one axis, and one index of each
axis before that. Therefore a block of a contiguous field is contiguous, too. The last part of an
axis may be short; it is filled up with zeros, so that all blocks of a field have the same shape.
Each block is compressed independently, like a chunk of HDF5.

The level underneath stores a single field `Field("encoded", "|u1", (bytes,), unit)`. Its unit is a
mark, then {"codec": name, "lossless": bool, "layout": text of the original layout} in JSON. The
bytes are a table with the size of each encoded block (little-endian u4), then the blocks, one after
the other.
"""

import json
import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Buffers, Field, Layout
from ckio.backends.forms import Form, form_from, form_of
from ckio.compression import Codec
from ckio.errors import CorruptCheckpoint, StorageError

BLOCK: Final = 1 << 20
"""Maximum bytes of a block, unless a single element is larger."""

_MOST_AXES: Final = 64
"""Maximum number of axes of an array of numpy."""


def block_shape(shape: tuple[int, ...], itemsize: int, /) -> tuple[int, ...]:
    """Return the shape of the blocks of a field of this shape and of `itemsize` bytes per element.

    Each length is at least 1 and at most the length of the field's axis. One axis is cut into parts
    of nearly equal length, so that few zeros are needed to fill the last part. For example, a field
    of 3 x 1,000,000 elements of 8 bytes has blocks of 1 x 125,000 elements:

    >>> block_shape((3, 1_000_000), 8)
    (1, 125000)
    """
    most = max(1, BLOCK // max(1, itemsize))
    block = [1] * len(shape)
    for axis in reversed(range(len(shape))):
        length = max(1, shape[axis])
        parts = -(-length // most)
        block[axis] = -(-length // parts)
        if parts > 1:
            break
        most //= length
    return tuple(block)


@dataclass(frozen=True, slots=True)
class FieldGrid:
    """The blocks of one field.

    Attributes
    ----------
    dtype : dtype
        The dtype of an element.
    shape : tuple of int
        The shape of a block.
    size : int
        Number of elements of a block.
    count : int
        Number of blocks of the field; they are numbered in C order.
    rows, step : int
        Length of the axis that is cut, in the field and in a block.
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
        """Return the elements of a block as a one-dimensional array, without a copy.

        The last block along the axis that is cut may have fewer than `size` elements.
        """
        outer, part = divmod(number, -(-self.rows // self.step))
        row, first = self.size // self.step, part * self.step
        begin, count = outer * self.rows + first, min(self.step, self.rows - first)
        return np.frombuffer(view, self.dtype, count * row, begin * row * self.dtype.itemsize)

    def block(self, view: memoryview, number: int, /) -> NDArray[Any]:
        """Return a block as an array; if it is short, as a copy that is filled up with zeros."""
        elements = self.elements(view, number)
        if elements.size == self.size:
            return elements.reshape(self.shape)
        block = np.zeros(self.shape, self.dtype)
        block.reshape(-1)[: elements.size] = elements
        return block


def _grid(field: Field) -> FieldGrid:
    dtype = np.dtype(field.dtype)
    # If an element is itself an array, its axes are added to the axes of the field.
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
    return FieldGrid(dtype, block, math.prod(block), count, rows, step)


@dataclass(frozen=True, slots=True, eq=False)
class FieldBlocks:
    """All blocks of a checkpoint: those of its first field, then of its second, and so on.

    Attributes
    ----------
    form : Form
        The form of the checkpoint.
    grids : tuple of FieldGrid
        The blocks of each field.
    firsts : tuple of int
        The number of the first block of each field; then the number of all blocks.
    """

    form: Form
    grids: tuple[FieldGrid, ...]
    firsts: tuple[int, ...]

    @property
    def count(self) -> int:
        """Number of blocks."""
        return self.firsts[-1]

    def find(self, number: int, /) -> tuple[int, int]:
        """Return the index of a block's field, and the number of the block within this field."""
        field = bisect_right(self.firsts, number) - 1
        return field, number - self.firsts[field]


@lru_cache(256)
def blocks_of(layout: Layout, /) -> FieldBlocks:
    """Return the blocks of a checkpoint; raises StorageError if a field cannot be stored."""
    form = form_of(layout)
    grids = tuple(map(_grid, layout))
    firsts = accumulate((grid.count for grid in grids), initial=0)
    return FieldBlocks(form, grids, tuple(firsts))


MARK: Final = "ckio encoded: "
"""The beginning of the unit of a field of encoded bytes."""

SIZE: Final = np.dtype("<u4")
"""The dtype of an entry of the table of sizes."""

Work = Callable[[int], None]
"""A function that works on one block, given its number."""

Share = Callable[[Work, int], None]
"""A function that calls `work` for each of `count` blocks: `alone`, or `Workers.each`."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """The codec of encoded bytes, and the blocks of the original checkpoint.

    Attributes
    ----------
    codec : str
        The name of the codec.
    lossless : bool
        Whether decoding returns bitwise the original bytes.
    blocks : FieldBlocks
        The blocks of the original checkpoint.
    """

    codec: str
    lossless: bool
    blocks: FieldBlocks

    @property
    def layout(self) -> Layout:
        """The layout of the original checkpoint."""
        return self.blocks.form.layout


@lru_cache(256)
def unit_of(codec: str, lossless: bool, layout: Layout, /) -> str:
    """Return the unit of the field of encoded bytes."""
    text = blocks_of(layout).form.text.decode()
    fields = {"codec": codec, "lossless": lossless, "layout": text}
    return MARK + json.dumps(fields, separators=(",", ":"))


def mark(codec: Codec, layout: Layout, nbytes: int, /) -> Layout:
    """Return the layout of a checkpoint that a codec has encoded into `nbytes` bytes.

    `layout` is the layout of the original checkpoint.
    """
    return (Field("encoded", "|u1", (nbytes,), unit_of(codec.name, codec.lossless, layout)),)


def is_marked(layout: Layout, /) -> bool:
    """Return whether a layout describes encoded bytes."""
    match layout:
        case (Field("encoded", "|u1", (_,), unit),):
            return unit.startswith(MARK)
        case _:
            return False


def unmark(layout: Layout, /) -> Encoding | None:
    """Return the encoding that a layout describes; None for a layout of plain fields.

    Raises CorruptCheckpoint if the description makes no sense, or if the bytes are too few for
    their blocks. The second check prevents callers from allocating memory for blocks that cannot
    exist.
    """
    if not is_marked(layout):
        return None
    encoding = _encoding(layout[0].unit)
    (nbytes,) = layout[0].shape
    # Each block needs at least one byte, and its entry in the table.
    if nbytes < (SIZE.itemsize + 1) * encoding.blocks.count:
        raise CorruptCheckpoint(
            f"{nbytes} encoded bytes cannot hold {encoding.blocks.count} blocks"
        )
    return encoding


@lru_cache(256)
def _encoding(unit: str) -> Encoding:
    try:
        match json.loads(unit.removeprefix(MARK)):
            case {"codec": str(codec), "lossless": bool(lossless), "layout": str(text)}:
                return Encoding(codec, lossless, blocks_of(form_from(text.encode()).layout))
            case _:
                pass
    except (StorageError, ValueError, RecursionError):
        pass
    raise CorruptCheckpoint("the description of an encoded checkpoint makes no sense")


def room(blocks: FieldBlocks, codec: Codec, /) -> int:
    """Return the bytes of memory that `encode` needs: the table, and each block's upper bound."""
    return _places(blocks, _bounds(blocks, codec))[-1]


def encode(
    blocks: FieldBlocks, codec: Codec, data: Buffers, into: memoryview, share: Share, /
) -> int:
    """Encode a checkpoint into the beginning of `into`; return the number of encoded bytes.

    `into` must have at least `room(blocks, codec)` bytes.
    """
    bounds = _bounds(blocks, codec)
    places, end = _places(blocks, bounds), SIZE.itemsize * blocks.count
    sizes = np.frombuffer(into, SIZE, blocks.count)

    def one(number: int) -> None:
        field, inner = blocks.find(number)
        place = places[field] + inner * bounds[field]
        block = blocks.grids[field].block(data[field], inner)
        sizes[number] = codec.encode(block, into[place : place + bounds[field]])

    share(one, blocks.count)
    for number, size in enumerate(sizes.tolist()):
        field, inner = blocks.find(number)
        place = places[field] + inner * bounds[field]
        if place != end:
            into[end : end + size] = into[place : place + size]
        end += size
    return end


def decode(
    blocks: FieldBlocks, codec: Codec, data: memoryview, into: Buffers, share: Share, /
) -> None:
    """Decode `data` into the buffers of a checkpoint; raises CorruptCheckpoint if it is damaged."""
    sizes = sizes_in(data, blocks.count).tolist()
    begins = list(accumulate(sizes, initial=SIZE.itemsize * blocks.count))

    def one(number: int) -> None:
        field, inner = blocks.find(number)
        grid, part = blocks.grids[field], data[begins[number] : begins[number + 1]]
        elements = grid.elements(into[field], inner)
        if elements.size == grid.size:
            codec.decode(part, elements.reshape(grid.shape))
        else:
            block = np.empty(grid.shape, grid.dtype)
            codec.decode(part, block)
            elements[...] = block.reshape(-1)[: elements.size]

    share(one, blocks.count)


def sizes_in(data: memoryview, count: int, /) -> NDArray[np.uint32]:
    """Return the table of the sizes of `count` blocks.

    Raises CorruptCheckpoint if the table and the blocks do not add up to the bytes of `data`.
    """
    begin = SIZE.itemsize * count
    if begin <= data.nbytes:
        sizes = np.frombuffer(data, SIZE, count)
        if begin + int(sizes.sum(dtype=np.uint64)) == data.nbytes:
            return sizes
    raise CorruptCheckpoint(f"{data.nbytes} encoded bytes are not {count} blocks and their table")


def _bounds(blocks: FieldBlocks, codec: Codec) -> list[int]:
    """Return, for each field, the maximum bytes of one encoded block."""
    return [codec.bound(grid.nbytes) for grid in blocks.grids]


def _places(blocks: FieldBlocks, bounds: list[int]) -> list[int]:
    """Return the offset at which each field's blocks begin, after the table; then their end."""
    sizes = (grid.count * bound for grid, bound in zip(blocks.grids, bounds, strict=True))
    return list(accumulate(sizes, initial=SIZE.itemsize * blocks.count))
