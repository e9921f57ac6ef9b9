"""The payload of an archive's checkpoint on its way: each field lies elsewhere in the file.

Each is moved in tiles, and a tile is digested while it is in the cache. A small payload is digested
in one go. All of this is on the path of every checkpoint: no generators, and few calls; what a
system call did in part only is done again, with patience.
"""

from typing import TypeAlias

import xxhash

from ckio.actions import Buffers
from ckio.backends.buffers import SMALL, TILE
from ckio.backends.files import Files

Spans: TypeAlias = list[tuple[int, int]]
"""Offset in the file and bytes of each field."""


def write(
    files: Files, fd: int, data: Buffers, spans: Spans, nbytes: int, /, *, checksum: bool
) -> bytes:
    """Write `nbytes` of payload; returns the xxh3_128 of its bytes, b"" without `checksum`."""
    if checksum and nbytes > SMALL:
        return _write_tiles(files, fd, data, spans)
    pwritev = files.pwritev
    for view, (at, size) in zip(data, spans, strict=True):
        if pwritev(fd, (view,), at) != size:
            files.write(fd, (view,), at)
    return xxhash.xxh3_128_digest(b"".join(data)) if checksum else b""


def _write_tiles(files: Files, fd: int, data: Buffers, spans: Spans) -> bytes:
    state = xxhash.xxh3_128()
    update, pwritev = state.update, files.pwritev
    for view, (at, size) in zip(data, spans, strict=True):
        for begin in range(0, size, TILE):
            tile = view[begin : begin + TILE]
            if pwritev(fd, (tile,), at + begin) != len(tile):
                files.write(fd, (tile,), at + begin)
            update(tile)  # behind the call, which leaves it in the cache
    return state.digest()


def read(
    files: Files, fd: int, into: Buffers, spans: Spans, nbytes: int, /, *, digest: bytes
) -> bool:
    """Fill `into`; whether its bytes have this xxh3_128, which b"" says nothing of.

    Raises EOFError where the file ends within.
    """
    if digest and nbytes > SMALL:
        return _read_tiles(files, fd, into, spans) == digest
    preadv = files.preadv
    for view, (at, size) in zip(into, spans, strict=True):
        if preadv(fd, (view,), at) != size:
            files.read(fd, (view,), at)
    return not digest or xxhash.xxh3_128_digest(b"".join(into)) == digest


def _read_tiles(files: Files, fd: int, into: Buffers, spans: Spans) -> bytes:
    state = xxhash.xxh3_128()
    update, preadv = state.update, files.preadv
    for view, (at, size) in zip(into, spans, strict=True):
        for begin in range(0, size, TILE):
            tile = view[begin : begin + TILE]
            if preadv(fd, (tile,), at + begin) != len(tile):
                files.read(fd, (tile,), at + begin)
            update(tile)
    return state.digest()
