"""Running a program forward and back by pieces, within a budget for the tape."""

import time
from math import inf
from typing import Any, Final, Generic, TypeVar

from numpy.typing import NDArray

from ckio.programs.meter import Meter, metered, passed
from ckio.programs.protocol import Cotangent, Program

S = TypeVar("S")

_NODE: Final = 192
"""Bytes that count for each operation on a tape, beside what it keeps: python's own objects.

They are about half as many for numbers, and twice as many for arrays that are changed in place.
"""

_NEAR: Final = 16
"""A tape that is to take less of the budget than one part of so many is not tried beforehand."""


def rate(program: Program[S], state: S, ticks: int, /) -> float:
    """Bytes of tape for each of the next ticks, as measured."""
    with metered() as meter:
        program.pullback(state, ticks, {})
    return _rate(meter, ticks)


class Pulling(Generic[S]):
    """Counts the ticks that a program runs, and takes cotangents back over some of them.

    Attributes
    ----------
    ticks : int
        Run forward so far, with a tape or without.
    seconds : float
        That this took, without a tape.
    rate : float or None
        Bytes of tape for each of the ticks that were taken back last; None before there were any.
    """

    def __init__(self, program: Program[S], budget: float | None = None, /) -> None:
        self.ticks, self.seconds = 0, 0.0
        self.rate: float | None = None
        self._plain = 0  # ticks without a tape
        self._program = program
        self._budget = inf if budget is None else budget

    def advance(self, state: S, limit: float, /) -> tuple[S, int, bool]:
        """As the program does it."""
        before = time.perf_counter()
        found = self._program.advance(state, limit)
        self.seconds += time.perf_counter() - before
        self._plain += found[1]
        self._count(found[1])
        return found

    @property
    def seconds_each(self) -> float:
        """Of a tick without a tape; 0 before there was one."""
        return self.seconds / self._plain if self._plain else 0.0

    def back(self, state: S, ticks: int, cotangent: Cotangent, /) -> dict[str, NDArray[Any]]:
        """The cotangent of `state` from that of the state so many ticks later.

        A tape that would be larger than the budget is made in halves, the later one first. How
        large it would be is judged by its first ticks and by those that come after it, which have
        been taken back already. So how a program is divided follows from the program alone, and
        from `rate` where another process began.
        """
        if self._budget < inf and ticks > 1 and ticks * self._most(state, ticks) > self._budget:
            half = ticks // 2
            middle = self.advance(state, half)[0]
            cotangent = self.back(middle, ticks - half, cotangent)
            del middle
            return self.back(state, half, cotangent)
        with metered() as meter:
            found = self._program.pullback(state, ticks, cotangent)
        self._count(ticks)
        self.rate = _rate(meter, ticks)
        return found

    def _most(self, state: S, ticks: int) -> float:
        """The bytes that each of the next ticks may take on a tape."""
        if self.rate is None:
            self.rate = self._tried(self.advance(state, ticks - _some(ticks))[0], ticks)
        if ticks * self.rate < self._budget / _NEAR:
            return self.rate
        return max(self.rate, self._tried(state, ticks))

    def _tried(self, state: S, of: int) -> float:
        self._count(_some(of))
        return rate(self._program, state, _some(of))

    def _count(self, ticks: int) -> None:
        self.ticks += ticks
        passed(ticks)


def _some(ticks: int) -> int:
    """By how many of them they are judged; one tick alone may be unlike the others."""
    return min(64, max(ticks // 16, min(8, ticks // 2)))


def _rate(meter: Meter, ticks: int) -> float:
    return (meter.nbytes + _NODE * meter.nodes) / max(1, ticks)
