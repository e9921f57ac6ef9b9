"""Codecs give back what they were given, and never anything else."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckio.compression import Zstd
from ckio.errors import BadInput, CorruptCheckpoint

CODECS = [Zstd(), Zstd(-5), Zstd(3, shuffle=8), Zstd(1, shuffle=3)]


def views(data: list[bytes]) -> list[memoryview]:
    return [memoryview(part) for part in data]


def encoded(codec: Zstd, data: list[bytes]) -> bytes:
    into = bytearray(codec.bound(sum(map(len, data))))
    count = codec.encode(views(data), memoryview(into))
    return bytes(into[:count])


def decoded(codec: Zstd, data: bytes, sizes: list[int]) -> list[bytes]:
    into = [bytearray(b"\xa5" * size) for size in sizes]
    codec.decode(memoryview(data), [memoryview(part) for part in into])
    return list(map(bytes, into))


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
@given(data=st.lists(st.binary(max_size=300), max_size=5))
@settings(max_examples=60, deadline=None)
def test_what_was_encoded_is_decoded(codec: Zstd, data: list[bytes]) -> None:
    assert decoded(codec, encoded(codec, data), list(map(len, data))) == data


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
@pytest.mark.parametrize("size", [0, 1, 7, 8, 262_144, 262_143, 262_152, 1_000_003])
def test_sizes_around_a_tile_work_and_keep_the_bound(codec: Zstd, size: int) -> None:
    noise = np.random.default_rng(size).bytes(size)
    for data in ([noise], [noise[:3], noise[3:]], [bytes(size)]):
        packed = encoded(codec, data)
        assert len(packed) <= codec.bound(size)
        assert decoded(codec, packed, list(map(len, data))) == data


def test_shuffling_makes_floats_smaller() -> None:
    data = [np.sin(np.linspace(0.0, 20.0, 10_000)).tobytes()]
    assert len(encoded(Zstd(1, shuffle=8), data)) < 0.9 * len(encoded(Zstd(1), data))


def test_damage_is_found_or_harmless() -> None:
    codec = Zstd(3, shuffle=8)
    data = [np.sin(np.linspace(0.0, 2.0, 200)).tobytes(), b"the end"]
    sound, sizes = encoded(codec, data), list(map(len, data))
    found = 0
    for place in range(len(sound)):
        for bit in (0x01, 0x80):
            damaged = bytearray(sound)
            damaged[place] ^= bit
            try:
                assert decoded(codec, bytes(damaged), sizes) == data
            except CorruptCheckpoint:
                found += 1
    assert found > 1.9 * len(sound)


def test_a_frame_that_ends_early_is_found_or_harmless() -> None:
    codec = Zstd()
    data = [bytes(range(256)) * 3]
    sound = encoded(codec, data)
    for length in range(len(sound) - 4):
        with pytest.raises(CorruptCheckpoint):
            decoded(codec, sound[:length], [768])
    for length in range(len(sound) - 4, len(sound)):  # only the checksum is cut
        assert decoded(codec, sound[:length], [768]) == data


@pytest.mark.parametrize("size", [0, 767, 769, 5000])
def test_a_frame_of_another_size_is_corrupt(size: int) -> None:
    codec = Zstd()
    with pytest.raises(CorruptCheckpoint):
        decoded(codec, encoded(codec, [bytes(range(256)) * 3]), [size])


@given(data=st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_what_no_codec_wrote_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        decoded(CODECS[0], data, [100])


@pytest.mark.parametrize("options", [{"level": 23}, {"level": -8}, {"shuffle": -1}])
def test_options_out_of_range_are_bad_input(options: dict[str, int]) -> None:
    with pytest.raises(BadInput, match=next(iter(options))):
        Zstd(**options)


def test_a_name_says_what_decoding_needs() -> None:
    assert Zstd(1).name == Zstd(9).name == "zstd"
    assert Zstd(1, shuffle=8).name == "zstd+shuffle8"
    assert Zstd(1).lossless
