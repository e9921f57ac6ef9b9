"""Views: encoded checkpoints as chunked datasets of HDF5, one for each field.

Promise: plain h5py, with hdf5plugin, reads every stored slot of a compressed archive, also after a
kill at any moment. Tests: test_a_killed_writer_loses_nothing_and_leaves_nothing_torn,
test_h5py_reads_the_others_after_every_single_write_of_growth_and_commits.

The encoded bytes are stored in slots of plain bytes, and ckio itself reads only these. A view has a
chunk for each block of its field in each slot. The chunk index of the dataset, a B-tree, points
into the slots. Therefore h5py can read the field through HDF5 filters that decode the blocks.
Slots, tree and entries are written without h5py, because h5py would choose the offsets of chunks
and of their metadata itself.

The tree is created with the group and keeps its shape. A commit changes only the entries of its own
slot while the slot is free, so that an incomplete change does no harm. The entries of a free slot
point to the previous checkpoint in this slot, or to a block of zeros.
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
from ckio.backends.encoded import SIZE, sizes_in
from ckio.backends.hdf5.heads import EOF
from ckio.compression.base import needed, shuffled_bytes
from ckio.compression.zstd import Zstd
from ckio.errors import StorageError

# Filters, with which HDF5 decodes the blocks of a codec without ckio
#
# A dataset has a pipeline of filters, and each chunk has a mask of the filters that it skips.
# Therefore one dataset can contain blocks that the same codec encoded in different ways. All
# pipelines end with zstd: the codec zfp uses zstd for blocks that it cannot compress, and a block
# of zeros is encoded with zstd.

_SHUFFLE: Final = 2
_ZSTD: Final = 32015
_ZFP: Final = 32013

_FRAME: Final = 0x28
"""The first byte of a zstd frame."""

_BY_ZFP, _BY_ZSTD = 1, 2
"""First byte of a block of the codec zfp: it was encoded by zfp or by zstd."""

_ZFP_FILTER: Final = 0x10105111
"""The version numbers in the options of the zfp filter: zfp 1.0.1, its format 5, filter 1.1.1."""

_ZFP_AXES: Final = 4


@dataclass(frozen=True)
class Pipeline:
    """The filters of one dataset, and the form of its chunks.

    Attributes
    ----------
    numbers : tuple of int
        HDF5's numbers of the filters, in the order of encoding.
    chunks : mapping of int to (int, int)
        For each possible first byte of an encoded block: the number of bytes of the block before
        the chunk, and the mask of the filters that the chunk skips.
    dtype : dtype
    block : tuple of int
        The shape of a block.
    tolerance : float or None
        The tolerance of zfp, in the unit of the field.
    """

    numbers: tuple[int, ...]
    chunks: Mapping[int, tuple[int, int]]
    dtype: np.dtype[Any]
    block: tuple[int, ...]
    tolerance: float | None = None

    def filters(self) -> list[tuple[int, tuple[int, ...]]]:
        """Return the number and the options of each filter.

        They are set as optional filters, so that the writing program does not need the plugins.
        Raises BadInput if zfp is needed and the package zfpy is missing.
        """
        return [(number, self._options(number)) for number in self.numbers]

    def blank(self) -> tuple[bytes, int]:
        """Return the bytes of a chunk of zeros, and the mask of the filters that it skips."""
        zeros, codec = np.zeros(self.block, self.dtype), Zstd(shuffle=False)
        chunk = memoryview(bytearray(codec.bound(zeros.nbytes)))
        count = codec.encode(zeros, chunk)
        return bytes(chunk[:count]), (1 << len(self.numbers) - 1) - 1

    def _options(self, number: int) -> tuple[int, ...]:
        if number == _SHUFFLE:
            return ()  # HDF5 itself sets the bytes of an element
        if number == _ZSTD:
            return (1,)
        # The header that zfp writes before a block is the same for all blocks. The codec omits it,
        # and the filter takes it from these options.
        options = {} if self.tolerance is None else {"tolerance": self.tolerance}
        zeros = np.zeros(_long_axes(self.block), self.dtype)
        encoded = needed("zfpy", "zfp").compress_numpy(zeros, write_header=True, **options)
        return (_ZFP_FILTER, *np.frombuffer(encoded, "<u4", 3).tolist())


def pipeline(codec: str, dtype: np.dtype[Any], block: tuple[int, ...], /) -> Pipeline | None:
    """Return the filters with which HDF5 decodes blocks of this type and shape from a codec.

    Return None if no filters can do this, because the codec is not listed here or because the
    blocks have more axes than the zfp filter supports.
    """
    # The codec shuffles the bytes of elements; a complex number is one element, also for HDF5.
    shuffled = (_SHUFFLE, _ZSTD) if shuffled_bytes(dtype) > 1 else (_ZSTD,)
    if codec == "zstd":
        return Pipeline((_ZSTD,), {_FRAME: (0, 0)}, dtype, block)
    if codec == "zstd+shuffle":
        return Pipeline(shuffled, {_FRAME: (0, 0)}, dtype, block)
    match = re.fullmatch(r"zfp(?:\(tolerance=(\d+(?:\.\d+)?(?:e[+-]?\d+)?)\))?", codec)
    if match is None or len(_long_axes(block)) > _ZFP_AXES:
        return None
    if dtype not in (np.float32, np.float64):  # zfp encodes no other types
        return Pipeline(shuffled, {_BY_ZSTD: (1, 0)}, dtype, block)
    skips_all_but_zfp = ((1 << len(shuffled)) - 1) << 1
    chunks = {_BY_ZFP: (0, skips_all_but_zfp), _BY_ZSTD: (1, 1)}
    tolerance = float(match[1]) if match[1] else None
    return Pipeline((_ZFP, *shuffled), chunks, dtype, block, tolerance)


def _long_axes(block: tuple[int, ...]) -> list[int]:
    return [length for length in block if length != 1] or [1]


# The tree by which HDF5 finds the chunks of a dataset, made without HDF5
#
# It is a B-tree of version 1 of the HDF5 file format specification. If HDF5 made it, chunk by
# chunk, the offsets of the entries would have to be searched for. Here the leaves follow each
# other, each full except the last, so that the offset of an entry can be computed. In words of 8
# bytes:
#
#     node    "TREE", 1, its level, number of entries (4 + 1 + 1 + 2 bytes); offset of the node to
#             its left; offset of the node to its right; the entries; then a last entry with the
#             end of the index range and no offset
#     entry   in a leaf: bytes of the chunk (and, in the upper half, the mask of skipped filters);
#             its index for each axis, and 0 for the axis of bytes within a number; its offset.
#             above the leaves: a copy of the first entry of the node below, with its offset
#
# There are no checksums. HDF5 reads the size and the offset of a chunk only from a leaf. Therefore
# these two words can be changed in the file at any time without an effect on other entries.

Words: TypeAlias = NDArray[np.uint64]

FANOUT: Final = 64
"""Number of entries of a full node, in files whose superblock has version 0."""

NODE_HEAD: Final = 24
"""Bytes of a node before its first entry."""

_WORD: Final = np.dtype("<u8")
_UNDEFINED: Final = (1 << 64) - 1
_HEADER: Final = struct.Struct("<BxHII4x")
_MESSAGE: Final = struct.Struct("<HHB3x")
_LAYOUT, _CONTINUATION = 8, 16
_CHUNKED: Final = struct.Struct("<BBBQ")


def blank_entries(count: int, axes: int, /) -> Words:
    """Return `count` entries of zeros, one per row, for a dataset with this number of axes."""
    return np.zeros((count, axes + 3), _WORD)


def node_nbytes(axes: int, /) -> int:
    """Return the bytes of a node."""
    return NODE_HEAD + 8 * ((FANOUT + 1) * (axes + 3) - 1)


def tree(entries: Words, length: int, begin: int, /) -> tuple[bytes, int]:
    """Return the bytes of all nodes, leaves first, and the file offset of the root.

    `entries` are the entries of all leaves in the order of their chunks. `length` is the length of
    the first axis of the dataset. `begin` is the file offset of the nodes.
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
    """Append a tree with these entries for a chunked dataset that has none; return its offset.

    Parameters
    ----------
    file
        An HDF5 file that HDF5 has closed; the tree is appended to it.
    header
        Offset of the dataset's object header.
    entries, length
        As in `tree`.

    Raises StorageError if the HDF5 library described the dataset in a way that is not known here.
    """
    begin = append(file, b"")
    nodes, root = tree(entries, length, begin)
    append(file, nodes)
    _hang(file, header, entries.shape[1] - 3, root)
    return begin


def append(file: RawIOBase, data: bytes, /) -> int:
    """Append `data` to an HDF5 file that HDF5 has closed; return its offset, a multiple of 8.

    The new end is also written to the superblock, because HDF5 reads nothing after that end.
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
    """Return the offset of the word for the tree's offset; the word is still undefined."""
    expected = _CHUNKED.pack(3, 2, axes + 1, _UNDEFINED)
    version, *_, nbytes = _HEADER.unpack(_read(file, header, _HEADER.size))
    parts = [(header + _HEADER.size, nbytes)] if version == 1 else []
    for begin, nbytes in parts:  # a part may refer to another one, which is appended
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
"""Bytes to write and their offset in the file, within one node of a tree."""

Block: TypeAlias = tuple[int, int, int]
"""An encoded block: its offset in the file, its number of bytes, and its first byte."""


@dataclass(frozen=True)
class View:
    """The blocks of one field in all slots, as chunks of one dataset.

    Attributes
    ----------
    shape : tuple of int
        Shape of the field.
    slots : int
        Number of slots.
    pipeline : Pipeline
        The filters and the shape of blocks; no axis of a block is longer than the field's axis.
    leaves : int
        Offset of the first leaf of the tree, in bytes; 0 if there is no tree yet.
    """

    shape: tuple[int, ...]
    slots: int
    pipeline: Pipeline
    leaves: int = 0

    @cached_property
    def count(self) -> int:
        """Number of blocks of the field in one checkpoint."""
        return prod(-(-n // b) for n, b in zip(self.shape, self.pipeline.block, strict=True))

    @property
    def span(self) -> tuple[int, int]:
        """Offset and bytes of the leaves of the tree, which patches change."""
        leaves = -(-self.slots * self.count // FANOUT)
        return self.leaves, leaves * node_nbytes(self._axes)

    def planted(self, file: RawIOBase, header: int, /) -> Self:
        """Append the tree of this view to a file, and return the view with its tree.

        HDF5 has made the dataset before, of shape (slots, *shape) with chunks of (1, *block).

        Parameters
        ----------
        file
            The file, which HDF5 has closed.
        header
            Offset of the dataset's object header.

        Raises StorageError if the HDF5 library made the dataset in a way that is not known here.
        """
        blank, skipped = self.pipeline.blank()
        entries = blank_entries(self.slots * self.count, self._axes)
        entries[:, 0] = len(blank) | skipped << 32
        entries[:, 1] = np.repeat(np.arange(self.slots), self.count)
        entries[:, 2:-1] = np.tile(np.array(self._places, np.uint64), (self.slots, 1))
        entries[:, -1] = append(file, blank)
        return replace(self, leaves=plant(file, header, entries, self.slots))

    def patches(self, slot: int, blocks: Iterable[Block], /) -> Iterator[Patch]:
        """Yield the patches that make these blocks the chunks of a slot."""
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
        """The index of each block in a slot, in the form of an entry, with 0 at its end."""
        starts = (range(0, n, b) for n, b in zip(self.shape, self.pipeline.block, strict=True))
        return list(product(*starts, (0,)))


@dataclass(frozen=True)
class Views:
    """The views of encoded checkpoints of one layout.

    Attributes
    ----------
    layout : Layout
        Layout of the checkpoints before encoding.
    fields : tuple of View or None
        The view of each field; None if HDF5 cannot decode the field.
    firsts : tuple of int
        The number of the first block of each field; then the number of all blocks.
    """

    layout: Layout
    fields: tuple[View | None, ...]
    firsts: tuple[int, ...]

    @classmethod
    def of(cls, layout: Layout, slots: int, /) -> Self | None:
        """Return the views of slots for this layout: none."""
        return None

    def planted(self, file: RawIOBase, headers: Iterable[int], /) -> Self:
        """Append the trees to a file and return the views that have a dataset.

        `headers` has the offset of each dataset's object header, 0 if there is no dataset.
        """
        fields = zip(self.fields, headers, strict=True)
        planted = (view.planted(file, at) if view and at else None for view, at in fields)
        return replace(self, fields=tuple(planted))

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Offset and bytes of the leaves of each tree."""
        return [view.span for view in self.fields if view]

    def pack(self) -> list[int]:
        """Return the offset of the leaves of each view, 0 for a field without a view.

        The other attributes follow from the layout.
        """
        return [view.leaves if view else 0 for view in self.fields]

    def unpack(self, leaves: Sequence[int], /) -> Self:
        """Return these views with the offsets of leaves that `pack` returned."""
        fields = zip(self.fields, leaves, strict=True)
        packed = (replace(view, leaves=at) if view and at else None for view, at in fields)
        return replace(self, fields=tuple(packed))

    def patches(self, slot: int, data: memoryview, offset: int, /) -> Iterator[Patch]:
        """Yield the patches to write after the payload of a slot and before its commit.

        Parameters
        ----------
        slot
            The slot.
        data
            The encoded bytes.
        offset
            The offset of these bytes in the file.

        Raises CorruptCheckpoint if they are not the blocks of this layout.
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
