"""A schedule under construction: actions are appended directly to columns."""

from array import array
from collections.abc import Sequence

import numpy as np

from ckio.actions import Kind
from ckio.actions.columns import ADVANCE, DISCARD, KIND_CODE, READ, RECORD, REVERSE, WRITE, Actions
from ckio.platform.chain import Chain
from ckio.schedule import Schedule


class Draft:
    """Appends actions and returns their schedule. It does not check the rules; the Machine does."""

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
        """Record one step and reverse it immediately."""
        self.record(step, step + 1)
        self.reverse(step, step + 1)

    def store_tape(self, step: int, /, *, level: int) -> None:
        """Record one step and write its tape."""
        self.record(step, step + 1)
        self.write(step, level=level, kind=Kind.TAPE)

    def spend_tape(self, step: int, /, *, level: int) -> None:
        """Read and discard the tape of one step, and reverse the step."""
        self.read(step, level=level, kind=Kind.TAPE)
        self.discard(step, level=level, kind=Kind.TAPE)
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
        """Return the schedule of the actions so far, with a note of the planner."""
        return Schedule(chain, self.actions(), note=note)

    def lay(self, tile: Actions, begins: Sequence[int], /) -> None:
        """Append the actions of `tile` once for each step in `begins`.

        The steps of `tile` count from 0 and are shifted by each of `begins`.
        """
        if len(self._op):
            self._laid.append((self._appended(), (0,)))
            self._clear()
        self._laid.append((tile, begins))

    def actions(self) -> Actions:
        """Return the actions so far."""
        if not self._laid:
            return self._appended()
        laid = [*self._laid, (self._appended(), (0,))]
        tiles = [tile for tile, begins in laid for _ in begins]
        sizes = np.array([len(tile) for tile in tiles])
        at = np.concatenate([np.asarray(begins, np.int64) for _, begins in laid])
        begin = np.concatenate([tile.begin for tile in tiles])
        end = np.concatenate([tile.end for tile in tiles])
        shift = np.repeat(at, sizes)
        begin += shift
        end += shift * (end > 0)  # an access has no end: its `end` stays 0
        return Actions(
            op=np.concatenate([tile.op for tile in tiles]),
            begin=begin,
            end=end,
            kind=np.concatenate([tile.kind for tile in tiles]),
            level=np.concatenate([tile.level for tile in tiles]),
        )

    def _appended(self) -> Actions:
        return Actions(
            op=np.array(self._op, np.uint8),
            begin=np.array(self._begin, np.int64),
            end=np.array(self._end, np.int64),
            kind=np.array(self._kind, np.uint8),
            level=np.array(self._level, np.int16),
        )
