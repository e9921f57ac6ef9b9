"""A level and a dict, given the same orders: hypothesis looks for a difference."""

import tempfile
from pathlib import Path
from typing import Any, Protocol

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ckio.actions import Key
from ckio.backends.base import Backend
from ckio.errors import LevelFull, MissingCheckpoint, StorageError
from ckio.testing.checkpoints import A9, T3, X0, X3, X7, get, put, raw


class Maker(Protocol):
    """How to make a level, and to open it again if it is durable; `BackendTests` is one."""

    durable: bool

    def make(self, tmp_path: Path, /, **limits: Any) -> Backend: ...
    def reopen(self, tmp_path: Path, /, **limits: Any) -> Backend: ...


class BackendMachine(RuleBasedStateMachine):
    """A level and a dict, given the same orders: hypothesis looks for a difference."""

    KEYS = st.sampled_from([X0, X3, X7, T3, A9])
    SIZES = st.sampled_from([0, 1, 100, 1024, 2999, 4096, 5000])
    CAPACITY = 10_000

    def __init__(self, tests: Maker, place: Path) -> None:
        super().__init__()
        self.tests = tests
        self.place = Path(tempfile.mkdtemp(dir=place))
        self.level = tests.make(self.place, capacity=self.CAPACITY)
        self.stored: dict[Key, bytes] = {}
        self.writes = 0

    @rule(key=KEYS, size=SIZES)
    def write(self, key: Key, size: int) -> None:
        self.writes += 1
        used = sum(map(len, self.stored.values()))
        if key in self.stored:
            with pytest.raises(StorageError):
                put(self.level, key, raw(size), seed=self.writes)
        elif used + size > self.CAPACITY:
            with pytest.raises(LevelFull):
                put(self.level, key, raw(size), seed=self.writes)
        else:
            self.stored[key] = put(self.level, key, raw(size), seed=self.writes)

    @rule(key=KEYS)
    def read(self, key: Key) -> None:
        if key in self.stored:
            assert get(self.level, key, raw(len(self.stored[key]))) == self.stored[key]
        else:
            with pytest.raises(MissingCheckpoint):
                get(self.level, key, raw(1))

    @rule(key=KEYS)
    def discard(self, key: Key) -> None:
        if key in self.stored:
            self.level.discard(key)
            del self.stored[key]
        else:
            with pytest.raises(MissingCheckpoint):
                self.level.discard(key)

    @rule(size=SIZES, count=st.integers(0, 3))
    def reserve(self, size: int, count: int) -> None:
        if size * count <= self.CAPACITY:
            self.level.reserve({size: count})
        else:
            with pytest.raises(LevelFull):
                self.level.reserve({size: count})

    @precondition(lambda self: self.tests.durable)
    @rule()
    def reopen(self) -> None:
        self.level.close()
        self.level = self.tests.reopen(self.place, capacity=self.CAPACITY)

    @invariant()
    def the_keys_agree(self) -> None:
        assert set(self.level.keys()) == set(self.stored)

    def teardown(self) -> None:
        for key in list(self.stored):
            self.read(key)
        self.level.close()
