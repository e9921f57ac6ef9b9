"""A directory as a storage level: its place, its slots, and what lies in it."""

import errno
import os
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ckio.actions import Field, Key, Kind
from ckio.backends.contents import Damaged, Stored, sound
from ckio.backends.directory import Directory
from ckio.backends.directory.format import LONGEST_TEXT
from ckio.backends.files import Files
from ckio.errors import BadInput, StorageError
from ckio.testing import FLOW, BackendTests, get, put, raw, x

from .common import BROKEN, Hasty, Struck


class TestDirectory(BackendTests):
    durable = True
    options: ClassVar[dict[str, Any]] = {}

    def make(self, tmp_path: Path, /, **limits: Any) -> Directory:
        return Directory(tmp_path / "level", **self.options, **limits)

    reopen = make


class TestSyncedDirectory(TestDirectory):
    options: ClassVar = {"durability": "fdatasync"}


@pytest.mark.slow
class TestDirectoryWithoutChecksums(TestDirectory):
    options: ClassVar = {"checksum": False}

    def test_a_flipped_byte_is_never_read(self, tmp_path: Path) -> None:
        pytest.skip("that is what checksums are for")


class TestDirectoryOnAHastySystem(TestDirectory):
    options: ClassVar = {"files": Hasty()}


# The place


def test_an_unknown_durability_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"'none'.*known: process, fdatasync, direct"):
        Directory(tmp_path / "level", durability="none")
    assert not (tmp_path / "level").exists()


def test_direct_io_that_the_file_system_refuses_is_bad_input(tmp_path: Path) -> None:
    class Refusing(Files):
        def has_direct(self, place: Path, /) -> bool:
            return False

    with pytest.raises(BadInput, match=rf'{tmp_path}/a: .*choose durability="fdatasync"'):
        Directory(tmp_path / "a", durability="direct", files=Refusing())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("call", ["open", "pwrite"])
def test_a_file_system_without_direct_io_says_invalid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def refused(*_: object) -> int:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, call, refused)
    assert not Files().has_direct(tmp_path)


def test_what_cannot_be_a_directory_is_bad_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("mine")
    for name in ("file", "file/below"):
        with pytest.raises(BadInput, match=str(tmp_path / name)):
            Directory(tmp_path / name)
    for name in ("a\0b", "\ud800"):
        with pytest.raises(BadInput, match="cannot be made"):
            Directory(tmp_path / name)
        with pytest.raises(BadInput):
            Directory.contents(tmp_path / name)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(BadInput, match="not writable"):
        Directory(tmp_path / "level")


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
    original = put(level, x(0), raw(5))
    assert get(level, x(0), raw(5)) == original
    with pytest.raises(StorageError, match="writing x_1"):
        put(level, x(1), raw(12_000))
    level.remove()
    assert {name: (place / name).read_bytes() for name in theirs} == theirs
    assert len(list(place.iterdir())) == 5


def test_another_format_is_refused(tmp_path: Path) -> None:
    for version in (1, 2, 4):
        path = tmp_path / f"slots-8192-v{version}.ckio"
        path.touch()
        for look in (Directory, Directory.contents):
            with pytest.raises(BadInput, match=f"format {version}; this ckio reads and writes"):
                look(tmp_path)
        path.unlink()


def test_each_run_has_its_own_directory() -> None:
    assert Directory.for_run(Path("/scratch"), "r17") == Path("/scratch/r17")


# Slots


def test_slots_are_used_again(tmp_path: Path) -> None:
    level = Directory(tmp_path)
    level.reserve({10_000: 2})
    size = _total(tmp_path)
    for step in range(20):
        put(level, x(step), raw(10_000 - 100 * step))
        if step:
            level.discard(x(step - 1))
    assert _total(tmp_path) == size
    level.close()


def test_sizes_that_drift_do_not_pile_up(tmp_path: Path) -> None:
    level = Directory(tmp_path)
    for step in range(30):
        put(level, x(0), raw(int(1000 * 1.3**step)))
        level.discard(x(0))
    assert len(list(tmp_path.iterdir())) == 1
    level.close()


def test_a_reservation_is_on_the_disk_and_repeating_it_costs_nothing(tmp_path: Path) -> None:
    level = Directory(tmp_path)
    level.reserve({100_000: 3, 10: 2})
    assert sum(path.stat().st_blocks * 512 for path in tmp_path.iterdir()) >= 300_000
    before = _total(tmp_path)
    level.reserve({100_000: 3, 10: 2})
    assert _total(tmp_path) == before
    level.close()


def test_a_layout_of_many_fields_has_room_for_its_head_and_is_read(tmp_path: Path) -> None:
    layout = tuple(Field(f"tracer {number}" + "é" * 20, "<f8", (3,)) for number in range(3000))
    level = Directory(tmp_path)
    original = put(level, x(0), layout)
    level.close()
    level = Directory(tmp_path)
    assert level.layout(x(0)) == layout
    assert get(level, x(0), layout) == original
    level.close()


def test_a_layout_or_key_too_large_for_a_head_is_refused(tmp_path: Path) -> None:
    level = Directory(tmp_path)
    layout = (Field("x" * LONGEST_TEXT, "|u1", (1,)),)
    for key, fields, reason in (
        (x(0), layout, "a directory stores at most"),
        (Key(Kind.RESTART, 0, "x" * 70_000), raw(1), "a directory stores at most"),
        (x(1 << 64), raw(1), "too large for a file"),
    ):
        with pytest.raises(StorageError, match=reason):
            put(level, key, fields)
    assert put(level, x(0), raw(1)) == get(level, x(0), raw(1))
    level.close()


def test_a_page_cache_that_keeps_a_file_is_an_error_with_the_name_of_the_level(
    tmp_path: Path,
) -> None:
    level = Directory(tmp_path, files=Struck("evict", error=BROKEN, left=0))
    put(level, x(0), raw(100))
    with pytest.raises(StorageError, match=r"leaving the page cache.*Input/output error"):
        level.evict()
    level.close()


def test_without_checksums_nothing_is_said_to_be_sound_or_read_as_verified(tmp_path: Path) -> None:
    level = Directory(tmp_path, checksum=False)
    original = put(level, x(0), raw(5000))
    level.close()
    (item,) = Directory.contents(tmp_path)
    assert isinstance(item, Stored)
    assert sound(item) is None
    level = Directory(tmp_path)
    with pytest.raises(StorageError, match="checksum=False"):
        get(level, x(0), raw(5000))
    level.close()
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes().replace(original[:100], bytes(100)))
    level = Directory(tmp_path, checksum=False)
    assert get(level, x(0), raw(5000)) == bytes(100) + original[100:]
    level.close()


# What lies in it, seen from outside


def test_contents_are_those_of_the_level_also_while_it_is_open(tmp_path: Path) -> None:
    times = iter((100.5, 200.25, 300.0, 400.0))
    level = Directory(tmp_path, now=lambda: next(times))
    originals = {x(0): put(level, x(0), FLOW, seed=1), x(1): put(level, x(1), raw(10**5), seed=2)}
    put(level, x(2), raw(5))
    level.discard(x(2))
    before = _bytes(tmp_path)
    for _ in range(2):
        found = Directory.contents(tmp_path)
        stored = {item.key: item for item in found if isinstance(item, Stored)}
        assert len(found) == 2
        assert {key: _payload(item) for key, item in stored.items()} == originals
        assert {key: item.written for key, item in stored.items()} == {x(0): 100.5, x(1): 200.25}
        assert (stored[x(0)].layout, len(stored[x(0)].spans)) == (FLOW, len(FLOW))
        assert all(map(sound, stored.values()))
        assert _bytes(tmp_path) == before
        level.close()


def test_contents_of_a_place_where_no_level_was_are_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "data.ckio").write_text("theirs")
    for name in ("absent", "file", "empty", "other"):
        with pytest.raises(BadInput, match=name):
            Directory.contents(tmp_path / name)
    assert not (tmp_path / "absent").exists()


def test_contents_tell_what_is_damaged_and_nothing_of_what_was_discarded(tmp_path: Path) -> None:
    level = Directory(tmp_path)
    put(level, x(0), raw(10))
    level.discard(x(0))
    assert Directory.contents(tmp_path) == []
    put(level, x(0), raw(10))
    put(level, x(1), raw(10))
    level.close()
    (path,) = tmp_path.iterdir()
    data = bytearray(path.read_bytes())
    data[4096 + 40] ^= 4
    path.write_bytes(data)
    stored, damaged = Directory.contents(tmp_path)
    assert isinstance(stored, Stored)
    assert stored.key == x(1)
    assert damaged == Damaged(path=path, offset=4096, nbytes=8192, what="its head is damaged")


def _payload(stored: Stored) -> bytes:
    data = stored.path.read_bytes()
    return b"".join(data[begin : begin + nbytes] for begin, nbytes in stored.spans)


def _bytes(place: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in place.iterdir()}


def _total(place: Path) -> int:
    return sum(path.stat().st_size for path in place.iterdir())


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_somebody_has_removed_is_not_removed_again(
    tmp_path: Path, replaced: bool
) -> None:
    """The path of the slots leads nowhere, or to a file of another program."""
    level = Directory(tmp_path / "level")
    put(level, x(0), raw(64))
    (slots,) = (tmp_path / "level").glob("slots*")
    slots.unlink()
    if replaced:
        slots.write_text("mine")
    level.discard(x(0))
    level.remove()
    assert slots.exists() == replaced


def test_an_interrupt_in_a_discard_leaves_the_checkpoint(tmp_path: Path) -> None:
    files = Struck("pwritev", error=KeyboardInterrupt(), times=1)
    level = Directory(tmp_path / "level", files=files)
    expected = put(level, x(0), raw(64))
    files.left = 0
    with pytest.raises(KeyboardInterrupt):
        level.discard(x(0))
    assert get(level, x(0), raw(64)) == expected
    level.discard(x(0))
    assert not list(level.keys())
    level.remove()


def test_whether_a_file_has_a_name_is_not_guessed(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file:
        fd = file.fileno()
        assert Files().is_named(fd)
        (tmp_path / "file").unlink()
        assert not Files().is_named(fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        Files().is_named(fd)
