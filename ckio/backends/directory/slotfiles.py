"""The files of a directory level: list them, read their heads and slots, remove them.

The files may be in use by this process or another one. Therefore only `remove`, which takes the
lock, changes anything.
"""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ckio.actions import Key
from ckio.backends.contents import Damaged, Stored
from ckio.backends.directory.format import (
    BLOCK,
    FREE,
    LIVE,
    MAGIC,
    VERSION,
    FileHead,
    Head,
    length,
    unpack,
)
from ckio.backends.files import Files, locking, opened
from ckio.errors import BadInput, CorruptCheckpoint, StorageError

_NAME = re.compile(r"slots-(\d{1,15})-v(\d{1,9})\.ckio", re.ASCII)


class Survey(NamedTuple):
    """The slots in a file.

    Attributes
    ----------
    made : int
        Number of slots according to the head of the file; 0 if the head cannot be read.
    flaw : Damaged or None
        Damage of the file as a whole.
    slots : iterator of (int, Head or Damaged or None)
        The offset and the head of every slot that was ever written; None if the slot is free.
    """

    made: int
    flaw: Damaged | None
    slots: Iterator[tuple[int, Head | Damaged | None]]


def name_of(stride: int, /) -> str:
    """Return the name of the file whose slots have `stride` bytes each, including their heads.

    >>> name_of(12288)
    'slots-12288-v3.ckio'
    """
    return f"slots-{stride}-v{VERSION}.ckio"


def listed(place: Path, /) -> list[tuple[Path, int]]:
    """Return the files of slots in a directory, each with its stride in bytes.

    Raises BadInput if a file has another format version.
    """
    result = []
    for path in _regular(place):
        match = _NAME.fullmatch(path.name)
        if match and int(match[2]) != VERSION:
            raise BadInput(
                f"{path} has format {match[2]}; this ckio reads and writes format {VERSION}:"
                " use the ckio version that wrote it, or another directory"
            )
        if stride := _stride(path):
            result.append((path, stride))
    return result


def misnamed(files: Files, place: Path, /) -> list[Damaged]:
    """Return the files that begin like a file of slots but have another name."""
    return [
        Damaged(path=path, offset=0, nbytes=path.lstat().st_size, what="it was renamed")
        for path in _regular(place)
        if not _stride(path) and _begins_like_ours(files, path)
    ]


def _regular(place: Path) -> list[Path]:
    """Return the regular files with our suffix in a directory; links are not followed."""
    return [
        path
        for path in sorted(place.iterdir())
        if path.suffix == ".ckio" and path.is_file() and not path.is_symlink()
    ]


def _stride(path: Path) -> int:
    """Return the stride in the name of a file of slots; 0 for any other name."""
    match = _NAME.fullmatch(path.name)
    stride = int(match[1]) if match else 0
    ours = stride > BLOCK and stride % BLOCK == 0 and path.name == name_of(stride)
    return stride if ours else 0


def survey(files: Files, fd: int, path: Path, stride: int, /) -> Survey:
    """Read the heads of a file; a renamed file yields a flaw and no slots."""
    slots = _slots(files, fd, path, stride)
    try:
        head = _file_head(files, fd)
    except CorruptCheckpoint as error:
        return Survey(0, Damaged(path=path, offset=0, nbytes=BLOCK, what=str(error)), slots)
    if head is None:
        return Survey(0, None, slots)
    # The size is read after the head: a level in use extends the file first and then its head.
    size = files.size(fd)
    if head.stride != stride:
        what = f"it was renamed from {name_of(head.stride)}"
        return Survey(0, Damaged(path=path, offset=0, nbytes=size, what=what), iter(()))
    return Survey(head.slots, _cut_off(path, head, size), slots)


def _file_head(files: Files, fd: int) -> FileHead | None:
    """Return the head of a file; None if the file has no slots yet."""
    if files.size(fd) == 0:
        return None
    try:
        return FileHead.unpack(files.bytes_at(fd, 0, BLOCK))
    except EOFError:
        raise CorruptCheckpoint("it was cut off within its head") from None


def _cut_off(path: Path, head: FileHead, size: int) -> Damaged | None:
    """Return the flaw of a file that is too short for the slots in its head; else None."""
    missing = BLOCK + head.slots * head.stride - size
    if missing <= 0:
        return None
    lost = -(-missing // head.stride)
    what = f"it was cut off: {lost} of its {head.slots} slots are not whole"
    return Damaged(path=path, offset=size, nbytes=missing, what=what)


def contents(path: str | Path, /) -> list[Stored | Damaged]:
    """List the checkpoints and damaged parts of a directory, which may be in use.

    Of two checkpoints with the same key, the newer one is listed. Nothing is changed. Raises
    BadInput if the directory has no files of a level, or of another format, and StorageError if it
    cannot be read.
    """
    place, files = Path(path).absolute(), Files()
    stored: dict[Key, tuple[int, Stored]] = {}
    try:
        exists = place.is_dir()
        paths, damaged = (listed(place), misnamed(files, place)) if exists else ([], [])
        for file, stride in paths:
            for sequence, item in _items(files, file, stride):
                if isinstance(item, Damaged):
                    damaged.append(item)
                elif item.key not in stored or stored[item.key][0] < sequence:
                    stored[item.key] = sequence, item
    except (FileNotFoundError, NotADirectoryError):
        paths, damaged = [], []
    except OSError as error:
        raise StorageError(f"directory {place} cannot be read: {error.strerror}") from error
    if not paths and not damaged:
        raise BadInput(
            f"{place} holds no checkpoints of a directory level; give the directory of a level"
        )
    return [*(item for _, item in stored.values()), *damaged]


def _items(files: Files, path: Path, stride: int) -> Iterator[tuple[int, Stored | Damaged]]:
    """Yield the checkpoints and damaged parts of a file, each with its sequence number."""
    try:
        fd = files.open_to_read(path)
    except FileNotFoundError:  # removed meanwhile
        return
    try:
        _, flaw, slots = survey(files, fd, path, stride)
        if flaw is not None:
            yield 0, flaw
        for offset, head in slots:
            if isinstance(head, Head):
                yield head.sequence, _stored(head, path, offset)
            elif head is not None:
                yield 0, head
    finally:
        files.close(fd)


def _stored(head: Head, path: Path, offset: int) -> Stored:
    begin, spans = offset + head.begin, []
    for nbytes in head.form.sizes:
        spans.append((begin, nbytes))
        begin += nbytes
    return Stored(
        key=head.key,
        layout=head.form.layout,
        path=path,
        spans=tuple(spans),
        written=head.written,
        digest=head.digest,
        run=head.run.name,
    )


def _slots(
    files: Files, fd: int, path: Path, stride: int
) -> Iterator[tuple[int, Head | Damaged | None]]:
    for number in files.occupied(fd, BLOCK, stride):
        offset = BLOCK + number * stride
        try:
            yield offset, _head(files, fd, offset, stride)
        except CorruptCheckpoint as error:
            yield offset, Damaged(path=path, offset=offset, nbytes=stride, what=str(error))
        except EOFError:  # the level in use has shortened the file meanwhile
            return


def _head(files: Files, fd: int, offset: int, stride: int) -> Head | None:
    """Return the head of a slot.

    A head that another process writes at this moment may look damaged. Therefore it is read again
    until two reads agree.
    """
    seen = b""
    while True:
        block = files.bytes_at(fd, offset, BLOCK)
        try:
            return _parsed(files, fd, offset, stride, block)
        except CorruptCheckpoint:
            if seen == block:
                raise
            seen = block


def _parsed(files: Files, fd: int, offset: int, stride: int, block: bytes) -> Head | None:
    nbytes = length(block)
    if nbytes == 0:
        return None
    if nbytes > stride:
        raise CorruptCheckpoint("its head is longer than a slot")
    rest = files.bytes_at(fd, offset + BLOCK, nbytes - BLOCK) if nbytes > BLOCK else b""
    head = unpack((block + rest)[:nbytes], offset)
    if head.begin + head.form.nbytes > stride:
        raise CorruptCheckpoint("its payload is longer than a slot")
    return head


def _begins_like_ours(files: Files, path: Path) -> bool:
    try:
        fd = files.open_to_read(path)
    except OSError:  # for example without permission to read it
        return False
    try:
        return files.bytes_at(fd, 0, len(MAGIC)) == MAGIC
    except EOFError:
        return False
    finally:
        files.close(fd)


# Levels that are not open


def levels_at(path: Path, /) -> list[Path]:
    """Return the directories with slot files: the path, its children, and their `rank-N` children.

    Links are not followed. Raises OSError if the directory at `path` cannot be read.
    """
    if not path.is_dir():
        return []
    levels = [path]
    for entry in sorted(path.iterdir()):
        if entry.is_dir() and not entry.is_symlink():
            levels += [entry, *_of_ranks(entry)]
    return [level for level in levels if _has_slots(level)]


def _of_ranks(path: Path) -> list[Path]:
    """Return the directories of the ranks in the directory of a run, in the order of ranks."""
    try:
        ranks = [entry for entry in path.glob("rank-*") if not entry.is_symlink()]
    except (PermissionError, FileNotFoundError):  # of another user, or removed meanwhile
        return []
    return sorted(ranks, key=lambda entry: (len(entry.name), entry.name))


def _has_slots(path: Path) -> bool:
    """Return whether a directory contains files of slots, in any format version."""
    try:
        return any(_NAME.fullmatch(entry.name) for entry in path.iterdir())
    except (PermissionError, FileNotFoundError, NotADirectoryError):
        return False  # the directory of another user, or of a run that has ended meanwhile


def remove(path: Path, /) -> None:
    """Remove the files of slots in a directory that no process has open, and the directory.

    Raises BlockingIOError if it is in use, another OSError if a file cannot be removed, and
    StorageError if the directory contains anything else, which is not removed.
    """
    with opened(path, os.O_RDONLY | os.O_DIRECTORY) as folder:
        with locking(path):
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for file in _regular(path):
            if _stride(file) and _is_ours(file):
                file.unlink()
        if any(path.iterdir()):
            raise StorageError(f"{path} is not removed: it contains files that may not be ckio's")
        path.rmdir()
    if re.fullmatch(r"rank-\d+", path.name):
        with suppress(OSError):  # other ranks may still have their directories there
            path.parent.rmdir()


def _is_ours(path: Path) -> bool:
    """Return whether this is a file of slots: it has our magic or a live slot, or only zeros."""
    with opened(path, os.O_RDONLY) as fd:
        slots = Files().occupied(fd, BLOCK, _stride(path))
        words = {os.pread(fd, len(FREE), BLOCK + number * _stride(path)) for number in slots}
        words.add(os.pread(fd, len(FREE), 0))
    return MAGIC in words or LIVE in words or words <= {FREE, b""}
