"""Payloads: buffers that are copied, cut, digested, and moved to and from a file, all in place."""

import os
from collections.abc import Iterator
from typing import Final, Protocol, TypeAlias

import numpy as np
import xxhash

from ckio.actions import Buffers
from ckio.backends.files import TILE, Files

SMALL = 1 << 14
"""Up to here it is cheaper to put buffers together in new memory than to handle them one by one."""

_LARGE = 1 << 16
"""From here numpy copies: it costs 0.2 µs more, and lets other threads run meanwhile."""

_AT_ONCE = 1 << 19
"""Bytes that are copied at once: beyond, where both begin alike within a cache line, some
processors are a fifth slower than with the instruction that the C library uses for less.
"""

_MOST = os.sysconf("SC_IOV_MAX")
"""Buffers that one system call takes."""

_CALL: Final = 1 << 26
"""Bytes that one system call moves where nothing is digested: a signal waits for its end."""

_Piece: TypeAlias = tuple[Buffers, int]
"""Some bytes, in few enough buffers for one system call, and their offset in a file."""


def gather(into: memoryview, data: Buffers, /) -> None:
    """Copy all buffers into the beginning of `into`, one behind the other."""
    if len(into) <= SMALL:
        whole = b"".join(data)
        into[: len(whole)] = whole
        return
    begin = 0
    for view in data:
        end = begin + view.nbytes
        _copy(into[begin:end], view)
        begin = end


def scatter(data: memoryview, into: Buffers, /) -> None:
    """Fill all buffers from the beginning of `data`."""
    begin = 0
    for view in into:
        end = begin + view.nbytes
        _copy(view, data[begin:end])
        begin = end


def _copy(into: memoryview, data: memoryview) -> None:
    if data.nbytes < _LARGE:
        into[:] = data
    else:
        target, source = np.frombuffer(into, np.uint8), np.frombuffer(data, np.uint8)
        for begin in range(0, len(source), _AT_ONCE):
            target[begin : begin + _AT_ONCE] = source[begin : begin + _AT_ONCE]


def digest(data: Buffers, /) -> bytes:
    """Return the 16 bytes xxh3_128 of all buffers together."""
    if sum(map(len, data)) <= SMALL:
        return xxhash.xxh3_128_digest(b"".join(data))
    state = xxhash.xxh3_128()
    for view in data:
        state.update(view)
    return state.digest()


class Payload(Protocol):
    """A way for payloads: through the page cache (`Buffered`), or past it (as a directory has)."""

    def write(self, fd: int, data: Buffers, offset: int, /, *, checksum: bool) -> bytes:
        """Write all of `data`; returns the xxh3_128 of its bytes, b"" without `checksum`."""

    def read(self, fd: int, into: Buffers, offset: int, expected: bytes, /) -> bool:
        """Fill `into`; returns whether its bytes have this xxh3_128 (b"" is not compared).

        Raises EOFError where the file ends within.
        """

    def close(self) -> None:
        """Release threads and memory; may be called twice."""


class Buffered:
    """Payloads that go through the page cache.

    A small payload is digested in one go, and moved by one call, with patience only where that did
    a part of it: here, what Python does takes longer than the bytes. A large one is moved tile by
    tile, and each tile is digested while the call has left it in the processor's cache.
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
        if nbytes <= most and len(data) <= _MOST:
            if self._files.pwritev(fd, data, offset) != nbytes:
                self._files.write(fd, data, offset)
            return digest(data) if checksum else b""
        state = xxhash.xxh3_128()
        for tile, at in _cut(data, offset, most):
            self._files.write(fd, tile, at)
            _update(state, tile if checksum else ())
        return state.digest() if checksum else b""

    def read(self, fd: int, into: Buffers, offset: int, expected: bytes, /) -> bool:
        nbytes = sum(map(len, into))
        if nbytes <= SMALL and len(into) <= _MOST:
            if nbytes and self._files.preadv(fd, into, offset) != nbytes:
                self._files.read(fd, into, offset)
            return not expected or xxhash.xxh3_128_digest(b"".join(into)) == expected
        state = xxhash.xxh3_128()
        for tile, at in _cut(into, offset, TILE if expected else _CALL):
            self._files.read(fd, tile, at)
            _update(state, tile if expected else ())
        return not expected or state.digest() == expected

    def close(self) -> None:
        pass


def _update(state: "xxhash.xxh3_128", data: Buffers) -> None:
    for view in data:
        state.update(view)


def _cut(data: Buffers, offset: int, most: int) -> Iterator[_Piece]:
    """Cut buffers that lie one behind the other in a file from `offset`, at most `most` bytes each.

    They are cut where the file is at a multiple of `most`: the page cache has its large pages
    there, and a call that begins within one takes longer. What one call takes is not cut.
    """
    if len(data) <= _MOST and sum(map(len, data)) <= most:
        yield data, offset
        return
    tile: list[memoryview] = []
    left = most - offset % most
    for view in data:
        begin = 0
        while begin < view.nbytes:
            part = view[begin : begin + left]
            tile.append(part)
            begin += part.nbytes
            left -= part.nbytes
            if left == 0 or len(tile) == _MOST:
                yield tile, offset
                offset += sum(map(len, tile))
                tile, left = [], most - offset % most
    if tile:
        yield tile, offset
