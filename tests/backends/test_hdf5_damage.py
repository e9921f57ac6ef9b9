"""The HDF5 archive when rows, payload or the system under it go wrong."""

import re
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckio.actions import Field, Key, Kind
from ckio.backends.base import Backend
from ckio.backends.compressed import Compressed
from ckio.backends.contents import Stored
from ckio.backends.hdf5 import Hdf5
from ckio.backends.hdf5.heads import EOF, FIXED, FREE, ROW, STORED, Row
from ckio.compression import Zstd
from ckio.errors import BadInput, CorruptCheckpoint, LevelFull, StorageError
from ckio.testing import buffers, get, put, x

from .archives import a_sound_archive, damaged, everything, flip
from .common import OCEAN, mount_small, with_own_mounts


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
        if position % 16:
            archive.close()
            continue
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
    with pytest.raises(StorageError, match="changed by a program other than ckio"):
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


def test_a_file_that_hdf5_says_is_longer_may_hold_what_people_added(
    path: Path, three: tuple[bytes, dict[Key, bytes]]
) -> None:
    for position in (EOF + 3, EOF + 4):
        flip(path, three[0], position, 2)
        with path.open("r+b") as file:
            file.seek(EOF)
            file.truncate(int.from_bytes(file.read(8), "little"))
        for call in (Hdf5, Hdf5.contents):
            with pytest.raises(StorageError, match="changed by a program other than ckio"):
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
        assert damaged(path) == ["the part that HDF5 needs to read the archive is damaged"]
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
        for position in (0, 7, 8, 15, 16, 31, 32, 40, 100, 150):
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


@given(data=st.data())
def test_a_flipped_bit_anywhere_gives_no_wrong_bytes(data: st.DataObject) -> None:
    """Or it makes no difference: HDF5's own metadata of a group, which ckio never reads, may be
    damaged without any harm to ckio, and so may what lies in free slots and between groups. So may
    the trees of fields, which ckio writes, and only HDF5 reads: see
    `test_a_flipped_bit_in_a_tree_does_not_concern_ckio`."""
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


def test_an_archive_that_was_cut_off_is_refused(path: Path) -> None:
    archive = Hdf5(path)
    put(archive, x(5), OCEAN)
    archive.close()
    sound = path.read_bytes()
    for keep in (1, 8, 4096, 8191, 12_288, 20_000, 24_576, 30_000, len(sound) - 1):
        path.write_bytes(sound[:keep])
        for call in (Hdf5, Hdf5.contents):
            with pytest.raises((StorageError, BadInput), match=r"archive\.h5"):
                call(path)


@pytest.mark.parametrize("codec", [None], ids=["plain"])
def test_a_flipped_bit_in_a_tree_does_not_concern_ckio(path: Path, codec: Zstd | None) -> None:
    def opened() -> Backend:
        archive = Hdf5(path)
        return Compressed(archive, codec) if codec else archive

    layout = (Field("u", "<f8", (500,)), Field("time", "<f8", ()))
    data = buffers([np.arange(500.0) // 9, np.array(0.5)])
    level = opened()
    for step in range(3):
        level.write(x(step), layout, data)
    level.close()
    sound = path.read_bytes()
    trees = [found.start() for found in re.finditer(b"TREE\1", sound)]
    assert len(trees) >= 4
    for number, position in enumerate(at for tree in trees for at in range(tree, tree + 2000, 97)):
        flip(path, sound, position, number % 8)
        level = opened()
        assert everything(level, layout) == dict.fromkeys(map(x, range(3)), b"".join(data))
        level.discard(x(0))
        level.write(x(0), layout, data)
        assert get(level, x(0), layout) == b"".join(data)
        level.close()


# Keys


def test_keys_that_do_not_fit_a_row_are_refused(path: Path) -> None:
    archive = Hdf5(path)
    for key in (Key(Kind.TAPE, 1, "ψ" * 33), Key(Kind.TAPE, 1 << 64)):
        with pytest.raises(StorageError, match="an archive stores"):
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


def test_flipped_payload_is_corrupt_wherever_it_is(path: Path) -> None:
    archive = Hdf5(path)
    original = put(archive, x(5), OCEAN)
    begin = path.read_bytes().index(original)
    with path.open("r+b", buffering=0) as file:
        for offset in range(164):
            for byte in (original[offset] ^ 4, original[offset]):
                file.seek(begin + offset)
                file.write(bytes([byte]))
                if byte != original[offset]:
                    with pytest.raises(CorruptCheckpoint, match="x_5"):
                        get(archive, x(5), OCEAN)
    assert get(archive, x(5), OCEAN) == original
    archive.close()


def test_a_full_disk_is_a_full_level_and_the_run_can_go_on(tmp_path: Path) -> None:
    layout = (Field("a", "<f8", (10_000,)),)

    def body() -> None:
        mount_small(tmp_path, "size=1m")
        archive = Hdf5(tmp_path / "archive.h5")
        with pytest.raises(LevelFull, match="bytes are needed"):
            archive.reserve({80_000: 20})
        originals = {x(step): put(archive, x(step), layout, seed=step) for step in range(8)}
        with suppress(LevelFull):
            while len(originals) < 99:
                step = len(originals)
                originals[x(step)] = put(archive, x(step), layout, seed=step)
        with pytest.raises(LevelFull, match=r"80000 bytes are needed, \d+ bytes are free"):
            put(archive, x(99), layout)
        archive.discard(x(1))
        originals[x(1)] = put(archive, x(1), layout, seed=99)
        archive.close()
        archive = Hdf5(tmp_path / "archive.h5")
        assert everything(archive, layout) == originals
        archive.close()

    with_own_mounts(body)


def test_an_archive_that_is_cut_short_while_it_is_open_says_which_checkpoint_ended(
    path: Path, three: tuple[bytes, dict[Key, bytes]]
) -> None:
    path.write_bytes(three[0])
    archive = Hdf5(path)
    with path.open("r+b") as file:
        file.truncate(FIXED)
    for key in three[1]:
        with pytest.raises(CorruptCheckpoint, match=f"the file ends within {key}"):
            get(archive, key, OCEAN)
    archive.close()
