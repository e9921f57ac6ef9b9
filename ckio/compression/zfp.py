"""zfp: made for fields of floats; the only codec here that may be lossy (extra `zfp`)."""

import math
from functools import cache
from numbers import Real
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ckio.compression.base import SEAL, Block, needed, seal, unseal
from ckio.compression.zstd import Zstd
from ckio.errors import BadInput, CorruptCheckpoint

_ZFP, _OTHER = 1, 2
"""The first byte of a block says who encoded it."""

_MOST_AXES: Final = 4
_SIDE: Final = 4
"""zfp cuts an array into cubes with sides of this many values."""

_FINEST: Final = {4: 2.0**-80, 8: 2.0**-900}
"""The least tolerance by bytes of a value: zfp scales values up to integers, and the factor must
not overflow."""


class Zfp:
    """zfp: float32 and float64, of any shape; lossless, or with errors up to a tolerance.

    A block that zfp cannot take, or cannot bring within the tolerance (one that holds a NaN or an
    infinity, or values so large that the tolerance is about their rounding), is encoded by
    `Zstd()`: lossless.

    Parameters
    ----------
    tolerance
        The largest absolute error of a value; None is lossless.

    Raises
    ------
    BadInput
        Where the tolerance is not finite and > 0, or the package zfpy is not installed.
    """

    def __init__(self, tolerance: float | None = None) -> None:
        self.name, self.lossless = "zfp", tolerance is None
        self._options: dict[str, float] = {}
        if tolerance is not None:
            if not isinstance(tolerance, Real) or not 0 < tolerance < math.inf:
                raise BadInput(f"zfp: tolerance = {tolerance!r}; it must be finite and > 0")
            tolerance = float(tolerance)
            # In full: decoding needs it, and two that differ must not share a name.
            self.name = f"zfp(tolerance={tolerance!r})"
            self._options["tolerance"] = tolerance
        self._other = Zstd()
        _library()

    def bound(self, nbytes: int, /) -> int:
        return 1 + self._other.bound(nbytes)

    def encode(self, block: Block, into: memoryview, /) -> int:
        if self._takes(block):
            values = np.require(block, requirements="A").reshape(_axes(block.shape))
            data = _library().compress_numpy(values, write_header=False, **self._options)
            if SEAL + len(data) < block.nbytes:
                into[0] = _ZFP
                return 1 + seal(data, into[1:], self._about(block))
        into[0] = _OTHER
        return 1 + self._other.encode(block, into[1:])

    def decode(self, data: memoryview, into: Block, /) -> None:
        who = data[0] if data.nbytes else 0
        if who == _ZFP and _is_float(into):
            self._decode(unseal(data[1:], self._about(into)), into)
        elif who == _OTHER:
            self._other.decode(data[1:], into)
        else:
            raise CorruptCheckpoint("the block was not encoded by zfp")

    def _decode(self, data: memoryview, into: Block) -> None:
        library, axes = _library(), _axes(into.shape)
        values = into if into.flags.aligned else np.empty_like(into)
        try:
            library._decompress(  # noqa: SLF001, zfpy's documented way into memory that is there
                _padded(data, axes, into.itemsize),
                library.dtype_to_ztype(into.dtype),
                axes,
                out=values.reshape(axes),
                **self._options,
            )
        except ValueError as error:
            raise CorruptCheckpoint(f"the zfp block is damaged: {error}") from None
        if values is not into:
            into[...] = values

    def _about(self, block: Block) -> str:
        """What zfp's bytes do not say: they are numbers of any shape to it."""
        return f"{self.name} {block.dtype.str} {_axes(block.shape)}"

    def _takes(self, block: Block) -> bool:
        if self.lossless or not _is_float(block):
            return _is_float(block)
        tolerance = self._options["tolerance"]
        if tolerance < _FINEST[block.itemsize]:
            return False
        # zfp counts in steps of the largest value / 2**bits, and its transform loses some of them.
        bits = 8 * block.itemsize - 2 * len(_axes(block.shape)) - 6
        largest = max(abs(float(block.min())), abs(float(block.max())))
        # False for what is not finite, too: an infinity is larger, and a NaN compares with nothing.
        return math.ldexp(largest, -bits) <= tolerance


@cache
def _library() -> Any:
    return needed("zfpy", "zfp")


def _is_float(block: Block) -> bool:
    return block.dtype in (np.float32, np.float64)


def _axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape of one to four axes for as many elements in the same order; the last ones stay."""
    axes = [n for n in shape if n != 1] or [1]
    spare = max(0, len(axes) - _MOST_AXES)
    return (math.prod(axes[: spare + 1]), *axes[spare + 1 :])


def _padded(data: memoryview, axes: tuple[int, ...], item: int) -> NDArray[np.uint8]:
    """The data, and zeros for as far as zfp can read: it does not know where its input ends.

    Of each cube it reads some 30 bits, then for each bit of a value at most two for each value.
    """
    cubes = math.prod(-(-n // _SIDE) for n in axes)
    bits = 64 + 8 * item * (2 * _SIDE ** len(axes) + 1)
    padded = np.zeros(64 + cubes * (bits // 8 + 1), np.uint8)
    if data.nbytes > padded.size:
        raise CorruptCheckpoint("the zfp block is longer than any can be")
    padded[: data.nbytes] = data
    return padded
