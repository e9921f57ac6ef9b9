"""One workload for every durable level: what faults strike at, operation by operation."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from ckio.actions import Buffers, Field, Key, Layout
from ckio.backends.base import Backend
from ckio.backends.compressed import Compressed
from ckio.backends.contents import Damaged, Stored
from ckio.backends.directory import Directory
from ckio.backends.files import Files
from ckio.backends.forms import form_of
from ckio.backends.hdf5 import Hdf5
from ckio.compression import Zstd
from ckio.errors import LevelFull
from ckio.testing import a, get, put, raw, t, x


@dataclass(frozen=True)
class Kind:
    """A kind of durable level: its backend, durability, and whether it is compressed."""

    backend: type[Directory] | type[Hdf5]
    durability: str
    compressed: bool = False

    def __str__(self) -> str:
        name = f"{self.backend.__name__.lower()}-{self.durability}"
        return f"{name}-compressed" if self.compressed else name

    def place(self, root: Path) -> Path:
        return root / ("level" if self.backend is Directory else "level.h5")

    def open(self, root: Path, files: Files | None = None, **limits: Any) -> Backend:
        made = {"durability": self.durability, "files": files} | limits
        level = self.backend(self.place(root), **made)
        return Compressed(level, Zstd(1)) if self.compressed else level

    def contents(self, root: Path) -> list[Stored | Damaged]:
        return self.backend.contents(self.place(root))


ANY_DURABILITY = ("process", "fdatasync", "direct")


def plain(*durabilities: str) -> list[Kind]:
    """Those of `kinds` that are not compressed."""
    return [kind for kind in kinds(*durabilities) if not kind.compressed]


def plain_first(*durabilities: str) -> list[Any]:
    """All of `kinds`; those that are compressed are slow."""
    every = kinds(*durabilities)
    return [pytest.param(it, marks=pytest.mark.slow) if it.compressed else it for it in every]


def kinds(*durabilities: str) -> list[Kind]:
    """Each backend with each of these durabilities, plain and compressed."""
    return [
        Kind(backend, durability, compressed)
        for compressed in (False, True)
        for backend in (Directory, Hdf5)
        for durability in durabilities
        if (backend, durability) != (Hdf5, "direct")  # refused, with the reason
    ]


class Step(NamedTuple):
    """One thing to do: "reserve", "write", "discard" or "reopen"."""

    verb: str
    key: Key = a(0)
    layout: Layout = ()
    seed: int = 0


SMALL, LARGE = raw(100), (Field("zeta", "<f8", (10, 120), "1/s"), Field("time", "<f8", ()))

WORKLOAD: tuple[Step, ...] = (
    Step("reserve", layout=SMALL),
    Step("write", x(0), SMALL, 1),
    Step("write", x(5), LARGE, 2),
    Step("discard", x(0)),
    Step("write", x(0), SMALL, 3),  # other bytes, where there had been some
    Step("reopen"),
    Step("write", t(5), LARGE, 4),
    Step("discard", x(5)),
    Step("write", x(5), LARGE, 5),
    Step("write", x(12), SMALL, 6),
    Step("discard", t(5)),
    Step("reopen"),
    Step("write", t(5), raw(20_000), 7),
    Step("discard", x(12)),
    Step("discard", x(0)),
)
"""Small and large, slots used again, sizes that are new, and a level that is opened again."""

KEYS = sorted({step.key for step in WORKLOAD}, key=str)


def data_of(layout: Layout, seed: int) -> Buffers:
    """Bytes that belong to this seed; a codec can make those of `LARGE` smaller."""
    form = form_of(layout)
    noise = np.frombuffer(
        np.random.default_rng(seed).bytes(48 if layout == LARGE else form.nbytes), np.uint8
    )
    left = memoryview(np.resize(noise, form.nbytes).tobytes())
    return [left[end - size : end] for size, end in zip(form.sizes, _ends(form.sizes), strict=True)]


def bytes_of(step: Step) -> bytes:
    """What a step writes."""
    return b"".join(data_of(step.layout, step.seed))


def do(level: Backend, step: Step) -> None:
    """A step of the workload, but for "reopen"."""
    match step.verb:
        case "reserve":
            level.reserve({form_of(step.layout).nbytes: 2})
        case "write":
            level.write(step.key, step.layout, data_of(step.layout, step.seed))
        case "discard":
            level.discard(step.key)


def held(level: Backend) -> dict[Key, bytes]:
    """All that a level holds, read and verified."""
    keys = level.keys()
    return {key: get(level, key, level.layout(key)) for key in keys}


def fill(level: Backend, nbytes: int) -> tuple[dict[Key, bytes], str]:
    """Write until a level is full; return what it holds then, and why it takes no more."""
    stored: dict[Key, bytes] = {}
    while True:
        key = x(len(stored))
        try:
            stored[key] = put(level, key, raw(nbytes), seed=key.step)
        except LevelFull as error:
            reason = str(error)
            break
    assert str(key) in reason
    assert re.search(r"\d+ bytes are needed, \d+ bytes are free", reason)
    return stored, reason


def _ends(sizes: list[int]) -> Iterator[int]:
    end = 0
    for size in sizes:
        yield (end := end + size)
