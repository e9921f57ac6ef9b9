"""zfp: a codec for fields of floats, the only one here that can be lossy (extra `zfp`)."""

import math
import struct
from functools import cache
from numbers import Real
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ckio.compression.base import SEAL, Block, needed, seal, unseal
from ckio.compression.zstd import Zstd
from ckio.errors import BadInput, CorruptCheckpoint

_ZFP, _OTHER = 1, 2
"""The first byte of a block: it was encoded by zfp, or by another codec."""

_MOST_AXES: Final = 4
_SIDE: Final = 4
"""zfp cuts an array into cubes with sides of this many values."""

_FINEST: Final = {4: 2.0**-80, 8: 2.0**-900}
"""The smallest tolerance by bytes of a value: zfp scales values to integers, and the factor must
not overflow."""


_TOLERANCE: Final = struct.Struct("<d")
"""The beginning of a block whose tolerance is not in the name of the codec."""

_LARGEST: Final = 0.25
"""zfp scales values without overflow up to this fraction of the largest floating-point number."""


class Zfp:
    """zfp for float32 and float64 of any shape; lossless, or with errors up to a bound.

    Some blocks cannot be encoded by zfp within the bound: other types, a NaN or an infinity, or
    values so large that the bound is close to their rounding errors. They are encoded by `Zstd()`,
    which is lossless.

    Parameters
    ----------
    tolerance
        The maximum absolute error of a value, in the units of the field.
    relative
        The maximum error of a value, relative to the largest absolute value in its block (about
        1 MiB of one field). It suits models whose fields differ in magnitude. Without `tolerance`
        and `relative` the codec is lossless.

    Raises
    ------
    BadInput
        A bound is not finite and > 0, `relative` is not < 1, both bounds are given, or the package
        zfpy is not installed.
    """

    def __init__(self, tolerance: float | None = None, relative: float | None = None) -> None:
        if tolerance is not None and relative is not None:
            raise BadInput("zfp: tolerance and relative both bound the error; give one of them")
        self.name, self.lossless = "zfp", tolerance is None and relative is None
        self._tolerance, self._relative = tolerance, relative
        # The name has all digits, because decoding may need them, and because codecs with different
        # bounds must not have the same name.
        if tolerance is not None:
            self._tolerance = _positive("tolerance", tolerance, below=math.inf)
            self.name = f"zfp(tolerance={self._tolerance!r})"
        if relative is not None:
            self._relative = _positive("relative", relative, below=1.0)
            self.name = f"zfp(relative={self._relative!r})"
        self._other = Zstd()
        _library()

    def bound(self, nbytes: int, /) -> int:
        return 1 + self._other.bound(nbytes)

    def encode(self, block: Block, into: memoryview, /) -> int:
        tolerance = self._tolerance_of(block)
        if _is_float(block) and tolerance != 0:
            values = np.require(block, requirements="A").reshape(_axes(block.shape))
            options = {} if self.lossless else {"tolerance": tolerance}
            data = _library().compress_numpy(values, write_header=False, **options)
            if self._relative is not None:
                data = _TOLERANCE.pack(tolerance) + data
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
        tolerance = self._tolerance
        if self._relative is not None:
            tolerance, data = _split(data)
        values = into if into.flags.aligned else np.empty_like(into)
        try:
            library._decompress(  # noqa: SLF001, documented by zfpy to decode into existing memory
                _padded(data, axes, into.itemsize),
                library.dtype_to_ztype(into.dtype),
                axes,
                out=values.reshape(axes),
                **({} if tolerance is None else {"tolerance": tolerance}),
            )
        except ValueError as error:
            raise CorruptCheckpoint(f"the zfp block is damaged: {error}") from None
        if values is not into:
            into[...] = values

    def _about(self, block: Block) -> str:
        """Return the type and shape as text, because zfp's bytes do not contain them."""
        return f"{self.name} {block.dtype.str} {_axes(block.shape)}"

    def _tolerance_of(self, block: Block) -> float | None:
        """Return the tolerance for a block; None for lossless, 0 if zfp cannot observe it."""
        if self.lossless or not _is_float(block):
            return None
        largest = max(abs(float(block.min())), abs(float(block.max())))
        if largest > _LARGEST * float(np.finfo(block.dtype).max):
            return 0.0  # a value within the tolerance may be infinite after decoding
        relative = self._relative
        tolerance = self._tolerance if relative is None else relative * largest
        # zfp quantises in units of the largest value / 2**bits; its transform loses some bits more.
        bits = 8 * block.itemsize - 2 * len(_axes(block.shape)) - 6
        # For NaN and infinity this comparison is false, too.
        if tolerance is not None and math.ldexp(largest, -bits) <= tolerance < math.inf:
            return tolerance if tolerance >= _FINEST[block.itemsize] else 0.0
        return 0.0


def _positive(name: str, value: float, *, below: float) -> float:
    """Return a valid bound of errors; raises BadInput if it is not between 0 and `below`."""
    if isinstance(value, Real) and not isinstance(value, bool) and 0 < value < below:
        return float(value)
    limit = "finite and > 0" if below == math.inf else f"> 0 and < {below:g}"
    raise BadInput(f"zfp: {name} = {value!r}; it must be {limit}")


def _split(data: memoryview) -> tuple[float, memoryview]:
    """Return the tolerance at the beginning of a block, and the rest of the block."""
    if data.nbytes >= _TOLERANCE.size:
        (tolerance,) = _TOLERANCE.unpack_from(data)
        if 0 < tolerance < math.inf:
            return tolerance, data[_TOLERANCE.size :]
    raise CorruptCheckpoint("the zfp block has no valid tolerance")


@cache
def _library() -> Any:
    return needed("zfpy", "zfp")


def _is_float(block: Block) -> bool:
    return block.dtype in (np.float32, np.float64)


def _axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape of one to four axes for the same elements; the last axes do not change.

    >>> _axes((1, 2, 3, 4, 5, 6))
    (6, 4, 5, 6)
    """
    axes = [n for n in shape if n != 1] or [1]
    spare = max(0, len(axes) - _MOST_AXES)
    return (math.prod(axes[: spare + 1]), *axes[spare + 1 :])


def _padded(data: memoryview, axes: tuple[int, ...], item: int) -> NDArray[np.uint8]:
    """Return the data followed by zeros, because zfp does not know the end of its input.

    There are zeros as far as zfp can read: for each cube about 30 bits, and then, for each bit of a
    value, at most two bits for each value.
    """
    cubes = math.prod(-(-n // _SIDE) for n in axes)
    bits = 64 + 8 * item * (2 * _SIDE ** len(axes) + 1)
    padded = np.zeros(64 + cubes * (bits // 8 + 1), np.uint8)
    if data.nbytes > padded.size:
        raise CorruptCheckpoint("the zfp block is longer than any can be")
    padded[: data.nbytes] = data
    return padded
