"""Views: encoded checkpoints as HDF5 sees them, one chunked dataset for each field.

The encoded bytes lie in slots of plain bytes, and that is all that ckio itself reads. A view has a
chunk for each block of its field in each slot; the tree that says where the chunks are points into
those bytes, so that h5py reads the field, through filters that undo what the codec did.

The tree is made with the group, and never changes its shape. A commit changes in it the entries of
its own slot alone, while the slot counts as free: written halfway, they are of no consequence. What
those of a free slot say is left from the checkpoint before, or a block of zeros.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from io import RawIOBase
from itertools import accumulate, pairwise, product
from math import prod
from struct import Struct
from typing import Self, TypeAlias

import numpy as np

from ckio.actions import Layout
from ckio.backends.encoded import SIZE, Encoding, sizes_in, unmark
from ckio.backends.hdf5.filters import Pipeline, pipeline
from ckio.backends.hdf5.tree import (
    FANOUT,
    NODE_HEAD,
    append,
    blank_entries,
    node_nbytes,
    plant,
)
from ckio.errors import CorruptCheckpoint

Patch: TypeAlias = tuple[bytes, int]
"""Bytes and their offset in the file, within one node of a tree."""

Block: TypeAlias = tuple[int, int, int]
"""Of an encoded block: its offset in the file, how many bytes it has, and the first of them."""


@dataclass(frozen=True)
class View:
    """The blocks of one field in all slots, as chunks of one dataset.

    Attributes
    ----------
    shape : tuple of int
        The field's.
    slots : int
        How many.
    pipeline : Pipeline
        The filters, and the blocks that they are for; no axis of one is longer than the field's.
    leaves : int
        Offset of the first leaf of its tree, in bytes; 0 as long as it has none.
    """

    shape: tuple[int, ...]
    slots: int
    pipeline: Pipeline
    leaves: int = 0

    @cached_property
    def count(self) -> int:
        """Blocks of the field in one checkpoint."""
        return prod(-(-n // b) for n, b in zip(self.shape, self.pipeline.block, strict=True))

    @property
    def span(self) -> tuple[int, int]:
        """Offset and bytes of the leaves of its tree, the part that patches go to."""
        leaves = -(-self.slots * self.count // FANOUT)
        return self.leaves, leaves * node_nbytes(self._axes)

    def planted(self, file: RawIOBase, header: int, /) -> Self:
        """The view with its tree, which goes to the end of a file in which HDF5 made the dataset.

        The dataset has the shape (slots, *shape), and its chunks (1, *block).

        Parameters
        ----------
        file
            The file, which is not open by HDF5 now.
        header
            Offset of the dataset's object header.

        Raises StorageError where HDF5 did not make the dataset in the one way known here.
        """
        blank, skipped = self.pipeline.blank()
        entries = blank_entries(self.slots * self.count, self._axes)
        entries[:, 0] = len(blank) | skipped << 32
        entries[:, 1] = np.repeat(np.arange(self.slots), self.count)
        entries[:, 2:-1] = np.tile(np.array(self._places, np.uint64), (self.slots, 1))
        entries[:, -1] = append(file, blank)
        return replace(self, leaves=plant(file, header, entries, self.slots))

    def patches(self, slot: int, blocks: Iterable[Block], /) -> Iterator[Patch]:
        """What to write where, so that the chunks of a slot are these blocks."""
        rows = zip(blocks, self._places, strict=True)
        entries = [self._entry_of(block, slot, place) for block, place in rows]
        node, entry, begin = node_nbytes(self._axes), self._entry.size, 0
        while begin < self.count:
            leaf, at = divmod(slot * self.count + begin, FANOUT)
            end = min(begin + FANOUT - at, self.count)
            yield b"".join(entries[begin:end]), self.leaves + leaf * node + NODE_HEAD + at * entry
            begin = end

    def _entry_of(self, block: Block, slot: int, place: tuple[int, ...]) -> bytes:
        offset, nbytes, first = block
        before, skipped = self.pipeline.chunks.get(first, (0, 0))
        return self._entry.pack(
            max(0, nbytes - before) | skipped << 32, slot, *place, offset + before
        )

    @property
    def _axes(self) -> int:
        return 1 + len(self.shape)

    @cached_property
    def _entry(self) -> Struct:
        return Struct(f"<{self._axes + 3}Q")

    @cached_property
    def _places(self) -> list[tuple[int, ...]]:
        """Where in a slot each block is, as an entry has it: ends in 0."""
        starts = (range(0, n, b) for n, b in zip(self.shape, self.pipeline.block, strict=True))
        return list(product(*starts, (0,)))


@dataclass(frozen=True)
class Views:
    """The views of encoded checkpoints of one layout.

    Attributes
    ----------
    layout : Layout
        Of the checkpoints before they were encoded.
    fields : tuple of View or None
        One for each field; None where HDF5 cannot have one.
    firsts : tuple of int
        The number of each field's first block; and of one behind the last.
    """

    layout: Layout
    fields: tuple[View | None, ...]
    firsts: tuple[int, ...]

    @classmethod
    def of(cls, layout: Layout, slots: int, /) -> Self | None:
        """Those of slots for checkpoints of this layout, without their trees; None: there are none.

        A mark that makes no sense is not one of ours, and has no views.
        """
        try:
            encoding = unmark(layout)
        except CorruptCheckpoint:
            return None
        views = cls._of(encoding, slots) if encoding else None
        return views if views and any(views.fields) else None

    @classmethod
    def _of(cls, encoding: Encoding, slots: int) -> Self:
        blocks = encoding.blocks
        fields: list[View | None] = []
        for field, grid in zip(encoding.layout, blocks.grids, strict=True):
            shape = (*field.shape, *np.dtype(field.dtype).shape)
            line = pipeline(encoding.codec, grid.dtype, grid.shape) if grid.count else None
            fields.append(View(shape, slots, line) if line else None)
        return cls(encoding.layout, tuple(fields), blocks.firsts)

    def planted(self, file: RawIOBase, headers: Iterable[int], /) -> Self:
        """The views whose dataset HDF5 made, with their trees; the header of none is at 0."""
        fields = zip(self.fields, headers, strict=True)
        planted = (view.planted(file, at) if view and at else None for view, at in fields)
        return replace(self, fields=tuple(planted))

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Offset and bytes of what patches go to, for each tree."""
        return [view.span for view in self.fields if view]

    def pack(self) -> list[int]:
        """Where the leaves of each are, and 0 for none: what does not follow from the encoding."""
        return [view.leaves if view else 0 for view in self.fields]

    def unpack(self, leaves: Sequence[int], /) -> Self:
        """Those of these views that were packed, with their trees."""
        fields = zip(self.fields, leaves, strict=True)
        packed = (replace(view, leaves=at) if view and at else None for view, at in fields)
        return replace(self, fields=tuple(packed))

    def patches(self, slot: int, data: memoryview, offset: int, /) -> Iterator[Patch]:
        """What to write where, once a checkpoint is in its slot and before the slot is committed.

        Parameters
        ----------
        slot
            The slot.
        data
            The encoded bytes.
        offset
            Where they lie in the file.

        Raises CorruptCheckpoint where they are not the blocks that there should be.
        """
        sizes = sizes_in(data, self.firsts[-1]).tolist()
        begins = accumulate(sizes, initial=SIZE.itemsize * len(sizes))
        blocks = [
            (offset + begin, nbytes, data[begin] if nbytes else 0)
            for begin, nbytes in zip(begins, sizes, strict=False)
        ]
        for view, (first, end) in zip(self.fields, pairwise(self.firsts), strict=True):
            if view:
                yield from view.patches(slot, blocks[first:end])
