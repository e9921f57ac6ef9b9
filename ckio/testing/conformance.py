"""Conformance suites of backends and of models.

They test every promise. The bytes that are read are compared with copies of the bytes that were
written, and not with checksums of the backend itself.
"""

import tempfile
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ckio.actions import Field, Key, Kind, Layout
from ckio.backends.base import Backend
from ckio.errors import (
    BadInput,
    CorruptCheckpoint,
    LevelFull,
    MissingCheckpoint,
    StorageError,
)
from ckio.model import Handing, as_bytes
from ckio.model.check import check_model
from ckio.testing.checkpoints import (
    A9,
    FLOW,
    T3,
    X0,
    X3,
    X7,
    buffers,
    contents,
    get,
    put,
    raw,
    save,
)


class BackendTests:
    """Tests of a backend. Derive a class from this one, and let its method `make` return a backend.

    Attributes
    ----------
    durable : bool
        Whether checkpoints remain after `close`. If so, the class needs `reopen` and `files`, too.
    """

    durable: ClassVar[bool] = False

    def make(self, tmp_path: Path, /, **limits: Any) -> Backend:
        """Return an empty level, with its files under `tmp_path` if it has any.

        `limits` is `capacity=` with a number of bytes, or empty for a level without a limit.
        """
        raise NotImplementedError

    def reopen(self, tmp_path: Path, /, **limits: Any) -> Backend:
        """Return the level that `make` returned for `tmp_path` and that was closed since."""
        raise NotImplementedError

    def files(self, tmp_path: Path, /) -> Iterable[Path]:
        """Return the files that contain the payload of the level."""
        return (path for path in tmp_path.rglob("*") if path.is_file())

    @pytest.fixture
    def level(self, tmp_path: Path) -> Iterator[Backend]:
        backend = self.make(tmp_path)
        yield backend
        backend.close()

    # Writing and reading

    def test_it_is_a_backend(self, level: Backend) -> None:
        assert isinstance(level, Backend)
        assert level.durable is self.durable
        assert list(level.keys()) == []

    def test_what_went_in_comes_out(self, level: Backend) -> None:
        original = put(level, X3, FLOW)
        assert get(level, X3, FLOW) == original
        assert get(level, X3, FLOW) == original

    @pytest.mark.parametrize(
        "layout", [(), raw(0), raw(1), raw(4096), raw(70_001), (Field("x", "<f8", ()),)]
    )
    def test_checkpoints_of_any_size_come_out(self, level: Backend, layout: Layout) -> None:
        original = put(level, X0, layout)
        assert get(level, X0, layout) == original
        assert level.layout(X0) == layout

    def test_keys_do_not_share_bytes(self, level: Backend) -> None:
        keys = [X0, X3, T3, A9, Key(Kind.RESTART, 3, "zeta"), Key(Kind.RESTART, 3, "psi/∂t 1")]
        originals = {key: put(level, key, FLOW, seed=seed) for seed, key in enumerate(keys)}
        assert {key: get(level, key, FLOW) for key in keys} == originals

    def test_checkpoints_of_different_sizes_live_together(self, level: Backend) -> None:
        originals = {}
        for step in range(24):
            layout = raw(37 * step**2)
            originals[step] = put(level, Key(Kind.TAPE, step), layout, seed=step)
            if step % 3 == 2:
                level.discard(Key(Kind.TAPE, step - 1))
                del originals[step - 1]
        for step, original in originals.items():
            assert get(level, Key(Kind.TAPE, step), raw(37 * step**2)) == original

    def test_sizes_are_reported(self, level: Backend) -> None:
        layout = raw(5000)
        written = level.write(X0, layout, buffers(contents(layout)))
        into = [memoryview(bytearray(5000))]
        assert written == level.read(X0, into) == 5000

    def test_the_order_of_an_array_does_not_matter(self, level: Backend) -> None:
        array = np.asfortranarray(np.arange(35.0).reshape(5, 7))
        layout = (Field("zeta", "<f8", (5, 7)),)
        level.write(X0, layout, [as_bytes(array)])
        back = np.zeros((5, 7), order="F")
        level.read(X0, [as_bytes(back)])
        assert np.array_equal(back, array)

    def test_a_source_may_be_read_only(self, level: Backend) -> None:
        level.write(X0, raw(9), [memoryview(b"read only")])
        assert get(level, X0, raw(9)) == b"read only"

    def test_a_source_may_change_after_the_write(self, level: Backend) -> None:
        source = np.arange(100.0)
        layout = (Field("x", "<f8", (100,)),)
        level.write(X0, layout, [as_bytes(source)])
        source[:] = -1.0
        assert get(level, X0, layout) == np.arange(100.0).tobytes()

    def test_the_layout_is_kept(self, level: Backend) -> None:
        put(level, X3, FLOW)
        put(level, T3, raw(3))
        assert level.layout(X3) == FLOW
        assert level.layout(T3) == raw(3)

    # Buffers that a level keeps without a copy, if it can do so

    def test_what_is_kept_counts_and_comes_out_as_if_it_were_written(self, level: Backend) -> None:
        keeping = self._keeping(level)
        data = buffers(contents(FLOW))
        original = b"".join(data)
        assert keeping.keep(X3, FLOW, data) == len(original)
        assert list(level.keys()) == [X3]
        assert level.layout(X3) == FLOW
        assert get(level, X3, FLOW) == original
        views = keeping.kept(X3)
        assert views is not None
        assert [view.obj for view in views] == [view.obj for view in data]
        with pytest.raises(StorageError, match="x_3"):
            keeping.keep(X3, FLOW, data)
        level.discard(X3)
        assert list(level.keys()) == []
        assert b"".join(views) == original

    def test_what_was_written_is_not_kept(self, level: Backend) -> None:
        keeping = self._keeping(level)
        put(level, X0, FLOW)
        assert keeping.kept(X0) is None
        with pytest.raises(MissingCheckpoint):
            keeping.kept(X7)

    def test_a_slot_is_nobody_elses_for_as_long_as_it_is_referred_to(self, level: Backend) -> None:
        keeping = self._keeping(level)
        slots = [keeping.slot(100) for _ in range(3)]
        for number, slot in enumerate(slots):
            slot[:] = bytes([number]) * 100
        keeping.keep(X0, raw(100), [slots[0]])
        part = slots[1][40:60]
        del slots[0], slots[0]
        others = [keeping.slot(100) for _ in range(3)]
        for other in others:
            other[:] = b"\xff" * 100
        assert get(level, X0, raw(100)) == bytes(100)
        assert bytes(part) == b"\x01" * 20
        assert bytes(slots[0]) == b"\x02" * 100

    def _keeping(self, level: Backend) -> Backend:
        if not level.keeps:
            pytest.skip("this level copies its checkpoints")
        return level

    # Keys

    def test_keys_lists_what_is_stored(self, level: Backend) -> None:
        put(level, X0, FLOW)
        put(level, T3, raw(100))
        assert sorted(map(str, level.keys())) == ["t_3", "x_0"]
        level.discard(X0)
        assert list(level.keys()) == [T3]

    @pytest.mark.parametrize("error", [MissingCheckpoint, KeyError])
    def test_an_absent_key_is_missing(self, level: Backend, error: type[Exception]) -> None:
        put(level, X0, FLOW)
        put(level, X7, FLOW)
        level.discard(X7)
        for key in (X3, X7, Key(Kind.TAPE, 0), Key(Kind.RESTART, 0, "zeta")):
            with pytest.raises(error):
                level.read(key, buffers([np.zeros(3)]))
            with pytest.raises(error):
                level.layout(key)
            with pytest.raises(error):
                level.discard(key)
        assert list(level.keys()) == [X0]

    def test_a_key_is_written_once(self, level: Backend) -> None:
        original = put(level, X0, FLOW, seed=1)
        for layout in (FLOW, raw(10)):
            with pytest.raises(StorageError, match="x_0"):
                put(level, X0, layout, seed=2)
        assert get(level, X0, FLOW) == original
        level.discard(X0)
        other = put(level, X0, raw(10), seed=3)
        assert get(level, X0, raw(10)) == other

    # Errors, which must not change any checkpoint

    @pytest.mark.parametrize(
        "sizes", [(), (100,), (60, 39), (60, 41), (40, 60), (60, 40, 0), (60, 40, 1), (59, 41)]
    )
    def test_buffers_of_the_wrong_sizes_are_refused(
        self, level: Backend, sizes: Sequence[int]
    ) -> None:
        layout = (Field("a", "|u1", (60,)), Field("b", "|u1", (40,)))
        original = put(level, X0, layout)
        with pytest.raises(StorageError):
            level.read(X0, [memoryview(bytearray(size)) for size in sizes])
        assert get(level, X0, layout) == original

    @pytest.mark.parametrize("sizes", [(), (100,), (60, 39), (40, 60), (60, 40, 0)])
    def test_data_that_does_not_match_its_layout_is_refused(
        self, level: Backend, sizes: Sequence[int]
    ) -> None:
        layout = (Field("a", "|u1", (60,)), Field("b", "|u1", (40,)))
        with pytest.raises(StorageError):
            level.write(X0, layout, [memoryview(bytes(size)) for size in sizes])
        assert list(level.keys()) == []

    def test_a_full_level_refuses_a_write_and_keeps_what_it_had(self, tmp_path: Path) -> None:
        level = self.make(tmp_path, capacity=2500)
        originals = {key: put(level, key, raw(1000), seed=key.step) for key in (X0, X3)}
        for size in (501, 1000, 10_000):
            with pytest.raises(LevelFull, match="x_7"):
                put(level, X7, raw(size))
        assert set(level.keys()) == {X0, X3}
        assert {key: get(level, key, raw(1000)) for key in (X0, X3)} == originals
        level.discard(X0)
        original = put(level, X7, raw(1500), seed=7)
        assert get(level, X7, raw(1500)) == original
        assert get(level, X3, raw(1000)) == originals[X3]
        level.close()

    def test_capacity_is_exact(self, tmp_path: Path) -> None:
        level = self.make(tmp_path, capacity=3000)
        for step, size in enumerate((1000, 1700, 300, 0)):
            put(level, Key(Kind.RESTART, step), raw(size))
        with pytest.raises(LevelFull):
            put(level, X7, raw(1))
        level.close()

    def test_a_discard_frees_space_again_and_again(self, tmp_path: Path) -> None:
        level = self.make(tmp_path, capacity=1000)
        for step in range(50):
            key, size = Key(Kind.RESTART, step), 1000 - 7 * step
            original = put(level, key, raw(size), seed=step)
            assert get(level, key, raw(size)) == original
            level.discard(key)
        level.close()

    # Reservations

    def test_what_is_reserved_can_be_written(self, tmp_path: Path) -> None:
        level = self.make(tmp_path, capacity=3 * 256 + 1024)
        level.reserve({256: 3, 1024: 1})
        for turn in range(3):
            originals = {Key(Kind.TAPE, 9): put(level, Key(Kind.TAPE, 9), raw(1024), seed=turn)}
            for step in range(3):
                key = Key(Kind.RESTART, step)
                originals[key] = put(level, key, raw(256), seed=10 * turn + step)
            for key, original in originals.items():
                assert get(level, key, raw(len(original))) == original
                level.discard(key)
        level.close()

    def test_more_than_the_capacity_cannot_be_reserved(self, tmp_path: Path) -> None:
        level = self.make(tmp_path, capacity=1000)
        with pytest.raises(LevelFull):
            level.reserve({600: 2})
        original = put(level, X0, raw(1000))
        assert get(level, X0, raw(1000)) == original
        level.close()

    def test_other_sizes_than_the_reserved_ones_work(self, tmp_path: Path) -> None:
        level = self.make(tmp_path, capacity=20_000)
        level.reserve({4000: 2})
        originals = {}
        for step, size in enumerate((1, 3999, 4001, 0, 9000)):
            key = Key(Kind.RESTART, step)
            originals[key] = put(level, key, raw(size), seed=step)
        for key, original in originals.items():
            assert get(level, key, raw(len(original))) == original
        level.close()

    def test_nothing_need_be_reserved(self, level: Backend) -> None:
        level.reserve({})
        level.reserve({0: 5, 100: 0})
        assert put(level, X0, raw(100)) == get(level, X0, raw(100))

    # Closing, and limits

    def test_it_can_be_closed_twice(self, tmp_path: Path) -> None:
        level = self.make(tmp_path)
        put(level, X0, FLOW)
        level.close()
        level.close()

    def test_a_closed_level_refuses_everything(self, tmp_path: Path) -> None:
        level = self.make(tmp_path)
        put(level, X0, FLOW)
        level.close()
        for call in (
            lambda: put(level, X3, FLOW),
            lambda: get(level, X0, FLOW),
            lambda: level.layout(X0),
            lambda: level.discard(X0),
            level.keys,
            lambda: level.reserve({100: 1}),
        ):
            with pytest.raises(StorageError, match="closed"):
                call()

    def test_a_level_without_capacity_holds_checkpoints_of_no_bytes(self, tmp_path: Path) -> None:
        level = self.make(tmp_path, capacity=0)
        level.reserve({0: 3})
        put(level, X0, raw(0))
        with pytest.raises(LevelFull):
            put(level, X3, raw(1))
        with pytest.raises(LevelFull):
            level.reserve({1: 1})
        assert list(level.keys()) == [X0]
        level.close()

    @pytest.mark.parametrize("dtype", ["O", "no such type", "f8,O"])
    def test_fields_that_are_no_plain_bytes_are_refused(self, level: Backend, dtype: str) -> None:
        with pytest.raises(StorageError, match="no plain bytes"):
            level.write(X0, (Field("x", dtype, (2,)),), [memoryview(bytes(16))])
        assert list(level.keys()) == []

    def test_it_agrees_with_a_dict(self, tmp_path: Path) -> None:
        with tempfile.TemporaryDirectory(dir=tmp_path) as place:
            run_state_machine_as_test(
                lambda: BackendMachine(self, Path(place)),  # type: ignore[arg-type]
                settings=settings(
                    max_examples=15,
                    stateful_step_count=30,
                    deadline=None,
                    suppress_health_check=list(HealthCheck),
                ),
            )

    # Checkpoints that remain after the process

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
            pytest.skip("checkpoints on this level do not remain after the process")

    def _find(self, tmp_path: Path, payload: bytes) -> tuple[Path, int]:
        """Return the file that contains a payload, and the offset of the payload."""
        for path in self.files(tmp_path):
            offset = path.read_bytes().find(payload)
            if offset >= 0:
                return path, offset
        raise AssertionError("files() must return a file that contains the payload in one piece")


class BackendMachine(RuleBasedStateMachine):
    """A comparison of a level with a dict.

    hypothesis applies the same random operations to both, and searches for a difference.
    """

    KEYS = st.sampled_from([X0, X3, X7, T3, A9])
    SIZES = st.sampled_from([0, 1, 100, 1024, 2999, 4096, 5000])
    CAPACITY = 10_000

    def __init__(self, tests: BackendTests, place: Path) -> None:
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


class ModelTests:
    """Tests of a model: what its gradient needs to be right with every schedule (`check_model`).

    Derive a class from this one, and let its method `make` return the model, on a small grid.

    Attributes
    ----------
    steps : int
        The number of steps that are run.
    """

    steps: ClassVar[int] = 5

    @abstractmethod
    def make(self) -> Any:
        """Return a new model at x_0."""

    def test_its_steps_and_their_adjoints_are_right(self) -> None:
        check = check_model(self.make, steps=self.steps)
        assert not check.faults, str(check)


class HandingTests:
    """Tests of a model that passes checkpoints without a copy: every promise of `Handing`.

    Derive a class from this one, and let its method `make` return the model. The model needs at
    least three steps.
    """

    @abstractmethod
    def make(self) -> Any:
        """Return a new model at x_0."""

    def test_it_says_what_it_hands_over(self) -> None:
        model = self.make()
        assert isinstance(model, Handing)
        assert model.handed
        assert model.handed <= set(Kind)

    @pytest.mark.parametrize("kind", [Kind.RESTART, Kind.TAPE])
    def test_what_it_gives_is_the_checkpoint_and_stays_as_it_is(self, kind: Kind) -> None:
        model = self._handing(kind)
        key = self._at_step_one(model, kind)
        before = save(model, key)
        given = model.give(key, _new_memory)
        assert [bytes(view) for view in given] == before == save(model, key)
        again = model.give(key, _new_memory)
        model.record(2, 3) if kind is Kind.TAPE else model.record(1, 3)
        assert [bytes(view) for view in given] == [bytes(view) for view in again] == before

    @pytest.mark.parametrize("kind", [Kind.RESTART, Kind.TAPE])
    def test_it_takes_what_it_gave(self, kind: Kind) -> None:
        model = self._handing(kind)
        key = self._at_step_one(model, kind)
        given = model.give(key, _new_memory)
        before = [bytes(view) for view in given]
        model.record(2, 3) if kind is Kind.TAPE else model.record(1, 3)
        if kind is Kind.TAPE:
            model.reverse(2, 3)
        model.take(key, model.layout(key), given)
        assert save(model, key) == before
        if kind is Kind.RESTART:
            model.record(1, 3)
            assert [bytes(view) for view in given] == before

    @pytest.mark.parametrize("kind", [Kind.RESTART, Kind.TAPE])
    def test_another_layout_is_refused_and_changes_nothing(self, kind: Kind) -> None:
        model = self._handing(kind)
        key = self._at_step_one(model, kind)
        before = save(model, key)
        with pytest.raises(BadInput):
            model.take(key, (), [])
        assert save(model, key) == before

    def _handing(self, kind: Kind) -> Any:
        model = self.make()
        if kind not in model.handed:
            pytest.skip(f"the model copies its {kind.name.lower()} checkpoints")
        return model

    def _at_step_one(self, model: Any, kind: Kind) -> Key:
        model.advance(0, 1)
        if kind is Kind.TAPE:
            model.record(1, 2)
        return Key(kind, 1)


def _new_memory(nbytes: int, /) -> memoryview:
    """Return newly allocated memory."""
    return memoryview(bytearray(nbytes))
