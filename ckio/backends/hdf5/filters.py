"""The filters by which HDF5 undoes what a codec did to a block, without ckio.

A dataset has a line of filters, and each of its chunks says which of them it skipped: so one
dataset takes blocks of a codec that now encodes in one way and now in another. All lines end with
zstd, which zfp falls back to, and which a block of zeros is made with.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ckio.compression.base import SEAL, needed, shuffled_bytes
from ckio.compression.zstd import Zstd

_SHUFFLE: Final = 2
_ZSTD: Final = 32015
_ZFP: Final = 32013

_FRAME: Final = 0x28
"""The first byte of a zstd frame."""

_BY_ZFP, _BY_ZSTD = 1, 2
"""The first byte of a block of the codec zfp: who made what follows."""

_ZFP_FILTER: Final = 0x10105111
"""The versions that the filter for zfp is told of: zfp 1.0.1, its format 5, the filter 1.1.1."""

_ZFP_AXES: Final = 4


@dataclass(frozen=True)
class Pipeline:
    """The filters of one dataset, and what its chunks are.

    Attributes
    ----------
    numbers : tuple of int
        HDF5's numbers of the filters, in the order in which they would encode.
    chunks : mapping of int to (int, int)
        By the first byte of an encoded block: how many of its bytes come before the chunk, and the
        filters that the chunk skipped, a bit for each.
    dtype : dtype
    block : tuple of int
        The shape of a block.
    tolerance : float or None
        Of zfp.
    """

    numbers: tuple[int, ...]
    chunks: Mapping[int, tuple[int, int]]
    dtype: np.dtype[Any]
    block: tuple[int, ...]
    tolerance: float | None = None

    def filters(self) -> list[tuple[int, tuple[int, ...]]]:
        """The numbers, each with the options to set it with: as a filter that is optional.

        So it is not needed where the file is written. Raises BadInput where zfp is, and is missing.
        """
        return [(number, self._options(number)) for number in self.numbers]

    def blank(self) -> tuple[bytes, int]:
        """A chunk of zeros, and the filters that it skipped."""
        zeros, codec = np.zeros(self.block, self.dtype), Zstd(shuffle=False)
        chunk = memoryview(bytearray(codec.bound(zeros.nbytes)))
        count = codec.encode(zeros, chunk)
        return bytes(chunk[:count]), (1 << len(self.numbers) - 1) - 1

    def _options(self, number: int) -> tuple[int, ...]:
        if number == _SHUFFLE:
            return ()  # HDF5 itself puts in the bytes of an element
        if number == _ZSTD:
            return (1,)
        # What zfp puts before a block is the same for all, and the codec leaves it out.
        options = {} if self.tolerance is None else {"tolerance": self.tolerance}
        zeros = np.zeros(_long_axes(self.block), self.dtype)
        encoded = needed("zfpy", "zfp").compress_numpy(zeros, write_header=True, **options)
        return (_ZFP_FILTER, *np.frombuffer(encoded, "<u4", 3).tolist())


def pipeline(codec: str, dtype: np.dtype[Any], block: tuple[int, ...], /) -> Pipeline | None:
    """How HDF5 reads blocks of this type and shape from a codec of this name.

    None where no filters undo what it did: a codec not listed here, or blocks with more axes than
    zfp's filter takes.
    """
    # Of elements, as the codec does it: for HDF5, too, a complex number is one element.
    shuffled = (_SHUFFLE, _ZSTD) if shuffled_bytes(dtype) > 1 else (_ZSTD,)
    if codec == "zstd":
        return Pipeline((_ZSTD,), {_FRAME: (0, 0)}, dtype, block)
    if codec == "zstd+shuffle":
        return Pipeline(shuffled, {_FRAME: (0, 0)}, dtype, block)
    found = re.fullmatch(r"zfp(?:\(tolerance=(\d+(?:\.\d+)?(?:e[+-]?\d+)?)\))?", codec)
    if found is None or len(_long_axes(block)) > _ZFP_AXES:
        return None
    if dtype not in (np.float32, np.float64):  # none that zfp encodes
        return Pipeline(shuffled, {_BY_ZSTD: (1, 0)}, dtype, block)
    skips_all_but_zfp = ((1 << len(shuffled)) - 1) << 1
    chunks = {_BY_ZFP: (1 + SEAL, skips_all_but_zfp), _BY_ZSTD: (1, 1)}
    tolerance = float(found[1]) if found[1] else None
    return Pipeline((_ZFP, *shuffled), chunks, dtype, block, tolerance)


def _long_axes(block: tuple[int, ...]) -> list[int]:
    return [length for length in block if length != 1] or [1]
