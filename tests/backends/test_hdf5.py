"""The HDF5 archive: what every level does, what people see of it, and how it grows."""

from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import h5py
import numpy as np
import pytest

from ckio.actions import Buffers, Field, Key, Kind
from ckio.backends.files import Files
from ckio.backends.hdf5 import Hdf5, file
from ckio.backends.hdf5.file import PAGE
from ckio.backends.hdf5.slots import FREE, ROW
from ckio.errors import BadInput, StorageError
from ckio.testing import BackendTests, buffers, contents, get, put, raw, x

from .common import OCEAN, Hasty
from .workload import held


class TestArchive(BackendTests):
    durable = True
    options: ClassVar[dict[str, Any]] = {}

    def make(self, tmp_path: Path, /, **limits: Any) -> Hdf5:
        return Hdf5(tmp_path / "archive.h5", **self.options, **limits)

    reopen = make


@pytest.mark.slow
class TestSyncedArchive(TestArchive):
    options: ClassVar = {"durability": "fdatasync"}


@pytest.mark.slow
class TestArchiveOnAHastySystem(TestArchive):
    options: ClassVar = {"files": Hasty()}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "archive.h5"


# What people see


def test_people_can_read_it_while_a_run_goes_on_and_afterwards(path: Path) -> None:
    archive = Hdf5(path, now=lambda: 1.5e9)
    archive.reserve({164: 3})
    ocean = {step: contents(OCEAN, seed=step) for step in (7, 2)}
    for step, arrays in ocean.items():
        archive.write(x(step), OCEAN, buffers(arrays))
    archive.write(Key(Kind.TAPE, 7, "zeta"), OCEAN[:1], buffers(contents(OCEAN[:1])))
    for open_still in (True, False):
        with h5py.File(path) as file:
            assert set(file) == {"README", "restart-0", "tape-0"}
            assert "xxh3_128" in file["README"][()].decode()
            assert file.attrs["format"] == "ckio archive"
            assert file.attrs["format_version"] == 4
            group = file["restart-0"]
            assert set(group) == {"zeta", "psi", "time", "keys"}
            for order, field in enumerate(OCEAN):
                dataset = group[field.name]
                assert dataset.shape == (3, *field.shape)
                assert dataset.dtype == field.dtype
                assert dataset.attrs["unit"] == field.unit
                for slot, step in enumerate((7, 2)):
                    assert np.array_equal(dataset[slot], ocean[step][order], equal_nan=True)
            rows = group["keys"][:]
            assert list(rows["state"]) == [b"stored", b"stored", b""]
            assert list(rows["commit"]) == [1, 2, 0]
            assert list(rows["step"][:2]) == [7, 2]
            assert list(rows["kind"][:2]) == [b"restart", b"restart"]
            assert list(rows["nbytes"][:2]) == [164, 164]
            assert list(rows["written"][:2]) == [1.5e9, 1.5e9]
            assert [file["tape-0/keys"][0][name] for name in ("step", "name")] == [7, b"zeta"]
        if open_still:
            archive.close()


def test_fields_of_any_name_and_type_are_kept(path: Path) -> None:
    names = (
        *("u", "u", "a/b", "a_b", "keys", ".", "..", "", "∂ψ/∂t [m]", "-", "u-2", "README"),
        *("a b", "half a \udc80", "long" * 50_000),
    )
    types = (
        *("<f8", ">f8", "<M8[ns]", "<U3", "|S5", "<c8", "|b1", "<f2", "<f16", "|V3", "<i2", "|S0"),
        *("<f8", "<f4", "|u1"),
    )
    layout = tuple(
        Field(name, dtype, (2, 3), f"unit {i} \udcff" + "." * 70_000)
        for i, (name, dtype) in enumerate(zip(names, types, strict=True))
    )
    data = [memoryview(bytes([i + 1]) * 6 * np.dtype(t).itemsize) for i, t in enumerate(types)]
    archive = Hdf5(path)
    archive.write(x(1), layout, data)
    for _ in range(2):
        assert archive.layout(x(1)) == layout
        into = [memoryview(bytearray(view.nbytes)) for view in data]
        archive.read(x(1), into)
        assert into == data
        archive.close()
        archive = Hdf5(path)
    archive.close()
    with h5py.File(path) as file:
        group = file["restart-0"]
        fields = [it for name, it in group.items() if name != "keys"]
        stored = {int(dataset.attrs["unit"].split(" ")[1]): dataset for dataset in fields}
        assert set(stored) == set(range(len(layout)))
        for number, (field, view) in enumerate(zip(layout, data, strict=True)):
            assert stored[number].shape[0] == 1
            if view.nbytes:
                array = stored[number][0]
                assert array.tobytes() == view.tobytes(), field.name[:9]


def test_a_layout_of_many_fields_or_dimensions_is_kept(path: Path) -> None:
    layout = (
        *(Field(f"tracer {number}", "<f8", (2,)) for number in range(1200)),
        Field("deep", "<i2", (1,) * 40),
    )
    archive = Hdf5(path)
    original = put(archive, x(1), layout)
    archive.close()
    archive = Hdf5(path)
    assert archive.layout(x(1)) == layout
    assert get(archive, x(1), layout) == original
    archive.close()


# How it grows


def test_a_reservation_becomes_one_group_and_what_is_not_used_is_given_back(path: Path) -> None:
    archive = Hdf5(path)
    archive.reserve({164: 5, 100_000: 3})
    assert path.stat().st_size > 300_000
    before = path.stat().st_size
    for step in range(5):
        put(archive, x(step), OCEAN)
    assert path.stat().st_size == before
    archive.close()
    assert path.stat().st_size < 100_000
    with h5py.File(path) as file:
        assert file["restart-0/zeta"].shape == (5, 3, 4)


def test_what_was_not_reserved_comes_in_doubling_groups(path: Path) -> None:
    archive = Hdf5(path)
    originals = {step: put(archive, x(step), OCEAN, seed=step) for step in range(9)}
    assert {step: get(archive, x(step), OCEAN) for step in range(9)} == originals
    archive.close()
    with h5py.File(path) as file:
        groups = [file[f"restart-{number}/time"].shape[0] for number in range(5)]
    assert groups == [1, 1, 2, 4, 8]


def test_what_was_prepared_is_one_group_for_its_kind_and_no_more(path: Path) -> None:
    archive = Hdf5(path)
    archive.reserve({164: 5})
    archive.prepare(x(0), OCEAN, 3)
    archive.prepare(x(1), OCEAN, 3)
    archive.prepare(Key(Kind.TAPE, 0), OCEAN, 2)
    with h5py.File(path) as file:
        slots = {name: len(group["keys"]) for name, group in file.items() if name != "README"}
    assert slots == {"restart-0": 3, "tape-0": 2}
    for step in range(3):
        put(archive, x(step), OCEAN)
    archive.close()
    with h5py.File(path) as file:
        assert set(file) == {"README", "restart-0", "tape-0"}


def test_plain_bytes_of_many_sizes_share_slots(path: Path) -> None:
    archive = Hdf5(path)
    archive.reserve({4000: 3})
    for turn in range(60):
        original = put(archive, x(turn), raw(3999 - 30 * turn), seed=turn)
        assert get(archive, x(turn), archive.layout(x(turn))) == original
        archive.discard(x(turn))
    archive.close()
    with h5py.File(path) as file:
        assert set(file) == {"README", "restart-0"}


def test_slots_that_a_reservation_rounded_up_are_found_again(path: Path) -> None:
    archive = Hdf5(path)
    archive.reserve({12_831: 3})
    original = put(archive, x(0), raw(6420))
    archive.close()
    archive = Hdf5(path)
    assert get(archive, x(0), raw(6420)) == original
    archive.close()


def test_an_archive_has_groups_of_many_layouts(path: Path) -> None:
    archive = Hdf5(path)
    originals = {
        x(step): put(archive, x(step), (Field("a", "<f8", (step,)),), seed=step)
        for step in range(120)
    }
    for _ in range(2):
        assert held(archive) == originals
        archive.close()
        archive = Hdf5(path)
    archive.close()
    with h5py.File(path) as file:
        assert len(file) == 121


def test_too_many_layouts_are_refused_and_nothing_is_lost(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal has no space for the metadata that a new group changes."""
    archive = Hdf5(path)
    for step in range(12):
        put(archive, x(step), (Field("a", "<f8", (step,)),), seed=step)
    monkeypatch.setattr(file, "USER", PAGE + 1000)
    with pytest.raises(StorageError, match="fewer layouts"):
        put(archive, x(12), (Field("a", "<f8", (12,)),))
    monkeypatch.undo()
    put(archive, x(12), (Field("a", "<f8", (12,)),))
    archive.close()
    archive = Hdf5(path)
    assert set(archive.keys()) == {x(step) for step in range(13)}
    archive.close()


# Two openers, and other people's files


def test_a_file_that_is_not_hdf5_is_bad_input_and_left_alone(path: Path) -> None:
    for content in (b"", b"not HDF5 at all", bytes(10_000)):
        path.write_bytes(content)
        with pytest.raises(BadInput, match="not an HDF5 file"):
            Hdf5(path)
        assert path.read_bytes() == content


def test_an_hdf5_file_of_something_else_is_bad_input_and_left_alone(path: Path) -> None:
    for libver in ("earliest", "latest"):
        with h5py.File(path, "w", libver=libver) as file:
            file["zeta"] = np.arange(10.0)
        content = path.read_bytes()
        with pytest.raises(BadInput, match="another program"):
            Hdf5(path)
        assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("version", "words"),
    [
        (3, "finish its run with the ckio version that wrote it"),
        (5, "the ckio version that wrote it"),
    ],
)
def test_another_format_is_refused_with_the_reason(path: Path, version: int, words: str) -> None:
    Hdf5(path).close()
    content = path.read_bytes()
    name = b"ckioarc" + bytes([version])
    if version == 3:  # which began like any HDF5 file, and had its name at the end of page 2
        path.write_bytes(b"\x89HDF\r\n\x1a\n".ljust(12_248, b"\0") + name + bytes(10_000))
    else:
        path.write_bytes(name + content[len(name) :])
    before = path.read_bytes()
    for call in (Hdf5, Hdf5.contents):
        with pytest.raises(BadInput, match=rf"has format {version}.*{words}"):
            call(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("durability", "words"),
    [
        ("", "process, fdatasync"),
        ("Process", "process, fdatasync"),
        ("direct", "'direct': HDF5 chooses the offsets"),
    ],
)
def test_what_an_archive_cannot_promise_is_refused_with_the_reason(
    path: Path, durability: str, words: str
) -> None:
    with pytest.raises(BadInput, match=words):
        Hdf5(path, durability=durability)
    assert not path.exists()


def test_each_run_has_its_own_file_and_removes_it(path: Path) -> None:
    own = Hdf5.for_run(path, "run7")
    assert own == path.with_name("archive-run7.h5")
    archive = Hdf5(own)
    put(archive, x(0), OCEAN)
    archive.remove()
    archive.remove()
    assert list(path.parent.iterdir()) == []


def test_a_place_that_cannot_hold_a_file_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is a directory"):
        Hdf5.for_run(tmp_path, "cafe")
    (tmp_path / "file").write_text("in the way")
    for place in (tmp_path, tmp_path / "file" / "archive.h5"):
        with pytest.raises(BadInput, match="cannot be an archive"):
            Hdf5(place)


# Commits


class Forgetful(Files):
    """Says that it has freed a row, and has not, as a machine that fails before a sync."""

    forgets = False

    def pwritev(self, fd: int, data: Buffers, offset: int, /) -> int:
        if self.forgets and bytes(data[0]) == FREE:
            return len(FREE)
        return super().pwritev(fd, data, offset)


def test_of_two_rows_with_the_same_key_the_younger_is_stored_and_the_older_freed(
    path: Path,
) -> None:
    files = Forgetful()
    archive = Hdf5(path, files=files)
    archive.prepare(x(0), OCEAN, 2)
    for step in range(2):
        put(archive, x(step), OCEAN, seed=step)
    files.forgets = True
    archive.discard(x(0))
    files.forgets = False
    archive.discard(x(1))
    young = put(archive, x(0), OCEAN, seed=2)  # in the slot of x_1
    archive.close()
    archive = Hdf5(path)
    assert held(archive) == {x(0): young}
    archive.discard(x(0))
    archive.close()
    with closing(Hdf5(path)) as archive:
        assert archive.keys() == []


class Noted(Files):
    """Notes where something is written, how much, and when there is a sync."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int] | None] = []

    def pwritev(self, fd: int, data: Buffers, offset: int, /) -> int:
        self.calls.append((offset, sum(map(len, data))))
        return super().pwritev(fd, data, offset)

    def sync(self, fd: int, /) -> None:
        self.calls.append(None)
        super().sync(fd)


@pytest.mark.parametrize("durability", ["process", "fdatasync"])
def test_a_row_is_written_at_once_only_where_it_cannot_be_half_there(
    path: Path, durability: str
) -> None:
    noted, word = Noted(), len(FREE)
    archive = Hdf5(path, durability=durability, files=noted)
    archive.reserve({8: 60})
    put(archive, x(0), raw(8))
    seen = set()
    for step in range(1, 60):
        noted.calls.clear()
        put(archive, x(step), raw(8))
        _payload, *row = noted.calls
        state = row[-2 if durability == "fdatasync" else -1]
        assert state is not None
        at, _ = state
        across = at // PAGE < (at + ROW.itemsize - 1) // PAGE
        seen.add(across)
        rest = (at + word, ROW.itemsize - word)
        if durability == "fdatasync":
            assert row == [rest, None, (at, word), None]
        else:
            assert row == ([rest, (at, word)] if across else [(at, ROW.itemsize)])
        noted.calls.clear()
        if step % 2:
            archive.discard(x(step))
            assert noted.calls == [(at, word), None][: 1 + (durability == "fdatasync")]
    assert seen == {False, True}
    archive.close()


def test_evicted_checkpoints_are_read_from_the_disk(path: Path) -> None:
    with closing(Hdf5(path)) as archive:
        original = put(archive, x(0), raw(3 << 20))
        archive.evict()
        assert get(archive, x(0), raw(3 << 20)) == original
