"""The first pages of an archive, which say what belongs to it, and their mirror.

In pages of 4096 bytes:

    page 0        HDF5's superblock, and the names of the groups
    page 1        HDF5's links to the groups
    page 2        ckio's index: where each group begins; the id of the run that the archive is of;
                  at its end the seal
    pages 3 to 5  the mirror: the same three pages once more

The seal has the version of the format, where the groups begin and end, and a check of all three
pages together. An archive grows in three stages, each on the device before the next one begins
(where the level syncs):

    1. the new group is written behind the end, where nothing points to yet
    2. the mirror is replaced
    3. the pages are replaced, in their order

A write that a failing machine tears leaves some of its sectors old. So what is found, when the
pages of before are called g and the new ones g+1, is one of

    pages       mirror      when                        is taken
    g           g           before stage 2              g
    g           not sound   in stage 2                  g
    g           g+1         between stages 2 and 3      g
    not sound   g+1         in stage 3                  g+1
    g+1         g+1         afterwards                  g+1

A page 0 of g+1 beside a page 1 of g is not sound, because the seal checks them together. Both ends
are complete archives: all that g+1 refers to was there before its mirror. A disk that fails
in stage 3 is taken back, pages first, through the same five lines from below. The copy that is not
taken is replaced at opening, and before each growth: so no mirror outlives the bytes that it refers
to. A flipped bit in one copy is mended from the other; both damaged is an error.
"""

import errno
import os
import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Self

import xxhash

from ckio import __version__
from ckio.backends.files import Files
from ckio.backends.runid import NBYTES, RunId
from ckio.errors import BadInput, StorageError

VERSION: Final = 3
"""The version of the format; no other is read."""

PAGE: Final = 4096
"""Bytes that a kill cannot tear when they are written at once."""

EOF: Final = 40
"""Where the superblock says, in eight bytes, where the file ends for HDF5."""

MAX_GROUPS: Final = 96
"""As many as one page has room for HDF5's links to."""

_PAGES: Final = 3 * PAGE
FIXED: Final = 2 * _PAGES
"""Where those parts of an archive begin that never change."""

SIGNATURE: Final = b"\x89HDF\r\n\x1a\n"
"""What an HDF5 file begins with."""

_NAME: Final = b"ckioarc"
_MAGIC: Final = _NAME + bytes([VERSION])
_INDEX: Final = struct.Struct(f"<{MAX_GROUPS}Q")
_SEAL: Final = struct.Struct("<8sQQQ")
"""Magic, where the groups begin and end, and the check of what lies between here and there."""

_CHECK: Final = 8
_MOST_FIXED: Final = 1 << 20


def check(data: bytes, /) -> int:
    """What vouches for some bytes, in eight."""
    return xxhash.xxh3_64_intdigest(data)


@dataclass(frozen=True)
class Start:
    """The pages, as they are vouched for.

    Attributes
    ----------
    pages : bytes
        Pages 0 to 2.
    fixed : int
        Check of the bytes between the mirror and the first group.
    begin : int
        Where the groups begin, in bytes.
    end : int
        Where the groups end.
    groups : tuple of int
        Where each of them begins; the first one at `begin`.
    run : RunId
        Whose archive it is.
    """

    pages: bytes
    fixed: int
    begin: int
    end: int
    groups: tuple[int, ...]
    run: RunId

    @classmethod
    def sealed(
        cls,
        page: bytes,
        leaf: bytes,
        *,
        fixed: int,
        begin: int,
        end: int,
        groups: tuple[int, ...],
        run: RunId,
    ) -> Self:
        """The pages with these two of HDF5."""
        index = _INDEX.pack(*groups, *(MAX_GROUPS - len(groups)) * [0]) + run.pack()
        seal = _SEAL.pack(_MAGIC, begin, end, fixed)
        body = page + leaf + index.ljust(PAGE - _SEAL.size - _CHECK, b"\0") + seal
        return cls(body + check(body).to_bytes(_CHECK, "little"), fixed, begin, end, groups, run)

    @classmethod
    def unpack(cls, pages: bytes) -> Self | None:
        """What three pages say, or None if nothing vouches for them."""
        body = pages[:-_CHECK]
        if len(pages) != _PAGES or check(body).to_bytes(_CHECK, "little") != pages[-_CHECK:]:
            return None
        magic, begin, end, fixed = _SEAL.unpack(body[-_SEAL.size :])
        index = _INDEX.unpack_from(body, 2 * PAGE)
        groups = tuple(at for at in index if at)
        try:
            run = RunId.unpack(body[2 * PAGE + _INDEX.size :][:NBYTES])
        except ValueError:
            return None
        start = cls(pages, fixed, begin, end, groups, run)
        return start if magic == _MAGIC and start._is_sensible() else None

    def _is_sensible(self) -> bool:
        """Whether groups lie one behind the other, between reasonable limits."""
        marks = (*self.groups, self.end)
        return (
            FIXED <= self.begin == marks[0]
            and self.begin - FIXED <= _MOST_FIXED
            and all(a < b for a, b in pairwise(marks))
        )

    def spans(self) -> list[tuple[int, int]]:
        """Where each group begins and ends."""
        return list(pairwise((*self.groups, self.end)))

    @property
    def eof(self) -> int:
        """Where the file ends for HDF5."""
        return int.from_bytes(self.pages[EOF : EOF + 8], "little")


def load(files: Files, fd: int, name: str, /) -> Start:
    """The pages of an archive that is open as `fd`, or their mirror; nothing is changed.

    Raises BadInput if it is not an archive, or of another format, StorageError if it is damaged.
    """
    data = bytes_at(files, fd, 0, min(files.size(fd), FIXED))
    pages, mirror = Start.unpack(data[:_PAGES]), Start.unpack(data[_PAGES:])
    start = pages or mirror
    if start is None:
        raise _refusal(name, data)
    size = files.size(fd)  # of now: a run may have made it longer
    if pages is None and _ends(data) > start.eof and not _is_flipped(data, size):
        raise StorageError(
            f"{name} was changed by something else than ckio: it has to be made anew"
        )
    if start.end > size:
        raise StorageError(f"{name} was cut off: it has {size} bytes, and {start.end} are in use")
    return start


def has_seal(fd: int, /) -> bool:
    """Whether an open file is an archive, of any version: its first pages say so, or the mirror."""
    at = _PAGES - _CHECK - _SEAL.size
    return any(os.pread(fd, len(_NAME), begin + at) == _NAME for begin in (0, _PAGES))


def _is_flipped(data: bytes, size: int) -> bool:
    """Whether one bit was flipped, and no program made the file longer, in `size` bytes of it."""
    pages, mirror = data[:_PAGES], data[_PAGES:]
    return (
        _ends(data) > size
        and (int.from_bytes(pages, "little") ^ int.from_bytes(mirror, "little")).bit_count() == 1
    )


def _ends(data: bytes) -> int:
    """Where an HDF5 file says that it ends; 0 if it is none."""
    return int.from_bytes(data[EOF : EOF + 8], "little") if data.startswith(SIGNATURE) else 0


def _refusal(name: str, data: bytes) -> StorageError | BadInput:
    """Why this is the start of no archive."""
    found = data.find(_NAME)
    version = int.from_bytes(data[found + len(_NAME) :][:1], "little") if found >= 0 else 0
    if version > VERSION:
        return BadInput(
            f"{name} has format {version}; ckio {__version__} reads format {VERSION}:"
            " update ckio, or name another file for the archive"
        )
    if 0 < version < VERSION:
        return BadInput(
            f"{name} has format {version}, which no released ckio has written and which is not"
            f" read any more; ckio {__version__} reads format {VERSION}: name another file"
        )
    if version and data.startswith(SIGNATURE):
        return StorageError(
            f"{name} was damaged: its first pages are, and their mirror is; it has to be made anew"
        )
    if data.startswith(SIGNATURE):
        return BadInput(f"{name} is an HDF5 file of something else; name another for the archive")
    return BadInput(f"{name} is not an HDF5 file; name another file for the archive")


def settle(files: Files, fd: int, start: Start, /, *, sync: bool) -> None:
    """Make both copies this one, the pages first; what is so already is not written."""
    there = bytes_at(files, fd, 0, FIXED)
    if there[:_PAGES] != start.pages:
        # From behind: names that HDF5 has no links to are harmless, and not the other way round.
        for at in reversed(range(0, _PAGES, PAGE)):
            files.write(fd, [memoryview(start.pages)[at : at + PAGE]], at)
        if sync:
            files.sync(fd)
    if there[_PAGES:] != start.pages:
        _put_mirror(files, fd, start, sync=sync)


def advance(files: Files, fd: int, start: Start, /, *, sync: bool) -> None:
    """Make both copies this one, the mirror first; all that it refers to is there."""
    _put_mirror(files, fd, start, sync=sync)
    for at in range(0, _PAGES, PAGE):
        files.write(fd, [memoryview(start.pages)[at : at + PAGE]], at)
    if sync:
        files.sync(fd)


def _put_mirror(files: Files, fd: int, start: Start, /, *, sync: bool) -> None:
    files.write(fd, [memoryview(start.pages)], _PAGES)
    if sync:
        files.sync(fd)


def bytes_at(files: Files, fd: int, offset: int, nbytes: int, /) -> bytes:
    """Some bytes of a file; raises OSError where it ends before them."""
    data = bytearray(nbytes)
    try:
        files.read(fd, [memoryview(data)], offset)
    except EOFError:
        raise OSError(errno.EIO, f"the file ends before byte {offset + nbytes}") from None
    return bytes(data)
