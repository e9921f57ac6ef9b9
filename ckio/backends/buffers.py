"""Moving the bytes of buffers: copied, cut into pieces, digested; never through a new object."""

import os
from collections.abc import Iterable, Iterator
from typing import TypeAlias

import numpy as np
import xxhash

from ckio.actions import Buffers

TILE = 1 << 20
"""Bytes handled at once, so that a tile is still in the cache when it is used a second time."""

SMALL = 1 << 14
"""Up to here it is cheaper to put buffers together in new memory than to handle them one by one."""

_LARGE = 1 << 16
"""From here numpy copies: it costs 0.2 µs more, and lets other threads run meanwhile."""

_AT_ONCE = 1 << 19
"""Bytes that are copied at once: beyond, where both begin alike within a cache line, some
processors are a fifth slower than with the instruction that the C library uses for less.
"""

MOST = os.sysconf("SC_IOV_MAX")
"""Buffers that one system call takes."""

Piece: TypeAlias = tuple[Buffers, int]
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


def pieces(data: Buffers, offset: int, most: int = TILE, /) -> Iterable[Piece]:
    """Cut buffers that lie one behind the other in a file from `offset`: at most `most` bytes each.

    They are cut where the file is at a multiple of `most`: the page cache has its large pages
    there, and a call that begins within one takes longer.
    """
    if len(data) <= MOST and sum(map(len, data)) <= most:
        return ((data, offset),)
    return _cut(data, offset, most)


def _cut(data: Buffers, offset: int, most: int) -> Iterator[Piece]:
    tile: list[memoryview] = []
    room = most - offset % most
    for view in data:
        begin = 0
        while begin < view.nbytes:
            part = view[begin : begin + room]
            tile.append(part)
            begin += part.nbytes
            room -= part.nbytes
            if room == 0 or len(tile) == MOST:
                yield tile, offset
                offset += sum(map(len, tile))
                tile, room = [], most - offset % most
    if tile:
        yield tile, offset


def digest(data: Buffers, /) -> bytes:
    """The 16 bytes xxh3_128 of all buffers together."""
    if sum(map(len, data)) <= SMALL:
        return xxhash.xxh3_128_digest(b"".join(data))
    state = xxhash.xxh3_128()
    for view in data:
        state.update(view)
    return state.digest()
