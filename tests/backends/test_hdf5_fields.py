"""The fields of an archive: what HDF5 sees of checkpoints that each lie in one piece."""

import os
import random
import shutil
import subprocess
from contextlib import closing
from itertools import accumulate
from pathlib import Path

import h5py
import numpy as np
import pytest

from ckio.actions import Field, Key, Kind, Layout
from ckio.backends.contents import Stored
from ckio.backends.files import TILE, Files
from ckio.backends.forms import form_of
from ckio.backends.hdf5 import Hdf5
from ckio.backends.hdf5.heads import stride
from ckio.testing import put, raw, x

from .common import OCEAN

ODD: Layout = (
    Field("scalar", "<f8", ()),
    Field("odd", "|u1", (3,)),  # what follows does not begin on a word
    Field("none", "<f8", (4, 0)),
    Field("volume", ">f4", (2, 3, 5)),
    Field("payload", "<i8", (2,)),
    Field("pair", "(2,)<f4", (3,)),
    Field("text", "<U3", (2,)),
    Field("mask", "|b1", (7,)),
    Field("deep", "<i2", (1,) * 31),
    Field("deeper", "<i2", (1,) * 32),
)
NAMES = {field.name: field.name for field in ODD} | {"payload": "payload-2"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "archive.h5"


def some(layout: Layout, seed: int) -> list[memoryview]:
    noise = random.Random(seed)
    return [memoryview(noise.randbytes(size)) for size in form_of(layout).sizes]


# What people read


@pytest.mark.campaign
@pytest.mark.parametrize("slots", [1, 64, 65, 4097])
def test_h5py_finds_each_field_of_each_slot_in_its_payload(path: Path, slots: int) -> None:
    archive = Hdf5(path)
    archive.prepare(x(0), ODD, slots)
    with h5py.File(path) as file:
        for field in ODD:
            dataset = file["restart-0"][NAMES[field.name]]
            shape, dtype = (slots, *field.shape), np.dtype(field.dtype)
            if field.name in ("text", "deeper"):  # HDF5 has no such type, or no more axes
                shape, dtype = (slots, form_of((field,)).nbytes), np.dtype("u1")
            assert (dataset.shape, dataset.dtype) == (shape, dtype)
            never_used = dataset[...].tobytes()
            assert never_used == bytes(len(never_used))
    data = {step: some(ODD, step) for step in range(slots)}
    for step in reversed(range(slots)):
        archive.write(x(step), ODD, data[step])
    with h5py.File(path) as file:
        group = file["restart-0"]
        assert set(group) == {"keys", "payload", *NAMES.values()}
        held = group["keys"]["step"][:].tolist()
        assert sorted(held) == list(range(slots))
        for number, field in enumerate(ODD):
            dataset = group[NAMES[field.name]]
            assert dataset.attrs["name"] == field.name
            expected = b"".join(data[step][number] for step in held)
            assert (dataset[:].tobytes() if expected else b"") == expected
            assert len(dataset) == slots
        whole = sum(form_of(ODD).sizes)
        for slot in {0, slots // 2, slots - 1}:
            assert group["payload"][slot].tobytes()[:whole] == b"".join(data[held[slot]])
    archive.close()


def test_a_field_alone_is_the_payload(path: Path) -> None:
    archive = Hdf5(path)
    archive.prepare(x(0), OCEAN[:1], 3)
    data = some(OCEAN[:1], 1)
    archive.write(x(0), OCEAN[:1], data)
    archive.write(Key(Kind.TAPE, 0), raw(77), some(raw(77), 2))
    (at,) = [it.spans for it in Hdf5.contents(path) if isinstance(it, Stored) and it.key == x(0)]
    archive.close()
    with h5py.File(path) as file:
        assert set(file["restart-0"]) == {"keys", OCEAN[0].name}
        dataset = file["restart-0"][OCEAN[0].name]
        assert dataset.chunks is None
        assert at == ((dataset.id.get_offset(), data[0].nbytes),)
        assert dataset[0].tobytes() == data[0]
        assert set(file["tape-0"]) == {"keys", raw(77)[0].name}


@pytest.mark.parametrize("tool", ["h5dump", "h5repack"])
def test_the_tools_of_hdf5_find_the_fields(path: Path, tool: str) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    archive = Hdf5(path)
    archive.prepare(x(0), OCEAN, 66)
    data = [some(OCEAN, step) for step in range(66)]
    for step, fields in enumerate(data):
        archive.write(x(step), OCEAN, fields)
    archive.close()
    name, copy = f"/restart-0/{OCEAN[0].name}", path.with_name("copy")
    dump = ["-d", name, "-b", "LE", "-o", copy, path]
    subprocess.run([tool, *(dump if tool == "h5dump" else [path, copy])], check=True)
    found = copy.read_bytes() if tool == "h5dump" else h5py.File(copy)[name][:].tobytes()
    assert found == b"".join(fields[0] for fields in data)


# Where it lies


@pytest.mark.parametrize("nbytes", [1, 8, 1001, 65_533, 65_537, 1 << 20])
def test_a_checkpoint_is_one_piece_on_a_word_or_where_it_is_large_on_a_page(
    path: Path, nbytes: int
) -> None:
    layout = (Field("a", "|u1", (nbytes // 3,)), Field("b", "|u1", (nbytes - nbytes // 3,)))
    with closing(Hdf5(path)) as archive:
        archive.prepare(x(0), layout, 3)
        originals = {x(step): put(archive, x(step), layout, seed=step) for step in range(3)}
    content = path.read_bytes()
    stored = [it for it in Hdf5.contents(path) if isinstance(it, Stored)]
    for it in stored:
        ((offset, size),) = it.spans
        assert content[offset : offset + size] == originals.pop(it.key)
        assert offset % (8 if nbytes < 1 << 16 else 4096) == 0
    first, second, third = sorted(it.spans[0][0] for it in stored)
    assert second - first == third - second == stride(form_of(layout))


def test_the_first_large_slot_of_every_group_begins_on_a_tile(path: Path) -> None:
    begins: dict[str, list[int]] = {}
    with closing(Hdf5(path)) as archive:
        for nbytes in (TILE, TILE + 8, 3 * TILE):
            for name in "ab":
                layout = (Field(name, "|u1", (nbytes - 8,)), Field("time", "<f8", ()))
                for step in range(2):
                    put(archive, Key(Kind.RESTART, step, f"{name}{nbytes}"), layout)
        for it in Hdf5.contents(path):
            assert isinstance(it, Stored)
            begins.setdefault(it.key.name, []).append(it.spans[0][0])
    assert len(begins) == 6
    assert all(min(offsets) % TILE == 0 for offsets in begins.values())


class Sparse(Files):
    """A disk on which files have holes."""

    def extend(self, fd: int, begin: int, nbytes: int, /, *, prewrite: bool) -> None:
        del prewrite
        os.ftruncate(fd, begin + nbytes)


def test_a_field_of_4_gib_is_only_in_the_payload_and_the_others_behind_it_are_found(
    path: Path,
) -> None:
    layout = (Field("huge", "<f8", (1 << 29,)), Field("most", "|u1", ((1 << 32) - 1,)), *OCEAN)
    archive = Hdf5(path, files=Sparse())
    archive.prepare(x(0), layout, 2)
    sizes = form_of(layout).sizes
    assert path.stat().st_size < 2 * sum(sizes) + TILE + 100_000
    with h5py.File(path) as file:
        group = file["restart-0"]
        assert set(group) == {"keys", "payload", *(field.name for field in layout[1:])}
        payload = group["payload"].id.get_offset()
        for field, begin in zip(layout[1:], accumulate(sizes), strict=False):
            chunks = [group[field.name].id.get_chunk_info(slot) for slot in (0, 1)]
            for slot, chunk in enumerate(chunks):
                assert chunk.byte_offset == payload + slot * group["payload"].shape[1] + begin
        assert not group["time"][1]
    archive.close()


@pytest.mark.parametrize("count", [1, 100, 5000])
def test_a_reservation_has_room_for_what_hdf5_finds_the_fields_by(path: Path, count: int) -> None:
    layout = tuple(Field(f"u{number}", "<f8", (4, 5, 6)) for number in range(8))
    with closing(Hdf5(path)) as archive:
        archive.reserve({form_of(layout).nbytes: count})
        size = path.stat().st_size
        put(archive, x(0), layout)
        assert path.stat().st_size == size
        with h5py.File(path) as file:
            assert len(file["restart-0/u7"]) == count
