"""Leases: several runs on one node take no more of its memory and disk than it has.

The capacities of levels are those of one run. If a scheduler starts several runs on a node, each
one takes a lease first: bytes of memory, of a disk, or of both. A lease that does not fit waits
until others have ended.

    with ckio.lease(ram="2GiB", disk="/scratch:100GiB", node={"ram": "8GiB", "disk": "1TiB"}):
        gradient = ckio.gradient(model, steps=1000, ram="2GiB", disk="/scratch:100GiB")

Each lease is a locked file in a directory of the node's memory, or in that of the variable
CKIO_LEASES. The lock is released when its process ends, also by SIGKILL; then the lease no longer
counts. No process needs to serve it.
"""

import fcntl
import logging
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple
from uuid import uuid4

from ckio.errors import BadInput, LevelFull
from ckio.platform import size
from ckio.platform.places import Place, words_of
from ckio.platform.readable import bytes_text

log = logging.getLogger("ckio")

_PAUSE: Final = 0.05
"""Seconds between two attempts to take a lease; counting the others takes 0.1 ms."""

_SILENT: Final = 2.0
"""Seconds of waiting after which a message says so."""


class _Part(NamedTuple):
    """Bytes of a resource of the node, which has `capacity` bytes of it for all leases."""

    what: str
    resource: str
    nbytes: int
    capacity: int


@contextmanager
def lease(
    *,
    ram: int | str | None = None,
    disk: str | os.PathLike[str] | None = None,
    archive: str | os.PathLike[str] | None = None,
    node: Mapping[str, int | str],
    timeout: float | None = None,
) -> Iterator[None]:
    """Return a context in which this process may take so many bytes of the node.

    Entering it waits until the bytes are free. All of them are taken at once, so that two runs
    cannot wait for each other. A large lease may wait for long if small ones come all the time.

    Parameters
    ----------
    ram, disk, archive
        The same words as those of the run: a size, and places with a size, such as "/scratch:1TiB".
        Two places on one disk are counted together.
    node : mapping
        For each of these words the bytes that the node offers to all leases, e.g. `{"ram":
        "64GiB"}`. All runs of the node should give the same.
    timeout : float or None
        Seconds after which LevelFull is raised. With None, the context waits as long as necessary.

    Raises
    ------
    BadInput
        If a size is missing, or a lease is larger than what the node offers.
    LevelFull
        If the bytes have not become free in time.
    """
    parts = _parts_of(words_of(ram, disk, archive)._asdict(), node)
    begun, told = time.monotonic(), False
    while (taken := _take(parts)) is None:
        waited = time.monotonic() - begun
        if timeout is not None and waited >= timeout:
            raise LevelFull(
                f"lease: {_wanted(parts)} have not become free in {timeout:g} s; other runs of this"
                " node have leases; wait longer, or take less"
            )
        if waited >= _SILENT and not told:
            told = True
            log.warning("waiting for %s, which other runs of this node have", _wanted(parts))
        time.sleep(_PAUSE)
    fd, file = taken
    try:
        yield
    finally:
        file.unlink(missing_ok=True)
        os.close(fd)


def leased(resource: str = "ram", /) -> int:
    """Return the bytes that are leased now on this node: of memory, or of the disk of a path."""
    with _guarded() as folder:
        return sum(_live(folder, resource if resource == "ram" else _disk(Path(resource))))


def _parts_of(
    words: Mapping[str, int | Place | None], node: Mapping[str, int | str]
) -> list[_Part]:
    parts = []
    for what, word in words.items():
        if word is None:
            continue
        nbytes = word.capacity if isinstance(word, Place) else word
        resource = _disk(word.path) if isinstance(word, Place) else "ram"
        if nbytes is None or what not in node:
            missing = f"node={{{what!r}: SIZE}}" if nbytes is not None else f'{what}="PATH:SIZE"'
            raise BadInput(f"lease: a lease needs a size, and that of the node; give {missing}")
        given = node[what]
        capacity = size(given) if isinstance(given, str) else given
        if nbytes > capacity:
            raise BadInput(
                f"lease: {bytes_text(nbytes)} of {what} are more than the {bytes_text(capacity)}"
                " that the node offers; take less"
            )
        parts.append(_Part(what, resource, nbytes, capacity))
    if not parts:
        raise BadInput('lease: nothing is leased; give ram="2GiB", or disk="/scratch:100GiB"')
    return parts


def _wanted(parts: list[_Part]) -> str:
    return " and ".join(
        f"{bytes_text(part.nbytes)} of {bytes_text(part.capacity)} of {part.what}" for part in parts
    )


def _disk(path: Path) -> str:
    """Return the name of the disk of a path, which may not exist yet."""
    there = next(it for it in (path.absolute(), *path.absolute().parents) if it.exists())
    return f"disk {there.stat().st_dev}"


def _take(parts: list[_Part]) -> tuple[int, Path] | None:
    """Return the open and locked file of a new lease; None if it does not fit now."""
    with _guarded() as folder:
        for resource in {part.resource for part in parts}:
            mine = [part for part in parts if part.resource == resource]
            wanted = sum(part.nbytes for part in mine)
            capacity = min(part.capacity for part in mine)
            if wanted + sum(_live(folder, resource)) > capacity:
                return None
        file = folder / uuid4().hex
        fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            lines = (f"{part.nbytes} {part.resource}\n" for part in parts)
            os.write(fd, "".join(lines).encode())
        except BaseException:
            file.unlink()
            os.close(fd)
            raise
        return fd, file


def _live(folder: Path, resource: str) -> Iterator[int]:
    """Yield the bytes of a resource in each lease, and remove leases whose process has ended."""
    for file in folder.iterdir():
        with suppress(FileNotFoundError), file.open() as lease_file:
            try:
                fcntl.flock(lease_file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:  # its process lives
                for line in lease_file.read().splitlines():
                    nbytes, _, own = line.partition(" ")
                    if own == resource:
                        yield int(nbytes)
            else:
                file.unlink()


@contextmanager
def _guarded() -> Iterator[Path]:
    """Return a context with the directory of leases, in which no other process counts or takes."""
    memory = Path("/dev/shm")  # of this node alone
    root = memory if memory.is_dir() else Path(tempfile.gettempdir())
    folder = Path(os.environ.get("CKIO_LEASES", root / f"ckio-leases-{os.getuid()}"))
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise BadInput(f"{folder}: it belongs to another user; remove it")
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield folder
    finally:
        os.close(fd)
