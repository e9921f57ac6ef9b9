"""Direct I/O: every byte past the page cache, at any split of buffers."""

import ctypes
import fcntl
import mmap
import os
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from xxhash import xxh3_128_digest

from ckio.actions import Buffers
from ckio.backends.directory import Directory, direct
from ckio.backends.directory.direct import PAGE, Direct
from ckio.backends.files import Files
from ckio.testing import BackendTests, get, put, raw, x

from .common import BROKEN, Struck

SIZES = [0, 1, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE, 20 * PAGE + 7]
HERE = Path(gettempdir())


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
    if not Files().has_direct(tmp_path):
        pytest.skip(f"the file system of {tmp_path} has no direct I/O")
    path = tmp_path / "file"
    path.write_bytes(b"")
    return path


@pytest.fixture
def fd(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDWR)
    yield fd
    assert not fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT
    os.close(fd)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of a few pages."""
    monkeypatch.setattr(direct, "PIECE", 4 * PAGE)


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
    io = Direct(Files(), HERE)
    digest = io.write(fd, source, 0, checksum=True)
    assert digest == xxh3_128_digest(joined(source))
    assert io.read(fd, into, 0, digest)
    assert joined(into) == joined(source)
    assert io.write(fd, source, 0, checksum=False) == b""


@pytest.mark.usefixtures("small")
def test_a_payload_fills_its_pages_and_touches_no_others(path: Path, fd: int) -> None:
    io = Direct(Files(), path.parent)
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


@pytest.mark.usefixtures("small")
def test_more_buffers_than_one_call_takes_come_out(path: Path, fd: int) -> None:
    io, data = Direct(Files(), path.parent), [filled(5, number % 3) for number in range(3000)]
    into = [memory(5) for _ in data]
    assert io.read(fd, into, PAGE, io.write(fd, data, PAGE, checksum=True))
    assert into == data


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
def test_short_counts_are_made_good(path: Path, fd: int) -> None:
    for nbytes in SIZES:
        for shift in (0, 16):
            io = Direct(_Hasty(), path.parent)
            data = [filled(nbytes // 2, shift), filled(nbytes - nbytes // 2)]
            into = [memory(nbytes // 2), memory(nbytes - nbytes // 2, shift)]
            assert io.read(fd, into, 0, io.write(fd, data, 0, checksum=True)), nbytes
            assert into == data, nbytes


@pytest.mark.usefixtures("small")
def test_what_fails_is_raised_and_direct_io_is_off_again(path: Path, fd: int) -> None:
    def failing() -> Struck:
        return Struck("pwritev", "preadv", error=BROKEN, left=2)

    path.write_bytes(bytes(20 * PAGE))
    with pytest.raises(OSError, match="Input/output error"):
        Direct(failing(), path.parent).write(fd, [filled(20 * PAGE)], 0, checksum=True)
    with pytest.raises(OSError, match="Input/output error"):
        Direct(failing(), path.parent).read(fd, [memory(20 * PAGE)], 0, b"")


@pytest.mark.usefixtures("small")
def test_a_file_that_ends_within_is_seen(path: Path, fd: int) -> None:
    io = Direct(Files(), path.parent)
    for nbytes, lacking, digest in product(
        (100, 6 * PAGE, 9 * PAGE + 100), (1, 600, PAGE, 5 * PAGE), (b"", b"some digest")
    ):
        path.write_bytes(bytes(max(0, PAGE + nbytes - lacking)))
        with pytest.raises(EOFError):
            io.read(fd, [memory(nbytes)], PAGE, digest)


# A level


@pytest.mark.usefixtures("path")
class TestDirectDirectory(BackendTests):
    durable = True

    def make(self, tmp_path: Path, /, **limits: Any) -> Directory:
        return Directory(tmp_path / "level", durability="direct", **limits)

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
