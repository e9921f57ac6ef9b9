"""What comes from a stranger's file: a codec refuses it, or fills the block, and nothing else."""

import struct
from collections.abc import Iterator

import numpy as np
import pytest
import xxhash
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from installed import needs_blosc2, needs_zfp

from ckio.compression import Blosc2, Codec, Zfp, Zstd
from ckio.compression.zfp import _padded
from ckio.errors import CorruptCheckpoint
from ckio.testing.codecs import decoded, encoded, smooth

FIELD = smooth((16, 24))


def refused(codec: Codec, data: bytes) -> bool:
    """Whether it is refused; if not, `decoded` has seen that nothing around was touched."""
    try:
        decoded(codec, data, FIELD)
    except CorruptCheckpoint:
        return True
    return False


def sealed(chunk: bytes) -> bytes:
    """A chunk of blosc2 with a checksum that is right."""
    return xxhash.xxh3_64_digest(chunk) + chunk


def changed(data: bytes, place: int, new: bytes) -> bytes:
    return data[:place] + new + data[place + len(new) :]


# zstd


def test_a_frame_that_promises_another_size_is_refused_before_it_is_decoded() -> None:
    magic, single_segment_8_bytes_checksum = struct.pack("<I", 0xFD2FB528), b"\xe4"
    for nbytes in (0, FIELD.nbytes - 1, FIELD.nbytes + 1, 1 << 40, (1 << 64) - 3):
        frame = magic + single_segment_8_bytes_checksum + struct.pack("<Q", nbytes) + bytes(20)
        with pytest.raises(CorruptCheckpoint, match="none of 3072 bytes"):
            Zstd().decode(memoryview(frame), np.empty_like(FIELD))


def test_a_frame_that_does_not_promise_a_size_or_a_checksum_is_refused() -> None:
    plain = bytes(FIELD.nbytes)
    for options in ({"write_content_size": False}, {"write_checksum": False}):
        frame = zstandard.ZstdCompressor(**{"write_checksum": True, **options}).compress(plain)
        assert refused(Zstd(), frame)
    assert not refused(Zstd(), zstandard.ZstdCompressor(write_checksum=True).compress(plain))


def test_a_frame_that_holds_more_than_it_promises_is_refused() -> None:
    frame = zstandard.ZstdCompressor(write_checksum=True).compress(bytes(1 << 20))
    size = zstandard.frame_content_size(frame)
    place = frame.index(struct.pack("<I", size))
    assert refused(Zstd(), changed(frame, place, struct.pack("<I", FIELD.nbytes)))


# blosc2


@needs_blosc2
def test_a_chunk_is_taken_as_blosc2_writes_it_by_any_of_its_own_codecs() -> None:
    noise = np.random.default_rng(0).standard_normal(FIELD.shape)
    for name in ("blosclz", "lz4", "lz4hc", "zlib", "zstd"):
        for field in (FIELD, noise, np.zeros(FIELD.shape), np.full(FIELD.shape, np.nan)):
            back = decoded(Blosc2(), encoded(Blosc2(name), field), FIELD)
            assert back.tobytes() == field.tobytes()


def headers() -> Iterator[tuple[int, bytes]]:
    """What a header of blosc2 must not say."""
    for nbytes in (0, -1, FIELD.nbytes - 1, FIELD.nbytes + 1, 1 << 30):
        yield 4, struct.pack("<i", nbytes)
        yield 12, struct.pack("<i", nbytes)
    for codec in (5, 6, 7):
        yield 2, bytes([codec << 5 | 5])
    for code in (6, 32, 37, 160, 255):
        yield 16, bytes([code])
        yield 21, bytes([code])
        yield 22, bytes([code])
    for flags in (0x08, 0x18, 0x20, 0x30, 0x40, 0x70, 0x80, 0xFF):
        yield 31, bytes([flags])


@needs_blosc2
def test_a_header_that_asks_for_more_than_a_plain_chunk_is_refused() -> None:
    chunk = encoded(Blosc2(), FIELD)[8:]
    assert not refused(Blosc2(), sealed(chunk))
    for place, new in headers():
        assert refused(Blosc2(), sealed(changed(chunk, place, new))), (place, new)


@needs_blosc2
@given(place=st.integers(0, 10_000), new=st.binary(min_size=1, max_size=8))
def test_a_chunk_with_any_change_and_a_right_checksum_touches_nothing_else(
    place: int, new: bytes
) -> None:
    chunk = encoded(Blosc2(), FIELD)[8:]
    refused(Blosc2(), sealed(changed(chunk, place % (len(chunk) - len(new)), new)))


# zfp


def sealed_bits(codec: Codec, bits: bytes) -> bytes:
    """A block of zfp with a checksum that is right."""
    state = xxhash.xxh3_64(f"{codec.name} <f8 {FIELD.shape}".encode())
    state.update(bits)
    return b"\x01" + state.digest() + bits


@needs_zfp
@given(bits=st.binary(max_size=600))
def test_any_bits_with_a_right_checksum_give_some_numbers_or_are_refused(bits: bytes) -> None:
    for tolerance in (None, 1e-3):
        codec = Zfp(tolerance=tolerance)
        assert not refused(codec, sealed_bits(codec, bits))
    codec = Zfp(relative=1e-3)
    refused(codec, sealed_bits(codec, bits))  # a tolerance in a block may be no number


def test_zfp_reads_no_further_than_the_room_that_it_is_given() -> None:
    """What is behind the room does not matter; a room as large as the block would not do."""
    zfpy = pytest.importorskip("zfpy")
    random = np.random.default_rng(0)
    for axes in ((4000,), (50, 70), (9, 10, 11), (5, 6, 7, 8)):
        for dtype in (np.dtype("<f4"), np.dtype("<f8")):
            into = np.empty(axes, dtype)
            room = _padded(memoryview(b""), axes, dtype.itemsize).size
            memory = np.empty(room + 4096, np.uint8)
            for content in (0xFF, 0x55, 0xAA, random.integers(0, 256, room, np.uint8)):
                results = set()
                for behind in (0x00, 0xFF, 0x5A):
                    memory[:room], memory[room:] = content, behind
                    zfpy._decompress(memory, zfpy.dtype_to_ztype(dtype), axes, out=into)
                    results.add(into.tobytes())
                assert len(results) == 1
