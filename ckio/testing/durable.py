"""What every level does whose checkpoints outlive the process: the tests, and what they ask for."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ckio.backends.base import Backend
from ckio.errors import CorruptCheckpoint, LevelFull, MissingCheckpoint
from ckio.testing.checkpoints import A9, FLOW, T3, X0, X3, X7, get, put, raw


class DurableTests:
    """What outlives `close`; part of `BackendTests`, which says what the attributes mean."""

    durable: ClassVar[bool] = False

    def make(self, tmp_path: Path, /, **limits: Any) -> Backend:
        """An empty level, under `tmp_path` if it needs a place; limits: capacity=bytes, if any."""
        raise NotImplementedError

    def reopen(self, tmp_path: Path, /, **limits: Any) -> Backend:
        """The level that was made under `tmp_path` and closed."""
        raise NotImplementedError

    def files(self, tmp_path: Path, /) -> Iterable[Path]:
        """The files in which its payload lies."""
        return (path for path in tmp_path.rglob("*") if path.is_file())

    def test_what_was_committed_is_there_when_reopened(self, tmp_path: Path) -> None:
        self._needs_durable()
        level = self.make(tmp_path)
        level.reserve({1000: 2})
        originals = {
            key: put(level, key, layout, seed=key.step)
            for key, layout in ((X0, FLOW), (X3, raw(1000)), (T3, raw(0)), (A9, raw(123_456)))
        }
        layouts = {key: level.layout(key) for key in originals}
        put(level, X7, raw(1000))
        level.discard(X7)
        for _ in range(2):
            level.close()
            level = self.reopen(tmp_path)
            assert set(level.keys()) == set(originals)
            for key, original in originals.items():
                assert level.layout(key) == layouts[key]
                assert get(level, key, layouts[key]) == original
        again = put(level, X7, raw(999), seed=70)
        assert get(level, X7, raw(999)) == again
        level.close()

    def test_a_reopened_level_still_counts_its_bytes(self, tmp_path: Path) -> None:
        self._needs_durable()
        level = self.make(tmp_path, capacity=1000)
        put(level, X0, raw(700))
        level.close()
        level = self.reopen(tmp_path, capacity=1000)
        with pytest.raises(LevelFull):
            put(level, X3, raw(301))
        put(level, X7, raw(300))
        level.close()

    def test_what_was_discarded_stays_gone(self, tmp_path: Path) -> None:
        self._needs_durable()
        level = self.make(tmp_path)
        put(level, X0, raw(500), seed=1)
        level.discard(X0)
        level.close()
        level = self.reopen(tmp_path)
        assert list(level.keys()) == []
        with pytest.raises(MissingCheckpoint):
            get(level, X0, raw(500))
        level.close()

    def test_a_flipped_byte_is_never_read(self, tmp_path: Path) -> None:
        self._needs_durable()
        level = self.make(tmp_path)
        damaged = put(level, X0, raw(20_000), seed=1)
        original = put(level, X3, raw(20_000), seed=2)
        level.close()
        path, offset = self._find(tmp_path, damaged)
        with path.open("r+b") as file:
            file.seek(offset + 12_345)
            file.write(bytes([damaged[12_345] ^ 0x10]))
        level = self.reopen(tmp_path)
        with pytest.raises(CorruptCheckpoint, match="x_0"):
            get(level, X0, raw(20_000))
        assert get(level, X3, raw(20_000)) == original
        level.discard(X0)
        level.close()

    def _needs_durable(self) -> None:
        if not self.durable:
            pytest.skip("checkpoints on this level do not outlive the process")

    def _find(self, tmp_path: Path, payload: bytes) -> tuple[Path, int]:
        """Where a payload lies in the files of a level."""
        for path in self.files(tmp_path):
            offset = path.read_bytes().find(payload)
            if offset >= 0:
                return path, offset
        raise AssertionError("none of files() holds the payload in one piece")
