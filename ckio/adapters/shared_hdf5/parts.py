"""How the parts of all ranks lie in one checkpoint: field by field, one rank behind the other."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import prod
from typing import Any, Final

import numpy as np

from ckio.actions import Kind, Layout

TABLES: Final = ("keys", "layouts", "begins", "stored", "xxh3_128")
"""What else a group has by name, so that no field is called so."""


@dataclass(frozen=True, eq=False)
class Column:
    """One dataset of a group: a field of all ranks, or one that a single rank has.

    Attributes
    ----------
    name : str
        What the dataset is called.
    field : int
        The number of the field in the layout of each rank that has a part.
    dtype : numpy dtype
        Of its elements; bytes, with one more axis, where HDF5 has no such type.
    rows : tuple of int
        Where the part of each rank begins along the first axis, and the end of the last.
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
        """Of all parts together."""
        return self.rows[-1], *self.rest

    @property
    def row_nbytes(self) -> int:
        return prod(self.rest) * self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes in one checkpoint."""
        return self.rows[-1] * self.row_nbytes

    def part(self, rank: int, /) -> tuple[int, ...]:
        """The shape of a rank's part."""
        return self.rows[rank + 1] - self.rows[rank], *self.rest

    def span(self, rank: int, slot: int, /) -> tuple[int, int]:
        """Offset in the dataset, and bytes, of a rank's part of a slot: it is one piece."""
        begin, end = self.rows[rank : rank + 2]
        return slot * self.nbytes + begin * self.row_nbytes, (end - begin) * self.row_nbytes


@dataclass(frozen=True, eq=False)
class Group:
    """Slots for checkpoints of one kind, with the same layouts.

    Attributes
    ----------
    name : str
    kind : Kind
    layouts : tuple of Layout
        Of the part of each rank.
    slots : int
        How many.
    """

    name: str
    kind: Kind
    layouts: tuple[Layout, ...]
    slots: int

    @cached_property
    def columns(self) -> list[Column]:
        """Those with elements."""
        return [column for column in _columns(self.layouts) if column.nbytes]

    @property
    def nbytes(self) -> int:
        """Bytes of all its slots."""
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
    """The parts of these ranks; along the first axis, if all others are alike."""
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
    """The type of elements that HDF5 knows, and the axes that one of them has."""
    dtype = np.dtype(text)
    base = dtype.base
    if base.kind in "iufcb" and base.itemsize <= (16 if base.kind == "c" else 8):
        return base, dtype.shape
    return np.dtype("u1"), (*dtype.shape, base.itemsize)


def _names(fields: Sequence[str]) -> list[str]:
    """What datasets are called: as the fields, where HDF5 can and nothing else is called so."""
    names: list[str] = []
    for number, field in enumerate(fields):
        plain = field.isprintable() and not _NO_NAME.fullmatch(field)
        names.append(field if plain and field not in names else f"field-{number}")
    return names


_NO_NAME: Final = re.compile(rf"|\.|\.\.|.*/.*|field-\d+|{'|'.join(TABLES)}")
