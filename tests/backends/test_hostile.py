"""Directories are data: whatever is in them, only our own errors come of it.

A hostile author mends the checksums: so what is behind them is reached, too.
"""

import importlib.util
import json
import struct
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest
import xxhash
from jobs.begun import MANIFEST

from ckio.actions import Field, Layout
from ckio.backends.compressed import Compressed
from ckio.backends.directory import Directory
from ckio.backends.directory.format import LIVE, FileHead, length, unpack
from ckio.backends.forms import form_from
from ckio.backends.hdf5 import Hdf5
from ckio.backends.ram import Ram
from ckio.errors import BadInput, CkioError, StorageError
from ckio.jobs import directory as rundir
from ckio.jobs.leftovers import holdings
from ckio.testing import FLOW, a, put, raw, t, x

from .hostile import (
    allocating_at_most,
    campaign,
    changes,
    examine,
    mend_slots,
    mutated,
    random_bytes,
    random_json,
    touching_nothing_but,
)

LONG = 120
"""How many times as many inputs the long campaigns have."""

SCALES = [pytest.param(1, id="some"), pytest.param(LONG, id="many", marks=pytest.mark.slow)]
COUNTS = {
    "directory": 200,
    "anything": 50,
    "compressed": 65,  # for each codec
    "readers": 50,  # for each reader
    "run": 75,
}
"""Inputs of the short campaigns."""

ROOM = 1 << 20
"""Bytes that opening a level may take, however small it is; and a small multiple of its files."""


def fill(level: Any) -> None:
    put(level, x(0), FLOW)
    put(level, x(3), FLOW, seed=1)
    put(level, t(3), raw(100), seed=2)
    put(level, a(9), raw(5000), seed=3)
    level.discard(x(0))
    level.close()


class Case(NamedTuple):
    """What is done to a level's files, and how the level is then looked at."""

    file: int
    how: list[Any]
    mended: bool  # its checks are made right again
    written: bool  # the level is then written to
    measured: bool  # what Python allocates is watched, which takes most of the time

    def allocating_at_most(self, nbytes: int) -> AbstractContextManager[None]:
        return allocating_at_most(nbytes) if self.measured else nullcontext()


def case(random: Random) -> Case:
    chances = (random.random() < chance for chance in (0.7, 0.2, 0.2))
    return Case(random.randrange(2), changes(random), *chances)


@pytest.mark.parametrize("scale", SCALES)
def test_a_hostile_directory_gives_only_our_errors(memory: Path, scale: int) -> None:
    place = memory / "level"
    fill(Directory(place))
    files = [(path, path.read_bytes()) for path in sorted(place.iterdir())]

    def try_one(given: Case) -> None:
        for path in place.iterdir():
            path.unlink()
        for path, original in files:
            path.write_bytes(original)
        path, original = files[given.file]
        data = mutated(original, given.how)
        if given.mended:
            mend_slots(data, int(path.name.split("-")[1]))
        path.write_bytes(data)
        nbytes = sum(path.stat().st_size for path in place.iterdir())
        with touching_nothing_but(place), given.allocating_at_most(8 * nbytes + ROOM):
            examine(Directory, place, nbytes, write=given.written)

    campaign(case, COUNTS["directory"] * scale, try_one)


@pytest.mark.parametrize("scale", SCALES)
def test_files_of_anything_give_only_our_errors(memory: Path, scale: int) -> None:
    place, archive = memory / "level", memory / "a.h5"
    place.mkdir()

    def try_one(data: bytes) -> None:
        (place / "slots-8192-v3.ckio").write_bytes(data)
        archive.write_bytes(data)
        with touching_nothing_but(memory), allocating_at_most(8 * len(data) + ROOM):
            examine(Directory, place, len(data), write=True)
            examine(Hdf5, archive, len(data), write=True)

    campaign(
        lambda random: random.randbytes(random.randrange(1 << 14)),
        COUNTS["anything"] * scale,
        try_one,
    )


# What is stored compressed


def codecs() -> list[Any]:
    from ckio.compression import Zstd

    found: list[Any] = [Zstd()]
    if importlib.util.find_spec("blosc2"):
        from ckio.compression import Blosc2

        found.append(Blosc2())
    if importlib.util.find_spec("zfpy"):
        from ckio.compression import Zfp

        found += [Zfp(), Zfp(tolerance=1e-3)]
    return found


@pytest.mark.campaign
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("codec", codecs(), ids=lambda codec: codec.name)
def test_hostile_compressed_bytes_give_only_our_errors(codec: Any, scale: int) -> None:
    layout: Layout = (
        Field("u", "<f8", (40, 50)),
        Field("v", "<f4", (300,)),
        Field("n", "<i8", (9,)),
    )
    arrays = [np.cumsum(np.ones(field.shape, field.dtype)).astype(field.dtype) for field in layout]
    data = [memoryview(array).cast("B") for array in arrays]

    def compressed() -> tuple[Ram, Compressed]:
        ram = Ram()
        return ram, Compressed(ram, codec, threads=1)

    ram, level = compressed()
    level.write(x(0), layout, data)
    (encoded,) = ram.layout(x(0))
    original = bytearray(encoded.shape[0])
    ram.read(x(0), [memoryview(original)])

    def try_one(given: tuple[list[Any], list[Any]]) -> None:
        how, words = given
        bad = mutated(bytes(original), how)
        unit = mutated(encoded.unit.encode(), words).decode(errors="replace")
        ram, level = compressed()
        try:
            ram.write(x(0), (Field("encoded", "|u1", (len(bad),), unit),), [memoryview(bad)])
        except StorageError:  # a unit with control characters is refused where it enters
            return
        into = [memoryview(bytearray(array.nbytes)) for array in arrays]
        with allocating_at_most(8 * len(original) + (8 << 20)), suppress(CkioError):
            if level.layout(x(0)) == layout:
                level.read(x(0), into)

    def made(random: Random) -> tuple[list[Any], list[Any]]:
        return changes(random), changes(random) if random.random() < 0.2 else []

    campaign(made, COUNTS["compressed"] * scale, try_one)


# The readers by themselves


def head(text: bytes, at: int) -> bytes:
    numbers = 136 + len(text) + 16, 4096, 8, 1, 0.0, 3, b"x", 1, 0, len(text)
    fixed = struct.pack("<IIQQdQcBHI16s64s", *numbers, bytes(16), b"cafe")
    return LIVE + fixed + text + xxhash.xxh3_128_digest(fixed + text, at)


READERS: dict[str, Callable[[bytes], Any]] = {
    "form": form_from,
    "head": lambda data: unpack(data, 0),
    "text of a head": lambda data: unpack(head(data, 4096), 4096),
    "head of a file": FileHead.unpack,
    "length of a head": length,
}


@pytest.mark.campaign
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", READERS)
def test_the_readers_of_heads_take_any_bytes(name: str, scale: int) -> None:
    def try_one(data: bytes) -> None:
        with allocating_at_most(ROOM + 64 * len(data)), suppress(CkioError):
            READERS[name](data)

    campaign(random_bytes, COUNTS["readers"] * scale, try_one)


@pytest.mark.parametrize("scale", SCALES)
def test_a_hostile_run_directory_is_bad_input(memory: Path, scale: int) -> None:
    place = memory / "run"
    place.mkdir()
    level = "#| format = 1\n#| [[level]]\n#| name='a'\n#| backend='directory'\n#| options.path="

    def try_one(given: tuple[bytes, bytes]) -> None:
        manifest, path = given
        (place / rundir.MANIFEST).write_bytes(manifest)
        (place / rundir.SCHEDULE).write_bytes(b"# ckio schedule 1\n" + path)
        try:
            found = holdings(place)
        except BadInput:
            return
        run = json.loads(manifest)["run"]
        assert {holding.path.name for holding in found} <= {run}
        assert set(run) <= set("0123456789abcdef")

    names = ("cafe", "..", "", "/", "a/../../b", "0" * 300, "\0", 1, None, [], {})
    paths = ("x", "..", "/", "\0", "/proc/self/fd/0", "\ud800", "~", 0, None, "a" * 5000)

    def made(random: Random) -> tuple[bytes, bytes]:
        said = json.loads(MANIFEST.dumps())
        for name in random.sample(sorted(said), random.choice((0, 1, 1, 2))):
            said[name] = random.choice((random.choice(names), random_json(random)))
        said["format"] = random.choice((2, 2, 2, 1, None, 2.0, True))
        text = json.dumps(random.choice((said, said, said, random_json(random))))
        whole = rundir.sealed(text) if text.startswith("{") else text
        path = level + json.dumps(random.choice(paths))
        manifest = random.choice((whole.encode(), whole.encode(), random_bytes(random)))
        return manifest, random.choice((path.encode(), b"#| " + random_bytes(random)))

    campaign(made, COUNTS["run"] * scale, try_one)


def test_the_long_campaigns_try_100000_inputs() -> None:
    each = COUNTS | {
        "compressed": len(codecs()) * COUNTS["compressed"],
        "readers": len(READERS) * COUNTS["readers"],
    }
    assert sum(each.values()) * LONG >= 100_000
