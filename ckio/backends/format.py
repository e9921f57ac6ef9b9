"""A slot on disk: a head that says what lies in it, then the payload.

All integers are little-endian. Version 1:

    offset  bytes
    0       8       magic; anything else: the slot is free
    8       4       bytes of the head, its check included
    12      4       where the payload begins, from the start of the slot: a multiple of 4096
    16      8       bytes of the payload
    24      8       sequence number: of two heads with one key the higher is the valid one
    32      8       step of the key
    40      1       kind of the key: x, t or a
    41      1       1 if the payload has a digest
    42      2       bytes of the name of the key, n
    44      4       bytes of the text of its layout, m
    48      16      xxh3_128 of the payload
    64      n       name of the key, UTF-8
    64+n    m       the layout as JSON: [[name, dtype, [shape], unit], ...]
    64+n+m  16      check: xxh3_128 of all before

A slot is committed by writing its head, after its payload, and freed by clearing the magic.
"""

import struct
from typing import Final, NamedTuple

import xxhash

from ckio.actions import Key, Kind
from ckio.backends.forms import Form, form_from
from ckio.errors import CorruptCheckpoint, StorageError

BLOCK = 4096
"""Slots, and payloads in them, begin at multiples of this."""

MAGIC = b"ckioslt\x01"
FREE = bytes(len(MAGIC))

_FIXED = struct.Struct("<8sIIQQQcBHI16s")
_CHECK: Final = 16
_TEXT: Final = ("utf-8", "surrogatepass")
_NO_DIGEST = bytes(16)


class Head(NamedTuple):
    """What a head says; `begin` is where the payload begins in the slot."""

    key: Key
    form: Form
    sequence: int
    begin: int
    digest: bytes


def payload_begin(key: Key, form: Form, /) -> int:
    """Where the payload begins, from the start of the slot: where its head ends, rounded up."""
    head = _FIXED.size + len(key.name.encode(*_TEXT)) + len(form.text) + _CHECK
    return -(-head // BLOCK) * BLOCK


def pack(head: Head, /) -> bytes:
    """The bytes of a head; raises StorageError for a key that it cannot name."""
    key, form, sequence, begin, digest = head
    name, text = key.name.encode(*_TEXT), form.text
    try:
        fixed = _FIXED.pack(
            MAGIC,
            _FIXED.size + len(name) + len(text) + _CHECK,
            begin,
            form.nbytes,
            sequence,
            key.step,
            key.kind.value.encode(),
            bool(digest),
            len(name),
            len(text),
            digest or _NO_DIGEST,
        )
    except struct.error:
        raise StorageError(f"{key}: its step or name is too large for a file") from None
    body = fixed + name + text
    return body + xxhash.xxh3_128_digest(body)


def length(block: bytes, /) -> int:
    """How many bytes the head has that begins with this block; 0 if none does."""
    if len(block) < _FIXED.size or not block.startswith(MAGIC):
        return 0
    return int(_FIXED.unpack_from(block)[1])


def unpack(data: bytes, /) -> Head | None:
    """The head in `data`, or None if it is not whole or makes no sense."""
    body, check = data[:-_CHECK], data[-_CHECK:]
    if len(body) < _FIXED.size or xxhash.xxh3_128_digest(body) != check:
        return None
    magic, size, begin, nbytes, sequence, step, kind, checked, names, texts, digest = (
        _FIXED.unpack_from(body)
    )
    if magic != MAGIC or size != len(data) or len(body) != _FIXED.size + names + texts:
        return None
    name, text = body[_FIXED.size :][:names], body[_FIXED.size + names :]
    try:
        key = Key(Kind(kind.decode()), step, name.decode(*_TEXT))
        form = form_from(text)
    except (ValueError, CorruptCheckpoint):
        return None
    if form.nbytes != nbytes or begin != payload_begin(key, form):
        return None
    return Head(key, form, sequence, begin, digest if checked else b"")
