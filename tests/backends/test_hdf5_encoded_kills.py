"""The compressed archive whose writer is killed at any moment: what ckio reads, and h5py alone."""

import os
import random
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from installed import needs_hdf5plugin

from ckio.actions import Buffers, Field, Key, Kind, Layout
from ckio.backends.compressed import Compressed
from ckio.backends.contents import Stored, sound
from ckio.backends.forms import form_of
from ckio.backends.hdf5 import Hdf5
from ckio.compression import Zstd
from ckio.testing import buffers

from .archives import Tape, killed_writer, laid_over
from .plain import Reader, Seen, as_seen, reader

KEYS = [Key(kind, step) for kind in Kind for step in range(7)]

Held = dict[Key, int]
"""What an archive holds: of each key, the number of its write."""


def layout_of(key: Key) -> Layout:
    """Two layouts for each kind; the second has a field of two blocks."""
    size = 150_000 if key.step == 6 else 3000
    return (Field("u", "<f8", (size,)), Field("v", "<f4", (7, 11)), Field("t", "<i4", ()))


def content_of(key: Key, write: int) -> Buffers:
    """The bytes of a checkpoint: no two writes have the same, nor shrink alike."""
    noise = np.random.default_rng([KEYS.index(key), write])
    arrays = []
    for field in layout_of(key):
        size = int(np.prod(field.shape))
        rough = noise.integers(1, 1 << 30, size) * (np.arange(size) % (1 + write % 11) == 0)
        arrays.append(rough.astype(field.dtype).reshape(field.shape))
    return buffers(arrays)


def opened(path: Path, durability: str = "process") -> Compressed:
    return Compressed(Hdf5(path, durability=durability), Zstd(1), threads=1)


def write_until_killed(path: Path, diary: int, seed: int, durability: str) -> None:
    """Write and discard at random; the diary gets a line before each action and a dot after it."""
    dice, write = random.Random(seed), 1000 * seed
    level = opened(path, durability)
    while True:
        key = dice.choice(KEYS)
        write += 1
        there = key in set(level.keys())
        data = [] if there else content_of(key, write)
        os.write(diary, f"{KEYS.index(key)} {0 if there else write}\n".encode())
        if there:
            level.discard(key)
        else:
            level.write(key, layout_of(key), data)
        os.write(diary, b".\n")


def after(diary: Path, held: Held) -> list[Held]:
    """What may be held according to a diary: one thing, or two if something was in the hand."""
    now, before = dict(held), dict(held)
    lines = diary.read_text().splitlines()
    for line in lines:
        if line != ".":
            before = dict(now)
            number, write = map(int, line.split())
            now.pop(KEYS[number], None)
            if write:
                now[KEYS[number]] = write
    return [now] if not lines or lines[-1] == "." else [before, now]


def as_stored(held: Held) -> dict[Key, Seen]:
    """How h5py must see all that is held."""
    return {key: as_seen(layout_of(key), content_of(key, write)) for key, write in held.items()}


def check(path: Path, plain: Reader, may_be: list[Held]) -> Held:
    """What the archive holds; h5py sees the same, before ckio has opened it and afterwards."""
    seen = plain.stored(path)
    listed = Hdf5.contents(path)
    assert all(isinstance(it, Stored) and sound(it) for it in listed)
    (held,) = [held for held in may_be if set(held) == set(seen)]
    assert seen == as_stored(held)
    level = opened(path)
    assert set(level.keys()) == set(held)
    for key, write in held.items():
        layout, data = layout_of(key), content_of(key, write)
        assert level.layout(key) == layout
        into = [memoryview(bytearray(size)) for size in form_of(layout).sizes]
        level.read(key, into)
        assert into == data
    level.close()
    assert plain.stored(path) == seen
    return held


def campaign(tmp_path: Path, seeds: range, durability: str) -> None:
    path, diary = tmp_path / "archive.h5", tmp_path / "diary"
    held: Held = {}
    actions = in_hand = 0
    with reader() as plain:
        for seed in seeds:
            if seed % 10 == 0:
                path.unlink(missing_ok=True)
                held = {}
            write = partial(write_until_killed, path, seed=seed, durability=durability)
            killed_writer(diary, random.Random(-1 - seed).randrange(120), write)
            actions += diary.read_text().count(".")
            if path.exists():
                may_be = after(diary, held)
                in_hand += len(may_be) - 1
                held = check(path, plain, may_be)
    assert actions > 10 * len(seeds)
    assert in_hand > 0
    assert set(tmp_path.iterdir()) == {path, diary}


@pytest.mark.campaign
@needs_hdf5plugin
@pytest.mark.parametrize("durability", ["process", "fdatasync"])
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_what_a_killed_writer_leaves_is_read_by_h5py_alone(tmp_path: Path, durability: str) -> None:
    campaign(tmp_path, range(20), durability)


@pytest.mark.slow
@needs_hdf5plugin
@pytest.mark.parametrize("first", range(100, 340, 40))
@pytest.mark.parametrize("durability", ["process", "fdatasync"])
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_what_a_writer_killed_very_often_leaves_is_read_by_h5py_alone(
    tmp_path: Path, durability: str, first: int
) -> None:
    campaign(tmp_path, range(first, first + 40), durability)


@needs_hdf5plugin
def test_h5py_reads_the_others_after_every_single_write_of_growth_and_commits(
    tmp_path: Path,
) -> None:
    """A kill cuts the writes short; they are cut at each sector here, which kills do not do."""
    path, tape = tmp_path / "archive.h5", Tape()
    level = Compressed(Hdf5(path, files=tape), Zstd(1), threads=1)
    held = {KEYS[0]: 1, KEYS[6]: 2}
    for key, write in held.items():
        level.write(key, layout_of(key), content_of(key, write))
    level.close()
    image = path.read_bytes()
    level = Compressed(Hdf5(path, files=tape), Zstd(1), threads=1)
    tape.epochs = [[]]
    # A group for another kind; a slot that is used again; and one more group for larger ones.
    steps = [(KEYS[8], 3), (KEYS[8], 0), (KEYS[9], 4), (KEYS[1], 11)]
    for key, write in steps:
        if write:
            level.write(key, layout_of(key), content_of(key, write))
        else:
            level.discard(key)
    level.close()
    ((*writes,),) = tape.epochs
    allowed = [as_stored(held)]
    for key, write in steps:
        held = {k: w for k, w in held.items() if k != key} | ({key: write} if write else {})
        allowed.append(as_stored(held))
    now = checked = 0
    with reader() as plain:
        for at, data in writes:
            for begin in range(0, len(data) or 1, 512 if len(data) < 4096 else 4096):
                image = laid_over(image, [(at, data[:begin])])
                path.write_bytes(image)
                seen = plain.stored(path)
                now += seen != allowed[now]
                assert seen == allowed[now]
                checked += 1
            image = laid_over(image, [(at, data)])
        path.write_bytes(image)
        assert plain.stored(path) == allowed[-1]
    assert now >= len(steps) - 1
    assert checked > 40
