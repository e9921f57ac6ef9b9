"""Running a program forward and back by pieces, within a budget for the tape."""

import time
from math import inf
from typing import Any, Final, Generic, TypeVar

from numpy.typing import NDArray

from ckio.programs.meter import Meter, metered
from ckio.programs.protocol import Cotangent, Program

S = TypeVar("S")

_NODE: Final = 256
"""Bytes that count for each operation on a tape, beside what it keeps: python's own objects."""


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
    """

    def __init__(self, program: Program[S], budget: float | None = None, /) -> None:
        self.ticks, self.seconds = 0, 0.0
        self._plain = 0  # ticks without a tape
        self._program = program
        self._budget = inf if budget is None else budget
        self._rate = 0.0  # bytes of tape a tick, the last time

    def advance(self, state: S, limit: float, /) -> tuple[S, int, bool]:
        """As the program does it."""
        before = time.perf_counter()
        found = self._program.advance(state, limit)
        self.seconds += time.perf_counter() - before
        self.ticks += found[1]
        self._plain += found[1]
        return found

    @property
    def seconds_each(self) -> float:
        """Of a tick without a tape; 0 before there was one."""
        return self.seconds / self._plain if self._plain else 0.0

    def back(self, state: S, ticks: int, cotangent: Cotangent, /) -> dict[str, NDArray[Any]]:
        """The cotangent of `state` from that of the state so many ticks later.

        A tape that would be larger than the budget, at the bytes that each tick took the last time,
        is made in halves, the later one first.
        """
        if ticks > 1 and ticks * self._rate > self._budget:
            half = ticks // 2
            middle, done, finished = self.advance(state, half)
            if not finished:
                cotangent = self.back(middle, ticks - half, cotangent)
                del middle
                return self.back(state, half, cotangent)
            ticks = done
        with metered() as meter:
            found = self._program.pullback(state, ticks, cotangent)
        self.ticks += ticks
        self._rate = _rate(meter, ticks)
        return found


def _rate(meter: Meter, ticks: int) -> float:
    return (meter.nbytes + _NODE * meter.nodes) / max(1, ticks)
