"""The actions of a plan in segments: those of each kind once, repeated at the speed of memory.

First the sweep that stores the start of every segment, then the last step of the chain, then the
segments from the last to the first. Equal segments have the same actions, shifted: a tile.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ckio.actions.columns import ADVANCE, RECORD, REVERSE, WRITE, Actions
from ckio.planners.hrevolve.group import Ints
from ckio.planners.hrevolve.segments import Part, Segments
from ckio.planners.hrevolve.short import ShortTables, short_actions


class _Rows(NamedTuple):
    """Columns of `Actions` that are being filled."""

    op: NDArray[np.uint8]
    level: NDArray[np.int16]
    begin: Ints
    end: Ints

    @staticmethod
    def empty(size: int) -> "_Rows":
        return _Rows(
            op=np.empty(size, np.uint8),
            level=np.empty(size, np.int16),
            begin=np.empty(size, np.int64),
            end=np.empty(size, np.int64),
        )

    def part(self, begin: int, end: int) -> "_Rows":
        """A view of some of the rows, to be written to."""
        return _Rows(
            op=self.op[begin:end],
            level=self.level[begin:end],
            begin=self.begin[begin:end],
            end=self.end[begin:end],
        )


def actions(plan: Segments, numbers: Sequence[int], /) -> Actions:
    """All actions of a plan; `numbers` are those of the levels on the platform.

    Takes 24 bytes for each action, of which there are four to six for each step.
    """
    copies = [part.copies for part in plan.parts]
    steps = np.repeat([part.steps for part in plan.parts], copies)
    starts = np.concatenate(([0], np.cumsum(steps)))
    named = np.repeat([numbers[part.level - 1] for part in plan.parts], copies)
    tiles = [_tile(plan, part, numbers) for part in plan.parts]

    sweep = 2 * len(steps) + 2
    rows = _Rows.empty(sweep + sum(n * len(tile.op) for n, tile in zip(copies, tiles, strict=True)))
    _sweep(rows.part(0, sweep), starts, named)
    place, segment = sweep, len(steps)
    for n, tile in zip(reversed(copies), reversed(tiles), strict=True):
        begins = starts[segment - n : segment][::-1]
        _repeat(rows.part(place, place + n * len(tile.op)), tile, begins)
        place, segment = place + n * len(tile.op), segment - n
    return Actions(op=rows.op, level=rows.level, begin=rows.begin, end=rows.end)


def _tile(plan: Segments, part: Part, numbers: Sequence[int]) -> Actions:
    """The actions that reverse one segment, as if it began at 0."""
    level, free, length = part.level, part.free, part.steps - 1
    if isinstance(plan.tables, ShortTables):
        return short_actions(plan.tables, level, free, length, numbers)
    from ckio.planners.hrevolve.unroll import STORED, actions, unroll

    return actions(unroll(plan.tables, np.array([[level, free, length, 0, STORED]]), numbers))


def _sweep(rows: _Rows, starts: Ints, named: Ints) -> None:
    """Write the start of each segment and advance to the next; then reverse the last step."""
    rows.op[0:-2:2], rows.op[1:-2:2] = WRITE, ADVANCE
    rows.level[0:-2:2], rows.level[1:-2:2] = named, 0
    rows.begin[0:-2:2], rows.begin[1:-2:2] = starts[:-1], starts[:-1]
    rows.end[0:-2:2], rows.end[1:-2:2] = 0, starts[1:]
    rows.op[-2:], rows.level[-2:] = (RECORD, REVERSE), 0
    rows.begin[-2:], rows.end[-2:] = starts[-1], starts[-1] + 1


def _repeat(rows: _Rows, tile: Actions, begins: Ints) -> None:
    """Lay a tile at each of these steps; of an access, `end` is 0 and stays so."""
    shape = len(begins), len(tile.op)
    rows.op.reshape(shape)[:] = tile.op
    rows.level.reshape(shape)[:] = tile.level
    np.add(tile.begin, begins[:, None], out=rows.begin.reshape(shape))
    end = rows.end.reshape(shape)
    np.multiply(tile.op < WRITE, begins[:, None], out=end)
    end += tile.end
