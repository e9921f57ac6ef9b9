"""Payloads: functions that copy buffers, compute their checksums, write and read them."""

import os
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

import numpy as np
import xxhash

from ckio.actions import Buffers
from ckio.backends.files import TILE, Files

SMALL: Final = 1 << 14
"""Up to this many bytes, joining the buffers in new memory is cheaper than handling each alone."""

_LARGE = 1 << 16
"""From this many bytes, numpy copies: that costs 0.2 µs more but lets other threads run."""

_AT_ONCE = 1 << 19
"""Maximum bytes per copy. For larger copies the C library uses another instruction, with which some
processors are a fifth slower if source and target have the same offset within a cache line.
"""

_MOST = os.sysconf("SC_IOV_MAX")
"""Maximum number of buffers of one system call."""

_CALL: Final = 1 << 26
"""Maximum bytes of one system call without checksum; a signal is handled only after the call."""

Piece: TypeAlias = tuple[Buffers, int]
"""Buffers, few enough for one system call, and their offset in a file."""


def gather(into: memoryview, data: Buffers, /) -> None:
    """Copy all buffers into the beginning of `into`, one after the other."""
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
    """Return the xxh3_128 of all buffers together, 16 bytes."""
    if sum(map(len, data)) <= SMALL:
        return xxhash.xxh3_128_digest(b"".join(data))
    state = xxhash.xxh3_128()
    for view in data:
        state.update(view)
    return state.digest()


class Payload:
    """Writes and reads payloads through the page cache; a subclass may bypass it (direct I/O).

    They are transferred piece by piece. The checksum of each piece is computed right after its
    transfer, while it is still in the processor's cache. A small payload is one piece.
    """

    def __init__(self, files: Files, /) -> None:
        self._files = files

    def write(self, fd: int, data: Buffers, offset: int, /, *, checksum: bool) -> bytes:
        """Write all of `data`; return the xxh3_128 of its bytes, or b"" without `checksum`."""
        if sum(map(len, data)) <= SMALL:
            whole = b"".join(data)
            self._files.write(fd, (memoryview(whole),), offset)
            return xxhash.xxh3_128_digest(whole) if checksum else b""
        tiles = pieces(data, offset, TILE if checksum else _CALL)
        return self.write_pieces(fd, tiles, checksum=checksum)

    def read(self, fd: int, into: Buffers, offset: int, expected: bytes, /) -> bool:
        """Fill `into`; return whether its xxh3_128 is `expected` (always True for b"").

        Raises EOFError if the file ends before `into` is full.
        """
        if len(into) <= _MOST and sum(map(len, into)) <= SMALL:
            self._files.read(fd, into, offset)
            return not expected or digest(into) == expected
        return self.read_pieces(fd, pieces(into, offset, TILE if expected else _CALL), expected)

    def write_fields(
        self, fd: int, data: Buffers, offsets: list[int], /, *, checksum: bool
    ) -> bytes:
        """Write buffers, each at its own offset; return the digest as `write` does."""
        if sum(map(len, data)) > SMALL:
            return self.write_pieces(fd, _tiles(data, offsets), checksum=checksum)
        for view, at in zip(data, offsets, strict=True):
            self._files.write(fd, (view,), at)
        return digest(data) if checksum else b""

    def read_fields(self, fd: int, into: Buffers, offsets: list[int], expected: bytes, /) -> bool:
        """Fill buffers, each from its own offset; return the same as `read`."""
        if sum(map(len, into)) > SMALL:
            return self.read_pieces(fd, _tiles(into, offsets), expected)
        for view, at in zip(into, offsets, strict=True):
            self._files.read(fd, (view,), at)
        return not expected or digest(into) == expected

    def write_pieces(self, fd: int, tiles: Iterable[Piece], /, *, checksum: bool) -> bytes:
        """Write buffers, each piece at its own offset; return the digest as `write` does."""
        state = xxhash.xxh3_128()
        for tile, at in tiles:
            self._files.write(fd, tile, at)
            for view in tile if checksum else ():
                state.update(view)
        return state.digest() if checksum else b""

    def read_pieces(self, fd: int, tiles: Iterable[Piece], expected: bytes, /) -> bool:
        """Fill buffers, each piece from its own offset; return the same as `read`."""
        state = xxhash.xxh3_128()
        for tile, at in tiles:
            self._files.read(fd, tile, at)
            for view in tile if expected else ():
                state.update(view)
        return not expected or state.digest() == expected


def _tiles(data: Buffers, offsets: list[int]) -> Iterator[Piece]:
    """Cut large buffers at multiples of a tile in the file; yield the parts and their offsets."""
    for view, offset in zip(data, offsets, strict=True):
        yield from pieces((view,), offset, TILE)


def pieces(data: Buffers, offset: int, most: int, /, *, buffers: int = _MOST) -> Iterator[Piece]:
    """Cut buffers, which follow each other in a file from `offset`, into pieces of `most` bytes.

    A piece has at most `buffers` parts of buffers. The cuts are at multiples of `most` in the file:
    large pages of the page cache begin there, and a system call that begins within a large page
    takes longer. Buffers that fit one call are not cut.
    """
    if len(data) <= buffers and sum(map(len, data)) <= most:
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
            if left == 0 or len(tile) == buffers:
                yield tile, offset
                offset += sum(map(len, tile))
                tile, left = [], most - offset % most
    if tile:
        yield tile, offset
