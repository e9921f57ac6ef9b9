"""Any number of spans on a small grid: what keeps a picture of a million actions small."""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Grid = NDArray[np.bool_]


def covered(line: Ints, begin: Ints, end: Ints, /, *, lines: int, length: int) -> Grid:
    """The cells of a `lines` by `length` grid that half-open spans `[begin, end)` cover."""
    edges = np.zeros((lines, length + 1), np.int32)
    np.add.at(edges, (line, begin), 1)
    np.add.at(edges, (line, end), -1)
    grid: Grid = edges.cumsum(axis=1)[:, :length] > 0
    return grid


def runs(grid: Grid, /) -> tuple[Ints, Ints, Ints]:
    """The spans of a grid, merged where they touch: (line, begin, end), by line."""
    padded = np.zeros((grid.shape[0], grid.shape[1] + 2), np.int8)
    padded[:, 1:-1] = grid
    change = np.diff(padded, axis=1)
    line, begin = np.nonzero(change == 1)
    return line, begin, np.nonzero(change == -1)[1]
