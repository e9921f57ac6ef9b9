"""The tree by which HDF5 finds the chunks of a dataset, made without HDF5.

It is HDF5's B-tree of version 1, as its format specification has it. HDF5 would put in one chunk
after the other, and where in the file their entries come to lie would have to be searched for. Here
they lie where arithmetic finds them: leaf after leaf, each full but the last. In words of 8 bytes:

    node    "TREE", 1, its level, how many entries (4 + 1 + 1 + 2 bytes); the offset of the node to
            its left; of that to its right; the entries; in what place they end, and no offset
    entry   of a leaf: bytes of a chunk (and, in the upper half, the filters it skipped: none); its
            place, an index for each axis, and 0 for the bytes within a number; its offset
            above: what the first entry below says, but for the offset, which is of the node below

There are no checksums, and only a leaf is asked how many bytes a chunk has and where it lies: these
two words can be changed in the file at any time, without harm to what any other entry says.
"""

import os
import struct
from io import RawIOBase
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ckio.backends.hdf5.start import EOF
from ckio.errors import StorageError

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
    """Room for entries of a dataset with so many axes, a row for each."""
    return np.zeros((count, axes + 3), _WORD)


def node_nbytes(axes: int, /) -> int:
    """Bytes of a node."""
    return NODE_HEAD + 8 * ((FANOUT + 1) * (axes + 3) - 1)


def tree(entries: Words, length: int, begin: int, /) -> tuple[bytes, int]:
    """The nodes as they are to lie from offset `begin`, leaves first; and the offset of the root.

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
    """Offset of the word in which the dataset says where its tree is: nowhere."""
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
