"""The format of a file of slots: the head of the file, then slots, each with a head and a payload.

All integers are little-endian. This is version 3. The head of a file, which has a block to itself:

    offset  bytes
    0       8       magic; zeros if the file has no slots yet
    8       8       stride: bytes of a slot, including its head
    16      8       number of slots; the file is never shorter
    24      16      check: xxh3_128 of all bytes before

A slot:

    0       8       commit word: LIVE; or zeros if the slot is free; any other value is damage
    8       4       bytes of the head, including its check
    12      4       offset of the payload from the start of the slot: a multiple of 4096
    16      8       bytes of the payload
    24      8       sequence number: of two heads with the same key, the higher one is valid
    32      8       time of writing, seconds since 1970 as a float
    40      8       step of the key
    48      1       kind of the key: x, t or a
    49      1       1 if the payload has a digest
    50      2       bytes of the name of the key, n
    52      4       bytes of the text of its layout, m
    56      16      xxh3_128 of the payload
    72      64      id of the run that stored it, UTF-8, then zeros; only zeros for no run
    136     n       name of the key, UTF-8
    136+n   m       the layout as JSON: [[name, dtype, [shape], unit], ...]
    136+n+m 16      check: xxh3_128 of all bytes from offset 8; its seed is the slot's file offset

Each slot contains the id of its run. Therefore a single file of another run among the files of this
run is recognised.

The head of a file and the commit word of a slot are each written by a separate system call, within
one sector. Therefore a crash of the machine leaves either the old or the new value. All other bytes
of a slot are written while its commit word means free.
"""

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple, Self

import xxhash

from ckio.actions import Key, Kind
from ckio.backends.forms import Form, form_from
from ckio.backends.runid import NBYTES, RunId
from ckio.errors import CorruptCheckpoint, StorageError

VERSION: Final = 3

BLOCK: Final = 4096
"""Slots, and payloads in them, begin at multiples of this."""

LIVE: Final = b"ckioslt\x03"
FREE: Final = bytes(len(LIVE))

MAGIC: Final = b"ckiofil\x03"
"""The first bytes of a file of slots."""

LONGEST_TEXT: Final = 1 << 20
"""Maximum bytes of the text of a layout."""

_FILE: Final = struct.Struct("<8sQQ")
_FIXED: Final = struct.Struct(f"<IIQQdQcBHI16s{NBYTES}s")
_HEAD: Final = len(LIVE) + _FIXED.size
_CHECK: Final = 16
_LONGEST_NAME: Final = (1 << 16) - 1
_TEXT: Final = ("utf-8", "surrogatepass")
_NO_DIGEST: Final = bytes(16)
_LETTERS: Final = {kind: kind.value.encode() for kind in Kind}


class FileHead(NamedTuple):
    """The head of a file: the bytes of a slot, and the number of slots."""

    stride: int
    slots: int

    def pack(self) -> bytes:
        """Return the bytes of this head."""
        body = _FILE.pack(MAGIC, *self)
        return body + xxhash.xxh3_128_digest(body)

    @classmethod
    def unpack(cls, block: bytes, /) -> Self | None:
        """Return the head in the first block of a file; None if the file has no slots yet.

        Raises CorruptCheckpoint if it is damaged.
        """
        body, check = block[: _FILE.size], block[_FILE.size :][:_CHECK]
        if not any(body + check):
            return None
        if xxhash.xxh3_128_digest(body) != check or not body.startswith(MAGIC):
            raise CorruptCheckpoint("the head of the file is damaged")
        return cls(*_FILE.unpack(body)[1:])


class Head(NamedTuple):
    """The head of a slot, which describes the checkpoint in it."""

    key: Key
    form: Form
    sequence: int
    written: float
    digest: bytes
    run: RunId

    @property
    def begin(self) -> int:
        """Offset of the payload from the start of the slot."""
        return outline(self.form, self.key.name).begin


@dataclass(frozen=True, slots=True, eq=False)
class Outline:
    """The common part of the heads of all checkpoints with the same form and name.

    Attributes
    ----------
    nbytes : int
        Bytes of the payload.
    length : int
        Bytes of the head.
    begin : int
        Offset of the payload from the start of the slot: the length of the head, rounded up.
    needed : int
        Bytes that a slot must have after its first block.
    name, text : bytes
        The name of the key, and the text of the layout.
    """

    nbytes: int
    length: int
    begin: int
    needed: int
    name: bytes
    text: bytes

    def pack(
        self, key: Key, sequence: int, written: float, digest: bytes, at: int, /, *, run: bytes
    ) -> bytes:
        """Return a head without its commit word, for the slot at file offset `at`.

        `written` is in seconds since 1970; `run` is the packed id of the run.
        """
        try:
            fixed = _FIXED.pack(
                self.length,
                self.begin,
                self.nbytes,
                sequence,
                written,
                key.step,
                _LETTERS[key.kind],
                bool(digest),
                len(self.name),
                len(self.text),
                digest or _NO_DIGEST,
                run,
            )
        except struct.error:
            raise StorageError(
                f"{key}: its step is too large for a file; steps must be below 2**64"
            ) from None
        body = fixed + self.name + self.text
        return body + xxhash.xxh3_128_digest(body, at)


@lru_cache(256)
def outline(form: Form, name: str, /) -> Outline:
    """Return the outline of heads; raises StorageError if the name or the layout is too long."""
    encoded = name.encode(*_TEXT)
    if len(encoded) > _LONGEST_NAME or len(form.text) > LONGEST_TEXT:
        raise StorageError(
            f"a directory stores at most {_LONGEST_NAME} bytes of a key's name and {LONGEST_TEXT}"
            f" of a layout in JSON, not {len(encoded)} and {len(form.text)}: use shorter names, or"
            " fewer fields"
        )
    length = _HEAD + len(encoded) + len(form.text) + _CHECK
    begin = -(-length // BLOCK) * BLOCK
    return Outline(
        nbytes=form.nbytes,
        length=length,
        begin=begin,
        needed=begin - BLOCK + form.nbytes,
        name=encoded,
        text=form.text,
    )


def length(block: bytes, /) -> int:
    """Return the length of a head in bytes, from its first block; 0 if the slot is free.

    Raises CorruptCheckpoint if the length is impossible, so that the caller does not read too much.
    """
    if block.startswith(FREE):
        return 0
    if not block.startswith(LIVE):
        raise CorruptCheckpoint("its commit word is damaged")
    nbytes = int.from_bytes(block[len(LIVE) :][:4], "little")
    if not _HEAD + _CHECK <= nbytes <= _HEAD + _LONGEST_NAME + LONGEST_TEXT + _CHECK:
        raise CorruptCheckpoint("the length of its head is damaged")
    return nbytes


def unpack(data: bytes, at: int, /) -> Head:
    """Return the head in `data`, of the slot at file offset `at`.

    Raises CorruptCheckpoint if it is damaged.
    """
    body, check = data[len(LIVE) : -_CHECK], data[-_CHECK:]
    if len(body) < _FIXED.size or xxhash.xxh3_128_digest(body, at) != check:
        raise CorruptCheckpoint("its head is damaged")
    *_, sequence, written, step, kind, checked, names, _, digest, run = _FIXED.unpack_from(body)
    name, text = body[_FIXED.size :][:names], body[_FIXED.size + names :]
    key = Key(Kind(kind.decode()), step, name.decode(*_TEXT))
    owner = RunId.unpack(run)
    return Head(key, form_from(text), sequence, written, digest if checked else b"", owner)
