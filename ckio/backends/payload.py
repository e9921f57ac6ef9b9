"""A payload on its way to and from a file: whole, and digested as it passes."""

import errno
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Protocol

import xxhash

from ckio.actions import Buffers
from ckio.backends.buffers import SMALL, TILE, Piece, pieces
from ckio.backends.directory.slotfiles import TRIAL
from ckio.backends.files import FULL, Files, failure
from ckio.errors import BadInput

_CALL: Final = 1 << 26
"""Bytes that one system call moves where nothing is digested: a signal waits for its end."""


class Payload(Protocol):
    """A way for payloads: through the page cache (`Buffered`), or past it (`direct.Direct`)."""

    def write(self, fd: int, data: Buffers, offset: int, /, *, checksum: bool) -> bytes:
        """Write all of `data`; returns the xxh3_128 of its bytes, b"" without `checksum`."""

    def read(self, fd: int, into: Buffers, offset: int, digest: bytes, /) -> bool:
        """Fill `into`; whether its bytes have this xxh3_128, which b"" says nothing of.

        Raises EOFError where the file ends within.
        """

    def close(self) -> None:
        """Let go of threads and memory; may be called twice."""


class Buffered:
    """Through the page cache."""

    def __init__(self, files: Files, /) -> None:
        self._files = files

    def write(self, fd: int, data: Buffers, offset: int, /, *, checksum: bool) -> bytes:
        most = TILE if checksum else _CALL
        return write(self._files, fd, pieces(data, offset, most), checksum=checksum)

    def read(self, fd: int, into: Buffers, offset: int, expected: bytes, /) -> bool:
        if expected and sum(map(len, into)) <= SMALL:
            self._files.read(fd, into, offset)
            return xxhash.xxh3_128_digest(b"".join(into)) == expected
        most = TILE if expected else _CALL
        return read(self._files, fd, pieces(into, offset, most), expected)

    def close(self) -> None:
        pass


def payload_for(files: Files, place: Path, /, *, direct: bool) -> Payload:
    """The way for payloads to files in a directory; raises BadInput if it has no direct I/O."""
    if not direct:
        return Buffered(files)
    from ckio.backends.directory.direct import Direct

    way = Direct(files)
    try:
        _try(files, way, place / TRIAL)
    except OSError as error:
        if error.errno in FULL:  # that is told to those who want to write
            return way
        way.close()
        if error.errno == errno.EINVAL:
            raise BadInput(
                f"directory {place}: its file system has no direct I/O (O_DIRECT);"
                ' choose durability="fdatasync", or a place on a local disk'
            ) from None
        raise failure(files, place, error, f"directory {place}: direct I/O") from error
    return way


def _try(files: Files, way: Payload, path: Path) -> None:
    """Write one page past the page cache, to a file that is removed again."""
    with ExitStack() as ends:
        ends.callback(files.close, files.open(path))
        ends.callback(files.unlink, path)
        direct = files.open_direct(path)
        ends.callback(files.close, direct)
        way.write(direct, [memoryview(b"?")], 0, checksum=False)


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
