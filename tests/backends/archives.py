"""What the tests of archives share: a sound one, ways to damage it, and what is left."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import h5py
import numpy as np

from ckio.actions import Key, Kind, Layout
from ckio.backends.contents import Damaged, Stored
from ckio.backends.hdf5 import Hdf5
from ckio.backends.hdf5_rows import ROW
from ckio.testing import get, put, x

from .common import OCEAN


def everything(archive: Hdf5, layout: Layout) -> dict[Key, bytes]:
    return {key: get(archive, key, layout) for key in set(archive.keys())}


def damaged(path: Path) -> list[str]:
    return [it.what for it in Hdf5.contents(path) if isinstance(it, Damaged)]


def flip(path: Path, sound: bytes, position: int, bit: int = 0) -> None:
    content = bytearray(sound)
    content[position] ^= 1 << bit
    path.write_bytes(content)


@cache
def a_sound_archive() -> tuple[bytes, dict[Key, bytes], list[int]]:
    """Its bytes, what it holds, and where a flipped bit must be found: rows and payload."""
    with TemporaryDirectory() as place:
        path = Path(place, "archive.h5")
        archive = Hdf5(path)
        archive.reserve({164: 2})
        keys = [x(5), x(6), Key(Kind.TAPE, 1), x(7), Key(Kind.ADJOINT, 4)]
        originals = {key: put(archive, key, OCEAN, seed=key.step) for key in keys}
        archive.close()
        with h5py.File(path) as file:
            tables = [file[name]["keys"] for name in set(file) - {"README"}]
            rows = [
                (table.id.get_offset() + slot * ROW.itemsize, ROW.itemsize)
                for table in tables
                for slot in np.flatnonzero(table["state"] == b"stored").tolist()
            ]
        listed = [it for it in Hdf5.contents(path) if isinstance(it, Stored)]
        spans = [*rows, *(span for it in listed for span in it.spans)]
        live = [at for begin, nbytes in spans for at in range(begin, begin + nbytes)]
        return path.read_bytes(), originals, live
