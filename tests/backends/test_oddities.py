"""What a level makes of odd places, odd buffers and odd layouts: done right, or a typed refusal."""

import fcntl
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckio.actions import Field, Layout
from ckio.backends.directory import Directory
from ckio.backends.directory.slots import HeldDirectory
from ckio.backends.files import Files
from ckio.backends.forms import form_of
from ckio.backends.hdf5 import Hdf5
from ckio.backends.ram import Ram
from ckio.errors import LevelFull, LevelInUse, StorageError
from ckio.testing import get, put, raw, x

from .workload import Kind, held, plain

# Buffers and layouts


@pytest.mark.parametrize("backend", [Directory, Hdf5, Ram])
def test_views_of_more_bytes_than_the_layout_says_reach_no_neighbour(
    backend: Any, tmp_path: Path
) -> None:
    level = Ram() if backend is Ram else backend(tmp_path / "level")
    stored = {x(step): put(level, x(step), raw(10_000), seed=step) for step in range(3)}
    level.discard(x(1))
    del stored[x(1)]
    many = memoryview(np.arange(10_000.0))  # that many items, and eight times as many bytes
    with pytest.raises(StorageError, match="80000"):
        level.write(x(3), raw(10_000), [many])
    with pytest.raises(StorageError, match="80000"):
        level.read(x(2), [many])
    assert (many == memoryview(np.arange(10_000.0))) is True
    assert held(level) == stored
    level.close()


def test_views_of_other_things_than_bytes_are_told_what_to_do(tmp_path: Path) -> None:
    level = Directory(tmp_path / "level")
    with pytest.raises(StorageError, match="cast"):
        level.write(x(0), (Field("u", "<f8", (9,)),), [memoryview(np.zeros(9))])
    level.close()


@pytest.mark.parametrize(
    "field",
    [
        Field(None, "<f8", (1,)),  # type: ignore[arg-type]
        Field("u", np.dtype("<f8"), (1,)),  # type: ignore[arg-type]
        Field("u", "<f8", (1,), 3),  # type: ignore[arg-type]
        Field("u", "|u1", (1,) * 65),
        Field("u", "|u1", (1 << 63, 0)),
        Field("u", "|u1", (-1, -8)),
    ],
    ids=str,
)
def test_a_layout_that_could_not_be_read_again_is_not_written(field: Field) -> None:
    with pytest.raises(StorageError, match="no plain bytes"):
        form_of((field,))


@pytest.mark.parametrize("dtype", ["float64", "<f8,<i4", "(2,3)f8,i4", "datetime64[as]", "M8[s]"])
def test_the_other_names_of_dtypes_stay(dtype: str) -> None:
    layout: Layout = (Field("u", dtype, (2,)),)
    assert form_of(layout).sizes == [2 * np.dtype(dtype).itemsize]


@pytest.mark.parametrize("kind", plain("process", "direct"), ids=str)
def test_a_reservation_beyond_all_bounds_is_a_full_level_and_leaves_nothing(
    kind: Kind, tmp_path: Path
) -> None:
    level = kind.open(tmp_path)
    stored = {x(0): put(level, x(0), raw(100))}
    for sizes in ({1 << 62: 4}, {(1 << 63) - 1: 1}, {1 << 80: 1}):
        with pytest.raises(LevelFull):
            level.reserve(sizes)
        assert held(level) == stored
    level.remove()  # type: ignore[attr-defined]
    assert list(tmp_path.iterdir()) == []


# Places


def test_an_archive_can_be_made_where_a_file_has_but_one_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_link(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_link)
    for _ in range(2):
        level = Hdf5(tmp_path / "a.h5")
        if not level.keys():
            original = put(level, x(0), raw(100))
        assert get(level, x(0), raw(100)) == original
        level.close()
    (tmp_path / "old").touch()
    with pytest.raises(FileExistsError):
        Files().rename(tmp_path / "old", tmp_path / "a.h5")


def test_a_directory_that_its_holder_has_just_removed_is_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, flock = tmp_path / "level", fcntl.flock

    def removed_meanwhile(fd: int, how: int) -> None:
        place.rmdir()
        flock(fd, how)

    place.mkdir()
    monkeypatch.setattr(fcntl, "flock", removed_meanwhile)
    with pytest.raises(LevelInUse):
        HeldDirectory(place, Files(), sync=False)
