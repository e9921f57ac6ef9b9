"""Time, passed in: the wall's, or one that only moves when told to."""

import time
from typing import Protocol


class Clock(Protocol):
    """Seconds since a start of its own, and a way to let them pass."""

    def now(self) -> float: ...
    def sleep(self, seconds: float, /) -> None: ...


class WallClock:
    """The monotonic clock of this machine."""

    def now(self) -> float:
        return time.perf_counter()

    def sleep(self, seconds: float, /) -> None:
        time.sleep(seconds)


class VirtualClock:
    """A clock that stands still but for `sleep`: timing code tested without waiting."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        return self._now

    def sleep(self, seconds: float, /) -> None:
        self._now += seconds
