"""A fork shares the files of a level: it is refused, so that the level stays its owner's."""

import os
import time
from contextlib import suppress
from pathlib import Path

import pytest

from ckio.backends.ram import Ram
from ckio.errors import LevelInUse, StorageError
from ckio.testing import get, put, raw, x

from .common import in_child
from .workload import Kind, held, plain

PLAIN = pytest.mark.parametrize("kind", plain("process", "direct"), ids=str)


@PLAIN
def test_a_fork_is_refused_and_harms_nothing(kind: Kind, tmp_path: Path) -> None:
    level = kind.open(tmp_path)
    level.reserve({50_000: 4})
    reserved = _total(tmp_path)
    stored = {x(0): put(level, x(0), raw(50_000))}

    def fork() -> None:
        for call in (
            lambda: put(level, x(1), raw(50_000)),
            lambda: get(level, x(0), raw(50_000)),
            level.remove,  # type: ignore[attr-defined]
        ):
            with pytest.raises(StorageError, match="fork"):
                call()
        level.close()
        with pytest.raises(LevelInUse):
            kind.open(tmp_path)

    in_child(fork)
    assert _total(tmp_path) == reserved
    stored[x(1)] = put(level, x(1), raw(5000))
    assert held(level) == stored
    level.close()
    level = kind.open(tmp_path)
    assert held(level) == stored
    level.close()


@PLAIN
def test_a_fork_that_lives_on_does_not_hold_what_was_closed(kind: Kind, tmp_path: Path) -> None:
    level = kind.open(tmp_path)
    put(level, x(0), raw(100))
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    try:
        level.close()
        level = kind.open(tmp_path)
        assert set(level.keys()) == {x(0)}
        level.remove()  # type: ignore[attr-defined]
    finally:
        with suppress(ProcessLookupError):
            os.kill(child, 9)
        os.waitpid(child, 0)


def test_a_fork_has_its_own_memory_and_not_a_window_into_ours() -> None:
    level = Ram()
    original = put(level, x(0), raw(1000))
    memory = level._ledger.find(x(0)).place.memory

    def fork() -> None:
        memory[:] = bytes(len(memory))

    in_child(fork)
    assert get(level, x(0), raw(1000)) == original
    level.close()


def _total(place: Path) -> int:
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
