"""A directory as a storage level: its place, its slots, and how it sees damage."""

import os
from pathlib import Path
from typing import Any

import pytest

from ckio.actions import Buffers, Field, Key, Kind, Layout
from ckio.backends.directory import Directory
from ckio.backends.files import Files
from ckio.backends.format import FREE, MAGIC, Head, pack
from ckio.backends.forms import Form, form_of
from ckio.errors import BadInput, CorruptCheckpoint, LevelInUse, StorageError
from ckio.testing import FLOW, BackendTests, contents, get, put, raw

from .common import peak_of_a_turn

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


class _Hasty(Files):
    """A system whose calls do less than they were asked to."""

    def pwritev(self, fd: int, data: Buffers, offset: int, /) -> int:
        return super().pwritev(fd, _some(data), offset)

    def preadv(self, fd: int, into: Buffers, offset: int, /) -> int:
        return super().preadv(fd, _some(into), offset)


def _some(data: Buffers) -> Buffers:
    views = [view for view in data if view.nbytes]
    return [views[0][: max(1, views[0].nbytes // 2)]]


class TestDirectoryOnAHastySystem(TestDirectory):
    def make(self, tmp_path: Path, /, **limits: Any) -> Directory:
        return Directory(tmp_path / "level", files=_Hasty(), **limits)

    reopen = make


# The place


def test_a_second_opener_is_refused(tmp_path: Path) -> None:
    first = Directory(tmp_path)
    with pytest.raises(LevelInUse, match="in use"):
        Directory(tmp_path)
    first.close()
    Directory(tmp_path).close()


def test_an_unknown_durability_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"'direct' is not known; known: process, fdatasync"):
        Directory(tmp_path / "level", durability="direct")
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
    theirs = {"notes.txt": b"mine", "slots-8192-v1.ckio.bak": b"", "slots-5000-v1.ckio": b"odd"}
    for name, text in theirs.items():
        (place / name).write_bytes(text)
    (place / "slots-12288-v1.ckio").mkdir()
    (place / "slots-16384-v1.ckio").symlink_to(place / "notes.txt")
    level = Directory(place)
    assert level.keys() == []
    original = put(level, X0, raw(5))
    assert get(level, X0, raw(5)) == original
    level.remove()
    assert {name: (place / name).read_bytes() for name in theirs} == theirs
    assert len(list(place.iterdir())) == 5


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "slots-8192-v2.ckio").write_bytes(b"")
    with pytest.raises(StorageError, match="format 2; this ckio reads format 1"):
        Directory(tmp_path)


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


def test_steady_state_allocates_nothing_that_grows_with_the_state(tmp_path: Path) -> None:
    layout = tuple(Field(f"f{number}", "<f8", (1 << 18,)) for number in range(4))
    level = Directory(tmp_path)
    level.reserve({8 << 20: 1})
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


# Damage


def test_any_flipped_byte_of_a_head_never_gives_wrong_bytes(tmp_path: Path) -> None:
    level = Directory(tmp_path)
    original, other = put(level, X0, FLOW, seed=1), put(level, X1, FLOW, seed=2)
    level.close()
    (path,) = tmp_path.iterdir()
    sound = path.read_bytes()
    begin = sound.index(MAGIC)
    length = int.from_bytes(sound[begin + 8 : begin + 12], "little")
    for place in range(begin, begin + length):
        path.write_bytes(sound[:place] + bytes([sound[place] ^ 0x41]) + sound[place + 1 :])
        level = Directory(tmp_path)
        assert level.keys() == [X1]
        assert get(level, X1, FLOW) == other
        level.close()
    path.write_bytes(sound)
    level = Directory(tmp_path)
    assert get(level, X0, FLOW) == original
    level.close()


@pytest.mark.parametrize("keep", [0, 7, 4096, 4500, 8191])
def test_a_file_that_was_cut_off_opens_and_gives_no_wrong_bytes(tmp_path: Path, keep: int) -> None:
    level = Directory(tmp_path)
    original = put(level, X0, raw(4000))
    level.close()
    (path,) = tmp_path.iterdir()
    os.truncate(path, keep)
    level = Directory(tmp_path)
    assert level.keys() == []
    assert put(level, X0, raw(4000)) == original == get(level, X0, raw(4000))
    level.close()


def test_a_file_cut_off_under_an_open_level_is_corrupt(tmp_path: Path) -> None:
    level = Directory(tmp_path)
    put(level, X0, raw(10_000))
    (path,) = tmp_path.iterdir()
    os.truncate(path, 9000)
    with pytest.raises(CorruptCheckpoint, match="x_0"):
        get(level, X0, raw(10_000))
    level.close()


def _form(layout: Layout, *, nbytes: int | None = None, text: bytes | None = None) -> Form:
    form = form_of(layout)
    return Form(
        layout,
        form.sizes,
        form.nbytes if nbytes is None else nbytes,
        form.text if text is None else text,
    )


HUGE = (Field("x", "|u1", (1 << 60,)),)


@pytest.mark.parametrize(
    ("form", "begin"),
    [
        (_form(HUGE), 4096),
        (_form(raw(10), nbytes=1 << 62), 4096),
        (_form(raw(10)), 0),
        (_form(raw(10)), 1 << 31),
        (_form(raw(10), text=b"[" * 2000), 4096),
        (_form(raw(10), text=b'[["x","O",[10],""]]'), 4096),
        (_form(raw(10), text=b'[["x","|u1",[-10],""]]'), 4096),
        (_form(raw(10), text=b'[["x","|u1",["10"],""]]'), 4096),
        (_form(raw(10), text=b'[["x","no such type",[10],""]]'), 4096),
        (_form(raw(10), text=b'{"x":1}'), 4096),
    ],
)
def test_a_head_that_makes_no_sense_is_not_believed(tmp_path: Path, form: Form, begin: int) -> None:
    head = pack(Head(X0, form, 1, begin, b""))
    (tmp_path / "slots-8192-v1.ckio").write_bytes(head.ljust(8192, b"\0"))
    level = Directory(tmp_path)
    assert level.keys() == []
    level.close()


def test_a_huge_hollow_file_opens_at_once(tmp_path: Path) -> None:
    path = tmp_path / "slots-8192-v1.ckio"
    path.write_bytes(b"")
    os.truncate(path, 8192 << 28)
    level = Directory(tmp_path)
    assert level.keys() == []
    level.close()


def test_of_two_heads_with_one_key_the_younger_is_valid(tmp_path: Path) -> None:
    level = Directory(tmp_path)
    put(level, X0, raw(100), seed=1)
    (path,) = tmp_path.iterdir()
    old = path.read_bytes()
    level.discard(X0)
    put(level, X1, raw(100), seed=2)
    young = put(level, X0, raw(100), seed=3)
    level.discard(X1)
    level.close()
    # The first slot shows its old head again, as after a power failure without syncs.
    data = path.read_bytes()
    assert data[:8] == FREE
    path.write_bytes(old[:8192] + data[8192:])
    for _ in range(2):
        level = Directory(tmp_path)
        assert level.keys() == [X0]
        assert get(level, X0, raw(100)) == young
        level.close()


def _flip(place: Path, payload: bytes, offset: int) -> None:
    (path,) = place.iterdir()
    with path.open("r+b") as file:
        file.seek(path.read_bytes().index(payload) + offset)
        file.write(bytes([payload[offset] ^ 1]))


def _total(place: Path) -> int:
    return sum(path.stat().st_size for path in place.iterdir())
