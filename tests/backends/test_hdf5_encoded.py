"""Compressed archives: what h5py reads of them, by which trees, and how slots are shared."""

import json
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from installed import needs_blosc2, needs_hdf5plugin, needs_zfp, some

from ckio.actions import Buffers, Field, Key, Layout
from ckio.backends.compressed import Compressed
from ckio.backends.encoded import MARK, mark
from ckio.backends.forms import form_of
from ckio.backends.hdf5 import Hdf5
from ckio.backends.hdf5.allocation import ArchiveSlots
from ckio.backends.hdf5.heads import MAX_GROUPS, Group
from ckio.backends.hdf5.views import FANOUT, NODE_HEAD, View, node_nbytes, pipeline
from ckio.backends.ram import Ram
from ckio.compression import Blosc2, Codec, Zfp, Zstd
from ckio.errors import CorruptCheckpoint, StorageError
from ckio.testing import FLOW, a, get, put, raw, t, x

from .archives import blocks_of_at_most
from .plain import as_seen, reader

ROOT = Path(__file__).parents[2]
MIXED: Layout = (
    Field("zeta", "<f8", (40, 50), "1/s"),
    Field("a/b", "<f4", (37, 41)),
    Field("none", "<f8", (0, 2)),
    Field("keys", "<i4", (9,)),
    Field("encoded", "|u1", (5, 4)),
    Field("volume", ">f8", (5, 6, 7)),
    Field("waves", "<c16", (3, 4, 5, 6)),
    Field("slow", "<c8", (9, 2)),
    Field("counts", "<i2", (11, 3)),
    Field("ids", "<i8", (70,)),
    Field("mask", "|b1", (17,)),
    Field("names", "|S5", (4,)),
    Field("half", "<f2", (6,)),
    Field("pair", "(2,)<f4", (5,)),
    Field("time", "<f8", ()),
)
NAMES = {"a/b": "a_b", "keys": "keys-2", "encoded": "encoded-2"}
CODECS = [
    some(Zstd, "zstd"),
    some(lambda: Zstd(shuffle=False), "zstd, plain"),
    some(Zfp, "zfp", needs_zfp),
    some(lambda: Zfp(tolerance=1e-3), "zfp, lossy", needs_zfp),
]
NAN = 0xFFF8_0000_0000_1234


def waves(seed: int, layout: Layout = MIXED) -> Buffers:
    """A checkpoint that codecs make smaller, the more so the larger the seed, with a NaN."""
    noise = np.random.default_rng(seed)
    data = []
    for field in layout:
        dtype = np.dtype(field.dtype)
        size = int(np.prod((*field.shape, *dtype.shape)))
        rough = noise.integers(1, 200, size) * (np.arange(size) % (seed % 9 + 1) == 0)
        array = (rough * 0.7 if dtype.base.kind == "f" else rough).astype(dtype.base)
        if field.dtype == "<f8" and size > 7:
            array[7:8].view("<u8")[:] = NAN
        data.append(memoryview(array.tobytes()))
    return data


def seen(data: Buffers) -> dict[str, list[object]]:
    return {NAMES.get(name, name): it for name, it in as_seen(MIXED, data).items()}


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
    held: dict[Key, Buffers] = {}

    def write(level: Compressed, key: Key, number: int) -> None:
        if key in held:
            level.discard(key)
        data = waves(number)
        level.write(key, MIXED, data)
        held[key] = back(level, key)
        assert held[key] == data or not level.lossless
        assert plain.stored(path) == {key: seen(data) for key, data in held.items()}

    with blocks_of_at_most(1 << 10), reader() as plain:
        level = Compressed(Hdf5(path), codec())
        for number, key in enumerate([x(0), x(1), t(0), x(2), a(3), x(1), x(4), t(0), x(5)]):
            write(level, key, number)
        assert {key: back(level, key) for key in held} == held
        level.close()
        level = Compressed(Hdf5(path), codec())
        write(level, x(0), 20)
        level.close()
    with h5py.File(path) as file:
        group = file["restart-0"]
        fields = {NAMES.get(field.name, field.name) for field in MIXED} - {"none"}
        assert set(group) == {"keys", "encoded", *fields}
        assert group["zeta"].attrs["unit"] == "1/s"
        assert group["a_b"].attrs["name"] == "a/b"


@needs_blosc2
def test_what_no_filters_undo_is_in_the_encoded_bytes_alone(path: Path) -> None:
    level = Compressed(Hdf5(path), Blosc2())
    level.write(x(0), MIXED, waves(8))
    assert back(level, x(0)) == waves(8)
    level.close()
    with h5py.File(path) as file:
        assert set(file["restart-0"]) == {"keys", "encoded"}
    for codec in ("rot13", "zfp(tolerance=)", "zfp(tolerance=1.e)"):
        assert pipeline(codec, np.dtype("<f8"), (5,)) is None


@needs_zfp
def test_the_filter_of_zfp_takes_four_axes_besides_those_of_one_element() -> None:
    assert pipeline("zfp", np.dtype("<f8"), (2, 2, 2, 2, 2)) is None
    assert pipeline("zfp", np.dtype("<f8"), (1, 2, 2, 2, 2)) is not None


def test_elements_of_one_byte_are_not_shuffled() -> None:
    for dtype, filters in (("u1", 1), ("<i2", 2), ("<c8", 2)):
        line = pipeline("zstd+shuffle", np.dtype(dtype), (5,))
        assert line is not None
        assert len(line.numbers) == filters, dtype


@needs_hdf5plugin
def test_fields_that_hdf5_cannot_have_are_in_the_encoded_bytes_alone(path: Path) -> None:
    layout = (
        *(Field("deep", "<f8", (1,) * 31 + (50,)), Field("time", "<M8[s]", (100,))),
        *(Field("deeper", "<f8", (1,) * 30 + (50,)), Field("u", "<f8", (100,))),
    )
    data = waves(1, layout)
    level = Compressed(Hdf5(path), Zstd())
    level.write(x(0), layout, data)
    level.close()
    level = Compressed(Hdf5(path), Zstd())
    assert back(level, x(0)) == data
    level.close()
    with reader() as plain:
        assert plain.stored(path) == {x(0): as_seen(layout[2:], data[2:])}


@needs_hdf5plugin
def test_what_the_documentation_shows_works(tmp_path: Path) -> None:
    level = Compressed(Hdf5(tmp_path / "archive-RUN.h5"), Zstd())
    layout = MIXED[:1]
    for step in (3, 8):
        level.write(x(step), layout, waves(step, layout))
    level.close()
    text = (ROOT / "docs" / "archive.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    means = [np.frombuffer(waves(step)[0], "<f8").mean() for step in (3, 8)]
    assert done.stdout.splitlines() == [f"3 {means[0]} 1/s", f"8 {means[1]} 1/s"]


# The trees by which HDF5 finds the chunks


@pytest.mark.parametrize(
    ("slots", "blocks", "levels"),
    [(1, 1, 1), (64, 1, 1), (65, 1, 2), (100, 40, 2), (1, 4096, 2), (241, 17, 3)],
)
def test_hdf5_finds_every_chunk_once_and_where_it_is(
    path: Path, slots: int, blocks: int, levels: int
) -> None:
    layout = (Field("u", "<f8", (32 * blocks - 1,)),)
    with blocks_of_at_most(256):
        level = Compressed(Hdf5(path), Zstd())
        level.prepare(x(0), layout, slots)
        for step in range(slots):
            level.write(x(step), layout, waves(8 + step % 7, layout))
        level.close()
    found: list[tuple[Any, ...]] = []
    with h5py.File(path) as file:
        payload, chunks = file["restart-0/encoded"], file["restart-0/u"].id
        begin, room = payload.id.get_offset(), payload.shape[1]
        tables = payload[:, : 4 * blocks].reshape(-1).view("<u4").reshape(slots, blocks)
        chunks.chunk_iter(lambda chunk: found.append(tuple(chunk)))
        expected = [
            ((slot, 31 * block if blocks == 1 else 32 * block), 0, begin + slot * room + at, size)
            for slot, table in enumerate(tables.astype(int))
            for block, (at, size) in enumerate(
                zip(4 * blocks + np.cumsum(table) - table, table, strict=True)
            )
        ]
        assert found == expected
        for chunk in (expected[0], expected[len(expected) // 2], expected[-1]):
            assert tuple(chunks.get_chunk_info_by_coord(chunk[0])) == chunk
    content = path.read_bytes()
    nodes = [content[node.start() + 5] for node in re.finditer(b"TREE\1", content)]
    assert [nodes.count(level) for level in range(levels + 1)] == [
        *(-(-slots * blocks // FANOUT ** (level + 1)) for level in range(levels)),
        0,
    ]


def leaf(path: Path) -> tuple[bytes, np.ndarray[Any, Any], list[int]]:
    """The only node for chunks in a file: its head, its 60 entries, where they end."""
    data = path.read_bytes()
    assert data.count(b"TREE\1") == 1
    begin = data.index(b"TREE\1")
    words = np.frombuffer(data, "<u8", 60 * 6 + 5, begin + NODE_HEAD)
    return data[begin : begin + NODE_HEAD], words[:-5].reshape(60, 6), words[-4:].tolist()


def test_a_leaf_is_what_hdf5_itself_would_make(path: Path) -> None:
    layout, copy = (Field("u", "<f8", (10, 60)),), path.with_name("copy.h5")
    with blocks_of_at_most(240):
        level = Compressed(Hdf5(path), Zstd())
        level.prepare(x(0), layout, 3)
        for step in range(3):
            level.write(x(step), layout, waves(step, layout))
        level.close()
    with h5py.File(path) as file, h5py.File(copy, "w", libver="earliest") as other:
        ours = file["restart-0/u"].id
        shape = (ours.get_type(), ours.get_space(), ours.get_create_plist())
        theirs = h5py.h5d.create(other.id, b"u", *shape)
        for place in np.ndindex(3, 10, 2):
            skipped, chunk = ours.read_direct_chunk((*place[:2], 30 * place[2]))
            theirs.write_direct_chunk((*place[:2], 30 * place[2]), chunk, skipped)
    (head, entries, end), (head_too, entries_too, end_too) = map(leaf, (path, copy))
    assert head == head_too
    assert entries[:, :-1].tolist() == entries_too[:, :-1].tolist()  # but for the offsets
    assert min(end, end_too) > entries[-1, 1:-1].tolist()  # and for the end: behind the last one


def plain_view(shape: tuple[int, ...], block: tuple[int, ...], slots: int, leaves: int = 0) -> View:
    line = pipeline("zstd", np.dtype("<f8"), block)
    assert line
    return View(shape, slots, line, leaves)


def test_a_dataset_that_hdf5_described_otherwise_is_refused(path: Path) -> None:
    late = path.with_name("late.h5")
    with h5py.File(path, "w", libver="earliest") as file:
        file["flat"] = np.zeros((3, 4))
        file.create_dataset("other", (3, 4, 5), "f8", chunks=(1, 2, 5))
        file.create_dataset("used", (3, 4), "f8", chunks=(1, 2))[...] = 1
        headers = [(path, h5py.h5o.get_info(file[name].id).addr) for name in file]
    with h5py.File(late, "w", libver="latest") as file:
        dataset = file.create_dataset("u", (3, 4), "f8", chunks=(1, 2))
        headers.append((late, h5py.h5o.get_info(dataset.id).addr))
    for place, header in headers:
        with place.open("r+b", buffering=0) as stream, pytest.raises(StorageError):
            plain_view((4,), (2,), 3).planted(stream, header)


@given(
    st.lists(st.integers(1, 9), max_size=4).flatmap(
        lambda shape: st.tuples(st.just(shape), st.tuples(*(st.integers(1, n) for n in shape)))
    ),
    st.integers(1, 30),
    st.data(),
)
def test_a_commit_touches_the_entries_of_its_own_slot_and_nothing_else(
    grid: tuple[list[int], tuple[int, ...]], slots: int, data: st.DataObject
) -> None:
    shape, block = grid
    view = plain_view(tuple(shape), block, slots, leaves=4096)
    entry = 8 * (len(shape) + 4)
    node = node_nbytes(len(shape) + 1)
    blocks = [(0, 1, 0x28)] * view.count
    touched: set[int] = set()
    for slot in data.draw(st.permutations(range(slots))):
        for patch, offset in view.patches(slot, blocks):
            leaf, at = divmod(offset - 4096, node)
            first, rest = divmod(at - NODE_HEAD, entry)
            count, rest_too = divmod(len(patch), entry)
            assert rest == rest_too == 0
            assert 0 <= first < first + count <= FANOUT
            numbers = range(leaf * FANOUT + first, leaf * FANOUT + first + count)
            assert {number // view.count for number in numbers} == {slot}
            assert touched.isdisjoint(numbers)
            touched.update(numbers)
            assert view.span[0] <= offset < offset + len(patch) <= sum(view.span)
    assert touched == set(range(slots * view.count))


# Slots


def test_checkpoints_of_other_fields_or_another_codec_have_slots_of_their_own(path: Path) -> None:
    others = (Field("zeta", "<f4", (80, 50), "1/s"),)
    for codec in (Zstd(), Zstd(shuffle=False)):
        level = Compressed(Hdf5(path), codec)
        step = len(list(level.keys()))
        level.write(x(step), MIXED, waves(8))
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

    def make(key: Key, form: Any, count: int) -> Group:
        groups.append(Group("", key.kind, form, count, 0, 0, 0, 0))
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
    level.reserve({form_of(MIXED).nbytes: 1000})
    before = path.stat().st_size
    level.prepare(x(0), MIXED, 1000)
    assert path.stat().st_size == before
    for step in range(10):
        level.write(x(step), MIXED, waves(8))
    assert path.stat().st_size == before
    level.close()
    with h5py.File(path) as file:
        assert set(file) == {"README", "restart-0"}
        assert file["restart-0/zeta"].shape == (1000, 40, 50)


def test_preparing_reaches_the_level_underneath_where_that_has_use_for_it(path: Path) -> None:
    level = Compressed(Compressed(Hdf5(path), Zstd()), Zstd())
    level.prepare(x(0), MIXED, 3)
    level.close()
    with h5py.File(path) as file:
        assert file["restart-0/keys"].shape == (3,)
    Compressed(Ram(), Zstd()).prepare(x(0), MIXED, 3)


# Lies


def test_bytes_that_are_not_what_their_mark_says_are_refused(path: Path) -> None:
    archive = Hdf5(path)
    with pytest.raises(StorageError, match=r"archive\.h5: x_0 does not fit its layout"):
        put(archive, x(0), mark(Zstd(), MIXED, 1000))
    assert list(archive.keys()) == []
    unknown = (Field("encoded", "|u1", (1000,), MARK + "who knows"),)  # a unit like any other
    for key, layout in ((x(0), raw(1000)), (x(1), unknown)):
        original = put(archive, key, layout)
        assert get(archive, key, layout) == original
    archive.close()


def test_a_head_whose_views_lie_elsewhere_is_damaged(path: Path) -> None:
    level = Compressed(Hdf5(path), Zstd())
    level.write(x(0), MIXED, waves(8))
    level.close()
    content = path.read_bytes()
    begin = content.index(b"ckiogrp")
    nbytes = int.from_bytes(content[begin + 8 : begin + 16], "little")
    *values, leaves = json.loads(content[begin + 32 : begin + 32 + nbytes])
    name, _, _, slots, rows, payload, trees = values
    assert (len(leaves), slots) == (len(MIXED), 1)
    end = begin + (1 << 17)

    def opened(leaves: list[object]) -> Group:
        text = json.dumps([*values, leaves]).encode()
        digest = xxhash.xxh3_128_digest(text)
        head = content[begin : begin + 8] + len(text).to_bytes(8, "little") + digest + text
        return Group.unpack(head, begin, end)

    assert opened(leaves).name == name
    lies = [
        [lie, *leaves[1:]] for lie in (rows, payload, trees - 8, begin, end - 100, 1 << 62, -1, "0")
    ]
    for lie in (*lies, leaves[1:], [*leaves, 0], [leaves[1], *leaves[1:]]):
        with pytest.raises(CorruptCheckpoint, match="head of a group"):
            opened(lie)
