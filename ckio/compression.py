"""Codecs: the bytes of a checkpoint made fewer, and made again."""

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import zstandard
from numpy.typing import NDArray

from ckio.actions import Buffers
from ckio.errors import BadInput, CorruptCheckpoint

_TILE = 1 << 18
"""Bytes shuffled at once: they stay in the cache until they are compressed."""

_WINDOW = 1 << 27
"""Bytes that a frame may make the decoder allocate; the largest that the levels of zstd need."""


class Codec(Protocol):
    """One way to compress, into and from memory that the caller owns.

    Attributes
    ----------
    name : str
        What a checkpoint says it was encoded with: equal names decode each other's bytes.
    lossless : bool
        Whether what is decoded is bitwise what was encoded.
    """

    @property
    def name(self) -> str: ...
    @property
    def lossless(self) -> bool: ...

    def bound(self, nbytes: int, /) -> int:
        """The most bytes that encoding `nbytes` can give."""

    def encode(self, data: Buffers, into: memoryview, /) -> int:
        """Encode all buffers into the beginning of `into`; returns how many bytes that took."""

    def decode(self, data: memoryview, into: Buffers, /) -> None:
        """Fill `into` from all of `data`; raises CorruptCheckpoint where it does not give that."""


class Zstd:
    """Zstandard: one frame with a checksum.

    Parameters
    ----------
    level
        From -7 (fast) to 22 (small).
    shuffle
        Bytes of one number, e.g. 8 for float64: the first bytes of many numbers are put side by
        side, then their second bytes, and so on. Floats hardly shrink without. 0 leaves them as is.
    """

    lossless = True

    def __init__(self, level: int = 1, shuffle: int = 0) -> None:
        if not -7 <= level <= zstandard.MAX_COMPRESSION_LEVEL:
            raise BadInput(f"zstd: level = {level}; it must be from -7 to 22")
        if not 0 <= shuffle <= 64:
            raise BadInput(f"zstd: shuffle = {shuffle}; it is the bytes of one number, or 0")
        self.name = f"zstd+shuffle{shuffle}" if shuffle > 1 else "zstd"
        self._item = shuffle if shuffle > 1 else 0
        self._encoder = zstandard.ZstdCompressor(level=level, write_checksum=True)
        self._decoder = zstandard.ZstdDecompressor(max_window_size=_WINDOW)
        self._tile = np.empty(_TILE // self._item * self._item if self._item else 0, np.uint8)

    def bound(self, nbytes: int, /) -> int:
        # Blocks of up to 128 KiB that do not shrink cost 3 bytes each; the frame, at most 22.
        return nbytes + (nbytes >> 8) + 64

    def encode(self, data: Buffers, into: memoryview, /) -> int:
        sink = _Sink(into)
        total = sum(map(len, data))
        writer = self._encoder.stream_writer(sink, size=total, closefd=False)  # type: ignore[arg-type]
        with writer as frame:
            for view in data:
                for piece in self._pieces(view):
                    frame.write(self._shuffled(piece))
        return sink.count

    def decode(self, data: memoryview, into: Buffers, /) -> None:
        frame = self._decoder.stream_reader(data, closefd=False)
        try:
            for view in into:
                for piece in self._pieces(view):
                    if self._whole(piece):
                        tile = self._tile[: piece.nbytes]
                        _fill(frame, tile.data)
                        _unshuffle(tile, piece, self._item)
                    else:
                        _fill(frame, piece)
            # Only the attempt to read on makes the decoder compare its checksum.
            if frame.read(1):
                raise CorruptCheckpoint("the zstd frame holds more bytes than the checkpoint")
        except zstandard.ZstdError as error:
            raise CorruptCheckpoint(f"the zstd frame is damaged: {error}") from None

    def _pieces(self, view: memoryview) -> Iterator[memoryview]:
        """Tiles of whole numbers, then what is left of the view."""
        begin, whole = 0, 0
        if self._item:
            whole = view.nbytes // self._item * self._item
            for begin in range(0, whole, self._tile.size):
                yield view[begin : min(begin + self._tile.size, whole)]
        if whole < view.nbytes:
            yield view[whole:]

    def _whole(self, piece: memoryview) -> bool:
        return self._item > 0 and piece.nbytes >= self._item

    def _shuffled(self, piece: memoryview) -> memoryview:
        if not self._whole(piece):
            return piece
        numbers = np.frombuffer(piece, np.uint8).reshape(-1, self._item)
        tile = self._tile[: piece.nbytes]
        tile.reshape(self._item, -1)[...] = numbers.T
        return tile.data


def _unshuffle(tile: NDArray[np.uint8], piece: memoryview, item: int) -> None:
    numbers = np.frombuffer(piece, np.uint8).reshape(-1, item)
    numbers[...] = tile.reshape(item, -1).T


def _fill(frame: zstandard.ZstdDecompressionReader, view: memoryview) -> None:
    while view.nbytes:
        done = frame.readinto(view)
        if done == 0:
            raise CorruptCheckpoint("the zstd frame ends too early")
        view = view[done:]


class _Sink:
    """Memory that a compressor writes to as if it were a file."""

    def __init__(self, into: memoryview) -> None:
        self._into = into
        self.count = 0

    def write(self, data: bytes) -> int:
        end = self.count + len(data)
        self._into[self.count : end] = data
        self.count = end
        return len(data)
