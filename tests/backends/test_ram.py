"""Memory as a storage level."""

import os
from pathlib import Path
from typing import Any

import pytest

from ckio.actions import Field, Key, Kind
from ckio.backends.ram import Ram
from ckio.errors import LevelFull, StorageError
from ckio.testing import BackendTests, contents, get, put, raw

from .common import peak_of_a_turn

X0 = Key(Kind.RESTART, 0)


class TestRam(BackendTests):
    def make(self, tmp_path: Path, /, **limits: Any) -> Ram:
        return Ram(**limits)


class TestRamWithChecksum(BackendTests):
    def make(self, tmp_path: Path, /, **limits: Any) -> Ram:
        return Ram(checksum=True, **limits)


def test_more_memory_than_there_is_cannot_be_reserved() -> None:
    level = Ram()
    with pytest.raises(LevelFull, match=r"\d+ bytes are needed, \d+ are available"):
        level.reserve({1 << 50: 1})
    original = put(level, X0, raw(100))
    assert get(level, X0, raw(100)) == original
    level.close()


@pytest.mark.parametrize("checksum", [False, True])
def test_steady_state_allocates_nothing_that_grows_with_the_state(checksum: bool) -> None:
    layout = tuple(Field(f"f{number}", "<f8", (1 << 18,)) for number in range(4))
    level = Ram(checksum=checksum)
    level.reserve({8 << 20: 1})
    assert peak_of_a_turn(level, layout, contents(layout)) < 16 << 10
    level.close()


def test_a_closed_level_takes_nothing() -> None:
    level = Ram()
    level.close()
    with pytest.raises(StorageError, match="closed"):
        put(level, X0, raw(1))


def test_a_fork_has_its_own_memory_and_not_a_window_into_ours() -> None:
    level = Ram()
    original = put(level, X0, raw(1000))
    memory = level._ledger.find(X0).place.memory
    child = os.fork()
    if child == 0:
        memory[:] = bytes(len(memory))
        os._exit(0)
    os.waitpid(child, 0)
    assert get(level, X0, raw(1000)) == original
    level.close()
