"""A fork shares the files of a level: it is refused, so that the level stays its owner's."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ckio.backends.base import Backend
from ckio.backends.directory import Directory
from ckio.backends.hdf5 import Hdf5
from ckio.errors import LevelInUse, StorageError
from ckio.testing import get, put, raw, x

from .common import in_child


@pytest.mark.parametrize("backend", [Directory, Hdf5])
def test_a_fork_is_refused_and_harms_nothing(
    tmp_path: Path, backend: Callable[..., Backend]
) -> None:
    level = backend(tmp_path / "level")
    level.reserve({50_000: 4})
    reserved = _total(tmp_path)
    original = put(level, x(0), raw(50_000))

    def fork() -> None:
        with pytest.raises(StorageError, match="fork"):
            put(level, x(1), raw(50_000))
        with pytest.raises(StorageError, match="fork"):
            get(level, x(0), raw(50_000))
        level.close()
        with pytest.raises(LevelInUse):
            backend(tmp_path / "level")

    in_child(fork)
    assert _total(tmp_path) == reserved
    assert get(level, x(0), raw(50_000)) == original
    level.close()


def _total(place: Path) -> int:
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
