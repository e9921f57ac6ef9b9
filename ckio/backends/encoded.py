"""Encoded checkpoints: fields are cut into blocks, and a codec encodes each block.

A block contains whole rows of its field, about 1 MiB of them. It is contiguous, and it is
compressed independently of the others, so that several threads can share the work.

The level underneath stores a single field `Field("encoded", "|u1", (bytes,), unit)`. Its unit is a
mark, then {"codec": name, "lossless": bool, "layout": text of the original layout} in JSON. The
bytes are a table with the size of each encoded block (little-endian u4), then the blocks, one after
the other.
"""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from operator import index
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Buffers, Field, Layout
from ckio.backends.forms import form_from, form_of
from ckio.compression import Codec
from ckio.errors import CorruptCheckpoint, StorageError

BLOCK: Final = 1 << 20
"""Maximum bytes of a block, unless a single element is larger."""

MARK: Final = "ckio encoded: "
"""The beginning of the unit of a field of encoded bytes."""

SIZE: Final = np.dtype("<u4")
"""The dtype of an entry of the table of sizes."""

Share = Callable[[Callable[[int], None], int], None]
"""A function that calls `work(0)` to `work(count - 1)`: `Workers.each`."""


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a checkpoint that is encoded as a whole.

    Attributes
    ----------
    field : int
        The number of its field.
    begin : int
        Its offset in the bytes of the field.
    dtype : dtype
        The dtype of an element.
    shape : tuple of int
        Its shape: a number of rows, then the last axes of the field.
    """

    field: int
    begin: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Its bytes."""
        return self.dtype.itemsize * math.prod(self.shape)

    def of(self, data: Buffers, /) -> NDArray[Any]:
        """Return the elements of the block in the buffers of a checkpoint, without a copy."""
        count = math.prod(self.shape)
        elements = np.frombuffer(data[self.field], self.dtype, count, self.begin)
        return elements.reshape(self.shape)


@lru_cache(256)
def blocks_of(layout: Layout, /) -> tuple[Block, ...]:
    """Return the blocks of a checkpoint, field by field.

    The last axes that together fit into a block are its rows. The rows are cut into parts of nearly
    equal number. For example, the rows of a field of 3 x 100 x 2000 numbers are its lines of 16,000
    bytes, and there are 5 parts of 60 lines:

    >>> {block.shape for block in blocks_of((Field("u", "<f8", (3, 100, 2000)),))}
    {(60, 2000)}
    """
    return tuple(block for number, field in enumerate(layout) for block in _cut(number, field))


def _cut(number: int, field: Field) -> Iterator[Block]:
    dtype = np.dtype(field.dtype)
    # If an element is itself an array, its axes are added to the axes of the field.
    dtype, shape = dtype.base, (*field.shape, *dtype.shape)
    axis, row = len(shape), dtype.itemsize
    while axis and row * shape[axis - 1] <= BLOCK:
        axis -= 1
        row *= shape[axis]
    rows = math.prod(shape[:axis])
    if rows * row == 0:
        return
    parts = -(-rows // max(1, BLOCK // row))
    most = -(-rows // parts)
    for first in range(0, rows, most):
        some = min(most, rows - first)
        yield Block(number, first * row, dtype, (some, *shape[axis:]))


@dataclass(frozen=True, slots=True)
class Encoding:
    """The description of encoded bytes.

    Attributes
    ----------
    codec : str
        The name of the codec.
    lossless : bool
        Whether decoding returns bitwise the original bytes.
    layout : Layout
        The layout of the original checkpoint.
    """

    codec: str
    lossless: bool
    layout: Layout


@lru_cache(256)
def unit_of(codec: str, lossless: bool, layout: Layout, /) -> str:
    """Return the unit of the field of encoded bytes."""
    fields = {"codec": codec, "lossless": lossless, "layout": form_of(layout).text.decode()}
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

    Raises CorruptCheckpoint if the description makes no sense.
    """
    return _encoding(layout[0].unit) if is_marked(layout) else None


@lru_cache(256)
def _encoding(unit: str) -> Encoding:
    try:
        match json.loads(unit.removeprefix(MARK)):
            case {"codec": str(codec), "lossless": bool(lossless), "layout": str(text)}:
                return Encoding(codec, lossless, form_from(text.encode()).layout)
            case _:
                pass
    except (StorageError, ValueError):
        pass
    raise CorruptCheckpoint("the description of an encoded checkpoint makes no sense")


def most_bytes(layout: Layout, codec: Codec, /) -> int:
    """Return the bytes of memory that `encode` needs: the table, and each block's upper bound."""
    return _places(blocks_of(layout), codec)[-1]


def encode(layout: Layout, codec: Codec, data: Buffers, into: memoryview, share: Share, /) -> int:
    """Encode a checkpoint into the beginning of `into`; return the number of encoded bytes.

    `into` must have at least `most_bytes(layout, codec)` bytes.
    """
    blocks = blocks_of(layout)
    places = _places(blocks, codec)
    sizes = np.frombuffer(into, SIZE, len(blocks))

    def one(number: int) -> None:
        place = into[places[number] : places[number + 1]]
        size = index(codec.encode(blocks[number].of(data), place))
        if not 0 < size <= len(place):
            raise StorageError(
                f"codec {codec.name} gave {size} bytes for a block; its bound is {len(place)}"
            )
        sizes[number] = size

    share(one, len(blocks))
    end = places[0]
    for place, size in zip(places, sizes.tolist(), strict=False):
        if place != end:
            into[end : end + size] = into[place : place + size]
        end += size
    return end


def decode(layout: Layout, codec: Codec, data: memoryview, into: Buffers, share: Share, /) -> None:
    """Decode `data` into the buffers of a checkpoint; raises CorruptCheckpoint if it is damaged."""
    blocks = blocks_of(layout)
    sizes = sizes_in(data, len(blocks)).tolist()
    begins = list(accumulate(sizes, initial=SIZE.itemsize * len(blocks)))

    def one(number: int) -> None:
        codec.decode(data[begins[number] : begins[number + 1]], blocks[number].of(into))

    share(one, len(blocks))


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


def _places(blocks: tuple[Block, ...], codec: Codec) -> list[int]:
    """Return the offset at which each block is encoded, after the table; then their end."""
    bounds = (codec.bound(block.nbytes) for block in blocks)
    return list(accumulate(bounds, initial=SIZE.itemsize * len(blocks)))
