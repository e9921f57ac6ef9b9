"""Helpers of the archive's tests: a sound archive, ways to damage it, killed writers."""

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ckio.actions import Buffers, Key, Layout
from ckio.backends import encoded
from ckio.backends.base import Backend
from ckio.backends.contents import Damaged
from ckio.backends.files import Files
from ckio.backends.hdf5 import Hdf5
from ckio.testing import get


def everything(level: Backend, layout: Layout) -> dict[Key, bytes]:
    return {key: get(level, key, layout) for key in set(level.keys())}


def damaged(path: Path) -> list[str]:
    return [it.what for it in Hdf5.contents(path) if isinstance(it, Damaged)]


def flip(path: Path, sound: bytes, position: int, bit: int = 0) -> None:
    content = bytearray(sound)
    content[position] ^= 1 << bit
    path.write_bytes(content)


@contextmanager
def blocks_of_at_most(nbytes: int) -> Iterator[None]:
    """Cut fields into blocks of so few bytes that a small field has many."""
    caches = (encoded.blocks_of,)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoded, "BLOCK", nbytes)
        for cached in caches:
            cached.cache_clear()
        try:
            yield
        finally:
            for cached in caches:
                cached.cache_clear()


def killed_writer(diary: Path, lines: int, write: Callable[[int], None]) -> None:
    """Kill a process that writes when its diary has so many lines, wherever it is then.

    `write` is given the open diary, and never ends.
    """
    fd = os.open(diary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
    child = os.fork()
    if child == 0:
        try:
            write(fd)
        finally:
            os._exit(1)
    os.close(fd)
    deadline = time.monotonic() + 60
    while diary.read_bytes().count(b"\n") < lines and time.monotonic() < deadline:
        time.sleep(0.0005)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the writer ended by itself"


class Tape(Files):
    """A system that keeps the writes of each time between two syncs.

    That the file became longer is a write of nothing at its end.
    """

    def __init__(self) -> None:
        self.epochs: list[list[tuple[int, bytes]]] = [[]]

    def pwritev(self, fd: int, data: Buffers, offset: int, /) -> int:
        self.epochs[-1].append((offset, b"".join(data)))
        return super().pwritev(fd, data, offset)

    def extend(self, fd: int, begin: int, nbytes: int, /, *, prewrite: int) -> None:
        super().extend(fd, begin, nbytes, prewrite=prewrite)
        self.epochs[-1].append((begin + nbytes, b""))

    def sync(self, fd: int, /) -> None:
        self.epochs.append([])
        super().sync(fd)


def laid_over(base: bytes, writes: Iterable[tuple[int, bytes]]) -> bytes:
    """A file after some writes."""
    image = bytearray(base)
    for at, data in writes:
        image.extend(bytes(max(0, at + len(data) - len(image))))
        image[at : at + len(data)] = data
    return bytes(image)
