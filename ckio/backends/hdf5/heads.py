"""The parts of an archive that ckio itself reads: its first pages, heads of groups, and rows.

**The first pages** list the groups of an archive. In pages of 4096 bytes:

    page 0        HDF5's superblock, and the names of the groups
    page 1        HDF5's links to the groups
    page 2        ckio's index: the offset of each group; the id of the archive's run; at its end
                  the seal
    pages 3 to 5  the mirror: a copy of these three pages

The seal contains the version of the format, the begin and the end of all groups, and one check of
all three pages together. An archive grows in three stages. If the level syncs, each stage is on the
device before the next one begins:

    1. the new group is written after the end, to which nothing refers yet
    2. the mirror is replaced
    3. the pages are replaced, in their order

If the machine crashes during a write, some sectors keep their old bytes. Let g be the old pages and
g+1 the new ones. After a crash, an archive is in one of these states:

    pages       mirror      crash                       copy that is used
    g           g           before stage 2              g
    g           not sound   in stage 2                  g
    g           g+1         between stages 2 and 3      g
    not sound   g+1         in stage 3                  g+1
    g+1         g+1         afterwards                  g+1

A page 0 of g+1 with a page 1 of g is not sound, because the seal checks them together. Both g and
g+1 are complete archives, because everything to which g+1 refers was written before its mirror. If
the disk fails in stage 3, the change is undone, pages first, through the same five states in
reverse order. The copy that is not used is replaced when the archive is opened and before each
growth. Therefore no mirror remains that refers to overwritten bytes. A flipped bit in one copy is
repaired from the other copy; damage in both is an error.

**A group** begins with its head, which HDF5 ignores: eight bytes of magic, the length of a JSON
text, its xxh3_128, the text.

**A row** describes the checkpoint in a slot. It is valid if its first eight bytes, `state`, are
set. If a write of the whole row could be incomplete, the state is written alone, after the rest of
the row; it is always cleared alone. Therefore a row is either free, or sound, or was damaged.
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

if TYPE_CHECKING:  # views imports zstandard, which an archive without encoded bytes does not need
    from ckio.backends.hdf5.views import Views

# The first pages

VERSION: Final = 3
"""The version of the format; no other version is read."""

PAGE: Final = 4096
"""Bytes of a page; a system call that writes within one page is atomic if the process is killed."""

EOF: Final = 40
"""Offset of the eight bytes of the superblock with the end of the file for HDF5."""

MAX_GROUPS: Final = 96
"""Maximum number of groups, so that the links of HDF5 to them fit one page."""

_PAGES: Final = 3 * PAGE
FIXED: Final = 2 * _PAGES
"""Offset of the part of an archive that never changes."""

SIGNATURE: Final = b"\x89HDF\r\n\x1a\n"
"""The first bytes of an HDF5 file."""

_NAME: Final = b"ckioarc"
_MAGIC: Final = _NAME + bytes([VERSION])
_INDEX: Final = struct.Struct(f"<{MAX_GROUPS}Q")
_SEAL: Final = struct.Struct("<8sQQQ")
"""Magic, begin and end of the groups, and the check of the bytes between mirror and groups."""

_CHECK: Final = 8
_MOST_FIXED: Final = 1 << 20


def check(data: bytes, /) -> int:
    """Return the xxh3_64 of some bytes."""
    return xxhash.xxh3_64_intdigest(data)


@dataclass(frozen=True)
class Start:
    """The first three pages of an archive, with a valid seal.

    Attributes
    ----------
    pages : bytes
        Pages 0 to 2.
    fixed : int
        Check of the bytes between the mirror and the first group.
    begin : int
        Offset at which the groups begin, in bytes.
    end : int
        Offset at which the groups end.
    groups : tuple of int
        Offset of each group; the first group begins at `begin`.
    run : RunId
        The run of the archive.
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
        """Return the pages that consist of these two pages of HDF5 and ckio's index."""
        index = _INDEX.pack(*groups, *(MAX_GROUPS - len(groups)) * [0]) + run.pack()
        seal = _SEAL.pack(_MAGIC, begin, end, fixed)
        body = page + leaf + index.ljust(PAGE - _SEAL.size - _CHECK, b"\0") + seal
        return cls(body + check(body).to_bytes(_CHECK, "little"), fixed, begin, end, groups, run)

    @classmethod
    def unpack(cls, pages: bytes) -> Self | None:
        """Return the pages with these bytes, or None if they are not sound."""
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
        """Return whether the groups follow each other, within reasonable limits."""
        marks = (*self.groups, self.end)
        return (
            FIXED <= self.begin == marks[0]
            and self.begin - FIXED <= _MOST_FIXED
            and all(a < b for a, b in pairwise(marks))
        )

    def spans(self) -> list[tuple[int, int]]:
        """Return the begin and end of each group, in bytes."""
        return list(pairwise((*self.groups, self.end)))

    @property
    def eof(self) -> int:
        """Offset at which the file ends for HDF5."""
        return int.from_bytes(self.pages[EOF : EOF + 8], "little")


def load(files: Files, fd: int, name: str, /) -> Start:
    """Return the first pages of an open archive, or their mirror if the pages are damaged.

    Nothing is changed. Raises BadInput if the file is not an archive or has another format,
    StorageError if it is damaged.
    """
    data = bytes_at(files, fd, 0, min(files.size(fd), FIXED))
    pages, mirror = Start.unpack(data[:_PAGES]), Start.unpack(data[_PAGES:])
    start = pages or mirror
    if start is None:
        raise _refusal(name, data)
    size = files.size(fd)  # again, because a run may have extended the file meanwhile
    if pages is None and _ends(data) > start.eof and not _is_flipped(data, size):
        raise StorageError(
            f"{name} was changed by a program other than ckio and cannot be used; use a new archive"
        )
    if start.end > size:
        raise StorageError(f"{name} was cut off: it has {size} bytes, and {start.end} are in use")
    return start


def has_seal(fd: int, /) -> bool:
    """Return whether an open file has the seal of an archive of any version, also in its mirror."""
    at = _PAGES - _CHECK - _SEAL.size
    return any(os.pread(fd, len(_NAME), begin + at) == _NAME for begin in (0, _PAGES))


def _is_flipped(data: bytes, size: int) -> bool:
    """Return whether a single bit was flipped, so that no program has extended the file."""
    pages, mirror = data[:_PAGES], data[_PAGES:]
    return (
        _ends(data) > size
        and (int.from_bytes(pages, "little") ^ int.from_bytes(mirror, "little")).bit_count() == 1
    )


def _ends(data: bytes) -> int:
    """Return the end of an HDF5 file according to its superblock; 0 if it is no HDF5 file."""
    return int.from_bytes(data[EOF : EOF + 8], "little") if data.startswith(SIGNATURE) else 0


def _refusal(name: str, data: bytes) -> StorageError | BadInput:
    """Return the error for a file that does not begin like an archive."""
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
            f"{name} was damaged: both its first pages and their mirror; use a new archive"
        )
    if data.startswith(SIGNATURE):
        return BadInput(
            f"{name} is an HDF5 file of another program; name another file for the archive"
        )
    return BadInput(f"{name} is not an HDF5 file; name another file for the archive")


def settle(files: Files, fd: int, start: Start, /, *, sync: bool) -> None:
    """Write `start` to the pages and then to the mirror, unless they are equal already."""
    copies = bytes_at(files, fd, 0, FIXED)
    if copies[:_PAGES] != start.pages:
        # The last page first: names without links are harmless, but links without names are not.
        for at in reversed(range(0, _PAGES, PAGE)):
            files.write(fd, [memoryview(start.pages)[at : at + PAGE]], at)
        if sync:
            files.sync(fd)
    if copies[_PAGES:] != start.pages:
        _put_mirror(files, fd, start, sync=sync)


def advance(files: Files, fd: int, start: Start, /, *, sync: bool) -> None:
    """Write `start` to the mirror and then to the pages.

    Everything to which it refers must have been written before.
    """
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
    """Return `nbytes` of a file from `offset`; raises OSError if the file ends before."""
    try:
        return files.bytes_at(fd, offset, nbytes)
    except EOFError:
        raise OSError(errno.EIO, f"the file ends before byte {offset + nbytes}") from None


# Groups

_GROUP_MAGIC: Final = b"ckiogrp\x02"
_GROUP_HEAD: Final = struct.Struct("<8sQ16s")
_LONGEST_HEAD: Final = 1 << 24
"""Maximum bytes of the text of a head."""

MOST_SLOTS: Final = 1 << 22
"""Maximum number of slots of a group, because each free slot needs memory in a list."""

_BYTES: Final = ("|u1", "u1", "uint8")

_WORD: Final = 8
_PAGED: Final = 1 << 16
"""Slots of at least this size begin at multiples of a page, smaller ones at multiples of a word."""


@dataclass(frozen=True, eq=False)
class Group:
    """Slots for checkpoints of one kind and one layout, and their offsets in the file.

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
        Offset of the key table, in bytes.
    payload : int
        Offset of slot 0, in bytes.
    trees : int
        Offset of the trees by which HDF5 finds the fields; they are the last part of the group.
    end : int
        Offset at which the group ends and the next one begins.
    views : Views or None
        The datasets by which HDF5 reads encoded checkpoints, one for each field.
    run : RunId
        The run of the archive.
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
        """Seed of the checksums of rows: a digest of run, name, kind and layout.

        With it, a row of another group or run does not look valid.
        """
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
        """Return the bytes and offsets to write so that the views show the data of a slot.

        Raises CorruptCheckpoint if the data do not fit the layout.
        """
        if self.views is None:
            return ()
        return self.views.patches(slot, data, self.at(slot))

    def holds(self, nbytes: int, /) -> bool:
        """Return whether a checkpoint of `nbytes` fits one of the slots."""
        size = self.form.nbytes
        return nbytes == size or (is_plain(self.form.layout) and nbytes < size)

    def layout_of(self, nbytes: int, /) -> Layout:
        """Return the layout of a checkpoint of `nbytes` in one of its slots."""
        layout = self.form.layout
        return layout if nbytes == self.form.nbytes else (replace(layout[0], shape=(nbytes,)),)

    def pack(self) -> bytes:
        """Return the head of the group; raises StorageError if the layout is too long."""
        layout = self.form.text.decode()
        leaves = self.views.pack() if self.views else []
        numbers = self.slots, self.rows, self.payload, self.trees
        text = json.dumps([self.name, self.kind.name, layout, *numbers, leaves]).encode()
        if len(text) > _LONGEST_HEAD:
            raise StorageError(
                f"the text of a layout has {len(text)} bytes; an archive stores {_LONGEST_HEAD} at"
                " most: use fewer fields, or shorter names"
            )
        return _GROUP_HEAD.pack(_GROUP_MAGIC, len(text), xxhash.xxh3_128_digest(text)) + text

    @staticmethod
    def length(head: bytes, /) -> int:
        """Return the length in bytes of the head that begins with `head`.

        Raises CorruptCheckpoint if it is damaged.
        """
        if len(head) >= _GROUP_HEAD.size:
            magic, nbytes, _ = _GROUP_HEAD.unpack_from(head)
            if magic == _GROUP_MAGIC and nbytes <= _LONGEST_HEAD:
                return _GROUP_HEAD.size + int(nbytes)
        raise CorruptCheckpoint("the head of a group is damaged")

    @classmethod
    def unpack(cls, head: bytes, begin: int, end: int, /, run: RunId = NOBODY) -> Self:
        """Return the group with this head, between offsets `begin` and `end` of a run's archive.

        Raises CorruptCheckpoint if the head is damaged.
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
        """Return whether rows, slots and trees are disjoint and between `begin` and the end."""
        spans = [(self.rows, self.slots * ROW.itemsize), (self.payload, self.slots * self.stride)]
        taken = sorted((at, at + nbytes) for at, nbytes in spans if nbytes)
        leaves = sorted((at, at + nbytes) for at, nbytes in self.views.spans) if self.views else []
        marks = [begin, *chain.from_iterable(taken), self.trees]
        marks += [*chain.from_iterable(leaves), self.end]
        return (
            0 < self.slots <= MOST_SLOTS and self.rows % len(FREE) == 0 and marks == sorted(marks)
        )


def _views(layout: Layout, slots: int, leaves: list[int]) -> "Views":
    """Return the views of a group with these leaves; raises ValueError if the layout has none."""
    from ckio.backends.hdf5.views import Views

    if views := Views.of(layout, slots):
        return views.unpack(leaves)
    raise ValueError


def stride(form: Form, /) -> int:
    """Return the bytes from one slot to the next; there are no gaps if there is only one field."""
    nbytes = form.nbytes
    unit = 1 if len(form.sizes) == 1 else PAGE if nbytes >= _PAGED else _WORD
    return -(-nbytes // unit) * unit


def is_plain(layout: Layout, /) -> bool:
    """Return whether a layout is one field of plain bytes; their number differs by checkpoint."""
    return len(layout) == 1 and layout[0].dtype in _BYTES and len(layout[0].shape) == 1


# Rows

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

_PACKED_ROW: Final = struct.Struct(f"<8sQQ8sQ{NAME}sQd32s")
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
        """Return the bytes of a valid row; `seed` is that of its group."""
        commit, slot, key, nbytes, written, digest = self
        name = packed_name(key)
        word, text = _WORDS[key.kind], hexlify(digest)
        row = _PACKED_ROW.pack(STORED, commit, slot, word, key.step, name, nbytes, written, text)
        return row + _ROW_CHECK.pack(xxhash.xxh3_64_intdigest(row, seed))

    @classmethod
    def unpack(cls, row: bytes, slot: int, seed: int, /) -> Self | None:
        """Return the row of a slot of the group with this seed; None if it is not valid."""
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
    """Return the name of a key in a row; raises StorageError if a row cannot store this key."""
    name = key.name.encode(*_TEXT) if key.name else b""
    if key.step >= 1 << 64 or len(name) > NAME or name.endswith(b"\0"):
        raise StorageError(
            f"{key}: an archive stores steps below 2**64, and names of at most {NAME} bytes that do"
            " not end in NUL"
        )
    return name


def unpacked_name(name: bytes, /) -> str:
    """Return the name from which `packed_name` made these bytes; raises ValueError."""
    return name.rstrip(b"\0").decode(*_TEXT)
