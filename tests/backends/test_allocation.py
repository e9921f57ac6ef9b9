"""Once a level is warm, what it allocates for an access does not grow with the state."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from installed import needs_blosc2, needs_zfp

from ckio.actions import Field
from ckio.backends.base import Backend
from ckio.backends.compressed import Compressed
from ckio.backends.directory import Directory
from ckio.backends.hdf5 import Hdf5
from ckio.backends.ram import Ram
from ckio.compression import Blosc2, Zfp, Zstd

from .common import peak_of_a_turn

SMALL, LARGE = 8 << 20, 32 << 20
MOST = 128 << 10
"""Bytes more that four times the state may take: lists of pieces."""

LEVELS: dict[str, Callable[[Path], Backend]] = {
    "hdf5": lambda place: Hdf5(place / "archive.h5"),
    "ram": lambda _: Ram(),
    "ram, checksum": lambda _: Ram(checksum=True),
    "directory": Directory,
    "directory, fdatasync": lambda place: Directory(place, durability="fdatasync"),
    "directory, direct": lambda place: Directory(place, durability="direct"),
    "directory, no checksum": lambda place: Directory(place, checksum=False),
    "ram, zstd": lambda _: Compressed(Ram(), Zstd(1), threads=2),
    "directory, zstd": lambda place: Compressed(Directory(place), Zstd(1), threads=2),
    "ram, blosc2": lambda _: Compressed(Ram(), Blosc2(), threads=1),
    "ram, zfp": lambda _: Compressed(Ram(), Zfp(), threads=1),
    "hdf5, zstd": lambda place: Compressed(Hdf5(place / "archive.h5"), Zstd(1), threads=2),
}


QUICK = {"hdf5", "ram", "ram, checksum", "directory", "directory, no checksum"}
PACKAGES = {"blosc2": [needs_blosc2, pytest.mark.slow], "zfp": [needs_zfp, pytest.mark.slow]}


def peak(level: Backend, nbytes: int) -> int:
    """Return the most bytes that Python and numpy allocate for a write, a read and a discard."""
    state = [np.sin(np.linspace(0, 9 + number, nbytes // 32)) for number in range(4)]
    layout = tuple(Field(f"field{number}", "<f8", (nbytes // 32,)) for number in range(4))
    level.reserve({nbytes: 2})
    return peak_of_a_turn(level, layout, state)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            it, marks=() if it in QUICK else PACKAGES.get(it.split()[-1], pytest.mark.slow)
        )
        for it in LEVELS
    ],
)
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
