"""A group of an archive: slots for checkpoints of one kind and one layout, and where they lie."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import xxhash

from ckio.actions import Buffers, Kind, Layout
from ckio.backends.buffers import TILE
from ckio.backends.hdf5_rows import ROW

_BYTES: Final = ("|u1", "u1", "uint8")


@dataclass(frozen=True, eq=False)
class Group:
    """Slots in the file.

    Attributes
    ----------
    name : str
        What HDF5 calls it.
    slots : int
        How many.
    rows : int
        Offset of the key table, in bytes.
    fields : tuple of (int, int)
        Offset of slot 0 and bytes per slot, for each field in the order of the layout.
    """

    name: str
    kind: Kind
    layout: Layout
    slots: int
    rows: int
    fields: tuple[tuple[int, int], ...]

    @cached_property
    def nbytes(self) -> int:
        """Bytes of one slot."""
        return sum(nbytes for _, nbytes in self.fields)

    @cached_property
    def seed(self) -> int:
        """What ties a row to this group: a digest of its kind and layout."""
        return xxhash.xxh3_64_intdigest(repr((self.kind.value, self.layout)).encode())

    def row(self, slot: int, /) -> int:
        """Offset of the row of a slot, in bytes."""
        return self.rows + slot * ROW.itemsize

    def pieces(self, slot: int, data: Buffers, /) -> Iterator[tuple[memoryview, int]]:
        """Buffers cut into tiles, each with its offset in the file."""
        for view, (start, nbytes) in zip(data, self.fields, strict=True):
            begin = start + slot * nbytes
            if view.nbytes <= TILE:
                yield view, begin
                continue
            for offset in range(0, view.nbytes, TILE):
                yield view[offset : offset + TILE], begin + offset

    def layout_of(self, nbytes: int, /) -> Layout:
        """The layout of a checkpoint of `nbytes` in one of its slots."""
        if nbytes == self.nbytes:
            return self.layout
        return (replace(self.layout[0], shape=(nbytes,)),)


def family(layout: Layout, /) -> Layout:
    """The layout that stands for all those which share slots: itself, but for plain bytes.

    Plain bytes come in any number, as codecs make them: slots of a few sizes serve them all.
    """
    return (replace(layout[0], shape=(0,)),) if _is_plain(layout) else layout


def slot_layout(layout: Layout, nbytes: int, /) -> Layout:
    """The layout of slots for checkpoints like this one, with up to `nbytes`."""
    return (replace(layout[0], shape=(room(nbytes),)),) if _is_plain(layout) else layout


def serves(size: int, layout: Layout, nbytes: int, /) -> bool:
    """Whether a checkpoint may go to a slot of this size; at most half of it is wasted."""
    return size == nbytes or (_is_plain(layout) and nbytes <= size <= 2 * max(nbytes, 64))


def _is_plain(layout: Layout) -> bool:
    return len(layout) == 1 and layout[0].dtype in _BYTES and len(layout[0].shape) == 1


def room(nbytes: int, /) -> int:
    """`nbytes` rounded up to one of eight sizes per power of two, and to a multiple of 64."""
    step = 1 << max(nbytes.bit_length() - 4, 6)
    return -(-nbytes // step) * step
