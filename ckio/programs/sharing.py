"""Which arrays share memory, and how each views it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds
from numpy.typing import NDArray

from ckio.programs.protocol import Json

Span = tuple[int, int]
"""Addresses of the first byte and behind the last."""


def spans(arrays: Sequence[NDArray[Any]], /) -> list[Span]:
    """Of each array all that lies between its first byte and its last."""
    return [_span(array) for array in arrays]


def groups(found: Sequence[Span], /) -> list[list[int]]:
    """The numbers of those that overlap together, in the order of the first of each group.

    >>> groups([(0, 8), (8, 16), (3, 3), (12, 20)])
    [[0], [1, 3], [2]]
    """
    grouped: list[list[int]] = []
    together: list[int] = []
    end = -1
    for low, high, number in sorted((*span, number) for number, span in enumerate(found)):
        if low == high:
            grouped.append([number])
        elif low >= end:
            together = [number]
            grouped.append(together)
            end = high
        else:
            together.append(number)
            end = max(end, high)
    return sorted(map(sorted, grouped))


def memory(arrays: Sequence[NDArray[Any]], found: Sequence[Span], /) -> NDArray[Any]:
    """What holds all of these: one of them, if it does, or a row of all that they span."""
    if len(arrays) == 1 and arrays[0].flags.c_contiguous:
        return arrays[0]
    low, high = min(span[0] for span in found), max(span[1] for span in found)
    dtypes = {array.dtype for array in arrays}
    if len(dtypes) == 1:
        for array, span in zip(arrays, found, strict=True):
            if array.flags.c_contiguous and span == (low, high):
                return array
    dtype = dtypes.pop() if len(dtypes) == 1 else np.dtype(np.uint8)
    if any((address - low) % dtype.itemsize for span in found for address in span):
        dtype = np.dtype(np.uint8)
    return np.asarray(_Row(low, (high - low) // dtype.itemsize, dtype, arrays))


def code(array: NDArray[Any], of: NDArray[Any], /) -> dict[str, Json]:
    """How an array views this memory; nothing where it is all of it."""
    if array is of:
        return {}
    offset = _address(array) - _address(of) if array.size else 0
    like = (array.shape, array.strides, array.dtype) == (of.shape, of.strides, of.dtype)
    if offset == 0 and like:
        return {}
    return {
        "offset": offset,
        "shape": list(array.shape),
        "strides": list(array.strides),
        "dtype": array.dtype.str,
    }


def view(of: NDArray[Any], code: Mapping[str, Json], /) -> NDArray[Any]:
    """The array that views this memory so."""
    if "offset" not in code:
        return of
    shape, dtype, strides = tuple(code["shape"]), code["dtype"], tuple(code["strides"])
    return np.ndarray(shape, dtype, of, code["offset"], strides)


def _span(array: NDArray[Any]) -> Span:
    return _bytes(array) if array.flags.c_contiguous or not array.size else byte_bounds(array)


def _bytes(array: NDArray[Any]) -> Span:
    """Of an array in C order, without gaps."""
    address = _address(array)
    return address, address + array.nbytes


def _address(array: NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


class _Row:
    """Memory between two addresses, for NumPy to look at; it lives as long as what it is of."""

    def __init__(self, low: int, count: int, dtype: np.dtype[Any], of: Sequence[object]) -> None:
        self._of = of
        self.__array_interface__ = {
            "version": 3,
            "data": (low, False),
            "shape": (count,),
            "typestr": dtype.str,
        }
