"""How fast is each storage level, beside a bare copy and a bare system call on the same disk?"""

import os
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import record

from ckio.actions import Buffers, Field, Key, Kind, Layout
from ckio.backends.base import Backend
from ckio.backends.compressed import Compressed
from ckio.backends.directory import Directory
from ckio.backends.hdf5 import Hdf5
from ckio.backends.ram import Ram
from ckio.compression import Zstd
from ckio.model import as_bytes

ROUNDS = 15
CASES = {  # bytes of a state, its fields, checkpoints in a row
    "1 KiB, 4 fields": (1 << 10, 4, 200),
    "1 MiB, 4 fields": (1 << 20, 4, 10),
    "64 MiB, 8 fields": (64 << 20, 8, 1),
}
LEVELS: dict[str, Callable[[Path], Backend]] = {
    "ram": lambda _: Ram(),
    "directory": lambda place: Directory(place / "directory"),
    "hdf5": lambda place: Hdf5(place / "archive.h5"),
    "directory, zstd": lambda place: Compressed(Directory(place / "zstd"), Zstd(1, shuffle=8)),
}
COPY, CALL = "np.copyto", "pwritev, preadv"


class Copy:
    """What memory cannot beat: every checkpoint has touched arrays of its own to be copied to."""

    def __init__(self, data: Buffers, into: Buffers, count: int) -> None:
        self._data = [np.frombuffer(view, np.uint8) for view in data]
        self._into = [np.frombuffer(view, np.uint8) for view in into]
        self._held = [[np.ones_like(array) for array in self._data] for _ in range(count)]

    def write(self, key: Key, _layout: Layout, _data: Buffers) -> None:
        for target, source in zip(self._held[key.step], self._data, strict=True):
            np.copyto(target, source)

    def read(self, key: Key, _into: Buffers) -> None:
        for target, source in zip(self._into, self._held[key.step], strict=True):
            np.copyto(target, source)

    def reserve(self, _: dict[int, int]) -> None: ...
    def discard(self, _: Key) -> None: ...
    def close(self) -> None: ...


class Call:
    """What a file cannot beat: every checkpoint has its place, and moving it is one system call."""

    def __init__(self, path: Path, nbytes: int) -> None:
        self._fd, self._nbytes = os.open(path, os.O_RDWR | os.O_CREAT), nbytes

    def write(self, key: Key, _layout: Layout, data: Buffers) -> None:
        os.pwritev(self._fd, data, key.step * self._nbytes)

    def read(self, key: Key, into: Buffers) -> None:
        os.preadv(self._fd, into, key.step * self._nbytes)

    def reserve(self, _: dict[int, int]) -> None: ...
    def discard(self, _: Key) -> None: ...

    def close(self) -> None:
        os.close(self._fd)


def flow(nbytes: int, fields: int) -> tuple[Layout, list[memoryview]]:
    """A state of smooth fields with noise in their last digits."""
    size = nbytes // 8 // fields
    noise = np.random.default_rng(1)
    layout = tuple(Field(f"field{number}", "<f8", (size,)) for number in range(fields))
    waves = [np.sin(np.linspace(0, 9 + number, size)) for number in range(fields)]
    return layout, [as_bytes(wave + 1e-9 * noise.standard_normal(size)) for wave in waves]


def timed(
    level: Backend | Copy | Call, layout: Layout, data: Buffers, into: Buffers, count: int
) -> tuple[float, float]:
    """Seconds to write a checkpoint and to read it; the mean of `count` in a row."""
    keys = [Key(Kind.RESTART, step) for step in range(count)]

    def write() -> None:
        for key in keys:
            level.write(key, layout, data)

    def read() -> None:
        for key in keys:
            level.read(key, into)

    seconds = record.seconds(write) / count, record.seconds(read) / count
    for key in keys:
        level.discard(key)
    return seconds


def measure(place: Path, nbytes: int, fields: int, count: int) -> dict[str, np.ndarray]:
    """Seconds per checkpoint, by contender: (write or read, round)."""
    layout, data = flow(nbytes, fields)
    into = [memoryview(bytearray(view.nbytes)) for view in data]
    contenders: dict[str, Backend | Copy | Call] = {
        COPY: Copy(data, into, count),
        CALL: Call(place / "bare", nbytes),
    }
    contenders |= {name: make(place) for name, make in LEVELS.items()}
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    for level in contenders.values():
        level.reserve({nbytes: count})
    for turn in range(1 + ROUNDS):  # the first one warms up
        for name, level in contenders.items():
            seconds = timed(level, layout, data, into, count)
            if turn:
                took[name].append(seconds)
    for level in contenders.values():
        getattr(level, "remove", level.close)()
    return {name: np.transpose(seconds) for name, seconds in took.items()}


def table() -> str:
    rows, noise = [], []
    for case, (nbytes, fields, count) in CASES.items():
        with tempfile.TemporaryDirectory() as place:
            took = measure(Path(place), nbytes, fields, count)
        low, middle, high = statistics.quantiles(took[CALL][0], n=4)
        noise.append(f"{(high - low) / middle:.0%}")
        rows.append([case, *[""] * 8])
        for name, seconds in took.items():
            row = [f"  {name}"]
            for access in (0, 1):
                median = float(np.median(seconds[access]))
                row += [f"{median * 1e6:,.1f}", f"{nbytes / median / 1e6:,.0f}"]
                row += [ratio(seconds[access], took[bare][access]) for bare in (COPY, CALL)]
            rows.append(row)
    head = ["", "write µs", "MB/s", "/copy", "/call", "read µs", "MB/s", "/copy", "/call"]
    return (
        f"medians of {ROUNDS} interleaved rounds, page cache, no sync; directory and hdf5 verify\n"
        f"/copy, /call: time over that of {COPY} and of {CALL} in the same round\n"
        f"noise (quartile distance of the bare pwritev): {', '.join(noise)}\n\n"
        + record.columns(head, rows)
    )


def ratio(seconds: np.ndarray, bare: np.ndarray) -> str:
    return f"{float(np.median(seconds / bare)):.2f}"


@pytest.mark.parametrize("name", LEVELS)
def test_write_and_read(benchmark, tmp_path: Path, name: str) -> None:
    layout, data = flow(1 << 10, 4)
    into = [memoryview(bytearray(view.nbytes)) for view in data]
    level = LEVELS[name](tmp_path)
    benchmark(timed, level, layout, data, into, 3)
    assert into == data
    level.close()


if __name__ == "__main__":
    record.save("backends", table())
