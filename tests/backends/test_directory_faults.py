"""What no fault makes a directory lose: refused calls, full disks, kills."""

import errno
import os
import random
import resource
import shutil
import signal
import subprocess
import time
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from ckio.actions import Buffers, Key, Kind, Layout
from ckio.backends.directory import Directory
from ckio.backends.files import Files
from ckio.errors import BadInput, LevelFull, StorageError
from ckio.testing import buffers, contents, get, put, raw

from .common import in_child

X0, X1, X2 = (Key(Kind.RESTART, step) for step in range(3))


def held(level: Directory) -> dict[Key, bytes]:
    """All that a level holds, read and verified."""
    stored = level.keys()
    return {key: get(level, key, level.layout(key)) for key in stored}


class _Failing(Files):
    """A system in which one call fails, once."""

    def __init__(self, fails_at: int) -> None:
        self.left = fails_at

    def _count(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise OSError(errno.EIO, "Input/output error")

    def pwritev(self, fd: int, data: Buffers, offset: int, /) -> int:
        self._count()
        return super().pwritev(fd, data, offset)

    def sync(self, fd: int, /) -> None:
        self._count()
        super().sync(fd)

    def open(self, path: Path, /) -> int:
        self._count()
        return super().open(path)


@pytest.mark.parametrize("fails_at", range(1, 22))
def test_after_any_failed_call_the_level_holds_what_it_held(tmp_path: Path, fails_at: int) -> None:
    level = Directory(tmp_path, durability="fdatasync", files=_Failing(fails_at))
    stored: dict[Key, bytes] = {}
    failures = []
    for discard, key, size in (
        (False, X0, 500),
        (False, X1, 9000),
        (True, X1, 9000),
        (False, X2, 300),
        (False, X1, 9000),
    ):
        try:
            if not discard:
                stored[key] = put(level, key, raw(size))
            elif key in stored:
                level.discard(key)
                del stored[key]
        except StorageError as error:
            failures.append(str(error))
        assert set(level.keys()) == set(stored)
        assert held(level) == stored
    # A level that could not write x_1 refuses nothing later; one that could not discard it does.
    assert 1 <= len(failures) <= 2
    assert failures[0].startswith(f"directory {tmp_path}: ")
    assert failures[0].endswith("failed: Input/output error")
    level.close()
    level = Directory(tmp_path)
    assert held(level) == stored
    level.close()


def test_the_file_system_may_be_full(small_disk: Path) -> None:
    level = Directory(small_disk / "level")
    originals: dict[Key, bytes] = {}

    def fill() -> None:
        for step in range(10):
            key = Key(Kind.RESTART, step)
            originals[key] = put(level, key, raw(200_000), seed=step)

    with pytest.raises(LevelFull, match=r"writing x_\d+ failed.*200000 bytes are needed, \d+ byte"):
        fill()
    assert len(originals) >= 3
    for _ in range(2):
        assert held(level) == originals
        level.close()
        level = Directory(small_disk / "level")
    level.discard(X0)
    assert put(level, X0, raw(200_000), seed=7) == get(level, X0, raw(200_000))
    level.close()


def test_a_reservation_that_does_not_fit_leaves_nothing_behind(small_disk: Path) -> None:
    level = Directory(small_disk / "level")
    with pytest.raises(LevelFull, match=r"reserving failed.* are free"):
        level.reserve({1000: 3, 400_000: 4})
    assert list((small_disk / "level").iterdir()) == []
    level.reserve({1000: 3, 400_000: 2})
    level.remove()
    assert list(small_disk.iterdir()) == []


def test_a_limit_on_file_sizes_is_a_full_level(tmp_path: Path) -> None:
    def body() -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, hard))
        level = Directory(tmp_path)
        first, second = (put(level, key, raw(200_000)) for key in (X0, X1))
        with pytest.raises(LevelFull, match="File too large"):
            put(level, X2, raw(200_000))
        assert get(level, X0, raw(200_000)) == first
        assert get(level, X1, raw(200_000)) == second

    in_child(body)


def test_a_kill_loses_nothing_that_was_committed(tmp_path: Path) -> None:
    _kill_often(tmp_path, kills=25)


@pytest.mark.slow
def test_many_kills_lose_nothing_that_was_committed(tmp_path: Path) -> None:
    _kill_often(tmp_path, kills=250)


def _kill_often(tmp_path: Path, *, kills: int) -> None:
    """Kill a writing child again and again, and compare with what it had acknowledged."""
    chance = random.Random(20)
    sizes = (100, 5000, 70_000, 3 << 20)
    layouts = {Key(Kind.TAPE, step): raw(sizes[step % len(sizes)]) for step in range(12)}
    data = {key: buffers(contents(layout, seed=key.step)) for key, layout in layouts.items()}
    originals = {key: b"".join(views) for key, views in data.items()}
    journal, place, stored, orders = tmp_path / "journal", tmp_path / "level", set[Key](), 0
    for turn in range(kills):
        journal.write_bytes(b"")
        child = os.fork()
        if child == 0:
            _write_for_ever(place, journal, layouts, data, seed=turn)
        enough, deadline = chance.randrange(80), time.monotonic() + 30
        while journal.read_bytes().count(b".") < enough and time.monotonic() < deadline:
            time.sleep(0.0005)
        os.kill(child, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        done, pending = _replay(journal.read_text(), set(stored))
        orders += len(journal.read_text().split())
        level = Directory(place)
        found = held(level)
        assert set(found) - pending == done - pending
        assert found.items() <= originals.items()
        level.close()
        stored = set(found)
    assert orders > 20 * kills


def _write_for_ever(
    place: Path,
    journal: Path,
    layouts: Mapping[Key, Layout],
    data: Mapping[Key, Buffers],
    *,
    seed: int,
) -> None:
    """Write and discard until killed; `+ step .` says a write began and ended, `-` a discard."""
    try:
        chance = random.Random(seed)
        log = os.open(journal, os.O_WRONLY | os.O_APPEND)
        level = Directory(place)
        while True:
            key = chance.choice(list(layouts))
            stored = key in set(level.keys())
            os.write(log, f"{'-' if stored else '+'}{key.step} ".encode())
            if stored:
                level.discard(key)
            else:
                level.write(key, layouts[key], data[key])
            os.write(log, b". ")
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def _replay(journal: str, stored: set[Key]) -> tuple[set[Key], set[Key]]:
    """What must be stored after these orders, and which key's order was not acknowledged."""
    pending: set[Key] = set()
    for word in journal.split():
        if word == ".":
            stored ^= pending
            pending = set()
        else:
            pending = {Key(Kind.TAPE, int(word[1:]))}
    return stored, pending


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody who may not write")
def test_a_place_that_is_not_writable_is_bad_input(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    for parent in tmp_path.parents[:-2]:
        parent.chmod(parent.stat().st_mode | 0o055)

    def body() -> None:
        os.setuid(65534)
        with pytest.raises(BadInput, match="not writable"):
            Directory(tmp_path)
        with pytest.raises(BadInput, match="cannot be made"):
            Directory(tmp_path / "below")

    in_child(body)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can mount a small file system")
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("a small file system cannot be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)
