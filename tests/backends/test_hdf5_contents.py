"""The HDF5 archive read by those who do not own it: listed from outside, and full of lies."""

import json
import subprocess
import sys
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from ckio.actions import Field, Key, Kind
from ckio.backends.contents import Damaged, Stored, sound
from ckio.backends.hdf5 import Hdf5
from ckio.backends.hdf5.heads import FIXED, Group, Start
from ckio.backends.runid import NOBODY
from ckio.errors import BadInput, CorruptCheckpoint, StorageError
from ckio.testing import put, raw, x

from .archives import a_sound_archive
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
        assert len(it.spans) == 1
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


def test_contents_are_listed_without_hdf5(path: Path) -> None:
    Hdf5(path).close()
    code = f"""import sys; from ckio.backends.hdf5 import Hdf5; Hdf5.contents({str(path)!r})
assert "h5py" not in sys.modules"""
    subprocess.run([sys.executable, "-c", code], check=True)


# Hostile files


NUMBERS = st.sampled_from([-1, 0, 1, 2, 2**31, 2**62, 2**63, 2**64, 10**30, 1.5, None, "1", [], {}])


@given(data=st.data())
def test_a_head_that_lies_is_refused_before_anything_is_allocated(data: st.DataObject) -> None:
    """Even one with a sound check: its numbers, its layout, and where it says that things lie."""
    sound, _, _ = a_sound_archive()
    begin = sound.index(b"ckiogrp")
    length = Group.length(sound[begin:][:100])
    group = Group.unpack(sound[begin:][:length], begin, len(sound))
    told = json.loads(sound[begin:][:length][32:])
    assert told == json.loads(group.pack()[32:])
    places = ["name", "kind", "layout", "slots", "rows", "payload", "trees", "leaves"]
    values = dict(zip(places, told, strict=True))
    place = data.draw(st.sampled_from(places))
    lies = {"leaves": st.lists(NUMBERS, max_size=4), "layout": st.sampled_from(LAYOUTS) | st.text()}
    near = st.integers(begin - 9, begin + length) | st.integers(group.end - 999, group.end + 9)
    values[place] = data.draw(lies.get(place, NUMBERS | near))
    text = json.dumps(list(values.values())).encode()
    head = b"ckiogrp\x02" + len(text).to_bytes(8, "little") + xxhash.xxh3_128_digest(text) + text
    tracemalloc.start()
    try:
        made = Group.unpack(head, begin, len(sound))
    except CorruptCheckpoint:
        pass
    else:
        for slot in range(made.slots if made.stride else 0):
            assert begin <= made.at(slot) <= made.at(slot) + made.stride <= made.trees <= len(sound)
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 1 << 20


LAYOUTS = [
    "[" * 5000,
    '[["u", "<f8", [-3], ""]]',
    '[["u", "<f8", [1e400], ""]]',
    '[["u", "<f8", [99999999999999999999], ""]]',
    '[["u", "O", [3], ""]]',
    '[["u", "V999999999999", [3], ""]]',
    "{}",
    "[]",
]


def test_an_index_that_lies_is_refused(path: Path) -> None:
    sound, _, _ = a_sound_archive()
    end, starts = len(sound), Start.unpack(sound[: FIXED // 2])
    assert starts is not None
    begin, first, second, *_ = starts.begin, *starts.groups
    for lie in (
        {"begin": FIXED - 1},
        {"begin": 1 << 63},
        {"end": 1 << 63},
        {"end": begin},
        {"end": end + 1},
        {"groups": (first, first)},
        {"groups": (first, second, first + 1)},
        {"groups": (first, 1 << 63)},
        {"groups": (second,)},
    ):
        told = {"begin": begin, "end": end, "groups": starts.groups, "fixed": starts.fixed}
        told |= {"run": NOBODY} | lie
        pages = Start.sealed(sound[:4096], sound[4096:8192], **told).pages
        path.write_bytes(pages * 2 + sound[2 * len(pages) :])
        for call in (Hdf5, Hdf5.contents):
            with pytest.raises(StorageError, match=r"archive\.h5 was"):
                call(path)
