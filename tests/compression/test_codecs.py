"""Codecs give back what they were given, and never anything else."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from installed import LOSSLESS, needs_blosc2, needs_zfp
from numpy.typing import NDArray

from ckio.adapters.registry import find, names
from ckio.compression import Blosc2, Codec, Zfp, Zstd, blosc, zfp
from ckio.errors import BadInput
from ckio.testing import CodecTests
from ckio.testing.codecs import decoded, encoded


class TestZstd(CodecTests):
    def make(self) -> Zstd:
        return Zstd()


@pytest.mark.slow
class TestZstdAtItsSmallest(CodecTests):
    def make(self) -> Zstd:
        return Zstd(22)


@pytest.mark.slow
class TestZstdWithoutShuffle(CodecTests):
    def make(self) -> Zstd:
        return Zstd(-5, shuffle=False)


@needs_blosc2
class TestBlosc2(CodecTests):
    def make(self) -> Blosc2:
        return Blosc2()


@needs_blosc2
@pytest.mark.slow
class TestBlosc2WithZstd(CodecTests):
    def make(self) -> Blosc2:
        return Blosc2("zstd", 5)


@needs_zfp
class TestZfp(CodecTests):
    def make(self) -> Zfp:
        return Zfp()


@needs_zfp
class TestZfpWithATolerance(CodecTests):
    tolerance = 1e-3

    def make(self) -> Zfp:
        return Zfp(tolerance=1e-3)


@needs_zfp
@pytest.mark.slow
class TestZfpWithARelativeTolerance(CodecTests):
    tolerance = 1e-3  # of numbers up to 1

    def make(self) -> Zfp:
        return Zfp(relative=1e-3)

    def same(self, block: NDArray[Any], back: NDArray[Any], /) -> bool:
        if block.tobytes() == back.tobytes():
            return True
        return block.dtype.kind == "f" and bool(
            np.abs(back - block).max() <= 1e-3 * np.abs(block).max()
        )


def test_a_name_says_what_decoding_needs() -> None:
    assert Zstd(1).name == Zstd(9).name == "zstd+shuffle"
    assert Zstd(shuffle=False).name == "zstd"
    if find_spec("blosc2"):
        assert Blosc2().name == Blosc2("zstd", 9).name == "blosc2"
    if find_spec("zfpy"):
        assert Zfp().name == "zfp"
        assert Zfp(tolerance=1e-6).name == "zfp(tolerance=1e-06)"
        assert Zfp(tolerance=1.00000001e-6).name != Zfp(tolerance=1e-6).name
        assert Zfp(relative=1e-6).name == "zfp(relative=1e-06)"


@pytest.fixture
def without_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    for package, codec in (("blosc2", blosc), ("zfpy", zfp)):
        monkeypatch.setitem(sys.modules, package, None)
        codec._library.cache_clear()


@pytest.mark.usefixtures("without_packages")
def test_options_out_of_range_are_bad_input() -> None:
    """Options are looked at before the package is."""
    wrong: list[tuple[Callable[..., Codec], dict[str, object], str]] = [
        (Zstd, {"level": 23}, "level = 23"),
        (Zstd, {"level": -8}, "level = -8"),
        (Zstd, {"level": 1.5}, r"level = 1\.5"),
        (Zstd, {"shuffle": 8}, "shuffle = 8"),
        (Blosc2, {"codec": "lz5"}, "codec = 'lz5'.* blosclz, lz4"),
        (Blosc2, {"level": 10}, "level = 10"),
        *((Zfp, {"tolerance": it}, f"tolerance = {it!r}") for it in (0.0, -1.0, "fine", True)),
        *((Zfp, {"tolerance": float(it)}, f"tolerance = {it}") for it in ("nan", "inf")),
        (Zfp, {"relative": 1.0}, r"relative = 1\.0.* > 0 and < 1"),
        (Zfp, {"relative": 0}, "relative = 0"),
        (Zfp, {"tolerance": 1e-3, "relative": 1e-3}, "give one of them"),
    ]
    for make, options, message in wrong:
        with pytest.raises(BadInput, match=message):
            make(**options)


def test_all_are_found_by_name() -> None:
    assert {name: find("codecs", name) for name in ("zstd", "blosc2", "zfp")} == {
        "zstd": Zstd,
        "blosc2": Blosc2,
        "zfp": Zfp,
    }
    assert {"zstd", "blosc2", "zfp"} <= set(names("codecs"))


@pytest.mark.usefixtures("without_packages")
def test_without_its_package_a_codec_says_what_to_install() -> None:
    for make, extra in ((Blosc2, "blosc"), (Zfp, "zfp")):
        with pytest.raises(BadInput, match=rf"pip install 'ckio\[{extra}\]'"):
            make()


def test_optional_packages_are_imported_when_they_are_used() -> None:
    script = "import sys, ckio.compression as c; c.Zstd(); print('blosc2' in sys.modules, 'zfpy' in"
    done = subprocess.run(
        [sys.executable, "-c", script + " sys.modules)"], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "False"]


@pytest.mark.parametrize("make", LOSSLESS)
def test_shuffled_floats_are_smaller(make: Callable[[], Codec]) -> None:
    codec, waves = make(), np.sin(np.linspace(0.0, 20.0, 10_000))
    into = memoryview(bytearray(codec.bound(waves.nbytes)))
    assert codec.encode(waves, into) < 0.9 * Zstd(shuffle=False).encode(waves, into)


# zfp


def zfp_error(values: Any, tolerance: float) -> tuple[float, bool]:
    """The largest error, as a part of the tolerance, and whether it was encoded without loss."""
    codec = Zfp(tolerance=tolerance)
    back = decoded(codec, encoded(codec, values), values)
    return float(np.abs(back - values).max()) / tolerance, back.tobytes() == values.tobytes()


@needs_zfp
@pytest.mark.parametrize("dtype", ["<f4", "<f8"])
def test_the_tolerance_holds_however_large_the_values_are(dtype: str) -> None:
    random = np.random.default_rng(0)
    for shape in ((4096,), (64, 64), (16, 16, 16), (8, 8, 8, 8), (2, 2, 4, 8, 32)):
        lossy = 0
        for exponent in range(0, 62, 3):
            for scale in (1e-6, 1e-20, 1e9):
                with np.errstate(over="ignore"):
                    values = (random.standard_normal(shape) * scale * 2.0**exponent).astype(dtype)
                error, exact = zfp_error(values, scale)
                assert error <= 1, (shape, exponent, scale)
                lossy += not exact
        assert lossy >= 12, shape


def any_magnitude(dtype: str) -> Iterator[NDArray[Any]]:
    """Fields of finite numbers, from subnormal ones to the largest."""
    for scale in (1e-320, 1e-310, 1e-200, 1e-40, 1.0, 1e30, 1e300):
        with np.errstate(over="ignore", under="ignore"):
            values = (np.random.default_rng(1).standard_normal((20, 30)) * scale).astype(dtype)
        if np.isfinite(values).all():
            yield values
    yield np.full((20, 30), 0.99 * np.finfo(dtype).max, dtype)


@needs_zfp
@pytest.mark.parametrize("dtype", ["<f4", "<f8"])
def test_a_tolerance_may_be_extreme(dtype: str) -> None:
    for values in any_magnitude(dtype):
        for tolerance in (1e-320, 1e-200, 1e-30, 1e30, 1e35, 1e300):
            assert zfp_error(values, tolerance)[0] <= 1, tolerance
        for relative in (1e-300, 1e-17, 1e-12, 1e-7, 1e-3, 1e-2, 0.99):
            codec = Zfp(relative=relative)
            back = decoded(codec, encoded(codec, values), values).astype("<f8")
            assert np.isfinite(back).all()
            assert np.abs(back - values).max() <= relative * np.abs(values).max(), relative


@needs_zfp
def test_a_block_with_something_not_finite_loses_nothing_at_all() -> None:
    values = np.sin(np.linspace(0.0, 9.0, 4096)).reshape(64, 64)
    assert not zfp_error(values, 1e-3)[1]
    for special in (np.nan, np.inf, -np.inf):
        values[5, 5] = special
        with np.errstate(invalid="ignore"):
            assert zfp_error(values, 1e-3)[1]


@needs_zfp
@pytest.mark.parametrize("dtype", ["<f4", "<f8"])
def test_fields_of_any_magnitude_keep_a_relative_tolerance(dtype: str) -> None:
    codec, shape = Zfp(relative=1e-4), (50, 60)
    waves = np.sin(np.linspace(0.0, 9.0, 3000)).reshape(shape)
    for scale in (1e-15, 1e-5, 1.0, 1e4, 1e30):
        field = (scale * waves).astype(dtype)
        data = encoded(codec, field)
        error = np.abs(decoded(codec, data, field) - field).max() / np.abs(field).max()
        assert 0 < error <= 1e-4
        assert len(data) < 0.4 * field.nbytes
    still = np.zeros(shape, dtype)
    assert decoded(codec, encoded(codec, still), still).tobytes() == still.tobytes()
