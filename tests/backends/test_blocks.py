"""Fields are cut into blocks: each element is in one, and each block is a chunk of HDF5."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckio.actions import Field
from ckio.backends import encoded as room
from ckio.backends.encoded import BLOCK, block_shape, blocks_of
from ckio.errors import StorageError
from ckio.testing import FLOW, buffers

SHAPES = st.lists(st.integers(1, 12), max_size=4).map(tuple)


@given(shape=st.lists(st.integers(1, 3000), max_size=6).map(tuple), item=st.sampled_from([1, 4, 8]))
def test_a_block_is_one_then_a_part_then_whole_axes(shape: tuple[int, ...], item: int) -> None:
    block = block_shape(shape, item)
    assert math.prod(block) * item <= BLOCK
    axis = next((axis for axis, length in enumerate(block) if length > 1), len(shape))
    assert block[axis + 1 :] == shape[axis + 1 :]
    assert all(length <= whole for length, whole in zip(block, shape, strict=True))
    if block != shape:  # the next larger block would be too large
        parts = math.ceil(shape[axis] / block[axis]) if axis < len(shape) else 1
        if parts > 1:
            larger = math.ceil(shape[axis] / (parts - 1))
            assert larger * math.prod(shape[axis + 1 :]) * item > BLOCK


@pytest.mark.parametrize(
    ("shape", "item", "block"),
    [
        ((), 8, ()),
        ((5,), 8, (5,)),
        ((131_072,), 8, (131_072,)),
        ((131_073,), 8, (65_537,)),
        ((513, 513), 8, (171, 513)),
        ((4, 512, 512), 8, (1, 256, 512)),
        ((1000, 1, 1), 8, (1000, 1, 1)),
        ((3, 200_000), 8, (1, 100_000)),
        ((10, 131_072), 8, (1, 131_072)),
        ((3, 2), 1 << 21, (1, 1)),
        ((0, 7), 8, (1, 7)),
        ((7, 0), 8, (7, 1)),
    ],
)
def test_axes_are_cut_evenly(shape: tuple[int, ...], item: int, block: tuple[int, ...]) -> None:
    assert block_shape(shape, item) == block


@given(shape=SHAPES, dtype=st.sampled_from(["<f8", "<i2", "<c16", "|u1", "<M8[s]", "(2,3)<f4"]))
def test_blocks_lie_where_the_chunks_of_hdf5_do(shape: tuple[int, ...], dtype: str) -> None:
    small = pytest.MonkeyPatch()
    small.setattr(room, "BLOCK", 600)
    try:
        blocks_of.cache_clear()
        blocks, item = blocks_of((Field("x", dtype, shape),)), np.dtype(dtype)
        noise = np.random.default_rng(0).bytes(blocks.form.nbytes)
        array = np.frombuffer(noise, item.base).reshape((*shape, *item.shape))
        (grid,), (view,) = blocks.grids, buffers([array])
        grids = [range(0, n, step) for n, step in zip(array.shape, grid.shape, strict=True)]
        corners = [
            tuple(axis[i] for axis, i in zip(grids, index, strict=True))
            for index in np.ndindex(*map(len, grids))
        ]
        assert len(corners) == blocks.count == grid.count
        for number, corner in enumerate(corners):
            place = tuple(slice(a, a + n) for a, n in zip(corner, grid.shape, strict=True))
            chunk = np.zeros(grid.shape, array.dtype)
            chunk[tuple(slice(0, n) for n in array[place].shape)] = array[place]
            block = grid.block(view, number)
            assert block.flags.c_contiguous
            assert block.shape == grid.shape
            assert block.tobytes() == chunk.tobytes()
    finally:
        small.undo()
        blocks_of.cache_clear()


def test_blocks_are_numbered_field_by_field() -> None:
    layout = (
        Field("a", "<f8", (1000, 1000)),
        Field("empty", "<f8", (0, 5)),
        Field("nothing", "|S0", (5,)),
        Field("scalar", "<f8", ()),
        Field("b", "<f4", (600_000,)),
    )
    blocks = blocks_of(layout)
    assert blocks.firsts == (0, 8, 8, 8, 9, 12)
    assert blocks.count == 12
    assert [blocks.find(number) for number in (0, 7, 8, 9, 11)] == [
        (0, 0), (0, 7), (3, 0), (4, 0), (4, 2),
    ]  # fmt: skip


def test_the_blocks_of_a_huge_layout_are_counted_and_not_listed() -> None:
    blocks = blocks_of((Field("x", "<f8", (1 << 40, 1 << 20)),))
    assert blocks.count == 1 << 43


def test_a_field_of_too_many_axes_is_refused_by_name() -> None:
    with pytest.raises(StorageError, match="'deep' has 65 axes"):
        blocks_of((Field("deep", "(2,)<f8", (1,) * 64),))
    assert blocks_of(FLOW).count == 4
