"""Once a level is warm, what it allocates for an access does not grow with the state."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ckio.actions import Field, Key, Kind
from ckio.backends.base import Backend
from ckio.backends.compressed import Compressed
from ckio.backends.directory import Directory
from ckio.backends.hdf5 import Hdf5
from ckio.backends.ram import Ram
from ckio.compression import Zstd
from ckio.model import as_bytes

SMALL, LARGE = 8 << 20, 32 << 20
MOST = 128 << 10
"""Bytes more that four times the state may take: lists of pieces."""

LEVELS: dict[str, Callable[[Path], Backend]] = {
    "ram": lambda _: Ram(),
    "ram, checksum": lambda _: Ram(checksum=True),
    "directory": Directory,
    "directory, fdatasync": lambda place: Directory(place, durability="fdatasync"),
    "directory, no checksum": lambda place: Directory(place, checksum=False),
    "hdf5": lambda place: Hdf5(place / "archive.h5"),
    "ram, zstd": lambda _: Compressed(Ram(), Zstd(1)),
    "directory, zstd": lambda place: Compressed(Directory(place), Zstd(1)),
    "hdf5, zstd": lambda place: Compressed(Hdf5(place / "archive.h5"), Zstd(1)),
}


def peak(level: Backend, nbytes: int) -> int:
    """The most bytes that python and numpy hold, beyond what they held before, in later rounds."""
    count = nbytes // 8 // 4
    state = [np.sin(np.linspace(0, 9 + number, count)) for number in range(4)]
    layout = tuple(Field(f"field{number}", "<f8", (count,)) for number in range(4))
    into = [np.empty(count) for _ in state]
    key = Key(Kind.RESTART, 0)
    level.reserve({nbytes: 2})

    def access() -> None:
        level.write(key, layout, [as_bytes(array) for array in state])
        level.read(key, [as_bytes(array) for array in into])
        level.discard(key)

    for _ in range(2):
        access()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        for _ in range(3):
            access()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert all(map(np.array_equal, state, into))
    return most - before


@pytest.mark.campaign
@pytest.mark.parametrize("name", LEVELS)
def test_what_an_access_allocates_does_not_grow_with_the_state(tmp_path: Path, name: str) -> None:
    peaks = []
    for nbytes in (SMALL, LARGE):
        place = tmp_path / str(nbytes)
        place.mkdir()
        level = LEVELS[name](place)
        peaks.append(peak(level, nbytes))
        level.close()
    small, large = peaks
    assert large - small < MOST
    assert large < SMALL
