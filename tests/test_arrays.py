"""Where arrays lie, and what they hold."""

import numpy as np
import pytest

from ckio.arrays import copies, copy, empty
from ckio.errors import BadInput


@pytest.mark.parametrize("dtype", ["f4", "f8", "c16", "i2", "?", "M8[s]", "U3"])
@pytest.mark.parametrize("shape", [(1 << 16,), (3, 1 << 15), (7, 11, 1 << 10)])
def test_a_large_array_begins_a_page(shape: tuple[int, ...], dtype: str) -> None:
    array = empty(shape, dtype)
    assert (array.shape, array.dtype) == (shape, np.dtype(dtype))
    assert array.ctypes.data % 4096 == 0
    assert array.flags.c_contiguous
    assert array.flags.writeable


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 1 << 20), (5,)])
def test_a_small_array_lies_anywhere(shape: tuple[int, ...]) -> None:
    assert empty(shape, "f8").shape == shape


def test_a_copy_has_the_values_and_its_own_memory() -> None:
    source = np.asfortranarray(np.arange(120_000.0).reshape(300, 400))
    made = copy(source)
    assert np.array_equal(made, source)
    assert made.flags.c_contiguous
    source[0, 0] = -1.0
    assert made[0, 0] == 0.0


def test_arrays_of_objects_are_refused_by_name() -> None:
    with pytest.raises(BadInput, match=r"states \['x'\] hold objects"):
        copies("states", {"x": np.array([None, 1])})
