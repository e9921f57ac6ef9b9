"""A level in a word: a path, perhaps with a size."""

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckio import Job, Platform, gradient
from ckio.errors import BadInput
from ckio.models.burgers import Burgers
from ckio.platform.places import place_of


@pytest.mark.parametrize(
    ("text", "path", "capacity"),
    [
        ("scratch", "scratch", None),
        ("scratch:100GB", "scratch", 10**11),
        ("/a/b:1.5MiB", "/a/b", 3 << 19),
        ("/100GB", "/100GB", None),
        ("node:7", "node:7", None),
        ("what:ever", "what:ever", None),
    ],
)
def test_a_place_is_a_path_and_perhaps_a_size(text: str, path: str, capacity: int | None) -> None:
    assert place_of("disk", text) == (Path(path), capacity)


@pytest.mark.parametrize("text", ["100GB", "1.5MiB", "", ":100GB", "--ram", "100GB:5GB"])
def test_a_size_or_an_option_is_no_path(text: str) -> None:
    with pytest.raises(BadInput, match=r"disk = .* is not a path; give a path, and a size"):
        place_of("disk", text)


@pytest.mark.parametrize("text", ["t:-5MB", "t:1,5GB", "t:100GBytes", "t:+5MB", "t:1_000MB"])
def test_a_mistyped_size_is_no_name(text: str) -> None:
    with pytest.raises(BadInput, match=r"is not a size; write it as in scratch:1.5GB"):
        place_of("disk", text)


def test_a_path_that_is_no_text_is_refused() -> None:
    with pytest.raises(BadInput, match="not UTF-8, and files of a run could not name it"):
        place_of("disk", os.fsdecode(b"d\xff\xfe"))


@pytest.mark.parametrize("given", ["a\0b", 5, b"x"])
def test_what_is_no_path_is_refused(given: object) -> None:
    with pytest.raises(BadInput, match="give a path, such as scratch"):
        place_of("disk", given)


def test_a_place_that_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="File name too long; give another path"):
        job(tmp_path, disk="n" * 300).run()
    with pytest.raises(BadInput, match="File name too long; give another path"):
        gradient(Burgers, steps=20, disk="n" * 300)
    with pytest.raises(BadInput, match=r"control is an array of shape .*; give a dict of arrays"):
        job(tmp_path, control=np.ones(3)).run()


def job(at: Path, **options: Any) -> Job:
    return Job(at / "run", model=Burgers, steps=20, ram="4KiB", **options)


def test_a_capacity_is_kept_and_that_of_a_disk_is_a_part_of_what_is_free(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    result = job(tmp_path, disk=tmp_path / "near", archive=f"{tmp_path}/far.h5:1MB").run()
    stored = Platform.loads((tmp_path / "run" / "platform.toml").read_text())
    _, disk, archive = stored.levels
    assert disk.capacity == pytest.approx(0.9 * free, rel=0.05)
    assert archive.capacity == 1_000_000
    # The same words read the result, also without the size, which is not part of the question.
    again = job(tmp_path, disk=tmp_path / "near", archive=f"{tmp_path}/far.h5:1MB").run()
    assert np.array_equal(again.gradient["u"], result.gradient["u"])
    assert job(tmp_path, disk=tmp_path / "near", archive=f"{tmp_path}/far.h5").run().source
    with pytest.raises(BadInput, match="archive has other options or another capacity"):
        job(tmp_path, disk=tmp_path / "near", archive=f"{tmp_path}/far.h5:2MB").run()
