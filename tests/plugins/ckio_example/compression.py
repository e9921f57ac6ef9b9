"""The codec zlib, which comes with Python."""

import zlib

import numpy as np

from ckio.compression.base import Block, as_bytes
from ckio.errors import BadInput, CorruptCheckpoint


class Zlib:
    """Deflate, with the checksum that zlib appends.

    Parameters
    ----------
    level
        From 1 (fast) to 9 (small).
    """

    name = "zlib"
    lossless = True

    def __init__(self, level: int = 1) -> None:
        if level not in range(1, 10):
            raise BadInput(f"zlib: level = {level}; it must be a whole number from 1 to 9")
        self._level = level

    def bound(self, nbytes: int, /) -> int:
        return nbytes + (nbytes >> 10) + 64

    def encode(self, block: Block, into: memoryview, /) -> int:
        data = zlib.compress(as_bytes(block).data, self._level)
        into[: len(data)] = data
        return len(data)

    def decode(self, data: memoryview, into: Block, /) -> None:
        stream = zlib.decompressobj()
        try:
            plain = stream.decompress(data, into.nbytes + 1)
        except zlib.error as error:
            raise CorruptCheckpoint(f"the block is damaged: {error}") from None
        if len(plain) != into.nbytes or not stream.eof or stream.unused_data:
            raise CorruptCheckpoint(f"the block is not one of {into.nbytes} bytes")
        as_bytes(into)[...] = np.frombuffer(plain, np.uint8)
