"""Byte shuffle, as HDF5's filter 2 does it to a chunk: first bytes first, then second bytes, ...

The bytes of neighbouring numbers are alike in sign and exponent and noise further back: a codec
finds what is alike only once it lies side by side.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ckio.compression.base import Block, as_bytes

_SMALL: Final = 1 << 12
"""Bytes below which a call of numpy takes longer than what it does."""


def shuffled_bytes(dtype: np.dtype[np.generic], /) -> int:
    """Bytes of one element where shuffling helps; 1 where it does not: bytes, texts, records.

    A complex number is one element, as for HDF5, where it is a compound of two; spectra became 3 to
    9 % smaller so than with their parts as numbers of their own.
    """
    return dtype.itemsize if dtype.kind in "iufcmM" else 1


def shuffle(block: Block, into: NDArray[np.uint8], /) -> None:
    """Fill `into`, of as many bytes as the block, with its bytes, shuffled."""
    elements = as_bytes(block).reshape(-1, block.itemsize)
    into.reshape(block.itemsize, -1)[...] = elements.T


def unshuffle(data: NDArray[np.uint8], into: Block, /) -> None:
    """Fill a block from its shuffled bytes."""
    elements, planes = as_bytes(into).reshape(-1, into.itemsize), data.reshape(into.itemsize, -1)
    if data.size < _SMALL:
        elements[...] = planes.T
        return
    # One plane after the other: numpy would go element by element, which takes three times as long.
    for place, plane in enumerate(planes):
        elements[:, place] = plane
