"""Compressed archives: what people read of them, and how their slots are shared."""

import json
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import h5py
import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from installed import needs_blosc2, needs_hdf5plugin, needs_zfp, some

from ckio import Affine, Chain, Level, Platform, hrevolve, run, sizes_of
from ckio.actions import Buffers, Field, Key, Kind, Layout
from ckio.backends.compressed import Compressed
from ckio.backends.contents import Stored, sound
from ckio.backends.encoded import MARK, mark
from ckio.backends.forms import form_of
from ckio.backends.hdf5 import Hdf5
from ckio.backends.hdf5.allocation import ArchiveSlots
from ckio.backends.hdf5.heads import MAX_GROUPS, Group
from ckio.backends.ram import Ram
from ckio.compression import Blosc2, Codec, Zfp, Zstd
from ckio.errors import CorruptCheckpoint, StorageError
from ckio.models.vorticity import Vorticity
from ckio.testing import FLOW, a, buffers, get, put, raw, t, x

from .archives import flip
from .plain import as_seen, reader

ROOT = Path(__file__).parents[2]
WAVES: Layout = (
    Field("zeta", "<f8", (40, 50), "1/s"),
    Field("a/b", "<f4", (3, 7)),
    Field("none", "<f8", (0, 2)),
    Field("keys", "<i4", (9,)),
    Field("encoded", "|u1", (5, 4)),
    Field("time", "<f8", (), "s"),
)
NAMES = {"a/b": "a_b", "keys": "keys-2", "encoded": "encoded-2"}
CODECS = [
    some(Zstd, "zstd"),
    some(lambda: Zstd(shuffle=False), "zstd, plain"),
    some(Zfp, "zfp", needs_zfp),
]


def waves(seed: int, layout: Layout = WAVES) -> Buffers:
    """A checkpoint that codecs make smaller, the more so the larger the seed."""
    noise = np.random.default_rng(seed)
    arrays = []
    for field in layout:
        size = int(np.prod(field.shape))
        rough = noise.integers(1, 200, size) * (np.arange(size) % (seed % 9 + 1) == 0)
        arrays.append(rough.astype(field.dtype).reshape(field.shape))
    return buffers(arrays)


def seen(data: Buffers) -> dict[str, list[object]]:
    return {NAMES.get(name, name): it for name, it in as_seen(WAVES, data).items()}


def back(level: Compressed, key: Key) -> Buffers:
    into = [memoryview(bytearray(size)) for size in form_of(level.layout(key)).sizes]
    level.read(key, into)
    return into


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "archive.h5"


# What people read


@pytest.mark.campaign
@needs_hdf5plugin
@pytest.mark.parametrize("codec", CODECS)
def test_h5py_reads_what_ckio_reads_while_a_run_goes_on_and_afterwards(
    path: Path, codec: Callable[[], Codec]
) -> None:
    level = Compressed(Hdf5(path), codec())
    held: dict[Key, Buffers] = {}
    with reader() as plain:
        for number, key in enumerate([x(0), x(1), t(0), x(2), a(3), x(1), x(4), t(0), x(5)]):
            if key in held:
                level.discard(key)
            held[key] = waves(number)
            level.write(key, WAVES, held[key])
            assert plain.stored(path) == {key: seen(data) for key, data in held.items()}
        assert {key: back(level, key) for key in held} == held
        level.close()
        level = Compressed(Hdf5(path), codec())
        level.discard(x(0))
        held[x(0)] = waves(20)
        level.write(x(0), WAVES, held[x(0)])
        assert plain.stored(path) == {key: seen(data) for key, data in held.items()}
        level.close()
    with h5py.File(path) as file:
        group = file["restart-0"]
        assert set(group) == {"keys", "encoded", "zeta", "a_b", "keys-2", "encoded-2", "time"}
        assert group["zeta"].attrs["unit"] == "1/s"
        assert group["a_b"].attrs["name"] == "a/b"


class Keeping(Compressed):
    """A level that keeps what a run discards, and remembers what it was given."""

    def __init__(self, path: Path) -> None:
        super().__init__(Hdf5(path), Zstd(1))
        self.given: dict[Key, tuple[Layout, list[bytes]]] = {}

    def write(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        if key in self.given:
            super().discard(key)
        self.given[key] = layout, [bytes(view) for view in data]
        return super().write(key, layout, data)

    def discard(self, key: Key, /) -> None:
        pass


@needs_hdf5plugin
def test_h5py_reads_what_a_run_of_a_model_left_bit_by_bit(path: Path) -> None:
    model = Vorticity(grid=16)
    chain = Chain(steps=40, advance=1.0, record=1.0, reverse=2.0, **sizes_of(model))
    cost = Affine(0.1)
    archive = Level(name="archive", capacity=12 * chain.restart, write=cost, read=cost)
    platform = Platform((archive,), working_memory=chain.tape)
    level = Keeping(path)
    run(hrevolve(chain, platform), platform, model, [level])
    level.close()
    assert len(level.given) > 12
    with reader() as plain:
        found = plain.stored(path)
    assert found == {key: as_seen(*given) for key, given in level.given.items()}
    with h5py.File(path) as file:
        assert "encoded" in file["restart-0"]


@needs_blosc2
def test_what_no_filters_undo_is_in_the_encoded_bytes_alone(path: Path) -> None:
    level = Compressed(Hdf5(path), Blosc2())
    level.write(x(0), WAVES, waves(8))
    assert back(level, x(0)) == waves(8)
    level.close()
    with h5py.File(path) as file:
        assert set(file["restart-0"]) == {"keys", "encoded"}


def test_fields_that_hdf5_cannot_have_are_in_the_encoded_bytes_alone(path: Path) -> None:
    layout = (
        *(Field("deep", "<f8", (1,) * 31 + (50,)), Field("time", "<M8[s]", (100,))),
        *(Field("deeper", "<f8", (1,) * 30 + (50,)), Field("u", "<f8", (100,))),
    )
    level = Compressed(Hdf5(path), Zstd())
    level.write(x(0), layout, waves(1, layout[:1]) + waves(2, raw(800)) + waves(3, layout[2:]))
    level.close()
    level = Compressed(Hdf5(path), Zstd())
    assert back(level, x(0))[1:2] == waves(2, raw(800))
    level.close()
    with h5py.File(path) as file:
        assert set(file["restart-0"]) == {"keys", "encoded", "deeper", "u"}


@needs_hdf5plugin
def test_what_the_documentation_shows_works(tmp_path: Path) -> None:
    level = Compressed(Hdf5(tmp_path / "archive-RUN.h5"), Zstd())
    for step in (3, 8):
        level.write(x(step), WAVES, waves(step))
    level.close()
    text = (ROOT / "docs" / "archive.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    means = [np.frombuffer(waves(step)[0], "<f8").mean() for step in (3, 8)]
    assert done.stdout.splitlines() == [f"3 {means[0]} 1/s", f"8 {means[1]} 1/s"]


# Slots


def test_checkpoints_of_other_fields_or_another_codec_have_slots_of_their_own(path: Path) -> None:
    others = (Field("zeta", "<f4", (80, 50), "1/s"),)
    for codec in (Zstd(), Zstd(shuffle=False)):
        level = Compressed(Hdf5(path), codec)
        step = len(list(level.keys()))
        level.write(x(step), WAVES, waves(8))
        level.write(x(step + 1), others, waves(8, others))
        level.close()
    with h5py.File(path) as file:
        units = [file[f"restart-{number}/encoded"].attrs["unit"] for number in range(4)]
        views = [set(file[f"restart-{number}"]) for number in range(4)]
    assert len(set(units)) == 4
    assert views[1] == views[3] == {"keys", "encoded", "zeta"}


DRIFTS: dict[str, Callable[[float, random.Random], float]] = {
    "none": lambda _, dice: dice.uniform(0.9, 1.1),
    "up": lambda part, _: 8**part,
    "down": lambda part, _: 8**-part,
    "wave": lambda part, _: 8 ** abs(np.sin(40 * part)),
    "any": lambda _, dice: 8 ** dice.random(),
}


@pytest.mark.campaign
@pytest.mark.parametrize("live", [10, 300])
@pytest.mark.parametrize("drift", DRIFTS)
def test_an_archive_gets_by_with_few_groups_however_well_a_codec_does(
    drift: str, live: int
) -> None:
    """Without a reservation, of three kinds."""
    groups: list[Group] = []

    def make(key: Key, form: object, count: int) -> Group:
        groups.append(Group("", key.kind, form, count, 0, 0, 0, 0))  # type: ignore[arg-type]
        slots.adopt(groups[-1], range(count))
        return groups[-1]

    slots, dice = ArchiveSlots(None, make), random.Random(1)
    held: list[tuple[Group, int]] = []
    for number in range(1500):
        nbytes = int(100_000 * DRIFTS[drift](number / 1500, dice))
        for key in (x(number), t(number), a(number)):
            group = slots.group_for(key, form_of(mark(Zstd(), FLOW, nbytes)))
            held.append((group, slots.free[group].pop()))
        for group, slot in held[: -3 * live]:
            slots.free[group].append(slot)
        del held[: -3 * live]
    assert len(groups) < 0.8 * MAX_GROUPS


def test_a_reservation_has_room_for_the_views_of_what_is_prepared(path: Path) -> None:
    level = Compressed(Hdf5(path), Zstd(), ratio=0.5)  # what is stored is a tenth, and less
    level.reserve({form_of(WAVES).nbytes: 1000})
    before = path.stat().st_size
    level.prepare(x(0), WAVES, 1000)
    assert path.stat().st_size == before
    for step in range(10):
        level.write(x(step), WAVES, waves(8))
    assert path.stat().st_size == before
    level.close()
    with h5py.File(path) as file:
        assert set(file) == {"README", "restart-0"}
        assert file["restart-0/zeta"].shape == (1000, 40, 50)


def test_preparing_reaches_the_level_underneath_where_that_has_use_for_it(path: Path) -> None:
    level = Compressed(Compressed(Hdf5(path), Zstd()), Zstd())
    level.prepare(x(0), WAVES, 3)
    level.close()
    with h5py.File(path) as file:
        assert file["restart-0/keys"].shape == (3,)
    Compressed(Ram(), Zstd()).prepare(x(0), WAVES, 3)


# Lies and damage


def test_bytes_that_are_not_what_their_mark_says_are_refused(path: Path) -> None:
    archive = Hdf5(path)
    layout = mark(Zstd(), WAVES, 1000)
    with pytest.raises(StorageError, match=r"archive\.h5: x_0 is not what its layout says"):
        put(archive, x(0), layout)
    assert list(archive.keys()) == []
    original = put(archive, x(0), raw(1000))
    assert get(archive, x(0), raw(1000)) == original
    archive.close()


def test_a_mark_that_makes_no_sense_is_a_unit_like_any_other(path: Path) -> None:
    archive = Hdf5(path)
    layout = (Field("encoded", "|u1", (1000,), MARK + "who knows"),)
    original = put(archive, x(0), layout)
    archive.close()
    archive = Hdf5(path)
    assert get(archive, x(0), layout) == original
    archive.close()


def compressed(path: Path) -> tuple[bytes, dict[Key, Buffers]]:
    """The bytes of a compressed archive, and what it holds."""
    level = Compressed(Hdf5(path), Zstd())
    held = {key: waves(8 + number) for number, key in enumerate([x(0), x(1), t(2), x(7)])}
    for key, data in held.items():
        level.write(key, WAVES, data)
    level.close()
    return path.read_bytes(), held


def test_a_head_whose_views_lie_elsewhere_is_damaged(path: Path) -> None:
    content, _ = compressed(path)
    begin = content.index(b"ckiogrp")
    nbytes = int.from_bytes(content[begin + 8 : begin + 16], "little")
    *values, leaves = json.loads(content[begin + 32 : begin + 32 + nbytes])
    name, _, _, slots, rows, payload, trees = values
    assert len(leaves) == len(WAVES)

    def opened(leaves: list[object]) -> Group:
        text = json.dumps([*values, leaves]).encode()
        digest = xxhash.xxh3_128_digest(text)
        head = content[begin : begin + 8] + len(text).to_bytes(8, "little") + digest + text
        return Group.unpack(head, begin, begin + (1 << 16))

    assert opened(leaves).name == name
    for lie in (rows, payload, trees - 8, begin, begin + (1 << 16) - 100, 1 << 62, -1, "0"):
        with pytest.raises(CorruptCheckpoint, match="head of a group"):
            opened([lie, *leaves[1:]])
    for lies in (leaves[1:], [*leaves, 0], [leaves[1], *leaves[1:]]):
        with pytest.raises(CorruptCheckpoint, match="head of a group"):
            opened(lies)
    assert slots == 1


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_flipped_bit_in_a_tree_does_not_concern_ckio(data: st.DataObject) -> None:
    with TemporaryDirectory() as place:
        path = Path(place, "archive.h5")
        content, held = compressed(path)
        trees = [found.start() for found in re.finditer(b"TREE\1", content)]
        assert len(trees) >= 5
        tree = data.draw(st.sampled_from(trees))
        flip(path, content, tree + data.draw(st.integers(0, 2000)), data.draw(st.integers(0, 7)))
        assert all(isinstance(it, Stored) and sound(it) for it in Hdf5.contents(path))
        level = Compressed(Hdf5(path), Zstd())
        assert {key: back(level, key) for key in set(level.keys())} == held
        level.discard(x(0))
        level.write(x(0), WAVES, waves(9))
        assert back(level, x(0)) == waves(9)
        level.close()


def test_kinds_do_not_share_slots(path: Path) -> None:
    level = Compressed(Hdf5(path), Zstd())
    for kind in Kind:
        level.write(Key(kind, 1), WAVES, waves(8))
    level.close()
    with h5py.File(path) as file:
        assert set(file) == {"README", "restart-0", "tape-0", "adjoint-0"}
