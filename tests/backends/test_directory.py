"""A directory as a storage level: its place, its slots, and what lies in it."""

from pathlib import Path
from typing import Any

import pytest

from ckio.actions import Field, Key, Kind
from ckio.backends.contents import Damaged, Stored, sound
from ckio.backends.directory import Directory
from ckio.backends.directory.format import LONGEST_TEXT
from ckio.errors import BadInput, CorruptCheckpoint, LevelInUse, StorageError
from ckio.testing import FLOW, BackendTests, contents, get, put, raw

from .common import Hasty, peak_of_a_turn

X0, X1, X2 = (Key(Kind.RESTART, step) for step in range(3))


class TestDirectory(BackendTests):
    durable = True

    def make(self, tmp_path: Path, /, **limits: Any) -> Directory:
        return Directory(tmp_path / "level", **limits)

    reopen = make


class TestSyncedDirectory(TestDirectory):
    def make(self, tmp_path: Path, /, **limits: Any) -> Directory:
        return Directory(tmp_path / "level", durability="fdatasync", **limits)

    reopen = make


class TestDirectoryWithoutChecksums(TestDirectory):
    def make(self, tmp_path: Path, /, **limits: Any) -> Directory:
        return Directory(tmp_path / "level", checksum=False, **limits)

    reopen = make

    def test_a_flipped_byte_is_never_read(self, tmp_path: Path) -> None:
        pytest.skip("that is what checksums are for")


class TestDirectoryOnAHastySystem(TestDirectory):
    def make(self, tmp_path: Path, /, **limits: Any) -> Directory:
        return Directory(tmp_path / "level", files=Hasty(), **limits)

    reopen = make


# The place


def test_a_second_opener_is_refused(tmp_path: Path) -> None:
    first = Directory(tmp_path)
    with pytest.raises(LevelInUse, match="in use"):
        Directory(tmp_path)
    first.close()
    Directory(tmp_path).close()


def test_an_unknown_durability_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"'none' is not known; known: process, fdatasync, direct"):
        Directory(tmp_path / "level", durability="none")
    assert not (tmp_path / "level").exists()


def test_a_place_that_cannot_be_a_directory_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(BadInput, match=str(path)):
            Directory(path)


def test_remove_leaves_nothing_of_its_own(tmp_path: Path) -> None:
    level = Directory(tmp_path / "a" / "b")
    put(level, X0, FLOW)
    put(level, X1, raw(100_000))
    level.remove()
    assert list(tmp_path.iterdir()) == []
    assert tmp_path.exists()


def test_files_of_other_people_are_left_alone(tmp_path: Path) -> None:
    place = tmp_path / "level"
    place.mkdir()
    theirs = {"notes.txt": b"mine", "slots-8192-v1.ckio.bak": b"", "slots-5000-v3.ckio": b"odd"}
    for name, text in theirs.items():
        (place / name).write_bytes(text)
    (place / "slots-12288-v3.ckio").mkdir()
    (place / "slots-16384-v3.ckio").symlink_to(place / "notes.txt")
    level = Directory(place)
    assert level.keys() == []
    original = put(level, X0, raw(5))
    assert get(level, X0, raw(5)) == original
    with pytest.raises(StorageError, match="writing x_1"):
        put(level, X1, raw(12_000))
    level.remove()
    assert {name: (place / name).read_bytes() for name in theirs} == theirs
    assert len(list(place.iterdir())) == 5


@pytest.mark.parametrize("version", [1, 2, 4])
def test_another_format_is_refused(tmp_path: Path, version: int) -> None:
    (tmp_path / f"slots-8192-v{version}.ckio").write_bytes(b"")
    for look in (Directory, Directory.contents):
        with pytest.raises(BadInput, match=f"format {version}; this ckio reads and writes"):
            look(tmp_path)


def test_each_run_has_its_own_directory() -> None:
    assert Directory.for_run(Path("/scratch"), "r17") == Path("/scratch/r17")


# Slots


def test_slots_are_used_again(tmp_path: Path) -> None:
    level = Directory(tmp_path)
    level.reserve({10_000: 2})
    size = _total(tmp_path)
    for step in range(20):
        put(level, Key(Kind.TAPE, step), raw(10_000 - 100 * step))
        if step:
            level.discard(Key(Kind.TAPE, step - 1))
    assert _total(tmp_path) == size
    level.close()


def test_sizes_that_drift_do_not_pile_up(tmp_path: Path) -> None:
    level = Directory(tmp_path)
    for step in range(40):
        put(level, X0, raw(int(1000 * 1.3**step)))
        level.discard(X0)
    assert len(list(tmp_path.iterdir())) == 1
    level.close()


def test_a_reservation_is_on_the_disk_and_repeating_it_costs_nothing(tmp_path: Path) -> None:
    level = Directory(tmp_path)
    level.reserve({100_000: 3, 10: 2})
    occupied = sum(path.stat().st_blocks * 512 for path in tmp_path.iterdir())
    assert occupied >= 300_000
    before = _total(tmp_path)
    level.reserve({100_000: 3, 10: 2})
    assert _total(tmp_path) == before
    level.close()


def test_more_fields_than_one_call_takes_are_read_however_small(tmp_path: Path) -> None:
    level = Directory(tmp_path / "level")
    layout = tuple(Field(f"u{number}", "<f8", ()) for number in range(1200))
    original = put(level, X0, layout)
    assert get(level, X0, layout) == original
    level.close()


def test_a_layout_of_many_fields_has_room_for_its_head(tmp_path: Path) -> None:
    layout = tuple(Field(f"tracer {number}" + "é" * 20, "<f8", (3,)) for number in range(3000))
    level = Directory(tmp_path)
    original = put(level, X0, layout)
    level.close()
    level = Directory(tmp_path)
    assert level.layout(X0) == layout
    assert get(level, X0, layout) == original
    level.close()


def test_without_checksums_a_flip_goes_unnoticed_and_with_them_it_does_not(tmp_path: Path) -> None:
    for checksum in (True, False):
        place = tmp_path / str(checksum)
        level = Directory(place, checksum=checksum)
        original = put(level, X0, raw(5000))
        _flip(place, original, 17)
        if checksum:
            with pytest.raises(CorruptCheckpoint):
                get(level, X0, raw(5000))
        else:
            assert get(level, X0, raw(5000)) != original
        level.close()


@pytest.mark.parametrize("checksum", [True, False])
@pytest.mark.parametrize("nbytes", [1 << 10, 1 << 14, 1 << 20, 16 << 20])
def test_steady_state_allocates_nothing_that_grows_with_the_state(
    tmp_path: Path, nbytes: int, checksum: bool
) -> None:
    layout = tuple(Field(f"f{number}", "<f8", (nbytes // 32,)) for number in range(4))
    level = Directory(tmp_path, checksum=checksum)
    level.reserve({nbytes: 1})
    assert peak_of_a_turn(level, layout, contents(layout)) < 64 << 10
    level.close()


def test_what_left_the_page_cache_is_read_back(tmp_path: Path) -> None:
    level = Directory(tmp_path)
    original = put(level, X0, raw(100_000))
    level.evict()
    assert get(level, X0, raw(100_000)) == original
    level.close()


def test_what_was_written_without_a_checksum_is_not_read_as_verified(tmp_path: Path) -> None:
    level = Directory(tmp_path, checksum=False)
    original = put(level, X0, raw(10))
    level.close()
    level = Directory(tmp_path)
    with pytest.raises(StorageError, match="checksum=False"):
        get(level, X0, raw(10))
    level.close()
    level = Directory(tmp_path, checksum=False)
    assert get(level, X0, raw(10)) == original
    level.close()


def test_a_layout_or_name_too_long_for_a_head_is_refused(tmp_path: Path) -> None:
    level = Directory(tmp_path)
    layout = (Field("x" * LONGEST_TEXT, "|u1", (1,)),)
    with pytest.raises(StorageError, match="a directory keeps at most"):
        put(level, X0, layout)
    with pytest.raises(StorageError, match="a directory keeps at most"):
        put(level, Key(Kind.RESTART, 0, "x" * 70_000), raw(1))
    with pytest.raises(StorageError, match="too large for a file"):
        put(level, Key(Kind.RESTART, 1 << 64), raw(1))
    assert put(level, X0, raw(1)) == get(level, X0, raw(1))
    level.close()


# What lies in it, seen from outside


def test_contents_are_those_of_the_level_also_while_it_is_open(tmp_path: Path) -> None:
    times = iter((100.5, 200.25, 300.0, 400.0))
    level = Directory(tmp_path, now=lambda: next(times))
    originals = {X0: put(level, X0, FLOW, seed=1), X1: put(level, X1, raw(100_000), seed=2)}
    put(level, X2, raw(5))
    level.discard(X2)
    before = _bytes(tmp_path)
    for _ in range(2):
        found = Directory.contents(tmp_path)
        assert all(isinstance(item, Stored) for item in found)
        stored = {item.key: item for item in found if isinstance(item, Stored)}
        assert {key: _payload(item) for key, item in stored.items()} == originals
        assert {key: item.written for key, item in stored.items()} == {X0: 100.5, X1: 200.25}
        assert (stored[X0].layout, len(stored[X0].spans)) == (FLOW, len(FLOW))
        assert all(map(sound, stored.values()))
        assert _bytes(tmp_path) == before
        level.close()


def test_contents_without_checksums_do_not_say_that_they_are_sound(tmp_path: Path) -> None:
    level = Directory(tmp_path, checksum=False)
    put(level, X0, raw(10))
    level.close()
    (item,) = Directory.contents(tmp_path)
    assert isinstance(item, Stored)
    assert sound(item) is None


def test_contents_of_a_place_where_no_level_was_are_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "data.ckio").write_text("theirs")
    for name in ("absent", "file", "empty", "other"):
        with pytest.raises(BadInput, match=name):
            Directory.contents(tmp_path / name)
    assert not (tmp_path / "absent").exists()


def test_contents_of_a_level_with_nothing_stored_are_nothing(tmp_path: Path) -> None:
    level = Directory(tmp_path)
    put(level, X0, raw(10))
    level.discard(X0)
    assert Directory.contents(tmp_path) == []
    level.close()


def test_contents_tell_what_is_damaged(tmp_path: Path) -> None:
    level = Directory(tmp_path)
    put(level, X0, raw(10))
    put(level, X1, raw(10))
    level.close()
    (path,) = tmp_path.iterdir()
    data = bytearray(path.read_bytes())
    data[4096 + 40] ^= 4
    path.write_bytes(data)
    stored, damaged = Directory.contents(tmp_path)
    assert isinstance(stored, Stored)
    assert stored.key == X1
    assert damaged == Damaged(path=path, offset=4096, nbytes=8192, what="its head is damaged")


def _payload(stored: Stored) -> bytes:
    data = stored.path.read_bytes()
    return b"".join(data[begin : begin + nbytes] for begin, nbytes in stored.spans)


def _bytes(place: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in place.iterdir()}


def _flip(place: Path, payload: bytes, offset: int) -> None:
    (path,) = place.iterdir()
    with path.open("r+b") as file:
        file.seek(path.read_bytes().index(payload) + offset)
        file.write(bytes([payload[offset] ^ 1]))


def _total(place: Path) -> int:
    return sum(path.stat().st_size for path in place.iterdir())
