"""A change of a file as a whole: what may be written over is kept beside it meanwhile."""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import xxhash

Spans = Iterable[tuple[int, int]]
"""Offsets and bytes."""

_HEAD: Final = 16


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.undo")


def _draft(path: Path) -> Path:
    return path.with_name(f".{path.name}.undo.new")


@contextmanager
def undoable(path: Path, kept: Spans, /) -> Iterator[None]:
    """Change a file within these spans, or at its end; an error leaves it as it was.

    So does the end of the process, or of the machine, for the next one who calls `undo`.
    """
    place, draft = _beside(path), _draft(path)
    spans, size = list(kept), path.stat().st_size
    with path.open("rb") as file:
        pieces = [os.pread(file.fileno(), nbytes, at) for at, nbytes in spans]
    head = json.dumps({"size": size, "spans": spans}).encode() + b"\n"
    content = head + b"".join(pieces)
    try:
        with draft.open("wb") as file:
            file.write(xxhash.xxh3_128_digest(content) + content)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(place)
        _sync_names(path)
        yield
        _sync(path)
    except BaseException:
        undo(path)
        raise
    finally:
        draft.unlink(missing_ok=True)
    place.unlink()  # from here, it is changed
    _sync_names(path)


def undo(path: Path, /) -> None:
    """Make a file what it was before a change that was cut short, if there was one."""
    place = _beside(path)
    if not place.exists():
        return
    content = place.read_bytes()
    digest, content = content[:_HEAD], content[_HEAD:]
    if digest == xxhash.xxh3_128_digest(content):  # if not, the machine failed before the change
        head, _, data = content.partition(b"\n")
        said = json.loads(head)
        with path.open("r+b") as file:
            for at, nbytes in said["spans"]:
                file.seek(at)
                file.write(data[:nbytes])
                data = data[nbytes:]
            file.truncate(said["size"])
            file.flush()
            os.fsync(file.fileno())
    place.unlink()
    _sync_names(path)


def forget(path: Path, /) -> None:
    """Remove what is kept beside a file that is removed itself."""
    _beside(path).unlink(missing_ok=True)
    _draft(path).unlink(missing_ok=True)


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _sync_names(path: Path) -> None:
    fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
