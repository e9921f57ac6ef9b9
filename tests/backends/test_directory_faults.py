"""What no fault makes a directory lose: refused calls, full disks, kills."""

import errno
import os
import random
import re
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
from ckio.backends.contents import Damaged, Stored, sound
from ckio.backends.directory import Directory
from ckio.backends.directory.format import FREE, LIVE
from ckio.backends.files import DURABILITIES, Files
from ckio.errors import BadInput, LevelFull, StorageError
from ckio.testing import buffers, contents, get, put, raw

from .common import in_child

X0, X1, X2 = (Key(Kind.RESTART, step) for step in range(3))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where a level can be."""
    return tmp_path / "level"


@pytest.fixture(params=[*DURABILITIES])
def durability(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """Each durability that the file system under the tests has."""
    try:
        Directory(tmp_path / "trial", durability=request.param).remove()
    except BadInput as error:
        pytest.skip(str(error))
    return str(request.param)


def held(level: Directory) -> dict[Key, bytes]:
    """All that a level holds, read and verified."""
    stored = level.keys()
    return {key: get(level, key, level.layout(key)) for key in stored}


class _Failing(Files):
    """A system in which some calls in a row fail, once."""

    def __init__(self, fails_at: int, calls: int = 1) -> None:
        self.left, self.calls = fails_at, calls

    def _count(self) -> None:
        self.left -= 1
        if -self.calls < self.left <= 0:
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

    def extend(self, fd: int, begin: int, nbytes: int, /, *, prewrite: bool) -> None:
        self._count()
        super().extend(fd, begin, nbytes, prewrite=prewrite)

    def sync_directory(self, path: Path, /) -> None:
        self._count()
        super().sync_directory(path)


@pytest.mark.campaign
@pytest.mark.parametrize("calls", [1, 2])
@pytest.mark.parametrize("fails_at", range(1, 24))
def test_after_any_failed_call_the_level_holds_what_it_held(
    place: Path, durability: str, fails_at: int, calls: int
) -> None:
    files = _Failing(1 << 20, calls)
    level = Directory(place, durability=durability, files=files)
    files.left = fails_at
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
    # A level that could not discard x_1 still holds it, and refuses to write it.
    refused = [text for text in failures if "holds x_1 already" not in text]
    assert len(failures) <= calls + 1
    for text in refused:
        assert re.match(rf"directory {place}: \w+ x_\d \(\d+ bytes\) failed: Input/output", text)
    level.close()
    level = Directory(place, durability=durability)
    # One that could neither be written nor withdrawn, or discarded nor restored, may be either.
    found = held(level)
    assert found.keys() ^ stored.keys() <= ({X0, X1, X2} if calls == 2 else set())
    assert all(found[key] == stored[key] for key in found.keys() & stored.keys())
    level.close()


def test_a_write_that_could_not_be_withdrawn_does_not_come_back(place: Path) -> None:
    class Stuck(Files):
        """Commit words get to the disk, but that is not said; they cannot be cleared."""

        failing = False

        def pwritev(self, fd: int, data: Buffers, offset: int, /) -> int:
            if self.failing and bytes(data[0]) == FREE:
                raise OSError(errno.EIO, "Input/output error")
            done = super().pwritev(fd, data, offset)
            if self.failing and bytes(data[0]) == LIVE:
                raise OSError(errno.EIO, "Input/output error")
            return done

    for discard in (False, True):
        files = Stuck()
        level = Directory(place, files=files)
        files.failing = True
        with pytest.raises(StorageError, match="writing x_0"):
            put(level, X0, raw(100), seed=1)
        assert level.keys() == []
        files.failing = False
        young = put(level, X0, raw(100), seed=2)
        if discard:
            level.discard(X0)
        level.close()
        for _ in range(2):
            level = Directory(place)
            assert held(level) == ({} if discard else {X0: young})
            level.close()
        stored = Directory.contents(place)
        assert len(stored) == 1 - discard
        level = Directory(place)
        level.remove()


@pytest.mark.parametrize("error", [errno.EROFS, errno.EACCES, errno.EINTR, errno.EDQUOT])
def test_what_is_held_stays_readable_where_nothing_can_be_written(place: Path, error: int) -> None:
    class ReadOnly(Files):
        failing = False

        def pwritev(self, fd: int, data: Buffers, offset: int, /) -> int:
            if self.failing:
                raise OSError(error, os.strerror(error))
            return super().pwritev(fd, data, offset)

    files = ReadOnly()
    level = Directory(place, files=files)
    originals = {X0: put(level, X0, raw(100)), X1: put(level, X1, raw(70_000))}
    files.failing = True
    for size in (100, 70_000):
        with pytest.raises(StorageError, match=rf"{place}: writing x_2 \({size} bytes\) failed"):
            put(level, X2, raw(size))
        with pytest.raises(StorageError, match=r"discarding x_1 \(70000 bytes\) failed"):
            level.discard(X1)
        assert held(level) == originals
    files.failing = False
    originals[X2] = put(level, X2, raw(70_000))
    level.discard(X1)
    del originals[X1]
    assert held(level) == originals
    level.close()


def test_a_level_deleted_underneath_keeps_what_it_holds_and_takes_nothing_more(
    place: Path,
) -> None:
    level = Directory(place)
    original = put(level, X0, raw(100))
    level.reserve({100: 3})
    shutil.rmtree(place)
    for size in (100, 70_000):  # into a slot that there is; into one that would be made
        with pytest.raises(StorageError, match=rf"{place}: writing x_1 \({size} bytes\) failed"):
            put(level, X1, raw(size))
    assert held(level) == {X0: original}
    level.remove()
    assert not place.exists()


def test_names_are_synced_before_anything_is_acknowledged(tmp_path: Path) -> None:
    done: list[tuple[str, Path]] = []

    class Log(Files):
        def make_directory(self, path: Path, /) -> None:
            super().make_directory(path)
            done.append(("make", path))

        def open(self, path: Path, /) -> int:
            done.append(("make", path))
            return super().open(path)

        def sync_directory(self, path: Path, /) -> None:
            super().sync_directory(path)
            done.append(("sync", path))

    level = Directory(tmp_path / "a" / "b", durability="fdatasync", files=Log())
    put(level, X0, raw(10))
    level.close()
    (file,) = (tmp_path / "a" / "b").iterdir()
    for path in (tmp_path / "a", tmp_path / "a" / "b", file):
        assert ("sync", path.parent) in done[done.index(("make", path)) :]


def test_direct_io_that_the_file_system_refuses_is_bad_input(tmp_path: Path) -> None:
    class Refusing(Files):
        def open_direct(self, path: Path, /) -> int:
            raise OSError(errno.EINVAL, "Invalid argument")

    class RefusingToWrite(Files):
        def pwritev(self, fd: int, data: Buffers, offset: int, /) -> int:
            raise OSError(errno.EINVAL, "Invalid argument")

    for files in (Refusing(), RefusingToWrite()):
        with pytest.raises(BadInput, match=rf'{tmp_path}/a: .*; choose durability="fdatasync"'):
            Directory(tmp_path / "a", durability="direct", files=files)
        assert list(tmp_path.iterdir()) == []


def test_the_file_system_may_be_full(small_disk: Path) -> None:
    level = Directory(small_disk / "level")
    originals: dict[Key, bytes] = {}

    def fill() -> None:
        for step in range(10):
            key = Key(Kind.RESTART, step)
            originals[key] = put(level, key, raw(200_000), seed=step)

    with pytest.raises(
        LevelFull, match=r"writing x_\d+ \(200000 bytes\) failed.*200000 bytes are needed, \d+ byte"
    ):
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


@pytest.mark.campaign
def test_a_kill_loses_nothing_that_was_committed(place: Path, durability: str) -> None:
    _kill_often(place, durability, kills=20)


@pytest.mark.slow
def test_many_kills_lose_nothing_that_was_committed(place: Path, durability: str) -> None:
    _kill_often(place, durability, kills=250)


def _kill_often(place: Path, durability: str, *, kills: int) -> None:
    """Kill a writing child again and again, and compare with what it had acknowledged."""
    chance = random.Random(20)
    sizes = (100, 5000, 70_000, 2 << 20)
    layouts = {Key(Kind.TAPE, step): raw(sizes[step % len(sizes)]) for step in range(12)}
    data = {key: buffers(contents(layout, seed=key.step)) for key, layout in layouts.items()}
    originals = {key: b"".join(views) for key, views in data.items()}
    journal, stored, orders = place.with_name("journal"), set[Key](), 0
    for turn in range(kills):
        journal.write_bytes(b"")
        child = os.fork()
        if child == 0:
            _write_for_ever(place, durability, journal, layouts, data, seed=turn)
        enough, deadline = chance.randrange(50), time.monotonic() + 30
        while journal.read_bytes().count(b".") < enough and time.monotonic() < deadline:
            time.sleep(0.0005)
        assert damaged_in(place) == []
        os.kill(child, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        done, pending = _replay(journal.read_text(), set(stored))
        orders += len(journal.read_text().split())
        assert damaged_in(place) == []
        level = Directory(place, durability=durability)
        found = held(level)
        assert set(found) - pending == done - pending
        assert found.items() <= originals.items()
        level.close()
        stored = set(found)
    assert orders > 15 * kills


def damaged_in(place: Path) -> list[Damaged]:
    """What is damaged in a place, where perhaps nothing is yet, or a writer is at work."""
    try:
        return [item for item in Directory.contents(place) if isinstance(item, Damaged)]
    except BadInput:
        return []


def _write_for_ever(
    place: Path,
    durability: str,
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
        level = Directory(place, durability=durability)
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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody who may not write")
def test_permission_lost_under_an_open_level_costs_nothing_that_it_holds(tmp_path: Path) -> None:
    for parent in tmp_path.parents[:-2]:
        parent.chmod(parent.stat().st_mode | 0o055)
    os.chown(tmp_path, 65534, 65534)

    def body() -> None:
        os.setuid(65534)
        level = Directory(tmp_path)
        original = put(level, X0, raw(100))
        tmp_path.chmod(0o500)
        with pytest.raises(StorageError, match=r"writing x_1 \(70000 bytes\).*Permission denied"):
            put(level, X1, raw(70_000))
        assert held(level) == {X0: original}
        assert put(level, X2, raw(100)) == get(level, X2, raw(100))  # files that are open
        level.close()

    in_child(body)


def test_a_file_system_that_became_read_only_can_be_looked_at(small_disk: Path) -> None:
    level = Directory(small_disk / "level")
    put(level, X0, raw(100))
    level.close()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    (stored,) = Directory.contents(small_disk / "level")
    assert isinstance(stored, Stored)
    assert sound(stored)
    with pytest.raises(BadInput, match="not writable"):
        Directory(small_disk / "level")


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
