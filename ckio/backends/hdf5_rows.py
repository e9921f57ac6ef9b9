"""The rows of an archive's key tables: which checkpoint lies in a slot, and since when."""

import struct
from typing import Final, NamedTuple, Self

import numpy as np
import xxhash

from ckio.actions import Key, Kind
from ckio.errors import StorageError

ROW: Final = np.dtype(
    [
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
FREE: Final = bytes(ROW.itemsize)
"""The row of a free slot."""

_BODY: Final = struct.Struct("<QQ8sQ64sQd32s")
_CHECK: Final = struct.Struct("<Q")
_WORDS: Final = {kind: kind.name.lower().encode() for kind in Kind}
_KINDS: Final = {word: kind for kind, word in _WORDS.items()}
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
        """Its bytes; `seed` names the group it belongs to."""
        name = self.key.name.encode(errors="surrogatepass")
        if len(name) > _LONGEST or name.endswith(b"\0"):
            raise StorageError(
                f"{self.key}: an archive keeps names of at most {_LONGEST} bytes,"
                " and none that ends in NUL"
            )
        if self.key.step >= 1 << 64:
            raise StorageError(f"{self.key}: an archive keeps steps below 2**64")
        body = _BODY.pack(
            self.commit,
            self.slot,
            _WORDS[self.key.kind],
            self.key.step,
            name,
            self.nbytes,
            self.written,
            self.digest.hex().encode(),
        )
        return body + _CHECK.pack(xxhash.xxh3_64_intdigest(body, seed))

    @classmethod
    def unpack(cls, row: bytes, slot: int, seed: int, /) -> Self | None:
        """The row of a slot of the group named by `seed`; None if it is free or not valid."""
        body, (check,) = row[: _BODY.size], _CHECK.unpack(row[_BODY.size :])
        if row == FREE or xxhash.xxh3_64_intdigest(body, seed) != check:
            return None
        commit, at, kind, step, name, nbytes, written, digest = _BODY.unpack(body)
        if at != slot:
            return None
        try:
            name = name.rstrip(b"\0").decode(errors="surrogatepass")
            key = Key(_KINDS[kind.rstrip(b"\0")], step, name)
            digest = bytes.fromhex(digest.rstrip(b"\0").decode())
        except (KeyError, ValueError):
            return None
        return cls(commit, slot, key, nbytes, written, digest)
