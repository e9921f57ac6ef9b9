"""A level with copies: what is copied when, and what is read back on another node."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from ckio.actions import Key, Kind
from ckio.backends.base import Backend
from ckio.backends.contents import Stored
from ckio.backends.copied import Copied
from ckio.backends.directory import Directory
from ckio.backends.ram import Ram
from ckio.errors import BadInput, LevelFull
from ckio.testing import BackendTests
from ckio.testing.checkpoints import get, put, raw

X3, X5, A7 = Key(Kind.RESTART, 3), Key(Kind.RESTART, 5), Key(Kind.ADJOINT, 7)
LAYOUT = raw(100)


class Clock:
    """A clock that stands still until it is set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def level_at(tmp_path: Path, clock: Clock | None = None, **limits: Any) -> Copied:
    copies = Directory(tmp_path / "saved")
    disk = Directory(tmp_path / "disk", **limits)
    return Copied(disk, copies, every=600.0, name="disk", clock=clock or Clock())


def copied_keys(tmp_path: Path) -> set[Key]:
    return {it.key for it in Directory.contents(tmp_path / "saved") if isinstance(it, Stored)}


class TestCopied(BackendTests):
    durable = True

    def make(self, tmp_path: Path, /, **limits: Any) -> Backend:
        return level_at(tmp_path, **limits)

    def reopen(self, tmp_path: Path, /, **limits: Any) -> Backend:
        return level_at(tmp_path, **limits)

    def files(self, tmp_path: Path, /) -> Any:
        return super().files(tmp_path / "disk")


def test_it_is_copied_when_the_time_has_come_and_at_the_end(tmp_path: Path) -> None:
    clock = Clock()
    level = level_at(tmp_path, clock)
    put(level, X3, LAYOUT)
    assert list(level._copies.keys()) == []
    clock.now = 600.0
    put(level, X5, LAYOUT)
    assert copied_keys(tmp_path) == {X3, X5}
    level.discard(X3)
    put(level, A7, LAYOUT)
    level.close()
    assert copied_keys(tmp_path) == {X5, A7}


def test_a_node_without_the_files_reads_them_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    level = level_at(tmp_path)
    stored = {key: put(level, key, LAYOUT, seed=key.step) for key in (X3, X5, A7)}
    level.close()
    shutil.rmtree(tmp_path / "disk")
    again = level_at(tmp_path)
    assert {key: get(again, key, LAYOUT) for key in list(again.keys())} == stored
    assert "disk: 3 checkpoints were read back from their copies" in caplog.text
    again.remove()
    assert not (tmp_path / "saved").exists()


def test_files_that_are_there_are_newer_than_their_copies(tmp_path: Path) -> None:
    level = level_at(tmp_path)
    put(level, X3, LAYOUT)
    level.copy()
    level.discard(X3)
    put(level, X5, LAYOUT)
    level.backend.close()  # killed: not copied any more
    level._copies.close()
    again = level_at(tmp_path)
    assert set(again.keys()) == {X5}
    again.close()
    assert copied_keys(tmp_path) == {X5}


def test_a_full_place_for_copies_is_said_once_and_the_run_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    copies = Directory(tmp_path / "saved", capacity=150)
    level = Copied(Directory(tmp_path / "disk"), copies, every=1.0, name="disk", clock=clock)
    for step in range(4):
        clock.now += 1.0
        put(level, Key(Kind.RESTART, step), LAYOUT)
    assert len(list(level.keys())) == 4
    assert caplog.text.count("its checkpoints are not copied any more") == 1
    for step in range(3):
        level.discard(Key(Kind.RESTART, step))
    clock.now += 1.0
    with pytest.raises(LevelFull):
        copies.write(X5, LAYOUT, [memoryview(bytes(100))])
    level.close()


def test_memory_has_no_files_to_copy(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="disk: only files can be copied; leave out copies"):
        Copied(Ram(), Directory(tmp_path), every=1.0, name="disk")
