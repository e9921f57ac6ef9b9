"""A level in one HDF5 file that all ranks of a job share, in the format of the archive.

For the file, a checkpoint of all ranks is one checkpoint of an archive (`ckio.backends.hdf5`). Each
of its fields has the parts of all ranks, one after the other. The last field, `ranks`, has the
xxh3_128 of each rank's parts; its unit has their layouts.

The first rank has the archive open: it chooses slots, makes groups and commits. Each rank writes
and reads its own parts at their offsets, without waiting for other ranks, and needs no HDF5 for it.
An error on one rank is raised on all ranks at the next collective call.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from ckio.actions import Buffers, Field, Key, Layout, field_nbytes
from ckio.backends.base import Backend
from ckio.backends.contents import Damaged, Stored
from ckio.backends.files import Files, failure, takes_sync
from ckio.backends.forms import Form, form_from, form_of
from ckio.backends.hdf5 import Hdf5, Slot
from ckio.backends.ledger import Entry, Ledger
from ckio.backends.payload import digest
from ckio.backends.runid import NOBODY, RunId
from ckio.errors import BadInput, CkioError, CorruptCheckpoint, StorageError
from ckio.parallel.group import ALONE, RankGroup
from ckio.platform.readable import path_of

T = TypeVar("T")
Spans = Sequence[tuple[int, int]]
"""The offset and the bytes of each part."""

_DIGEST: Final = 16


class SharedHdf5(Backend):
    """One archive of all ranks. Each rank has its part of each checkpoint.

    Every method is a collective call: all ranks call it, in the same order. If it raises an error,
    it does so on all ranks.

    Parameters
    ----------
    path
        The file, on a file system that all ranks share. It is created if it does not exist.
    ranks
        The ranks of a job; by default this process alone.
    capacity
        Payload bytes of each rank. None means that only the disk limits them.
    durability
        With "process", a checkpoint survives a kill of the job. With "fdatasync" it also survives
        failures of machines.
    checksum
        Whether payload is verified with xxh3_128 when it is read. A checksum is always written.
    run
        The run that uses the archive. An archive of another run is refused.

    Raises
    ------
    BadInput
        `path` is not such an archive, is not the same file on all ranks, or was created by another
        number of ranks.
    StorageError
        The archive cannot be read.
    LevelInUse
        The archive is already open.
    ForeignLevel
        The archive belongs to another run.
    """

    durable = True
    cached = True

    def __init__(
        self,
        path: str | Path,
        ranks: RankGroup = ALONE,
        *,
        capacity: int | None = None,
        durability: str = "process",
        checksum: bool = True,
        run: RunId = NOBODY,
    ) -> None:
        self.path = path_of(path).absolute()
        self._ranks, self._checksum = ranks, checksum
        self._ledger: Ledger[Spans] = Ledger(str(self.path), capacity)
        self._system, self._fd = Files(), -1
        self._sync = ranks.each(lambda: takes_sync(durability))
        self._archive: Hdf5 | None = None

        def taken() -> tuple[int, list[list[Stored]], list[str]]:
            archive = self._archive = Hdf5(self.path, durability=durability, run=run)
            stored = [_parts(item) for item in Hdf5.contents(self.path) if isinstance(item, Stored)]
            for size in {len(parts) for parts in stored} - {ranks.size}:
                raise BadInput(
                    f"{self.path} belongs to a job of {size} ranks, but this job has {ranks.size};"
                    " give this job another file"
                )
            return self.path.stat().st_ino, stored, archive.damaged

        try:
            number, stored, damaged = ranks.once(taken)
            self._fd = ranks.each(lambda: self._seen(number))
        except BaseException:
            self.close()
            raise
        for own in (parts[ranks.rank] for parts in stored):
            self._ledger.enter(own.key, Entry(form_of(own.layout), own.spans, own.digest))
        self._ledger.damaged += damaged

    for_run = staticmethod(Hdf5.for_run)
    remove_files = staticmethod(Hdf5.remove_files)

    @staticmethod
    def contents(path: str | Path, /) -> list[Stored | Damaged]:
        """List the contents of an archive, one item for each rank's part of a checkpoint.

        No file is created or changed. Raises BadInput if there is no archive, and StorageError if
        it cannot be read.
        """
        listed: list[Stored | Damaged] = []
        for item in Hdf5.contents(path):
            listed += _parts(item) if isinstance(item, Stored) else [item]
        return listed

    def reserve(self, sizes: Mapping[int, int], /) -> None:
        """Allocate disk space; `prepare` and `write` make groups in it."""
        self._ranks.each(lambda: self._ledger.check_reservation(sizes))
        needed = sum(self._ranks.gather(sum(nbytes * count for nbytes, count in sizes.items())))
        self._first(lambda archive: archive.reserve({needed: 1}))

    def prepare(self, key: Key, layout: Layout, count: int, /) -> None:
        """Create slots for `count` checkpoints of this layout, so that writes need not do it."""
        self._ranks.each(self._ledger.check_open)
        whole = joined(self._layouts(form_of(layout)))
        self._first(lambda archive: archive.prepare(key, whole.layout, count))

    def write(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        form = self._ranks.each(lambda: self._ledger.admit(key, layout, data))
        whole = joined(self._layouts(form))

        slots: list[Slot] = []  # of the first rank

        def begun(archive: Hdf5) -> list[int]:
            slots.append(archive.begin(key, form_of(whole.layout)))
            return slots[0].group.offsets(slots[0].number)

        def committed(archive: Hdf5) -> None:
            with self._explained(f"writing {key}"):
                archive.commit(key, slots[0], form_of(whole.layout), b"")

        try:
            spans = whole.spans(self._ranks.rank, self._first(begun))
            mine = self._ranks.each(lambda: self._put(key, spans, data))
            self._first(committed)
            self._ledger.enter(key, Entry(form, spans, mine))
        except BaseException:
            if self._archive is not None and slots:
                self._archive.give_up(key, slots[0])
            raise
        return form.nbytes

    def layout(self, key: Key, /) -> Layout:
        return self._ledger.find(key).form.layout

    def read(self, key: Key, into: Buffers, /) -> int:
        return self._ranks.each(lambda: self._get(key, into))

    def discard(self, key: Key, /) -> None:
        self._ranks.each(lambda: self._ledger.find(key))
        self._first(lambda archive: archive.discard(key))
        self._ledger.strike(key)

    def keys(self) -> list[Key]:
        return self._ledger.keys()

    def evict(self) -> None:
        """Remove the file from the page cache of each rank's host."""
        self._ranks.each(self._ledger.check_open)
        self._ranks.each(lambda: self._system.evict(self._fd))

    def close(self) -> None:
        """Close the file on this rank."""
        with suppress(CkioError):
            self._ledger.check_open()  # raises in a fork, which must not release the file
            if self._archive is not None:
                self._archive.close()
        self._ledger.close()
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def remove(self) -> None:
        """Close the archive and delete its file. If it is closed already, do nothing."""
        if self._fd < 0:
            return
        self._ledger.check_open()
        try:
            self._first(lambda archive: archive.remove())
        finally:
            self.close()

    def _first(self, do: Callable[[Hdf5], T]) -> T:
        """Call `do` on the first rank, which has the archive open; all ranks return its value."""

        def done() -> T:
            if self._archive is None:
                raise StorageError(f"{self.path} is closed; open it again")
            return do(self._archive)

        return self._ranks.once(done)

    def _layouts(self, form: Form) -> tuple[Layout, ...]:
        """Return the layouts of all ranks."""
        return tuple(form_from(text).layout for text in self._ranks.gather(form.text))

    def _put(self, key: Key, spans: Spans, data: Buffers) -> bytes:
        """Write this rank's parts and their digest, and return the digest."""
        mine = digest(data)
        with self._explained(f"writing {key}"):
            for view, (at, _) in zip((*data, memoryview(mine)), spans, strict=True):
                self._system.write(self._fd, [view], at)
            if self._sync:
                self._system.sync(self._fd)
        return mine

    def _get(self, key: Key, into: Buffers) -> int:
        entry = self._ledger.find_for(key, into, verify=False)
        with self._explained(f"reading {key}"):
            for view, (at, _) in zip(into, entry.place, strict=False):
                self._system.read(self._fd, [view], at)
        if self._checksum and digest(into) != entry.digest:
            raise CorruptCheckpoint(
                f"{self.path}: the part of rank {self._ranks.rank} of {key} is damaged: it must"
                " have the checksum with which it was written; discard it, and recompute it or read"
                " it from another level"
            )
        return entry.form.nbytes

    @contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        """Raise the errors of the system as errors of a level."""
        try:
            yield
        except EOFError:
            raise CorruptCheckpoint(f"{self.path}: {doing} failed: the file ends before") from None
        except OSError as error:
            what = f"{self.path}: {doing}"
            raise failure(self._system, self.path.parent, error, what) from error

    def _seen(self, number: int) -> int:
        """Open the file on this rank. Its inode must be that of the first rank."""
        with suppress(OSError):
            fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            if os.fstat(fd).st_ino == number:
                return fd
            os.close(fd)
        raise BadInput(
            f"{self.path} is not the same file as on the first rank: a shared archive needs a file"
            " system that all ranks share; use it, or hdf5, which has a file per rank"
        )


# The parts of ranks in a checkpoint of the archive

_MARK: Final = "ckio ranks: "
"""The beginning of the unit of the field `ranks`; the layouts of all ranks follow, as JSON."""


class Joined(NamedTuple):
    """The layout of a checkpoint of all ranks, and the places of the parts in it.

    Attributes
    ----------
    layout : Layout
        The fields of all ranks, and the field of their digests.
    parts : tuple
        For each rank, and each of its fields: the number of the field in `layout`, the offset of
        the part in it, and its bytes. The last part is the digest.
    """

    layout: Layout
    parts: tuple[list[tuple[int, int, int]], ...]

    def spans(self, rank: int, offsets: Sequence[int], /) -> Spans:
        """Return the places of a rank's parts, and of its digest, in a slot with these fields."""
        return [(offsets[number] + begin, nbytes) for number, begin, nbytes in self.parts[rank]]


@lru_cache(64)
def joined(layouts: tuple[Layout, ...], /) -> Joined:
    """Return the layout of a checkpoint whose parts on the ranks have these layouts.

    If all ranks have the same fields, each field has the parts of all ranks, in the order of ranks.
    Otherwise each field of each rank is a field of its own.
    """
    if len({tuple((item.name, item.dtype) for item in layout) for layout in layouts}) == 1:
        every = range(len(layouts))
        columns = [(item.name, number, every) for number, item in enumerate(layouts[0])]
    else:
        columns = [
            (f"rank-{rank}-{item.name}", number, range(rank, rank + 1))
            for rank, layout in enumerate(layouts)
            for number, item in enumerate(layout)
        ]
    parts: tuple[list[tuple[int, int, int]], ...] = tuple([] for _ in layouts)
    fields = []
    for column, (name, number, ranks) in enumerate(columns):
        begin = 0
        for rank in ranks:
            nbytes = field_nbytes(layouts[rank][number])
            parts[rank].append((column, begin, nbytes))
            begin += nbytes
        fields.append(_whole(name, [layouts[rank][number] for rank in ranks]))
    for rank, places in enumerate(parts):
        places.append((len(fields), rank * _DIGEST, _DIGEST))
    texts = [form_of(layout).text.decode() for layout in layouts]
    unit = _MARK + json.dumps(texts, separators=(",", ":"))
    return Joined((*fields, Field("ranks", "|u1", (len(layouts), _DIGEST), unit)), parts)


def _whole(name: str, parts: Sequence[Field]) -> Field:
    """Return the field that has these parts, joined along the first axis.

    If the other axes of the parts differ, all their elements are in one row.
    """
    rests = {part.shape[1:] for part in parts}
    if len(rests) == 1 and all(part.shape for part in parts):
        shape = (sum(part.shape[0] for part in parts), *rests.pop())
    else:
        shape = (sum(prod(part.shape) for part in parts),)
    return Field(name, parts[0].dtype, shape, parts[0].unit)


def _parts(stored: Stored) -> list[Stored]:
    """Return each rank's part of a checkpoint; raises BadInput if it has no parts of ranks."""
    unit = stored.layout[-1].unit if stored.layout else ""
    if not unit.startswith(_MARK):
        raise BadInput(f"{stored.path} is no shared archive, but one of hdf5; give another path")
    texts = json.loads(unit.removeprefix(_MARK))
    layouts = tuple(form_from(text.encode()).layout for text in texts)
    whole, offsets = joined(layouts), [at for at, _ in stored.spans]
    parts = []
    with stored.path.open("rb") as file:
        for rank, layout in enumerate(layouts):
            *spans, (at, nbytes) = whole.spans(rank, offsets)
            own = os.pread(file.fileno(), nbytes, at)
            parts.append(replace(stored, layout=layout, spans=tuple(spans), digest=own))
    return parts
