"""Encoded checkpoints: a codec makes bytes of the blocks that the fields are cut into.

A block is whole in the last axes of its field, a part of one axis, and one element in the axes
before: so it is contiguous where the field is. The last part of an axis may be short; it is filled
up with zeros, so that all blocks of a field are alike. Each is compressed by itself, as a chunk of
HDF5 is.

The level underneath holds a single field `Field("encoded", "|u1", (bytes,), unit)`. Its unit is a
mark, then {"codec": name, "lossless": bool, "layout": text of the original layout} in JSON. The
bytes are a table of little-endian u4, the size of each encoded block, then the blocks, one behind
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
"""Bytes that a block has at most, if one element has no more."""

_MOST_AXES: Final = 64
"""Of an array of numpy."""


def block_shape(shape: tuple[int, ...], itemsize: int, /) -> tuple[int, ...]:
    """Return the shape of the blocks of a field; no axis is longer than the field's, none is 0.

    The axis that is cut is cut evenly: little is filled up.
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
    """The blocks that one field is cut into.

    Attributes
    ----------
    dtype : dtype
        Of an element.
    shape : tuple of int
        Of a block.
    size : int
        Elements of a block.
    count : int
        FieldBlocks of the field, which are numbered in C order.
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
        """Return the elements of a block, without a copy, in one axis; the last may be short."""
        outer, part = divmod(number, -(-self.rows // self.step))
        row, first = self.size // self.step, part * self.step
        begin, count = outer * self.rows + first, min(self.step, self.rows - first)
        return np.frombuffer(view, self.dtype, count * row, begin * row * self.dtype.itemsize)

    def block(self, view: memoryview, number: int, /) -> NDArray[Any]:
        """Return a block; a copy, filled up with zeros, where it is short."""
        elements = self.elements(view, number)
        if elements.size == self.size:
            return elements.reshape(self.shape)
        block = np.zeros(self.shape, self.dtype)
        block.reshape(-1)[: elements.size] = elements
        return block


def _grid(field: Field) -> FieldGrid:
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
    return FieldGrid(dtype, block, math.prod(block), count, rows, step)


@dataclass(frozen=True, slots=True, eq=False)
class FieldBlocks:
    """All blocks of a checkpoint: those of its first field, then of its second, and so on.

    Attributes
    ----------
    form : Form
        Of the checkpoint.
    grids : tuple of FieldGrid
        One for each field.
    firsts : tuple of int
        The number of each field's first block; and of one behind the last.
    """

    form: Form
    grids: tuple[FieldGrid, ...]
    firsts: tuple[int, ...]

    @property
    def count(self) -> int:
        """Number of blocks."""
        return self.firsts[-1]

    def find(self, number: int, /) -> tuple[int, int]:
        """Return the field of a block, and the number that the block has in it."""
        field = bisect_right(self.firsts, number) - 1
        return field, number - self.firsts[field]


@lru_cache(256)
def blocks_of(layout: Layout, /) -> FieldBlocks:
    """Return the blocks of a checkpoint; raises StorageError where fields are no plain bytes."""
    form = form_of(layout)
    grids = tuple(map(_grid, layout))
    firsts = accumulate((grid.count for grid in grids), initial=0)
    return FieldBlocks(form, grids, tuple(firsts))


MARK: Final = "ckio encoded: "
"""Begins the unit of a field of encoded bytes."""

SIZE: Final = np.dtype("<u4")
"""An entry of the table."""

Work = Callable[[int], None]
"""Work on the block of a number."""

Share = Callable[[Work, int], None]
"""Function that does work on so many blocks: `alone`, or `Workers.each`."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """The codec and the original of encoded bytes.

    Attributes
    ----------
    codec : str
        The name of the codec that made them.
    lossless : bool
        Whether what is decoded is bitwise what was encoded.
    blocks : FieldBlocks
        Of the original checkpoint.
    """

    codec: str
    lossless: bool
    blocks: FieldBlocks

    @property
    def layout(self) -> Layout:
        """Of the original checkpoint."""
        return self.blocks.form.layout


@lru_cache(256)
def unit_of(codec: str, lossless: bool, layout: Layout, /) -> str:
    """Return the unit of the field of encoded bytes."""
    text = blocks_of(layout).form.text.decode()
    fields = {"codec": codec, "lossless": lossless, "layout": text}
    return MARK + json.dumps(fields, separators=(",", ":"))


def mark(codec: Codec, layout: Layout, nbytes: int, /) -> Layout:
    """Return the layout of the `nbytes` that a codec made of a checkpoint of this layout."""
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

    Raises CorruptCheckpoint where it does not make sense: also where so few bytes cannot hold so
    many blocks, so that nobody allocates memory for blocks that cannot exist.
    """
    if not is_marked(layout):
        return None
    encoding = _encoding(layout[0].unit)
    (nbytes,) = layout[0].shape
    # Each block takes at least a byte, and its entry in the table.
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
    raise CorruptCheckpoint("an encoded checkpoint does not say what it is")


def room(blocks: FieldBlocks, codec: Codec, /) -> int:
    """Return the bytes that encoding needs to work in: each block's bound, and the table."""
    return _places(blocks, _bounds(blocks, codec))[-1]


def encode(
    blocks: FieldBlocks, codec: Codec, data: Buffers, into: memoryview, share: Share, /
) -> int:
    """Encode a checkpoint into the beginning of `into`, of `room` bytes; returns how many."""
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
    """Fill the buffers of a checkpoint; raises CorruptCheckpoint where `data` does not give it."""
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
    """Return the table of so many sizes; raises CorruptCheckpoint where they do not add up."""
    begin = SIZE.itemsize * count
    if begin <= data.nbytes:
        sizes = np.frombuffer(data, SIZE, count)
        if begin + int(sizes.sum(dtype=np.uint64)) == data.nbytes:
            return sizes
    raise CorruptCheckpoint(f"{data.nbytes} encoded bytes are not {count} blocks and their table")


def _bounds(blocks: FieldBlocks, codec: Codec) -> list[int]:
    """Return the most bytes of an encoded block of each field."""
    return [codec.bound(grid.nbytes) for grid in blocks.grids]


def _places(blocks: FieldBlocks, bounds: list[int]) -> list[int]:
    """Return where the bytes for each field's blocks begin, behind the table; and their end."""
    sizes = (grid.count * bound for grid, bound in zip(blocks.grids, bounds, strict=True))
    return list(accumulate(sizes, initial=SIZE.itemsize * blocks.count))
