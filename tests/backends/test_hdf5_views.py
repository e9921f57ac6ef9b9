"""Views: what h5py reads of encoded checkpoints, through filters and trees that ckio fills in."""

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckio.actions import Field, Layout
from ckio.backends.compressed import alone
from ckio.backends.encoded import encode, mark, room, unmark
from ckio.backends.hdf5.views import (
    FANOUT,
    NODE_HEAD,
    Patch,
    Pipeline,
    View,
    Views,
    append,
    node_nbytes,
    pipeline,
)
from ckio.compression import Codec, Zfp, Zstd
from ckio.errors import CorruptCheckpoint, StorageError
from ckio.model import Array
from ckio.testing import buffers

pytest.importorskip("hdf5plugin", reason="hdf5plugin, which reads the views, is not installed")
pytest.importorskip("zfpy", reason="zfpy is not installed")

MIXED: Layout = (
    Field("line", "<f8", (1000,)),
    Field("plane", "<f4", (37, 41)),
    Field("nothing", "<f8", (0, 4)),
    Field("volume", ">f8", (5, 6, 7)),
    Field("waves", "<c16", (3, 4, 5, 6)),
    Field("slow", "<c8", (9, 2)),
    Field("counts", "<i2", (11, 3)),
    Field("ids", "<i8", (70,)),
    Field("bytes", "|u1", (13, 2)),
    Field("mask", "|b1", (17,)),
    Field("names", "|S5", (4,)),
    Field("half", "<f2", (6,)),
    Field("time", "<f8", ()),
)
BLOCKS = (
    *((64,), (1, 41), (1, 4), (2, 6, 7), (1, 1, 2, 6), (9, 2)),
    *((4, 3), (1,), (13, 2), (16,), (3,), (6,), ()),
)

_READER = """
import json, sys
import h5py, hdf5plugin, numpy as np

found = []
for path, name, slot in json.load(sys.stdin):
    with h5py.File(path) as file:
        try:
            found.append(file[name][slot])
        except OSError as error:
            found.append(np.array(str(error)))
np.savez(sys.argv[1], *found)
"""


@dataclass(frozen=True)
class Store:
    """A file with encoded checkpoints and their views, as an archive makes them.

    Attributes
    ----------
    slots : int
        Offset of the slots, in bytes.
    room : int
        Bytes of each.
    """

    path: Path
    codec: Codec
    blocks: list[tuple[int, ...]]
    views: Views
    slots: int
    room: int

    def writes(self, slot: int, arrays: Iterable[Array]) -> Iterator[Patch]:
        """All that a commit writes before its commit word, in order."""
        payload = encoded_all(self.codec, arrays, self.blocks)
        assert len(payload) <= self.room
        begin = self.slots + slot * self.room
        yield payload, begin
        yield from self.views.patches(slot, memoryview(payload), begin)

    def write(self, slot: int, arrays: Iterable[Array]) -> None:
        put(self.path, self.writes(slot, arrays))


def make(
    path: Path,
    layout: Layout,
    blocks: Iterable[tuple[int, ...]],
    *,
    slots: int,
    room: int = 1 << 16,
    codec: Codec | None = None,
) -> Store:
    codec, blocks = codec or Zstd(), list(blocks)
    views = views_of(codec, layout, blocks, slots)
    with h5py.File(path, "w", libver="earliest") as file:
        group = file.create_group("restart-0")
        headers = [
            describe(group, field.name, view) if view else 0
            for field, view in zip(layout, views.fields, strict=True)
        ]
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        begin = group.create_dataset("encoded", (slots, room), "u1", dcpl=plist).id.get_offset()
    with path.open("r+b", buffering=0) as raw:
        views = views.planted(raw, headers)
    return Store(path, codec, blocks, views, begin, room)


def views_of(codec: Codec, layout: Layout, blocks: list[tuple[int, ...]], slots: int) -> Views:
    """Views with blocks of any shape; those of real checkpoints have about 1 MiB."""
    fields: list[View | None] = []
    counts = []
    for field, block in zip(layout, blocks, strict=True):
        dtype = np.dtype(field.dtype)
        line = pipeline(codec.name, dtype, block)
        view = View(field.shape, slots, line) if line else None
        counts.append(prod(-(-n // b) for n, b in zip(field.shape, block, strict=True)))
        fields.append(view if counts[-1] else None)
    return Views(layout, tuple(fields), tuple(accumulate(counts, initial=0)))


def plain(block: tuple[int, ...]) -> Pipeline:
    found = pipeline("zstd", np.dtype("<f8"), block)
    assert found
    return found


def describe(group: h5py.Group, name: str, view: View) -> int:
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((1, *view.pipeline.block))
    for number, options in view.pipeline.filters():
        plist.set_filter(number, h5py.h5z.FLAG_OPTIONAL, options)
    dataset = group.create_dataset(name, (view.slots, *view.shape), view.pipeline.dtype, dcpl=plist)
    dataset.attrs["unit"] = "m/s"
    return int(h5py.h5o.get_info(dataset.id).addr)


def encoded_all(codec: Codec, arrays: Iterable[Array], blocks: Iterable[tuple[int, ...]]) -> bytes:
    parts = [
        encoded(codec, block)
        for array, shape in zip(arrays, blocks, strict=True)
        for block in cut(array, shape)
    ]
    return np.array(list(map(len, parts)), "<u4").tobytes() + b"".join(parts)


def encoded(codec: Codec, block: Array) -> bytes:
    into = memoryview(bytearray(codec.bound(block.nbytes)))
    return bytes(into[: codec.encode(block, into)])


def cut(array: Array, shape: tuple[int, ...]) -> Iterator[Array]:
    """The blocks of an array, in C order of their places, padded with zeros to full size."""
    grid = tuple(-(-n // b) for n, b in zip(array.shape, shape, strict=True))
    for place in np.ndindex(grid):
        block = np.zeros(shape, array.dtype)
        part = array[tuple(slice(i * b, (i + 1) * b) for i, b in zip(place, shape, strict=True))]
        block[tuple(map(slice, part.shape))] = part
        yield block


def put(path: Path, writes: Iterable[Patch]) -> None:
    with path.open("r+b", buffering=0) as file:
        for data, offset in writes:
            file.seek(offset)
            file.write(data)


def state(layout: Layout, seed: int) -> list[Array]:
    """Arrays of a layout, none of which is zero throughout."""
    noise = np.random.default_rng(seed)
    return [
        (noise.integers(1, 100, field.shape) * (0.5 if field.dtype[1] in "fc" else 1)).astype(
            field.dtype
        )
        if field.dtype[1] != "b"
        else noise.integers(1, 2, field.shape).astype(bool)
        for field in layout
    ]


def seen(reads: Iterable[tuple[Path, str, int]], tmp_path: Path) -> list[Array]:
    """What plain h5py reads of slots, in a process that has never heard of ckio."""
    asked = [(str(path), f"restart-0/{name}", slot) for path, name, slot in reads]
    answer = tmp_path / "seen.npz"
    subprocess.run(
        [sys.executable, "-c", _READER, answer], input=json.dumps(asked), text=True, check=True
    )
    with np.load(answer) as arrays:
        return [arrays[f"arr_{number}"] for number in range(len(asked))]


def bits(array: Array) -> tuple[str, tuple[int, ...], bytes]:
    return array.dtype.str, array.shape, array.tobytes()


def copied(path: Path, name: str) -> Path:
    copy = path.with_name(name)
    copy.write_bytes(path.read_bytes())
    return copy


# What people read


@pytest.mark.campaign
@pytest.mark.parametrize(
    "codec", [Zstd(), Zstd(shuffle=False), Zfp()], ids=lambda codec: codec.name
)
def test_h5py_reads_each_field_bit_by_bit_after_each_commit(codec: Codec, tmp_path: Path) -> None:
    store = make(tmp_path / "a.h5", MIXED, BLOCKS, slots=4, codec=codec)
    held: dict[int, list[Array]] = {}
    reads, expected = [], []
    for number, slot in enumerate((2, 0, 3, 2)):
        held[slot] = state(MIXED, seed=number)
        store.write(slot, held[slot])
        copy = copied(store.path, f"after-{number}.h5")
        for at, arrays in held.items():
            for field, array in zip(MIXED, arrays, strict=True):
                if array.size:
                    reads.append((copy, field.name, at))
                    expected.append(array)
    found = seen(reads, tmp_path)
    assert list(map(bits, found)) == list(map(bits, expected))


def test_not_a_number_keeps_its_bits(tmp_path: Path) -> None:
    layout = (Field("u", "<f8", (3,)), Field("v", "<c16", (2,)))
    store = make(tmp_path / "a.h5", layout, [(2,), (2,)], slots=1)
    numbers = np.array([0xFFF8_0000_0000_1234, 0x8000_0000_0000_0000, 1], "<u8").view("<f8")
    store.write(0, [numbers, numbers[[0, 1, 2, 0]].view("<c16")])
    found = seen([(store.path, "u", 0), (store.path, "v", 0)], tmp_path)
    assert found[0].tobytes() == numbers.tobytes()
    assert found[1].tobytes() == numbers[[0, 1, 2, 0]].tobytes()


def test_a_slot_that_was_never_used_reads_as_zeros(tmp_path: Path) -> None:
    store = make(tmp_path / "a.h5", MIXED, BLOCKS, slots=3)
    store.write(1, state(MIXED, seed=1))
    fields = [field for field in MIXED if np.prod(field.shape)]
    for array in seen([(store.path, field.name, 2) for field in fields], tmp_path):
        assert array.tobytes() == bytes(array.nbytes)


def test_what_zfp_rounded_and_what_it_had_to_leave_exact_are_chunks_of_one_dataset(
    tmp_path: Path,
) -> None:
    layout = (Field("u", "<f8", (8, 100)), Field("v", "<f4", (5, 6, 7)), Field("n", "<i4", (9,)))
    store = make(tmp_path / "a.h5", layout, [(1, 100), (5, 6, 7), (9,)], slots=2, codec=Zfp(1e-3))
    noise = np.random.default_rng(1)
    u, v = np.sin(noise.random((8, 100))), np.cos(noise.random((5, 6, 7)), dtype="f4")
    u[3, 50] = np.nan
    n = np.arange(9, dtype="<i4")
    store.write(1, [u, v, n])
    found = seen([(store.path, name, 1) for name in "uvn"], tmp_path)
    others = [row for row in range(8) if row != 3]
    assert 0 < np.abs(found[0] - u)[others].max() <= 1e-3
    assert 0 < np.abs(found[1] - v).max() <= 1e-3
    assert found[0][3].tobytes() == u[3].tobytes()
    assert bits(found[2]) == bits(n)


def test_checkpoints_as_they_are_compressed_are_read(tmp_path: Path) -> None:
    layout = (
        Field("u", "<f8", (3, 100_000)),
        Field("v", "<c16", (150, 2, 400)),
        Field("none", "<f8", (0,)),
        Field("pair", "(2,)<f4", (5,)),
    )
    codec, arrays = Zstd(), state(layout[:3], seed=1)
    arrays.append(np.arange(10, dtype="<f4").reshape(5, 2))
    encoding = unmark(mark(codec, layout, 1 << 20))
    assert encoding is not None
    blocks = encoding.blocks
    assert [grid.count for grid in blocks.grids] == [3, 2, 0, 1]
    scratch = memoryview(bytearray(room(blocks, codec)))
    count = encode(blocks, codec, buffers(arrays), scratch, alone)
    path = tmp_path / "a.h5"
    views = Views.of(mark(codec, layout, 1 << 20), 1)
    assert views is not None
    with h5py.File(path, "w", libver="earliest") as file:
        file.create_group("restart-0")
        headers = [
            describe(file["restart-0"], field.name, view) if view else 0
            for field, view in zip(layout, views.fields, strict=True)
        ]
    with path.open("r+b", buffering=0) as raw:
        begin = append(raw, scratch[:count])
        views = views.planted(raw, headers)
    put(path, views.patches(0, scratch[:count], begin))
    found = seen([(path, name, 0) for name in ("u", "v", "pair")], tmp_path)
    assert list(map(bits, found)) == [bits(arrays[number]) for number in (0, 1, 3)]


def test_what_no_filters_undo_has_no_views() -> None:
    for codec in ("rot13", "blosc2", "zfp(tolerance=)", "zfp(tolerance=1.e)"):
        assert pipeline(codec, np.dtype("<f8"), (5,)) is None
    assert pipeline("zfp", np.dtype("<f8"), (2, 2, 2, 2, 2)) is None
    assert pipeline("zfp", np.dtype("<f8"), (1, 2, 2, 2, 2)) is not None


# The tree


@pytest.mark.parametrize(
    ("slots", "blocks", "levels"),
    [(1, 1, 1), (64, 1, 1), (65, 1, 2), (1, 65, 2), (100, 40, 2), (1, 4096, 2), (241, 17, 3)],
)
def test_hdf5_finds_every_chunk_once_and_where_it_is(
    slots: int, blocks: int, levels: int, tmp_path: Path
) -> None:
    layout = (Field("u", "<i4", (max(2, 2 * blocks - 1),)),)
    store = make(tmp_path / "a.h5", layout, [(2,)], slots=slots, room=64)
    (view,) = store.views.fields
    assert view
    sizes = np.arange(1, blocks + 1, dtype="<u4") % 50 + 1
    data = memoryview(sizes.tobytes() + bytes(int(sizes.sum())))
    for slot in range(slots):
        put(store.path, store.views.patches(slot, data, 1000 + slot))
    nodes = [-(-slots * blocks // FANOUT ** (level + 1)) for level in range(levels)]
    assert store.path.stat().st_size == view.leaves + sum(nodes) * node_nbytes(2)
    assert nodes[-1] == 1
    places = 4 * blocks + np.cumsum(sizes) - sizes
    expected = [
        ((slot, 2 * block), 0, 1000 + slot + int(places[block]), int(sizes[block]))
        for slot in range(slots)
        for block in range(blocks)
    ]
    with h5py.File(store.path) as file:
        dataset = file["restart-0/u"].id
        found: list[tuple[Any, ...]] = []
        dataset.chunk_iter(lambda chunk: found.append(tuple(chunk)))
        assert found == expected
        assert dataset.get_num_chunks() == slots * blocks
        assert dataset.get_storage_size() == sum(int(size) for size in sizes) * slots
        for chunk in (expected[0], expected[len(expected) // 2], expected[-1]):
            assert tuple(dataset.get_chunk_info_by_coord(chunk[0])) == chunk


def test_large_fields_are_read_through_trees_of_three_levels(tmp_path: Path) -> None:
    layout = (Field("u", "<f8", (70, 90)),)
    store = make(tmp_path / "a.h5", layout, [(1, 1)], slots=2, room=1 << 19)
    states = [state(layout, seed=slot) for slot in range(2)]
    for slot, arrays in enumerate(states):
        store.write(slot, arrays)
    found = seen([(store.path, "u", 0), (store.path, "u", 1)], tmp_path)
    assert list(map(bits, found)) == [bits(arrays[0]) for arrays in states]


def test_a_leaf_is_what_hdf5_itself_would_make(tmp_path: Path) -> None:
    layout = (Field("u", "<i4", (10, 6)),)
    store = make(tmp_path / "ours.h5", layout, [(1, 4)], slots=3)
    (view,) = store.views.fields
    assert view
    theirs = tmp_path / "theirs.h5"
    with h5py.File(theirs, "w", libver="earliest") as file:
        describe(file, "u", view)
        blank, skipped = view.pipeline.blank()
        for slot, row, part in np.ndindex(3, 10, 2):
            file["u"].id.write_direct_chunk((slot, row, 4 * part), blank, skipped)
    (head, entries, end), (head_too, entries_too, end_too) = map(leaf, (store.path, theirs))
    assert head == head_too
    assert entries[:, :-1].tolist() == entries_too[:, :-1].tolist()  # but for the offsets
    assert min(end, end_too) > entries[-1, 1:-1].tolist()  # and for the end: behind the last one


def leaf(path: Path) -> tuple[bytes, Array, list[int]]:
    """The only node for chunks in a file: what it begins with, its 60 entries, where they end."""
    data = path.read_bytes()
    assert data.count(b"TREE\1") == 1
    begin = data.index(b"TREE\1")
    words = np.frombuffer(data, "<u8", 60 * 6 + 5, begin + NODE_HEAD)
    return data[begin : begin + NODE_HEAD], words[:-5].reshape(60, 6), words[-4:].tolist()


def test_a_dataset_that_hdf5_described_otherwise_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    view = View((4,), 3, plain((2,)))
    with h5py.File(path, "w", libver="earliest") as file:
        file["flat"] = np.zeros((3, 4))
        file.create_dataset("other", (3, 4, 5), "f8", chunks=(1, 2, 5))
        file.create_dataset("used", (3, 4), "f8", chunks=(1, 2))[...] = 1
        headers = [h5py.h5o.get_info(file[name].id).addr for name in file]
    with h5py.File(tmp_path / "late.h5", "w", libver="latest") as file:
        late = h5py.h5o.get_info(file.create_dataset("u", (3, 4), "f8", chunks=(1, 2)).id).addr
    for name, header in [*(("a.h5", header) for header in headers), ("late.h5", late)]:
        with (tmp_path / name).open("r+b", buffering=0) as raw, pytest.raises(StorageError):
            view.planted(raw, header)


# Commits


def test_whatever_a_kill_leaves_of_a_commit_the_other_slots_are_unharmed(tmp_path: Path) -> None:
    layout = (Field("u", "<f8", (9, 10)), Field("v", "<f4", (30,)))
    store = make(tmp_path / "a.h5", layout, [(1, 1), (30,)], slots=3, room=1 << 13)
    held = {slot: state(layout, seed=slot) for slot in range(3)}
    for slot, arrays in held.items():
        store.write(slot, arrays)
    later = state(layout, seed=9)
    writes = list(store.writes(1, later))
    assert len(writes) == 1 + 2 + 1  # the payload; entries in two leaves; and in one
    reads = []
    for number, done in enumerate(stopped(writes)):
        copy = copied(store.path, f"killed-{number}.h5")
        put(copy, done)
        reads += [(copy, field.name, slot) for field in layout for slot in (0, 1, 2)]
    found = iter(seen(reads, tmp_path))
    for (path, name, slot), array in zip(reads, found, strict=True):
        arrays = held[slot]
        if slot != 1:
            assert bits(array) == bits(arrays[name == "v"]), path
    last = dict(zip(reads[-6:], seen(reads[-6:], tmp_path), strict=True))
    path = reads[-1][0]
    assert [bits(last[path, name, 1]) for name in "uv"] == list(map(bits, later))


def stopped(writes: list[Patch]) -> Iterator[list[Patch]]:
    """The writes that were done when a kill came: some, and the next one torn at a sector."""
    for number, (data, offset) in enumerate(writes):
        first = -offset % 512
        for end in range(first, len(data), 512):
            yield [*writes[:number], (data[:end], offset)]
        yield writes[: number + 1]


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
    view = View(tuple(shape), slots, plain(block), leaves=4096)
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


def test_views_are_known_again_by_what_was_packed(tmp_path: Path) -> None:
    store = make(tmp_path / "a.h5", MIXED, BLOCKS, slots=5)
    leaves = json.loads(json.dumps(store.views.pack()))
    again = views_of(store.codec, MIXED, store.blocks, 5).unpack(leaves)
    assert again == store.views
    data = memoryview(encoded_all(store.codec, state(MIXED, seed=1), BLOCKS))
    assert list(again.patches(3, data, 77)) == list(store.views.patches(3, data, 77))


def test_a_field_without_a_view_keeps_the_blocks_of_the_others_apart() -> None:
    layout = tuple(Field(name, "<f8", (n,)) for name, n in (("u", 4), ("v", 6), ("w", 2)))
    views = views_of(Zstd(), layout, [(2,)] * 3, 1).unpack([4096, 0, 8192])
    sizes = np.arange(10, 16, dtype="<u4")
    data = memoryview(sizes.tobytes() + bytes(int(sizes.sum())))
    begins = list(accumulate(sizes.tolist(), initial=1000 + sizes.nbytes))
    found = [
        np.frombuffer(patch, "<u8").reshape(-1, 5) for patch, _ in views.patches(0, data, 1000)
    ]
    assert [entries[:, [0, -1]].tolist() for entries in found] == [
        [[10, begins[0]], [11, begins[1]]],
        [[15, begins[5]]],
    ]


def test_bytes_that_are_not_their_blocks_are_refused() -> None:
    views = views_of(Zstd(), (Field("u", "<f8", (4,)),), [(2,)], 1).unpack([4096])
    with pytest.raises(CorruptCheckpoint):
        list(views.patches(0, memoryview(b"12345678"), 1000))
