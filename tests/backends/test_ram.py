"""Memory as a storage level."""

from pathlib import Path
from typing import Any

import pytest

from ckio.actions import Field
from ckio.backends.ram import Ram
from ckio.errors import LevelFull
from ckio.testing import BackendTests, contents, get, put, raw, x

from .common import peak_of_a_turn


class TestRam(BackendTests):
    def make(self, tmp_path: Path, /, **limits: Any) -> Ram:
        return Ram(**limits)


@pytest.mark.slow
class TestRamWithChecksum(BackendTests):
    def make(self, tmp_path: Path, /, **limits: Any) -> Ram:
        return Ram(checksum=True, **limits)


def test_more_memory_than_there_is_cannot_be_reserved() -> None:
    level = Ram()
    with pytest.raises(LevelFull, match=r"\d+ bytes are needed, \d+ are available"):
        level.reserve({1 << 50: 1})
    assert put(level, x(0), raw(100)) == get(level, x(0), raw(100))
    level.close()


@pytest.mark.parametrize("checksum", [False, True])
def test_steady_state_allocates_nothing_that_grows_with_the_state(checksum: bool) -> None:
    layout = tuple(Field(f"f{number}", "<f8", (1 << 18,)) for number in range(4))
    level = Ram(checksum=checksum)
    level.reserve({8 << 20: 1})
    assert peak_of_a_turn(level, layout, contents(layout)) < 16 << 10
    level.close()
