"""The metadata of an archive, made with HDF5: an empty archive, and a draft with one more group.

No other module of an archive imports h5py. HDF5 writes its metadata in pieces, and a kill between
two of these writes would leave a file that no program can open. Therefore HDF5 works on a draft in
memory. All pages that it changes are after the old end of the file, to which no part of the file
refers yet, except for two pages (see `heads`). HDF5 reads only verified bytes, because it may crash
on damaged metadata.
"""

import io
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from io import RawIOBase
from math import prod
from typing import Any, Final, NamedTuple

import h5py
import numpy as np

from ckio import __version__
from ckio.actions import Field, Kind
from ckio.backends.files import TILE
from ckio.backends.forms import Form
from ckio.backends.hdf5.heads import EOF, FIXED, PAGE, ROW, VERSION, Group, stride
from ckio.backends.hdf5.views import View, Views, blank_entries, plant
from ckio.backends.runid import RunId
from ckio.errors import StorageError

_FORMAT: Final = "ckio archive"

_LINKS: Final = 100
"""Links in one leaf of a group; the leaf of the root group then has 4008 bytes, in one page.

This is one link for each possible group, one for the README, and a few spare ones.
"""

_HOLE: Final = "-" * 2304
"""A name as long as the names of all possible groups, and of some that a kill left unfinished."""

_MOST_DIMENSIONS: Final = 32
_MOST_OF_A_CHUNK: Final = 1 << 32

_STYLE: Final = {
    "libver": "earliest",  # later metadata has flags that stay set when the writer is killed
    "alignment_threshold": PAGE - 128,  # the leaf of the root group gets a page of its own
    "alignment_interval": PAGE,
    "meta_block_size": PAGE - 512,
}
_HDF5_GAVE_UP: Final = (OSError, RuntimeError, LookupError, ValueError, TypeError, OverflowError)

_ABOUT: Final = """\
Checkpoints of an adjoint computation, written by ckio.

Each group contains checkpoints of one kind: `restart` (the state x_i from which step i starts),
`tape` (the data that the adjoint of step i needs) or `adjoint` (the adjoint state at step i). Index
i of the first axis of its datasets is slot i; the other axes are the axes of the field. The unit of
a field is an attribute. Row i of the dataset `keys` describes the checkpoint in slot i:

  state     `stored`, or empty: then the slot is free, and its bytes and its row have no meaning
  commit    the number of this write, from 1
  slot      the number i
  kind      the kind of the checkpoint
  step      the step of the checkpoint
  name      the variable, if this is only one variable of a checkpoint
  nbytes    bytes of the payload
  written   time of writing, in seconds since 1970 (UTC)
  xxh3_128  checksum of the payload, all fields in their order; empty if none was requested
  row_xxh3  checksum of this row; a stored row that does not agree with it was damaged

Slot i of the dataset `payload` is the stored checkpoint: its fields one after the other, in the
order in which their datasets were created, then unused bytes. The datasets of the fields are views
of the same bytes; a field of 4 GiB or more has no dataset. A group with only one field has no
dataset `payload`, because the dataset of this field is the payload. If this field consists of plain
bytes, a slot contains `nbytes` of them, then unused bytes.

If this field is called `encoded`, a codec has encoded the checkpoint; the unit of the field names
the codec. The other datasets of the group are then views of the encoded bytes, one for each field,
through filters of HDF5. The filters zstd (32015) and zfp (32013) need a plugin, for example by
`import hdf5plugin`. Read such a view slot by slot, because reading a free slot may raise an error.
If no filter can decode a field, it has no view. The checksum is that of the encoded bytes.
"""


def whole_pages(nbytes: int, /) -> int:
    """Return `nbytes` rounded up to whole pages."""
    return -(-nbytes // PAGE) * PAGE


class DraftFile(io.RawIOBase):
    """A file in memory for h5py, which begins with the bytes `known` and has `end` bytes at first.

    Attributes
    ----------
    size : int
        Bytes of the file, including the new parts.
    """

    def __init__(self, known: bytes, end: int) -> None:
        self._known, self._end = known, end
        self._pages: dict[int, bytearray] = {}
        self._changed: set[int] = set()
        self._at = 0
        self.finish(end)

    def finish(self, end: int) -> None:
        """Set the end of the file, also in its superblock."""
        self.size = end
        self.seek(EOF)
        self.write(end.to_bytes(8, "little"))

    def pages(self) -> tuple[dict[int, bytes], bytes, bytes]:
        """Return the changed pages: the new pages by offset, page 0, and page 1."""
        new = {number * PAGE for number in self._changed if number * PAGE >= self._end}
        if others := self._changed - {at // PAGE for at in new} - {0, 1}:
            raise StorageError(f"HDF5 wants to change pages {sorted(others)}, which may not change")
        page, leaf = (bytes(self._page(number)) for number in (0, 1))
        return {at: bytes(self._page(at // PAGE)) for at in sorted(new)}, page, leaf

    # Methods that h5py calls

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}
        self._at = base[whence] + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def truncate(self, size: int | None = None) -> int:
        self.size = self._at if size is None else size
        return self.size

    def write(self, data: Any, /) -> int:
        view = memoryview(data).cast("B")
        for number, inside, part in self._parts(len(view)):
            self._page(number)[inside] = view[part]
            self._changed.add(number)
        self.size = max(self.size, self._at)
        return len(view)

    def readinto(self, into: Any, /) -> int:
        view = memoryview(into).cast("B")
        for number, inside, part in self._parts(len(view)):
            view[part] = self._page(number)[inside]
        return len(view)

    def _parts(self, nbytes: int) -> Iterator[tuple[int, slice, slice]]:
        """Yield, for each page of the next `nbytes`: its number, a slice of it, a slice of them."""
        done = 0
        while done < nbytes:
            number, begin = divmod(self._at, PAGE)
            count = min(PAGE - begin, nbytes - done)
            yield number, slice(begin, begin + count), slice(done, done + count)
            done += count
            self._at += count

    def _page(self, number: int) -> bytearray:
        if number not in self._pages:
            at = number * PAGE
            if len(self._known) <= at < self._end:
                raise StorageError(f"HDF5 wants to read page {number}, which was not verified")
            self._pages[number] = bytearray(self._known[at : at + PAGE].ljust(PAGE, b"\0"))
        return self._pages[number]


class Dataset(NamedTuple):
    """A dataset of shape (slots, *shape) with chunks of (1, *shape), which has no tree yet.

    Attributes
    ----------
    header : int
        Offset of its object header.
    axes : int
        Number of axes of the dataset.
    """

    header: int
    axes: int


def empty(run: RunId, /) -> bytes:
    """Return the bytes of a run's archive without groups: pages 0 and 1, a gap, and the rest.

    Page 0 contains the superblock and the names in the root group; page 1 contains only the links
    of the root group. The gap is for ckio's index and the mirror (see `heads`).
    """
    image = io.BytesIO()
    with h5py.File(image, "w", **_STYLE):
        pass
    # Promise: after each single write of a growth, HDF5 finds all groups, or all but the new one.
    # For this, the links of the groups must be in one page and their names in another. h5py has no
    # option for that. Test: test_hdf5_reads_a_growing_archive_after_every_single_write.
    # The superblock has the size of leaves (half the number of links, two bytes at offset 16). With
    # this value the root group never gets a second leaf, and one write replaces all its links.
    image.getbuffer()[16:18] = (_LINKS // 2).to_bytes(2, "little")
    with h5py.File(image, "r+", **_STYLE) as file:
        # HDF5 stores the names of a group's members in one block, and allocates a larger block
        # elsewhere when it is full. A long name that is created and deleted leaves a hole in the
        # block for later names. The hole remains because another name follows it.
        file[_HOLE] = h5py.SoftLink("/")
    # The superblock has the end of the file; with this value, new objects begin after the gap.
    image.write(bytes(FIXED - image.seek(0, io.SEEK_END)))
    image.getbuffer()[EOF : EOF + 8] = FIXED.to_bytes(8, "little")
    with h5py.File(image, "r+", **_STYLE) as file:
        file.create_dataset("README", data=np.bytes_(_ABOUT))
        del file[_HOLE]
        file.attrs["format"] = _FORMAT
        file.attrs["format_version"] = VERSION
        file.attrs["creator"] = f"ckio {__version__}"
        file.attrs["run"] = run.text
        file.attrs["about"] = "/README explains the groups, their slots and their table `keys`"
    return image.getvalue()


def drafted(
    known: bytes,
    name: str,
    kind: Kind,
    form: Form,
    /,
    *,
    slots: int,
    end: int,
    run: RunId,
    gap: int = 0,
) -> tuple[Group, DraftFile]:
    """Return a new group that begins at `end`, and the draft of the file with this group.

    `known` are the verified bytes at the beginning of the file. If the slots are large, a gap of
    whole pages follows the head of the group, so that slot 0 begins at a multiple of a tile: large
    pages of the page cache begin there, and a system call that begins within a large page takes a
    tenth longer.
    """
    views = Views.of(form.layout, slots)
    draft = DraftFile(known, end + _head_nbytes(name, kind, form, slots, views) + gap)
    try:
        with h5py.File(draft, "r+", **_STYLE) as file:
            node, taken = file.create_group(name), {"keys"}
            rows = _offset(make_flat(node, "keys", (slots,), ROW))
            payload, fields = _make_slots(node, form, slots, taken)
            headers = list(_make_views(node, views, taken)) if views else []
    except _HDF5_GAVE_UP as error:
        raise StorageError(f"HDF5 cannot add a group: {error}") from error
    group = Group(name, kind, form, slots, rows, payload, draft.size, draft.size, views, run)
    if gap == 0 and group.stride >= TILE and group.payload % TILE:
        gap = -group.payload % TILE
        return drafted(known, name, kind, form, slots=slots, end=end, run=run, gap=gap)
    plant_fields(draft, group, fields)
    views = views.planted(draft, headers) if views else None
    draft.finish(whole_pages(draft.size))
    return replace(group, end=draft.size, views=views), draft


def _head_nbytes(name: str, kind: Kind, form: Form, slots: int, views: Views | None) -> int:
    """Return an upper bound of the bytes of the head of a group, in whole pages."""
    anywhere = 1 << 63  # a number with the maximum number of digits of an offset
    views = views.unpack([anywhere] * len(views.fields)) if views else None
    head = Group(name, kind, form, slots, anywhere, anywhere, anywhere, anywhere, views)
    return whole_pages(len(head.pack()))


def _make_slots(
    group: h5py.Group, form: Form, slots: int, taken: set[str]
) -> tuple[int, list[Dataset | None]]:
    """Make the datasets of slots; return the payload's offset, and the datasets that need trees."""
    if len(form.layout) == 1:  # the payload is the field
        (field,) = form.layout
        shape, dtype = _as_hdf5(field, form.nbytes)
        dataset = make_flat(group, _safe(field.name, taken), (slots, *shape), dtype)
        describe(dataset, field)
        return _offset(dataset), [None]
    payload = make_flat(group, _safe("payload", taken), (slots, stride(form)), np.dtype("u1"))
    sizes = zip(form.layout, form.sizes, strict=True)
    return _offset(payload), [
        _make_field(group, field, nbytes, slots, taken) for field, nbytes in sizes
    ]


def _make_field(
    group: h5py.Group, field: Field, nbytes: int, slots: int, taken: set[str]
) -> Dataset | None:
    """Make the dataset of one of several fields; return it if it needs a tree, else None."""
    if nbytes >= _MOST_OF_A_CHUNK:
        return None
    shape, dtype = _as_hdf5(field, nbytes)
    name, whole = _safe(field.name, taken), (slots, *shape)
    if nbytes == 0:
        describe(make_flat(group, name, whole, dtype), field)
        return None
    dataset = group.create_dataset(name, whole, dtype, chunks=(1, *shape))
    describe(dataset, field)
    return Dataset(_header(dataset), len(whole))


def _as_hdf5(field: Field, nbytes: int) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return the shape and type of a field in HDF5; those of its bytes if HDF5 has no such type."""
    dtype = np.dtype(field.dtype)
    if len(field.shape) < _MOST_DIMENSIONS and _has_type(dtype):
        return field.shape, dtype
    return (nbytes,), np.dtype("u1")


def _make_views(group: h5py.Group, views: Views, taken: set[str]) -> Iterator[int]:
    """Make the datasets of views; yield the offsets of their object headers, 0 for no dataset."""
    for field, view in zip(views.layout, views.fields, strict=True):
        if view is None or not _has_chunks(view):
            yield 0
            continue
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((1, *view.pipeline.block))
        for number, options in view.pipeline.filters():
            plist.set_filter(number, h5py.h5z.FLAG_OPTIONAL, options)
        shape, dtype = (view.slots, *view.shape), view.pipeline.dtype
        dataset = group.create_dataset(_safe(field.name, taken), shape, dtype, dcpl=plist)
        describe(dataset, field)
        yield _header(dataset)


def _has_chunks(view: View) -> bool:
    """Return whether these blocks can be chunks of HDF5."""
    block, dtype = view.pipeline.block, view.pipeline.dtype
    fits = len(block) < _MOST_DIMENSIONS and prod(block) * dtype.itemsize < _MOST_OF_A_CHUNK
    return fits and _has_type(dtype)


def _offset(dataset: h5py.Dataset) -> int:
    return int(dataset.id.get_offset()) if dataset.nbytes else 0


def _header(dataset: h5py.Dataset) -> int:
    return int(h5py.h5o.get_info(dataset.id).addr)


def describe(dataset: h5py.Dataset, field: Field) -> None:
    """Store the name and unit of a field as attributes of its dataset."""
    dataset.attrs.update(name=_text(field.name), unit=_text(field.unit))


def make_flat(
    group: h5py.Group, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> h5py.Dataset:
    """Make a contiguous dataset whose space is allocated in the file immediately."""
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_layout(h5py.h5d.CONTIGUOUS)
    plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    return group.create_dataset(name, shape, dtype, dcpl=plist)


def _text(text: str) -> str:
    """Return a text that HDF5 accepts: valid Unicode without NUL."""
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\0")


def _has_type(dtype: np.dtype[Any]) -> bool:
    """Return whether HDF5 has this type with the same size; otherwise it is stored as bytes."""
    try:
        return int(h5py.h5t.py_create(dtype, logical=True).get_size()) == dtype.itemsize
    except (TypeError, ValueError):
        return False


def _safe(name: str, taken: set[str]) -> str:
    """Return a name that HDF5 accepts and that is not in `taken`; add it to `taken`.

    It has no slashes, is not empty, and does not consist of dots alone.
    """
    base = re.sub(r"[^\w.+-]", "_", name)
    if not base.strip("."):
        base = "field"
    safe, count = base, 1
    while safe in taken:
        count += 1
        safe = f"{base}-{count}"
    taken.add(safe)
    return safe


def plant_fields(file: RawIOBase, group: Group, datasets: Iterable[Dataset | None], /) -> None:
    """Append the trees by which HDF5 finds the fields of a group to a file that HDF5 has closed.

    The payload of a checkpoint is one piece. Each of its fields is a chunked dataset without
    filters, with one chunk for each slot. The tree of the dataset points into the slots and never
    changes. Therefore a commit does not write to the tree, and no byte is stored twice.

    `datasets` has an entry for each field, None if the field has no chunks. Raises StorageError if
    the HDF5 library made them in a way that is not known here.
    """
    numbers, begin = np.arange(group.slots, dtype=np.uint64), group.payload
    for dataset, nbytes in zip(datasets, group.form.sizes, strict=True):
        if dataset is not None:
            entries = blank_entries(group.slots, dataset.axes)
            entries[:, 0] = nbytes
            entries[:, 1] = numbers
            entries[:, -1] = begin + group.stride * numbers
            plant(file, dataset.header, entries, group.slots)
        begin += nbytes
