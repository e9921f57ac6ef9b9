"""zfp: a codec for fields of floats, the only one here that can be lossy (extra `zfp`)."""

import math
from functools import cache
from numbers import Real
from typing import Any, Final

import numpy as np

from ckio.compression.base import Block, needed
from ckio.compression.zstd import Zstd
from ckio.errors import BadInput, CorruptCheckpoint

_MAGIC: Final = b"zfp"
"""The first bytes of a block that was encoded by zfp, and not by the other codec."""

_MOST_AXES: Final = 4

_FINEST: Final = {4: 2.0**-80, 8: 2.0**-900}
"""The smallest tolerance by bytes of a value: zfp scales values to integers, and the factor must
not overflow."""

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
        # The name has all digits, because codecs with different bounds must not have the same name.
        if tolerance is not None:
            self._tolerance = _positive("tolerance", tolerance, below=math.inf)
            self.name = f"zfp(tolerance={self._tolerance!r})"
        if relative is not None:
            self._relative = _positive("relative", relative, below=1.0)
            self.name = f"zfp(relative={self._relative!r})"
        self._other = Zstd()
        _library()

    def bound(self, nbytes: int, /) -> int:
        return self._other.bound(nbytes)

    def encode(self, block: Block, into: memoryview, /) -> int:
        tolerance = self._tolerance_of(block)
        if _is_float(block) and tolerance != 0:
            values = np.require(block, requirements="A").reshape(_axes(block.shape))
            options = {} if self.lossless else {"tolerance": tolerance}
            data = _library().compress_numpy(values, **options)
            if len(data) < block.nbytes:
                into[: len(data)] = data
                return len(data)
        return self._other.encode(block, into)

    def decode(self, data: memoryview, into: Block, /) -> None:
        if bytes(data[: len(_MAGIC)]) != _MAGIC:
            self._other.decode(data, into)
            return
        try:
            values = _library().decompress_numpy(data)
        except ValueError as error:
            raise CorruptCheckpoint(f"the zfp block is damaged: {error}") from None
        if (values.dtype, values.shape) != (into.dtype, _axes(into.shape)):
            raise CorruptCheckpoint(
                f"the zfp block has shape {values.shape} of {values.dtype},"
                f" and not {_axes(into.shape)} of {into.dtype}"
            )
        into[...] = values.reshape(into.shape)

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
