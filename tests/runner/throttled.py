"""Levels that take, on a virtual clock, what their platform says: what several tests run on."""

from dataclasses import replace

from ckio.backends.ram import Ram
from ckio.platform import Platform
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
