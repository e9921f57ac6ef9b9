"""Levels given in words, and what is left of them when the work is done or has failed."""

from pathlib import Path

import pytest

from ckio.actions import Field, Key, Kind
from ckio.backends.directory import Directory
from ckio.cli.calibrate import parse_level
from ckio.errors import BadInput
from ckio.jobs.levels import opened
from ckio.testing import put

X7 = Key(Kind.RESTART, 7)
LAYOUT = (Field("u", "<f8", (16,)),)


def test_a_level_is_name_backend_place_and_options() -> None:
    text = "nvme=directory:scratch/a b,capacity=1.5MiB,channel=bus,durability=process,codec_level=3"
    level = parse_level(text, here=Path("/home/of/it"))
    assert (level.name, level.backend, level.channel) == ("nvme", "directory", "bus")
    assert level.capacity == 3 << 19
    options = {"path": "/home/of/it/scratch/a b", "durability": "process", "codec_level": 3}
    assert level.options == options


def test_an_absolute_place_stays_and_home_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    for where, path in (("/a/b", "/a/b"), ("~/b", "/home/me/b")):
        level = parse_level(f"a=directory:{where}", here=Path("/here"))
        assert level.options["path"] == path


@pytest.mark.parametrize("text", ["", "a", "a=", "=ram", "a=ram,capacity", "a=ram,capacity=1e-3"])
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match="--level"):
        parse_level(text, here=Path("/"))


def work(
    place: Path, *, write: bool = True, error: BaseException | None = None, temporary: bool = False
) -> None:
    """Store something on one of two levels, and perhaps fail."""
    levels = [
        parse_level("b=hdf5:deep/b.h5", here=place),
        parse_level("a=directory:deep/a", here=place),
    ]
    with opened(levels, "cafe", temporary=temporary) as backends:
        if write:
            put(backends[1], X7, LAYOUT)
        if error is not None:
            raise error


def failing_work(place: Path, *, write: bool = True, temporary: bool = False) -> list[str]:
    """Fail as when somebody presses Ctrl-C; returns what the error says is left."""
    with pytest.raises(KeyboardInterrupt) as caught:
        work(place, write=write, error=KeyboardInterrupt(), temporary=temporary)
    return list(getattr(caught.value, "__notes__", []))


def in_folders_of_levels(place: Path) -> list[Path]:
    """What is left of a run: the folders that the user named may stay, but nothing in them."""
    return [it for it in place.rglob("*") if it not in (place / "deep", place / "deep" / "a")]


def test_nothing_is_kept_not_even_after_an_error(tmp_path: Path) -> None:
    work(tmp_path, temporary=True)
    assert failing_work(tmp_path, temporary=True) == []
    assert in_folders_of_levels(tmp_path) == []


def test_after_errors_what_holds_checkpoints_is_kept_and_named(tmp_path: Path) -> None:
    work(tmp_path)
    assert failing_work(tmp_path, write=False) == []
    assert in_folders_of_levels(tmp_path) == []
    (note,) = failing_work(tmp_path)
    assert note == f"1 checkpoint is left in {tmp_path}/deep/a/cafe"
    assert Directory(tmp_path / "deep" / "a" / "cafe").keys() == [X7]
    assert not list(tmp_path.rglob("*.h5"))


def test_a_level_that_does_not_open_leaves_the_others_closed_and_gone(tmp_path: Path) -> None:
    levels = [
        parse_level("a=directory:deep/a", here=tmp_path),
        parse_level("b=directory:/proc/b", here=tmp_path),
    ]
    with pytest.raises(BadInput, match="/proc/b"), opened(levels, "cafe"):
        pass
    assert in_folders_of_levels(tmp_path) == []
