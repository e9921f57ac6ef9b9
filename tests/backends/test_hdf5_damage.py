"""The HDF5 archive when rows, payload or the system under it go wrong."""

import errno
import resource
import subprocess
from pathlib import Path
from typing import Any

import h5py
import pytest

from ckio.actions import Buffers, Field, Key, Kind, Layout
from ckio.backends.files import Files
from ckio.backends.hdf5 import Hdf5
from ckio.backends.hdf5_rows import ROW, Row
from ckio.errors import (
    BadInput,
    CorruptCheckpoint,
    LevelFull,
    MissingCheckpoint,
    StorageError,
)
from ckio.testing import get, put, x

from .common import OCEAN


def everything(archive: Hdf5, layout: Layout) -> dict[Key, bytes]:
    return {key: get(archive, key, layout) for key in set(archive.keys())}


def fill(archive: Hdf5, layout: Layout) -> None:
    for step in range(100, 200):
        put(archive, x(step), layout)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "archive.h5"


# Damage


def test_a_flipped_bit_of_a_row_hides_the_checkpoint(path: Path) -> None:
    archive = Hdf5(path)
    archive.reserve({164: 2})
    put(archive, x(5), OCEAN, seed=5)
    original = put(archive, x(6), OCEAN, seed=6)
    archive.close()
    with h5py.File(path) as file:
        table = file["restart-0/keys"].id.get_offset()
    sound = path.read_bytes()
    for position in range(ROW.itemsize):
        damaged = bytearray(sound)
        damaged[table + position] ^= 1 << position % 8
        path.write_bytes(damaged)
        archive = Hdf5(path)
        assert list(archive.keys()) == [x(6)]
        assert get(archive, x(6), OCEAN) == original
        archive.close()


def test_a_row_means_nothing_in_another_slot_or_group() -> None:
    row = Row(3, 1, Key(Kind.TAPE, 4, "ψ"), 24, 1.5, bytes(range(16)))
    assert Row.unpack(row.pack(99), 1, 99) == row
    assert Row.unpack(row.pack(99), 2, 99) is None
    assert Row.unpack(row.pack(99), 1, 98) is None


def test_an_archive_that_people_changed_is_refused(path: Path) -> None:
    archive = Hdf5(path)
    put(archive, x(5), OCEAN)
    archive.close()
    with h5py.File(path, "r+") as file:
        file["mine"] = 1.0
    with pytest.raises(StorageError, match="changed by something else"):
        Hdf5(path)


def test_hdf5_reads_no_metadata_that_was_damaged(path: Path) -> None:
    """The HDF5 library crashes on some: an archive is refused, or holds what it held."""
    archive = Hdf5(path)
    originals = {x(step): put(archive, x(step), OCEAN, seed=step) for step in (5, 6)}
    archive.close()
    sound = path.read_bytes()
    with h5py.File(path) as file:
        first = file["README"].id.get_offset()
    refused = 0
    for position in [*range(0, first, 41), *range(first, len(sound), 997)]:
        damaged = bytearray(sound)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(damaged)
        try:
            archive = Hdf5(path)
        except (StorageError, BadInput):
            refused += 1
            continue
        try:
            put(archive, Key(Kind.TAPE, 1), OCEAN)
            held = everything(archive, OCEAN)
            assert held.items() >= {key: originals[key] for key in originals if key in held}.items()
        except CorruptCheckpoint:
            pass
        archive.close()
    assert refused >= first // 41


@pytest.mark.parametrize("keep", [1, 8, 4096, 8191, 8192, 12_288, 20_000])
def test_an_archive_that_was_cut_off_is_refused(path: Path, keep: int) -> None:
    archive = Hdf5(path)
    put(archive, x(5), OCEAN)
    archive.close()
    with path.open("r+b") as file:
        file.truncate(keep)
    with pytest.raises((StorageError, BadInput), match=r"archive\.h5"):
        Hdf5(path)


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
    """A system whose writes or syncs fail when `left` of them were done."""

    def __init__(self, *, write: int = 1 << 30, sync: int = 1 << 30) -> None:
        self.left = {"write": write, "sync": sync}

    def _count(self, what: str) -> None:
        self.left[what] -= 1
        if self.left[what] == -1:
            raise OSError(errno.EIO, "the disk is worn out")

    def write(self, fd: int, data: Buffers, offset: int, /) -> None:
        self._count("write")
        super().write(fd, data, offset)

    def sync(self, fd: int, /) -> None:
        self._count("sync")
        super().sync(fd)


@pytest.mark.parametrize("what", ["write", "sync"])
@pytest.mark.parametrize("number", range(12))
def test_an_error_of_the_disk_leaves_everything_as_it_was(
    path: Path, what: str, number: int
) -> None:
    archive = Hdf5(path, durability="fdatasync")
    archive.reserve({164: 2})
    originals = {x(step): put(archive, x(step), OCEAN, seed=step) for step in (0, 1)}
    archive.close()
    trouble = Trouble(**{what: number})
    archive = Hdf5(path, durability="fdatasync", files=trouble)
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
        def write(self, fd: int, data: Buffers, offset: int, /) -> None:
            done.append(("write", sum(view.nbytes for view in data)))
            super().write(fd, data, offset)

        def sync(self, fd: int, /) -> None:
            done.append(("sync", 0))
            super().sync(fd)

    archive = Hdf5(path, durability="fdatasync", files=Diary())
    put(archive, x(0), OCEAN)
    done.clear()
    archive.discard(x(0))
    put(archive, x(1), OCEAN)
    row = [("write", ROW.itemsize), ("sync", 0)]
    assert done == [*row, ("write", 96), ("write", 60), ("write", 8), ("sync", 0), *row]
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
        assert file["restart-0/keys"][0].tobytes() == bytes(ROW.itemsize)


def test_flipped_payload_is_corrupt_wherever_it_is(path: Path) -> None:
    archive = Hdf5(path)
    put(archive, x(5), OCEAN)
    archive.close()
    with h5py.File(path) as file:
        fields = [file["restart-0"][name] for name in ("zeta", "psi", "time")]
        places = [(dataset.id.get_offset(), dataset.nbytes) for dataset in fields]
    sound = path.read_bytes()
    for begin, nbytes in places:
        for offset in (0, nbytes // 2, nbytes - 1):
            damaged = bytearray(sound)
            damaged[begin + offset] ^= 0x10
            path.write_bytes(damaged)
            archive = Hdf5(path)
            with pytest.raises(CorruptCheckpoint, match="x_5"):
                get(archive, x(5), OCEAN)
            archive.close()
