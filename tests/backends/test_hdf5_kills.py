"""The HDF5 archive whose writer is killed at any moment, or whose machine fails while it grows."""

import errno
import os
import random
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

import h5py
import pytest

from ckio.actions import Buffers, Field, Key, Kind, Layout
from ckio.backends.contents import Stored, sound
from ckio.backends.files import Files
from ckio.backends.hdf5 import Hdf5
from ckio.backends.hdf5.heads import MAX_GROUPS
from ckio.errors import StorageError
from ckio.testing import buffers, contents, get, put

from .archives import Tape, killed_writer, laid_over

KEYS = [Key(kind, step) for kind in Kind for step in range(7)]


def layout_of(key: Key) -> Layout:
    """Some layouts, so that the archive grows now and then."""
    return (Field("u", "<f8", (3000 + 500 * (key.step % 3),)), Field("t", "<f4", ()))


def content_of(key: Key) -> bytes:
    """The bytes of a checkpoint are a function of its key."""
    return b"".join(buffers(contents(layout_of(key), seed=KEYS.index(key))))


# Killed


def write_until_killed(path: Path, diary: int, seed: int, durability: str) -> None:
    """Write and discard at random; the diary gets a line before each action and a dot after it."""
    dice = random.Random(seed)
    archive = Hdf5(path, durability=durability)
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


def check(path: Path, held: set[Key], open_key: Key | None) -> set[Key]:
    """What the archive holds, which must be `held`, with the key in the hand or without it."""
    with h5py.File(path) as file:
        for name, group in ((name, file[name]) for name in set(file) - {"README"}):
            for slot, row in enumerate(group["keys"][:]):
                if row["state"] == b"stored":
                    key = Key(Kind[name.split("-")[0].upper()], int(row["step"]))
                    u, t = group["u"][slot], group["t"][slot]
                    assert u.tobytes() + t.tobytes() == content_of(key)
    listed = Hdf5.contents(path)
    assert all(isinstance(it, Stored) and sound(it) for it in listed)
    archive = Hdf5(path)
    found = set(archive.keys())
    assert found == {it.key for it in listed if isinstance(it, Stored)}
    assert found - {open_key} == held - {open_key}
    for key in found:
        assert get(archive, key, layout_of(key)) == content_of(key)
    archive.close()
    return found


def campaign(tmp_path: Path, kills: int, durability: str) -> None:
    path, diary = tmp_path / "archive.h5", tmp_path / "diary"
    held: set[Key] = set()
    actions = 0
    for seed in range(kills):
        if seed % 10 == 0:
            path.unlink(missing_ok=True)
            held = set()
        write = partial(write_until_killed, path, seed=seed, durability=durability)
        killed_writer(diary, random.Random(-1 - seed).randrange(120), write)
        actions += diary.read_text().count(".")
        if path.exists():
            held = check(path, *after(diary, held))
    assert actions > 10 * kills
    assert set(tmp_path.iterdir()) == {path, diary}


@pytest.mark.campaign
@pytest.mark.parametrize("durability", ["process", "fdatasync"])
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_killed_writer_loses_nothing_and_leaves_nothing_torn(
    tmp_path: Path, durability: str
) -> None:
    campaign(tmp_path, 20, durability)


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["process", "fdatasync"])
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_writer_killed_very_often_loses_nothing(tmp_path: Path, durability: str) -> None:
    campaign(tmp_path, 250, durability)


# Growing

BEFORE, NEW = KEYS[:3], Key(Kind.ADJOINT, 1)


def growth(path: Path) -> tuple[bytes, list[list[tuple[int, bytes]]]]:
    """An archive that holds BEFORE, and the writes by which it grows for NEW, between its syncs."""
    archive = Hdf5(path, durability="fdatasync")
    for key in BEFORE:
        put(archive, key, layout_of(key), seed=KEYS.index(key))
    archive.close()
    base, tape = path.read_bytes(), Tape()
    archive = Hdf5(path, durability="fdatasync", files=tape)
    tape.epochs = [[]]
    archive.prepare(NEW, layout_of(NEW), 1)
    archive.close()
    assert tape.epochs.pop() == []
    return base, tape.epochs


def check_grown(path: Path, image: bytes) -> None:
    """An archive with these bytes holds BEFORE; HDF5 reads it, and it grows like any other."""
    path.write_bytes(image)
    assert {it.key for it in Hdf5.contents(path) if isinstance(it, Stored)} == set(BEFORE)
    for turn in range(2):
        archive = Hdf5(path, durability="fdatasync")
        assert set(archive.keys()) == set(BEFORE if turn == 0 else [*BEFORE, NEW])
        for key in list(archive.keys()):
            assert get(archive, key, layout_of(key)) == content_of(key)
        with h5py.File(path) as file:
            names = set(file) - {"README"}
            assert len(names) in (3, 4) if turn == 0 else len(names) == 4
            assert all(file[name]["u"].shape[0] == file[name]["keys"].shape[0] for name in names)
        if turn == 0:
            put(archive, NEW, layout_of(NEW), seed=KEYS.index(NEW))
        archive.close()


def sectors(writes: Iterable[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    return [
        (at + begin, data[begin : begin + 512])
        for at, data in writes
        for begin in range(0, len(data) or 1, 512)
    ]


def test_growth_has_three_stages_each_on_the_device_before_the_next(tmp_path: Path) -> None:
    base, (group, mirror, pages) = growth(tmp_path / "archive.h5")
    assert min(at for at, _ in group) >= len(base)
    assert [(at, len(data)) for at, data in mirror] == [(3 * 4096, 3 * 4096)]
    assert [(at, len(data)) for at, data in pages] == [(at * 4096, 4096) for at in range(3)]
    assert b"".join(data for _, data in pages) == mirror[0][1]


def test_a_machine_that_fails_while_an_archive_grows_loses_nothing(tmp_path: Path) -> None:
    """What was not synced may be there or not, sector by sector and in any order."""
    path, dice = tmp_path / "archive.h5", random.Random(1)
    base, epochs = growth(path)
    checked = 0
    for epoch in epochs:
        parts = sectors(epoch)
        for done in range(0, len(parts), 1 + len(parts) // 40):
            check_grown(path, laid_over(base, parts[:done]))
            some = dice.sample(parts, dice.randrange(len(parts)))
            check_grown(path, laid_over(base, some))
            checked += 2
        base = laid_over(base, epoch)
    check_grown(path, base)
    assert checked > 100


def test_hdf5_reads_a_growing_archive_after_every_single_write(tmp_path: Path) -> None:
    """A kill cuts the writes short, and people may look before ckio opens it again."""
    path = tmp_path / "archive.h5"
    image, epochs = growth(path)
    for at, data in [write for epoch in epochs for write in epoch]:
        for begin in range(0, len(data) or 1, 4096):
            image = laid_over(image, [(at + begin, data[begin : begin + 4096])])
            path.write_bytes(image)
            with h5py.File(path) as file:
                for name in set(file) - {"README"}:
                    assert file[name]["u"][:].shape[0] == file[name]["keys"].shape[0]
            check_grown(path, image)


@pytest.mark.parametrize("groups", [20, pytest.param(MAX_GROUPS, marks=pytest.mark.slow)])
def test_an_archive_of_many_groups_survives_a_kill_in_each_growth(
    tmp_path: Path, groups: int
) -> None:
    path, dice = tmp_path / "archive.h5", random.Random(groups)
    written: dict[Key, bytes] = {}
    for number in range(groups):
        key = Key(list(Kind)[number * 7 % 3], number)
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
        archive = Hdf5(path, files=(disk := Worn()))
        disk.left = number
        with suppress(StorageError):
            archive.prepare(NEW, layout_of(NEW), 1)
        # Not even taking it back works; and then all is well again.
        disk.left = 1 << 30
        originals = {key: content_of(key) for key in BEFORE}
        originals[NEW] = put(archive, NEW, layout_of(NEW), seed=KEYS.index(NEW))
        archive.close()
        archive = Hdf5(path)
        assert {key: get(archive, key, layout_of(key)) for key in set(archive.keys())} == originals
        archive.close()


class Worn(Files):
    """A disk on which nothing can be written once `left` writes were done."""

    left = 1 << 30

    def pwritev(self, fd: int, data: Buffers, offset: int, /) -> int:
        self.left -= 1
        if self.left < 0:
            raise OSError(errno.EIO, "the disk is worn out")
        return super().pwritev(fd, data, offset)


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
            put(other, KEYS[0], layout_of(KEYS[0]), seed=0)
            other.close()
            super().rename(old, new)

    archive = Hdf5(path, files=Slow())
    assert get(archive, KEYS[0], layout_of(KEYS[0])) == content_of(KEYS[0])
    archive.close()
    assert [it.name for it in tmp_path.iterdir()] == ["archive.h5"]
