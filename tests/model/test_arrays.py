"""Where arrays lie, and what they hold."""

import copy as copying

import numpy as np
import pytest

from ckio.errors import BadInput
from ckio.model.arrays import ByteViews, as_bytes, copies, copy, empty


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
    with pytest.raises(BadInput, match=r"states \['x'\] have Python objects"):
        copies("states", {"x": np.array([None, 1])})


def test_views_are_of_the_arrays_and_made_once() -> None:
    views, (one, other) = ByteViews(), np.ones((2, 3))
    first = views.of([one, other])
    assert first == [as_bytes(one), as_bytes(other)]
    one += 1
    assert bytes(first[0]) == one.tobytes()
    again = views.of([other, one])
    assert again[0] is first[1]
    assert again[1] is first[0]


def test_views_keep_what_they_know() -> None:
    """An array made where one was that is gone must not be taken for it."""
    views, found = ByteViews(), set()
    for number in range(100):
        (view,) = views.of([np.full(3, number)])
        found.add(bytes(view))
    assert len(found) == 100


def test_a_copy_of_views_knows_nothing() -> None:
    views, array = ByteViews(), np.ones(3)
    views.of([array])
    (view,) = copying.deepcopy(views).of([array])
    assert view is not views.of([array])[0]
