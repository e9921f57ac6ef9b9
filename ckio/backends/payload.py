"""A payload on its way to and from a file: whole, and digested as it passes."""

from collections.abc import Iterable
from typing import Final, Protocol

import xxhash

from ckio.actions import Buffers
from ckio.backends.buffers import MOST, SMALL, TILE, Piece, digest, pieces
from ckio.backends.files import Files

_CALL: Final = 1 << 26
"""Bytes that one system call moves where nothing is digested: a signal waits for its end."""


class Payload(Protocol):
    """A way for payloads: through the page cache (`Buffered`), or past it (as a directory has)."""

    def write(self, fd: int, data: Buffers, offset: int, /, *, checksum: bool) -> bytes:
        """Write all of `data`; returns the xxh3_128 of its bytes, b"" without `checksum`."""

    def read(self, fd: int, into: Buffers, offset: int, digest: bytes, /) -> bool:
        """Fill `into`; whether its bytes have this xxh3_128, which b"" says nothing of.

        Raises EOFError where the file ends within.
        """

    def close(self) -> None:
        """Let go of threads and memory; may be called twice."""


class Buffered:
    """Through the page cache.

    A small payload is digested in one go, and moved by one call, with patience only where that did
    a part of it: here, what Python does takes longer than the bytes.
    """

    def __init__(self, files: Files, /) -> None:
        self._files = files

    def write(self, fd: int, data: Buffers, offset: int, /, *, checksum: bool) -> bytes:
        nbytes = sum(map(len, data))
        if nbytes <= SMALL:
            whole = b"".join(data)
            if nbytes and self._files.pwritev(fd, (memoryview(whole),), offset) != nbytes:
                self._files.write(fd, (memoryview(whole),), offset)
            return xxhash.xxh3_128_digest(whole) if checksum else b""
        most = TILE if checksum else _CALL
        if nbytes <= most and len(data) <= MOST:
            if self._files.pwritev(fd, data, offset) != nbytes:
                self._files.write(fd, data, offset)
            return digest(data) if checksum else b""
        return write(self._files, fd, pieces(data, offset, most), checksum=checksum)

    def read(self, fd: int, into: Buffers, offset: int, expected: bytes, /) -> bool:
        nbytes = sum(map(len, into))
        if nbytes <= SMALL and len(into) <= MOST:
            if nbytes and self._files.preadv(fd, into, offset) != nbytes:
                self._files.read(fd, into, offset)
            return not expected or xxhash.xxh3_128_digest(b"".join(into)) == expected
        most = TILE if expected else _CALL
        return read(self._files, fd, pieces(into, offset, most), expected)

    def close(self) -> None:
        pass


def write(files: Files, fd: int, pieces: Iterable[Piece], /, *, checksum: bool) -> bytes:
    """Write all pieces; returns the xxh3_128 of their bytes, b"" without `checksum`."""
    if not checksum:
        for data, offset in pieces:
            files.write(fd, data, offset)
        return b""
    state = xxhash.xxh3_128()
    for data, offset in pieces:
        files.write(fd, data, offset)
        for view in data:  # behind the call, which leaves them in the cache
            state.update(view)
    return state.digest()


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
