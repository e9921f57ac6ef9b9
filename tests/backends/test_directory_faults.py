"""What no fault makes a directory lose: a write that cannot be withdrawn."""

import errno
from pathlib import Path

import pytest

from ckio.actions import Buffers
from ckio.backends.directory import Directory
from ckio.backends.directory.format import FREE, LIVE
from ckio.backends.files import Files
from ckio.errors import StorageError
from ckio.testing import put, raw, x

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
