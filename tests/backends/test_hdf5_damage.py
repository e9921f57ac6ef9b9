"""The HDF5 archive when rows, payload or the system under it go wrong."""

import errno
import resource
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import h5py
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckio.actions import Buffers, Field, Key, Kind, Layout
from ckio.backends.contents import Stored
from ckio.backends.files import Files
from ckio.backends.hdf5 import Hdf5
from ckio.backends.hdf5.heads import EOF, FIXED, FREE, ROW, STORED, Row
from ckio.errors import (
    BadInput,
    CorruptCheckpoint,
    LevelFull,
    MissingCheckpoint,
    StorageError,
)
from ckio.testing import get, put, x

from .archives import a_sound_archive, damaged, everything, flip
from .common import OCEAN


def fill(archive: Hdf5, layout: Layout) -> None:
    for step in range(100, 200):
        put(archive, x(step), layout)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "archive.h5"


# Damage


def test_a_flipped_bit_of_a_row_is_damage_and_its_slot_is_not_used_again(path: Path) -> None:
    archive = Hdf5(path)
    archive.reserve({164: 2})
    put(archive, x(5), OCEAN, seed=5)
    original = put(archive, x(6), OCEAN, seed=6)
    archive.close()
    with h5py.File(path) as file:
        table = file["restart-0/keys"].id.get_offset()
    sound = path.read_bytes()
    for position in range(ROW.itemsize):
        flip(path, sound, table + position, position % 8)
        assert damaged(path) == ["the row of slot 0 of group restart-0 is damaged"]
        archive = Hdf5(path)
        assert list(archive.keys()) == [x(6)]
        assert get(archive, x(6), OCEAN) == original
        for call in (archive.layout, archive.discard):
            with pytest.raises(CorruptCheckpoint, match="row of slot 0 of group restart-0"):
                call(x(5))
        again = put(archive, x(5), OCEAN, seed=5)
        assert get(archive, x(5), OCEAN) == again
        archive.close()
        with h5py.File(path) as file:
            assert file["restart-1/keys"]["step"][0] == 5


def test_no_single_bit_makes_a_free_row_live_or_a_live_row_free() -> None:
    live, free = (int.from_bytes(state) for state in (STORED, FREE))
    assert (live ^ free).bit_count() > 8


def test_a_row_means_nothing_in_another_slot_or_group() -> None:
    row = Row(3, 1, Key(Kind.TAPE, 4, "ψ"), 24, 1.5, bytes(range(16)))
    assert Row.unpack(row.pack(99), 1, 99) == row
    assert Row.unpack(row.pack(99), 2, 99) is None
    assert Row.unpack(row.pack(99), 1, 98) is None


def test_people_may_not_change_an_archive(path: Path) -> None:
    archive = Hdf5(path)
    put(archive, x(5), OCEAN)
    archive.close()
    with h5py.File(path, "r+") as file:
        file["mine"] = 1.0
    with pytest.raises(StorageError, match="changed by something else"):
        Hdf5(path)
    with h5py.File(path) as file:
        assert file["mine"][()] == 1.0


@pytest.fixture
def three(path: Path) -> tuple[bytes, dict[Key, bytes]]:
    """The bytes of an archive of three groups, and what it holds."""
    archive = Hdf5(path)
    keys = [x(5), x(6), Key(Kind.TAPE, 1), Key(Kind.ADJOINT, 2)]
    archive.prepare(x(5), OCEAN, 2)
    originals = {key: put(archive, key, OCEAN, seed=number) for number, key in enumerate(keys)}
    archive.close()
    return path.read_bytes(), originals


def test_a_flipped_bit_of_the_first_pages_or_their_mirror_is_mended(
    path: Path, three: tuple[bytes, dict[Key, bytes]]
) -> None:
    sound, originals = three
    for position in (*range(0, FIXED, 211), *range(EOF, EOF + 8)):
        flip(path, sound, position, position % 8)
        listed = Hdf5.contents(path)
        archive = Hdf5(path)
        assert {it.key for it in listed if isinstance(it, Stored)} == set(originals)
        assert everything(archive, OCEAN) == originals
        archive.close()
        assert path.read_bytes() == sound


@pytest.mark.parametrize("position", range(EOF + 3, EOF + 5))
def test_a_file_that_hdf5_says_is_longer_may_hold_what_people_added(
    path: Path, three: tuple[bytes, dict[Key, bytes]], position: int
) -> None:
    flip(path, three[0], position, 2)
    with path.open("r+b") as file:
        file.seek(EOF)
        file.truncate(int.from_bytes(file.read(8), "little"))
    for call in (Hdf5, Hdf5.contents):
        with pytest.raises(StorageError, match="changed by something else"):
            call(path)


def test_damage_of_the_first_pages_and_of_their_mirror_is_an_error(
    path: Path, three: tuple[bytes, dict[Key, bytes]]
) -> None:
    content = bytearray(three[0])
    content[5000] ^= 1
    content[17_000] ^= 1
    path.write_bytes(content)
    for call in (Hdf5, Hdf5.contents):
        with pytest.raises(StorageError, match=r"archive\.h5 was damaged"):
            call(path)


def test_hdf5_reads_no_metadata_that_was_damaged(
    path: Path, three: tuple[bytes, dict[Key, bytes]]
) -> None:
    """The HDF5 library crashes on some: what is stored is read without it, nothing is added."""
    sound, originals = three
    with h5py.File(path) as file:
        first = file["README"].id.get_offset()
    for position in range(FIXED, first, 41):
        flip(path, sound, position, position % 8)
        assert damaged(path) == ["what HDF5 needs to read the archive is damaged"]
        archive = Hdf5(path)
        assert everything(archive, OCEAN) == originals
        with pytest.raises(StorageError, match="x_9 failed: it was damaged and cannot grow"):
            put(archive, x(9), OCEAN)
        archive.discard(x(5))
        put(archive, x(9), OCEAN)
        archive.close()


def test_a_damaged_group_takes_no_other_with_it(
    path: Path, three: tuple[bytes, dict[Key, bytes]]
) -> None:
    sound, originals = three
    heads = [sound.index(b"ckiogrp"), sound.rindex(b"ckiogrp")]
    for head in heads:
        for position in [*range(32), 40, 100, 150]:
            flip(path, sound, head + position, position % 8)
            assert damaged(path) == ["the head of a group is damaged"]
            archive = Hdf5(path)
            held = everything(archive, OCEAN)
            lost = {x(5), x(6)} if head == heads[0] else {Key(Kind.ADJOINT, 2)}
            assert held == {key: it for key, it in originals.items() if key not in lost}
            for key in lost:
                with pytest.raises(CorruptCheckpoint, match="the head of a group"):
                    get(archive, key, OCEAN)
                put(archive, key, OCEAN)
            archive.close()


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_flipped_bit_anywhere_gives_no_wrong_bytes(data: st.DataObject) -> None:
    """Or it makes no difference: HDF5's own metadata of a group, which ckio never reads, may be
    damaged without any harm to ckio, and so may what lies in free slots and between groups. So may
    the trees of fields, which ckio writes, and only HDF5 reads: see `test_hdf5_fields`."""
    sound, originals, live = a_sound_archive()
    position = data.draw(st.integers(0, len(sound) - 1) | st.sampled_from(live))
    with TemporaryDirectory() as place:
        path = Path(place, "archive.h5")
        flip(path, sound, position, data.draw(st.integers(0, 7)))
        try:
            archive = Hdf5(path)
        except (StorageError, BadInput):
            assert position < FIXED
            return
        lost = set()
        for key, original in originals.items():
            try:
                assert get(archive, key, OCEAN) == original
            except CorruptCheckpoint:
                lost.add(key)
        archive.close()
        assert len(lost) <= 2
        assert bool(lost) >= (position in live)


@pytest.mark.parametrize("keep", [1, 8, 4096, 8191, 12_288, 20_000, 24_576, 30_000])
def test_an_archive_that_was_cut_off_is_refused(path: Path, keep: int) -> None:
    archive = Hdf5(path)
    put(archive, x(5), OCEAN)
    archive.close()
    with path.open("r+b") as file:
        file.truncate(keep)
    for call in (Hdf5, Hdf5.contents):
        with pytest.raises((StorageError, BadInput), match=r"archive\.h5"):
            call(path)


# Keys


def test_keys_that_do_not_fit_a_row_are_refused(path: Path) -> None:
    archive = Hdf5(path)
    for key in (Key(Kind.TAPE, 1, "ψ" * 33), Key(Kind.TAPE, 1 << 64)):
        with pytest.raises(StorageError, match="an archive keeps"):
            put(archive, key, OCEAN)
    long = Key(Kind.TAPE, (1 << 64) - 1, "ψ" * 32)
    original = put(archive, long, OCEAN)
    assert get(archive, long, OCEAN) == original
    archive.close()


def test_what_was_written_without_a_checksum_is_not_read_as_verified(path: Path) -> None:
    archive = Hdf5(path, checksum=False)
    original = put(archive, x(0), OCEAN)
    assert get(archive, x(0), OCEAN) == original
    archive.close()
    archive = Hdf5(path)
    with pytest.raises(StorageError, match="checksum=False"):
        get(archive, x(0), OCEAN)
    archive.close()
    archive = Hdf5(path, checksum=False)
    assert get(archive, x(0), OCEAN) == original
    archive.close()


# The system says no


class Trouble(Files):
    """A system of whose writes or syncs one fails, when `left` of them were done."""

    def __init__(self) -> None:
        self.left = {"write": 1 << 30, "sync": 1 << 30}

    def _count(self, what: str) -> None:
        self.left[what] -= 1
        if self.left[what] == -1:
            raise OSError(errno.EIO, "the disk is worn out")

    def pwritev(self, fd: int, data: Buffers, offset: int, /) -> int:
        self._count("write")
        return super().pwritev(fd, data, offset)

    def sync(self, fd: int, /) -> None:
        self._count("sync")
        super().sync(fd)


@pytest.mark.campaign
@pytest.mark.parametrize("what", ["write", "sync"])
@pytest.mark.parametrize("number", range(12))
def test_an_error_of_the_disk_leaves_everything_as_it_was(
    path: Path, what: str, number: int
) -> None:
    archive = Hdf5(path, durability="fdatasync")
    archive.reserve({164: 2})
    originals = {x(step): put(archive, x(step), OCEAN, seed=step) for step in (0, 1)}
    archive.close()
    trouble = Trouble()
    archive = Hdf5(path, durability="fdatasync", files=trouble)
    trouble.left[what] = number
    errors = []
    for _ in range(20):
        try:
            put(archive, x(2), OCEAN, seed=2)
            archive.discard(x(2))
        except StorageError as error:
            errors.append(str(error))
        held = set(archive.keys())
        assert held in (set(originals), {x(2), *originals})
        if x(2) in held:
            archive.discard(x(2))
    archive.close()
    assert len(errors) == 1
    assert "x_2 failed: the disk is worn out" in errors[0]
    archive = Hdf5(path)
    assert everything(archive, OCEAN) == originals
    archive.close()


def test_a_checkpoint_is_on_the_device_before_its_row(path: Path) -> None:
    done: list[tuple[str, int]] = []

    class Diary(Files):
        def pwritev(self, fd: int, data: Buffers, offset: int, /) -> int:
            done.append(("write", sum(view.nbytes for view in data)))
            return super().pwritev(fd, data, offset)

        def sync(self, fd: int, /) -> None:
            done.append(("sync", 0))
            super().sync(fd)

    archive = Hdf5(path, durability="fdatasync", files=Diary())
    put(archive, x(0), OCEAN)
    done.clear()
    archive.discard(x(0))
    put(archive, x(1), OCEAN)
    state = [("write", 8), ("sync", 0)]
    body = [("write", ROW.itemsize - 8), ("sync", 0)]
    assert done == [*state, ("write", 164), *body, *state]
    archive.close()


def test_a_file_that_may_not_grow_is_a_full_level(path: Path) -> None:
    archive = Hdf5(path)
    original = put(archive, x(0), OCEAN)
    size = path.stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100_000, hard))
    try:
        with pytest.raises(LevelFull, match=r"x_1.*200000 bytes are needed, \d+ bytes are free"):
            put(archive, x(1), (Field("a", "<f8", (25_000,)),))
        with pytest.raises(LevelFull, match="reserving"):
            archive.reserve({50_000: 4})
        assert path.stat().st_size == size
        small = put(archive, x(2), (Field("a", "<f8", (2500,)),))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert get(archive, x(2), archive.layout(x(2))) == small
    archive.close()
    archive = Hdf5(path)
    assert get(archive, x(0), OCEAN) == original
    assert set(archive.keys()) == {x(0), x(2)}
    archive.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Any:
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("a small file system cannot be mounted here (not root)")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_full_disk_is_a_full_level_and_the_run_can_go_on(small_disk: Path) -> None:
    archive = Hdf5(small_disk / "archive.h5")
    layout = (Field("a", "<f8", (10_000,)),)
    with pytest.raises(LevelFull, match="bytes are needed"):
        archive.reserve({80_000: 20})
    originals = {}
    while (step := len(originals)) < 8:
        originals[x(step)] = put(archive, x(step), layout, seed=step)
    with pytest.raises(LevelFull, match=r"80000 bytes are needed, \d+ bytes are free"):
        fill(archive, layout)
    assert len(archive.keys()) >= 10
    for key in set(archive.keys()) - set(originals):
        archive.discard(key)
    archive.discard(x(1))
    originals[x(1)] = put(archive, x(1), layout, seed=99)
    archive.close()
    archive = Hdf5(small_disk / "archive.h5")
    assert everything(archive, layout) == originals
    archive.close()


def test_a_discarded_checkpoint_is_missing_to_its_last_byte(path: Path) -> None:
    archive = Hdf5(path)
    put(archive, x(0), OCEAN)
    archive.discard(x(0))
    with pytest.raises(MissingCheckpoint):
        get(archive, x(0), OCEAN)
    archive.close()
    with h5py.File(path) as file:
        assert file["restart-0/keys"][0]["state"] == b""


def test_flipped_payload_is_corrupt_wherever_it_is(path: Path) -> None:
    archive = Hdf5(path)
    put(archive, x(5), OCEAN)
    archive.close()
    with h5py.File(path) as file:
        begin = file["restart-0/payload"].id.get_offset()
    sound = path.read_bytes()
    for offset in range(164):
        flip(path, sound, begin + offset, 4)
        archive = Hdf5(path)
        with pytest.raises(CorruptCheckpoint, match="x_5"):
            get(archive, x(5), OCEAN)
        archive.close()
