"""Memory as a storage level."""

from pathlib import Path
from typing import Any

import pytest

from ckio.backends.ram import Ram
from ckio.errors import LevelFull
from ckio.testing import BackendTests, get, put, raw, x


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
