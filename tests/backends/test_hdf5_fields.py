"""The fields of an archive: what HDF5 and its tools see of checkpoints."""

import os
import random
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import h5py
import numpy as np
import pytest

from ckio.actions import Field, Layout
from ckio.backends.compressed import Compressed
from ckio.backends.files import Files
from ckio.backends.forms import form_of
from ckio.backends.hdf5 import Hdf5
from ckio.compression import Zstd
from ckio.testing import put, x

from .common import OCEAN

ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "archive.h5"


def some(layout: Layout, seed: int) -> list[memoryview]:
    noise = random.Random(seed)
    return [memoryview(noise.randbytes(size)) for size in form_of(layout).sizes]


# What people read


def test_what_the_documentation_shows_works(tmp_path: Path) -> None:
    layout: Layout = (Field("zeta", "<f8", (30, 40), "1/s"),)
    level = Compressed(Hdf5(tmp_path / "archive-RUN.h5"), Zstd())
    data = {step: np.full((30, 40), float(step)) for step in (3, 8)}
    for step, array in data.items():
        level.write(x(step), layout, [array.reshape(-1).view(np.uint8).data])
    level.close()
    plain = Hdf5(tmp_path / "plain.h5")
    plain.write(x(5), layout, [data[3].reshape(-1).view(np.uint8).data])
    plain.close()
    text = (ROOT / "docs" / "archive.md").read_text(encoding="utf-8")
    show, convert = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)

    def run(code: str) -> str:
        line = [sys.executable, "-c", code]
        done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout

    assert run(show.replace("archive-RUN", "plain")) == "5 3.0 1/s\n"
    assert run(convert) == ""
    with h5py.File(tmp_path / "copy.h5") as file:
        assert {name: (file[name]["zeta"][:] == int(name[2:])).all() for name in file} == {
            "x_3": True,
            "x_8": True,
        }


# Space


class Sparse(Files):
    """A disk on which files have holes."""

    def extend(self, fd: int, begin: int, nbytes: int, /, *, prewrite: bool) -> None:
        del prewrite
        os.ftruncate(fd, begin + nbytes)


def test_a_field_may_have_more_than_4_gib(path: Path) -> None:
    layout = (Field("huge", "<f8", (1 << 29,)), Field("most", "|u1", ((1 << 32) - 1,)), *OCEAN)
    archive = Hdf5(path, files=Sparse())
    archive.prepare(x(0), layout, 2)
    assert path.stat().st_size < 2 * form_of(layout).nbytes + 200_000
    with h5py.File(path) as file:
        group = file["restart-0"]
        assert set(group) == {"keys", *(field.name for field in layout)}
        assert group["huge"].shape == (2, 1 << 29)
        assert not group["huge"][1, -5:].any()
    archive.close()


@pytest.mark.parametrize("count", [1, 100, 5000])
def test_a_reservation_has_room_for_what_hdf5_finds_the_fields_by(path: Path, count: int) -> None:
    layout = tuple(Field(f"u{number}", "<f8", (4, 5, 6)) for number in range(8))
    with closing(Hdf5(path)) as archive:
        archive.reserve({form_of(layout).nbytes: count})
        size = path.stat().st_size
        put(archive, x(0), layout)
        assert path.stat().st_size == size
        with h5py.File(path) as file:
            assert len(file["restart-0/u7"]) == count
