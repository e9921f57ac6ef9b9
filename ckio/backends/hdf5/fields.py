"""Fields as HDF5 sees them: of each slot, the place in its payload where the field lies.

The payload of a checkpoint is one piece. A field of it is a chunked dataset without filters, with
one chunk for each slot; the tree that says where the chunks are is made with the group, points
into the slots, and never changes: a commit has nothing to do for it. Nothing is stored twice.
"""

from collections.abc import Iterable
from io import RawIOBase
from typing import NamedTuple

import numpy as np

from ckio.backends.hdf5.group import Group
from ckio.backends.hdf5.tree import blank_entries, plant


class Dataset(NamedTuple):
    """A dataset of (slots, *shape) and chunks of (1, *shape), as HDF5 made it: without a tree.

    Attributes
    ----------
    header : int
        Offset of its object header.
    axes : int
        How many the dataset has.
    """

    header: int
    axes: int


def plant_fields(file: RawIOBase, group: Group, datasets: Iterable[Dataset | None], /) -> None:
    """Let HDF5 find the fields of a group, which goes to the end of a file that is not open.

    `datasets` has one for each field, None where the field has no chunks. Raises StorageError where
    HDF5 did not make them in the one way known here.
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
