"""The HDF5 file of an archive: what is in it, and how it grows.

For people, and the tools of HDF5:

    /                   attributes: format, format_version, creator, about
    /README             how to read the file
    /restart-0          a group of slots for checkpoints of one kind and one layout
        zeta            (slots, ny, nx), one dataset per field; attributes name, unit
        psi             …
        keys            (slots,), one row per slot: which checkpoint lies in it
    /tape-0, …          another kind or layout, or more slots for one of these

For ckio, in pages of 4096 bytes:

    page 0              HDF5's superblock, and the names of the groups; 8 bytes: check of the page
    page 1              HDF5's links to the groups; the seal
    page 2, …           the rest of an archive without groups, which never changes
    the groups          one behind the other, each with its head, what HDF5 needs, rows and slots

The seal says where the groups begin and end. Payload and rows are written at their offsets, past
the HDF5 library, while no HDF5 file is open. Only a new group takes HDF5, on a draft: what is new
is written behind the end, then page 0, then page 1, which makes it part of the archive for HDF5 and
for ckio at once. Each prefix of these writes is a readable file. ckio reads nothing, and lets HDF5
read nothing, of which it has not verified a checksum: HDF5 may crash on damaged metadata.
"""

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from glob import escape
from pathlib import Path
from typing import Final

import xxhash

from ckio import __version__
from ckio.actions import Kind
from ckio.backends.files import Files
from ckio.backends.forms import Form
from ckio.backends.hdf5_draft import PAGE, whole_pages
from ckio.backends.hdf5_group import Group
from ckio.backends.hdf5_library import VERSION, drafted, empty
from ckio.backends.hdf5_rows import FREE
from ckio.errors import BadInput, CorruptCheckpoint, LevelInUse, StorageError

_SIGNATURE: Final = b"\x89HDF\r\n\x1a\n"
_SEAL: Final = struct.Struct("<8sQQQQ")
"""Magic, where the groups begin and end, check of the pages from 2 to there, check of page 1."""

_MAGIC: Final = b"ckioarc" + bytes([VERSION])
_CHECK: Final = 8


def take(path: Path, files: Files, /) -> int:
    """Open the archive at a path for this opener alone; made if there is none.

    Raises LevelInUse, and BadInput where there can be none.
    """
    fd = -1
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            create(path)
        fd = files.open(path)
        _lock(fd)
    except OSError as error:
        if fd >= 0:
            files.close(fd)
        if isinstance(error, BlockingIOError):
            raise LevelInUse(
                f"{path} is in use, by another process or another level; wait, or use another file"
            ) from None
        raise BadInput(f"{path} cannot be an archive: {error.strerror or error}") from None
    for draft in path.parent.glob(f".{escape(path.name)}.*.new"):
        draft.unlink(missing_ok=True)  # of a creator that was killed
    return fd


def _lock(fd: int) -> None:
    """Take the file, as long as it has a name; raises BlockingIOError.

    HDF5 itself uses flock, and people shall be able to look into the file meanwhile: this lock is
    of another kind. It goes with this opening of the file, not with the process.
    """
    lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, lock)
    if os.fstat(fd).st_nlink == 0:
        raise BlockingIOError


def create(path: Path, /) -> None:
    """Make an archive without checkpoints, complete from the moment it has its name."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        draft.write_bytes(_new())
        with suppress(FileExistsError, FileNotFoundError):  # somebody else was faster
            os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _new() -> bytes:
    content = empty()
    end = whole_pages(len(content))
    page, leaf, rest = content[:PAGE], content[PAGE : 2 * PAGE], content[2 * PAGE :]
    rest = rest.ljust(end - 2 * PAGE, b"\0")
    return _checked(page) + _sealed(leaf, end, end, _check(rest)) + rest


def _check(data: bytes) -> int:
    return xxhash.xxh3_64_intdigest(data)


def _checked(page: bytes) -> bytes:
    """A page whose last bytes are a check of the others."""
    body = page[:-_CHECK]
    return body + _check(body).to_bytes(_CHECK, "little")


def _sealed(leaf: bytes, begin: int, end: int, rest: int) -> bytes:
    """Page 1, with the seal at its end."""
    return _checked(leaf[: -_SEAL.size] + _SEAL.pack(_MAGIC, begin, end, rest, 0))


def survey(files: Files, fd: int, path: Path, /) -> tuple[list[Group], int]:
    """The groups of an archive that is open as `fd`, and where they end.

    Raises BadInput if it is not an archive, or a newer one, and StorageError if it is damaged.
    """
    size = files.size(fd)
    start = _bytes(files, fd, 0, min(size, 2 * PAGE))
    if not start.startswith(_SIGNATURE):
        raise BadInput(f"{path} is not an HDF5 file; name another file for the archive")
    seal = start[2 * PAGE - _SEAL.size :].ljust(_SEAL.size, b"\0")
    magic, begin, end, rest, _ = _SEAL.unpack(seal)
    if magic[:-1] != _MAGIC[:-1]:
        raise BadInput(f"{path} is an HDF5 file of something else; name another for the archive")
    if magic != _MAGIC:
        raise BadInput(
            f"{path} has format {magic[-1]}; ckio {__version__} knows formats up to {VERSION}:"
            " update ckio, or name another file for the archive"
        )
    sound = start == _checked(start[:PAGE]) + _checked(start[PAGE:])
    if sound and end > size:
        raise StorageError(f"{path} was cut off: it has {size} bytes, and {end} are in use")
    if not sound or _check(_bytes(files, fd, 2 * PAGE, begin - 2 * PAGE)) != rest:
        raise StorageError(
            f"{path} was damaged, or changed by something else than ckio: it has to be made anew"
        )
    try:
        return list(_groups(files, fd, begin, end)), end
    except CorruptCheckpoint as error:
        raise StorageError(f"{path} was damaged: {error}; it has to be made anew") from None


def _groups(files: Files, fd: int, begin: int, end: int) -> Iterator[Group]:
    while begin < end:
        length = Group.length(_bytes(files, fd, begin, PAGE))
        group = Group.unpack(_bytes(files, fd, begin, min(length, end - begin)), begin)
        if not begin < group.end <= end:
            raise CorruptCheckpoint(f"group {group.name} does not end where it should")
        yield group
        begin = group.end


def _bytes(files: Files, fd: int, offset: int, nbytes: int) -> bytes:
    data = bytearray(nbytes)
    try:
        files.read(fd, [memoryview(data)], offset)
    except EOFError:
        raise CorruptCheckpoint("the file ends too early") from None
    return bytes(data)


def add_group(
    files: Files, fd: int, name: str, kind: Kind, form: Form, /, *, slots: int, end: int, sync: bool
) -> Group:
    """Make a group of free slots at `end`, where the groups end, with its space on the disk.

    Raises OSError with the archive as it was if there is no space, StorageError if HDF5 gives up.
    """
    made, draft = drafted(fd, name, kind, form, slots=slots, end=end)
    new, page, leaf = draft.pages()
    _, begin, _, rest, _ = _SEAL.unpack(leaf[-_SEAL.size :])
    size = files.size(fd)
    if made.end > size:
        files.extend(fd, size, made.end - size, prewrite=False)
    stages = (
        [*new.items(), (end, made.pack()), (made.rows, FREE * slots)],
        [(0, _checked(page))],
        [(PAGE, _sealed(leaf, begin, made.end, rest))],
    )
    before = _bytes(files, fd, 0, 2 * PAGE)
    try:
        for stage in stages:
            for at, data in stage:
                files.write(fd, [memoryview(data)], at)
            if sync:
                files.sync(fd)
    except BaseException:
        with suppress(OSError):  # as it was before
            for at in (PAGE, 0):
                files.write(fd, [memoryview(before)[at : at + PAGE]], at)
        raise
    return made
