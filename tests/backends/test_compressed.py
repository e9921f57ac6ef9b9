"""A compressed level: like any from outside, smaller underneath."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import LOSSLESS, needs_blosc2, needs_zfp, some

from ckio.actions import Field, Key, Kind, Layout
from ckio.backends.base import Backend
from ckio.backends.compressed import Compressed
from ckio.backends.directory import Directory
from ckio.backends.files import Files
from ckio.backends.hdf5 import Hdf5
from ckio.backends.ram import Ram
from ckio.compression import Blosc2, Codec, Zfp, Zstd
from ckio.errors import BadInput, CorruptCheckpoint, LevelFull, StorageError
from ckio.testing import BackendTests, buffers, get, put, raw

from .common import peak_of_a_turn

X0, X1, X2 = (Key(Kind.RESTART, step) for step in range(3))
WAVES: Layout = (Field("zeta", "<f8", (100, 50), "1/s"), Field("time", "<f8", ()))


@pytest.fixture(params=[*LOSSLESS, some(lambda: Zstd(-5, shuffle=False), "zstd, plain")])
def codec(request: pytest.FixtureRequest) -> Codec:
    made: Codec = request.param()
    return made


class TestCompressedRam(BackendTests):
    def make(self, tmp_path: Path, /, **limits: Any) -> Compressed:
        return Compressed(Ram(**limits), Zstd())


@needs_blosc2
class TestCompressedRamByBlosc2(BackendTests):
    def make(self, tmp_path: Path, /, **limits: Any) -> Compressed:
        return Compressed(Ram(**limits), Blosc2())


@needs_zfp
class TestCompressedRamByZfp(BackendTests):
    def make(self, tmp_path: Path, /, **limits: Any) -> Compressed:
        return Compressed(Ram(**limits), Zfp())


class TestCompressedDirectory(BackendTests):
    durable = True

    def make(self, tmp_path: Path, /, **limits: Any) -> Compressed:
        return Compressed(Directory(tmp_path / "level", **limits), Zstd())

    reopen = make


@needs_blosc2
class TestCompressedDirectoryByBlosc2(BackendTests):
    durable = True

    def make(self, tmp_path: Path, /, **limits: Any) -> Compressed:
        return Compressed(Directory(tmp_path / "level", **limits), Blosc2())

    reopen = make


@needs_zfp
class TestCompressedDirectoryByZfp(BackendTests):
    durable = True

    def make(self, tmp_path: Path, /, **limits: Any) -> Compressed:
        return Compressed(Directory(tmp_path / "level", **limits), Zfp())

    reopen = make


@needs_zfp
class TestLossyRam(BackendTests):
    """With a tolerance that these numbers are held to: what is promised holds for them, too."""

    def make(self, tmp_path: Path, /, **limits: Any) -> Compressed:
        return Compressed(Ram(**limits), Zfp(tolerance=1e-14))


class TestTwiceCompressed(BackendTests):
    def make(self, tmp_path: Path, /, **limits: Any) -> Compressed:
        return Compressed(Compressed(Ram(**limits), Zstd()), Zstd())


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
        key = Key(Kind.RESTART, step)
        written = level.write(key, WAVES, waves(step))
        assert 0 < written < 20_000
        assert level.layout(key) == WAVES
    for step in range(6):
        assert back(level, Key(Kind.RESTART, step)) == b"".join(waves(step))
    level.close()


def test_what_does_not_shrink_is_stored_as_it_is() -> None:
    inner = Ram()
    level = Compressed(inner, Zstd())
    original = put(level, X0, raw(1000))
    assert get(inner, X0, raw(1000)) == original
    assert inner.layout(X0) == raw(1000)


def test_a_reservation_counts_on_the_ratio() -> None:
    level = Compressed(Ram(capacity=100_000), Zstd(), ratio=0.25)
    level.reserve({100_000: 4})
    with pytest.raises(LevelFull):
        level.reserve({100_000: 5})
    with pytest.raises(LevelFull, match="x_0"):
        put(level, X0, raw(100_001))
    level.close()


@pytest.mark.parametrize("ratio", [0.0, -1.0, float("nan"), float("inf")])
def test_a_ratio_must_be_positive(ratio: float) -> None:
    with pytest.raises(BadInput, match="ratio"):
        Compressed(Ram(), Zstd(), ratio=ratio)


def test_a_reopened_level_decodes_what_another_process_encoded(tmp_path: Path) -> None:
    level = Compressed(Directory(tmp_path), Zstd(9))
    level.write(X0, WAVES, waves(3))
    level.close()
    level = Compressed(Directory(tmp_path), Zstd())
    assert level.layout(X0) == WAVES
    assert back(level, X0) == b"".join(waves(3))
    level.remove()
    assert not tmp_path.exists()


def test_it_leaves_the_page_cache_where_the_level_underneath_has_one(tmp_path: Path) -> None:
    assert not hasattr(Compressed(Ram(), Zstd()), "evict")
    level = Compressed(Directory(tmp_path), Zstd())
    level.write(X0, WAVES, waves())
    level.evict()
    assert back(level, X0) == b"".join(waves())
    level.close()


def test_another_codec_is_refused_by_name(tmp_path: Path) -> None:
    level = Compressed(Directory(tmp_path), Zstd())
    level.write(X0, WAVES, waves())
    level.close()
    level = Compressed(Directory(tmp_path), Zstd(shuffle=False))
    with pytest.raises(StorageError, match=r"zstd\+shuffle; this level is open with zstd$"):
        back(level, X0)
    level.close()


def test_buffers_of_the_wrong_sizes_are_refused_before_decoding() -> None:
    level = Compressed(Ram(), Zstd())
    level.write(X0, WAVES, waves())
    with pytest.raises(StorageError, match="x_0"):
        get(level, X0, raw(40_008))
    assert back(level, X0) == b"".join(waves())


def test_damage_that_the_level_underneath_does_not_see_is_found_when_decoding(
    tmp_path: Path,
) -> None:
    level = Compressed(Directory(tmp_path, checksum=False), Zstd(3))
    written = level.write(X0, WAVES, waves())
    (stored,) = level.contents(tmp_path)
    ((begin, nbytes),), path = stored.spans, stored.path
    assert nbytes == written
    sound = path.read_bytes()
    found = 0
    for place in range(begin, begin + nbytes, max(1, nbytes // 150)):
        path.write_bytes(sound[:place] + bytes([sound[place] ^ 0x10]) + sound[place + 1 :])
        try:
            assert back(level, X0) == b"".join(waves())
        except CorruptCheckpoint:
            found += 1
    assert found > 100
    path.write_bytes(sound)
    assert back(level, X0) == b"".join(waves())
    level.close()


@pytest.mark.campaign
@pytest.mark.parametrize("nbytes", [16 << 20, 2 << 20])
@pytest.mark.parametrize("threads", [1, 2])
def test_steady_state_allocates_a_few_blocks_however_large_the_state(
    codec: Codec, threads: int, nbytes: int
) -> None:
    size = nbytes // 8
    layout = (Field("x", "<f8", (size // 1024, 1024)), Field("time", "<f8", ()))
    waves = np.maximum(np.sin(np.linspace(0.0, 99.0, size)), 0.0).round(4)
    level = Compressed(Ram(), codec, threads=threads)
    level.reserve({nbytes + 8: 1})
    assert peak_of_a_turn(level, layout, [waves, np.array(1.0)]) < 6 * threads << 20
    level.close()


@pytest.mark.parametrize("backend", [Directory, Hdf5])
def test_on_a_full_disk_what_shrinks_well_finds_its_reserved_slot(
    tmp_path: Path, backend: Callable[..., Backend]
) -> None:
    class Full(Files):
        full = False

        def extend(self, fd: int, begin: int, nbytes: int, /, *, prewrite: bool) -> None:
            if self.full:
                raise OSError(errno.ENOSPC, "No space left on device")
            super().extend(fd, begin, nbytes, prewrite=prewrite)

    files = Full()
    level = Compressed(backend(tmp_path / "level", files=files), Zstd())
    level.reserve({40_008: 3})
    files.full = backend is Directory
    noise = raw(40_008)
    put(level, X0, WAVES)
    files.full = True
    level.write(X1, WAVES, waves())
    level.write(X2, WAVES, waves(2))
    with pytest.raises(LevelFull):
        put(level, Key(Kind.TAPE, 0), noise)
    assert back(level, X1) == b"".join(waves())
    assert back(level, X2) == b"".join(waves(2))
    level.close()


@pytest.mark.parametrize("backend", [Directory, Hdf5])
def test_a_field_may_have_as_many_axes_as_numpy_allows(
    tmp_path: Path, codec: Codec, backend: Callable[..., Backend]
) -> None:
    """More than HDF5 has: an archive then has no datasets of it, and reads it all the same."""
    deep: Layout = (Field("zeta", "<f8", (100, *(1,) * 39, 50)), Field("time", "<f8", ()))
    level = Compressed(backend(tmp_path / "level.h5"), codec)
    assert level.write(X0, deep, waves()) < 40_008
    assert level.layout(X0) == deep
    assert back(level, X0) == b"".join(waves())
    level.close()


@pytest.mark.parametrize("shrinks", [True, False])
def test_a_full_level_says_what_its_ratio_promised(shrinks: bool) -> None:
    random = np.random.default_rng(0)
    level = Compressed(Ram(capacity=100_000), Zstd(), ratio=0.3)
    level.reserve({40_008: 8})
    noise = random.standard_normal(5000) if shrinks else np.frombuffer(random.bytes(40_000))
    data = buffers([noise, np.array(0.5)])
    level.write(X0, WAVES, data)
    level.write(X1, WAVES, data)
    with pytest.raises(LevelFull, match="the level's ratio promises 30%: calibrate again, or set"):
        level.write(X2, WAVES, data)
    assert set(level.keys()) == {X0, X1}
