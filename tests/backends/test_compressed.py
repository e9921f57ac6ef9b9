"""A compressed level: like any from outside, smaller underneath."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import LOSSLESS, needs_zfp, some

from ckio.actions import Field, Key, Layout
from ckio.backends.base import Backend
from ckio.backends.compressed import Compressed
from ckio.backends.directory import Directory
from ckio.backends.hdf5 import Hdf5
from ckio.backends.ram import Ram
from ckio.compression import Codec, Zfp, Zstd
from ckio.errors import BadInput, CorruptCheckpoint, LevelFull, StorageError
from ckio.testing import BackendTests, buffers, get, put, raw, t, x

from .common import Struck

WAVES: Layout = (Field("zeta", "<f8", (100, 50), "1/s"), Field("time", "<f8", ()))


CODECS = [
    *LOSSLESS,
    some(lambda: Zstd(-5, shuffle=False), "zstd, plain"),
]


class TestCompressed(BackendTests):
    """An archive, which has most to do with what is compressed."""

    durable = True

    def make(self, tmp_path: Path, /, **limits: Any) -> Compressed:
        return Compressed(Hdf5(tmp_path / "archive.h5", **limits), Zstd())

    reopen = make


@pytest.mark.slow
class TestAnyCodecInMemory(BackendTests):
    # Its tolerance is one that these numbers are held to: what is promised holds for it, too.
    @pytest.fixture(
        autouse=True, params=[*CODECS, some(lambda: Zfp(tolerance=1e-14), "zfp, lossy", needs_zfp)]
    )
    def codec(self, request: pytest.FixtureRequest) -> None:
        self.new: Callable[[], Codec] = request.param

    def make(self, tmp_path: Path, /, **limits: Any) -> Compressed:
        return Compressed(Ram(**limits), self.new())


def waves(step: int = 0) -> list[memoryview]:
    """A checkpoint that shrinks."""
    place = np.linspace(0.0, 1.0, 5000)
    pulse = np.exp(-((place - 0.01 * step) ** 2) / 1e-3)
    return buffers([np.where(pulse > 1e-3, pulse, 0.0), np.array(0.25 * step)])


def back(level: Backend, key: Key) -> bytes:
    into = [bytearray(b"\xa5" * view.nbytes) for view in waves()]
    level.read(key, [memoryview(buffer) for buffer in into])
    return b"".join(into)


def test_a_checkpoint_that_shrinks_takes_less_of_the_capacity() -> None:
    level = Compressed(Ram(capacity=3 * 40_008), Zstd(3))
    for step in range(6):
        key = x(step)
        written = level.write(key, WAVES, waves(step))
        assert 0 < written < 20_000
        assert level.layout(key) == WAVES
    for step in range(6):
        assert back(level, x(step)) == b"".join(waves(step))
    level.close()


def test_what_does_not_shrink_is_stored_as_it_is() -> None:
    inner = Ram()
    level = Compressed(inner, Zstd())
    original = put(level, x(0), raw(1000))
    assert get(inner, x(0), raw(1000)) == original
    assert inner.layout(x(0)) == raw(1000)


def test_a_reservation_counts_on_the_ratio() -> None:
    level = Compressed(Ram(capacity=100_000), Zstd(), ratio=0.25)
    level.reserve({100_000: 4})
    with pytest.raises(LevelFull):
        level.reserve({100_000: 5})
    with pytest.raises(LevelFull, match="x_0"):
        put(level, x(0), raw(100_001))
    level.close()


def test_a_ratio_must_be_positive() -> None:
    for ratio in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(BadInput, match="ratio"):
            Compressed(Ram(), Zstd(), ratio=ratio)


def test_it_leaves_the_page_cache_where_the_level_underneath_has_one(tmp_path: Path) -> None:
    assert not Compressed(Ram(), Zstd()).cached
    level = Compressed(Directory(tmp_path), Zstd())
    level.write(x(0), WAVES, waves())
    assert level.cached
    level.evict()
    assert back(level, x(0)) == b"".join(waves())
    level.close()


def test_another_codec_is_refused_by_name(tmp_path: Path) -> None:
    level = Compressed(Directory(tmp_path), Zstd())
    level.write(x(0), WAVES, waves())
    level.close()
    level = Compressed(Directory(tmp_path), Zstd(shuffle=False))
    with pytest.raises(StorageError, match=r"zstd\+shuffle; this level is open with zstd$"):
        back(level, x(0))
    level.close()


def test_buffers_of_the_wrong_sizes_are_refused_before_decoding() -> None:
    level = Compressed(Ram(), Zstd())
    level.write(x(0), WAVES, waves())
    with pytest.raises(StorageError, match="x_0"):
        get(level, x(0), raw(40_008))
    assert back(level, x(0)) == b"".join(waves())


def test_damage_that_the_level_underneath_does_not_see_is_found_when_decoding(
    tmp_path: Path,
) -> None:
    level = Compressed(Directory(tmp_path, checksum=False), Zstd(3))
    written = level.write(x(0), WAVES, waves())
    (stored,) = Directory.contents(tmp_path)
    ((begin, nbytes),), path = stored.spans, stored.path
    assert nbytes == written
    sound = path.read_bytes()
    found = 0
    for place in range(begin, begin + nbytes, max(1, nbytes // 150)):
        path.write_bytes(sound[:place] + bytes([sound[place] ^ 0x10]) + sound[place + 1 :])
        try:
            assert back(level, x(0)) == b"".join(waves())
        except CorruptCheckpoint:
            found += 1
    assert found > 100
    path.write_bytes(sound)
    assert back(level, x(0)) == b"".join(waves())
    level.close()


@pytest.mark.parametrize("backend", [Directory, Hdf5])
def test_on_a_full_disk_what_shrinks_well_finds_its_reserved_slot(
    tmp_path: Path, backend: Callable[..., Backend]
) -> None:
    files = Struck("extend", error=OSError(errno.ENOSPC, "No space left on device"))
    level = Compressed(backend(tmp_path / "level", files=files), Zstd())
    level.reserve({40_008: 3})
    files.left = 0 if backend is Directory else files.left
    noise = raw(40_008)
    put(level, x(0), WAVES)
    files.left = 0
    level.write(x(1), WAVES, waves())
    level.write(x(2), WAVES, waves(2))
    with pytest.raises(LevelFull):
        put(level, t(0), noise)
    with pytest.raises(LevelFull):
        put(level, x(9), noise)
    with pytest.raises(LevelFull, match="reserving"):
        level.reserve({400_000: 9})
    assert back(level, x(1)) == b"".join(waves())
    assert back(level, x(2)) == b"".join(waves(2))
    level.close()


@pytest.mark.parametrize("shrinks", [True, False])
def test_a_full_level_says_what_its_ratio_promised(shrinks: bool) -> None:
    random = np.random.default_rng(0)
    level = Compressed(Ram(capacity=100_000), Zstd(), ratio=0.3)
    level.reserve({40_008: 8})
    noise = random.standard_normal(5000) if shrinks else np.frombuffer(random.bytes(40_000))
    data = buffers([noise, np.array(0.5)])
    level.write(x(0), WAVES, data)
    level.write(x(1), WAVES, data)
    with pytest.raises(LevelFull, match="ratio promises 30%: calibrate again"):
        level.write(x(2), WAVES, data)
    assert set(level.keys()) == {x(0), x(1)}
