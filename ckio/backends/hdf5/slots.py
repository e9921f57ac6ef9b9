"""The slots of an archive: their rows, their groups, and the choice of a slot for a checkpoint."""

import struct
from binascii import hexlify, unhexlify
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, NamedTuple, Self

import numpy as np
import xxhash

from ckio.actions import Key, Kind, Layout
from ckio.backends.forms import Form, form_of
from ckio.backends.freeslots import rounded
from ckio.backends.runid import RunId
from ckio.errors import LevelFull, StorageError

_LINE: Final = 64
"""The size of a slot for plain bytes is a multiple of this number of bytes."""

NAME: Final = 64
"""Maximum bytes of the name of a key."""

ROW: Final = np.dtype(
    [
        ("state", "S8"),
        ("commit", "<u8"),
        ("slot", "<u8"),
        ("kind", "S8"),
        ("step", "<u8"),
        ("name", f"S{NAME}"),
        ("nbytes", "<u8"),
        ("written", "<f8"),
        ("xxh3_128", "S32"),
        ("row_xxh3", "<u8"),
    ]
)
STORED: Final = b"stored\0\0"
"""State of a row whose slot has a checkpoint."""

FREE: Final = bytes(len(STORED))
"""State of a row whose slot is free; the rest of the row has no meaning then."""

_ROW: Final = struct.Struct(f"<8sQQ8sQ{NAME}sQd32s")
_ROW_CHECK: Final = struct.Struct("<Q")
_WORDS: Final = {kind: kind.name.lower().encode() for kind in Kind}
_KINDS: Final = {word.ljust(8, b"\0"): kind for kind, word in _WORDS.items()}
_TEXT: Final = ("utf-8", "surrogatepass")


class Row(NamedTuple):
    """The row of a stored checkpoint.

    Attributes
    ----------
    commit : int
        The number of the write, from 1.
    nbytes : int
        Bytes of the payload.
    written : float
        Time of writing, in seconds since 1970 (UTC).
    digest : bytes
        The xxh3_128 of the payload; empty if it was written without a checksum.
    """

    commit: int
    slot: int
    key: Key
    nbytes: int
    written: float
    digest: bytes

    def pack(self, seed: int, /) -> bytes:
        """Return the bytes of a valid row; `seed` is that of its group.

        Raises StorageError if a row cannot store its key.
        """
        commit, slot, key, nbytes, written, digest = self
        name = key.name.encode(*_TEXT) if key.name else b""
        if key.step >= 1 << 64 or len(name) > NAME or name.endswith(b"\0"):
            raise StorageError(
                f"{key}: an archive stores steps below 2**64, and names of at most {NAME} bytes"
                " that do not end in NUL"
            )
        word, text = _WORDS[key.kind], hexlify(digest)
        row = _ROW.pack(STORED, commit, slot, word, key.step, name, nbytes, written, text)
        return row + _ROW_CHECK.pack(xxhash.xxh3_64_intdigest(row, seed))

    @classmethod
    def unpack(cls, row: bytes, slot: int, seed: int, /) -> Self | None:
        """Return the row of a slot of the group with this seed; None if it is not valid."""
        (check,) = _ROW_CHECK.unpack_from(row, _ROW.size)
        if xxhash.xxh3_64_intdigest(row[: _ROW.size], seed) != check:
            return None
        state, commit, at, kind, step, name, nbytes, written, text = _ROW.unpack_from(row)
        if state != STORED or at != slot:
            return None
        key = Key(_KINDS[kind], step, name.rstrip(b"\0").decode(*_TEXT))
        return cls(commit, slot, key, nbytes, written, unhexlify(text.rstrip(b"\0")))


# Groups and their slots


@dataclass(frozen=True, eq=False)
class Group:
    """Slots for checkpoints of one kind and one layout, and the offsets of its datasets.

    Attributes
    ----------
    name : str
        Name of the group in HDF5.
    kind : Kind
        Kind of its checkpoints.
    form : Form
        Form of the largest checkpoint that fits a slot.
    slots : int
        Number of slots.
    rows : int
        Offset of the row of slot 0, in bytes.
    fields : tuple of int
        Offset of slot 0 of each field.
    run : RunId
        The run of the archive.
    """

    name: str
    kind: Kind
    form: Form
    slots: int
    rows: int
    fields: tuple[int, ...]
    run: RunId

    @cached_property
    def seed(self) -> int:
        """Seed of the checksums of rows: a digest of run, name, kind and layout.

        With it, a row of another group or run does not look valid.
        """
        words = self.run.text, self.name, self.kind.value, self.form.text.decode()
        return xxhash.xxh3_64_intdigest("\n".join(words).encode(errors="surrogatepass"))

    @cached_property
    def _places(self) -> list[tuple[int, int]]:
        return list(zip(self.fields, self.form.sizes, strict=True))

    def row(self, slot: int, /) -> int:
        """Return the offset of the row of a slot, in bytes."""
        return self.rows + slot * ROW.itemsize

    def offsets(self, slot: int, /) -> list[int]:
        """Return the offset of each field in a slot, in bytes."""
        return [begin + slot * size for begin, size in self._places]

    def spans(self, slot: int, nbytes: int, /) -> tuple[tuple[int, int], ...]:
        """Return the offset and the bytes of each field of a checkpoint of `nbytes` in a slot."""
        sizes = [nbytes] if is_plain(self.form.layout) else self.form.sizes
        return tuple(zip(self.offsets(slot), sizes, strict=True))

    def layout_of(self, nbytes: int, /) -> Layout:
        """Return the layout of a checkpoint of `nbytes` in one of its slots."""
        layout = self.form.layout
        return layout if nbytes == self.form.nbytes else (replace(layout[0], shape=(nbytes,)),)

    def holds(self, nbytes: int, /) -> bool:
        """Return whether a checkpoint of `nbytes` fits one of the slots."""
        size = self.form.nbytes
        return nbytes == size or (is_plain(self.form.layout) and nbytes < size)


class Slot(NamedTuple):
    """Space for one checkpoint: number `number` of a group."""

    group: Group
    number: int


def is_plain(layout: Layout, /) -> bool:
    """Return whether a layout is one field of plain bytes; their number differs by checkpoint."""
    plain = ("|u1", "u1", "uint8")
    return len(layout) == 1 and layout[0].dtype in plain and len(layout[0].shape) == 1


def _of_size(layout: Layout, nbytes: int) -> Layout:
    """Return the layout of slots for checkpoints like this one with up to `nbytes`."""
    return (replace(layout[0], shape=(nbytes,)),) if is_plain(layout) else layout


_SLACK: Final = 1 << 15
"""Bytes of metadata for each reserved size: 32 KiB, which a group of about 50 fields has.

Datasets of 1 MiB or more begin on a page, for which a 256th of their bytes is reserved.
"""

_REMEMBERED: Final = 64
"""Number of forms whose groups are remembered."""


class ArchiveSlots:
    """The free slots of an archive, and the choice of a slot for a checkpoint.

    A new group has as many slots as were reserved for its size; without a reservation, as many as
    are occupied by such checkpoints already. Checkpoints of plain bytes, for example compressed
    ones, take any free slot that is large enough, the smallest first. Only checkpoints with the
    same name and unit share slots, because the unit describes them before compression.

    Parameters
    ----------
    capacity
        Maximum payload bytes of the level; None means no limit but the disk.
    make
        Function that makes a group with this number of slots; raises LevelFull or OSError.

    Attributes
    ----------
    free : dict
        The free slots of each group; the last one is taken first.
    reserved : dict
        Slots that were reserved and are not made yet, `{bytes: number}`.
    """

    def __init__(self, capacity: int | None, make: Callable[[Kind, Form, int], Group]) -> None:
        self.free: dict[Group, list[int]] = {}
        self.reserved: dict[int, int] = {}
        self._capacity, self._make = capacity, make
        self._families: dict[tuple[Kind, Layout], list[Group]] = {}
        """The groups whose slots are shared: plain bytes of all sizes are one family."""
        self._remembered: dict[tuple[Kind, Form], list[Group]] = {}
        """The family of a form, found without making its layout, which takes longer."""

    def adopt(self, group: Group, free: Iterable[int], /) -> None:
        """Add a group with these free slots."""
        self.free[group] = list(free)
        family = self._family(group.kind, group.form)
        family.append(group)
        family.sort(key=lambda it: it.form.nbytes)

    def give(self, slot: Slot, /) -> None:
        """Take back a slot."""
        self.free[slot.group].append(slot.number)

    def take(self, kind: Kind, form: Form, /) -> Slot:
        """Return a free slot for a checkpoint, if necessary of a new group.

        Raises LevelFull or OSError if the file cannot grow.
        """
        family, nbytes = self._family(kind, form), form.nbytes
        for group in family:
            if group.form.nbytes >= nbytes and (free := self.free[group]):
                return Slot(group, free.pop())
        taken = sum(group.slots - len(self.free[group]) for group in family)
        count = max(self.reserved.get(self._reserved_for(form), 0), taken, 1)
        if self._capacity is not None and nbytes:
            count = max(1, min(count, self._capacity // nbytes - taken))
        try:
            group = self._new(kind, form, count)
        except (LevelFull, OSError):
            if count == 1:
                raise
            group = self._new(kind, form, 1)
        return Slot(group, self.free[group].pop())

    def prepare(self, kind: Kind, form: Form, count: int, /) -> None:
        """Make slots until there are `count` for such checkpoints; raises LevelFull or OSError."""
        family, nbytes = self._family(kind, form), form.nbytes
        lacking = count - sum(group.slots for group in family if group.form.nbytes >= nbytes)
        if lacking > 0:
            self._new(kind, form, lacking)

    def reserve(self, sizes: Mapping[int, int], /) -> int:
        """Replace the reservation; return the bytes that its new slots need in the file."""
        self.reserved, needed = {}, 0
        for nbytes, count in sizes.items():
            size = rounded(nbytes, _LINE)
            alike = (it.slots for it in self.free if it.form.nbytes in (nbytes, size))
            if (lacking := count - sum(alike)) > 0:
                self.reserved[nbytes] = lacking
                payload = lacking * size
                needed += _SLACK + payload + payload // 256 + lacking * ROW.itemsize
        return needed

    def _new(self, kind: Kind, form: Form, count: int) -> Group:
        size = self._reserved_for(form) or form.nbytes
        group = self._make(kind, form_of(_of_size(form.layout, rounded(size, _LINE))), count)
        if size in self.reserved:
            self.reserved[size] = max(0, self.reserved[size] - count)
        self.adopt(group, reversed(range(count)))
        return group

    def _reserved_for(self, form: Form) -> int:
        """Return the smallest reserved size that suits a checkpoint; 0 if there is none."""
        if not is_plain(form.layout):
            return form.nbytes
        return min(
            (n for n, count in self.reserved.items() if count and n >= form.nbytes), default=0
        )

    def _family(self, kind: Kind, form: Form) -> list[Group]:
        """Return the groups whose slots such checkpoints share, in the order of their sizes."""
        if (groups := self._remembered.get((kind, form))) is None:
            if len(self._remembered) >= _REMEMBERED:
                self._remembered.clear()
            groups = self._families.setdefault((kind, _of_size(form.layout, 0)), [])
            self._remembered[kind, form] = groups
        return groups
