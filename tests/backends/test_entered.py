"""How many files of ckio a steady access enters: a reader of the hot path has to know these."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import ckio
from ckio.backends.directory import Directory
from ckio.backends.hdf5 import Hdf5
from ckio.testing import put, raw, x

ROOT = Path(ckio.__file__).parent


def entered(do: Callable[[], object]) -> set[str]:
    """Return the files of ckio in which Python enters a function during a call."""
    names = set[str]()

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            names.add(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        do()
    finally:
        sys.setprofile(before)
    inside = (Path(name) for name in names if name.startswith(str(ROOT)))
    return {str(path.relative_to(ROOT)) for path in inside}


@pytest.mark.parametrize("level_type", [Hdf5, Directory])
@pytest.mark.parametrize("nbytes", [1 << 10, 1 << 20])
def test_a_steady_access_enters_at_most_seven_files(
    tmp_path: Path, level_type: type[Hdf5] | type[Directory], nbytes: int
) -> None:
    level, layout = level_type(tmp_path / "level"), raw(nbytes)
    level.reserve({nbytes: 4})
    for step in range(3):
        put(level, x(step), layout)
    key, data = x(3), [memoryview(bytearray(nbytes))]
    for do in (
        lambda: level.write(key, layout, data),
        lambda: level.read(key, data),
        lambda: level.discard(key),
    ):
        files = entered(do)
        assert 1 < len(files) <= 7, sorted(files)
    level.close()
