"""Encoded checkpoints: their blocks, their bytes, what is never believed, and threads."""

import json
import math
import signal
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from installed import LOSSLESS, needs_zfp
from numpy.typing import NDArray

from ckio.actions import Buffers, Field, Layout
from ckio.backends import compressed
from ckio.backends.compressed import Compressed, Workers
from ckio.backends.encoded import MARK, blocks_of, mark, sizes_in, unmark
from ckio.backends.forms import form_of
from ckio.backends.ram import Ram
from ckio.compression import Codec, Zfp, Zstd
from ckio.errors import BadInput, CorruptCheckpoint, StorageError
from ckio.testing import FLOW, buffers, get, put, raw, x

from .archives import blocks_of_at_most

WIDE: Layout = (
    Field("zeta", "<f8", (128, 129), "1/s"),
    Field("mask", "|b1", (125_000,)),
    Field("time", "<f8", ()),
    Field("psi", "<f4", (3, 150, 101)),
)
BLOCK = 1 << 16


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Sixteenths of what they are, as the fields are, and the bytes that threads share."""
    monkeypatch.setattr(compressed, "_LARGE", compressed._LARGE // 16)
    with blocks_of_at_most(BLOCK):
        yield


def wide(seed: int = 0) -> list[NDArray[Any]]:
    """Several blocks for each of several fields, some of them short."""
    random = np.random.default_rng(seed)
    return [
        random.standard_normal((128, 129)).round(2),
        random.random(125_000) < 0.1,
        np.array(0.25),
        random.standard_normal((3, 150, 101)).astype("<f4").round(1),
    ]


def into_of(data: Buffers) -> list[memoryview]:
    return [memoryview(bytearray(b"\xa5" * view.nbytes)) for view in data]


# Blocks


SHAPES = st.lists(st.integers(0, 12), max_size=4).map(tuple)


@given(shape=SHAPES, dtype=st.sampled_from(["<f8", "<i2", "<c16", "|u1", "<M8[s]", "(2,3)<f4"]))
def test_blocks_are_whole_rows_and_cover_each_field_once(
    shape: tuple[int, ...], dtype: str
) -> None:
    item, most = np.dtype(dtype), 600
    layout = (Field("x", dtype, shape), Field("time", "<f8", ()))
    with blocks_of_at_most(most):
        *blocks, last = blocks_of(layout)
    noise = np.random.default_rng(0).bytes(math.prod(shape) * item.itemsize)
    array = np.frombuffer(noise, item.base).reshape((*shape, *item.shape))
    data = buffers([array, np.array(0.25)])
    parts = [block.of(data) for block in blocks]
    assert b"".join(part.tobytes() for part in parts) == noise
    for block, part in zip(blocks, parts, strict=True):
        assert 0 < part.nbytes == block.nbytes <= max(most, item.base.itemsize)
        assert part.flags.c_contiguous
        assert part.shape[1:] == array.shape[array.ndim - part.ndim + 1 :]
    if parts:  # they are of nearly equal size, and one fewer would be too large
        assert len({part.shape for part in parts[:-1]}) <= 1
        row = parts[0].nbytes // parts[0].shape[0]
        rows = len(noise) // row
        assert len(parts) == 1 or -(-rows // (len(parts) - 1)) * row > most
    assert last.of(data) == 0.25


def test_rows_are_cut_evenly() -> None:
    for shape, item, block in [
        ((), "<f8", (1,)),
        ((5,), "<f8", (1, 5)),
        ((131_072,), "<f8", (1, 131_072)),
        ((131_073,), "<f8", (65_537,)),
        ((513, 513), "<f8", (171, 513)),
        ((4, 512, 512), "<f8", (256, 512)),
        ((64, 128, 128), "<f8", (8, 128, 128)),
        ((1000, 1, 1), "<f8", (1, 1000, 1, 1)),
        ((3, 2), "|V2097152", (1,)),
    ]:
        with blocks_of_at_most(1 << 20):
            assert blocks_of((Field("x", item, shape),))[0].shape == block


# What comes back, and what is stored


@pytest.mark.parametrize("make", LOSSLESS)
def test_many_blocks_come_back_and_are_the_same_bytes_on_any_number_of_threads(
    make: Callable[[], Codec],
) -> None:
    data, stored = buffers(wide()), set[bytes]()
    for threads in (1, 2, 5):
        inner = Ram()
        level = Compressed(inner, make(), threads=threads)
        for step in range(2):
            assert level.write(x(step), WIDE, data) < 0.8 * form_of(WIDE).nbytes
            into = into_of(data)
            level.read(x(step), into)
            assert into == data
            assert level.layout(x(step)) == WIDE
            stored.add(get(inner, x(step), inner.layout(x(step))))
        level.close()
    assert len(stored) == 1


def test_what_is_stored_says_what_it_is_and_begins_with_a_table() -> None:
    inner, codec = Ram(), Zstd()
    Compressed(inner, codec).write(x(0), WIDE, buffers(wide()))
    layout = inner.layout(x(0))
    ((name, dtype, (nbytes,), unit),) = [(f.name, f.dtype, f.shape, f.unit) for f in layout]
    assert (name, dtype) == ("encoded", "|u1")
    said = json.loads(unit.removeprefix(MARK))
    assert said["codec"] == "zstd+shuffle"
    assert said["lossless"] is True
    assert said["layout"] == form_of(WIDE).text.decode()

    encoding = unmark(layout)
    assert encoding is not None
    assert (encoding.codec, encoding.lossless, encoding.layout) == ("zstd+shuffle", True, WIDE)
    data = memoryview(get(inner, x(0), layout))
    blocks = blocks_of(WIDE)
    assert len(blocks) == 3 + 2 + 1 + 3
    sizes = sizes_in(data, len(blocks))
    begin = 4 * len(sizes)
    for each, size in zip(blocks, sizes.tolist(), strict=True):
        block = each.of(buffers(wide()))
        back = np.empty_like(block)
        codec.decode(data[begin : begin + size], back)
        assert back.tobytes() == block.tobytes()
        begin += size
    assert begin == nbytes


# Lossy, or not


@needs_zfp
def test_a_lossy_checkpoint_says_so_underneath_and_above() -> None:
    inner = Ram()
    level = Compressed(inner, Zfp(tolerance=1e-3))
    level.write(x(0), WIDE, buffers(wide()))
    assert '"lossless":false' in inner.layout(x(0))[0].unit
    encoding = unmark(inner.layout(x(0)))
    assert encoding is not None
    assert not encoding.lossless
    assert encoding.codec == "zfp(tolerance=0.001)"
    assert not level.lossless
    assert not Compressed(level, Zstd()).lossless
    assert Compressed(Ram(), Zstd()).lossless


# Damaged


def refuses(inner: Ram, layout: Layout, data: bytes, codec: Codec | None = None) -> None:
    """This, stored underneath, is found corrupt, with memory for it and for a few blocks."""
    inner.write(x(0), layout, [memoryview(data)])
    level = Compressed(inner, codec or Zstd())
    into = into_of(buffers(wide()))
    tracemalloc.start()
    try:
        with pytest.raises(CorruptCheckpoint):
            level.read(x(0), into)
        assert tracemalloc.get_traced_memory()[1] < len(data) + 4 * BLOCK
    finally:
        tracemalloc.stop()
    inner.discard(x(0))


@pytest.fixture
def stored() -> tuple[Layout, bytes]:
    inner = Ram()
    Compressed(inner, Zstd()).write(x(0), WIDE, buffers(wide()))
    layout = inner.layout(x(0))
    return layout, get(inner, x(0), layout)


def test_a_table_that_is_not_right_is_corrupt(stored: tuple[Layout, bytes]) -> None:
    layout, data = stored
    table = np.frombuffer(data, "<u4", 9)
    for other in (
        table + 1,
        table - 1,
        np.roll(table, 1),
        np.zeros_like(table),
        np.full_like(table, (1 << 32) - 1),
        np.append(table[:-2], [table[-1] + table[-2], 0]),
        np.append(table[:-1], table[-1] - 1),
    ):
        refuses(Ram(), layout, other.astype("<u4").tobytes() + data[36:])


def test_encoded_bytes_of_any_other_length_are_corrupt(stored: tuple[Layout, bytes]) -> None:
    _, data = stored
    for other in (data[:-1], data + b"\0", data[:44], data[:35], data[:1], b"", data[36:]):
        refuses(Ram(), mark(Zstd(), WIDE, len(other)), other)
    with pytest.raises(CorruptCheckpoint):
        sizes_in(memoryview(data[:30]), 9)


def test_a_description_that_makes_no_sense_is_corrupt() -> None:
    typed = '{"codec": "zstd", "lossless": true, "layout": %s}'
    for unit in (
        *("", "[]", "{}", "7", '{"codec": "zstd", "lossless": true}'),
        '{"codec": "zstd", "lossless": 1, "layout": "[]"}',
        '{"codec": 7, "lossless": true, "layout": "[]"}',
        *(typed % '"[["', typed % "[]", typed % r'"[[\"x\", \"|O\", [1], \"\"]]"'),
        typed % r'"[[\"x\", \"|u1\", [-1], \"\"]]"',
    ):
        inner = Ram()
        inner.write(x(0), (Field("encoded", "|u1", (3,), MARK + unit),), [memoryview(b"abc")])
        level = Compressed(inner, Zstd())
        with pytest.raises(CorruptCheckpoint):
            level.layout(x(0))
        with pytest.raises(CorruptCheckpoint):
            get(level, x(0), raw(3))


# Threads


class Failing(Zstd):
    """Fails in the middle of a checkpoint, on whichever thread it is."""

    def __init__(self) -> None:
        super().__init__()
        self.left = 1000
        self.threads: set[int] = set()

    def encode(self, block: NDArray[Any], into: memoryview, /) -> int:
        self._count()
        return super().encode(block, into)

    def decode(self, data: memoryview, into: NDArray[Any], /) -> None:
        self._count()
        super().decode(data, into)

    def _count(self) -> None:
        self.threads.add(threading.get_ident())
        self.left -= 1
        if self.left < 0:
            raise CorruptCheckpoint("the third block is damaged")


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_an_error_on_any_thread_is_raised_and_all_goes_on_afterwards(threads: int) -> None:
    codec, data = Failing(), buffers(wide())
    level = Compressed(Ram(), codec, threads=threads)
    for left in (0, 3, 8):
        codec.left = left
        with pytest.raises(StorageError, match="third block"):
            level.write(x(0), WIDE, data)
        assert list(level.keys()) == []
        codec.left = 1000
        level.write(x(0), WIDE, data)
        codec.left = left
        with pytest.raises(CorruptCheckpoint, match="x_0 cannot be decoded: the third block"):
            level.read(x(0), into_of(data))
        codec.left = 1000
        into = into_of(data)
        level.read(x(0), into)
        assert into == data
        level.discard(x(0))
    level.close()


# Codecs of other people


class Wrong(Zstd):
    """Says something else than it does, or fails in its own words."""

    name = "wrong"

    def __init__(self, *, size: object = None, bound: object = None) -> None:
        super().__init__()
        self.name, self.size, self.most = "wrong", size, bound

    def bound(self, nbytes: int, /) -> Any:
        return super().bound(nbytes) if self.most is None else self.most

    def encode(self, block: NDArray[Any], into: memoryview, /) -> Any:
        count = super().encode(block, into)
        return count if self.size is None else self.size

    def decode(self, data: memoryview, into: NDArray[Any], /) -> None:
        raise ValueError("no idea what that is")


@pytest.mark.parametrize("threads", [1, 3])
def test_what_a_codec_says_that_it_gave_is_not_believed(threads: int) -> None:
    sizes = [0, -5, 1 << 21, 1 << 40, 3.0, "all", np.float64(99.0)]
    bounds = [0, -10, 50, 1.5, "all"]
    for codec in (*(Wrong(size=size) for size in sizes), *(Wrong(bound=it) for it in bounds)):
        inner = Ram()
        level = Compressed(inner, codec, threads=threads)
        with pytest.raises(StorageError, match="x_0 cannot be encoded: codec wrong"):
            level.write(x(0), WIDE, buffers(wide()))
        assert list(inner.keys()) == []
        level.close()


@pytest.mark.parametrize("threads", [1, 3])
def test_what_a_codec_raises_in_its_own_words_is_an_error_of_the_level(threads: int) -> None:
    data, codec = buffers(wide()), Wrong()
    level = Compressed(Ram(), codec, threads=threads)
    level.write(x(0), WIDE, data)
    with pytest.raises(
        StorageError, match="x_0 cannot be decoded: codec wrong failed: ValueError: no idea"
    ):
        level.read(x(0), into_of(data))
    codec.size = 0
    with pytest.raises(StorageError, match="x_1"):
        level.write(x(1), WIDE, data)
    assert list(level.keys()) == [x(0)]


def test_an_interrupt_on_any_thread_is_no_error_of_the_level() -> None:
    class Stopped(Zstd):
        def encode(self, block: NDArray[Any], into: memoryview, /) -> int:
            raise SystemExit

    level = Compressed(Ram(), Stopped(), threads=3)
    with pytest.raises(SystemExit):
        level.write(x(0), WIDE, buffers(wide()))
    assert list(level.keys()) == []


def test_little_is_left_to_the_caller() -> None:
    codec = Failing()
    level, before = Compressed(Ram(), codec, threads=4), set(threading.enumerate())
    put(level, x(0), FLOW)
    level.write(x(1), WIDE[2:3], [memoryview(bytes(8))])
    assert codec.threads == {threading.get_ident()}
    assert set(threading.enumerate()) <= before


def test_all_the_work_is_done_once_by_several_threads() -> None:
    workers, meeting = Workers(3), threading.Barrier(3)
    done: list[int] = []
    by: set[int] = set()

    def work(number: int) -> None:
        if number < 3:  # none of the first three is done before three threads are at it
            meeting.wait(60)
        done.append(number)
        by.add(threading.get_ident())

    workers.each(work, 100)
    assert sorted(done) == list(range(100))
    assert len(by) == 3
    workers.each(work, 0)
    workers.close()
    workers.each(done.append, 5)
    assert sorted(done[100:]) == list(range(5))
    workers.close()
    workers.close()


def test_an_interrupt_is_raised_when_no_thread_is_at_work_any_more() -> None:
    workers, meeting, done = Workers(2), threading.Barrier(2), []
    caller = threading.get_ident()

    def work(number: int) -> None:
        meeting.wait(60)  # each of the two threads has one
        if threading.get_ident() != caller:
            signal.pthread_kill(caller, signal.SIGINT)
            done.append(sum(range(5_000_000)))  # longer than the caller takes to be interrupted

    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            workers.each(work, 2)
        assert len(done) == 1
        done.clear()
    workers.close()


def test_threads_that_use_one_level_get_their_own_bytes() -> None:
    level = Compressed(Ram(), Zstd(), threads=2)

    def there_and_back(number: int) -> bool:
        data = buffers(wide(number))
        into = into_of(data)
        level.write(x(number), WIDE, data)
        level.read(x(number), into)
        return into == data

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(there_and_back, range(24)))
    level.close()


def test_the_end_of_the_interpreter_does_not_wait_for_idle_threads() -> None:
    script = """
import numpy as np
from ckio import Compressed, Field, Key, Kind, Ram, Zstd
level = Compressed(Ram(), Zstd(), threads=3)
data = memoryview(bytes(8 << 20))
level.write(Key(Kind.RESTART, 0), (Field("x", "<f8", (1 << 20,)),), [data])
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


def test_no_thread_is_no_choice() -> None:
    with pytest.raises(BadInput, match="threads = 0"):
        Compressed(Ram(), Zstd(), threads=0)
    Workers(None).each(lambda _: None, 7)


def test_where_no_more_threads_can_be_had_those_that_are_do_the_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start, left, done = threading.Thread.start, [1], set()

    def refused(thread: threading.Thread) -> None:
        if not left:
            raise RuntimeError("can't start new thread")
        left.pop()
        start(thread)

    workers = Workers(4)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        for _ in range(3):
            workers.each(done.add, 50)
            assert done == set(range(50))
            done.clear()
    workers.each(done.add, 50)  # and there are some again
    assert done == set(range(50))
    workers.close()
