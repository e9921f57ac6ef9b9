"""The bytes of an archive that ckio itself reads: its first pages, heads of groups, and rows.

**The first pages** say what belongs to an archive. In pages of 4096 bytes:

    page 0        HDF5's superblock, and the names of the groups
    page 1        HDF5's links to the groups
    page 2        ckio's index: where each group begins; the id of the run that the archive is of;
                  at its end the seal
    pages 3 to 5  the mirror: the same three pages once more

The seal has the version of the format, where the groups begin and end, and a check of all three
pages together. An archive grows in three stages, each on the device before the next one begins
(where the level syncs):

    1. the new group is written behind the end, where nothing points to yet
    2. the mirror is replaced
    3. the pages are replaced, in their order

A write that a failing machine tears leaves some of its sectors old. When the pages of before are
called g and the new ones g+1, an archive is found in one of these states:

    pages       mirror      when                        is taken
    g           g           before stage 2              g
    g           not sound   in stage 2                  g
    g           g+1         between stages 2 and 3      g
    not sound   g+1         in stage 3                  g+1
    g+1         g+1         afterwards                  g+1

A page 0 of g+1 beside a page 1 of g is not sound, because the seal checks them together. Both ends
are complete archives: all that g+1 refers to was written before its mirror. A disk that fails
in stage 3 is taken back, pages first, through the same five lines from below. The copy that is not
taken is replaced at opening, and before each growth: so no mirror outlives the bytes that it refers
to. A flipped bit in one copy is mended from the other; both damaged is an error.

**A group** begins with its head, which HDF5 does not know of: eight bytes of magic, the length of a
JSON text, its xxh3_128, the text.

**A row** says which checkpoint lies in a slot. It is committed by its first eight bytes, `state`:
where it could be half written, they are written alone, after all the others; and they are cleared
alone. So a row is free, or sound, or was damaged.
"""

import errno
import json
import os
import struct
from binascii import hexlify, unhexlify
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import numpy as np
import xxhash

from ckio import __version__
from ckio.actions import Key, Kind, Layout
from ckio.backends.files import Files
from ckio.backends.forms import Form, form_from
from ckio.backends.runid import NBYTES, NOBODY, RunId
from ckio.errors import BadInput, CorruptCheckpoint, StorageError

if TYPE_CHECKING:  # which brings zstandard in, for archives that may hold nothing encoded
    from ckio.backends.hdf5.views import Views

# The first pages

VERSION: Final = 3
"""The version of the format; no other is read."""

PAGE: Final = 4096
"""Bytes that a kill cannot tear when they are written at once."""

EOF: Final = 40
"""Offset of the eight bytes of the superblock that say where the file ends for HDF5."""

MAX_GROUPS: Final = 96
"""Groups to which HDF5 has links in one page."""

_PAGES: Final = 3 * PAGE
FIXED: Final = 2 * _PAGES
"""Offset of the part of an archive that never changes."""

SIGNATURE: Final = b"\x89HDF\r\n\x1a\n"
"""First bytes of an HDF5 file."""

_NAME: Final = b"ckioarc"
_MAGIC: Final = _NAME + bytes([VERSION])
_INDEX: Final = struct.Struct(f"<{MAX_GROUPS}Q")
_SEAL: Final = struct.Struct("<8sQQQ")
"""Magic, where the groups begin and end, and the check of what lies between here and there."""

_CHECK: Final = 8
_MOST_FIXED: Final = 1 << 20


def check(data: bytes, /) -> int:
    """Return the digest of some bytes, in eight."""
    return xxhash.xxh3_64_intdigest(data)


@dataclass(frozen=True)
class Start:
    """The first three pages, sound as their seal says.

    Attributes
    ----------
    pages : bytes
        Pages 0 to 2.
    fixed : int
        Check of the bytes between the mirror and the first group.
    begin : int
        Where the groups begin, in bytes.
    end : int
        Where the groups end.
    groups : tuple of int
        Where each of them begins; the first one at `begin`.
    run : RunId
        Whose archive it is.
    """

    pages: bytes
    fixed: int
    begin: int
    end: int
    groups: tuple[int, ...]
    run: RunId

    @classmethod
    def sealed(
        cls,
        page: bytes,
        leaf: bytes,
        *,
        fixed: int,
        begin: int,
        end: int,
        groups: tuple[int, ...],
        run: RunId,
    ) -> Self:
        """Return the pages with these two of HDF5."""
        index = _INDEX.pack(*groups, *(MAX_GROUPS - len(groups)) * [0]) + run.pack()
        seal = _SEAL.pack(_MAGIC, begin, end, fixed)
        body = page + leaf + index.ljust(PAGE - _SEAL.size - _CHECK, b"\0") + seal
        return cls(body + check(body).to_bytes(_CHECK, "little"), fixed, begin, end, groups, run)

    @classmethod
    def unpack(cls, pages: bytes) -> Self | None:
        """Return the pages, or None if they are not sound."""
        body = pages[:-_CHECK]
        if len(pages) != _PAGES or check(body).to_bytes(_CHECK, "little") != pages[-_CHECK:]:
            return None
        magic, begin, end, fixed = _SEAL.unpack(body[-_SEAL.size :])
        index = _INDEX.unpack_from(body, 2 * PAGE)
        groups = tuple(at for at in index if at)
        try:
            run = RunId.unpack(body[2 * PAGE + _INDEX.size :][:NBYTES])
        except ValueError:
            return None
        start = cls(pages, fixed, begin, end, groups, run)
        return start if magic == _MAGIC and start._is_sensible() else None

    def _is_sensible(self) -> bool:
        """Return whether groups lie one behind the other, between reasonable limits."""
        marks = (*self.groups, self.end)
        return (
            FIXED <= self.begin == marks[0]
            and self.begin - FIXED <= _MOST_FIXED
            and all(a < b for a, b in pairwise(marks))
        )

    def spans(self) -> list[tuple[int, int]]:
        """Return where each group begins and ends."""
        return list(pairwise((*self.groups, self.end)))

    @property
    def eof(self) -> int:
        """Offset at which the file ends for HDF5."""
        return int.from_bytes(self.pages[EOF : EOF + 8], "little")


def load(files: Files, fd: int, name: str, /) -> Start:
    """Return the first pages of an open archive, or their mirror; nothing is changed.

    Raises BadInput if it is not an archive, or of another format, StorageError if it is damaged.
    """
    data = bytes_at(files, fd, 0, min(files.size(fd), FIXED))
    pages, mirror = Start.unpack(data[:_PAGES]), Start.unpack(data[_PAGES:])
    start = pages or mirror
    if start is None:
        raise _refusal(name, data)
    size = files.size(fd)  # of now: a run may have made it longer
    if pages is None and _ends(data) > start.eof and not _is_flipped(data, size):
        raise StorageError(
            f"{name} was changed by something else than ckio: it has to be made anew"
        )
    if start.end > size:
        raise StorageError(f"{name} was cut off: it has {size} bytes, and {start.end} are in use")
    return start


def has_seal(fd: int, /) -> bool:
    """Return whether an open file is an archive of any version, by its pages or their mirror."""
    at = _PAGES - _CHECK - _SEAL.size
    return any(os.pread(fd, len(_NAME), begin + at) == _NAME for begin in (0, _PAGES))


def _is_flipped(data: bytes, size: int) -> bool:
    """Return whether one bit was flipped, and no program made the file of `size` bytes longer."""
    pages, mirror = data[:_PAGES], data[_PAGES:]
    return (
        _ends(data) > size
        and (int.from_bytes(pages, "little") ^ int.from_bytes(mirror, "little")).bit_count() == 1
    )


def _ends(data: bytes) -> int:
    """Return where an HDF5 file says that it ends; 0 if it is none."""
    return int.from_bytes(data[EOF : EOF + 8], "little") if data.startswith(SIGNATURE) else 0


def _refusal(name: str, data: bytes) -> StorageError | BadInput:
    """Return the error that says why a file does not begin as an archive."""
    at = data.find(_NAME)
    version = int.from_bytes(data[at + len(_NAME) :][:1], "little") if at >= 0 else 0
    if version > VERSION:
        return BadInput(
            f"{name} has format {version}; ckio {__version__} reads format {VERSION}:"
            " update ckio, or name another file for the archive"
        )
    if 0 < version < VERSION:
        return BadInput(
            f"{name} has format {version}, which no released ckio has written and which is not"
            f" read any more; ckio {__version__} reads format {VERSION}: name another file"
        )
    if version and data.startswith(SIGNATURE):
        return StorageError(
            f"{name} was damaged: its first pages are, and their mirror is; it has to be made anew"
        )
    if data.startswith(SIGNATURE):
        return BadInput(f"{name} is an HDF5 file of something else; name another for the archive")
    return BadInput(f"{name} is not an HDF5 file; name another file for the archive")


def settle(files: Files, fd: int, start: Start, /, *, sync: bool) -> None:
    """Make both copies this one, the pages first; a copy that is so already is not written."""
    copies = bytes_at(files, fd, 0, FIXED)
    if copies[:_PAGES] != start.pages:
        # From behind: names that HDF5 has no links to are harmless, and not the other way round.
        for at in reversed(range(0, _PAGES, PAGE)):
            files.write(fd, [memoryview(start.pages)[at : at + PAGE]], at)
        if sync:
            files.sync(fd)
    if copies[_PAGES:] != start.pages:
        _put_mirror(files, fd, start, sync=sync)


def advance(files: Files, fd: int, start: Start, /, *, sync: bool) -> None:
    """Make both copies this one, the mirror first; all that it refers to must be written."""
    _put_mirror(files, fd, start, sync=sync)
    for at in range(0, _PAGES, PAGE):
        files.write(fd, [memoryview(start.pages)[at : at + PAGE]], at)
    if sync:
        files.sync(fd)


def _put_mirror(files: Files, fd: int, start: Start, /, *, sync: bool) -> None:
    files.write(fd, [memoryview(start.pages)], _PAGES)
    if sync:
        files.sync(fd)


def bytes_at(files: Files, fd: int, offset: int, nbytes: int, /) -> bytes:
    """Return some bytes of a file; raises OSError where it ends before them."""
    try:
        return files.bytes_at(fd, offset, nbytes)
    except EOFError:
        raise OSError(errno.EIO, f"the file ends before byte {offset + nbytes}") from None


# Groups

_GROUP_MAGIC: Final = b"ckiogrp\x02"
_GROUP_HEAD: Final = struct.Struct("<8sQ16s")
_LONGEST_HEAD: Final = 1 << 24
"""Bytes of the text of a head."""

MOST_SLOTS: Final = 1 << 22
"""Slots of a group: each has a number in memory, also where a file has holes in place of rows."""

_BYTES: Final = ("|u1", "u1", "uint8")

_WORD: Final = 8
_PAGED: Final = 1 << 16
"""Slots begin on whole pages where they have so many bytes, and otherwise on whole words."""


@dataclass(frozen=True, eq=False)
class Group:
    """Slots for checkpoints of one kind and one layout, and where they lie in the file.

    Attributes
    ----------
    name : str
        Name in HDF5.
    form : Form
        Form of the largest checkpoint of a slot.
    slots : int
        How many.
    rows : int
        Offset of the key table, in bytes.
    payload : int
        Offset of slot 0, in bytes.
    trees : int
        Offset of the trees by which HDF5 finds the fields; nothing else follows.
    end : int
        Offset at which the group ends, and the next one begins.
    views : Views or None
        Encoded checkpoints as HDF5 sees them, field by field.
    run : RunId
        Run that the archive is of.
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
        """Seed that ties a row to this group and its run: a digest of run, name, kind, layout."""
        words = self.run.text, self.name, self.kind.value, self.form.text.decode()
        return xxhash.xxh3_64_intdigest("\n".join(words).encode(errors="surrogatepass"))

    def row(self, slot: int, /) -> int:
        """Return the offset of the row of a slot, in bytes."""
        return self.rows + slot * ROW.itemsize

    def at(self, slot: int, /) -> int:
        """Return the offset of a slot, where its payload begins, in bytes."""
        return self.payload + slot * self.stride

    @cached_property
    def stride(self) -> int:
        """Bytes from one slot to the next."""
        return stride(self.form)

    def patches(self, slot: int, data: memoryview, /) -> Iterable[tuple[bytes, int]]:
        """Return the bytes and offsets to write, so that views show the data of a slot.

        Raises CorruptCheckpoint where the data are not what the layout says.
        """
        if self.views is None:
            return ()
        return self.views.patches(slot, data, self.at(slot))

    def holds(self, nbytes: int, /) -> bool:
        """Return whether a checkpoint of `nbytes` can lie in one of its slots."""
        size = self.form.nbytes
        return nbytes == size or (is_plain(self.form.layout) and nbytes < size)

    def layout_of(self, nbytes: int, /) -> Layout:
        """Return the layout of a checkpoint of `nbytes` in one of its slots."""
        layout = self.form.layout
        return layout if nbytes == self.form.nbytes else (replace(layout[0], shape=(nbytes,)),)

    def pack(self) -> bytes:
        """Return its head; raises StorageError for a layout that is too long."""
        layout = self.form.text.decode()
        leaves = self.views.pack() if self.views else []
        numbers = self.slots, self.rows, self.payload, self.trees
        text = json.dumps([self.name, self.kind.name, layout, *numbers, leaves]).encode()
        if len(text) > _LONGEST_HEAD:
            raise StorageError(
                f"the text of a layout has {len(text)} bytes, and an archive keeps {_LONGEST_HEAD}:"
                " use fewer fields, or shorter names"
            )
        return _GROUP_HEAD.pack(_GROUP_MAGIC, len(text), xxhash.xxh3_128_digest(text)) + text

    @staticmethod
    def length(head: bytes, /) -> int:
        """Return how many bytes the head has that begins like this; raises CorruptCheckpoint."""
        if len(head) >= _GROUP_HEAD.size:
            magic, nbytes, _ = _GROUP_HEAD.unpack_from(head)
            if magic == _GROUP_MAGIC and nbytes <= _LONGEST_HEAD:
                return _GROUP_HEAD.size + int(nbytes)
        raise CorruptCheckpoint("the head of a group is damaged")

    @classmethod
    def unpack(cls, head: bytes, begin: int, end: int, /, run: RunId = NOBODY) -> Self:
        """Return the group of a run's archive between `begin` and `end` that has this head.

        Raises CorruptCheckpoint.
        """
        text = head[_GROUP_HEAD.size :]
        try:
            if xxhash.xxh3_128_digest(text) == _GROUP_HEAD.unpack_from(head)[2]:
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
        """Return whether rows, slots and trees lie apart between `begin` and the group's end."""
        spans = [(self.rows, self.slots * ROW.itemsize), (self.payload, self.slots * self.stride)]
        taken = sorted((at, at + nbytes) for at, nbytes in spans if nbytes)
        leaves = sorted((at, at + nbytes) for at, nbytes in self.views.spans) if self.views else []
        marks = [begin, *chain.from_iterable(taken), self.trees]
        marks += [*chain.from_iterable(leaves), self.end]
        return (
            0 < self.slots <= MOST_SLOTS and self.rows % len(FREE) == 0 and marks == sorted(marks)
        )


def _views(layout: Layout, slots: int, leaves: list[int]) -> "Views":
    """Return the views of a group that has some; raises ValueError where it cannot have these."""
    from ckio.backends.hdf5.views import Views

    if views := Views.of(layout, slots):
        return views.unpack(leaves)
    raise ValueError


def stride(form: Form, /) -> int:
    """Return the bytes from one slot to the next: one field alone lies without gaps."""
    nbytes = form.nbytes
    unit = 1 if len(form.sizes) == 1 else PAGE if nbytes >= _PAGED else _WORD
    return -(-nbytes // unit) * unit


def is_plain(layout: Layout, /) -> bool:
    """Return whether a layout is of plain bytes, of which checkpoints may have any number."""
    return len(layout) == 1 and layout[0].dtype in _BYTES and len(layout[0].shape) == 1


# Rows

NAME: Final = 64
"""Bytes that the name of a key may have."""

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
"""State of a row whose checkpoint lies in its slot."""

FREE: Final = bytes(len(STORED))
"""State of a row whose slot is free, whatever the rest of it says."""

_PACKED_ROW: Final = struct.Struct(f"<8sQQ8sQ{NAME}sQd32s")
_ROW_CHECK: Final = struct.Struct("<Q")
_WORDS: Final = {kind: kind.name.lower().encode() for kind in Kind}
_KINDS: Final = {word.ljust(8, b"\0"): kind for kind, word in _WORDS.items()}
_TEXT: Final = ("utf-8", "surrogatepass")


class Row(NamedTuple):
    """One committed checkpoint.

    Attributes
    ----------
    commit : int
        The number of the write, from 1.
    nbytes : int
        Bytes of its payload.
    written : float
        When, in seconds since 1970 (UTC).
    digest : bytes
        xxh3_128 of the payload, or nothing.
    """

    commit: int
    slot: int
    key: Key
    nbytes: int
    written: float
    digest: bytes

    def pack(self, seed: int, /) -> bytes:
        """Return its bytes, committed; `seed` names the group it belongs to."""
        commit, slot, key, nbytes, written, digest = self
        name = packed_name(key)
        word, text = _WORDS[key.kind], hexlify(digest)
        row = _PACKED_ROW.pack(STORED, commit, slot, word, key.step, name, nbytes, written, text)
        return row + _ROW_CHECK.pack(xxhash.xxh3_64_intdigest(row, seed))

    @classmethod
    def unpack(cls, row: bytes, slot: int, seed: int, /) -> Self | None:
        """Return the row of a slot of the group named by `seed`; None if it is not a sound one."""
        (check,) = _ROW_CHECK.unpack_from(row, _PACKED_ROW.size)
        if xxhash.xxh3_64_intdigest(row[: _PACKED_ROW.size], seed) != check:
            return None
        state, commit, at, kind, step, name, nbytes, written, text = _PACKED_ROW.unpack_from(row)
        if state != STORED or at != slot:
            return None
        try:
            key = Key(_KINDS[kind], step, unpacked_name(name))
            digest = unhexlify(text.rstrip(b"\0"))
        except (KeyError, ValueError):
            return None
        if len(digest) not in (0, 16):
            return None
        return cls(commit, slot, key, nbytes, written, digest)


def packed_name(key: Key, /) -> bytes:
    """Return the name of a key as rows have it; raises StorageError for a key that they cannot."""
    name = key.name.encode(*_TEXT) if key.name else b""
    if key.step >= 1 << 64 or len(name) > NAME or name.endswith(b"\0"):
        raise StorageError(
            f"{key}: an archive keeps steps below 2**64, and names of at most {NAME} bytes, none of"
            " which ends in NUL"
        )
    return name


def unpacked_name(name: bytes, /) -> str:
    """Return the name that `packed_name` gave; raises ValueError where it is none."""
    return name.rstrip(b"\0").decode(*_TEXT)
