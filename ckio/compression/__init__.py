"""Codecs, which compress and decompress blocks of numbers."""

from ckio.compression.base import Codec
from ckio.compression.blosc import Blosc2
from ckio.compression.zfp import Zfp
from ckio.compression.zstd import Zstd

__all__ = ["Blosc2", "Codec", "Zfp", "Zstd"]
