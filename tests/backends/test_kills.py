"""Levels whose writer is killed at any moment, and an archive that is killed while it grows."""

import os
import random
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import pytest

from ckio.actions import Buffers, Field, Key, Layout
from ckio.actions import Kind as KeyKind
from ckio.backends.contents import Stored, sound
from ckio.backends.files import Files
from ckio.backends.hdf5 import Hdf5
from ckio.backends.hdf5.file import USER, journal_in
from ckio.errors import StorageError
from ckio.testing import get, put

from .archives import Tape, blocks_of_at_most, killed_writer, laid_over
from .common import BROKEN, Struck
from .plain import Reader, Seen, as_seen, reader
from .workload import ANY_DURABILITY, Kind, plain

KEYS = [Key(kind, step) for kind in KeyKind for step in range(7)]

Held = dict[Key, int]
"""What an archive holds: of each key, the number of its write."""


@pytest.fixture(autouse=True)
def small_blocks() -> Iterator[None]:
    with blocks_of_at_most(1 << 10):
        yield


def layout_of(key: Key) -> Layout:
    """Some layouts for each kind, so that the archive grows now and then."""
    size = 3000 if key.step == 6 else 400 + 80 * (key.step % 3)
    return (Field("u", "<f8", (size,)), Field("v", "<f4", (7, 11)), Field("t", "<i4", ()))


def data_of(key: Key, write: int) -> Buffers:
    """The bytes of a checkpoint: no two writes have the same, nor shrink alike."""
    noise = np.random.default_rng([KEYS.index(key), write])
    data = []
    for field in layout_of(key):
        size = int(np.prod(field.shape))
        rough = noise.integers(1, 1 << 30, size) * (np.arange(size) % (1 + write % 11) == 0)
        data.append(memoryview(rough.astype(field.dtype).tobytes()))
    return data


def content_of(key: Key, write: int = 1) -> bytes:
    return b"".join(data_of(key, write))


# Killed


def write_until_killed(kind: Kind, root: Path, diary: int, seed: int) -> None:
    """Write and discard at random; the diary gets a line before each action and a dot after it."""
    dice, write = random.Random(seed), 1000 * seed
    level = kind.open(root)
    while True:
        key = dice.choice(KEYS)
        write += 1
        stored = key in set(level.keys())
        data = [] if stored else data_of(key, write)
        os.write(diary, f"{KEYS.index(key)} {0 if stored else write}\n".encode())
        if stored:
            level.discard(key)
        else:
            level.write(key, layout_of(key), data)
        os.write(diary, b".\n")


def after(diary: Path, held: Held) -> list[Held]:
    """Return what a diary lets an archive hold: one thing, or two if an action had begun."""
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
    return {key: as_seen(layout_of(key), data_of(key, write)) for key, write in held.items()}


def is_growing(path: Path) -> bool:
    """Whether its writer was killed while it changed metadata, which the journal has."""
    return bool(journal_in(path.read_bytes()[:USER]))


def check(kind: Kind, root: Path, plain: Reader, may_be: list[Held]) -> Held:
    """Return what a level holds; h5py sees the same of an archive after ckio has opened it.

    Before, too, unless its writer was killed in the last stage of a growth.
    """
    path, archive = kind.place(root), kind.backend is Hdf5
    before = plain.stored(path) if archive else None
    assert not archive or before is not None or is_growing(path)
    listed = kind.contents(root)
    assert all(isinstance(it, Stored) and sound(it) for it in listed)
    keys = {it.key for it in listed if isinstance(it, Stored)}
    (held,) = [held for held in may_be if set(held) == keys]
    level = kind.open(root)
    assert set(level.keys()) == set(held)
    for key, write in held.items():
        assert level.layout(key) == layout_of(key)
        assert get(level, key, layout_of(key)) == content_of(key, write)
    level.close()
    if archive:
        assert plain.stored(path) == as_stored(held)
        assert before in (None, as_stored(held))
    return held


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize(
    ("kind", "kills"),
    [
        *[(kind, 4) for kind in plain("process")],
        *[pytest.param(it, 250, marks=pytest.mark.slow) for it in plain(*ANY_DURABILITY)],
    ],
    ids=str,
)
def test_a_killed_writer_loses_nothing_and_leaves_nothing_torn(
    tmp_path: Path, kind: Kind, kills: int
) -> None:
    diary = tmp_path / "diary"
    held: Held = {}
    actions = 0
    with reader() as process:
        for seed in range(kills):
            if seed % 10 == 0 and held:
                kind.open(tmp_path).remove()  # type: ignore[attr-defined]
                held = {}
            write = partial(write_until_killed, kind, tmp_path, seed=seed)
            killed_writer(diary, random.Random(-1 - seed).randrange(2, 120), write)
            actions += diary.read_text().count(".")
            held = check(kind, tmp_path, process, after(diary, held))
    assert actions > 10 * kills
    assert set(tmp_path.iterdir()) == {kind.place(tmp_path), diary}


def test_h5py_reads_the_others_after_every_single_write_of_growth_and_commits(
    tmp_path: Path,
) -> None:
    """A kill cuts the writes short; they are cut at each sector here, which kills do not do."""
    path, tape = tmp_path / "archive.h5", Tape()
    level = Hdf5(path, files=tape)
    held = {KEYS[0]: 1, KEYS[6]: 2}
    for key, write in held.items():
        level.write(key, layout_of(key), data_of(key, write))
    level.close()
    image = path.read_bytes()
    level = Hdf5(path, files=tape)
    tape.epochs = [[]]
    # A group for another kind; a slot that is used again; and one more group for larger ones.
    steps = [(KEYS[8], 3), (KEYS[8], 0), (KEYS[9], 4), (KEYS[1], 11)]
    for key, write in steps:
        if write:
            level.write(key, layout_of(key), data_of(key, write))
        else:
            level.discard(key)
    level.close()
    ((*writes,),) = tape.epochs
    allowed = [as_stored(held)]
    for key, write in steps:
        held = {k: w for k, w in held.items() if k != key} | ({key: write} if write else {})
        allowed.append(as_stored(held))
    now = checked = refused = 0
    with reader() as process:
        for at, data in writes:
            for begin in range(0, len(data) or 1, 512 if len(data) < 4096 else 4096):
                image = laid_over(image, [(at, data[:begin])])
                path.write_bytes(image)
                seen = process.stored(path)
                checked += 1
                if seen is None:
                    refused += 1
                    assert is_growing(path)
                    continue
                now += seen != allowed[now]
                assert seen == allowed[now]
            image = laid_over(image, [(at, data)])
        path.write_bytes(image)
        assert process.stored(path) == allowed[-1]
    assert now >= len(steps) - 1
    assert checked > 40
    assert refused < 0.1 * checked


# Growing

BEFORE, NEW = KEYS[:3], Key(KeyKind.ADJOINT, 1)


def growth(path: Path) -> tuple[bytes, list[list[tuple[int, bytes]]]]:
    """An archive that holds BEFORE, and the writes by which it grows for NEW, between its syncs."""
    archive = Hdf5(path, durability="fdatasync")
    for key in BEFORE:
        archive.write(key, layout_of(key), data_of(key, 1))
    archive.close()
    base, tape = path.read_bytes(), Tape()
    archive = Hdf5(path, durability="fdatasync", files=tape)
    tape.epochs = [[]]
    archive.prepare(NEW, layout_of(NEW), 1)
    archive.close()
    assert len(tape.epochs) == 4
    return base, tape.epochs


@pytest.mark.parametrize("groups", [20, pytest.param(96, marks=pytest.mark.slow)])
def test_an_archive_of_many_groups_survives_a_kill_in_each_growth(
    tmp_path: Path, groups: int
) -> None:
    path, dice = tmp_path / "archive.h5", random.Random(groups)
    written: dict[Key, bytes] = {}
    for number in range(groups):
        key = Key(list(KeyKind)[number * 7 % 3], number)
        layout = tuple(Field(f"f{i}", "<f4", (5 + number,), "m") for i in range(1 + number % 4))
        base, tape = path.read_bytes() if written else b"", Tape()
        if base:
            archive = Hdf5(path, files=tape)
            tape.epochs = [[]]
            archive.prepare(key, layout, 1)
            archive.close()
            writes = tape.epochs[0]
            path.write_bytes(laid_over(base, writes[: dice.randrange(len(writes))]))
        archive = Hdf5(path)
        written[key] = put(archive, key, layout, seed=number)
        archive.close()
    archive = Hdf5(path)
    assert {key: get(archive, key, archive.layout(key)) for key in set(archive.keys())} == written
    archive.close()
    with h5py.File(path) as file:
        assert all(file[name]["f0"].shape[0] for name in set(file) - {"README"})


def test_growth_that_the_disk_refuses_is_taken_back(tmp_path: Path) -> None:
    path = tmp_path / "archive.h5"
    base, epochs = growth(path)
    for number in range(sum(map(len, epochs)) + 1):
        path.write_bytes(base)
        archive = Hdf5(path, files=(disk := Struck("pwritev", error=BROKEN)))
        disk.left = number
        with suppress(StorageError):
            archive.prepare(NEW, layout_of(NEW), 1)
        # Not even taking it back works; and then all is well again.
        disk.left = 1 << 30
        originals = {key: content_of(key) for key in [*BEFORE, NEW]}
        archive.write(NEW, layout_of(NEW), data_of(NEW, 1))
        archive.close()
        archive = Hdf5(path)
        assert {key: get(archive, key, layout_of(key)) for key in set(archive.keys())} == originals
        archive.close()


# Made


def test_a_new_archive_has_its_name_only_when_it_is_whole(tmp_path: Path) -> None:
    done: list[str] = []
    whole = tmp_path / "whole.h5"
    Hdf5(whole).close()

    class Diary(Files):
        def make_directory(self, path: Path, /) -> None:
            done.append(f"make {path.name}")
            super().make_directory(path)

        def pwritev(self, fd: int, data: Buffers, offset: int, /) -> int:
            done.append("write")
            return super().pwritev(fd, data, offset)

        def sync(self, fd: int, /) -> None:
            done.append("sync")
            super().sync(fd)

        def sync_directory(self, path: Path, /) -> None:
            done.append(f"sync {path.name}")
            super().sync_directory(path)

        def rename(self, old: Path, new: Path, /) -> None:
            done.append("name")
            assert old.read_bytes() == whole.read_bytes()
            super().rename(old, new)

    path = tmp_path / "a" / "b" / "archive.h5"
    archive = Hdf5(path, durability="fdatasync", files=Diary())
    made = ["make a", f"sync {tmp_path.name}", "make b", "sync a"]
    assert done == [*made, "write", "sync", "name", "sync b", "sync", "sync b"]
    archive.close()
    assert [it.name for it in path.parent.iterdir()] == ["archive.h5"]


def test_whoever_is_faster_makes_the_archive(tmp_path: Path) -> None:
    path = tmp_path / "archive.h5"

    class Slow(Files):
        def rename(self, old: Path, new: Path, /) -> None:
            other = Hdf5(new)
            other.write(KEYS[0], layout_of(KEYS[0]), data_of(KEYS[0], 1))
            other.close()
            super().rename(old, new)

    archive = Hdf5(path, files=Slow())
    assert get(archive, KEYS[0], layout_of(KEYS[0])) == content_of(KEYS[0])
    archive.close()
    assert [it.name for it in tmp_path.iterdir()] == ["archive.h5"]
