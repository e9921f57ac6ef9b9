"""A group of an archive: slots for checkpoints of one kind and one layout, and where they lie.

Each group begins in the file with its head, which HDF5 does not know of: eight bytes of magic, the
length of a JSON text, its xxh3_128, the text. All that ckio itself reads of a group is there.
"""

import json
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Self

import xxhash

from ckio.actions import Buffers, Kind, Layout
from ckio.backends.buffers import TILE, Piece, pieces
from ckio.backends.forms import Form, form_from
from ckio.backends.hdf5_rows import ROW
from ckio.errors import CorruptCheckpoint

_MAGIC: Final = b"ckiogrp\x01"
_HEAD: Final = struct.Struct("<8sQ16s")
_BYTES: Final = ("|u1", "u1", "uint8")


@dataclass(frozen=True, eq=False)
class Group:
    """Slots in the file.

    Attributes
    ----------
    name : str
        What HDF5 calls it.
    form : Form
        What a slot has room for.
    slots : int
        How many.
    rows : int
        Offset of the key table, in bytes.
    fields : tuple of int
        Offset of slot 0 for each field, in bytes.
    end : int
        Where the group ends in the file, and the next one begins.
    """

    name: str
    kind: Kind
    form: Form
    slots: int
    rows: int
    fields: tuple[int, ...]
    end: int

    @cached_property
    def seed(self) -> int:
        """What ties a row to this group: a digest of its kind and layout."""
        return xxhash.xxh3_64_intdigest(self.kind.value.encode() + self.form.text)

    def row(self, slot: int, /) -> int:
        """Offset of the row of a slot, in bytes."""
        return self.rows + slot * ROW.itemsize

    def pieces(self, slot: int, data: Buffers, /) -> Iterable[Piece]:
        """Buffers with their offsets in the file."""
        places = zip(data, self.fields, self.form.sizes, strict=True)
        if self.form.nbytes <= TILE:
            return [((view,), start + slot * nbytes) for view, start, nbytes in places]
        return self._cut(slot, data)

    def _cut(self, slot: int, data: Buffers) -> Iterator[Piece]:
        for view, start, nbytes in zip(data, self.fields, self.form.sizes, strict=True):
            yield from pieces((view,), start + slot * nbytes)

    def holds(self, nbytes: int, /) -> bool:
        """Whether a checkpoint of `nbytes` can lie in one of its slots."""
        size = self.form.nbytes
        return nbytes == size or (_is_plain(self.form.layout) and nbytes < size)

    def layout_of(self, nbytes: int, /) -> Layout:
        """The layout of a checkpoint of `nbytes` in one of its slots."""
        layout = self.form.layout
        return layout if nbytes == self.form.nbytes else (replace(layout[0], shape=(nbytes,)),)

    def pack(self) -> bytes:
        """Its head."""
        layout = self.form.text.decode()
        values = [self.name, self.kind.name, layout, self.slots, self.rows, self.fields, self.end]
        text = json.dumps(values).encode()
        return _HEAD.pack(_MAGIC, len(text), xxhash.xxh3_128_digest(text)) + text

    @staticmethod
    def length(head: bytes, /) -> int:
        """How many bytes the head has that begins like this; 0 if none does."""
        magic, nbytes, _ = _HEAD.unpack_from(head)
        return _HEAD.size + int(nbytes) if magic == _MAGIC else 0

    @classmethod
    def unpack(cls, head: bytes, begin: int, /) -> Self:
        """The group that begins at `begin` with this head; raises CorruptCheckpoint."""
        text = head[_HEAD.size :]
        try:
            if xxhash.xxh3_128_digest(text) == _HEAD.unpack_from(head)[2]:
                name, kind, layout, slots, rows, fields, end = json.loads(text)
                form = form_from(layout.encode())
                group = cls(name, Kind[kind], form, slots, rows, tuple(fields), end)
                if group._is_between(begin, end):
                    return group
        except (ValueError, TypeError, LookupError, AttributeError, struct.error):
            pass
        raise CorruptCheckpoint("the head of a group is damaged")

    def _is_between(self, begin: int, end: int) -> bool:
        """Whether all its rows and slots lie in this part of the file."""
        places = zip((self.rows, *self.fields), (ROW.itemsize, *self.form.sizes), strict=True)
        return all(
            begin <= at and at + self.slots * nbytes <= end for at, nbytes in places if nbytes
        )


def family(layout: Layout, /) -> Layout:
    """The layout that stands for all those which share slots: itself, but for plain bytes.

    Plain bytes come in any number, as codecs make them: slots of a few sizes serve them all.
    """
    return (replace(layout[0], shape=(0,)),) if _is_plain(layout) else layout


def slot_layout(layout: Layout, nbytes: int, /) -> Layout:
    """The layout of slots for checkpoints like this one, with up to `nbytes`."""
    return (replace(layout[0], shape=(room(nbytes),)),) if _is_plain(layout) else layout


def slot_nbytes(layout: Layout, nbytes: int, /) -> int:
    """Bytes of such a slot."""
    return room(nbytes) if _is_plain(layout) else nbytes


def serves(size: int, layout: Layout, nbytes: int, /) -> bool:
    """Whether a checkpoint may go to a slot of this size; at most half of it is wasted."""
    return size == nbytes or (_is_plain(layout) and nbytes <= size <= 2 * max(nbytes, 64))


def _is_plain(layout: Layout) -> bool:
    return len(layout) == 1 and layout[0].dtype in _BYTES and len(layout[0].shape) == 1


def room(nbytes: int, /) -> int:
    """`nbytes` rounded up to one of eight sizes per power of two, and to a multiple of 64."""
    step = 1 << max(nbytes.bit_length() - 4, 6)
    return -(-nbytes // step) * step
