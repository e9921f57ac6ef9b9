"""Encoded checkpoints: what a codec makes of the blocks of one, in one field of bytes.

A level underneath holds a single field `Field("encoded", "|u1", (bytes,), unit)`. Its unit says
what it is: a mark, then {"codec": name, "lossless": bool, "layout": text of the original layout} in
JSON. The bytes are a table of little-endian u4, the size of each encoded block, then the blocks,
one behind the other.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Buffers, Field, Layout
from ckio.backends.blocks import Blocks, blocks_of
from ckio.backends.forms import form_from
from ckio.backends.workers import Work
from ckio.compression import Codec
from ckio.errors import CorruptCheckpoint, StorageError

MARK: Final = "ckio encoded: "
"""Begins the unit of a field of encoded bytes."""

SIZE: Final = np.dtype("<u4")
"""An entry of the table."""

Share = Callable[[Work, int], None]
"""Does work on so many blocks: `alone`, or `Workers.each`."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """What encoded bytes are.

    Attributes
    ----------
    codec : str
        The name of the codec that made them.
    lossless : bool
        Whether what is decoded is bitwise what was encoded.
    blocks : Blocks
        Of the original checkpoint.
    """

    codec: str
    lossless: bool
    blocks: Blocks

    @property
    def layout(self) -> Layout:
        """Of the original checkpoint."""
        return self.blocks.form.layout


@lru_cache(256)
def unit_of(codec: str, lossless: bool, layout: Layout, /) -> str:
    """What the unit of encoded bytes says."""
    text = blocks_of(layout).form.text.decode()
    said = {"codec": codec, "lossless": lossless, "layout": text}
    return MARK + json.dumps(said, separators=(",", ":"))


def mark(codec: Codec, layout: Layout, nbytes: int, /) -> Layout:
    """The layout of `nbytes` that a codec made of a checkpoint of this layout."""
    return (Field("encoded", "|u1", (nbytes,), unit_of(codec.name, codec.lossless, layout)),)


def is_marked(layout: Layout, /) -> bool:
    """Whether a layout describes encoded bytes."""
    match layout:
        case (Field("encoded", "|u1", (_,), unit),):
            return unit.startswith(MARK)
        case _:
            return False


def unmark(layout: Layout, /) -> Encoding | None:
    """What encoded bytes are, if that is what the layout describes.

    Raises CorruptCheckpoint where it does not make sense: also where so few bytes cannot hold so
    many blocks, so that nobody makes room for what cannot be there.
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


def room(blocks: Blocks, codec: Codec, /) -> int:
    """The bytes that encoding needs to work in: each block's bound, and the table."""
    return _places(blocks, _bounds(blocks, codec))[-1]


def encode(blocks: Blocks, codec: Codec, data: Buffers, into: memoryview, share: Share, /) -> int:
    """Encode a checkpoint into the beginning of `into`, which has the room; returns the bytes."""
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


def decode(blocks: Blocks, codec: Codec, data: memoryview, into: Buffers, share: Share, /) -> None:
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
    """The table of so many sizes; raises CorruptCheckpoint where they do not add up."""
    begin = SIZE.itemsize * count
    if begin <= data.nbytes:
        sizes = np.frombuffer(data, SIZE, count)
        if begin + int(sizes.sum(dtype=np.uint64)) == data.nbytes:
            return sizes
    raise CorruptCheckpoint(f"{data.nbytes} encoded bytes are not {count} blocks and their table")


def _bounds(blocks: Blocks, codec: Codec) -> list[int]:
    """The most bytes of an encoded block of each field."""
    return [codec.bound(grid.nbytes) for grid in blocks.grids]


def _places(blocks: Blocks, bounds: list[int]) -> list[int]:
    """Where the room for each field's blocks begins, behind the table; and where the last ends."""
    rooms = (grid.count * bound for grid, bound in zip(blocks.grids, bounds, strict=True))
    return list(accumulate(rooms, initial=SIZE.itemsize * blocks.count))
