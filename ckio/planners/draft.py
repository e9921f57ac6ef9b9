"""A schedule while it is written: actions appended straight to columns."""

from array import array

import numpy as np

from ckio.actions import Kind
from ckio.actions.columns import ADVANCE, DISCARD, KIND_CODE, READ, RECORD, REVERSE, WRITE, Actions
from ckio.platform.chain import Chain
from ckio.schedule import Schedule


class Draft:
    """Appends actions and hands out their schedule; it does not check them, the Machine does."""

    def __init__(self) -> None:
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
        """The schedule of the actions so far, with what its planner has to say of it."""
        return Schedule(chain, self.actions(), note=note)

    def actions(self) -> Actions:
        """The actions so far."""
        return Actions(
            op=np.array(self._op, np.uint8),
            begin=np.array(self._begin, np.int64),
            end=np.array(self._end, np.int64),
            kind=np.array(self._kind, np.uint8),
            level=np.array(self._level, np.int16),
        )
