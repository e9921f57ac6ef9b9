"""Zstandard: a codec of every ckio installation, which most programs for HDF5 know, too."""

import threading
from typing import Final

import numpy as np
import zstandard
from numpy.typing import NDArray

from ckio.compression.base import Block, as_bytes, shuffle, shuffled_bytes, unshuffle
from ckio.errors import BadInput, CorruptCheckpoint

_LEVELS: Final = range(-7, zstandard.MAX_COMPRESSION_LEVEL + 1)


class Zstd:
    """Zstandard: each block becomes one frame, which contains its size and ends with a checksum.

    Parameters
    ----------
    level
        From -7 (fastest) to 22 (best compression).
    shuffle
        Whether the bytes of the numbers are shuffled first; without this, floats hardly shrink.

    Raises BadInput if an option is out of range.
    """

    lossless = True

    def __init__(self, level: int = 1, shuffle: bool = True) -> None:
        if level not in _LEVELS:
            raise BadInput(f"zstd: level = {level}; it must be a whole number from -7 to 22")
        if shuffle not in (True, False):
            raise BadInput(f"zstd: shuffle = {shuffle}; it must be true or false")
        self.name = "zstd+shuffle" if shuffle else "zstd"
        self._shuffle = bool(shuffle)
        self._tools = _Tools(int(level))

    def bound(self, nbytes: int, /) -> int:
        # zstd's blocks of up to 128 KiB need 3 additional bytes each, if they do not shrink; the
        # frame needs at most 22.
        return nbytes + (nbytes >> 8) + 64

    def encode(self, block: Block, into: memoryview, /) -> int:
        tools, plain = self._tools, as_bytes(block)
        if self._is_shuffled(block):
            plain = tools.scratch(block.nbytes)
            shuffle(block, plain)
        frame: bytes = tools.encoder.compress(plain.data)
        into[: len(frame)] = frame
        return len(frame)

    def decode(self, data: memoryview, into: Block, /) -> None:
        try:
            frame = zstandard.get_frame_parameters(data)
            if frame.content_size != into.nbytes or not frame.has_checksum:
                raise CorruptCheckpoint(
                    f"the zstd frame is none of {into.nbytes} bytes with a checksum"
                )
            plain = self._tools.decoder.decompress(data, allow_extra_data=False)
        except (zstandard.ZstdError, MemoryError) as error:
            raise CorruptCheckpoint(f"the zstd frame is damaged: {error}") from None
        if self._is_shuffled(into):
            unshuffle(np.frombuffer(plain, np.uint8), into)
        else:
            as_bytes(into)[...] = np.frombuffer(plain, np.uint8)

    def _is_shuffled(self, block: Block) -> bool:
        return self._shuffle and shuffled_bytes(block.dtype) > 1


class _Tools(threading.local):
    """Objects of one thread, because they are slow to make and only one thread may use each."""

    def __init__(self, level: int) -> None:
        self.encoder = zstandard.ZstdCompressor(level=level, write_checksum=True)
        self.decoder = zstandard.ZstdDecompressor()
        self._scratch = np.empty(0, np.uint8)

    def scratch(self, nbytes: int, /) -> NDArray[np.uint8]:
        """Return scratch memory; it is allocated only if the last is too small."""
        if self._scratch.size < nbytes:
            self._scratch = np.empty(nbytes, np.uint8)
        return self._scratch[:nbytes]
