"""What a directory makes of files that are no longer what it wrote: told, never believed."""

import os
import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from ckio.actions import Field, Key, Kind, Layout
from ckio.backends.contents import Damaged, Stored, sound
from ckio.backends.directory import Directory
from ckio.backends.directory.format import BLOCK, FREE, LIVE, FileHead
from ckio.errors import CorruptCheckpoint, LevelFull, MissingCheckpoint
from ckio.testing import FLOW, a, get, put, raw, x

LAYOUTS: Mapping[Key, Layout] = {
    x(0): FLOW,
    x(1): raw(9000),
    Key(Kind.TAPE, 1, "psi/∂t"): FLOW,
    a(7): tuple(Field(f"tracer {number}", "<f4", (2,)) for number in range(200)),
}


def filled(place: Path) -> dict[Key, bytes]:
    """Make a level with a few checkpoints, and free slots between them."""
    level = Directory(place)
    put(level, x(2), FLOW)
    originals = {
        key: put(level, key, layout, seed=seed)
        for seed, (key, layout) in enumerate(LAYOUTS.items())
    }
    level.discard(x(2))
    level.close()
    return originals


def read_all(place: Path, originals: Mapping[Key, bytes]) -> set[Key]:
    """The keys that are still good; of all others, each is told to be corrupt."""
    level = Directory(place)
    good = set()
    for key, original in originals.items():
        try:
            assert get(level, key, LAYOUTS[key]) == original
            good.add(key)
        except CorruptCheckpoint:
            pass
    assert set(level.keys()) <= set(originals)
    level.close()
    return good


def flip(path: Path, position: int, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ 1 << bit]))


def stride_of(path: Path) -> int:
    return int(path.name.split("-")[1])


def heads(path: Path) -> list[range]:
    """Where the heads of live slots lie in a file."""
    data = path.read_bytes()
    begins = range(BLOCK, len(data), stride_of(path))
    return [
        range(at, at + int.from_bytes(data[at + 8 : at + 12], "little"))
        for at in begins
        if data[at:].startswith(LIVE)
    ]


@pytest.mark.parametrize("most", [12, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_bit_flipped_in_a_live_head_costs_that_checkpoint_alone(
    tmp_path: Path, most: int
) -> None:
    originals = filled(tmp_path)
    dice = random.Random(3)
    seen = 0
    for path in tmp_path.iterdir():
        for head in heads(path):
            for position in dice.sample(head, min(most, len(head))):
                bit = dice.randrange(8)
                flip(path, position, bit)
                assert len(read_all(tmp_path, originals)) == len(originals) - 1
                assert any(isinstance(item, Damaged) for item in Directory.contents(tmp_path))
                flip(path, position, bit)
                seen += 1
    assert seen >= len(originals) * min(most, 200)
    assert read_all(tmp_path, originals) == set(originals)


@pytest.mark.parametrize("flips", [60, pytest.param(2500, marks=pytest.mark.slow)])
def test_a_bit_flipped_anywhere_gives_no_wrong_bytes_and_nothing_vanishes(
    tmp_path: Path, flips: int
) -> None:
    originals = filled(tmp_path)
    paths = sorted(tmp_path.iterdir())
    dice = random.Random(4)
    lost = 0
    for _ in range(flips):
        path = dice.choice(paths)
        position, bit = dice.randrange(path.stat().st_size), dice.randrange(8)
        flip(path, position, bit)
        good = read_all(tmp_path, originals)
        assert len(good) >= len(originals) - 1
        stored = [item for item in Directory.contents(tmp_path) if isinstance(item, Stored)]
        assert {item.key for item in stored if sound(item)} == good
        flip(path, position, bit)
        lost += len(good) < len(originals)
    assert lost > flips // 100
    assert read_all(tmp_path, originals) == set(originals)


def stored_at(place: Path, *keys: Key, nbytes: int = 100) -> Path:
    """Make a level with these checkpoints; return its only file."""
    level = Directory(place)
    for key in keys:
        put(level, key, raw(nbytes), seed=key.step)
    level.close()
    (path,) = place.iterdir()
    return path


def damage(place: Path) -> str:
    """Say what is damaged in a level, of which nothing else is left."""
    (damaged,) = Directory.contents(place)
    assert isinstance(damaged, Damaged)
    return damaged.what


def test_damage_is_told_by_each_absent_key_until_it_is_removed(tmp_path: Path) -> None:
    path = stored_at(tmp_path, x(0), x(1))
    flip(path, BLOCK + 30, 2)
    for turn in range(3):
        level = Directory(tmp_path)
        assert x(0) not in set(level.keys())
        for key in (x(0), Key(Kind.TAPE, 9)):
            with pytest.raises(CorruptCheckpoint, match=rf"no sound {key}.*{path.name}, byte 4096"):
                get(level, key, raw(100))
        assert len(get(level, x(1), raw(100))) == 100
        # It can be written to, elsewhere.
        assert put(level, x(10 + turn), raw(100)) == get(level, x(10 + turn), raw(100))
        level.close()
    level = Directory(tmp_path)
    level.remove()
    assert not tmp_path.exists()


def test_a_commit_word_that_is_neither_live_nor_free_is_damage(tmp_path: Path) -> None:
    path = stored_at(tmp_path, x(0))
    data = path.read_bytes()
    odd = b"ckioslt\x01", bytes(7) + b"\1", b"\1" + bytes(7), LIVE[:4] + FREE[4:]
    for word in (*odd, FREE[:4] + LIVE[4:]):
        path.write_bytes(data[:BLOCK] + word + data[BLOCK + 8 :])
        assert damage(tmp_path) == "its commit word is damaged"
        level = Directory(tmp_path)
        with pytest.raises(CorruptCheckpoint, match="commit word"):
            get(level, x(0), raw(100))
        level.close()


def test_no_single_bit_makes_a_free_slot_live_or_a_live_one_free() -> None:
    assert len(LIVE) == len(FREE) == 8
    assert sum((a ^ b).bit_count() for a, b in zip(LIVE, FREE, strict=True)) > 1


def test_a_slot_that_was_copied_elsewhere_is_damage(tmp_path: Path) -> None:
    level = Directory(tmp_path)
    put(level, x(0), raw(100))
    put(level, x(1), raw(100))
    level.discard(x(1))
    level.close()
    (path,) = tmp_path.iterdir()
    data = path.read_bytes()
    first, second = BLOCK, BLOCK + stride_of(path)
    assert data[second : second + 8] == FREE
    path.write_bytes(data[:second] + data[first:second] + data[second + second - first :])
    assert [type(item) for item in Directory.contents(tmp_path)] == [Stored, Damaged]


def test_a_file_that_was_cut_off_says_so(tmp_path: Path) -> None:
    for keep in (7, 4096, 4500, 12_000, 20_000):
        place = tmp_path / str(keep)
        path = stored_at(place, x(0), x(1), x(2), nbytes=4000)
        os.truncate(path, keep)
        for _ in range(2):
            level = Directory(place)
            assert len(level.keys()) == max(0, keep - BLOCK) // 8192
            for key in (x(0), x(1), x(2)):
                if key in set(level.keys()):
                    assert len(get(level, key, raw(4000))) == 4000
                else:
                    with pytest.raises(CorruptCheckpoint, match="cut off"):
                        get(level, key, raw(4000))
            # What would hide the loss is not done; other sizes are not concerned.
            with pytest.raises(LevelFull, match="was damaged and does not grow"):
                put(level, x(3), raw(4000))
            assert put(level, x(3), raw(50_000)) == get(level, x(3), raw(50_000))
            level.discard(x(3))
            level.close()
            assert path.stat().st_size == keep


def test_a_file_cut_off_under_an_open_level_is_corrupt(tmp_path: Path) -> None:
    path = stored_at(tmp_path, x(0), nbytes=10_000)
    level = Directory(tmp_path)
    os.truncate(path, 10_000)
    with pytest.raises(CorruptCheckpoint, match="x_0"):
        get(level, x(0), raw(10_000))
    level.close()


@pytest.mark.parametrize("name", ["slots-12288-v3.ckio", "slots-8193-v3.ckio", "copy.ckio"])
def test_a_file_that_was_renamed_is_damage_and_left_alone(tmp_path: Path, name: str) -> None:
    path = stored_at(tmp_path, x(0))
    data = path.read_bytes()
    path.rename(tmp_path / name)
    assert "renamed" in damage(tmp_path)
    level = Directory(tmp_path)
    with pytest.raises(CorruptCheckpoint, match="renamed"):
        get(level, x(0), raw(100))
    assert put(level, x(0), raw(100)) == get(level, x(0), raw(100))
    level.discard(x(0))
    level.close()
    assert (tmp_path / name).read_bytes() == data


def test_a_file_with_foreign_bytes_gives_nothing(tmp_path: Path) -> None:
    path = tmp_path / "slots-8192-v3.ckio"
    path.write_bytes(random.Random(5).randbytes(BLOCK + 5 * 8192 + 17))
    assert len(Directory.contents(tmp_path)) == 6  # its head, and its slots
    level = Directory(tmp_path)
    assert level.keys() == []
    with pytest.raises(CorruptCheckpoint):
        get(level, x(0), raw(1))
    level.close()


def test_a_huge_hollow_file_opens_at_once(tmp_path: Path) -> None:
    path = tmp_path / "slots-8192-v3.ckio"
    for slots, error in ((1 << 28, MissingCheckpoint), (1 << 62, CorruptCheckpoint)):
        path.write_bytes(FileHead(8192, slots).pack())
        os.truncate(path, BLOCK + (8192 << 28))
        level = Directory(tmp_path)
        assert level.keys() == []
        with pytest.raises(error):
            get(level, x(0), raw(1))
        level.close()


def test_a_head_that_lies_about_its_length_is_damage(tmp_path: Path) -> None:
    path = stored_at(tmp_path, x(0))
    data, at = path.read_bytes(), BLOCK + 8
    for number in (0, 1, 71, 4095, 8193, 1 << 31, (1 << 32) - 1):
        path.write_bytes(data[:at] + number.to_bytes(4, "little") + data[at + 4 :])
        assert damage(tmp_path), number
