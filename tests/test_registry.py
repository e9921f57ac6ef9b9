"""Things are found by name, and what is not found is explained."""

from pathlib import Path

import pytest

from ckio.actions import Field, Key, Kind
from ckio.adapters.registry import (
    GROUPS,
    codec_of,
    find,
    find_model,
    lossless_codecs,
    lossy,
    make,
    names,
    open_level,
    options_of,
    plain,
)
from ckio.errors import BadInput
from ckio.platform import Level, Platform
from ckio.testing import get, put


@pytest.mark.parametrize("group", GROUPS)
def test_everything_that_is_registered_can_be_imported(group: str) -> None:
    assert names(group)
    for name in names(group):
        assert callable(find(group, name))


def test_the_papers_planners_are_there() -> None:
    ours = {"store-all", "recompute-all", "periodic", "revolve", "hrevolve", "hrevolve-2020"}
    assert ours <= set(names("planners"))


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(BadInput, match="no planner is named 'hrevolv'; did you mean hrevolve"):
        find("planners", "hrevolv")
    with pytest.raises(BadInput, match=r"no backend is named 'tape-robot'; .*ram"):
        find("backends", "tape-robot")


def test_a_model_may_be_named_by_module_and_attribute() -> None:
    assert find_model("ckio.testing:CountingModel").__name__ == "CountingModel"
    with pytest.raises(BadInput, match=r"model 'nowhere:at_all' .*No module named 'nowhere'"):
        find_model("nowhere:at_all")
    with pytest.raises(BadInput, match="has no attribute 'nothing'"):
        find_model("ckio.testing:nothing")


LAYOUT = (Field("u", "<f8", (16,)),)
X7 = Key(Kind.RESTART, 7)


@pytest.mark.parametrize(
    ("backend", "options"),
    [
        ("ram", {}),
        ("directory", {"path": "PLACE"}),
        ("hdf5", {"path": "PLACE/archive.h5"}),
        ("directory", {"path": "PLACE", "codec": "zstd", "codec_level": 3}),
    ],
)
def test_a_level_opens_keeps_and_removes(tmp_path: Path, backend: str, options: dict) -> None:
    place = {k: str(v).replace("PLACE", str(tmp_path / "at")) for k, v in options.items()}
    place |= {k: v for k, v in options.items() if not isinstance(v, str)}
    level = open_level(Level(name="l", backend=backend, options=place), run="cafe")
    original = put(level, X7, LAYOUT)
    assert get(level, X7, LAYOUT) == original
    if options:
        assert any("cafe" in str(path) for path in tmp_path.rglob("*"))
    level.remove()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_an_option_that_a_backend_does_not_have_is_named() -> None:
    with pytest.raises(BadInput, match=r"level 'l' .*'colour'"):
        open_level(Level(name="l", backend="ram", options={"colour": "red"}))
    with pytest.raises(BadInput, match=r"level 'l' .*'path'"):
        open_level(Level(name="l", backend="directory"))


# Codecs of levels


def level(**options: str | float) -> Level:
    return Level(name="l", backend="ram", options=options)


def test_a_level_names_its_codec_and_the_codecs_options() -> None:
    assert codec_of(level()) is None
    codec = codec_of(level(codec="zstd", codec_level=3, codec_shuffle=False))
    assert codec is not None
    assert (codec.name, codec.lossless) == ("zstd", True)
    assert plain(level(codec="zstd", codec_level=3, checksum=True)) == level(checksum=True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"codec": "zst"},
            "level 'l': no codec is named 'zst'; did you mean zstd",
        ),
        ({"codec": "zstd", "codec_levle": 3}, "level 'l': zstd has no option 'levle'; did you me"),
        ({"codec": "zstd", "codec_level": 99}, "level 'l': zstd: level = 99"),
        ({"codec_level": 3}, "level 'l': ram has no codec for 'codec_level'"),
        ({"codec": "auto"}, "level 'l': codec = 'auto' is for `ckio calibrate --model`"),
    ],
)
def test_what_is_wrong_with_a_codec_is_said(options: dict[str, str | int], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        open_level(level(**options))


def test_the_lossless_codecs_are_those_to_choose_from() -> None:
    assert "zstd" in lossless_codecs()
    assert all(codec.lossless for codec in lossless_codecs().values())


def test_what_rounds_is_known_from_the_platform_alone() -> None:
    pytest.importorskip("zfpy")
    levels = [
        Level(name="ram"),
        Level(name="exact", options={"codec": "zfp"}),
        Level(name="rounded", options={"codec": "zfp", "codec_tolerance": 1e-6}),
        Level(name="foreign", options={"codec": "somebodys"}),
    ]
    assert lossy(Platform(tuple(levels))) == {
        "rounded": "zfp(tolerance=1e-06)",
        "foreign": "somebodys, which is not available here",
    }


def test_options_are_those_that_can_be_written_in_a_word() -> None:
    class Made:
        def __init__(
            self, a: int = 1, b: "str | None" = None, *, c: Platform | None = None, d: float
        ) -> None: ...

    assert list(options_of(Made)) == ["a", "b", "d"]
    assert options_of(Made)["a"] == 1
    assert options_of(min) == {}


def test_memory_that_runs_out_in_a_factory_is_not_an_option_that_is_wrong() -> None:
    def large() -> object:
        raise MemoryError

    with pytest.raises(MemoryError):
        make("backend 'large'", large, {})
