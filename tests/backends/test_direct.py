"""Direct I/O: every byte past the page cache, at any split, and no thread that outlives a call."""

import ctypes
import errno
import gc
import mmap
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from xxhash import xxh3_128_digest

from ckio.actions import Buffers
from ckio.backends.directory import Directory, direct
from ckio.backends.directory.direct import BLOCK, LANES, PAGE, STAGING, Direct, PageRun
from ckio.backends.files import Files
from ckio.errors import StorageError
from ckio.testing import BackendTests, get, put, raw, x

from .common import in_child

SIZES = [0, 1, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE, 20 * PAGE + 7]
Opened = Callable[[], int]


def memory(nbytes: int, shift: int = 0) -> memoryview:
    """Memory that begins `shift` bytes behind the beginning of a page, full of other bytes."""
    room = mmap.mmap(-1, nbytes + shift + 1, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    view = memoryview(room)[shift : shift + nbytes]
    if nbytes:
        np.frombuffer(view, np.uint8).fill(0xA5)
    return view


def filled(nbytes: int, shift: int = 0) -> memoryview:
    view = memory(nbytes, shift)
    view[:] = np.random.default_rng(nbytes + shift).bytes(nbytes)
    return view


def joined(data: Buffers) -> bytes:
    return b"".join(data)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file on a file system that has direct I/O."""
    path = tmp_path / "file"
    path.write_bytes(b"")
    try:
        os.close(Files().open_direct(path))
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        pytest.skip(f"the file system of {tmp_path} has no direct I/O")
    return path


@pytest.fixture
def fd(path: Path) -> Iterator[int]:
    fd = Files().open_direct(path)
    yield fd
    os.close(fd)


@pytest.fixture
def io() -> Iterator[Direct]:
    io = Direct(Files())
    yield io
    io.close()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks and staging of a few pages, and threads for the least payload."""
    monkeypatch.setattr(direct, "BLOCK", 4 * PAGE)
    monkeypatch.setattr(direct, "STAGING", LANES * 2 * PAGE)
    monkeypatch.setattr(direct, "_ALONE", 0)


# What went in comes out


@st.composite
def splits(draw: st.DrawFn, nbytes: int) -> list[tuple[int, int]]:
    """Sizes of buffers that hold so many bytes together, and how far behind a page each begins."""
    edges = st.one_of(
        st.integers(0, nbytes),
        st.integers(0, nbytes // PAGE).map(lambda page: page * PAGE),
    )
    cuts = sorted(draw(st.lists(edges, max_size=6)))
    sizes = [end - begin for begin, end in zip([0, *cuts], [*cuts, nbytes], strict=True)]
    shifts = st.one_of(st.just(0), st.integers(0, PAGE - 1))
    return [(size, draw(shifts)) for size in sizes]


@given(data=st.data(), nbytes=st.one_of(st.sampled_from(SIZES), st.integers(0, 30 * PAGE)))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.usefixtures("small")
def test_any_split_written_comes_out_at_any_other(
    fd: int, data: st.DataObject, nbytes: int
) -> None:
    source = [filled(*buffer) for buffer in data.draw(splits(nbytes))]
    into = [memory(*buffer) for buffer in data.draw(splits(nbytes))]
    io = Direct(Files())
    digest = io.write(fd, source, 0, checksum=True)
    assert digest == xxh3_128_digest(joined(source))
    assert io.read(fd, into, 0, digest)
    assert joined(into) == joined(source)
    assert io.write(fd, source, 0, checksum=False) == b""
    io.close()


@pytest.mark.usefixtures("small")
def test_a_payload_fills_its_pages_and_touches_no_others(path: Path, fd: int) -> None:
    with closing(Direct(Files())) as io:
        for nbytes in SIZES:
            pages = -(-nbytes // PAGE) * PAGE
            path.write_bytes(b"\xff" * (pages + 2 * PAGE))
            data = [filled(nbytes).toreadonly()]
            digest = io.write(fd, data, PAGE, checksum=True)
            padding = bytes(pages - nbytes)
            expected = b"\xff" * PAGE + joined(data) + padding + b"\xff" * PAGE
            assert path.read_bytes() == expected, nbytes
            path.write_bytes(expected[: PAGE + nbytes])  # a file may end where its payload does
            into = [memory(nbytes)]
            assert io.read(fd, into, PAGE, digest)
            assert into == data


@pytest.mark.parametrize("shift", [0, 16])
def test_blocks_of_full_size_come_out(io: Direct, fd: int, shift: int) -> None:
    data = [filled(BLOCK + PAGE, shift), filled(7), filled(BLOCK, shift)]
    into = [memory(len(view), shift) for view in data]
    digest = io.write(fd, data, 0, checksum=True)
    assert io.read(fd, into, 0, digest)
    assert into == data
    assert sum(map(len, io._staging)) == STAGING


@pytest.mark.usefixtures("small")
def test_any_flipped_byte_is_seen_if_there_is_a_digest(path: Path, fd: int) -> None:
    io, data = Direct(Files()), [filled(10 * PAGE), filled(100)]
    digest = io.write(fd, data, 0, checksum=True)
    sound = path.read_bytes()
    into = [memory(10 * PAGE), memory(100)]
    for place in (0, PAGE, 4 * PAGE, 8 * PAGE - 1, 10 * PAGE, 10 * PAGE + 99):
        path.write_bytes(sound[:place] + bytes([sound[place] ^ 1]) + sound[place + 1 :])
        assert not io.read(fd, into, 0, digest)
        assert io.read(fd, into, 0, b"")
    path.write_bytes(sound)
    assert io.read(fd, into, 0, digest)
    io.close()


# Nothing is copied or allocated that need not be


def test_pages_that_fit_are_not_copied() -> None:
    staging = memory(64 * PAGE)
    aligned, odd = memory(8 * PAGE), memory(8 * PAGE, 16)
    assert PageRun([aligned, aligned]).cut(0, 16 * PAGE, staging).copies == []
    assert len(PageRun([odd]).cut(0, 8 * PAGE, staging).copies) == 1
    mixed = PageRun([aligned, odd, aligned, memory(100)]).cut(0, 24 * PAGE + 100, staging)
    assert [sum(map(len, parts)) for _, parts in mixed.copies] == [8 * PAGE, 100]
    assert sum(map(len, mixed.vector)) == 25 * PAGE


def test_pages_that_hold_the_end_of_one_buffer_and_the_next_are_copied_alone() -> None:
    # Together they are as one piece of memory that begins a page.
    buffers = [memory(PAGE + 1000), memory(3 * PAGE - 1000, 1000)]
    cut = PageRun(buffers).cut(0, 4 * PAGE, memory(PAGE))
    assert [list(map(len, parts)) for _, parts in cut.copies] == [[1000, PAGE - 1000]]
    assert list(map(len, cut.vector)) == [PAGE, PAGE, 2 * PAGE]


def test_a_cut_goes_as_far_as_its_staging_and_one_call() -> None:
    odd = PageRun([memory(9 * PAGE, 16)])
    assert odd.cut(0, 9 * PAGE, memory(4 * PAGE)).nbytes == 4 * PAGE
    many = PageRun([memory(PAGE, 16 * (number % 2)) for number in range(3000)])
    cut = many.cut(0, 3000 * PAGE, memory(2000 * PAGE))
    assert len(cut.vector) == os.sysconf("SC_IOV_MAX")


# Two in flight


class _Meeting(Files):
    """A system in which a call returns only when another one has come to meet it."""

    def __init__(self, *, first_only: bool = False) -> None:
        self.barrier = threading.Barrier(2)
        self.first_only = first_only
        self.sizes: list[int] = []

    def _meet(self, data: Buffers, offset: int) -> None:
        self.sizes.append(sum(map(len, data)))
        if offset == 0 or not self.first_only:
            self.barrier.wait(timeout=60)

    def pwritev(self, fd: int, data: Buffers, offset: int, /) -> int:
        self._meet(data, offset)
        return super().pwritev(fd, data, offset)

    def preadv(self, fd: int, into: Buffers, offset: int, /) -> int:
        self._meet(into, offset)
        return super().preadv(fd, into, offset)


@pytest.mark.parametrize("shift", [0, 16])
def test_two_blocks_are_in_flight_each_of_four_mebibytes_or_more(fd: int, shift: int) -> None:
    files = _Meeting()
    io, data = Direct(files), [filled(2 * BLOCK, shift)]
    io.write(fd, data, 0, checksum=False)
    io.read(fd, [memory(2 * BLOCK, shift)], 0, b"")
    assert min(files.sizes) >= 4 << 20
    io.close()


@pytest.mark.usefixtures("small")
def test_the_checksum_is_computed_while_blocks_are_written(
    fd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = _Meeting(first_only=True)

    def digest(data: Buffers) -> bytes:
        files.barrier.wait(timeout=60)
        return xxh3_128_digest(joined(data))

    monkeypatch.setattr(direct, "digest", digest)
    io, data = Direct(files), [filled(8 * PAGE)]
    assert io.write(fd, data, 0, checksum=True) == xxh3_128_digest(joined(data))
    io.close()


# What the system does not do


class _Hasty(Files):
    """A system in which the first call at any offset does a third of what it was asked."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, int]] = set()

    def _some(self, call: str, data: Buffers, offset: int) -> Buffers:
        if (call, offset) in self.seen:
            return data
        self.seen.add((call, offset))
        return [data[0][: max(512, len(data[0]) // 3 // 512 * 512)]]

    def pwritev(self, fd: int, data: Buffers, offset: int, /) -> int:
        return super().pwritev(fd, self._some("write", data, offset), offset)

    def preadv(self, fd: int, into: Buffers, offset: int, /) -> int:
        return super().preadv(fd, self._some("read", into, offset), offset)


@pytest.mark.usefixtures("small")
def test_short_counts_are_made_good(fd: int) -> None:
    for nbytes in SIZES:
        for shift in (0, 16):
            io = Direct(_Hasty())
            data = [filled(nbytes // 2, shift), filled(nbytes - nbytes // 2)]
            into = [memory(nbytes // 2), memory(nbytes - nbytes // 2, shift)]
            assert io.read(fd, into, 0, io.write(fd, data, 0, checksum=True)), nbytes
            assert into == data, nbytes
            io.close()


class _Stuck(Files):
    """A system that never moves a whole page."""

    def pwritev(self, fd: int, data: Buffers, offset: int, /) -> int:
        return super().pwritev(fd, [data[0][:512]], offset)

    def preadv(self, fd: int, into: Buffers, offset: int, /) -> int:
        return super().preadv(fd, [into[0][:512]], offset)


@pytest.mark.usefixtures("small")
def test_a_system_that_moves_less_than_a_page_is_not_asked_for_ever(path: Path, fd: int) -> None:
    path.write_bytes(bytes(9 * PAGE))
    with closing(Direct(_Stuck())) as io:
        with pytest.raises(OSError, match="within a page"):
            io.write(fd, [filled(9 * PAGE)], 0, checksum=False)
        with pytest.raises(OSError, match="within a page"):
            io.read(fd, [memory(9 * PAGE)], 0, b"")


class _Failing(Files):
    """A system in which one call fails, at one offset; it counts those that are not over."""

    def __init__(self, fails_at: int) -> None:
        self.fails_at: int | None = fails_at
        self.running = 0
        self._lock = threading.Lock()

    def _call(self, call: Callable[[], int], offset: int) -> int:
        with self._lock:
            self.running += 1
        try:
            if offset == self.fails_at:
                raise OSError(errno.EIO, "Input/output error")
            return call()
        finally:
            with self._lock:
                self.running -= 1

    def pwritev(self, fd: int, data: Buffers, offset: int, /) -> int:
        return self._call(lambda: super(_Failing, self).pwritev(fd, data, offset), offset)

    def preadv(self, fd: int, into: Buffers, offset: int, /) -> int:
        return self._call(lambda: super(_Failing, self).preadv(fd, into, offset), offset)


@pytest.mark.usefixtures("small")
def test_what_fails_in_either_lane_is_raised_and_then_nothing_runs(path: Path, fd: int) -> None:
    data, into = [filled(16 * PAGE)], [memory(16 * PAGE)]
    for block, checksum in product(range(4), (False, True)):
        path.write_bytes(bytes(16 * PAGE))
        files = _Failing(block * direct.BLOCK)
        io = Direct(files)
        with pytest.raises(OSError, match="Input/output") as caught:
            io.write(fd, data, 0, checksum=checksum)
        assert caught.value.errno == errno.EIO
        assert files.running == 0
        with pytest.raises(OSError, match="Input/output"):
            io.read(fd, into, 0, b"a digest" if checksum else b"")
        assert files.running == 0
        files.fails_at = None
        assert io.read(fd, into, 0, io.write(fd, data, 0, checksum=True))
        assert into == data
        io.close()


@pytest.mark.usefixtures("small")
def test_a_file_that_ends_within_is_seen(path: Path, fd: int, io: Direct) -> None:
    for nbytes, lacking, digest in product(
        (100, 6 * PAGE, 9 * PAGE + 100), (1, 600, PAGE, 5 * PAGE), (b"", b"some digest")
    ):
        path.write_bytes(bytes(max(0, PAGE + nbytes - lacking)))
        with pytest.raises(EOFError):
            io.read(fd, [memory(nbytes)], PAGE, digest)


# Threads


class _Interrupting(_Failing):
    """A system in which a call, at one offset, is when somebody interrupts the main thread."""

    def __init__(self, at: int) -> None:
        super().__init__(-1)
        self.at = at
        self.calls = 0

    def _call(self, call: Callable[[], int], offset: int) -> int:
        self.calls += 1
        if offset == self.at:
            self.at = -1
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        if self.at < 0:
            time.sleep(0.001)  # a loaded machine may take its time to interrupt
        return super()._call(call, offset)


@pytest.mark.parametrize("checksum", [False, True])
@pytest.mark.usefixtures("small")
def test_after_an_interrupt_no_thread_touches_the_memory(fd: int, checksum: bool) -> None:
    files = _Interrupting(8 * PAGE)
    io, data = Direct(files), [filled(4000 * PAGE)]
    with pytest.raises(KeyboardInterrupt):
        io.write(fd, data, 0, checksum=checksum)
    assert files.running == 0
    calls = files.calls
    io.close()
    assert files.calls == calls < 1000


def _lanes() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if "ckio-direct" in thread.name]


@pytest.mark.usefixtures("small")
def test_closing_stops_the_threads_and_may_be_repeated(fd: int) -> None:
    io = Direct(Files())
    io.write(fd, [filled(8 * PAGE)], 0, checksum=False)
    assert _lanes()
    io.close()
    assert not _lanes()
    io.close()
    with pytest.raises(StorageError, match="closed"):
        io.write(fd, [filled(8 * PAGE)], 0, checksum=False)


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_the_threads_of_one_that_was_forgotten_end(fd: int) -> None:
    io = Direct(Files())
    io.write(fd, [filled(8 * PAGE)], 0, checksum=False)
    threads = _lanes()
    del io
    gc.collect()
    for thread in threads:
        thread.join(timeout=60)
    assert not _lanes()


@pytest.mark.usefixtures("small")
def test_a_fork_is_refused_and_may_close(path: Path, fd: int) -> None:
    io, data, into = Direct(Files()), [filled(8 * PAGE)], [memory(8 * PAGE)]
    digest = io.write(fd, data, 0, checksum=True)

    def fork() -> None:
        with pytest.raises(StorageError, match="fork"):
            io.write(fd, data, 0, checksum=False)
        with pytest.raises(StorageError, match="fork"):
            io.read(fd, into, 0, b"")
        io.close()
        own = Direct(Files())
        assert own.read(fd, into, 0, digest)
        own.close()

    in_child(fork)
    assert io.read(fd, into, 0, digest)
    io.close()


ABANDONED = """
import sys
from pathlib import Path
from ckio.backends.directory.direct import Direct
from ckio.backends.files import Files
io, fd = Direct(Files()), Files().open_direct(Path(sys.argv[1]))
io.write(fd, [memoryview(bytes(3 << 20))], 0, checksum=True)
print("written")
"""


def test_an_interpreter_that_exits_without_closing_does_not_hang(path: Path) -> None:
    command = [sys.executable, "-c", ABANDONED, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout == "written\n"
    assert path.stat().st_size == 3 << 20


# A level


@pytest.mark.usefixtures("path")
class TestDirectDirectory(BackendTests):
    durable = True

    def make(self, tmp_path: Path, /, **limits: Any) -> Directory:
        return Directory(tmp_path / "level", durability="direct", **limits)

    reopen = make


@pytest.mark.slow
@pytest.mark.usefixtures("small", "path")
class TestDirectDirectoryInSmallBlocksOnAHastySystem(TestDirectDirectory):
    def make(self, tmp_path: Path, /, **limits: Any) -> Directory:
        return Directory(tmp_path / "level", durability="direct", files=_Hasty(), **limits)

    reopen = make


@pytest.mark.usefixtures("path")
def test_a_level_leaves_nothing_of_its_payload_in_the_page_cache(tmp_path: Path) -> None:
    level = Directory(tmp_path / "level", durability="direct")
    put(level, x(0), raw(1 << 20))
    get(level, x(0), raw(1 << 20))
    (file,) = (tmp_path / "level").iterdir()
    with file.open("r+b") as stream, mmap.mmap(stream.fileno(), 0) as seen:
        cached = _cached(seen)
        level.evict()
        if _cached(seen):
            pytest.skip("this file system is nothing but page cache")
    assert cached <= 2  # the heads of the file and of the slot
    level.close()


def _cached(seen: mmap.mmap) -> int:
    """Pages of a mapped file that are in the page cache."""
    pages = (ctypes.c_ubyte * -(-len(seen) // PAGE))()
    address = ctypes.c_void_p(ctypes.addressof(ctypes.c_ubyte.from_buffer(seen)))
    if ctypes.CDLL(None).mincore(address, ctypes.c_size_t(len(seen)), pages):
        pytest.skip("this system does not tell what is in the page cache")
    return sum(page & 1 for page in pages)
