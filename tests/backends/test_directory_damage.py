"""What a directory makes of files that are no longer what it wrote: told, never believed."""

import os
import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from ckio.actions import Field, Key, Kind, Layout
from ckio.backends.contents import Damaged, Stored, sound
from ckio.backends.directory import Directory
from ckio.backends.directory.format import BLOCK, FREE, LIVE, FileHead, outline
from ckio.backends.forms import Form, form_of
from ckio.backends.runid import NOBODY
from ckio.errors import CorruptCheckpoint, LevelFull, MissingCheckpoint
from ckio.testing import FLOW, get, put, raw

X0, X1, X2, X3 = (Key(Kind.RESTART, step) for step in range(4))
LAYOUTS: Mapping[Key, Layout] = {
    X0: FLOW,
    X1: raw(9000),
    Key(Kind.TAPE, 1, "psi/∂t"): FLOW,
    Key(Kind.ADJOINT, 7): tuple(Field(f"tracer {number}", "<f4", (2,)) for number in range(200)),
}


def filled(place: Path) -> dict[Key, bytes]:
    """Make a level with a few checkpoints, and free slots between them."""
    level = Directory(place)
    put(level, X2, FLOW)
    originals = {
        key: put(level, key, layout, seed=seed)
        for seed, (key, layout) in enumerate(LAYOUTS.items())
    }
    level.discard(X2)
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


def heads(path: Path, stride: int) -> list[range]:
    """Where the heads of live slots lie in a file."""
    data = path.read_bytes()
    begins = [at for at in range(BLOCK, len(data), stride) if data[at:].startswith(LIVE)]
    return [range(at, at + int.from_bytes(data[at + 8 : at + 12], "little")) for at in begins]


def stride_of(path: Path) -> int:
    return int(path.name.split("-")[1])


def test_a_bit_flipped_in_a_live_head_costs_that_checkpoint_alone(tmp_path: Path) -> None:
    _flip_heads(tmp_path, most=24)


@pytest.mark.slow
def test_many_bits_flipped_in_live_heads_cost_those_checkpoints_alone(tmp_path: Path) -> None:
    _flip_heads(tmp_path, most=1_000)


def _flip_heads(place: Path, *, most: int) -> None:
    originals = filled(place)
    dice = random.Random(3)
    seen = 0
    for path in place.iterdir():
        for head in heads(path, stride_of(path)):
            for position in dice.sample(head, min(most, len(head))):
                bit = dice.randrange(8)
                flip(path, position, bit)
                assert len(read_all(place, originals)) == len(originals) - 1
                assert any(isinstance(item, Damaged) for item in Directory.contents(place))
                flip(path, position, bit)
                seen += 1
    assert seen >= len(originals) * min(most, 200)
    assert read_all(place, originals) == set(originals)


def test_a_bit_flipped_anywhere_gives_no_wrong_bytes_and_nothing_vanishes(tmp_path: Path) -> None:
    _flip_anywhere(tmp_path, flips=120)


@pytest.mark.slow
def test_bits_flipped_all_over_give_no_wrong_bytes_and_nothing_vanishes(tmp_path: Path) -> None:
    _flip_anywhere(tmp_path, flips=2_500)


def _flip_anywhere(place: Path, *, flips: int) -> None:
    originals = filled(place)
    paths = sorted(place.iterdir())
    dice = random.Random(4)
    lost = 0
    for _ in range(flips):
        path = dice.choice(paths)
        position, bit = dice.randrange(path.stat().st_size), dice.randrange(8)
        flip(path, position, bit)
        good = read_all(place, originals)
        assert len(good) >= len(originals) - 1
        stored = [item for item in Directory.contents(place) if isinstance(item, Stored)]
        assert {item.key for item in stored if sound(item)} == good
        flip(path, position, bit)
        lost += len(good) < len(originals)
    assert lost > flips // 100
    assert read_all(place, originals) == set(originals)


def test_damage_is_told_by_each_absent_key_until_it_is_removed(tmp_path: Path) -> None:
    level = Directory(tmp_path)
    put(level, X0, raw(100), seed=1)
    other = put(level, X1, raw(100), seed=2)
    level.close()
    (path,) = tmp_path.iterdir()
    flip(path, BLOCK + 30, 2)
    for turn in range(3):
        level = Directory(tmp_path)
        assert X0 not in set(level.keys())
        for key in (X0, Key(Kind.TAPE, 9)):
            with pytest.raises(CorruptCheckpoint, match=rf"no sound {key}.*{path.name}, byte 4096"):
                get(level, key, raw(100))
        assert get(level, X1, raw(100)) == other
        # It can be written to, elsewhere.
        key = Key(Kind.RESTART, 10 + turn)
        assert put(level, key, raw(100)) == get(level, key, raw(100))
        level.close()
    level = Directory(tmp_path)
    level.remove()
    assert not tmp_path.exists()


@pytest.mark.parametrize(
    "word",
    [b"ckioslt\x01", bytes(7) + b"\1", b"\1" + bytes(7), LIVE[:4] + FREE[4:], FREE[:4] + LIVE[4:]],
)
def test_a_commit_word_that_is_neither_live_nor_free_is_damage(tmp_path: Path, word: bytes) -> None:
    level = Directory(tmp_path)
    put(level, X0, raw(100))
    level.close()
    (path,) = tmp_path.iterdir()
    with path.open("r+b") as file:
        file.seek(BLOCK)
        file.write(word)
    (damaged,) = Directory.contents(tmp_path)
    assert isinstance(damaged, Damaged)
    assert damaged.what == "its commit word is damaged"
    with pytest.raises(CorruptCheckpoint, match="commit word"):
        get(Directory(tmp_path), X0, raw(100))


def test_no_single_bit_makes_a_free_slot_live_or_a_live_one_free() -> None:
    assert sum(byte.bit_count() for byte in LIVE) > 1
    assert len(LIVE) == len(FREE) == 8


def test_a_slot_that_was_copied_elsewhere_is_damage(tmp_path: Path) -> None:
    level = Directory(tmp_path)
    put(level, X0, raw(100))
    put(level, X1, raw(100))
    level.discard(X1)
    level.close()
    (path,) = tmp_path.iterdir()
    data = path.read_bytes()
    first, second = BLOCK, BLOCK + stride_of(path)
    assert data[second : second + 8] == FREE
    path.write_bytes(data[:second] + data[first:second] + data[second + second - first :])
    assert [type(item) for item in Directory.contents(tmp_path)] == [Stored, Damaged]


@pytest.mark.parametrize("keep", [7, 4096, 4500, 12_000, 20_000])
def test_a_file_that_was_cut_off_says_so(tmp_path: Path, keep: int) -> None:
    level = Directory(tmp_path)
    for step in range(3):
        put(level, Key(Kind.RESTART, step), raw(4000), seed=step)
    level.close()
    (path,) = tmp_path.iterdir()
    os.truncate(path, keep)
    for _ in range(2):
        level = Directory(tmp_path)
        assert len(level.keys()) == max(0, keep - BLOCK) // 8192
        for step in range(3):
            key = Key(Kind.RESTART, step)
            if key in set(level.keys()):
                assert len(get(level, key, raw(4000))) == 4000
            else:
                with pytest.raises(CorruptCheckpoint, match="cut off"):
                    get(level, key, raw(4000))
        # What would hide the loss is not done; other sizes are not concerned.
        with pytest.raises(LevelFull, match="was damaged and does not grow"):
            put(level, X3, raw(4000))
        assert put(level, X3, raw(50_000)) == get(level, X3, raw(50_000))
        level.discard(X3)
        level.close()
        assert path.stat().st_size == keep


@pytest.mark.parametrize("name", ["slots-12288-v3.ckio", "slots-8193-v3.ckio", "copy.ckio"])
def test_a_file_that_was_renamed_is_damage_and_left_alone(tmp_path: Path, name: str) -> None:
    level = Directory(tmp_path)
    put(level, X0, raw(100))
    level.close()
    (path,) = tmp_path.iterdir()
    data = path.read_bytes()
    path.rename(tmp_path / name)
    (damaged,) = Directory.contents(tmp_path)
    assert isinstance(damaged, Damaged)
    assert "renamed" in damaged.what
    level = Directory(tmp_path)
    with pytest.raises(CorruptCheckpoint, match="renamed"):
        get(level, X0, raw(100))
    assert put(level, X0, raw(100)) == get(level, X0, raw(100))
    level.discard(X0)
    level.close()
    assert (tmp_path / name).read_bytes() == data


def test_a_file_cut_off_under_an_open_level_is_corrupt(tmp_path: Path) -> None:
    level = Directory(tmp_path)
    put(level, X0, raw(10_000))
    (path,) = tmp_path.iterdir()
    os.truncate(path, 10_000)
    with pytest.raises(CorruptCheckpoint, match="x_0"):
        get(level, X0, raw(10_000))
    level.close()


def test_a_file_with_foreign_bytes_gives_nothing(tmp_path: Path) -> None:
    path = tmp_path / "slots-8192-v3.ckio"
    path.write_bytes(random.Random(5).randbytes(BLOCK + 5 * 8192 + 17))
    assert len(Directory.contents(tmp_path)) == 6  # its head, and its slots
    level = Directory(tmp_path)
    assert level.keys() == []
    with pytest.raises(CorruptCheckpoint):
        get(level, X0, raw(1))
    level.close()


# Heads that somebody made


def _form(layout: Layout, *, nbytes: int | None = None, text: bytes | None = None) -> Form:
    form = form_of(layout)
    return Form(
        layout,
        form.sizes,
        form.nbytes if nbytes is None else nbytes,
        form.text if text is None else text,
    )


def _forged(place: Path, form: Form, *, sequence: int = 1, written: float = 0.0) -> None:
    """A file with one live slot, whose head has this form and a good check."""
    head = outline(form, "").pack(X0, sequence, written, b"", BLOCK, run=NOBODY.pack())
    slot = (LIVE + head)[:8192].ljust(8192, b"\0")
    file = FileHead(8192, 1).pack().ljust(BLOCK, b"\0") + slot
    (place / "slots-8192-v3.ckio").write_bytes(file)


@pytest.mark.parametrize(
    "form",
    [
        _form((Field("x", "|u1", (1 << 60,)),)),
        _form(raw(10), nbytes=1 << 62),
        _form(raw(10), text=b"[" * 2000),
        _form(raw(10), text=b'[["x","O",[10],""]]'),
        _form(raw(10), text=b'[["x","|u1",[-10],""]]'),
        _form(raw(10), text=b'[["x","|u1",["10"],""]]'),
        _form(raw(10), text=b'[["x","no such type",[10],""]]'),
        _form(raw(10), text=b'[["x","|u1",[' + b"0," * 99 + b'0],""]]', nbytes=0),
        _form(raw(10), text=b'[["x","|u1",[0,' + b"9" * 3000 + b'],""]]', nbytes=0),
        _form(raw(10), text=b'{"x":1}'),
        _form(raw(10), text=b'[["x","|u1",[10],""]]' + b" " * 5000),
        _form(raw(10), text=b'[["x","|u1",[10],""]]' + b" " * 500_000),
    ],
)
def test_a_head_that_makes_no_sense_is_damage(tmp_path: Path, form: Form) -> None:
    _forged(tmp_path, form)
    level = Directory(tmp_path)
    with pytest.raises(CorruptCheckpoint, match="x_0"):
        get(level, X0, raw(10))
    assert level.keys() == []
    level.close()


@pytest.mark.parametrize("number", [0, 1, 71, 4095, 8193, 1 << 31, (1 << 32) - 1])
def test_a_head_that_lies_about_its_length_is_damage(tmp_path: Path, number: int) -> None:
    _forged(tmp_path, form_of(raw(10)))
    path = tmp_path / "slots-8192-v3.ckio"
    data = path.read_bytes()
    at = BLOCK + 8
    path.write_bytes(data[:at] + number.to_bytes(4, "little") + data[at + 4 :])
    (damaged,) = Directory.contents(tmp_path)
    assert isinstance(damaged, Damaged)


@pytest.mark.parametrize(
    ("sequence", "written"), [((1 << 64) - 1, 0.0), (1, float("nan")), (1, float("inf"))]
)
def test_numbers_that_we_never_write_are_damage(
    tmp_path: Path, sequence: int, written: float
) -> None:
    _forged(tmp_path, form_of(raw(10)), sequence=sequence, written=written)
    (damaged,) = Directory.contents(tmp_path)
    assert isinstance(damaged, Damaged)


def test_a_forged_head_that_makes_sense_is_believed(tmp_path: Path) -> None:
    """So that the tests above fail for the reason they name."""
    _forged(tmp_path, form_of(raw(10)))
    level = Directory(tmp_path, checksum=False)
    assert get(level, X0, raw(10)) == bytes(10)
    level.close()


@pytest.mark.parametrize("slots", [1 << 28, 1 << 62])
def test_a_huge_hollow_file_opens_at_once(tmp_path: Path, slots: int) -> None:
    path = tmp_path / "slots-8192-v3.ckio"
    path.write_bytes(FileHead(8192, slots).pack())
    os.truncate(path, BLOCK + (8192 << 28))
    level = Directory(tmp_path)
    assert level.keys() == []
    with pytest.raises(MissingCheckpoint if slots == 1 << 28 else CorruptCheckpoint):
        get(level, X0, raw(1))
    level.close()


def test_random_damage_gives_no_wrong_bytes_and_nothing_vanishes(
    tmp_path: Path,
) -> None:
    originals = filled(tmp_path)
    paths = sorted(tmp_path.iterdir())
    sane = {path: path.read_bytes() for path in paths}
    dice = random.Random(6)
    for _ in range(60):
        path = dice.choice(paths)
        data = bytearray(sane[path])
        begin = dice.randrange(len(data))
        end = begin + dice.choice((1, 8, 512, 4096, len(data)))
        data[begin:end] = dice.randbytes(len(data[begin:end]))
        path.write_bytes(data)
        read_all(tmp_path, originals)
        path.write_bytes(sane[path])
    assert read_all(tmp_path, originals) == set(originals)
