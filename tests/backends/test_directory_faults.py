"""What no fault makes a directory lose: a write that cannot be withdrawn, and kills."""

import errno
import os
import random
import signal
import time
import traceback
from collections.abc import Mapping
from pathlib import Path

import pytest

from ckio.actions import Buffers, Key, Layout
from ckio.backends.contents import Damaged
from ckio.backends.directory import Directory
from ckio.backends.directory.format import FREE, LIVE
from ckio.backends.files import DURABILITIES, Files
from ckio.errors import BadInput, StorageError
from ckio.testing import buffers, contents, put, raw, t, x

from .workload import held


def test_a_write_that_could_not_be_withdrawn_does_not_come_back(tmp_path: Path) -> None:
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

    place = tmp_path / "level"
    for discard in (False, True):
        files = Stuck()
        level = Directory(place, files=files)
        files.failing = True
        with pytest.raises(StorageError, match="writing x_0"):
            put(level, x(0), raw(100), seed=1)
        assert level.keys() == []
        files.failing = False
        young = put(level, x(0), raw(100), seed=2)
        if discard:
            level.discard(x(0))
        level.close()
        for _ in range(2):
            level = Directory(place)
            assert held(level) == ({} if discard else {x(0): young})
            level.close()
        assert len(Directory.contents(place)) == 1 - discard
        level = Directory(place)
        level.remove()


@pytest.mark.campaign
@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize("kills", [12, 250])
def test_a_kill_loses_nothing_that_was_committed(
    tmp_path: Path, durability: str, kills: int
) -> None:
    """Kill a writing child again and again, and compare with what it had acknowledged."""
    try:
        Directory(tmp_path / "trial", durability=durability).remove()
    except BadInput as error:
        pytest.skip(str(error))
    chance = random.Random(20)
    sizes = (100, 5000, 70_000, 2 << 20)
    layouts = {t(step): raw(sizes[step % len(sizes)]) for step in range(12)}
    data = {key: buffers(contents(layout, seed=key.step)) for key, layout in layouts.items()}
    originals = {key: b"".join(views) for key, views in data.items()}
    place, journal, stored, orders = tmp_path / "level", tmp_path / "journal", set[Key](), 0
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
            pending = {t(int(word[1:]))}
    return stored, pending
