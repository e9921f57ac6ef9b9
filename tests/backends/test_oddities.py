"""What a level makes of odd places, odd buffers and odd layouts: done right, or a typed refusal."""

import fcntl
import os
import resource
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckio.actions import Field, Layout
from ckio.backends.directory import Directory
from ckio.backends.directory.slotfiles import TRIAL
from ckio.backends.directory.slots import HeldDirectory
from ckio.backends.files import Files
from ckio.backends.forms import form_from, form_of
from ckio.backends.hdf5 import Hdf5
from ckio.backends.ram import Ram
from ckio.errors import BadInput, CorruptCheckpoint, LevelFull, LevelInUse, StorageError
from ckio.testing import get, put, raw, x

from .common import in_child

DURABLE = pytest.mark.parametrize(
    "backend",
    [Directory, lambda path: Directory(path, durability="direct"), Hdf5],
    ids=["directory", "direct", "hdf5"],
)


def _memory(_: Path) -> Ram:
    return Ram()


# Buffers and layouts


@pytest.mark.parametrize("backend", [Directory, Hdf5, _memory])
def test_views_of_more_bytes_than_the_layout_says_reach_no_neighbour(
    backend: Callable[..., Any], tmp_path: Path
) -> None:
    level = backend(tmp_path / "level")
    originals = {x(step): put(level, x(step), raw(10_000), seed=step) for step in range(3)}
    level.discard(x(1))
    many = memoryview(np.arange(10_000.0))  # that many items, and eight times as many bytes
    with pytest.raises(StorageError, match="80000"):
        level.write(x(3), raw(10_000), [many])
    with pytest.raises(StorageError, match="80000"):
        level.read(x(2), [many])
    assert (many == memoryview(np.arange(10_000.0))) is True
    for key in (x(0), x(2)):
        assert get(level, key, raw(10_000)) == originals[key]
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


@pytest.mark.parametrize("dtype", ["a8", "<a8", "f8,a8", "f8,(23)i4", "(2)f8,i4", "2a"])
def test_a_dtype_that_numpy_warns_of_is_refused_without_a_word(dtype: str) -> None:
    with warnings.catch_warnings(action="error"):
        with pytest.raises(StorageError, match="no plain bytes"):
            form_of((Field("u", dtype, (2,)),))
        with pytest.raises(CorruptCheckpoint):
            form_from(f'[["u","{dtype}",[2],""]]'.encode())


@pytest.mark.parametrize("dtype", ["float64", "<f8,<i4", "(2,3)f8,i4", "datetime64[as]", "M8[s]"])
def test_the_other_names_of_dtypes_stay(dtype: str) -> None:
    layout: Layout = (Field("u", dtype, (2,)),)
    assert form_of(layout).sizes == [2 * np.dtype(dtype).itemsize]


@DURABLE
@pytest.mark.parametrize("sizes", [{1 << 62: 4}, {(1 << 63) - 1: 1}, {1 << 80: 1}], ids=str)
def test_a_reservation_beyond_all_bounds_is_a_full_level_and_leaves_nothing(
    backend: Callable[..., Any], sizes: dict[int, int], tmp_path: Path
) -> None:
    level = backend(tmp_path / "level")
    original = put(level, x(0), raw(100))
    with pytest.raises(LevelFull):
        level.reserve(sizes)
    assert get(level, x(0), raw(100)) == original
    level.remove()
    assert list(tmp_path.iterdir()) == []


# Places


def test_a_path_that_no_system_call_takes_is_bad_input(tmp_path: Path) -> None:
    for name in ("a\0b", "\ud800"):
        with pytest.raises(BadInput, match="cannot be made"):
            Directory(tmp_path / name)
        with pytest.raises(BadInput):
            Directory.contents(tmp_path / name)


def test_a_pipe_where_an_archive_should_be_makes_nobody_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.h5")
    with pytest.raises(BadInput, match="no regular file"):
        Hdf5.contents(tmp_path / "pipe.h5")
    with pytest.raises(BadInput, match="no regular file"):
        Hdf5(tmp_path / "pipe.h5")


def test_a_pipe_that_is_called_like_a_file_of_slots_stays(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "slots-8192-v3.ckio")
    level = Directory(tmp_path)
    with pytest.raises(StorageError, match=r"slots-8192-v3\.ckio is no regular file"):
        put(level, x(0), raw(4096))
    put(level, x(1), raw(9000))
    level.remove()
    assert [path.name for path in tmp_path.iterdir()] == ["slots-8192-v3.ckio"]


@pytest.mark.parametrize(
    "name", ["slots-08192-v3.ckio", "slots-8192-v03.ckio", "slots-٨١٩٢-v3.ckio"]
)
def test_a_copy_under_another_spelling_of_its_name_is_damage(name: str, tmp_path: Path) -> None:
    level = Directory(tmp_path)
    original = put(level, x(0), raw(4096))
    level.close()
    (tmp_path / name).write_bytes((tmp_path / "slots-8192-v3.ckio").read_bytes())
    level = Directory(tmp_path)
    assert get(level, x(0), raw(4096)) == original
    with pytest.raises(CorruptCheckpoint, match="renamed"):
        get(level, x(1), raw(4096))
    level.remove()
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_what_a_kill_left_of_a_trial_of_direct_io_goes(tmp_path: Path) -> None:
    place = tmp_path / "level"
    place.mkdir()
    (place / TRIAL).write_bytes(b"?".ljust(4096, b"\0"))
    level = Directory(place)
    put(level, x(0), raw(100))
    level.remove()
    assert list(tmp_path.iterdir()) == []


class _OneName(Files):
    """A file system on which a file has one name."""

    def rename(self, old: Path, new: Path, /) -> None:
        link, os.link = os.link, _no_link  # type: ignore[assignment]
        try:
            super().rename(old, new)
        finally:
            os.link = link


def _no_link(*_: object) -> None:
    raise PermissionError(1, "Operation not permitted")


def test_an_archive_can_be_made_where_a_file_has_but_one_name(tmp_path: Path) -> None:
    level = Hdf5(tmp_path / "a.h5", files=_OneName())
    original = put(level, x(0), raw(100))
    level.close()
    level = Hdf5(tmp_path / "a.h5", files=_OneName())
    assert get(level, x(0), raw(100)) == original
    level.remove()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "old").touch()
    (tmp_path / "new").touch()
    with pytest.raises(FileExistsError):
        _OneName().rename(tmp_path / "old", tmp_path / "new")


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


# Limits and forks


def test_direct_io_without_memory_or_threads_is_a_typed_refusal(tmp_path: Path) -> None:
    def body() -> None:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        limit = pages * resource.getpagesize() + (4 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        with pytest.raises(StorageError, match="direct I/O needs"):
            Directory(tmp_path / "level", durability="direct")

    Directory(tmp_path / "warm", durability="direct").remove()
    in_child(body)
    assert list(tmp_path.iterdir()) == []


@DURABLE
def test_a_fork_removes_nothing(backend: Callable[..., Any], tmp_path: Path) -> None:
    level = backend(tmp_path / "level")
    original = put(level, x(0), raw(5000))

    def body() -> None:
        with pytest.raises(StorageError, match="fork"):
            level.remove()

    in_child(body)
    assert get(level, x(0), raw(5000)) == original
    put(level, x(1), raw(5000))
    level.close()
    level = backend(tmp_path / "level")
    assert set(level.keys()) == {x(0), x(1)}
    level.remove()


@DURABLE
def test_a_fork_that_lives_on_does_not_hold_what_was_closed(
    backend: Callable[..., Any], tmp_path: Path
) -> None:
    level = backend(tmp_path / "level")
    put(level, x(0), raw(100))
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    try:
        level.close()
        level = backend(tmp_path / "level")
        assert level.keys() == [x(0)]
        level.remove()
    finally:
        with suppress(ProcessLookupError):
            os.kill(child, 9)
        os.waitpid(child, 0)
