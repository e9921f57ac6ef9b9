"""The parts of all ranks in one checkpoint. Each rank writes and reads its part by HDF5 with MPI.

Parts are ordered by field, and then by rank. A rank's part of a field is contiguous in the file, so
that collective I/O would not be faster. If a rank failed, the others would wait in it forever.
Therefore I/O is independent, and ranks do not wait for each other.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import prod
from pathlib import Path
from typing import Any, Final, NamedTuple

import h5py
import numpy as np
from numpy.typing import NDArray

from ckio.actions import Buffers, Kind, Layout

TABLES: Final = ("keys", "layouts", "begins", "stored", "xxh3_128")
"""Names of the other datasets of a group. No field has such a name."""


@dataclass(frozen=True, eq=False)
class Column:
    """One dataset of a group: a field of all ranks, or a field of a single rank.

    Attributes
    ----------
    name : str
        Name of the dataset.
    field : int
        Number of the field in the layout of each rank that has a part.
    dtype : numpy dtype
        Type of its elements. If HDF5 has no such type, it is a byte, and `rest` has one more axis.
    rows : tuple of int
        Beginning of each rank's part along the first axis, and the end of the last part.
    rest : tuple of int
        The other axes.
    """

    name: str
    field: int
    dtype: np.dtype[Any]
    rows: tuple[int, ...]
    rest: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of all parts together."""
        return self.rows[-1], *self.rest

    @property
    def row_nbytes(self) -> int:
        return prod(self.rest) * self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """The bytes of one checkpoint."""
        return self.rows[-1] * self.row_nbytes

    def part(self, rank: int, /) -> tuple[int, ...]:
        """Return the shape of a rank's part."""
        return self.rows[rank + 1] - self.rows[rank], *self.rest

    def span(self, rank: int, slot: int, /) -> tuple[int, int]:
        """Return the offset and the number of bytes of a rank's contiguous part of a slot."""
        begin, end = self.rows[rank : rank + 2]
        return slot * self.nbytes + begin * self.row_nbytes, (end - begin) * self.row_nbytes


@dataclass(frozen=True, eq=False)
class SharedGroup:
    """Slots for checkpoints of one kind, with the same layouts.

    Attributes
    ----------
    name : str
    kind : Kind
    layouts : tuple of Layout
        Layouts of the parts of the ranks.
    slots : int
        Number of slots.
    """

    name: str
    kind: Kind
    layouts: tuple[Layout, ...]
    slots: int

    @cached_property
    def columns(self) -> list[Column]:
        """The datasets that are not empty."""
        return [column for column in _columns(self.layouts) if column.nbytes]

    @property
    def nbytes(self) -> int:
        """The bytes of all slots."""
        return self.slots * sum(column.nbytes for column in self.columns)


def _columns(layouts: Sequence[Layout]) -> list[Column]:
    if len({tuple((field.name, field.dtype) for field in layout) for layout in layouts}) == 1:
        names = _names([field.name for field in layouts[0]])
        return [_column(name, n, layouts, range(len(layouts))) for n, name in enumerate(names)]
    return [
        _column(f"rank-{rank}-{name}", number, layouts, (rank,))
        for rank, layout in enumerate(layouts)
        for number, name in enumerate(_names([field.name for field in layout]))
    ]


def _column(name: str, number: int, layouts: Sequence[Layout], ranks: Sequence[int]) -> Column:
    """Return the dataset of a field of these ranks.

    The parts are joined along the first axis if all other axes are equal, and otherwise flattened.
    """
    dtype, more = _elements(layouts[ranks[0]][number].dtype)
    shapes = {rank: (*layouts[rank][number].shape, *more) for rank in ranks}
    rests = {shape[1:] for shape in shapes.values()}
    if len(rests) == 1 and all(shapes.values()):
        rest, rows = rests.pop(), {rank: shape[0] for rank, shape in shapes.items()}
    else:
        rest, rows = (), {rank: prod(shape) for rank, shape in shapes.items()}
    counts = (rows.get(rank, 0) for rank in range(len(layouts)))
    return Column(name, number, dtype, tuple(accumulate(counts, initial=0)), rest)


def _elements(text: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Return a type of elements that HDF5 has, and the axes that one number has in it."""
    dtype = np.dtype(text)
    base = dtype.base
    if base.kind in "iufcb" and base.itemsize <= (16 if base.kind == "c" else 8):
        return base, dtype.shape
    return np.dtype("u1"), (*dtype.shape, base.itemsize)


def _names(fields: Sequence[str]) -> list[str]:
    """Return the names of datasets: those of fields if HDF5 accepts them, otherwise numbers."""
    names: list[str] = []
    for number, field in enumerate(fields):
        plain = field.isprintable() and not _NO_NAME.fullmatch(field)
        names.append(field if plain and field not in names else f"field-{number}")
    return names


_NO_NAME: Final = re.compile(rf"|\.|\.\.|.*/.*|field-\d+|{'|'.join(TABLES)}")


_LEFT: Final[list[Any]] = []
"""Files that cannot be closed, because to close them is a collective call."""


class _RankPart(NamedTuple):
    """The part of a field of this rank, in the file and in memory."""

    column: Column
    dataset: Any
    space: Any
    memory: Any
    shape: tuple[int, ...]

    def array(self, data: Buffers) -> NDArray[Any]:
        return np.frombuffer(data[self.column.field], self.column.dtype).reshape(self.shape)


class SharedFile:
    """The file, which is open on all ranks of a communicator, or closed."""

    def __init__(self, path: Path | None = None, communicator: Any = None, rank: int = 0) -> None:
        self._rank = rank
        self._file: Any = None
        if path is not None:
            self._file = h5py.File(path, "r+", driver="mpio", comm=communicator)

    @property
    def is_open(self) -> bool:
        return self._file is not None

    def put(self, group: SharedGroup, slot: int, data: Buffers, /) -> None:
        """Write this rank's part of a checkpoint; raises the errors of h5py."""
        for part in self._parts(group, slot):
            part.dataset.write(part.memory, part.space, part.array(data), part.dataset.get_type())

    def get(self, group: SharedGroup, slot: int, into: Buffers, /) -> None:
        """Fill `into` with this rank's part; raises the errors of h5py."""
        for part in self._parts(group, slot):
            part.dataset.read(part.memory, part.space, part.array(into), part.dataset.get_type())

    def put_row(self, group: SharedGroup, table: str, slot: int, row: NDArray[Any], /) -> None:
        """Write the row of a slot: an array with a first axis of 1."""
        dataset = self._dataset(group, table)
        space = dataset.get_space()
        space.select_hyperslab((slot, *(0 for _ in row.shape[1:])), row.shape)
        dataset.write(h5py.h5s.create_simple(row.shape), space, row)

    def close(self) -> None:
        """Close the file; this is a collective call."""
        file, self._file = self._file, None
        file.close()

    def abandon(self) -> None:
        """Leave the file open until the process ends."""
        _LEFT.append(self._file)
        self._file = None

    def _parts(self, group: SharedGroup, slot: int) -> Iterator[_RankPart]:
        """Yield the parts that are not empty."""
        for column in group.columns:
            shape = column.part(self._rank)
            if shape[0]:
                dataset = self._dataset(group, column.name)
                space, begin = dataset.get_space(), column.rows[self._rank]
                space.select_hyperslab((slot, begin, *(0 for _ in column.rest)), (1, *shape))
                yield _RankPart(column, dataset, space, h5py.h5s.create_simple(shape), shape)

    def _dataset(self, group: SharedGroup, name: str) -> Any:
        return h5py.h5d.open(self._file.id, f"{group.name}/{name}".encode())
