"""The HDF5 archive under faults: killed at any moment, growing, and with flipped bits."""

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest

from ckio.actions import Buffers, Field, Key, Kind, Layout
from ckio.backends import hdf5_file
from ckio.backends.files import Files
from ckio.backends.forms import form_of
from ckio.backends.hdf5 import Hdf5
from ckio.backends.hdf5_library import MAX_GROUPS
from ckio.errors import CorruptCheckpoint
from ckio.testing import buffers, contents, get, put

KEYS = [Key(kind, step) for kind in Kind for step in range(7)]


def layout_of(key: Key) -> Layout:
    """Some layouts, so that the archive grows now and then."""
    return (Field("u", "<f8", (3000 + 500 * (key.step % 3),)), Field("t", "<f4", ()))


def content_of(key: Key) -> bytes:
    """The bytes of a checkpoint are a function of its key."""
    return b"".join(buffers(contents(layout_of(key), seed=KEYS.index(key))))


# Killed


def write_until_killed(path: Path, diary: int, seed: int) -> None:
    """Write and discard at random; the diary gets a line before each action and a dot after it."""
    dice = random.Random(seed)
    archive = Hdf5(path)
    while True:
        held = set(archive.keys())
        key = dice.choice(KEYS)
        os.write(diary, f"{'-' if key in held else '+'}{KEYS.index(key)}\n".encode())
        if key in held:
            archive.discard(key)
        else:
            data = memoryview(content_of(key))
            archive.write(key, layout_of(key), [data[:-4], data[-4:]])
        os.write(diary, b".\n")


def after(diary: Path, held: set[Key]) -> tuple[set[Key], Key | None]:
    """What is certainly held according to a diary, and the key that was in the hand."""
    held, last = set(held), None
    for line in diary.read_text().splitlines():
        if line != ".":
            last = line
            continue
        assert last is not None
        (held.add if last[0] == "+" else held.remove)(KEYS[int(last[1:])])
        last = None
    return held, KEYS[int(last[1:])] if last else None


def killed_writer(path: Path, diary: Path, seed: int, actions: int) -> None:
    """Kill a writer when it has done some actions, wherever it is then."""
    fd = os.open(diary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
    child = os.fork()
    if child == 0:
        try:
            write_until_killed(path, fd, seed)
        finally:
            os._exit(1)
    os.close(fd)
    deadline = time.monotonic() + 30
    while diary.read_bytes().count(b".") < actions and time.monotonic() < deadline:
        time.sleep(0.0005)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the writer ended by itself"


def check(path: Path, held: set[Key], open_key: Key | None) -> set[Key]:
    """What the archive holds, which must be `held`, with the key in the hand or without it."""
    with h5py.File(path) as file:
        for name in set(file) - {"README"}:
            assert file[name]["keys"].shape[0] == file[name]["u"][:].shape[0]
    archive = Hdf5(path)
    found = set(archive.keys())
    assert found - {open_key} == held - {open_key}
    for key in found:
        assert get(archive, key, layout_of(key)) == content_of(key)
    archive.close()
    return found


def campaign(tmp_path: Path, kills: int) -> None:
    path, diary = tmp_path / "archive.h5", tmp_path / "diary"
    held: set[Key] = set()
    actions = 0
    for seed in range(kills):
        if seed % 10 == 0:
            path.unlink(missing_ok=True)
            held = set()
        killed_writer(path, diary, seed, random.Random(-1 - seed).randrange(60))
        actions += diary.read_text().count(".")
        if path.exists():
            held = check(path, *after(diary, held))
    assert actions > 10 * kills
    assert set(tmp_path.iterdir()) == {path, diary}


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_killed_writer_loses_nothing_and_leaves_nothing_torn(tmp_path: Path) -> None:
    campaign(tmp_path, 30)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_writer_killed_very_often_loses_nothing(tmp_path: Path) -> None:
    campaign(tmp_path, 300)


# Growing


def growth(archive: Path, groups: int) -> Iterator[tuple[int, int]]:
    """Let an archive grow, one write at a time; yields the groups it has, then those of HDF5."""
    written: list[tuple[int, bytes]] = []

    class Diary(Files):
        def write(self, fd: int, data: Buffers, offset: int, /) -> None:
            written.append((offset, b"".join(data)))

    fd = os.open(archive, os.O_RDWR)
    dice = random.Random(groups)
    try:
        for number in range(groups):
            there, end = hdf5_file.survey(Files(), fd, archive)
            kind = list(Kind)[number * 7 % 3]
            name = f"{kind.name.lower()}-{sum(group.kind is kind for group in there)}"
            fields = tuple(Field(f"f{i}", "<f4", (5 + number,), "m") for i in range(1 + number % 4))
            for _ in range(1 + (dice.random() < 0.2)):
                # A writer that is killed before its last write, and the next one: both grow it.
                written.clear()
                hdf5_file.add_group(
                    Diary(),
                    fd,
                    name,
                    kind,
                    form_of(fields),
                    slots=1 + number % 3,
                    end=end,
                    sync=False,
                )
                for at, data in written[:-1]:
                    os.pwrite(fd, data, at)
                    yield number, number
            at, data = written[-1]
            assert at == 4096 == len(data)
            os.pwrite(fd, data, at)
            yield number + 1, number + 1
    finally:
        os.close(fd)


@pytest.mark.parametrize("groups", [30, pytest.param(MAX_GROUPS, marks=pytest.mark.slow)])
def test_a_growing_file_is_readable_after_every_single_write(tmp_path: Path, groups: int) -> None:
    path = tmp_path / "archive.h5"
    hdf5_file.create(path)
    for ours, theirs in growth(path, groups):
        with h5py.File(path) as file:
            names = [name for name in file if name != "README"]
            assert len(names) == theirs
            for name in names:
                assert file[name]["f0"].shape[0] == file[name]["keys"].shape[0]
        fd = os.open(path, os.O_RDONLY)
        found, _ = hdf5_file.survey(Files(), fd, path)
        os.close(fd)
        assert len(found) == ours
        assert sorted(group.name for group in found) == sorted(names)


def test_growth_that_was_cut_short_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "archive.h5"
    archive = Hdf5(path)
    key = KEYS[0]
    original = put(archive, key, layout_of(key))
    archive.close()

    class Killed(Files):
        def write(self, fd: int, data: Buffers, offset: int, /) -> None:
            if offset == 4096:
                os._exit(9)
            super().write(fd, data, offset)

    child = os.fork()
    if child == 0:
        put(Hdf5(path, files=Killed()), Key(Kind.TAPE, 1), layout_of(key))
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    Hdf5(path).close()
    with h5py.File(path) as file:
        assert set(file) == {"README", "restart-0"}
    archive = Hdf5(path)
    others = {
        Key(Kind.TAPE, step): put(archive, Key(Kind.TAPE, step), layout_of(key), seed=step)
        for step in range(4)
    }
    archive.close()
    archive = Hdf5(path)
    assert {k: get(archive, k, layout_of(key)) for k in set(archive.keys())} == {
        key: original,
        **others,
    }
    archive.close()


# Flipped


def test_a_flipped_bit_gives_no_wrong_bytes(tmp_path: Path) -> None:
    """Anywhere in the file but in HDF5's own metadata, whose reader is not ours."""
    path = tmp_path / "archive.h5"
    archive = Hdf5(path)
    originals = {key: put(archive, key, layout_of(key), seed=key.step) for key in KEYS[:4]}
    archive.close()
    sound = path.read_bytes()
    dice = np.random.default_rng(5)
    payload = [sound.index(original[:64]) for original in originals.values()]
    for position in [begin + int(dice.integers(20_000)) for begin in payload for _ in range(12)]:
        damaged = bytearray(sound)
        damaged[position] ^= 1 << int(dice.integers(8))
        path.write_bytes(damaged)
        archive = Hdf5(path)
        read = {}
        for key in set(archive.keys()):
            try:
                read[key] = get(archive, key, layout_of(key))
            except CorruptCheckpoint:
                continue
        assert read.items() <= originals.items()
        assert len(read) >= len(originals) - 1
        archive.close()
