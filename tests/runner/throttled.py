"""Levels that take, on a virtual clock, what their platform says: what several tests run on."""

from dataclasses import replace
from typing import Any

from ckio.actions import Buffers, Key, Layout, nbytes_of
from ckio.backends.ram import Ram
from ckio.overlap.costs import backlog_of
from ckio.platform import Level, Platform
from ckio.platform.clock import VirtualClock
from ckio.schedule import Schedule
from ckio.testing import CountingModel, Throttled


def roomy(platform: Platform) -> Platform:
    """The same prices on levels that never fill and do not compress: what is legal stays legal."""
    levels = tuple(replace(level, capacity=None, ratio=1.0) for level in platform.levels)
    return replace(platform, levels=levels)


def opened(schedule: Schedule, platform: Platform, clock: VirtualClock) -> list[Throttled]:
    """The levels of a platform, as slow as they are priced, with what the schedule starts from."""
    model, backends = CountingModel(schedule.chain), [Ram() for _ in platform.levels]
    for backend, keys in zip(backends, schedule.stored, strict=False):
        for key in keys:
            backend.write(key, model.layout(key), [model._bytes(key).data])
    return [Throttled(b, level, clock) for b, level in zip(backends, platform.levels, strict=True)]


class PricedRam(Ram):
    """Memory that takes what it is priced at; of what it keeps no byte is copied.

    It lends memory, so it cannot be wrapped.
    """

    def __init__(self, level: Level, clock: Any, *, capacity: int | None = None) -> None:
        super().__init__(capacity=capacity)
        self._level, self._time, self._backlog = level, clock, backlog_of(level)

    def write(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        nbytes = super().write(key, layout, data)
        self._wrote(nbytes, copied=nbytes)
        return nbytes

    def read(self, key: Key, into: Buffers, /) -> int:
        nbytes = super().read(key, into)
        self._time.sleep(self._level.read(nbytes))
        return nbytes

    def keep(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        nbytes = super().keep(key, layout, data)
        self._wrote(nbytes, copied=0)
        return nbytes

    def kept(self, key: Key, /) -> Buffers | None:
        self._time.sleep(self._level.read(0))
        return super().kept(key)

    def discard(self, key: Key, /) -> None:
        nbytes = nbytes_of(self.layout(key))
        super().discard(key)
        self._time.sleep(self._level.discard(nbytes))

    def _wrote(self, nbytes: int, *, copied: int) -> None:
        seconds = self._level.write(copied)
        if self._backlog is None:
            self._time.sleep(seconds)
        else:
            self._time.sleep(seconds, self._backlog.longer(self._time.now(), nbytes))
            self._backlog.add(self._time.now(), nbytes)
