"""A fork shares the files of a level: it is refused, so that the level stays its owner's."""

import os
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from ckio.actions import Key, Kind
from ckio.backends.base import Backend
from ckio.backends.directory import Directory
from ckio.backends.hdf5 import Hdf5
from ckio.errors import LevelInUse, StorageError
from ckio.testing import get, put, raw

X0, X1 = (Key(Kind.RESTART, step) for step in range(2))


@pytest.mark.parametrize("backend", [Directory, Hdf5])
def test_a_fork_is_refused_and_harms_nothing(
    tmp_path: Path, backend: Callable[..., Backend]
) -> None:
    level = backend(tmp_path / "level")
    level.reserve({50_000: 4})
    reserved = _total(tmp_path)
    original = put(level, X0, raw(50_000))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with pytest.raises(StorageError, match="fork"):
                put(level, X1, raw(50_000))
            with pytest.raises(StorageError, match="fork"):
                get(level, X0, raw(50_000))
            level.close()
            with pytest.raises(LevelInUse):
                backend(tmp_path / "level")
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert _total(tmp_path) == reserved
    assert get(level, X0, raw(50_000)) == original
    level.close()


def _total(place: Path) -> int:
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
