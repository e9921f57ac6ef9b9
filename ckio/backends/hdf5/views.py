"""Views: encoded checkpoints as HDF5 sees them, one chunked dataset for each field.

Promise: plain h5py, with hdf5plugin, reads every stored slot of a compressed archive, also after a
kill at any moment. Tests: test_a_killed_writer_loses_nothing_and_leaves_nothing_torn,
test_h5py_reads_the_others_after_every_single_write_of_growth_and_commits.

For that, three parts are written without h5py. The encoded bytes lie in slots of plain bytes, and
that is all that ckio itself reads. A view has a chunk for each block of its field in each slot; the
tree that says where the chunks are points into those bytes, so that h5py reads the field, through
filters that undo what the codec did. h5py would put chunks where it likes, and metadata of them.

The tree is made with the group, and never changes its shape. A commit changes in it the entries of
its own slot alone, while the slot counts as free: written halfway, they are of no consequence. The
entries of a free slot are those of the checkpoint before, or a block of zeros.
"""

import os
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from io import RawIOBase
from itertools import accumulate, pairwise, product
from math import prod
from struct import Struct
from typing import Any, Final, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Layout
from ckio.backends.encoded import SIZE, Encoding, sizes_in, unmark
from ckio.backends.hdf5.heads import EOF
from ckio.compression.base import SEAL, needed, shuffled_bytes
from ckio.compression.zstd import Zstd
from ckio.errors import CorruptCheckpoint, StorageError

# Filters, by which HDF5 undoes what a codec did to a block, without ckio
#
# A dataset has a line of filters, and each of its chunks says which of them it skipped: so one
# dataset takes blocks of a codec that now encodes in one way and now in another. All lines end with
# zstd, which zfp falls back to, and which a block of zeros is made with.

_SHUFFLE: Final = 2
_ZSTD: Final = 32015
_ZFP: Final = 32013

_FRAME: Final = 0x28
"""The first byte of a zstd frame."""

_BY_ZFP, _BY_ZSTD = 1, 2
"""First byte of a block of the codec zfp: zfp or zstd encoded it."""

_ZFP_FILTER: Final = 0x10105111
"""The versions that the filter for zfp is told of: zfp 1.0.1, its format 5, the filter 1.1.1."""

_ZFP_AXES: Final = 4


@dataclass(frozen=True)
class Pipeline:
    """The filters of one dataset, and its chunks.

    Attributes
    ----------
    numbers : tuple of int
        HDF5's numbers of the filters, in the order in which they would encode.
    chunks : mapping of int to (int, int)
        By the first byte of an encoded block: how many of its bytes come before the chunk, and the
        filters that the chunk skipped, a bit for each.
    dtype : dtype
    block : tuple of int
        The shape of a block.
    tolerance : float or None
        Of zfp.
    """

    numbers: tuple[int, ...]
    chunks: Mapping[int, tuple[int, int]]
    dtype: np.dtype[Any]
    block: tuple[int, ...]
    tolerance: float | None = None

    def filters(self) -> list[tuple[int, tuple[int, ...]]]:
        """Return the numbers, each with its options, to be set as optional filters.

        So they are not needed where the file is written. Raises BadInput where zfp is missing.
        """
        return [(number, self._options(number)) for number in self.numbers]

    def blank(self) -> tuple[bytes, int]:
        """Return a chunk of zeros, and the filters that it skipped."""
        zeros, codec = np.zeros(self.block, self.dtype), Zstd(shuffle=False)
        chunk = memoryview(bytearray(codec.bound(zeros.nbytes)))
        count = codec.encode(zeros, chunk)
        return bytes(chunk[:count]), (1 << len(self.numbers) - 1) - 1

    def _options(self, number: int) -> tuple[int, ...]:
        if number == _SHUFFLE:
            return ()  # HDF5 itself puts in the bytes of an element
        if number == _ZSTD:
            return (1,)
        # What zfp puts before a block is the same for all, and the codec leaves it out.
        options = {} if self.tolerance is None else {"tolerance": self.tolerance}
        zeros = np.zeros(_long_axes(self.block), self.dtype)
        encoded = needed("zfpy", "zfp").compress_numpy(zeros, write_header=True, **options)
        return (_ZFP_FILTER, *np.frombuffer(encoded, "<u4", 3).tolist())


def pipeline(codec: str, dtype: np.dtype[Any], block: tuple[int, ...], /) -> Pipeline | None:
    """Return the filters by which HDF5 reads blocks of this type and shape from a codec.

    None where no filters undo what it did: a codec not listed here, or blocks with more axes than
    zfp's filter takes.
    """
    # Of elements, as the codec does it: for HDF5, too, a complex number is one element.
    shuffled = (_SHUFFLE, _ZSTD) if shuffled_bytes(dtype) > 1 else (_ZSTD,)
    if codec == "zstd":
        return Pipeline((_ZSTD,), {_FRAME: (0, 0)}, dtype, block)
    if codec == "zstd+shuffle":
        return Pipeline(shuffled, {_FRAME: (0, 0)}, dtype, block)
    match = re.fullmatch(r"zfp(?:\(tolerance=(\d+(?:\.\d+)?(?:e[+-]?\d+)?)\))?", codec)
    if match is None or len(_long_axes(block)) > _ZFP_AXES:
        return None
    if dtype not in (np.float32, np.float64):  # none that zfp encodes
        return Pipeline(shuffled, {_BY_ZSTD: (1, 0)}, dtype, block)
    skips_all_but_zfp = ((1 << len(shuffled)) - 1) << 1
    chunks = {_BY_ZFP: (1 + SEAL, skips_all_but_zfp), _BY_ZSTD: (1, 1)}
    tolerance = float(match[1]) if match[1] else None
    return Pipeline((_ZFP, *shuffled), chunks, dtype, block, tolerance)


def _long_axes(block: tuple[int, ...]) -> list[int]:
    return [length for length in block if length != 1] or [1]


# The tree by which HDF5 finds the chunks of a dataset, made without HDF5
#
# It is HDF5's B-tree of version 1, as its format specification has it. HDF5 would put in one chunk
# after the other, and where in the file their entries come to lie would have to be searched for.
# Here they lie where arithmetic finds them: leaf after leaf, each full but the last. In words of 8
# bytes:
#
#     node    "TREE", 1, its level, how many entries (4 + 1 + 1 + 2 bytes); the offset of the node
#             to its left; of that to its right; the entries; in what place they end, and no offset
#     entry   of a leaf: bytes of a chunk (and, in the upper half, the filters it skipped: none);
#             its place, an index for each axis, and 0 for the bytes within a number; its offset
#             above: what the first entry below says, but for the offset, which is of the node below
#
# There are no checksums, and only a leaf is asked how many bytes a chunk has and where it lies:
# these two words can be changed in the file at any time, without harm to any other entry.

Words: TypeAlias = NDArray[np.uint64]

FANOUT: Final = 64
"""Entries of a full node, in files whose superblock has version 0."""

NODE_HEAD: Final = 24
"""Bytes of a node before its first entry."""

_WORD: Final = np.dtype("<u8")
_UNDEFINED: Final = (1 << 64) - 1
_HEADER: Final = struct.Struct("<BxHII4x")
_MESSAGE: Final = struct.Struct("<HHB3x")
_LAYOUT, _CONTINUATION = 8, 16
_CHUNKED: Final = struct.Struct("<BBBQ")


def blank_entries(count: int, axes: int, /) -> Words:
    """Return entries of zeros for a dataset with so many axes, a row for each."""
    return np.zeros((count, axes + 3), _WORD)


def node_nbytes(axes: int, /) -> int:
    """Return the bytes of a node."""
    return NODE_HEAD + 8 * ((FANOUT + 1) * (axes + 3) - 1)


def tree(entries: Words, length: int, begin: int, /) -> tuple[bytes, int]:
    """Return the nodes that lie from offset `begin`, leaves first; and the offset of the root.

    `entries` are those of all leaves, in the order of their places; `length` is that of the first
    axis of the dataset.
    """
    axes = entries.shape[1] - 3
    levels: list[bytes] = []
    while True:
        count = -(-len(entries) // FANOUT)
        offsets = begin + node_nbytes(axes) * np.arange(count, dtype=_WORD)
        padded = blank_entries(count * FANOUT + 1, axes)
        padded[: len(entries)] = entries
        padded[len(entries) :, 1] = length
        used = np.full(count, FANOUT, _WORD)
        used[-1] = len(entries) - (count - 1) * FANOUT
        nodes = np.full((count, node_nbytes(axes) // 8), _UNDEFINED, _WORD)
        nodes[:, 0] = int.from_bytes(struct.pack("<4sBB", b"TREE", 1, len(levels)), "little")
        nodes[:, 0] |= used << np.uint64(48)
        nodes[1:, 1] = offsets[:-1]
        nodes[:-1, 2] = offsets[1:]
        nodes[:, 3 : -axes - 2] = padded[:-1].reshape(count, -1)
        nodes[:, -axes - 2 :] = padded[FANOUT::FANOUT, :-1]
        levels.append(nodes.tobytes())
        if count == 1:
            return b"".join(levels), begin
        entries = padded[:-1:FANOUT].copy()
        entries[:, -1] = offsets
        begin += node_nbytes(axes) * count


def plant(file: RawIOBase, header: int, entries: Words, length: int, /) -> int:
    """Give a chunked dataset that has no tree yet one with these entries; returns its offset.

    Parameters
    ----------
    file
        An HDF5 file that is not open now; the tree goes to its end.
    header
        Offset of the dataset's object header.
    entries, length
        As in `tree`.

    Raises StorageError where HDF5 did not describe the dataset in the one way known here.
    """
    begin = append(file, b"")
    nodes, root = tree(entries, length, begin)
    append(file, nodes)
    _hang(file, header, entries.shape[1] - 3, root)
    return begin


def append(file: RawIOBase, data: bytes, /) -> int:
    """Put `data` at the end of an HDF5 file that is not open; returns its offset, a multiple of 8.

    The superblock is told of the new end: HDF5 reads nothing behind it.
    """
    begin = -(-file.seek(0, os.SEEK_END) // 8) * 8
    file.seek(begin)
    file.write(data)
    file.seek(EOF)
    file.write((begin + len(data)).to_bytes(8, "little"))
    return begin


def _hang(file: RawIOBase, header: int, axes: int, root: int) -> None:
    word = _tree_word(file, header, axes)
    file.seek(word)
    file.write(root.to_bytes(8, "little"))


def _tree_word(file: RawIOBase, header: int, axes: int) -> int:
    """Return the offset of the word in which the dataset says that its tree is nowhere."""
    expected = _CHUNKED.pack(3, 2, axes + 1, _UNDEFINED)
    version, *_, nbytes = _HEADER.unpack(_read(file, header, _HEADER.size))
    parts = [(header + _HEADER.size, nbytes)] if version == 1 else []
    for begin, nbytes in parts:  # a part may say that there is another
        at = begin
        while at + _MESSAGE.size <= begin + nbytes:
            kind, length, _ = _MESSAGE.unpack(_read(file, at, _MESSAGE.size))
            at += _MESSAGE.size
            message = _read(file, at, _CHUNKED.size)
            if kind == _LAYOUT and message == expected:
                return at + _CHUNKED.size - 8
            if kind == _CONTINUATION:
                parts.append(struct.unpack("<QQ", _read(file, at, 16)))
            at += length
    raise StorageError("this HDF5 library describes chunked datasets in a way that ckio cannot use")


def _read(file: RawIOBase, offset: int, nbytes: int) -> bytes:
    file.seek(offset)
    return file.read(nbytes)


# Views

Patch: TypeAlias = tuple[bytes, int]
"""Bytes and their offset in the file, within one node of a tree."""

Block: TypeAlias = tuple[int, int, int]
"""An encoded block: its offset in the file, how many bytes it has, and the first of them."""


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
        """FieldBlocks of the field in one checkpoint."""
        return prod(-(-n // b) for n, b in zip(self.shape, self.pipeline.block, strict=True))

    @property
    def span(self) -> tuple[int, int]:
        """Offset and bytes of the leaves of its tree, which patches change."""
        leaves = -(-self.slots * self.count // FANOUT)
        return self.leaves, leaves * node_nbytes(self._axes)

    def planted(self, file: RawIOBase, header: int, /) -> Self:
        """Return the view with its tree, at the end of a file in which HDF5 made the dataset.

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
        """Yield bytes and their offsets that make these blocks the chunks of a slot."""
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
        """Place of each block in a slot, as an entry has it: ends in 0."""
        starts = (range(0, n, b) for n, b in zip(self.shape, self.pipeline.block, strict=True))
        return list(product(*starts, (0,)))


@dataclass(frozen=True)
class Views:
    """The views of encoded checkpoints of one layout.

    Attributes
    ----------
    layout : Layout
        Layout of the checkpoints before they were encoded.
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
        """Return the views of slots for this layout, without their trees, or None.

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
        """Return the views whose dataset HDF5 made, with their trees; a header at 0 is of none."""
        fields = zip(self.fields, headers, strict=True)
        planted = (view.planted(file, at) if view and at else None for view, at in fields)
        return replace(self, fields=tuple(planted))

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Offset and bytes of the leaves of each tree."""
        return [view.span for view in self.fields if view]

    def pack(self) -> list[int]:
        """Return the offsets of the leaves of each, 0 for none; the encoding gives the rest."""
        return [view.leaves if view else 0 for view in self.fields]

    def unpack(self, leaves: Sequence[int], /) -> Self:
        """Return those of these views that were packed, with their trees."""
        fields = zip(self.fields, leaves, strict=True)
        packed = (replace(view, leaves=at) if view and at else None for view, at in fields)
        return replace(self, fields=tuple(packed))

    def patches(self, slot: int, data: memoryview, offset: int, /) -> Iterator[Patch]:
        """Yield bytes and their offsets to write between the payload of a slot and its commit.

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
