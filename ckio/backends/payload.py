"""A payload on its way to and from a file: whole, and digested as it passes."""

from collections.abc import Iterable

import xxhash

from ckio.backends.buffers import Piece
from ckio.backends.files import Files


def write(files: Files, fd: int, pieces: Iterable[Piece], /, *, checksum: bool) -> bytes:
    """Write all pieces; returns the xxh3_128 of their bytes, b"" without `checksum`."""
    state = xxhash.xxh3_128()
    for data, offset in pieces:
        if checksum:
            for view in data:
                state.update(view)
        files.write(fd, data, offset)
    return state.digest() if checksum else b""


def read(files: Files, fd: int, pieces: Iterable[Piece], digest: bytes, /) -> bool:
    """Fill all pieces; whether their bytes have this xxh3_128, which b"" says nothing of.

    Raises EOFError where the file ends within.
    """
    state = xxhash.xxh3_128()
    for into, offset in pieces:
        files.read(fd, into, offset)
        if digest:
            for view in into:
                state.update(view)
    return not digest or state.digest() == digest
