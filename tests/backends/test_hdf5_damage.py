"""The HDF5 archive when rows, payload or the system under it go wrong."""

from contextlib import suppress
from pathlib import Path

import h5py
import numpy as np
import pytest

from ckio.actions import Key, Kind
from ckio.backends.contents import Stored
from ckio.backends.hdf5 import Hdf5
from ckio.backends.hdf5.file import USER, head_of
from ckio.backends.hdf5.slots import FREE, ROW, STORED, Row
from ckio.backends.runid import NOBODY
from ckio.errors import BadInput, CorruptCheckpoint, StorageError
from ckio.testing import get, put, x

from .archives import damaged, everything, flip
from .common import OCEAN, in_child


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "archive.h5"


# Damage


@pytest.mark.campaign
@pytest.mark.parametrize("every", [5, 1])
def test_a_flipped_bit_of_a_row_is_damage_and_its_slot_is_not_used_again(
    path: Path, every: int
) -> None:
    archive = Hdf5(path)
    archive.reserve({164: 2})
    put(archive, x(5), OCEAN, seed=5)
    original = put(archive, x(6), OCEAN, seed=6)
    archive.close()
    with h5py.File(path) as file:
        table = file["restart-0/keys"].id.get_offset()
    sound = path.read_bytes()
    for position in range(0, ROW.itemsize, every):
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


def test_what_people_add_to_an_archive_stays_there(path: Path) -> None:
    archive = Hdf5(path)
    original = put(archive, x(5), OCEAN)
    archive.close()
    with h5py.File(path, "r+") as file:
        file["mine"] = np.arange(5000.0)
    archive = Hdf5(path)
    archive.reserve({164: 9})
    put(archive, x(6), OCEAN, seed=6)
    assert get(archive, x(5), OCEAN) == original
    archive.close()
    with h5py.File(path) as file:
        assert file["mine"][:].tolist() == list(range(5000))
        assert set(file) == {"README", "mine", "restart-0", "restart-1"}


@pytest.fixture
def three(path: Path) -> tuple[bytes, dict[Key, bytes]]:
    """The bytes of an archive of three groups, and what it holds."""
    archive = Hdf5(path)
    keys = [x(5), x(6), Key(Kind.TAPE, 1), Key(Kind.ADJOINT, 2)]
    archive.prepare(x(5), OCEAN, 2)
    originals = {key: put(archive, key, OCEAN, seed=number) for number, key in enumerate(keys)}
    archive.close()
    return path.read_bytes(), originals


def test_a_flipped_bit_of_the_first_page_is_an_error(
    path: Path, three: tuple[bytes, dict[Key, bytes]]
) -> None:
    for position in range(len(head_of(NOBODY))):
        flip(path, three[0], position, position % 8)
        for call in (Hdf5, Hdf5.contents):
            with pytest.raises((StorageError, BadInput), match=r"archive\.h5"):
                call(path)


@pytest.mark.campaign
@pytest.mark.parametrize("every", [37, 9])
def test_a_flipped_bit_of_hdf5s_metadata_is_an_error_or_costs_a_group_or_nothing(
    path: Path, three: tuple[bytes, dict[Key, bytes]], every: int
) -> None:
    """HDF5 has checksums of its metadata; in a process of its own, that a crash would be seen."""
    sound, originals = three
    groups = [{x(5), x(6)}, {Key(Kind.TAPE, 1)}, {Key(Kind.ADJOINT, 2)}]
    payload = {at for it in Hdf5.contents(path) for at in _bytes_of(it)}
    places = [at for at in range(USER, len(sound)) if sound[at] and at not in payload]

    def body() -> None:
        refused = 0
        costs = set()
        for position in places[::every]:
            flip(path, sound, position, position % 8)
            try:
                archive = Hdf5(path)
            except StorageError:
                refused += 1
                continue
            there = everything(archive, OCEAN)
            lost = set(originals) - set(there)
            assert there == {key: originals[key] for key in there}
            assert not lost or any(lost <= group for group in groups)
            costs.add(len(lost))
            for key in lost:
                with pytest.raises(CorruptCheckpoint, match="is damaged"):
                    get(archive, key, OCEAN)
            with suppress(StorageError):
                put(archive, x(9), OCEAN)
            archive.close()
        assert refused > 5
        assert costs == {0, 1, 2}

    in_child(body)


def _bytes_of(item: object) -> list[int]:
    spans = item.spans if isinstance(item, Stored) else ()
    return [at for begin, nbytes in spans for at in range(begin, begin + nbytes)]


def test_an_archive_that_was_cut_off_is_refused(path: Path) -> None:
    archive = Hdf5(path)
    put(archive, x(5), OCEAN)
    archive.close()
    sound = path.read_bytes()
    for keep in (1, 8, 79, 80, 4096, 65_535, 65_536, 65_600, 70_000, len(sound) - 1):
        path.write_bytes(sound[:keep])
        for call in (Hdf5, Hdf5.contents):
            with pytest.raises((StorageError, BadInput), match=r"archive\.h5"):
                call(path)


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
    (item,) = Hdf5.contents(path)
    assert len(_bytes_of(item)) == 164
    with path.open("r+b", buffering=0) as file:
        for place, sound in zip(_bytes_of(item), original, strict=True):
            for byte in (sound ^ 4, sound):
                file.seek(place)
                file.write(bytes([byte]))
                if byte != sound:
                    with pytest.raises(CorruptCheckpoint, match="x_5"):
                        get(archive, x(5), OCEAN)
    assert get(archive, x(5), OCEAN) == original
    archive.close()


def test_an_archive_that_is_cut_short_while_it_is_open_says_which_checkpoint_ended(
    path: Path, three: tuple[bytes, dict[Key, bytes]]
) -> None:
    path.write_bytes(three[0])
    archive = Hdf5(path)
    with path.open("r+b") as file:
        file.truncate(USER)
    for key in three[1]:
        with pytest.raises(CorruptCheckpoint, match=f"the file ends within {key}"):
            get(archive, key, OCEAN)
    archive.close()
