"""A schedule while it is written: actions appended straight to columns."""

from array import array
from collections.abc import Sequence

import numpy as np

from ckio.actions import Kind
from ckio.actions.columns import ADVANCE, DISCARD, KIND_CODE, READ, RECORD, REVERSE, WRITE, Actions
from ckio.platform.chain import Chain
from ckio.schedule import Schedule


class Draft:
    """Appends actions and hands out their schedule; it does not check them, the Machine does."""

    def __init__(self) -> None:
        self._laid: list[tuple[Actions, Sequence[int]]] = []
        self._clear()

    def _clear(self) -> None:
        self._op, self._kind, self._level = array("B"), array("B"), array("h")
        self._begin, self._end = array("q"), array("q")

    def advance(self, begin: int, end: int, /) -> None:
        self._add(ADVANCE, 0, 0, begin, end)

    def record(self, begin: int, end: int, /) -> None:
        self._add(RECORD, 0, 0, begin, end)

    def reverse(self, begin: int, end: int, /) -> None:
        self._add(REVERSE, 0, 0, begin, end)

    def step_back(self, step: int, /) -> None:
        """Record one step and reverse it at once."""
        self.record(step, step + 1)
        self.reverse(step, step + 1)

    def write(self, step: int, /, *, level: int, kind: Kind = Kind.RESTART) -> None:
        self._add(WRITE, KIND_CODE[kind], level, step, 0)

    def read(self, step: int, /, *, level: int, kind: Kind = Kind.RESTART) -> None:
        self._add(READ, KIND_CODE[kind], level, step, 0)

    def discard(self, step: int, /, *, level: int, kind: Kind = Kind.RESTART) -> None:
        self._add(DISCARD, KIND_CODE[kind], level, step, 0)

    def _add(self, op: int, kind: int, level: int, begin: int, end: int) -> None:
        self._op.append(op)
        self._kind.append(kind)
        self._level.append(level)
        self._begin.append(begin)
        self._end.append(end)

    def schedule(self, chain: Chain, /, note: str = "") -> Schedule:
        """Return the schedule of the actions so far, with its planner's note."""
        return Schedule(chain, self.actions(), note=note)

    def lay(self, tile: Actions, begins: Sequence[int], /) -> None:
        """Append actions on steps that count from 0, once at each of these steps."""
        if len(self._op):
            self._laid.append((self._appended(), (0,)))
            self._clear()
        self._laid.append((tile, begins))

    def actions(self) -> Actions:
        """Return the actions so far."""
        if not self._laid:
            return self._appended()
        pieces = [*self._laid, (self._appended(), (0,))]
        size = sum(len(tile) * len(begins) for tile, begins in pieces)
        op, kind = np.empty(size, np.uint8), np.empty(size, np.uint8)
        level = np.empty(size, np.int16)
        begin, end = np.empty(size, np.int64), np.empty(size, np.int64)
        row = 0
        for tile, begins in pieces:
            last = row + len(tile) * len(begins)
            if len(begins) != 1:
                shape, at = (len(begins), len(tile)), np.asarray(begins)[:, None]
                op[row:last].reshape(shape)[:] = tile.op
                kind[row:last].reshape(shape)[:] = tile.kind
                level[row:last].reshape(shape)[:] = tile.level
                np.add(tile.begin, at, out=begin[row:last].reshape(shape))
                # Of an access, `end` is 0 and stays so.
                np.add(tile.end, (tile.end > 0) * at, out=end[row:last].reshape(shape))
            else:
                op[row:last], kind[row:last], level[row:last] = tile.op, tile.kind, tile.level
                np.add(tile.begin, begins[0], out=begin[row:last])
                np.add(tile.end, (tile.end > 0) * begins[0], out=end[row:last])
            row = last
        return Actions(op=op, begin=begin, end=end, kind=kind, level=level)

    def _appended(self) -> Actions:
        return Actions(
            op=np.array(self._op, np.uint8),
            begin=np.array(self._begin, np.int64),
            end=np.array(self._end, np.int64),
            kind=np.array(self._kind, np.uint8),
            level=np.array(self._level, np.int16),
        )
