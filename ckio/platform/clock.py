"""Clocks, which are passed as arguments: the clock of the machine, and a virtual clock."""

import time
from typing import Protocol


class Clock(Protocol):
    """A clock: `now` returns seconds since some start, and `sleep` lets time pass."""

    def now(self) -> float: ...
    def sleep(self, seconds: float, /) -> None: ...


class WallClock:
    """The monotonic clock of this machine."""

    now = staticmethod(time.perf_counter)

    def sleep(self, seconds: float, /) -> None:
        time.sleep(seconds)


class VirtualClock:
    """A clock that advances only by `sleep`, for tests of timing code that must not wait."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        return self._now

    def sleep(self, seconds: float, /) -> None:
        self._now += seconds
