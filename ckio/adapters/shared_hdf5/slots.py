"""The bytes of slots, moved by HDF5 with MPI: each rank its own, and without waiting for another.

One rank's part of a field is one piece of the file: a collective call would have nothing to put
together, and a rank that fails would leave the others in it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import h5py
import numpy as np
from numpy.typing import NDArray

from ckio.actions import Buffers
from ckio.adapters.shared_hdf5.parts import Column, Group

_LEFT: Final[list[Any]] = []
"""Files that nobody can close, as all ranks have to be there for that."""


class _Part(NamedTuple):
    """The part of a field that is this rank's, in the file and in memory."""

    column: Column
    dataset: Any
    space: Any
    memory: Any
    shape: tuple[int, ...]

    def array(self, data: Buffers) -> NDArray[Any]:
        return np.frombuffer(data[self.column.field], self.column.dtype).reshape(self.shape)


class Slots:
    """The file, open on all ranks of a communicator; closed, without one."""

    def __init__(self, path: Path | None = None, communicator: Any = None, rank: int = 0) -> None:
        self._rank = rank
        self._file: Any = None
        if path is not None:
            self._file = h5py.File(path, "r+", driver="mpio", comm=communicator)

    @property
    def is_open(self) -> bool:
        return self._file is not None

    def put(self, group: Group, slot: int, data: Buffers, /) -> None:
        """Write this rank's part of a checkpoint; raises what h5py raises."""
        for part in self._parts(group, slot):
            part.dataset.write(part.memory, part.space, part.array(data), part.dataset.get_type())

    def get(self, group: Group, slot: int, into: Buffers, /) -> None:
        """Fill `into` with this rank's part; raises what h5py raises."""
        for part in self._parts(group, slot):
            part.dataset.read(part.memory, part.space, part.array(into), part.dataset.get_type())

    def put_row(self, group: Group, table: str, slot: int, row: NDArray[Any], /) -> None:
        """Write the row of a slot: an array with a first axis of 1."""
        dataset = self._dataset(group, table)
        space = dataset.get_space()
        space.select_hyperslab((slot, *(0 for _ in row.shape[1:])), row.shape)
        dataset.write(h5py.h5s.create_simple(row.shape), space, row)

    def close(self) -> None:
        """Close it; all ranks do so at once."""
        file, self._file = self._file, None
        file.close()

    def abandon(self) -> None:
        """Leave it open for good."""
        _LEFT.append(self._file)
        self._file = None

    def _parts(self, group: Group, slot: int) -> Iterator[_Part]:
        """Those that are not empty."""
        for column in group.columns:
            shape = column.part(self._rank)
            if shape[0]:
                dataset = self._dataset(group, column.name)
                space, begin = dataset.get_space(), column.rows[self._rank]
                space.select_hyperslab((slot, begin, *(0 for _ in column.rest)), (1, *shape))
                yield _Part(column, dataset, space, h5py.h5s.create_simple(shape), shape)

    def _dataset(self, group: Group, name: str) -> Any:
        return h5py.h5d.open(self._file.id, f"{group.name}/{name}".encode())
