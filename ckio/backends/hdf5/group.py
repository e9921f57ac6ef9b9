"""A group of an archive: slots for checkpoints of one kind and one layout, and where they lie.

Each group begins in the file with its head, which HDF5 does not know of: eight bytes of magic, the
length of a JSON text, its xxh3_128, the text. All that ckio itself reads of a group is there.
"""

import json
import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Final, Self

import xxhash

from ckio.actions import Kind, Layout
from ckio.backends.forms import Form, form_from
from ckio.backends.hdf5.rows import FREE, ROW
from ckio.backends.hdf5.start import PAGE
from ckio.backends.runid import NOBODY, RunId
from ckio.errors import CorruptCheckpoint, StorageError

if TYPE_CHECKING:  # which brings zstandard in, for archives that may hold nothing encoded
    from ckio.backends.hdf5.views import Views

_MAGIC: Final = b"ckiogrp\x02"
_HEAD: Final = struct.Struct("<8sQ16s")
_LONGEST: Final = 1 << 24
"""Bytes of the text of a head."""

MOST_SLOTS: Final = 1 << 22
"""Slots of a group: each has a number in memory, also where a file has holes in place of rows."""

_BYTES: Final = ("|u1", "u1", "uint8")

_WORD: Final = 8
_PAGED: Final = 1 << 16
"""Slots begin on whole pages where they have so many bytes, and otherwise on whole words."""


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
    payload : int
        Offset of slot 0, in bytes.
    trees : int
        Where the trees begin by which HDF5 finds the fields; nothing else follows.
    end : int
        Where the group ends in the file, and the next one begins.
    views : Views or None
        What HDF5 sees of encoded checkpoints, field by field.
    run : RunId
        Whose archive it is in.
    """

    name: str
    kind: Kind
    form: Form
    slots: int
    rows: int
    payload: int
    trees: int
    end: int
    views: "Views | None" = None
    run: RunId = NOBODY

    @cached_property
    def seed(self) -> int:
        """What ties a row to this group and its run: a digest of run, name, kind and layout."""
        words = self.run.text, self.name, self.kind.value, self.form.text.decode()
        return xxhash.xxh3_64_intdigest("\n".join(words).encode(errors="surrogatepass"))

    def row(self, slot: int, /) -> int:
        """Offset of the row of a slot, in bytes."""
        return self.rows + slot * ROW.itemsize

    def at(self, slot: int, /) -> int:
        """Offset of a slot, where its payload begins, in bytes."""
        return self.payload + slot * self.stride

    @cached_property
    def stride(self) -> int:
        """Bytes from one slot to the next."""
        return stride(self.form)

    def patches(self, slot: int, data: memoryview, /) -> Iterable[tuple[bytes, int]]:
        """What to write at which offsets, so that views show what was put into a slot.

        Raises CorruptCheckpoint where that is not what the layout says.
        """
        if self.views is None:
            return ()
        return self.views.patches(slot, data, self.at(slot))

    def holds(self, nbytes: int, /) -> bool:
        """Whether a checkpoint of `nbytes` can lie in one of its slots."""
        size = self.form.nbytes
        return nbytes == size or (_is_plain(self.form.layout) and nbytes < size)

    def layout_of(self, nbytes: int, /) -> Layout:
        """The layout of a checkpoint of `nbytes` in one of its slots."""
        layout = self.form.layout
        return layout if nbytes == self.form.nbytes else (replace(layout[0], shape=(nbytes,)),)

    def pack(self) -> bytes:
        """Its head; raises StorageError for a layout that is too long."""
        layout = self.form.text.decode()
        leaves = self.views.pack() if self.views else []
        numbers = self.slots, self.rows, self.payload, self.trees
        text = json.dumps([self.name, self.kind.name, layout, *numbers, leaves]).encode()
        if len(text) > _LONGEST:
            raise StorageError(
                f"the text of a layout has {len(text)} bytes, and an archive keeps {_LONGEST}:"
                " use fewer fields, or shorter names"
            )
        return _HEAD.pack(_MAGIC, len(text), xxhash.xxh3_128_digest(text)) + text

    @staticmethod
    def length(head: bytes, /) -> int:
        """How many bytes the head has that begins like this; raises CorruptCheckpoint."""
        if len(head) >= _HEAD.size:
            magic, nbytes, _ = _HEAD.unpack_from(head)
            if magic == _MAGIC and nbytes <= _LONGEST:
                return _HEAD.size + int(nbytes)
        raise CorruptCheckpoint("the head of a group is damaged")

    @classmethod
    def unpack(cls, head: bytes, begin: int, end: int, /, run: RunId = NOBODY) -> Self:
        """The group of a run's archive between `begin` and `end` that has this head.

        Raises CorruptCheckpoint.
        """
        text = head[_HEAD.size :]
        try:
            if xxhash.xxh3_128_digest(text) == _HEAD.unpack_from(head)[2]:
                name, kind, layout, slots, rows, payload, trees, leaves = json.loads(text)
                numbers = (slots, rows, payload, trees, *leaves)
                if isinstance(name, str) and all(type(n) is int and n >= 0 for n in numbers):
                    form = form_from(layout.encode())
                    views = _views(form.layout, slots, leaves) if leaves else None
                    places = slots, rows, payload, trees, end
                    group = cls(name, Kind[kind], form, *places, views, run)
                    if group._lies_in(begin + len(head)):
                        return group
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError, struct.error):
            pass
        raise CorruptCheckpoint("the head of a group is damaged")

    def _lies_in(self, begin: int) -> bool:
        """Whether rows, slots and trees lie apart from each other between `begin` and its end."""
        spans = [(self.rows, self.slots * ROW.itemsize), (self.payload, self.slots * self.stride)]
        taken = sorted((at, at + nbytes) for at, nbytes in spans if nbytes)
        leaves = sorted((at, at + nbytes) for at, nbytes in self.views.spans) if self.views else []
        marks = [begin, *chain.from_iterable(taken), self.trees]
        marks += [*chain.from_iterable(leaves), self.end]
        return (
            0 < self.slots <= MOST_SLOTS and self.rows % len(FREE) == 0 and marks == sorted(marks)
        )


def _views(layout: Layout, slots: int, leaves: list[int]) -> "Views":
    """The views of a group that has some; raises ValueError where it can have none like these."""
    from ckio.backends.hdf5.views import Views

    if views := Views.of(layout, slots):
        return views.unpack(leaves)
    raise ValueError


def stride(form: Form, /) -> int:
    """Bytes from one slot to the next: one field alone lies as in an array, without gaps."""
    nbytes = form.nbytes
    unit = 1 if len(form.sizes) == 1 else PAGE if nbytes >= _PAGED else _WORD
    return -(-nbytes // unit) * unit


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
