"""How fast is each storage level, beside a bare copy and bare system calls on the same disk?

Every contender writes and reads the same states in the same rounds. What a level must reach is a
ratio to what its medium gives at best; where it is a time, the time of the bare call is beside it,
because a machine that takes three times as long for the call takes as much longer for the rest.
"""

import os
import random
import statistics
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import h5py
import numpy as np
import xxhash

from bench import record
from ckio.actions import Buffers, Field, Key, Kind, Layout
from ckio.backends.directory import Directory
from ckio.backends.hdf5 import Hdf5
from ckio.backends.ram import Ram
from ckio.model import as_bytes
from ckio.model.arrays import copy

SETS, ROUNDS = 5, 4
"""Files and arrays are made anew in each set: which pages of memory they get, a process does not
choose, and one and the same call takes a fifth longer on some than on others.
"""


class Contender(Protocol):
    """What all of them do; the levels of ckio are some."""

    def reserve(self, sizes: dict[int, int], /) -> object: ...
    def write(self, key: Key, layout: Layout, data: Buffers, /) -> object: ...
    def read(self, key: Key, into: Buffers, /) -> object: ...
    def discard(self, key: Key, /) -> object: ...
    def close(self) -> object: ...


class Bare:
    """A contender that has nothing to reserve or to discard."""

    def reserve(self, sizes: dict[int, int], /) -> None: ...
    def discard(self, key: Key, /) -> None: ...
    def close(self) -> None: ...


class Copy(Bare):
    """What memory cannot beat: every checkpoint has touched arrays of its own to be copied to."""

    def __init__(self, data: Buffers, into: Buffers, count: int) -> None:
        self._data = [np.frombuffer(view, np.uint8) for view in data]
        self._into = [np.frombuffer(view, np.uint8) for view in into]
        self._held = [[np.ones_like(array) for array in self._data] for _ in range(count)]

    def write(self, key: Key, _layout: Layout, _data: Buffers, /) -> None:
        for target, source in zip(self._held[key.step], self._data, strict=True):
            target[...] = source

    def read(self, key: Key, _into: Buffers, /) -> None:
        for target, source in zip(self._into, self._held[key.step], strict=True):
            target[...] = source


class Call(Bare):
    """What a file cannot beat: every checkpoint has its place, and moving it is one system call."""

    def __init__(self, path: Path, nbytes: int) -> None:
        self._fd, self._stride = os.open(path, os.O_RDWR | os.O_CREAT), -(-nbytes // 4096) * 4096

    def write(self, key: Key, _layout: Layout, data: Buffers, /) -> None:
        os.pwritev(self._fd, data, key.step * self._stride)

    def read(self, key: Key, into: Buffers, /) -> None:
        os.preadv(self._fd, into, key.step * self._stride)

    def close(self) -> None:
        os.close(self._fd)


class Checked(Call):
    """The least that a level which verifies can do: a head of 96 bytes, and a pass of xxh3_128."""

    def __init__(self, path: Path, nbytes: int) -> None:
        super().__init__(path, nbytes + 4096)
        self._head = memoryview(bytearray(96))

    def write(self, key: Key, layout: Layout, data: Buffers, /) -> None:
        self._head[:16] = _digest(data)
        super().write(key, layout, [self._head, *data])

    def read(self, key: Key, into: Buffers, /) -> None:
        super().read(key, [self._head, *into])
        if self._head[:16] != _digest(into):
            raise AssertionError(key)


class LowLevel(Bare):
    """What HDF5 cannot beat: a state is one array, and one row of one dataset; dataspaces kept."""

    def __init__(self, path: Path, nbytes: int, count: int) -> None:
        self._file = h5py.File(path, "w")
        self._rows = self._file.create_dataset("rows", (count, nbytes), "u1").id
        self._memory = h5py.h5s.create_simple((nbytes,))
        self._array = np.ones(nbytes, np.uint8)
        self._places = []
        for step in range(count):
            place = self._rows.get_space()
            place.select_hyperslab((step, 0), (1, nbytes))
            self._places.append(place)

    def write(self, key: Key, _layout: Layout, _data: Buffers, /) -> None:
        place = self._places[key.step]
        self._rows.write(self._memory, place, self._array, h5py.h5t.NATIVE_UINT8)

    def read(self, key: Key, _into: Buffers, /) -> None:
        place = self._places[key.step]
        self._rows.read(self._memory, place, self._array, h5py.h5t.NATIVE_UINT8)

    def close(self) -> None:
        self._file.close()


def _digest(data: Buffers) -> bytes:
    state = xxhash.xxh3_128()
    for view in data:
        state.update(view)
    return state.digest()


COPY, CALL, CHECKED, LOW = "bare copy", "bare call", "bare call, verified", "bare h5d"
LEVELS: Mapping[str, Callable[[Path], Contender]] = {
    "ram": lambda _: Ram(),
    "directory": lambda place: Directory(place / "directory"),
    "directory, no checksum": lambda place: Directory(place / "trusting", checksum=False),
    "hdf5": lambda place: Hdf5(place / "archive.h5"),
}


@dataclass(frozen=True)
class Case:
    """A state of so many bytes and fields, and how many checkpoints of it come in a row.

    Of larger ones there is more than a processor's caches hold: a run, too, writes its checkpoints
    to where nothing was touched for long.
    """

    name: str
    nbytes: int
    fields: int
    count: int


KIB, MIB, LARGE = (
    Case("1 KiB", 1 << 10, 4, 200),
    Case("1 MiB", 1 << 20, 4, 64),
    Case("64 MiB", 64 << 20, 8, 1),
)
CASES = (KIB, MIB, LARGE)
WRITE, READ = 0, 1
Took = Mapping[str, np.ndarray]
"""Seconds for one checkpoint by contender: (write or read, round)."""


@dataclass(frozen=True)
class Target:
    """A level against the best that its medium can do: at most so many times as long."""

    case: Case
    level: str
    access: int
    bare: str
    most: float


TARGETS = (
    *(Target(LARGE, "ram", access, COPY, 1.10) for access in (WRITE, READ)),
    *(Target(KIB, "ram", access, COPY, 3.0 / 0.5) for access in (WRITE, READ)),
    Target(LARGE, "directory", WRITE, CALL, 1.35),
    Target(LARGE, "directory, no checksum", WRITE, CALL, 1.10),
    Target(LARGE, "directory", READ, CALL, 1.35),
    *(Target(KIB, "directory", access, CHECKED, 6.0 / 0.95) for access in (WRITE, READ)),
    *(Target(case, "hdf5", access, CALL, 1.5) for case in (MIB, LARGE) for access in (WRITE, READ)),
    *(Target(KIB, "hdf5", access, LOW, 10.0 / 2.5) for access in (WRITE, READ)),
)


def flow(nbytes: int, fields: int) -> tuple[Layout, list[memoryview]]:
    """A state of smooth fields with noise in their last digits."""
    size = nbytes // 8 // fields
    noise = np.random.default_rng(1)
    layout = tuple(Field(f"field{number}", "<f8", (size,)) for number in range(fields))
    waves = [np.sin(np.linspace(0, 9 + number, size)) for number in range(fields)]
    states = [wave + 1e-9 * noise.standard_normal(size) for wave in waves]
    return layout, [as_bytes(copy(state)) for state in states]


def timed(
    level: Contender, layout: Layout, data: Buffers, into: Buffers, count: int
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


def measure(case: Case, sets: int, rounds: int) -> Took:
    """All contenders with the states of a case, in turn, in sets that have nothing in common."""
    took: dict[str, list[np.ndarray]] = {}
    for _ in range(sets):
        with tempfile.TemporaryDirectory() as place:
            for name, seconds in _measure(Path(place), case, rounds).items():
                took.setdefault(name, []).append(seconds)
    return {name: np.concatenate(seconds, axis=1) for name, seconds in took.items()}


def _measure(place: Path, case: Case, rounds: int) -> Took:
    layout, data = flow(case.nbytes, case.fields)
    into = [as_bytes(copy(view)) for view in data]
    contenders: dict[str, Contender] = {
        COPY: Copy(data, into, case.count),
        CALL: Call(place / "call", case.nbytes),
        CHECKED: Checked(place / "checked", case.nbytes),
        LOW: LowLevel(place / "low.h5", case.nbytes, case.count),
    }
    contenders |= {name: make(place) for name, make in LEVELS.items()}
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    for level in contenders.values():
        level.reserve({case.nbytes: case.count})
    names = list(contenders)
    for turn in range(1 + rounds):  # the first one warms up
        random.shuffle(names)  # who comes right behind whom is left to chance, too
        for name in names:
            seconds = timed(contenders[name], layout, data, into, case.count)
            if turn:
                took[name].append(seconds)
    for level in contenders.values():
        getattr(level, "remove", level.close)()
    return {name: np.transpose(seconds) for name, seconds in took.items()}


def tables(sets: int, rounds: int) -> str:
    took = {case: measure(case, sets, rounds) for case in CASES}
    noise = ", ".join(f"{case.name} {_spread(took[case][CALL][WRITE]):.0%}" for case in CASES)
    return (
        f"medians of {rounds} interleaved rounds with each of {sets} sets of files;"
        " page cache, no sync; directory and hdf5 verify\n"
        f"noise (quartile distance of the bare pwritev): {noise}\n\n"
        f"{_targets(took)}"
    )


def _targets(took: Mapping[Case, Took]) -> str:
    rows = []
    for target in TARGETS:
        seconds = took[target.case][target.level][target.access]
        bare = took[target.case][target.bare][target.access]
        reached = _ratio(seconds, bare)
        rows.append(
            [
                f"{target.level}, {'read' if target.access else 'write'}, {target.case.name}",
                f"{np.median(seconds) * 1e6:,.1f}",
                target.bare,
                f"{np.median(bare) * 1e6:,.1f}",
                f"{reached:.2f}",
                f"{target.most:.2f}",
                "" if reached <= target.most else "missed",
            ]
        )
    return record.columns(["", "µs", "beside", "µs", "ratio", "at most", ""], rows)


def _ratio(seconds: np.ndarray, bare: np.ndarray) -> float:
    return float(np.median(seconds / bare))


def _spread(seconds: np.ndarray) -> float:
    low, middle, high = statistics.quantiles(seconds, n=4)
    return (high - low) / middle


if __name__ == "__main__":
    record.main("backends", tables, sets=SETS, rounds=ROUNDS)
