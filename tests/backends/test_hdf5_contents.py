"""The HDF5 archive read by those who do not own it: listed from outside."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ckio.actions import Field, Key, Kind
from ckio.backends.contents import Damaged, Stored, sound
from ckio.backends.hdf5 import Hdf5
from ckio.errors import BadInput
from ckio.testing import put, raw, x

from .common import OCEAN


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "archive.h5"


# What lies in it, seen from outside


def test_contents_of_an_archive_in_use_are_listed_and_sound(path: Path) -> None:
    archive = Hdf5(path, now=lambda: 1.5e9)
    originals = {x(step): put(archive, x(step), OCEAN, seed=step) for step in (5, 6)}
    plain = put(archive, Key(Kind.TAPE, 1), raw(1000))
    put(archive, x(7), OCEAN)
    archive.discard(x(7))
    before = path.read_bytes()
    listed = {it.key: it for it in Hdf5.contents(path) if isinstance(it, Stored)}
    assert set(listed) == {*originals, Key(Kind.TAPE, 1)}
    content = path.read_bytes()
    for key, original in (originals | {Key(Kind.TAPE, 1): plain}).items():
        it = listed[key]
        assert b"".join(content[at : at + nbytes] for at, nbytes in it.spans) == original
        assert it.layout == archive.layout(key)
        assert len(it.spans) == len(it.layout)
        assert (it.nbytes, it.written, it.path) == (len(original), 1.5e9, path)
        assert sound(it)
    assert content == before
    archive.close()


def test_contents_can_be_listed_while_a_run_goes_on(path: Path) -> None:
    archive = Hdf5(path)
    archive.reserve({164: 4})
    put(archive, x(0), OCEAN)
    listed: list[set[Key]] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set() or not listed:
            there = Hdf5.contents(path)
            assert [it for it in there if isinstance(it, Damaged)] == []
            listed.append({it.key for it in there if isinstance(it, Stored)})

    with ThreadPoolExecutor(1) as pool:
        watcher = pool.submit(look)
        for turn in range(300):
            put(archive, x(1), OCEAN, seed=turn)
            archive.discard(x(1))
        for step in range(2, 12):
            archive.prepare(Key(Kind.TAPE, step), (Field("a", "<f8", (step,)),), 1)
        done.set()
        watcher.result()
    assert all(x(0) in keys for keys in listed)
    archive.close()


def test_contents_of_no_archive_are_bad_input_and_nothing_is_made(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nothing.h5"):
        with pytest.raises(BadInput, match="is no archive"):
            Hdf5.contents(place)
    assert list(tmp_path.iterdir()) == []
