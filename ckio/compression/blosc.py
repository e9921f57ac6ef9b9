"""Blosc2: shuffle and a fast codec, two to three times as fast as zstd (extra `blosc`)."""

import struct
from functools import cache
from typing import Any, Final

from ckio.compression.base import SEAL, Block, as_bytes, needed, seal, shuffled_bytes, unseal
from ckio.errors import BadInput, CorruptCheckpoint

_CODECS: Final = ("blosclz", "lz4", "lz4hc", "zlib", "zstd")
_LEVELS: Final = range(10)

_HEADER: Final = struct.Struct("<4B3i6B2B6B2B")
"""The header of a chunk: versions, flags, bytes of an element; sizes; filters, codec and their
options; more flags."""


class Blosc2:
    """Blosc2: each block becomes a checksum and one shuffled chunk.

    Parameters
    ----------
    codec
        The codec for the shuffled bytes: blosclz, lz4, lz4hc, zlib or zstd.
    level
        From 0 (no compression) to 9 (best compression).

    Raises
    ------
    BadInput
        An option is out of range, or the package blosc2 is not installed.
    """

    name = "blosc2"
    lossless = True

    def __init__(self, codec: str = "lz4", level: int = 1) -> None:
        if codec not in _CODECS:
            raise BadInput(f"blosc2: codec = {codec!r}; it must be one of {', '.join(_CODECS)}")
        if level not in _LEVELS:
            raise BadInput(f"blosc2: level = {level}; it must be a whole number from 0 to 9")
        library = _library()
        self._options = {
            "codec": library.Codec[codec.upper()],
            "clevel": int(level),
            "filters": [library.Filter.SHUFFLE],
            "filters_meta": [0],
            "nthreads": 1,  # blocks are compressed in parallel already
        }

    def bound(self, nbytes: int, /) -> int:
        return SEAL + _HEADER.size + nbytes

    def encode(self, block: Block, into: memoryview, /) -> int:
        item = shuffled_bytes(block.dtype)
        chunk = _library().compress2(as_bytes(block).data, typesize=item, **self._options)
        return seal(chunk, into)

    def decode(self, data: memoryview, into: Block, /) -> None:
        chunk = unseal(data)
        _check(chunk, into.nbytes)
        try:
            _library().decompress2(chunk, dst=as_bytes(into).data, nthreads=1)
        except (RuntimeError, ValueError) as error:
            raise CorruptCheckpoint(f"the blosc2 chunk is damaged: {error}") from None


@cache
def _library() -> Any:
    library = needed("blosc2", "blosc")
    # With this option blosc2 lets other threads run meanwhile. It applies to the whole process, and
    # is off by default because it makes small arrays slower.
    library.set_releasegil(True)
    return library


def _check(chunk: memoryview, nbytes: int) -> None:
    """Raise CorruptCheckpoint unless this is a complete, ordinary chunk of `nbytes` bytes.

    A header can also request other codecs that must be loaded, data in another file, or
    uninitialised memory; and blosc2 writes as many bytes as the header requests.
    """
    if chunk.nbytes >= _HEADER.size:
        header = _HEADER.unpack_from(chunk)
        flags, sizes, filters = header[2], (header[4], header[6]), header[7:13]
        codec, special = header[13], header[21:]
        plain = flags >> 5 < len(_CODECS) and codec <= len(_CODECS) and max(filters) <= 1
        if sizes == (nbytes, chunk.nbytes) and plain and special in {(0, 0), (0, 0x10)}:
            return
    raise CorruptCheckpoint(f"the blosc2 chunk is none of {nbytes} bytes")
