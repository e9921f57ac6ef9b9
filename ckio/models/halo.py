"""Fields on a square grid in strips of rows, one strip a rank, and a Laplacian across them.

Outside the square a field is the negative of its mirror image, with 0 in between, on walls that are
one cell beyond the first and last points. So the Laplacian of fourth order keeps its order at the
walls, and is its own transpose: back as well as forward, neighbours send each other the two rows
that are theirs at the edge, and every point is computed by the same sums in the same order, however
many ranks there are.
"""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ckio.errors import BadInput
from ckio.model.comm import Comm, share

Field = NDArray[Any]

HALO: Final = 2
"""Rows and columns around a strip that the Laplacian reads."""

INSIDE: Final = slice(HALO, -HALO), slice(HALO, -HALO)
"""The points of a field that are this rank's own; around them is the halo."""

STIFFEST: Final = 128
"""No eigenvalue of minus `Strip.laplacian` is above this: 2 x 64, along each axis."""

AT_ONCE: Final = 1 << 15
"""Points to work on at a time: a few arrays of so many stay in a core's second cache."""


class Strip:
    """The rows of this rank, and fields on them: arrays [row, column] with a halo around.

    Point by point a field is worked on flat, with the halo at both ends of each row: NumPy does one
    long row three times as fast as many that lie apart.

    Parameters
    ----------
    grid : int
        Points along each side of the square.
    comm : Comm
        The ranks that share its rows.

    Attributes
    ----------
    grid : int
        As given.
    rows : range
        Which of the rows are this rank's; the same count on every rank, or one more.

    Raises
    ------
    BadInput
        Where a rank would get fewer rows than its neighbours read of it.
    """

    def __init__(self, grid: int, comm: Comm) -> None:
        if grid < HALO * comm.size:
            raise BadInput(
                f"{grid} rows are too few for {comm.size} ranks, each of which needs {HALO}; take"
                f" a larger grid, or {grid // HALO} ranks"
            )
        self._comm = comm
        self.grid = grid
        self.rows = share(grid, comm)
        self._width = grid + 2 * HALO
        self._at_once = min(max(1, AT_ONCE // self._width), len(self.rows))
        self._laplacian = np.empty(self._at_once * self._width)

    def field(self, inside: Field | float = 0.0, /) -> Field:
        """A new one with these values inside, and a halo of zeros."""
        field = np.zeros((len(self.rows) + 2 * HALO, self._width))
        field[INSIDE] = inside
        return field

    def blocks(self) -> Iterator[slice]:
        """All of the rows, some at a time, with both ends: where they lie in a flat field."""
        begin, end = HALO, HALO + len(self.rows)
        for row in range(begin, end, self._at_once):
            yield slice(row * self._width, min(row + self._at_once, end) * self._width)

    def fill_halo(self, field: Field, /) -> None:
        """What neighbours have beyond the edges, and mirror images beyond the walls; collective."""
        np.negative(field[:, HALO], out=field[:, 0])
        np.negative(field[:, -1 - HALO], out=field[:, -1])
        before, after = self._comm.rank - 1, self._comm.rank + 1
        send, into = {}, {}
        if before >= 0:
            send[before], into[before] = field[HALO : 2 * HALO], field[:HALO]
        else:
            np.negative(field[HALO], out=field[0])
        if after < self._comm.size:
            send[after], into[after] = field[-2 * HALO : -HALO], field[-HALO:]
        else:
            np.negative(field[-1 - HALO], out=field[-1])
        self._comm.exchange(send, into)

    def laplacian(self, flat: Field, block: slice, /) -> Field:
        """12 h² ∇² of a flat field whose halo is filled, in a block; 0 at both ends of rows.

        Of 4th order: 16 times the four points around less the four behind them, less 60 times the
        point. Its own transpose. In work memory, which the next call overwrites.
        """
        out = self._laplacian[: block.stop - block.start]

        def shifted(by: int) -> Field:
            return flat[block.start + by : block.stop + by]

        np.multiply(flat[block], -60 / 16, out=out)
        for by in (-self._width, self._width, -1, 1):
            out += shifted(by)
        out *= 16
        for by in (-2 * self._width, 2 * self._width, -2, 2):
            out -= shifted(by)
        rows = out.reshape(-1, self._width)
        rows[:, :HALO] = rows[:, -HALO:] = 0
        return out
