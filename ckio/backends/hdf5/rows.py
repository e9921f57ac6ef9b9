"""The rows of an archive's key tables: which checkpoint lies in a slot, and since when.

A row is committed by its first eight bytes, `state`: where it could be half there, they are written
alone, after all the others; and they are cleared alone. So a row is free, or sound, or was damaged.
"""

import struct
from binascii import hexlify, unhexlify
from typing import Final, NamedTuple, Self

import numpy as np
import xxhash

from ckio.actions import Key, Kind
from ckio.errors import StorageError

ROW: Final = np.dtype(
    [
        ("state", "S8"),
        ("commit", "<u8"),
        ("slot", "<u8"),
        ("kind", "S8"),
        ("step", "<u8"),
        ("name", "S64"),
        ("nbytes", "<u8"),
        ("written", "<f8"),
        ("xxh3_128", "S32"),
        ("row_xxh3", "<u8"),
    ]
)
STORED: Final = b"stored\0\0"
"""The state of a row that says what lies in its slot."""

FREE: Final = bytes(len(STORED))
"""The state of a row whose slot is free, whatever the rest of it says."""

_ROW: Final = struct.Struct("<8sQQ8sQ64sQd32s")
_CHECK: Final = struct.Struct("<Q")
_WORDS: Final = {kind: kind.name.lower().encode() for kind in Kind}
_KINDS: Final = {word.ljust(8, b"\0"): kind for kind, word in _WORDS.items()}
_TEXT: Final = ("utf-8", "surrogatepass")
_LONGEST: Final = 64


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
        """Its bytes, committed; `seed` names the group it belongs to."""
        commit, slot, key, nbytes, written, digest = self
        name = _name_of(key) if key.name else b""
        if key.step >= 1 << 64:
            raise StorageError(f"{key}: an archive keeps steps below 2**64")
        word, text = _WORDS[key.kind], hexlify(digest)
        row = _ROW.pack(STORED, commit, slot, word, key.step, name, nbytes, written, text)
        return row + _CHECK.pack(xxhash.xxh3_64_intdigest(row, seed))

    @classmethod
    def unpack(cls, row: bytes, slot: int, seed: int, /) -> Self | None:
        """The row of a slot of the group named by `seed`; None if it is not a sound one."""
        (check,) = _CHECK.unpack_from(row, _ROW.size)
        if xxhash.xxh3_64_intdigest(row[: _ROW.size], seed) != check:
            return None
        state, commit, at, kind, step, name, nbytes, written, text = _ROW.unpack_from(row)
        if state != STORED or at != slot:
            return None
        try:
            key = Key(_KINDS[kind], step, name.rstrip(b"\0").decode(*_TEXT))
            digest = unhexlify(text.rstrip(b"\0"))
        except (KeyError, ValueError):
            return None
        if len(digest) not in (0, 16):
            return None
        return cls(commit, slot, key, nbytes, written, digest)


def _name_of(key: Key) -> bytes:
    name = key.name.encode(*_TEXT)
    if len(name) > _LONGEST or name.endswith(b"\0"):
        raise StorageError(
            f"{key}: an archive keeps names of at most {_LONGEST} bytes, and none that ends in NUL"
        )
    return name
