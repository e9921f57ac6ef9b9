"""The conformance suite of codecs. It tests every promise of a codec."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from ckio.compression import Codec
from ckio.errors import CorruptCheckpoint

_NUMBERS = ["|u1", "<i2", ">i4", "<i8", "<u8", "<f2", "<f4", "<f8", ">f8", "<c8", "<c16"]
_DTYPES = [*_NUMBERS, "|b1", "<M8[s]", "|S5", "<U3"]
_SHAPES = arrays.array_shapes(min_dims=0, max_dims=6, max_side=9)

_EACH_CODEC = settings(
    deadline=None, suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow]
)
"""Settings of tests that several subclasses inherit."""

_CANARY = 0xA5
"""The value of the bytes around a buffer, which a codec must not change."""

_MARGIN = 64
"""The number of these bytes."""


def blocks() -> st.SearchStrategy[NDArray[Any]]:
    """Generate arrays of any dtype and shape, with numbers, NaNs, infinities or random bytes."""
    plain = arrays.arrays(st.sampled_from(_DTYPES), _SHAPES)
    return plain | st.builds(_noise, st.sampled_from(_NUMBERS), _SHAPES, st.integers(0, 99))


def _noise(dtype: str, shape: tuple[int, ...], seed: int) -> NDArray[Any]:
    count = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    return np.frombuffer(np.random.default_rng(seed).bytes(count), dtype).reshape(shape)


def smooth(shape: tuple[int, ...] = (60, 70), dtype: str = "<f8") -> NDArray[Any]:
    """Return a field that every codec can compress: the positive half waves of a sine."""
    size = int(np.prod(shape))
    return np.maximum(np.sin(np.linspace(0.0, 9.0, size)), 0.0).reshape(shape).astype(dtype)


def encoded(codec: Codec, block: NDArray[Any], /) -> bytes:
    """Encode a block into a buffer of `codec.bound(...)` bytes, and return the bytes.

    An assertion fails if the codec writes outside of the buffer.
    """
    bound = codec.bound(block.nbytes)
    memory = bytearray([_CANARY]) * (bound + _MARGIN)
    count = codec.encode(block, memoryview(memory)[:bound])
    assert 0 < count <= bound
    assert memory[bound:] == bytes([_CANARY]) * _MARGIN
    return bytes(memory[:count])


def decoded(codec: Codec, data: bytes, like: NDArray[Any], /) -> NDArray[Any]:
    """Decode a block with the dtype and shape of `like`, and return it.

    An assertion fails if the codec writes outside of the block.
    """
    memory = bytearray([_CANARY]) * (like.nbytes + 2 * _MARGIN)
    inside = memoryview(memory)[_MARGIN : _MARGIN + like.nbytes]
    into = np.frombuffer(inside, like.dtype).reshape(like.shape)
    try:
        codec.decode(memoryview(data), into)
    finally:
        assert memory[:_MARGIN] == memory[-_MARGIN:] == bytes([_CANARY]) * _MARGIN
    return into


class CodecTests:
    """Tests of a codec. Derive a class from this one, and let its method `make` return the codec.

    Attributes
    ----------
    tolerance : float
        The largest absolute error of a finite value; 0 for lossless codecs.
    """

    tolerance: ClassVar[float] = 0.0

    def make(self) -> Codec:
        """Return a new codec. Each must be able to decode the bytes of the others."""
        raise NotImplementedError

    def same(self, block: NDArray[Any], back: NDArray[Any], /) -> bool:
        """Return whether a decoded block equals the original one, within the tolerance."""
        if block.tobytes() == back.tobytes():
            return True
        if not self.tolerance or block.dtype.kind not in "fc":
            return False
        special = ~np.isfinite(block)
        error = np.abs(back[~special] - block[~special])
        return bool(
            np.array_equal(back[special], block[special], equal_nan=True)
            and (error <= self.tolerance).all()
        )

    # Encoding and decoding

    def test_it_says_what_it_is(self) -> None:
        codec = self.make()
        assert codec.name
        assert codec.name == self.make().name
        assert codec.lossless is (self.tolerance == 0)

    @given(block=blocks())
    @_EACH_CODEC
    def test_what_was_encoded_is_decoded(self, block: NDArray[Any]) -> None:
        codec = self.make()
        assert self.same(block, decoded(codec, encoded(codec, block), block))

    @pytest.mark.parametrize("dtype", ["<f4", "<f8", "<c16", "<i8", "|u1"])
    @pytest.mark.parametrize("shape", [(), (1,), (257,), (1, 3, 70), (131_072,), (99, 601)])
    def test_blocks_of_any_size_keep_the_bound(self, dtype: str, shape: tuple[int, ...]) -> None:
        codec = self.make()
        for block in (_noise(dtype, shape, 1), np.zeros(shape, dtype), smooth(shape, dtype)):
            assert self.same(block, decoded(codec, encoded(codec, block), block))

    def test_a_smooth_field_becomes_smaller(self) -> None:
        block = smooth((200, 300))
        assert len(encoded(self.make(), block)) < 0.9 * block.nbytes

    @pytest.mark.parametrize("dtype", ["<f4", "<f8"])
    def test_what_is_not_finite_survives(self, dtype: str) -> None:
        block = smooth((40, 50), dtype)
        block[3, 4], block[5, 6], block[7, 8], block[9, 9] = np.nan, np.inf, -np.inf, -0.0
        codec = self.make()
        back = decoded(codec, encoded(codec, block), block)
        assert self.same(block, back)
        assert np.isnan(back[3, 4])

    def test_the_same_block_gives_the_same_bytes(self) -> None:
        codec, block = self.make(), smooth()
        first = encoded(codec, block)
        encoded(codec, _noise("<f8", (999,), 3))
        assert encoded(codec, block) == first == encoded(self.make(), block)

    def test_another_of_the_same_name_decodes_it(self) -> None:
        block = smooth()
        assert self.same(block, decoded(self.make(), encoded(self.make(), block), block))

    def test_a_block_is_left_as_it_is_and_may_be_read_only(self) -> None:
        block = smooth()
        before = block.tobytes()
        block.flags.writeable = False
        encoded(self.make(), block)
        assert block.tobytes() == before

    def test_a_block_may_begin_at_any_byte(self) -> None:
        codec, block = self.make(), smooth()
        memory = memoryview(bytearray(block.nbytes + 1))
        shifted = np.frombuffer(memory[1:], block.dtype).reshape(block.shape)
        shifted[...] = block
        data = encoded(codec, shifted)
        shifted[...] = 0.0
        codec.decode(memoryview(data), shifted)
        assert self.same(block, shifted)

    def test_several_threads_may_use_it(self) -> None:
        codec = self.make()
        fields = [smooth((100 + n, 90)) for n in range(24)]

        def there_and_back(block: NDArray[Any]) -> bool:
            return self.same(block, decoded(codec, encoded(codec, block), block))

        with ThreadPoolExecutor(4) as threads:
            assert all(threads.map(there_and_back, fields))

    @pytest.mark.parametrize("shape", [(1,), (15, 15), (15, 17), (500, 500)])
    def test_a_block_of_another_size_is_corrupt(self, shape: tuple[int, ...]) -> None:
        codec = self.make()
        for block in (smooth((15, 16)), np.zeros((15, 16)), _noise("<f8", (15, 16), 0)):
            with pytest.raises(CorruptCheckpoint):
                decoded(codec, encoded(codec, block), np.zeros(shape))

    @given(data=st.binary(max_size=200))
    @_EACH_CODEC
    def test_what_no_codec_wrote_is_corrupt(self, data: bytes) -> None:
        with pytest.raises(CorruptCheckpoint):
            decoded(self.make(), data, np.zeros(100))
